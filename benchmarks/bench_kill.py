"""Kill `everyturn bench` at random moments, in the run and in its judging, and see what it lost.

    python -m benchmarks.bench_kill --kills 100

A run of 500 rows with two judges goes over a gateway with a scripted provider whose answers depend
on the question alone. The command gets SIGKILL at a random moment and is started again, until it is
done; then the next run begins, until so many kills were made. Of each run every key has exactly one
terminal row, no judge has judged a row twice, the calls in the ledger account for every request
that the provider got, and what was found is equal to that of a run that nobody disturbed.

Loopback only; the processes started here are ended here, by id. Exit status 1 if anything differs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everyturn.bench.budget import read_spend
from everyturn.bench.folder import JUDGEMENTS, ROWS, SPEND, SUMMARY
from everyturn.bench.rows import read_rows
from everyturn.bench.votes import read_judgements
from everyturn.config import read_config
from everyturn.gateway.log import Log
from everyturn.gateway.server import start
from everyturn.mock import MockProvider, Pause, Script
from everyturn.mock.scenario import Ask
from everyturn.mock.script import head
from everyturn.mock.speech import Said, Speech

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
PAUSE_MS = 4
PRICED = "max_tokens = 100\nstream = false\nprice = { input = 1, output = 10 }\n"


@dataclass(slots=True)
class Tally:
    """What was done, and everything that was wrong."""

    kills: int = 0
    runs: int = 0
    rows: int = 0
    lost_calls: int = 0
    faults: list[str] = field(default_factory=list)


def answering(counts: Counter[str]) -> Any:
    """Answers that depend on the question alone; judges rule by what they are shown."""

    def play(ask: Ask) -> Script:
        counts["requests"] += 1
        text = str(ask.body["messages"][-1]["content"])
        draw = random.Random(f"{ask.name} {text}")
        if ask.name.startswith("judge"):
            label = draw.choice(["correct", "correct", "F3"])
            verdict = "correct" if label == "correct" else "incorrect"
            said = json.dumps({"verdict": verdict, "label": label, "rationale": "so"})
            if draw.random() < 0.05:
                said = "I would say so."
        else:
            said = "" if draw.random() < 0.05 else f"pear {draw.randrange(3)}"
        speech = Speech(said=(Said("reasoning_content", "so"), Said("content", said)), usage=USAGE)
        body = json.dumps(speech.body(ask.name)).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
        return Script.raw([Pause(PAUSE_MS), head(200, headers) + body])

    return play


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Counter[str]]:
    """A gateway over a scripted provider, and the files of a run; counts what was asked."""
    counts: Counter[str] = Counter()
    names = ("m", "judge-a", "judge-b")
    async with MockProvider() as mock:
        for name in names:
            mock.add(f"{name}-kill", answering(counts))
        models = "".join(
            f'[[models]]\nname = "{name}"\npreset = "generic-strict"\nbase_url = "{mock.url}"\n'
            f'upstream_model = "{name}-kill"\n'
            for name in names
        )
        text = f'[gateway]\nport = 0\ndata = "{folder / "data"}"\n{models}'
        gateway = await start(read_config(text, "kill.toml", {}), {}, Log(is_on=False))
        url = f"http://127.0.0.1:{gateway.port}/v1"
        (folder / "grid.toml").write_text(
            f'[run]\ngateway = "{url}"\nepochs = 2\nbudget = 100.0\n[data]\npath = "items.jsonl"\n'
            f'[[models]]\nname = "m"\n{PRICED}'
            '[[cells]]\nname = "plain"\nkind = "no-context"\n'
            '[[scorers]]\nname = "right"\nkind = "contains"\n',
            encoding="utf-8",
        )
        (folder / "judges.toml").write_text(
            "".join(f'[[judges]]\nname = "{name}"\n{PRICED}' for name in names[1:]),
            encoding="utf-8",
        )
        try:
            yield counts
        finally:
            await gateway.stop()


async def run(
    kills: int, folder: Path, *, rows: int = 500, seed: int = 0, say: bool = False
) -> Tally:
    """Kill that often, and look at every run that was disturbed."""
    draw = random.Random(seed)
    tally = Tally()
    with (folder / "items.jsonl").open("w", encoding="utf-8") as file:
        for number in range(rows // 2):
            item = {"item_id": f"q{number}", "question": f"{number}?", "expected": ["pear 1"]}
            file.write(json.dumps({**item, "cluster": f"c{number // 3}"}) + "\n")
    async with served(folder) as counts:
        began = time.monotonic()
        await undisturbed(folder, "calm")
        calm = time.monotonic() - began
        expected = found(folder / "calm")
        while tally.kills < kills:
            out = f"run-{tally.runs}"
            before = counts["requests"]
            for command in (run_command(out), judge_command(out)):
                while tally.kills < kills:
                    if await killed(folder, command, draw.uniform(0.2, 0.3 + calm / 2)):
                        tally.kills += 1
                        if say:
                            print(f"\r{tally.kills} of {kills} kills", end="", file=sys.stderr)
                    else:
                        break
            await undisturbed(folder, out)
            examine(folder / out, expected, counts["requests"] - before, rows, tally)
            tally.runs += 1
            if not tally.faults:
                shutil.rmtree(folder / out)
    return tally


def run_command(out: str) -> list[str]:
    """The command that makes rows."""
    return ["run", "grid.toml", "--out", out]


def judge_command(out: str) -> list[str]:
    """The command that judges them."""
    return ["judge", out, "--judges", "judges.toml"]


async def killed(folder: Path, command: list[str], after_s: float) -> bool:
    """Start a command and kill it after a while; whether it was still at work."""
    process = await started(folder, command)
    try:
        await asyncio.wait_for(process.wait(), after_s)
    except TimeoutError:
        process.kill()
        await process.wait()
        return True
    return False


async def undisturbed(folder: Path, out: str) -> None:
    """Run and judge to the end."""
    for command in (run_command(out), judge_command(out)):
        process = await started(folder, command)
        status = await process.wait()
        if status != 0:
            raise RuntimeError(f"`bench {command[0]}` ended with {status}")


async def started(folder: Path, command: list[str]) -> asyncio.subprocess.Process:
    """A `bench` command as a process."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "everyturn", "bench", *command),
        cwd=folder,
        stderr=asyncio.subprocess.DEVNULL,
    )


