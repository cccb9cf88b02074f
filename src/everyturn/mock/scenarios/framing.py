"""Event streams in every legal spelling, and some illegal ones. Whole, the same answer in order.

Source: WHATWG HTML, "Server-sent events".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final

from everyturn.mock.scenario import Ask, Play, Scenario
from everyturn.mock.script import Script, Step
from everyturn.mock.speech import ANSWER, THOUGHT, Said, Speech, streamed, whole, with_frames

TOLD: Final = Speech(said=(Said("reasoning_content", THOUGHT), Said("content", ANSWER)))
WORLD: Final = Speech(
    said=(
        Said("reasoning_content", "七人で割る🍐 → zwölf, 84÷7=12 ✓", size=3),
        Said("content", "Jeder bekommt 12 Birnen 🍐🍐, d. h. δώδεκα. नमस्ते 👩‍👧", size=2),
    )
)


def respelled(change: Callable[[bytes], bytes], speech: Speech = TOLD) -> Play:
    """A speech whose frames were changed one by one."""
    return with_frames(speech, lambda frames: [change(each) for each in frames])


def _commented(frames: list[bytes]) -> Iterable[bytes]:
    yield b": ORCHARD PROCESSING\n\n"
    for index, each in enumerate(frames):
        # Before an event, inside of one, and an empty comment.
        yield (b": still picking\n\n", b": inside\n", b":\n\n")[index % 3]
        yield each


def _with_fields(frames: list[bytes]) -> Iterable[bytes]:
    yield b"retry: 2500\n\n"
    for index, each in enumerate(frames):
        yield b"event: message\nid: %d\n%b" % (index, each) if index % 2 else each
    yield b"id: last\n\n"


def _unknown_fields(frames: list[bytes]) -> Iterable[bytes]:
    for index, each in enumerate(frames):
        yield b"weight: 181\nnote\n" + each if index == 1 else each


def _in_lines(each: bytes) -> bytes:
    """The JSON of a frame over several `data:` lines; line ends may stand between its parts."""
    payload = each.removeprefix(b"data: ").strip()
    if payload == b"[DONE]":
        return each
    lines = json.dumps(json.loads(payload), indent=1, ensure_ascii=False).encode().split(b"\n")
    return b"".join(b"data: %b\n" % line for line in lines) + b"\n"


def _inside_characters(frames: list[bytes]) -> Iterable[bytes]:
    """Cut in the middle of each character that has more than one byte."""
    stream, start = b"".join(frames), 0
    for at, byte in enumerate(stream):
        if byte & 0xC0 == 0x80:
            yield stream[start:at]
            start = at
    yield stream[start:]


def _in_bytes(frames: list[bytes]) -> Iterable[bytes]:
    stream = b"".join(frames)
    return [stream[at : at + 1] for at in range(len(stream))]


def _in_one(frames: list[bytes]) -> list[Step]:
    return [b"".join(frames)]


def _json_to_stream(ask: Ask) -> Script:
    return whole(ask.name, TOLD.body(ask.name))


def _stream_to_whole(ask: Ask) -> Script:
    return streamed(ask.name, TOLD.frames(ask.name))


SCENARIOS: Final = (
    Scenario(
        name="crlf",
        title="Lines end with CR LF.",
        play=respelled(lambda each: each.replace(b"\n", b"\r\n")),
    ),
    Scenario(
        name="cr",
        title="Lines end with CR.",
        play=respelled(lambda each: each.replace(b"\n", b"\r")),
    ),
    Scenario(
        name="comments",
        title="Comments as keep-alives, between and inside of events.",
        preset="openrouter",
        play=with_frames(TOLD, _commented),
    ),
    Scenario(
        name="no-space",
        title="No space after `data:`.",
        play=respelled(lambda each: each.replace(b"data: ", b"data:", 1)),
    ),
    Scenario(
        name="multi-line",
        title="Each event over many `data:` lines.",
        play=respelled(_in_lines),
    ),
    Scenario(
        name="fields",
        title="`event:`, `id:` and `retry:` lines, some of them alone.",
        play=with_frames(TOLD, _with_fields),
    ),
    Scenario(
        name="unknown-fields",
        title="Lines with fields that no standard has.",
        play=with_frames(TOLD, _unknown_fields),
    ),
    Scenario(
        name="bom",
        title="A byte order mark before the first event.",
        play=with_frames(TOLD, lambda frames: [b"\xef\xbb\xbf" + frames[0], *frames[1:]]),
    ),
    Scenario(
        name="blank-lines",
        title="More blank lines than needed.",
        play=respelled(lambda each: b"\n\n" + each + b"\n"),
    ),
    Scenario(
        name="no-last-blank",
        title="The blank line after the last event is missing.",
        play=with_frames(TOLD, lambda frames: [*frames[:-1], frames[-1].rstrip(b"\n")]),
    ),
    Scenario(
        name="multibyte",
        title="Characters of many scripts, each cut in the middle by a write.",
        play=with_frames(WORLD, _inside_characters),
    ),
    Scenario(
        name="trickle",
        title="The stream byte by byte.",
        play=with_frames(TOLD, _in_bytes),
    ),
    Scenario(
        name="one-write",
        title="The whole stream in one write.",
        play=with_frames(TOLD, _in_one),
    ),
    Scenario(
        name="json-to-stream",
        title="A whole JSON answer to a streamed request.",
        play=_json_to_stream,
    ),
    Scenario(
        name="stream-to-whole",
        title="An event stream to a request that asked for none.",
        play=_stream_to_whole,
    ),
)
