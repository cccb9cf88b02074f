"""Kill worker, gateway or model server at random moments of streams, and see what was told.

    python -m benchmarks.worker_kill --kills 40 --streams 200

Clients stream through a gateway and a worker; every so often one of the three processes gets
SIGKILL and is started again. Afterwards: every client got an end, or its gateway died; every turn
is closed and its record says what the client saw; and the model server, which writes down each call
before it answers, ran none of them twice.

Loopback only; the processes started here are ended here, by id. Exit status 1 if anything was
wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from everyturn.store.reader import Reader

CLIENTS: Final = 16
CHUNKS: Final = 20
KILLED: Final = ("worker", "gateway", "server")
READY: Final = {"worker": b"worker.connected", "gateway": b"gateway.listening", "server": b"ready"}
START_SECONDS: Final = 20.0
END_SECONDS: Final = 30.0
"""How long a client may wait for an end of any kind."""

_MARK: Final = re.compile(rb"call-\d+")


@dataclass(slots=True)
class Seen:
    """What one client saw of one stream."""

    mark: str
    turn_id: str | None = None
    ending: str = "broken"
    """`done`, the code of an error, or `broken` where the gateway's connection broke."""
    text: str = ""


@dataclass(slots=True)
class Tally:
    """What happened."""

    seen: list[Seen] = field(default_factory=list)
    kills: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    """What must not be."""
    streams_min: int = 0
    is_over: bool = False
    """Whether nothing is killed any more."""

    @property
    def is_enough(self) -> bool:
        """Whether clients may stop: refusals while something is started do not count."""
        count = sum(one.ending != "worker_unavailable" for one in self.seen)
        return self.is_over and count >= self.streams_min

    @property
    def endings(self) -> Counter[str]:
        """How many streams ended how."""
        return Counter(one.ending for one in self.seen)


# ---------------------------------------------------------------------------- the model server


