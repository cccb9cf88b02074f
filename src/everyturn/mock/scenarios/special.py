"""Scenarios for tests and load: what was received, said back; and answers made for speed."""

from __future__ import annotations

import json
from typing import Final

from everyturn.mock.scenario import Ask, Scenario
from everyturn.mock.script import CHUNKED_END, Script, chunk_bytes
from everyturn.mock.speech import ANSWER, Said, Speech, chunk, frame

BENCH_CHUNKS_DEFAULT: Final = 200
BENCH_CHUNKS_MAX: Final = 100_000
BENCH_FRAMES_A_WRITE: Final = 10
WITHHELD: Final = ("authorization", "api-key", "x-api-key", "cookie", "proxy-authorization")
"""Headers that `echo` names without their value: an answer travels further than a request."""


def _echo(ask: Ask) -> Script:
    """The request as JSON text in the content; the body stands in it byte for byte."""
    headers = [
        [name, "withheld" if name.lower() in WITHHELD else value]
        for name, value in ask.request.headers
    ]
    facts = {"method": ask.request.method, "target": ask.request.target, "headers": headers}
    text = json.dumps(facts, ensure_ascii=False)[:-1] + ', "body": '
    said = text + ask.request.body.decode("utf-8", "replace") + "}"
    return Speech(said=(Said("content", said, size=64),))(ask)


def _bench(ask: Ask) -> Script:
    """A small answer; a stream of N chunks, the opening, the finish and the usage among them."""
    count = BENCH_CHUNKS_DEFAULT if ask.number is None else ask.number
    count = max(4, min(count, BENCH_CHUNKS_MAX))
    opening, *_, finish, usage, done = Speech().frames(ask.name)
    words = [frame(chunk(ask.name, {"content": f"pear {n} "})) for n in range(count - 3)]
    frames = [chunk_bytes(each) for each in (opening, *words, finish, usage, done)]
    writes = [
        b"".join(frames[start : start + BENCH_FRAMES_A_WRITE])
        for start in range(0, len(frames), BENCH_FRAMES_A_WRITE)
    ]
    script = Speech(said=(Said("content", ANSWER),))(ask)
    return Script(script.on_whole, (script.on_stream[0], *writes, CHUNKED_END))


SCENARIOS: Final = (
    Scenario(
        name="echo",
        title="Says back what it received: method, target, headers and body, as JSON text.",
        play=_echo,
        varies=True,
    ),
    Scenario(
        name="bench",
        title=f"For load: a small answer, or {BENCH_CHUNKS_DEFAULT} chunks. Not kept in `/__last`.",
        preset="openai-chat",
        number="chunks",
        play=_bench,
    ),
)
