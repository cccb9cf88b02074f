"""What a worker costs: the same model directly and behind a worker, in one run.

    python -m benchmarks.worker_bench [--rounds 3]

Starts the scripted provider, a gateway and a worker as processes of their own on loopback, and asks
for whole answers one after the other (added latency) and for 100 streams at once over one link
(chunks a second). The two ways take turns, so that what else the machine does weighs on both alike;
figures are medians of the rounds. CPU time is told for each process. The processes started here are
ended here, by id.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from everyturn.transport.base import Timeouts, UpstreamRequest
from everyturn.transport.direct import DirectTransport

WAYS: Final = ("direct", "worker")
WHOLE_CALLS: Final = 300
STREAMS: Final = 100
CHUNKS: Final = 200
LIMITS: Final = Timeouts()

CONFIG: Final = """
[gateway]
port = 0
data = "data"
[[models]]
name = "direct"
preset = "openai-chat"
base_url = "{url}"
upstream_model = "bench-{chunks}"
[[models]]
name = "worker"
preset = "openai-chat"
transport = "worker"
worker = "box"
target = "mock"
upstream_model = "bench-{chunks}"
"""


@dataclass(slots=True)
class Started:
    """A process of this run."""

    name: str
    process: asyncio.subprocess.Process

    def cpu_s(self) -> float:
        """Processor seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_mb(self) -> float:
        """The most memory it ever held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024


@asynccontextmanager
async def command(name: str, *arguments: str, cwd: Path) -> AsyncIterator[Started]:
    """An `everyturn` command, ended at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everyturn", *arguments),
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Started(name, process)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def event(started: Started, name: str) -> dict[str, object]:
    """The next log line of this event; what follows is read and dropped."""
    assert started.process.stderr is not None
    async with asyncio.timeout(20):
        while True:
            line = await started.process.stderr.readline()
            if not line:
                raise SystemExit(f"{started.name} ended before it told: {name}")
            told: dict[str, object] = msgspec.json.decode(line)
            if told["event"] == name:
                break
    asyncio.create_task(started.process.stderr.read())  # noqa: RUF006 - ends with the process
    return told


async def once(*arguments: str, cwd: Path) -> str:
    """A command that ends by itself; its stdout."""
    async with command(arguments[0], *arguments, cwd=cwd) as started:
        out, err = await started.process.communicate()
        if started.process.returncode:
            raise SystemExit(err.decode())
        return out.decode().strip()


def request(port: int, way: str, *, is_stream: bool) -> UpstreamRequest:
    """A chat completion of one way."""
    body = {"model": way, "messages": [{"role": "user", "content": "hello"}], "stream": is_stream}
    return UpstreamRequest(
        url=f"http://127.0.0.1:{port}/v1/chat/completions",
        headers=(("content-type", "application/json"),),
        body=msgspec.json.encode(body),
    )


async def ask(transport: DirectTransport, asked: UpstreamRequest) -> int:
    """One answer to its end; its bytes."""
    response = await transport.open(asked, LIMITS)
    size = 0
    while data := await response.read():
        size += len(data)
    if response.status != 200:
        raise SystemExit(f"an answer had the status {response.status}")
    return size


async def latency_ms(transport: DirectTransport, port: int, way: str) -> list[float]:
    """Milliseconds of whole answers, one after the other."""
    taken = []
    asked = request(port, way, is_stream=False)
    for _ in range(WHOLE_CALLS):
        began = time.perf_counter()
        await ask(transport, asked)
        taken.append((time.perf_counter() - began) * 1000)
    return taken


async def chunks_per_s(transport: DirectTransport, port: int, way: str) -> float:
    """Chunks a second over all streams at once."""
    asked = request(port, way, is_stream=True)
    began = time.perf_counter()
    await asyncio.gather(*(ask(transport, asked) for _ in range(STREAMS)))
    return STREAMS * CHUNKS / (time.perf_counter() - began)


async def measure(folder: Path, rounds: int) -> None:
    """Run everything and print the figures."""
    async with command("mock", "mock", "--port", "0", cwd=folder) as mock:
        assert mock.process.stdout is not None
        url = ""
        while not url.startswith("http"):
            words = (await mock.process.stdout.readline()).decode().split()
            url = next((word for word in words if word.startswith("http")), "")
        asyncio.create_task(mock.process.stdout.read())  # noqa: RUF006 - ends with the process
        (folder / "everyturn.toml").write_text(CONFIG.format(url=url, chunks=CHUNKS))
        async with command("gateway", "serve", cwd=folder) as gateway:
            port = int(str((await event(gateway, "gateway.listening"))["port"]))
            code = await once("worker", "invite", "box", "--data", "data", cwd=folder)
            dial = f"ws://127.0.0.1:{port}"
            await once("worker", "pair", "--gateway", dial, "--code", code, cwd=folder)
            run = ("worker", "run", "--allow", f"mock={url}")
            async with command("worker", *run, cwd=folder) as worker:
                await event(worker, "worker.connected")
                await compare(port, rounds, (gateway, worker, mock))


async def compare(port: int, rounds: int, processes: tuple[Started, ...]) -> None:
    """Both ways in turn."""
    transport = DirectTransport()
    latencies: dict[str, list[float]] = {way: [] for way in WAYS}
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    spent: dict[tuple[str, str], float] = {}
    for way in WAYS:
        await latency_ms(transport, port, way)
    for _ in range(rounds):
        for way in WAYS:
            latencies[way] += await latency_ms(transport, port, way)
        for way in WAYS:
            before = {one.name: one.cpu_s() for one in processes}
            rates[way].append(await chunks_per_s(transport, port, way))
            for one in processes:
                key = (way, one.name)
                spent[key] = spent.get(key, 0.0) + one.cpu_s() - before[one.name]
    await transport.close()
    p50 = {way: statistics.median(latencies[way]) for way in WAYS}
    rate = {way: statistics.median(rates[way]) for way in WAYS}
    chunks = rounds * STREAMS * CHUNKS
    print(f"whole answers, one at a time, p50: {p50['direct']:.2f} ms, {p50['worker']:.2f} ms")
    print(f"added by the worker, p50: {p50['worker'] - p50['direct']:.2f} ms (mark: under 1)")
    print(f"{STREAMS} streams, chunks/s: {rate['direct']:,.0f}, {rate['worker']:,.0f}")
    share = rate["worker"] / rate["direct"]
    print(f"chunks/s of worker beside direct: {share:.0%} (mark: at least 60 %)")
    for (way, name), seconds in spent.items():
        print(f"CPU a chunk, {way}, {name}: {seconds / chunks * 1e6:.1f} µs")
    for one in processes:
        print(f"most memory, {one.name}: {one.peak_mb():.0f} MB")


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worker_bench")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(measure(Path(folder), given.rounds))


if __name__ == "__main__":
    main()