async def serve_model(port: int, log: Path) -> None:
    """A model server that writes down each call before it answers it."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                assert length is not None
                mark = _MARK.search(await reader.readexactly(int(length[1])))
                assert mark is not None
                os.write(descriptor, mark[0] + b"\n")
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                    b"transfer-encoding: chunked\r\n\r\n"
                )
                for number in range(CHUNKS):
                    await _say(writer, {"delta": {"content": f"{mark[0].decode()}:{number} "}})
                    await asyncio.sleep(random.uniform(0.0, 0.03))
                await _say(writer, {"delta": {}, "finish_reason": "stop"})
                done = b"data: [DONE]\n\n"
                writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()  # The caller is gone; a new one comes with a connection of its own.

    server = await asyncio.start_server(answer, "127.0.0.1", port, backlog=256)
    print("ready", file=sys.stderr, flush=True)
    await server.serve_forever()


async def _say(writer: asyncio.StreamWriter, choice: dict[str, object]) -> None:
    frame = b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
    await writer.drain()


# ------------------------------------------------------------------------------------ processes


class Processes:
    """The three processes of a run."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        """settings: more lines of the model's entry."""
        self.folder = folder
        self.gateway_port, self.server_port = _free_port(), _free_port()
        self.log = folder / "calls.log"
        url = f"http://127.0.0.1:{self.server_port}/v1"
        everyturn = (sys.executable, "-m", "everyturn")
        self._commands = {
            "gateway": (*everyturn, "serve"),
            "worker": (*everyturn, "worker", "run", "--allow", f"server={url}"),
            "server": (
                *(sys.executable, "-m", "benchmarks.worker_kill"),
                *("--serve", str(self.server_port), str(self.log)),
            ),
        }
        self._running: dict[str, asyncio.subprocess.Process] = {}
        (folder / "everyturn.toml").write_text(
            f'[gateway]\nport = {self.gateway_port}\ndata = "data"\n[[models]]\nname = "m"\n'
            'preset = "generic-strict"\ntransport = "worker"\nworker = "box"\ntarget = "server"\n'
            + settings
        )

    async def start(self, name: str) -> None:
        """Start one and wait until it is ready; a worker may wait for its gateway for ever."""
        environment = {**os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        process = self._running[name] = await asyncio.create_subprocess_exec(
            *self._commands[name], cwd=self.folder, env=environment, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        async with asyncio.timeout(START_SECONDS):
            while READY[name] not in (line := await process.stderr.readline()):
                if not line:
                    raise RuntimeError(f"the {name} ended while it started")
        drain = asyncio.create_task(_drain(process.stderr))
        drain.add_done_callback(lambda _: None)

    async def kill(self, name: str) -> None:
        """SIGKILL."""
        self._running[name].kill()
        await self._running[name].wait()

    async def stop(self) -> None:
        """End all, in order; what does not run any more is left alone."""
        for name in ("worker", "gateway", "server"):
            process = self._running.get(name)
            if process is not None and process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await process.wait()

    async def once(self, *arguments: str) -> str:
        """A command that ends by itself; its stdout."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "everyturn", *arguments),
            cwd=self.folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        if process.returncode:
            raise RuntimeError(err.decode())
        return out.decode().strip()


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(65_536):
        pass


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# -------------------------------------------------------------------------------------- clients


async def _client(port: int, tally: Tally) -> None:
    """Ask until it is enough."""
    while not tally.is_enough:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)  # The gateway is being started again.
            continue
        seen = Seen(f"call-{len(tally.seen)}")
        tally.seen.append(seen)
        try:
            async with asyncio.timeout(END_SECONDS):
                await _stream(reader, writer, seen)
        except TimeoutError:
            tally.faults.append(f"{seen.mark} got no end")
        except (OSError, asyncio.IncompleteReadError):
            pass  # Stays `broken`.
        finally:
            writer.close()
        if seen.ending != "done":
            await asyncio.sleep(0.05)


async def _stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Seen) -> None:
    messages = [{"role": "user", "content": seen.mark}]
    body = json.dumps({"model": "m", "messages": messages, "stream": True}).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
    seen.turn_id = headers["x-everyturn-turn-id"]
    if " 200 " not in head.partition("\r\n")[0]:
        failed = json.loads(await reader.readexactly(int(headers["content-length"])))
        seen.ending = failed["error"]["code"]
        return
    while seen.ending == "broken":
        size = int((await reader.readuntil(b"\r\n"))[:-2], 16)
        events = (await reader.readexactly(size + 2))[:-2]
        if not size:
            return
        for event in events.split(b"\n\n"):
            _take(event, seen)


def _take(event: bytes, seen: Seen) -> None:
    if event == b"data: [DONE]":
        seen.ending = "done"
    elif event.startswith(b"data: "):
        data = json.loads(event[6:])
        if "error" in data:
            seen.ending = data["error"]["code"]
        for choice in data.get("choices", ()):
            seen.text += choice["delta"].get("content") or ""


# ------------------------------------------------------------------------------------------ run


@asynccontextmanager
async def streaming(
    processes: Processes, tally: Tally, dialled_port: int | None = None
) -> AsyncIterator[None]:
    """Clients stream through the three processes; at the end the record is examined.

    dialled_port: where the worker finds the gateway, if something stands between.
    """
    try:
        for name in ("server", "gateway"):
            await processes.start(name)
        code = await processes.once("worker", "invite", "box", "--data", "data")
        dial = f"ws://127.0.0.1:{dialled_port or processes.gateway_port}"
        await processes.once("worker", "pair", "--gateway", dial, "--code", code)
        await processes.start("worker")
        port = processes.gateway_port
        clients = [asyncio.create_task(_client(port, tally)) for _ in range(CLIENTS)]
        yield
        tally.is_over = True
        await asyncio.gather(*clients)
        await processes.kill("gateway")
        await processes.start("gateway")  # Closes what a killed one left open.
    finally:
        await processes.stop()
    _examine(processes.folder / "data", processes.log, tally)


async def run(kills: int, streams: int, folder: Path, seed: int) -> Tally:
    """Stream while one process after the other is killed; `folder` keeps the record."""
    draw, tally = random.Random(seed), Tally(streams_min=streams)
    processes = Processes(folder)
    async with streaming(processes, tally):
        for number in range(kills):
            await flowing(tally)
            await asyncio.sleep(draw.uniform(0.0, 0.4))
            # Each in turn, so that a short run has all three.
            victim = KILLED[number % len(KILLED)]
            await processes.kill(victim)
            tally.kills[victim] += 1
            await processes.start(victim)
    return tally


async def flowing(tally: Tally) -> None:
    """Wait until streams end well again. Raises TimeoutError where they never do."""
    before = tally.endings["done"]
    async with asyncio.timeout(END_SECONDS):
        while tally.endings["done"] == before:  # noqa: ASYNC110 - counted by many
            await asyncio.sleep(0.02)


def _examine(data: Path, log: Path, tally: Tally) -> None:
    """Compare the record with what clients saw, and count the calls of the model server."""
    runs = Counter(log.read_text().split())
    tally.faults += [f"{mark} ran {count} times" for mark, count in runs.items() if count > 1]
    with Reader(data) as reader:
        if reader.turns(outcome="open", limit=1):
            tally.faults.append("a turn was left open")
        for seen in tally.seen:
            if seen.turn_id is None:
                continue
            found = reader.turn(seen.turn_id)
            if found is None or found["turn"] is None:
                tally.faults.append(f"{seen.mark} has no record")
                continue
            turn, calls = found["turn"], found["model_calls"]
            text, code = turn["assistant_text"] or "", calls[0]["error_code"] if calls else None
            if seen.ending == "done" and (turn["outcome"], text) != ("success", seen.text):
                tally.faults.append(f"{seen.mark} was answered, and is on record otherwise")
            if seen.ending not in ("done", "broken") and (code, text) != (seen.ending, seen.text):
                tally.faults.append(f"{seen.mark} ended in {seen.ending}, and on record in {code}")
            if len(calls) != 1:
                tally.faults.append(f"{seen.mark} has {len(calls)} calls")


def main() -> int:
    """The command."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--kills", type=int, default=40, help="how often to kill (default: 40)")
    asked.add_argument("--streams", type=int, default=200, help="how many (default: 200)")
    asked.add_argument("--seed", type=int, default=int(time.time()), help="of the random moments")
    asked.add_argument("--serve", nargs=2, metavar=("PORT", "LOG"), help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.serve:
        asyncio.run(serve_model(int(options.serve[0]), Path(options.serve[1])))
        return 0
    folder = Path(tempfile.mkdtemp(prefix="everyturn-worker-kill-"))
    tally = asyncio.run(run(options.kills, options.streams, folder, options.seed))
    print(f"kills: {dict(tally.kills)}, seed: {options.seed}")
    print(f"streams by their end: {dict(tally.endings)}")
    print(f"what must not be: {len(tally.faults)}", *tally.faults, sep="\n")
    if not tally.faults:
        shutil.rmtree(folder)
        return 0
    print(f"the record is left in: {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
