"""What the benchmark harness costs for each row, beside a bare loop and beside Inspect AI.

    python -m benchmarks.harness [--rows 2000] [--concurrency 16] [--inspect PYTHON]

The same items go to the same gateway with the scripted provider behind it: once by `everyturn bench
run`, once by a bare asyncio loop over the official `openai` client, and, where PYTHON names an
interpreter that has `inspect_ai` and `openai`, once by Inspect AI. Each is a process of its own;
wall time is of the whole process, start included. Then a run of 100,000 rows is made up, and
timed: finding what is missing of it, and its report.

Marks: under 3 ms a row more than the bare loop; 5 times the rows a second of Inspect; a resume in
under 2 s; a report in under 5 s and 300 MB. Loopback only. Exit status 0: measured.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from everyturn.bench.cleaning import Cleaner
from everyturn.bench.folder import ROWS, RunFolder
from everyturn.bench.items import Item
from everyturn.bench.manifest import read_manifest, write_items, write_manifest
from everyturn.bench.rows import Attempt, FullRow, encoded

BIG: Final = 100_000

BARE: Final = """
import asyncio, json, sys
import openai

async def main():
    client = openai.AsyncOpenAI(base_url=sys.argv[1], api_key="unused", max_retries=0)
    gate = asyncio.Semaphore(int(sys.argv[3]))
    items = [json.loads(line) for line in open(sys.argv[2])]

    async def one(item):
        async with gate:
            found = await client.chat.completions.create(
                model="bench", messages=[{"role": "user", "content": item["question"]}],
                max_tokens=100)
            return found.choices[0].message.content

    print(len(await asyncio.gather(*map(one, items))))

asyncio.run(main())
"""
INSPECT: Final = """
import json, os, sys
os.environ["BENCH_BASE_URL"], os.environ["BENCH_API_KEY"] = sys.argv[1], "unused"
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

items = [json.loads(line) for line in open(sys.argv[2])]
data = [Sample(id=i["item_id"], input=i["question"], target=i["expected"]) for i in items]
log = eval(Task(dataset=data, solver=generate(), scorer=includes()), model="openai-api/bench/bench",
    max_connections=int(sys.argv[3]), max_samples=int(sys.argv[3]), display="none",
    log_dir=sys.argv[4], max_tokens=100)[0]
