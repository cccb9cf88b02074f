"""What the store costs: pairs of appends a second, their latency, and CPU, by a busy event loop.

A turn is two groups: one before the provider is asked, one before the answer's end leaves. Tasks
do them one after the other, as requests do; between the two each burns some CPU on the event loop,
as parsing and relaying would. Everything runs in one process, pinned to one core where that is
possible, so CPU and throughput are those of one core.

    python benchmarks/store_bench.py [--seconds 5] [--loop-us 150] [--durability process]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

from benchmarks.store_load import Conversation
from everyturn.audit.group import Group
from everyturn.store.sqlite import SqliteStore
from everyturn.store.writer import GroupWriter


def spin(microseconds: float) -> None:
    """Hold the event loop, and the interpreter lock with it, for a while."""
    end = time.perf_counter() + microseconds / 1e6
    while time.perf_counter() < end:
        pass


def make_pairs(count: int) -> deque[tuple[Group, Group]]:
    """Groups of turns of one message each, made beforehand: making them is not measured."""
    draw = random.Random(1)
    pairs: deque[tuple[Group, Group]] = deque()
    talk = Conversation(draw, message_bytes=100)
    index = talk.index
    for _ in range(count):
        talk = Conversation(draw, message_bytes=100, index=index)
        opening = talk.open_turn()
        index.confirm(opening)
        pairs.append((opening, talk.close_turn()))
    return pairs


async def run(
    folder: Path, pairs: deque[tuple[Group, Group]], chosen: argparse.Namespace, tasks: int
) -> dict[str, Any]:
    """Append for a while with so many tasks; what was measured."""
    writer = GroupWriter(SqliteStore(folder, durability=chosen.durability))
    writer.start()
    latencies: list[float] = []
    end = time.perf_counter() + chosen.seconds

    async def client() -> None:
        while pairs and time.perf_counter() < end:
            for group in pairs.popleft():
                spin(chosen.loop_us / 2)
                started = time.perf_counter()
                await writer.append(group)
                latencies.append(time.perf_counter() - started)

    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(client() for _ in range(tasks)))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    batches = writer.counts.batches
    await writer.close()
    latencies.sort()
    turns = len(latencies) / 2
    size = sum(path.stat().st_size for path in folder.iterdir())
    return {
        "tasks": tasks,
        "turns_per_second": round(turns / wall),
        "append_ms_p50": round(latencies[len(latencies) // 2] * 1e3, 3),
        "append_ms_p99": round(latencies[int(len(latencies) * 0.99)] * 1e3, 3),
        "groups_per_batch": round(len(latencies) / batches, 1),
        "cpu_us_per_turn": round((cpu / turns) * 1e6 - chosen.loop_us, 1),
        "bytes_per_turn": round(size / turns),
    }


def main() -> None:
    """Run it and print a line of JSON for each number of tasks."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=5.0)
    options.add_argument("--loop-us", type=float, default=150.0, help="CPU of a turn elsewhere")
    options.add_argument("--durability", choices=["process", "disk"], default="process")
    options.add_argument("--switch-ms", type=float, default=5.0, help="interpreter switch interval")
    chosen = options.parse_args()
    sys.setswitchinterval(chosen.switch_ms / 1e3)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    for tasks in (1, 8, 32, 128):
        pairs = make_pairs(int(chosen.seconds * 4_000))
        with tempfile.TemporaryDirectory() as parent:
            print(json.dumps(asyncio.run(run(Path(parent) / "data", pairs, chosen, tasks))))


if __name__ == "__main__":
    main()
