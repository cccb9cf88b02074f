"""What recording costs the application: on the thread that runs the turn, and at import.

    python -m benchmarks.sdk_bench [--turns 5000]

Records go to a receiver in a process of its own, which accepts and forgets them, so that the
sender's thread does its real work meanwhile. Cost is CPU time of the calling thread (other work on
the machine does not count) and, beside it, wall time. Import is the fastest of several fresh
processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median
from typing import Any

import everyturn

QUESTION = "Where is my order, and when will it arrive at the address that I gave you? " * 3
ANSWER = "Your order left the warehouse this morning and arrives tomorrow before noon. " * 12
HITS = [{"id": f"page-{n}", "score": 1 / (n + 1), "text": ANSWER[:300]} for n in range(8)]
BATCH = 100


class Taking(BaseHTTPRequestHandler):
    """Accepts everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["content-length"]))
        answer = json.dumps({"accepted": raw.count(b'{"log":'), "refused": []}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def serve() -> None:
    """Run the receiver until the parent ends; its port is the first line of output."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Taking)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


def bare_turn() -> None:
    """A turn with its texts and nothing in it."""
    with everyturn.turn(chat_id="c", project_id="shop", plugin="faq", user_text=QUESTION) as turn:
        turn.headers()
        turn.finish(assistant_text=ANSWER)


def whole_turn() -> None:
    """A turn with a retrieval of eight hits, a tool run and the headers of a model call."""
    with everyturn.turn(chat_id="c", project_id="shop", plugin="faq", user_text=QUESTION) as turn:
        with turn.retrieval(query=QUESTION, profile="docs", top_k=8) as search:
            search.sources(HITS, used=HITS[:3])
        with turn.tool("mcp", "get_order", target_service="orders") as run:
            run.request({"id": 5, "fields": ["state", "date"]})
            run.response({"state": "sent", "date": "2026-11-28"})
        turn.headers()
        turn.finish(assistant_text=ANSWER)


@everyturn.tool("internal")
def add(a: int, b: int) -> int:
    """A tool that costs nothing itself."""
    return a + b


def outside() -> None:
    """A decorated function outside of a turn."""
    add(1, 2)


def measured(run: Callable[[], None], turns: int) -> tuple[float, float, float]:
    """Microseconds a run: CPU (fastest batch, median batch) and wall (median batch)."""
    cpu: list[float] = []
    wall: list[float] = []
    for _ in range(turns // BATCH):
        started, cpu_started = time.perf_counter(), time.thread_time()
        for _ in range(BATCH):
            run()
        cpu.append((time.thread_time() - cpu_started) / BATCH * 1e6)
        wall.append((time.perf_counter() - started) / BATCH * 1e6)
        everyturn.flush(30)
    return min(cpu), median(cpu), median(wall)


async def interleaved(turns: int) -> float:
    """CPU microseconds a turn when many tasks have one open at the same time."""

    async def one() -> None:
        with everyturn.turn(chat_id="c", user_text=QUESTION) as turn:
            await asyncio.sleep(0)
            turn.finish(assistant_text=ANSWER)

    started = time.thread_time()
    await asyncio.gather(*(one() for _ in range(turns)))
    return (time.thread_time() - started) / turns * 1e6


def import_ms(statement: str) -> float:
    """Milliseconds of CPU for a statement in a fresh process, the fastest of ten."""
    code = (
        "import time; started = time.process_time()\n"
        f"{statement}\n"
        "print((time.process_time() - started) * 1000)"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    return min(
        float(
            subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                check=True,
                env=environment,
            ).stdout
        )
        for _ in range(10)
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=5000, help="for each row")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    receiver = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sdk_bench", "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert receiver.stdout is not None
    assert receiver.stdin is not None
    with tempfile.TemporaryDirectory() as folder:
        everyturn.configure(
            url=f"http://127.0.0.1:{receiver.stdout.readline().strip()}",
            spill_folder=folder,
            queue_bytes_max=256 * 1024 * 1024,
        )
        print(f"{'':<36}{'CPU us, best':>14}{'median':>10}{'wall us':>10}")
        rows = {
            "turn with its texts": bare_turn,
            "turn, retrieval of 8 hits, tool run": whole_turn,
            "decorated function outside of a turn": outside,
        }
        for name, run in rows.items():
            best, middle, wall = measured(run, given.turns)
            print(f"{name:<36}{best:>14.1f}{middle:>10.1f}{wall:>10.1f}")
        cost = asyncio.run(interleaved(given.turns))
        print(f"{'turn in one of many tasks':<36}{'':>14}{cost:>10.1f}")
        everyturn.flush(60)
        found = everyturn.counters()
        print()
        for name in ("recorded", "sent", "spilled", "dropped_queue_full", "queued"):
            print(f"{name:<36}{found[name]:>14}")
    receiver.stdin.close()
    receiver.wait()
    print()
    for statement in ("import typing, json, threading, uuid", "import everyturn.sdk"):
        print(f"{statement:<40}{import_ms(statement):>10.1f} ms")


if __name__ == "__main__":
    main()
