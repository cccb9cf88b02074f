"""`everyturn bench run` as a process: plan, progress, Ctrl-C, kill -9."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

from click.testing import CliRunner

from benchmarks.bench_kill import run
from everyturn.cli.main import main
from everyturn.gateway.auth import new_key
from everyturn.mock import Pause, Script
from everyturn.mock.scenario import Ask
from everyturn.mock.script import head
from tests.support.bench import Bench, bench, questions, right, speech


async def started(made: Bench, *more: str, text: str = "", **run: object) -> Process:
    """The command in a process of its own."""
    (made.folder / "grid.toml").write_text(made.grid_text(text, **run), encoding="utf-8")
    command = [sys.executable, "-m", "everyturn", "bench", "run", "grid.toml", *more]
    environment = {**os.environ, **made.environment}
    return await asyncio.create_subprocess_exec(
        *command, cwd=made.folder, stdout=PIPE, stderr=PIPE, env=environment
    )


async def ended(process: Process) -> tuple[int, str, str]:
    """Its status and what it said."""
    out, err = await asyncio.wait_for(process.communicate(), timeout=60)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_a_run_says_how_it_went(tmp_path: Path) -> None:
    """Status 0, nothing on stdout, and a plain last line with rows, spend and failures."""
    async with bench(tmp_path) as made:
        made.items(questions(4))
        made.answers("m", lambda question, ask: "" if "3" in question else right(question, ask))

        status, out, err = await ended(await started(made, "--out", "run"))

        assert (status, out) == (0, "")
        assert "4 of 4 rows" in err
        assert "$0.0012" in err
        assert "empty 1" in err


async def told(made: Bench, *more: str, text: str = "", **run: object) -> tuple[int, str, str]:
    """Status, stdout and stderr of the command where it makes no run: in a thread of ours."""
    path = made.folder / "grid.toml"
    path.write_text(made.grid_text(text, **run), encoding="utf-8")
    done = await asyncio.to_thread(CliRunner().invoke, main, ["bench", "run", str(path), *more])
    return done.exit_code, done.stdout, done.stderr


async def test_a_dry_run_tells_the_price_and_makes_nothing(tmp_path: Path) -> None:
    """Grid, calls, price at worst; with a fault in the plan status 1 and what would be refused."""
    async with bench(tmp_path) as made:
        made.items(questions(4))

        status, out, _ = await told(made, "--dry-run", "--budget", "0.001")
        refused = await told(made, "--dry-run", text='[[models]]\nname = "nobody"\n')

        assert status == 0
        assert "rows    4" in out
        assert "price   $0.00" in out
        assert "skipped_budget" in out
        assert refused[0] == 1
        assert "refused the gateway has no model `nobody`" in refused[1]
        assert made.requests["m"] == []
        assert not (tmp_path / "run").exists()


async def test_bad_use_is_told_with_lines(tmp_path: Path) -> None:
    """A fault of the grid ends with status 2 and its line; no folder with status 2."""
    async with bench(tmp_path) as made:
        made.items(questions(1))

        wrong = await told(made, "--out", "run", epoch=2)
        nowhere = await told(made)

        assert wrong[0] == 2
        assert "grid.toml:" in wrong[2]
        assert "Did you mean `epochs`?" in wrong[2]
        assert nowhere[0] == 2


def slowly(made: Bench) -> None:
    """Answer rightly after a moment."""

    def answering(question: str, ask: Ask) -> Script:
        body = json.dumps(speech(right(question, ask)).body("m")).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        return Script.raw([Pause(60), head(200, headers) + body])

    made.answers("m", answering)


async def test_ctrl_c_once_finishes_what_is_under_way(tmp_path: Path) -> None:
    """Status 130, no call is wasted, and the same command goes on."""
    async with bench(tmp_path) as made:
        made.items(questions(200))
        slowly(made)
        text = '[[models]]\nname = "m"\nstream = false\n'

        process = await started(made, "--out", "run", text=text, concurrency=4)
        await until_asked(made, 8)
        process.send_signal(signal.SIGINT)
        status, _, err = await ended(process)
        rows = made.rows()

        assert status == 130
        assert "the same command goes on" in err
        assert 8 <= len(rows) == len(made.requests["m"]) < 200

        made.answers("m", right)
        status, _, err = await ended(await started(made, "--out", "run", text=text))
        assert status == 0
        assert f"going on: {len(rows)} of 200" in err
        assert len({row.key for row in made.rows()}) == len(made.rows()) == 200


async def test_ctrl_c_twice_stops_at_once(tmp_path: Path) -> None:
    """Calls under way are given up; the run can be resumed."""
    async with bench(tmp_path) as made:
        made.items(questions(4))
        from everyturn.mock import HANG

        made.answers("m", lambda question, ask: Script.raw([HANG]))
        process = await started(made, "--out", "run")
        await until_asked(made, 4)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while b"Ctrl-C again" not in await asyncio.wait_for(process.stderr.readline(), 20):
            pass
        process.send_signal(signal.SIGINT)
        status, _, _ = await ended(process)

        assert status == 130
        assert made.rows() == []
        made.answers("m", right)
        assert (await ended(await started(made, "--out", "run")))[0] == 0
        assert len(made.rows()) == 4


async def until_asked(made: Bench, count: int) -> None:
    """Wait until the model was asked so often."""
    async with asyncio.timeout(20):
        while len(made.requests["m"]) < count:
            await asyncio.sleep(0.005)


async def test_kill_9_loses_no_row_and_makes_none_twice(tmp_path: Path) -> None:
    """Killed in the run and in its judging, and resumed: rows, judgements, spend and findings.

    `python -m benchmarks.bench_kill --kills 100` is the long form of this.
    """
    tally = await run(3, tmp_path, rows=80, seed=3)

    assert tally.kills == 3
    assert tally.runs >= 1
    assert tally.faults == []


async def test_a_key_of_the_gateway_opens_it_and_rests_nowhere(tmp_path: Path) -> None:
    """Without it the run is refused with what to set; with it no file of the run holds it."""
    key, sha256 = new_key("bench")
    table = f'[[keys]]\nname = "bench"\nsha256 = "{sha256}"\npermissions = ["call", "record"]'
    async with bench(tmp_path, keys=table) as made:
        made.items(questions(3))
        made.answers("m", lambda question, ask: f"It is {key}")

        refused = await ended(await started(made, "--out", "run"))
        made.environment["EVERYTURN_API_KEY"] = key
        status, _, err = await ended(await started(made, "--out", "run"))

        assert refused[0] == 1
        assert "unauthorized" in refused[2]
        assert "EVERYTURN_API_KEY" in refused[2]
        assert status == 0, err
        assert len(made.rows()) == 3
        files = [path for path in (tmp_path / "run").iterdir() if path.is_file()]
        assert not any(key.encode() in path.read_bytes() for path in files)
        assert key not in err
