"""Faults of the connection and of HTTP itself, and answers that take their time."""

from __future__ import annotations

import zlib
from typing import Final

from everyturn.mock.scenario import Ask, Play, Scenario
from everyturn.mock.script import (
    ABORT,
    CLOSE,
    HANG,
    Pause,
    Repeat,
    Script,
    Step,
    head,
)
from everyturn.mock.speech import (
    ANSWER,
    THOUGHT,
    Said,
    Speech,
    dumps,
    frame,
    json_head,
    streamed,
    whole,
)

TOLD: Final = Speech(said=(Said("reasoning_content", THOUGHT), Said("content", ANSWER)))
SLOW_MS_DEFAULT: Final = 1_500
DRIP_MS_DEFAULT: Final = 150
BIG_KIB_DEFAULT: Final = 1_024
BIG_KIB_MAX: Final = 96 * 1024
PAUSE_MS_MAX: Final = 600_000
ENDLESS: Final = Repeat(b"pear " * 13_107, 16_384)
"""A line that nobody should read to its end; after one GiB the script closes."""
ORDERED_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


def wire(*steps: Step) -> Play:
    """Exactly these steps, for both kinds of request."""
    return lambda _ask: Script.raw(steps)


def preceded(*steps: Step) -> Play:
    """These steps on the wire, then an ordinary answer."""

    def play(ask: Ask) -> Script:
        script = TOLD(ask)
        return Script((*steps, *script.on_whole), (*steps, *script.on_stream))

    return play


def followed(*steps: Step) -> Play:
    """An ordinary answer to its very end, then these steps."""

    def play(ask: Ask) -> Script:
        script = TOLD(ask)
        return Script((*script.on_whole, *steps), (*script.on_stream, *steps))

    return play


