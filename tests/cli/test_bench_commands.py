"""`everyturn bench judge, report, compare, rows, export, close` as processes."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from click.testing import CliRunner

from everyturn.cli.main import main
from tests.bench.test_judge_run import TWO, always
from tests.bench.test_report import half
from tests.support.bench import Bench, bench, questions, right


async def command(made: Bench, *arguments: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of a `bench` command; in a thread, for the gateway is in ours."""
    done = await asyncio.to_thread(CliRunner().invoke, main, ["bench", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


async def process(made: Bench, *arguments: str) -> tuple[int, str, str]:
    """The same in a process of its own, which a command with signal handlers needs."""
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "everyturn", "bench", *arguments),
        cwd=made.folder,
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await asyncio.wait_for(started.communicate(), timeout=60)
    assert started.returncode is not None
    return started.returncode, out.decode(), err.decode()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands name files relative to the folder of the test."""
    monkeypatch.chdir(tmp_path)


async def test_a_run_from_begin_to_end(tmp_path: Path) -> None:
    """Judge, report, rows, export, compare, close: each does its part, with its exit status."""
    async with bench(tmp_path, "m", "a", "b") as made:
        made.items(questions(8))
        made.answers("m", half)
        for name in ("a", "b"):
            made.answers(name, always("correct"))
        await made.run(made.grid(), "first")
        made.answers("m", right)
        await made.run(made.grid(), "second")
        (tmp_path / "judges.toml").write_text(TWO, encoding="utf-8")

        judged = await process(made, "judge", "first", "--judges", "judges.toml")
        report = await command(made, "report", "first", "--html", "page.html")
        as_json = await command(made, "report", "first", "--json")
        rows = await command(made, "rows", "first", "--where", "right=0")
        turn_id = made.rows("first")[0].turn_id
        one = await command(made, "rows", "first", "--turn", str(turn_id))
        line = await command(made, "rows", "first", "--turn", str(turn_id), "--json")
        none = await command(made, "rows", "first", "--where", "outcome=length")
        export = await command(made, "export", "first")
        logs = await command(made, "export", "first", "--format", "inspect", "--out", "logs")
        gate = ("--gate", "difference > -0.02")
        better = await command(made, "compare", "first", "second", *gate)
        worse = await command(made, "compare", "second", "first", *gate)
        closed = await command(made, "close", "first", "--curate", "published", "--rows", "2")

    statuses = [judged, report, as_json, rows, one, export, logs, better, closed]
    assert [status for status, _, _ in statuses] == [0] * 9, statuses
    assert "8 of 8 rows judged" in judged[2]
    assert "0.500" in report[1]
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert json.loads(as_json[1])["found"]["judging"]["agreement"]["judges"] == ["a", "b"]
    assert rows[1].count("No idea") == 4
    told = json.loads(one[1])
    assert one[1].startswith('{\n  "run_id"')
    assert json.loads(line[1]) == told
    assert len(line[1].splitlines()) == 1
    assert none == (0, "", "No row fits.\n")
    assert told["turn"]["model_calls"][0]["prompt_messages_json"][-1]["content"] == told["question"]
    assert [j["label"] for j in told["judgements"]] == ["correct", "correct"]
    assert len(export[1].splitlines()) == 8
    assert "MARKER" not in export[1]
    assert len(logs[1].splitlines()) == 1
    assert "difference +0.500" in better[1]
    assert worse[0] == 1
    assert "gate `difference > -0.02` does not hold" in worse[2]
    assert not (tmp_path / "first").exists()
    kept = Path(closed[1].strip())
    assert len((tmp_path / kept / "rows.jsonl").read_text().splitlines()) == 2


async def test_refusals_have_a_status_and_a_hint(tmp_path: Path) -> None:
    """No run, no metric, a wrong condition, a wrong gate, an unreadable file of judges."""
    async with bench(tmp_path) as made:
        made.items(questions(1))
        await made.run(made.grid())
        (tmp_path / "judges.toml").write_text("[judges]\n", encoding="utf-8")

        refused = {
            "no run": await command(made, "report", "nowhere"),
            "has no metric": await command(made, "compare", "run", "run", "--metric", "x"),
            "is no member": await command(made, "rows", "run", "--where", "outcom=ok"),
            "is no gate": await command(made, "compare", "run", "run", "--gate", "x"),
            "judges.toml:1:": await command(made, "judge", "run", "--judges", "judges.toml"),
        }

    statuses = {said: status for said, (status, _, _) in refused.items()}
    assert statuses == {
        "no run": 1,
        "has no metric": 1,
        "is no member": 1,
        "is no gate": 2,
        "judges.toml:1:": 2,
    }
    for said, (_, out, err) in refused.items():
        assert said in err
        assert out == ""
        assert "Traceback" not in err