def found(path: Path) -> Any:
    """What a run found: the part of its summary that depends on the answers alone."""
    return json.loads((path / SUMMARY).read_text(encoding="utf-8"))["found"]


def examine(path: Path, expected: Any, requests: int, rows: int, tally: Tally) -> None:
    """Note whatever is not as it must be."""
    keys = Counter(row.key for row in read_rows(path / ROWS))
    judged = Counter(
        (one.key, one.judge) for one in read_judgements(path / JUDGEMENTS) if one.is_final
    )
    spend = read_spend(path / SPEND)
    settled = spend.calls - spend.lost_calls
    tally.rows += len(keys)
    tally.lost_calls += spend.lost_calls
    checks = {
        "every key has one row": len(keys) == rows and set(keys.values()) == {1},
        "no row is judged twice by a judge": set(judged.values()) == {1},
        "what was found is equal": found(path) == expected,
        "every request has its reservation": spend.calls >= requests,
        "every settled call is paid": round(float(spend.subject + spend.judges), 9)
        == round(settled * 0.0003, 9),
    }
    tally.faults += [f"{path.name}: not so: {name}" for name, is_so in checks.items() if not is_so]


def main() -> int:
    """The command."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--kills", type=int, default=100)
    asked.add_argument("--seed", type=int, default=int(time.time()))
    options = asked.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="everyturn-bench-kill-"))
    tally = asyncio.run(run(options.kills, folder, seed=options.seed, say=sys.stderr.isatty()))
    print(
        f"kills: {tally.kills}, runs: {tally.runs}, rows: {tally.rows}, seed: {options.seed}, "
        f"calls that a kill cut off: {tally.lost_calls}"
    )
    for fault in tally.faults:
        print(fault)
    if tally.faults:
        print(f"the runs are left in: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