print(log.status, len(log.samples))
"""


@dataclass(frozen=True, slots=True)
class Took:
    """One process: seconds on the clock, and of CPU."""

    wall_s: float
    cpu_s: float


def timed(command: list[str], folder: Path) -> Took:
    """Run a command to its end. Raises RuntimeError where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{command[:4]} ended with {done.returncode}: {done.stderr[-800:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(wall, cpu)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A gateway and a scripted provider, each a process of its own; the gateway's base URL."""
    mock = subprocess.Popen(
        [sys.executable, "-m", "everyturn", "mock", "--port", "0", "--quiet"],
        stdout=subprocess.PIPE,
        text=True,
    )
    gateway = None
    try:
        assert mock.stdout is not None
        url = mock.stdout.readline().strip()
        config = folder / "gateway.toml"
        config.write_text(
            f'[gateway]\nport = 0\ndata = "{folder / "data"}"\n'
            f'[[models]]\nname = "bench"\npreset = "generic-strict"\nbase_url = "{url}"\n',
            encoding="utf-8",
        )
        gateway = subprocess.Popen(
            [sys.executable, "-m", "everyturn", "serve", "--config", str(config)],
            stderr=subprocess.PIPE,
        )
        assert gateway.stderr is not None
        for line in gateway.stderr:
            if b"gateway.listening" in line:
                break
        # Its log is read by nobody from here on, and a full pipe must not hold it up.
        drain = subprocess.Popen(["cat"], stdin=gateway.stderr, stdout=subprocess.DEVNULL)
        yield f"http://127.0.0.1:{json.loads(line)['port']}/v1"
        gateway.terminate()
        gateway.wait(30)
        drain.wait(30)
    finally:
        for process in (gateway, mock):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()


def write_grid(folder: Path, url: str, rows: int, concurrency: int) -> None:
    """Items and a grid with one row for each."""
    with (folder / "items.jsonl").open("w", encoding="utf-8") as file:
        for number in range(rows):
            item = {
                "item_id": f"q{number}",
                "question": f"Seven people share {number} pears. How many does each get?",
                "expected": ["12 pears"],
            }
            file.write(json.dumps(item) + "\n")
    (folder / "grid.toml").write_text(
        f'[run]\ngateway = "{url}"\nconcurrency = {concurrency}\n[data]\npath = "items.jsonl"\n'
        '[[models]]\nname = "bench"\nmax_tokens = 100\nstream = false\n'
        '[[cells]]\nname = "alone"\nkind = "template"\ntemplate = "{question}"\n'
        '[[scorers]]\nname = "right"\nkind = "contains"\n',
        encoding="utf-8",
    )


def make_big(folder: Path) -> None:
    """A run of 100,000 rows, made up from the manifest of the small one."""
    manifest = read_manifest(folder / "run")
    manifest.data.selected = BIG
    row = FullRow(
        **{name: getattr(manifest, name) for name in ("run_id",)},
        cell="alone",
        model="bench",
        item_id="q0",
        epoch=0,
        control=False,
        turn_id="00000000-0000-4000-8000-000000000000",
        trace_id="0" * 32,
        outcome="ok",
        model_answer="Each of the seven people gets 12 pears.",
        requested_model="bench",
        attempts=(
            Attempt(
                step=0,
                started_at="2026-01-01T00:00:00.000Z",
                latency_ms=12.5,
                status=200,
                outcome="answered",
                cost=0.0003,
            ),
        ),
        reasoning_content="so " * 100,
        reasoning_content_chars=300,
        scores={"right": 1.0},
        started_at="2026-01-01T00:00:00.000Z",
    )
    items = [Item(item_id=f"q{n}", question=f"question {n}") for n in range(BIG)]
    with RunFolder(folder / "big") as run:
        write_manifest(run, manifest)
        write_items(run, items, Cleaner((), b"k"))
    with (folder / "big" / ROWS).open("wb") as file:
        for number, item in enumerate(items):
            right = float(number % 3 != 0)
            file.write(
                encoded(msgspec.structs.replace(row, item_id=item.item_id, scores={"right": right}))
            )


def main() -> int:
    """The command."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--rows", type=int, default=2000)
    asked.add_argument("--concurrency", type=int, default=16)
    asked.add_argument("--inspect", metavar="PYTHON", help="an interpreter that has inspect_ai")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="everyturn-harness-") as name:
        folder = Path(name)
        with served(folder) as url:
            write_grid(folder, url, options.rows, options.concurrency)
            took = run_all(folder, url, options.concurrency, options.inspect)
        tell(took, options.rows)
        make_big(folder)
        tell_big(folder)
    return 0


def run_all(folder: Path, url: str, concurrency: int, inspect: str | None) -> dict[str, Took]:
    """Each way once; the harness last, so that the record has grown for it most."""
    bare = [sys.executable, "-c", BARE, url, "items.jsonl", str(concurrency)]
    took = {"bare openai loop": timed(bare, folder)}
    if inspect is not None:
        command = [inspect, "-c", INSPECT, url, "items.jsonl", str(concurrency), "logs"]
        took["Inspect AI"] = timed(command, folder)
    ours = [sys.executable, "-m", "everyturn", "bench", "run", "grid.toml", "--out", "run"]
    took["everyturn bench"] = timed(ours, folder)
    return took


def tell(took: dict[str, Took], rows: int) -> None:
    """Rows a second, milliseconds and CPU milliseconds a row."""
    for name, one in took.items():
        print(
            f"{name:18} {rows / one.wall_s:8.0f} rows/s {one.wall_s / rows * 1000:7.2f} ms a row "
            f"{one.cpu_s / rows * 1000:7.2f} ms of CPU a row"
        )
    ours, bare = took["everyturn bench"], took["bare openai loop"]
    print(f"over the bare loop: {(ours.wall_s - bare.wall_s) / rows * 1000:+.2f} ms a row (mark 3)")
    if "Inspect AI" in took:
        print(f"against Inspect: {took['Inspect AI'].wall_s / ours.wall_s:.1f} times (mark 5)")


_RESUME: Final = """
import sys, time
from pathlib import Path
began = time.perf_counter()
from everyturn.bench.rows import done_keys
from everyturn.bench.items import Item
from everyturn.bench.manifest import read_items, read_manifest
from everyturn.bench.runner import all_keys
path = Path(sys.argv[1])
done = done_keys(path / "rows.jsonl")
items = read_items(path)
missing = [k for k in all_keys(read_manifest(path).grid, items.values()) if k not in done]
assert not missing
print(time.perf_counter() - began)
"""


def tell_big(folder: Path) -> None:
    """What 100,000 rows take."""
    path = str(folder / "big")
    resume = timed([sys.executable, "-c", _RESUME, path], folder)
    report = [sys.executable, "-m", "everyturn", "bench", "report", path]
    code = "import resource,subprocess,sys;subprocess.run(sys.argv[1:],check=True);"
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *report], capture_output=True, text=True, check=True
    )
    seconds, kilobytes = time.perf_counter() - began, int(done.stdout.split()[-1])
    print(f"what is missing of {BIG:,} rows: {resume.wall_s:.2f} s (mark 2)")
    print(
        f"report over {BIG:,} rows: {seconds:.2f} s (mark 5), {kilobytes / 1024:.0f} MB (mark 300)"
    )


if __name__ == "__main__":
    sys.exit(main())
