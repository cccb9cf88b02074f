"""What the direct transport costs, beside a bare asyncio client that only counts bytes.

    python benchmarks/transport_bench.py [--seconds 3] [--concurrency 32] [--loop uvloop|asyncio]

Starts a server of its own in another process on loopback and measures, in this process, whole
answers (1.9 KB request, 1.4 KB answer) and streams (200 chunks of 280 B, each in a write of its
own). The bare client writes the same bytes and waits for the same number of bytes, with one future
for each wait and no HTTP: the floor that a client on this event loop cannot go below. Each figure
is the best of three rounds, taken in turn. CPU time is that of this process alone, so it holds on a
busy machine, where the rates do not.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from everyturn.transport.base import Timeouts, UpstreamRequest
from everyturn.transport.direct import DirectTransport

REQUEST_BODY = b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 1840 + b'"}]}'
ANSWER_BODY = b'{"id":"c","choices":[{"message":{"content":"' + b"y" * 1340 + b'"}}]}'
CHUNKS = 200
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"' + b"z" * 220 + b'"}}]}\n\n'

HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2029 00:00:00 GMT\r\nserver: bench\r\n"
    b"x-request-id: req_0123456789\r\nx-ratelimit-remaining-requests: 100\r\n"
    b"cache-control: no-cache\r\n"
)
WHOLE = HEAD + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER_BODY)
WHOLE += ANSWER_BODY
STREAM_HEAD = HEAD + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM_CHUNK = b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK)
STREAM_END = b"0\r\n\r\n"
STREAM_BYTES = len(STREAM_HEAD) + CHUNKS * len(STREAM_CHUNK) + len(STREAM_END)

HEADERS = (
    ("authorization", "Bearer sk-test-FAKE"),
    ("content-type", "application/json"),
    ("user-agent", "bench"),
)


class Server(asyncio.Protocol):
    """Answers by path, as soon as the whole request of known size is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head_end = self.received.find(b"\r\n\r\n")
        if head_end < 0 or len(self.received) < head_end + 4 + len(REQUEST_BODY):
            return
        is_stream = self.received.startswith(b"POST /stream")
        self.received = b""
        if not is_stream:
            self.transport.write(WHOLE)
            return
        self.transport.write(STREAM_HEAD)
        self.left = CHUNKS
        asyncio.get_running_loop().call_soon(self.next_chunk)

    def next_chunk(self) -> None:
        if self.left:
            self.left -= 1
            self.transport.write(STREAM_CHUNK)
            asyncio.get_running_loop().call_soon(self.next_chunk)
        else:
            self.transport.write(STREAM_END)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


class BareClient(asyncio.Protocol):
    """Writes bytes, counts bytes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.waiter: asyncio.Future[None] | None = None
        self.received = 0

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def call(self, request: bytes, answer_bytes: int) -> int:
        self.received = reads = 0
        self.transport.write(request)
        while self.received < answer_bytes:
            self.waiter = asyncio.get_running_loop().create_future()
            await self.waiter
            reads += 1
        return reads


async def measure(
    workers: list[Callable[[], Awaitable[int]]], seconds: float
) -> tuple[float, float, int]:
    """Calls per second, CPU µs per call, and reads in all, of `workers` at once."""
    calls = reads = 0
    until = time.perf_counter() + seconds

    async def run(worker: Callable[[], Awaitable[int]]) -> None:
        nonlocal calls, reads
        while time.perf_counter() < until:
            reads += await worker()
            calls += 1

    started, cpu_started = time.perf_counter(), time.process_time()
    await asyncio.gather(*(run(worker) for worker in workers))
    cpu, took = time.process_time() - cpu_started, time.perf_counter() - started
    return calls / took, cpu / calls * 1e6, reads


async def compare(port: int, path: str, answer_bytes: int, args: argparse.Namespace) -> None:
    """Measure both clients in turn and print what they make."""
    loop = asyncio.get_running_loop()
    transport = DirectTransport()
    request = UpstreamRequest(
        url=f"http://127.0.0.1:{port}{path}", headers=HEADERS, body=REQUEST_BODY
    )
    timeouts = Timeouts()

    async def direct() -> int:
        response = await transport.open(request, timeouts)
        reads = 0
        while await response.read():
            reads += 1
        response.close()
        return reads

    lines = "".join(f"{name}: {value}\r\n" for name, value in HEADERS)
    raw = (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\naccept-encoding: identity\r\n{lines}"
        f"content-length: {len(REQUEST_BODY)}\r\n\r\n"
    ).encode() + REQUEST_BODY
    clients = [
        (await loop.create_connection(BareClient, "127.0.0.1", port))[1]
        for _ in range(args.concurrency)
    ]
    bares = [lambda client=client: client.call(raw, answer_bytes) for client in clients]
    best: dict[str, tuple[float, float]] = {"direct": (0, 1e9), "bare": (0, 1e9)}
    for _ in range(3):
        for name, workers in (("bare", bares), ("direct", [direct] * args.concurrency)):
            rate, cpu_us, _ = await measure(workers, args.seconds)
            best[name] = (max(best[name][0], rate), min(best[name][1], cpu_us))
    unit, factor = ("chunks", CHUNKS) if path == "/stream" else ("requests", 1)
    for name, (rate, cpu_us) in best.items():
        print(
            f"{unit:9} {name:7} {rate * factor:10,.0f} {unit}/s {cpu_us / factor:8.1f} CPU µs each"
        )
    (direct_rate, direct_cpu), (bare_rate, bare_cpu) = best["direct"], best["bare"]
    print(
        f"{unit:9} direct/bare: {direct_rate / bare_rate:.2f} of the rate,"
        f" {direct_cpu / bare_cpu:.2f} of the CPU time"
    )
    await transport.close()
    for client in clients:
        client.transport.close()


async def main(port: int, args: argparse.Namespace) -> None:
    await compare(port, "/whole", len(WHOLE), args)
    await compare(port, "/stream", STREAM_BYTES, args)


def run_against_server(args: argparse.Namespace) -> None:
    """Start the server, measure on the chosen loop, end the server."""
    command = [sys.executable, __file__, "--serve"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        run = asyncio.run if args.loop == "asyncio" else uvloop.run
        run(main(int(server.stdout.readline()), args))
    finally:
        server.stdin.close()
        server.wait(timeout=10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        uvloop.run(serve())
    else:
        run_against_server(options)