def stopped(last: Step, *, frames_kept: int, bytes_kept: int = 0) -> Play:
    """An ordinary answer up to a point, then `last`; whole, the head and a third of the body.

    frames_kept: frames of the stream that arrive; bytes_kept: bytes of the frame after them.
    """

    def play(ask: Ask) -> Script:
        frames, body = TOLD.frames(ask.name), dumps(TOLD.body(ask.name))
        part = frames[frames_kept][:bytes_kept]
        kept = body[: len(body) // 3] if frames_kept or bytes_kept else b""
        return Script.pair(
            whole=Script.raw([json_head(len(body)), kept, last]),
            stream=streamed(ask.name, [*frames[:frames_kept], part, last]),
        )

    return play


def _slow(ask: Ask) -> Script:
    ms = SLOW_MS_DEFAULT if ask.number is None else min(ask.number, PAUSE_MS_MAX)
    return preceded(Pause(ms))(ask)


def _drip(ask: Ask) -> Script:
    """A pause before every frame; whole, before every tenth of the body."""
    ms = DRIP_MS_DEFAULT if ask.number is None else min(ask.number, PAUSE_MS_MAX)
    pause = Pause(ms)
    body = dumps(TOLD.body(ask.name))
    size = -(-len(body) // 10)
    steps: list[Step] = [json_head(len(body))]
    for start in range(0, len(body), size):
        steps += [pause, body[start : start + size]]
    dripped: list[Step] = []
    for each in TOLD.frames(ask.name):
        dripped += [pause, each]
    return Script.pair(whole=Script.raw(steps), stream=streamed(ask.name, dripped))


def _gzip(ask: Ask) -> Script:
    """Compressed although nobody asked; the stream is flushed after each frame."""
    told = {"content-encoding": "gzip"}
    # 16 + MAX_WBITS writes a gzip header, without a time in it.
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    packed = [
        packer.compress(each) + packer.flush(zlib.Z_SYNC_FLUSH) for each in TOLD.frames(ask.name)
    ]
    whole_packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    body = whole_packer.compress(dumps(TOLD.body(ask.name))) + whole_packer.flush()
    return Script.pair(
        whole=whole(ask.name, body, headers=told),
        stream=streamed(ask.name, [*packed, packer.flush()], headers=told),
    )


def _big_frame(ask: Ask) -> Script:
    kib = BIG_KIB_DEFAULT if ask.number is None else min(ask.number, BIG_KIB_MAX)
    line = "A pear is a pear is a pear, and so on for a very long while ... "
    return Speech(said=(Said("content", line * (16 * kib), size=kib * 1024),))(ask)


def _endless(ask: Ask) -> Script:
    opening = frame({"choices": [{"index": 0, "delta": {"content": ""}}]})
    promised = [("content-type", "application/json"), ("transfer-encoding", "chunked")]
    whole_steps = Script.sse([b'{"choices":[{"message":{"content":"', ENDLESS, CLOSE])
    return Script.pair(
        whole=Script.raw([head(200, promised), *whole_steps.on_whole[1:]]),
        stream=streamed(ask.name, [opening, b"data: ", ENDLESS, CLOSE]),
    )


def _until_close(ask: Ask) -> Script:
    """Neither length nor chunks: the body ends with the connection."""
    told = head(200, [("content-type", "application/json"), ("connection", "close")])
    return Script.pair(
        whole=Script.raw([told, dumps(TOLD.body(ask.name)), CLOSE]),
        stream=streamed(ask.name, TOLD.frames(ask.name), chunked=False),
    )


def _bad_chunk(ask: Ask) -> Script:
    script = streamed(ask.name, TOLD.frames(ask.name))
    return Script.raw([*script.on_stream[:4], b"zz\r\nwhat is this\r\n", CLOSE])


def _short_length(ask: Ask) -> Script:
    """`content-length` is smaller than the body; the rest is no answer to anything."""
    body = dumps(TOLD.body(ask.name))
    return Script.raw([json_head(len(body) - 40), body, CLOSE])


SCENARIOS: Final = (
    Scenario(
        name="reset-before",
        title="The connection is reset before the first byte of the answer.",
        play=wire(ABORT),
    ),
    Scenario(
        name="close-before",
        title="The connection is closed before the first byte of the answer.",
        play=wire(CLOSE),
    ),
    Scenario(
        name="reset-head",
        title="The connection is reset inside the headers.",
        play=wire(ORDERED_HEAD, ABORT),
    ),
    Scenario(
        name="reset-in",
        title="The connection is reset inside a frame.",
        play=stopped(ABORT, frames_kept=3, bytes_kept=40),
    ),
    Scenario(
        name="reset-after",
        title="The connection is reset after the answer has ended in order.",
        play=followed(ABORT),
    ),
    Scenario(
        name="hang",
        title="No byte, ever; the connection stays open.",
        play=wire(HANG),
    ),
    Scenario(
        name="hang-head",
        title="The headers, and then nothing.",
        play=stopped(HANG, frames_kept=0),
    ),
    Scenario(
        name="hang-mid",
        title="A few frames, and then nothing.",
        play=stopped(HANG, frames_kept=6),
    ),
    Scenario(
        name="slow",
        title=f"{SLOW_MS_DEFAULT} ms before the first byte.",
        number="milliseconds",
        play=_slow,
    ),
    Scenario(
        name="drip",
        title=f"{DRIP_MS_DEFAULT} ms before each frame.",
        number="milliseconds",
        play=_drip,
    ),
    Scenario(
        name="gzip",
        title="Compressed with gzip although nobody asked for it.",
        play=_gzip,
    ),
    Scenario(
        name="big-frame",
        title=f"One frame of {BIG_KIB_DEFAULT} KiB; whole, a body of that size.",
        number="KiB",
        varies=True,
        play=_big_frame,
    ),
    Scenario(
        name="endless-line",
        title="A line that does not end.",
        play=_endless,
    ),
    Scenario(
        name="endless-head",
        title="A header that does not end.",
        play=wire(ORDERED_HEAD, b"x-pears: ", ENDLESS, CLOSE),
    ),
    Scenario(
        name="early-hints",
        title="`103 Early Hints` before the answer.",
        play=preceded(b"HTTP/1.1 103 Early Hints\r\nlink: </pear.css>; rel=preload\r\n\r\n"),
    ),
    Scenario(
        name="not-http",
        title="Something that is not HTTP.",
        play=wire(b"SSH-2.0-OrchardSSH_9.9\r\n", CLOSE),
    ),
    Scenario(
        name="bad-chunk",
        title="A chunk whose size is no number.",
        play=_bad_chunk,
    ),
    Scenario(
        name="short-length",
        title="A `content-length` smaller than the body.",
        play=_short_length,
    ),
    Scenario(
        name="until-close",
        title="A body without length or chunks, ended by closing.",
        play=_until_close,
    ),
    Scenario(
        name="head-apart",
        title="The last byte of the headers 50 ms after the others.",
        play=lambda ask: _head_apart(TOLD(ask)),
    ),
)


def _head_apart(script: Script) -> Script:
    """The head cut before its last byte, with a pause."""

    def cut(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        first = steps[0]
        assert isinstance(first, bytes)
        at = first.index(b"\r\n\r\n") + 3
        return (first[:at], Pause(50), first[at:], *steps[1:])

    return Script(cut(script.on_whole), cut(script.on_stream))
