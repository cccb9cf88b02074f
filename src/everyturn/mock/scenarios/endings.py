"""How a stream ends, well and badly. In a whole answer the same break where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from everyturn.mock.scenario import Ask, Play, Scenario
from everyturn.mock.script import ABORT, CLOSE, Script, Step
from everyturn.mock.speech import (
    ANSWER,
    DONE,
    THOUGHT,
    USAGE,
    Said,
    Speech,
    chunk,
    chunk_envelope,
    dumps,
    frame,
    json_head,
    streamed,
    whole,
    with_frames,
)

HALF: Final = Speech(
    said=(Said("reasoning_content", THOUGHT), Said("content", ANSWER[:24])),
    finish=None,
    usage=None,
)
"""A speech that stops in the middle: the stream has neither finish nor usage nor end."""
FULL: Final = Speech(said=(Said("reasoning_content", THOUGHT), Said("content", ANSWER)))
MIDWAY_ERROR: Final = {
    "error": {
        "message": "The orchard caught fire while we were picking.",
        "type": "server_error",
        "param": None,
        "code": "orchard_on_fire",
    }
}
FAILED_CALL: Final = {
    "error": {
        "message": "Failed to call a function. See failed_generation.",
        "type": "invalid_request_error",
        "code": "tool_use_failed",
        "failed_generation": '{"name":"share_out","arguments":{"people":"seven"}}',
        "status_code": 400,
    }
}


def broken(last: Step, *, speech: Speech = HALF, whole_keeps: float = 0.5) -> Play:
    """A speech without its end, then `last`; the whole body is cut and ends with `last` too.

    whole_keeps: the part of the whole body that arrives. Its head still promises all of it.
    """

    def play(ask: Ask) -> Script:
        body = dumps(FULL.body(ask.name))
        part = body[: int(len(body) * whole_keeps)]
        return Script.pair(
            whole=Script.raw([json_head(len(body)), part, last]),
            stream=streamed(ask.name, [*speech.frames(ask.name)[:-1], last]),
        )

    return play


def cut_in_order(*, cut: int = 0) -> Play:
    """A speech without its end that nevertheless ends in order on the HTTP level, both ways.

    cut: take this many bytes from the end of the last frame.
    """

    def play(ask: Ask) -> Script:
        *frames, last = HALF.frames(ask.name)[:-1]
        body = dumps(FULL.body(ask.name))
        return Script.pair(
            whole=whole(ask.name, body[: len(body) // 2]),
            stream=streamed(ask.name, [*frames, last[: len(last) - cut]]),
        )

    return play


def failing(
    *events: bytes, speech: Speech = HALF, error: Any = MIDWAY_ERROR, status: int = 500
) -> Play:
    """A speech, then the events, as they are; whole, the error alone with this status."""

    def play(ask: Ask) -> Script:
        frames = speech.frames(ask.name)[:-1]
        return Script.pair(
            whole=whole(ask.name, error, status=status),
            stream=streamed(ask.name, [*frames, *events]),
        )

    return play


def ending(change: Callable[[list[bytes]], Iterable[Step]], speech: Speech = FULL) -> Play:
    """A speech with another end of the stream; the whole answer is in order."""
    return with_frames(speech, change)


def _late_error(ask: Ask) -> Script:
    """A finish was already sent; then an error that carries usage; then the usual end."""
    speech = FULL.but(finish="length", usage=None)
    error = {
        **chunk_envelope(ask.name),
        "choices": [],
        "error": {"message": "The answer could not be charged.", "code": 400},
        "usage": {**USAGE, "completion_tokens_details": {"reasoning_tokens": 24}},
    }
    return Script.pair(
        whole=whole(ask.name, {"error": error["error"]}, status=400),
        stream=streamed(ask.name, [*speech.frames(ask.name)[:-1], frame(error), DONE]),
    )


def _error_first(ask: Ask) -> Script:
    return Script.pair(
        whole=whole(ask.name, MIDWAY_ERROR, status=500),
        stream=streamed(ask.name, [frame(MIDWAY_ERROR), DONE]),
    )


def _one_of_two(ask: Ask) -> Script:
    """Two choices begin, one finishes, the stream says that it is done."""
    told = [chunk(ask.name, {"role": "assistant", "content": "Twelve"}, index=i) for i in (0, 1)]
    told.append(chunk(ask.name, {}, finish="stop", index=0))
    body = Speech().body(ask.name)
    body["choices"].append(
        {"index": 1, "message": {"role": "assistant", "content": "Twelve"}, "finish_reason": None}
    )
    return Script.pair(
        whole=whole(ask.name, body), stream=streamed(ask.name, [*map(frame, told), DONE])
    )


SCENARIOS: Final = (
    Scenario(
        name="no-done",
        title="A finish and a clean end, but no `[DONE]`.",
        play=ending(lambda frames: frames[:-1]),
    ),
    Scenario(
        name="no-finish",
        title="`[DONE]` without a finish; whole, the finish is null.",
        play=FULL.but(finish=None),
    ),
    Scenario(
        name="done-twice",
        title="`[DONE]` two times.",
        play=ending(lambda frames: [*frames, DONE]),
    ),
    Scenario(
        name="after-done",
        title="More events after `[DONE]`.",
        play=ending(lambda frames: [*frames, b'data: {"after":"the end"}\n\n', b": bye\n\n"]),
    ),
    Scenario(
        name="cut-clean",
        title="The answer stops in the middle; HTTP says all is well.",
        play=cut_in_order(),
    ),
    Scenario(
        name="cut-frame",
        title="The answer stops inside a frame; HTTP says all is well.",
        play=cut_in_order(cut=35),
    ),
    Scenario(
        name="cut-close",
        title="The connection closes in the middle, before HTTP's own end.",
        play=broken(CLOSE),
    ),
    Scenario(
        name="cut-abort",
        title="The connection is reset in the middle.",
        play=broken(ABORT),
    ),
    Scenario(
        name="cut-reasoning",
        title="The connection closes inside the reasoning.",
        preset="deepseek",
        play=broken(CLOSE, speech=HALF.but(said=(Said("reasoning_content", THOUGHT[:40]),))),
    ),
    Scenario(
        name="cut-after-finish",
        title="The connection is reset after the finish, before `[DONE]`.",
        play=broken(ABORT, speech=FULL.but(usage=None), whole_keeps=0.9),
    ),
    Scenario(
        name="cut-after-done",
        title="The connection closes after `[DONE]`, before HTTP's own end.",
        play=ending(lambda frames: [*frames, CLOSE]),
    ),
    Scenario(
        name="one-of-two",
        title="Two choices, one of them never finishes, then `[DONE]`.",
        play=_one_of_two,
    ),
    Scenario(
        name="error-mid",
        title="An error object in the middle of the stream, then `[DONE]`; whole, a 500.",
        play=failing(frame({**MIDWAY_ERROR, "choices": []}), DONE),
    ),
    Scenario(
        name="error-mid-no-done",
        title="An error object in the middle of the stream, then the end.",
        play=failing(frame(MIDWAY_ERROR)),
    ),
    Scenario(
        name="error-late",
        title="An error after the finish, with the usage.",
        preset="openrouter",
        play=_late_error,
    ),
    Scenario(
        name="error-event",
        title="`event: error` with the rejected tool call, after reasoning.",
        preset="groq",
        play=failing(
            b"event: error\n" + frame(FAILED_CALL),
            speech=HALF.but(said=(Said("reasoning", THOUGHT),)),
            error=FAILED_CALL,
            status=400,
        ),
    ),
    Scenario(
        name="error-field",
        title="An SSE line that begins with `error:`.",
        play=failing(b"error: " + dumps(MIDWAY_ERROR["error"]) + b"\n\n"),
    ),
    Scenario(
        name="error-first",
        title="An error object as the first event of a stream with status 200.",
        play=_error_first,
    ),
    Scenario(
        name="error-finish",
        title="The finish itself says `error`.",
        preset="openrouter",
        play=FULL.but(said=(Said("content", ANSWER[:24]),), finish="error"),
    ),
)
