"""The load that the compiler learns from: turns of every common kind through one gateway.

    python -m benchmarks.profile_load BUILD

`make native` compiles twice. The first build counts what runs while this asks it; the second puts
what ran often together and keeps what did not run small. Most turns here are ordinary ones, whole
and streamed; each scenario of the scripted provider comes a few times, so that reasoning, tool
calls and failures are known as well. BUILD is the folder of the first build.

Loopback only; the gateway started here is ended here, by id. Exit status 1 if too few turns were
answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.kill import start_gateway
from everyturn.mock.scenarios import GROUPS
from everyturn.mock.server import MockProvider

CLIENTS: Final = 8
ORDINARY: Final = 10_000
"""Ordinary turns: so many that the index of contents is in use, as in any record but a new one."""
STREAMED_EVERY: Final = 5
"""One in so many of them is streamed."""
PLAIN: Final = ("plain", "openai-chat")
LONG: Final = ("bench-60", "openai-chat")
"""Name and preset of what ordinary turns ask for: whole, and in so many chunks."""
SCENARIO_TIMES: Final = 2
SLOW: Final = frozenset({"Connection and time", "For tests"})
"""Groups of scenarios that wait, or break connections to see what happens."""
ANSWER_S: Final = 10.0
TIME_MAX_S: Final = 120.0
ANSWERED_MIN: Final = 0.9
"""The part of all turns that must get an answer, errors included, for the counts to be worth it."""

Turn = tuple[str, bool, int]
"""Model, whether it is streamed, and messages before the last one."""


def scenarios() -> list[tuple[str, str]]:
    """Name and preset of the scenarios that are asked for."""
    return [
        (f"{one.name}-3" if one.number else one.name, one.preset)
        for group, found in GROUPS.items()
        if group not in SLOW
        for one in found
        if one.name != PLAIN[0]
    ]


def turns(ordinary: int) -> Iterator[Turn]:
    """All turns of the load, in order; `ordinary` of them are ordinary ones."""
    for number in range(ordinary):
        is_streamed = number % STREAMED_EVERY == 0
        yield (LONG if is_streamed else PLAIN)[0], is_streamed, number % 7
    for name, _ in scenarios():
        for number in range(2 * SCENARIO_TIMES):
            yield name, number % 2 == 0, 0


def config(mock_url: str, folder: Path) -> str:
    """A gateway's configuration with a model a scenario."""
    models = "".join(
        f'[[models]]\nname = "{name}"\npreset = "{preset}"\nbase_url = "{mock_url}"\n'
        for name, preset in (PLAIN, LONG, *scenarios())
    )
    return f'[gateway]\nport = 0\nlog = "json"\ndata = "{folder / "data"}"\n{models}'


def request(turn: Turn, number: int) -> bytes:
    """The request of one turn; no two have the same last message."""
    model, is_streamed, before = turn
    history = [
        {"role": "assistant" if at % 2 else "user", "content": f"word {at} " * 30}
        for at in range(before - before % 2)
    ]
    messages = [*history, {"role": "user", "content": f"question {number}: " + "and then? " * 50}]
    body = json.dumps({"model": model, "messages": messages, "stream": is_streamed}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def read_answer(reader: asyncio.StreamReader) -> bool:
    """Read one answer to its end; whether the connection goes on. Raises where it breaks off."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"transfer-encoding: chunked" in head:
        size = 1
        while size:
            size = int((await reader.readuntil(b"\r\n"))[:-2], 16)
            await reader.readexactly(size + 2)
    else:
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await reader.readexactly(int(length))
    return b"connection: close" not in head


async def ask_all(port: int, left: Iterator[tuple[int, Turn]]) -> int:
    """Ask one turn after the other until none is left; how many were answered."""
    answered = 0
    reader = writer = None
    for number, turn in left:
        try:
            async with asyncio.timeout(ANSWER_S):
                if reader is None or writer is None:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request(turn, number))
                goes_on = await read_answer(reader)
                answered += 1
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            goes_on = False  # It broke off, as the scenario may have it; counted as no answer.
        if not goes_on and writer is not None:
            writer.close()
            reader = writer = None
    if writer is not None:
        writer.close()
    return answered


async def run(build: Path, folder: Path, ordinary: int) -> tuple[int, int]:
    """Put the load on a gateway of that build; turns that were answered, and all."""
    all_turns = list(turns(ordinary))
    async with MockProvider() as mock, asyncio.timeout(TIME_MAX_S):
        place = folder / "everyturn.toml"
        place.write_text(config(mock.url, folder), "utf-8")
        process, port = await start_gateway(place, os.environ | {"PYTHONPATH": str(build)})
        try:
            left = iter(enumerate(all_turns))
            answered = sum(await asyncio.gather(*(ask_all(port, left) for _ in range(CLIENTS))))
        finally:
            if process.returncode is None:
                # It writes its counts when it ends.
                process.send_signal(signal.SIGTERM)
            await process.wait()
    return answered, len(all_turns)


def main() -> int:
    """The command."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    asked.add_argument("build", type=Path, metavar="BUILD", help="the folder of the first build")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="everyturn-profile-") as folder:
        answered, asked_for = asyncio.run(run(options.build.resolve(), Path(folder), ORDINARY))
    print(f"profile load: {answered} of {asked_for} turns were answered", file=sys.stderr)
    return 0 if answered >= ANSWERED_MIN * asked_for else 1


if __name__ == "__main__":
    sys.exit(main())
