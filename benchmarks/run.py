"""`make bench`: what the gateway costs, beside a bare relay and nginx in the same run.

    python -m benchmarks.run [--quick] [--json FILE] [--write-docs]

The rows run on one core; load (`wrk`) and upstream run on another. Rounds are interleaved, so that
what else the machine does weighs on all rows alike; figures are medians of the rounds. Marks are
told as met or not; they do not change the exit status. Exit status 0: measured; 1: the run is worth
nothing (an answer was wrong, or the upstream too slow); 2: something is missing here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from benchmarks import machine, recorder_bench, report, startup, storage
from benchmarks.load import Load, LoadFailed
from benchmarks.results import Results
from benchmarks.rows import (
    CannotStart,
    Row,
    Upstream,
    all_rows,
    check_row,
    settle,
    upstream,
)

TIME_MAX_S: Final = 360
"""The run ends itself after this, with everything it started."""
UPSTREAM_FACTOR: Final = 3.0
"""How much faster than the fastest row the upstream must be."""
TOOLS: Final = {
    "wrk": "wrk",
    "nginx": "nginx-light",
    "cc": "gcc libc6-dev",
    "taskset": "util-linux",
}
"""Programs that must be there, and the Debian packages that have them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often. seconds and seconds_short: of one run of wrk."""

    rounds: int
    seconds: int
    seconds_short: int
    starts: int


FULL: Final = Plan(rounds=3, seconds=3, seconds_short=2, starts=5)
QUICK: Final = Plan(rounds=1, seconds=1, seconds_short=1, starts=2)


@dataclass(frozen=True, slots=True)
class Measure:
    """One kind of load."""

    name: str
    connections: int
    is_long: bool = False
    is_stream: bool = False
    is_slow: bool = False


DIRECT_MEASURES: Final = (Measure("whole_1", 1), Measure("whole_32", 32, is_long=True))
MEASURES: Final = (
    *DIRECT_MEASURES,
    Measure("whole_64", 64),
    Measure("streams_32", 32, is_long=True, is_stream=True),
    Measure("slow_streams_32", 32, is_stream=True, is_slow=True),
)


class TooSlow(Exception):
    """The upstream bounds what the rows can do."""


def measure(row: Row, what: Measure, load: Load, plan: Plan, results: Results) -> None:
    """Put one kind of load on one row, and wait until the row is at rest again."""
    before = row.process.cpu_s()
    figures = load.run(
        row.slow_port if what.is_slow else row.port,
        row.slow_path if what.is_slow else row.path,
        model=row.slow_model if what.is_slow else "bench",
        is_stream=what.is_stream,
        connections=what.connections,
        seconds=plan.seconds if what.is_long else plan.seconds_short,
    )
    results.add(row.name, what.name, figures, row.process.cpu_s() - before)
    settle(row.process, idle=lambda used: used <= 0.01)


def check_upstream(source: Upstream, load: Load, core: int) -> dict[str, float]:
    """What the upstream can do alone: whole answers and streams a second of its own CPU time.

    wrk runs on the other core for this. Streams cost wrk more than the upstream, so the rate that
    wrk sees would tell the bound of wrk.
    """
    alone: dict[str, float] = {}
    for name, is_stream in (("whole", False), ("streams", True)):
        before = source.process.cpu_s()
        figures = load.run(
            source.port,
            source.row.path,
            model="bench",
            is_stream=is_stream,
            connections=64,
            seconds=2,
            core=core,
        )
        alone[name] = figures.requests / max(source.process.cpu_s() - before, 0.001)
    return alone


def refuse_slow_upstream(results: Results) -> None:
    """Raises TooSlow unless the upstream alone serves three times the faster gateway row.

    nginx and the bare relay are what the gateway is held against. They do little else than the
    system calls that the upstream makes too, so no upstream is three times as fast as they are; how
    much faster it is stands in the report.
    """
    for name, measures in (("whole", ("whole_32", "whole_64")), ("streams", ("streams_32",))):
        fastest = max(
            results.median(row, one, "per_second")
            for row in (report.RECORD_ON, report.RECORD_OFF)
            for one in measures
        )
        alone = results.upstream_alone[name]
        if alone < UPSTREAM_FACTOR * fastest:
            raise TooSlow(
                f"upstream too slow: alone it serves {alone:,.0f} {name} a second, and the "
                f"gateway {fastest:,.0f}"
            )


def run(plan: Plan, folder: Path, row_core: int, load_core: int) -> Results:
    """The whole benchmark. Raises CannotStart, LoadFailed and TooSlow."""
    results = Results(load_before=machine.load_average(), rounds=plan.rounds)
    load = Load(folder, load_core)
    with upstream(folder, load_core) as source:
        check_row(source.row)
        results.upstream_alone = check_upstream(source, load, row_core)
        say("starts")
        results.start_s = startup.measure(folder, source, row_core, times=plan.starts)
        with all_rows(folder, source, row_core) as rows:
            for row in rows:
                load.run(
                    row.port, row.path, model="bench", is_stream=False, connections=32, seconds=1
                )
            for number in range(1, plan.rounds + 1):
                say(f"round {number} of {plan.rounds}")
                for what in DIRECT_MEASURES:
                    measure(source.row, what, load, plan, results)
                for row in rows:
                    for what in MEASURES:
                        measure(row, what, load, plan, results)
                refuse_slow_upstream(results)
            results.resident_bytes = {row.name: row.process.resident_bytes() for row in rows}
    say("redaction")
    results.redaction_us = recorder_bench.redaction_us()
    say("a conversation")
    results.conversation = storage.measure(folder, row_core)
    return results


def say(what: str) -> None:
    """Tell how far the run is."""
    print(f"bench: {what}", file=sys.stderr, flush=True)


def missing() -> str | None:
    """What this machine lacks, and how to get it; None if nothing."""
    lacking = [program for program in TOOLS if shutil.which(program) is None]
    if lacking:
        packages = " ".join(TOOLS[program] for program in lacking)
        return f"not found: {', '.join(lacking)}\nDebian, Ubuntu: apt-get install {packages}"
    if len(machine.cores()) < 2:
        return "two cores are needed: one for the rows, one for load and upstream"
    return None


def on_signal(number: int, _frame: object) -> NoReturn:
    """End the run, by way of every `finally`."""
    if number == signal.SIGALRM:
        sys.exit(f"bench: not done within {TIME_MAX_S} s; everything it started is ended")
    sys.exit(128 + number)


def main() -> int:
    """Run and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=(__doc__ or "")[:80])
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures as JSON")
    parser.add_argument(
        "--write-docs", action="store_true", help="put the figures into docs/benchmarks.md"
    )
    options = parser.parse_args()
    lacking = missing()
    if lacking is not None:
        print(lacking, file=sys.stderr)
        return 2
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, on_signal)
    signal.alarm(TIME_MAX_S)
    row_core, load_core = machine.cores()[:2]
    os.sched_setaffinity(0, {load_core})
    with tempfile.TemporaryDirectory(prefix="everyturn-bench-") as folder:
        try:
            results = run(QUICK if options.quick else FULL, Path(folder), row_core, load_core)
        except (CannotStart, LoadFailed, TooSlow) as fault:
            print(f"bench: {fault}", file=sys.stderr)
            return 1
    signal.alarm(0)
    print(report.text(results))
    if options.json is not None:
        options.json.write_text(report.as_json(results), encoding="utf-8")
    if options.write_docs:
        report.write_docs(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
