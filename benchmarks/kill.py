"""Kill a gateway at random moments under load, and see whether an answered turn was ever lost.

    python -m benchmarks.kill --kills 200

Clients (streams and whole answers) run against `everyturn serve` with the scripted provider behind
it. At a random moment the gateway gets SIGKILL; a new one starts on the same data folder. For each
answer whose end a client saw, its turn must be in the store, closed well, with the text the client
got. Turns that nobody saw the end of may be open or closed, but after a start none stays open.

Loopback only; the processes started here are ended here, by id. Exit status 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from everyturn.mock.server import MockProvider
from everyturn.store.reader import Reader

CLIENTS = 32
START_SECONDS = 20.0


@dataclass(slots=True)
class Tally:
    """What the clients saw."""

    ended: dict[str, str] = field(default_factory=dict)
    """Turn id → the text of an answer whose end was seen."""
    broken: int = 0
    """Answers that broke off, as they do when the gateway is killed."""
    kills: int = 0


@dataclass(slots=True)
class Loss:
    """What the store lacks of what clients saw."""

    missing: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    open_turns: int = 0

    @property
    def is_none(self) -> bool:
        """Whether nothing was lost."""
        return not (self.missing or self.unfinished or self.changed or self.open_turns)


async def run(kills: int, data: Path, seed: int, say: bool) -> tuple[Tally, Loss]:
    """Kill a gateway `kills` times under load; the record stays in `data`."""
    draw = random.Random(seed)
    tally = Tally()
    async with MockProvider() as mock:
        config = data.with_name("kill.toml")
        config.write_text(
            f'[gateway]\nport = 0\nlog = "json"\ndata = "{data}"\n'
            f'[[models]]\nname = "m"\npreset = "deepseek"\nbase_url = "{mock.url}"\n'
            'upstream_model = "deepseek"\n',
            "utf-8",
        )
        for number in range(kills):
            await _round(config, draw, tally)
            if say and sys.stderr.isatty():
                print(f"\r{number + 1} of {kills} kills", end="", file=sys.stderr, flush=True)
        process, _ = await start_gateway(config)
        process.send_signal(signal.SIGTERM)
        await process.wait()
    return tally, examine(data, tally)


async def _round(config: Path, draw: random.Random, tally: Tally) -> None:
    process, port = await start_gateway(config)
    clients = [
        asyncio.create_task(_client(port, draw.random() < 0.5, tally)) for _ in range(CLIENTS)
    ]
    if draw.random() < 0.75:
        # Most kills fall into full load; the others into the first moments after the start.
        await _first_answer(tally, clients)
    await asyncio.sleep(draw.uniform(0.0, 0.5))
    process.kill()
    tally.kills += 1
    await process.wait()
    await asyncio.gather(*clients)


async def _first_answer(tally: Tally, clients: list[asyncio.Task[None]]) -> None:
    """Wait for one more answer, at most START_SECONDS."""
    seen = len(tally.ended)
    for _ in range(int(START_SECONDS / 0.01)):
        if len(tally.ended) > seen or all(client.done() for client in clients):
            return
        await asyncio.sleep(0.01)


async def start_gateway(
    config: Path, environment: dict[str, str] | None = None
) -> tuple[asyncio.subprocess.Process, int]:
    """A gateway process and its port, once it listens. environment: its own; this one's if None."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "everyturn",
        "serve",
        "--config",
        str(config),
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:
                line = await process.stderr.readline()
                if not line:
                    raise RuntimeError("the gateway ended while it started")
                if b"gateway.listening" in line:
                    break
    except BaseException:
        if process.returncode is None:
            process.kill()
        raise
    drain = asyncio.create_task(_drain(process.stderr))
    drain.add_done_callback(lambda _: None)
    return process, int(json.loads(line)["port"])


async def _drain(stream: asyncio.StreamReader) -> None:
    """Read log lines, so that the gateway is not held up by a full pipe."""
    while await stream.read(65_536):
        pass


async def _client(port: int, is_streamed: bool, tally: Tally) -> None:
    """Ask again and again on one connection until it breaks."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return
    try:
        while True:
            is_streamed = not is_streamed
            writer.write(_request(is_streamed))
            await writer.drain()
            turn_id, text = await _answer(reader, is_streamed)
            tally.ended[turn_id] = text
    except (OSError, asyncio.IncompleteReadError, EOFError):
        tally.broken += 1
    finally:
        writer.close()


def _request(is_streamed: bool) -> bytes:
    messages = [{"role": "user", "content": f"question {time.perf_counter_ns()}"}]
    body = json.dumps({"model": "m", "messages": messages, "stream": is_streamed}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _answer(reader: asyncio.StreamReader, is_streamed: bool) -> tuple[str, str]:
    """The turn id and text of an answer whose end has come. Raises where it breaks off."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    headers = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
    turn_id = headers["x-everyturn-turn-id"]
    if not is_streamed:
        body = await reader.readexactly(int(headers["content-length"]))
        return turn_id, json.loads(body)["choices"][0]["message"]["content"]
    events = b""
    while not events.endswith(b"data: [DONE]\n\n"):
        size = int((await reader.readuntil(b"\r\n"))[:-2], 16)
        events += (await reader.readexactly(size + 2))[:-2]
        if size == 0:
            raise EOFError("the stream ended without its end marker")
    await reader.readexactly(5)  # The chunk that ends the body.
    text = ""
    for event in events.split(b"\n\n"):
        if event.startswith(b"data: {"):
            for choice in json.loads(event[6:])["choices"]:
                text += choice["delta"].get("content") or ""
    return turn_id, text


def examine(data: Path, tally: Tally) -> Loss:
    """Compare the store with what the clients saw."""
    loss = Loss()
    with Reader(data) as reader:
        for turn_id, text in tally.ended.items():
            found = reader.turn(turn_id)
            if found is None:
                loss.missing.append(turn_id)
            elif found["turn"]["outcome"] != "success" or len(found["model_calls"]) != 1:
                loss.unfinished.append(turn_id)
            elif found["turn"]["assistant_text"] != text:
                loss.changed.append(turn_id)
        loss.open_turns = len(reader.turns(outcome="open", limit=100))
    return loss


def main() -> int:
    """The command."""
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--kills", type=int, default=200, help="how often to kill (default: 200)")
    asked.add_argument("--seed", type=int, default=int(time.time()), help="of the random moments")
    options = asked.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="everyturn-kill-"))
    began = time.monotonic()
    tally, loss = asyncio.run(run(options.kills, folder / "data", options.seed, say=True))
    print(
        f"\nkills: {tally.kills}, seed: {options.seed}, seconds: {time.monotonic() - began:.0f}\n"
        f"answers whose end a client saw: {len(tally.ended)}, broken off: {tally.broken}\n"
        f"missing: {len(loss.missing)}, not closed well: {len(loss.unfinished)}, "
        f"text differs: {len(loss.changed)}, left open: {loss.open_turns}"
    )
    if loss.is_none:
        shutil.rmtree(folder)
        return 0
    print(f"the record is left in: {folder}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
