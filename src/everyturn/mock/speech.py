"""One assistant answer, told twice: as a whole body and as the frames of a stream.

A speech is data: what is said in which order under which key, and what stands around it. Both
forms come from the same data, so a client must get the same answer either way; a test folds each
stream and compares. Shape: OpenAI Chat Completions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from everyturn.mock.scenario import Ask, Play
from everyturn.mock.script import Script, Step, head

CREATED: Final = 1_750_000_000
DONE: Final = b"data: [DONE]\n\n"
OPENING: Final[Mapping[str, Any]] = {"role": "assistant", "content": ""}
USAGE: Final[Mapping[str, Any]] = {
    "prompt_tokens": 19,
    "completion_tokens": 23,
    "total_tokens": 42,
}
THOUGHT: Final = (
    "Seven people share eighty-four pears. 84 / 7 = 12, and 7 × 12 = 84 checks out, so 12 each."
)
ANSWER: Final = "Each of the seven people gets 12 pears."

Json = Mapping[str, Any]


def pieces(text: str, size: int = 12) -> tuple[str, ...]:
    """The text in parts of at most `size` characters, in order."""
    return tuple(text[start : start + size] for start in range(0, len(text), size))


@dataclass(frozen=True, slots=True)
class Said:
    """Text under one key of the message: one string in a whole body, several deltas in a stream."""

    key: str
    text: str
    size: int = 12
    """Characters a delta."""

    def deltas(self) -> list[Json]:
        """The text in pieces; nothing for no text."""
        return [{self.key: piece} for piece in pieces(self.text, self.size)]


@dataclass(frozen=True, slots=True)
class Shown:
    """A delta as it stands; `Speech.message` says how the whole body holds the same."""

    delta: Json
    choice: Json = field(default_factory=dict)
    """Further keys of the choice in this chunk."""
    top: Json = field(default_factory=dict)
    """Further keys of this chunk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """An answer with one choice. Called with an `Ask` it is a scenario's `play`."""

    said: tuple[Said | Shown, ...] = (Said("content", ANSWER),)
    message: Json = field(default_factory=dict)
    """Further keys of the whole message, and those whose value is not the joined text."""
    finish: str | None = "stop"
    usage: Json | None = field(default_factory=lambda: USAGE)
    """In the whole body and at the end of the stream; None for none."""
    top: Json = field(default_factory=dict)
    """Further keys of the body and of each chunk."""
    choice: Json = field(default_factory=dict)
    """Further keys of the choice in the whole body and in the chunk with the finish."""
    opening: Json | None = field(default_factory=lambda: OPENING)
    """The first delta; None for none."""
    last: Json = field(default_factory=dict)
    """The delta of the chunk with the finish."""
    usage_in: Literal["frame", "finish"] = "frame"
    """Where a stream has its usage: in a frame of its own, or in the chunk with the finish."""
    after: tuple[Said | Shown, ...] = ()
    """What is said after the chunk with the finish."""
    body_top: Json = field(default_factory=dict)
    """Further keys of the whole body alone."""

    def __call__(self, ask: Ask) -> Script:
        return Script.pair(whole=whole(ask.name, self.body(ask.name)), stream=self.stream(ask.name))

    def body(self, name: str) -> dict[str, Any]:
        """The whole answer."""
        message: dict[str, Any] = {"role": "assistant", "content": None}
        for part in (*self.said, *self.after):
            if isinstance(part, Said):
                message[part.key] = (message.get(part.key) or "") + part.text
        choice = {
            "index": 0,
            "message": {**message, **self.message},
            "finish_reason": self.finish,
            **self.choice,
        }
        top = {**self.top, **self.body_top}
        return envelope(name, [choice], usage=self.usage, top=top)

    def chunks(self, name: str) -> list[dict[str, Any]]:
        """The objects of the stream, from the opening to the usage."""
        told = [] if self.opening is None else [chunk(name, self.opening, top=self.top)]
        told += self._told(name, self.said)
        usage: Json = {} if self.usage is None else {"usage": self.usage}
        if self.finish is not None:
            end_top = {**self.top, **usage} if self.usage_in == "finish" else self.top
            told.append(chunk(name, self.last, finish=self.finish, choice=self.choice, top=end_top))
        told += self._told(name, self.after)
        if usage and self.usage_in == "frame":
            told.append({**chunk_envelope(name), "choices": [], **self.top, **usage})
        return told

    def _told(self, name: str, parts: tuple[Said | Shown, ...]) -> list[dict[str, Any]]:
        shown: list[Shown] = []
        for part in parts:
            shown += [Shown(d) for d in part.deltas()] if isinstance(part, Said) else [part]
        return [
            chunk(name, one.delta, choice=one.choice, top={**self.top, **one.top}) for one in shown
        ]

    def frames(self, name: str) -> list[bytes]:
        """The stream as SSE events, with the last one."""
        return [*map(frame, self.chunks(name)), DONE]

    def stream(self, name: str) -> Script:
        """The stream in order, one chunk a frame."""
        return streamed(name, self.frames(name))

    def but(self, **changes: Any) -> Speech:
        """The same speech with other fields."""
        return replace(self, **changes)


def with_frames(speech: Speech, change: Callable[[list[bytes]], Iterable[Step]]) -> Play:
    """A speech whose stream is played after `change` had its frames; the whole body stays."""

    def play(ask: Ask) -> Script:
        stream = streamed(ask.name, change(speech.frames(ask.name)))
        return Script.pair(whole=speech(ask), stream=stream)

    return play


def dumps(value: Any) -> bytes:
    """Compact JSON in UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode()


def frame(value: Any) -> bytes:
    """One SSE event with the value as JSON; bytes are taken as they are."""
    data = value if isinstance(value, bytes) else dumps(value)
    return b"data: %b\n\n" % data


def envelope(
    name: str, choices: list[Any], *, usage: Json | None = None, top: Json | None = None
) -> dict[str, Any]:
    """The object around the choices of a whole answer."""
    found: dict[str, Any] = {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": CREATED,
        "model": f"mock-{name}",
        "choices": choices,
    }
    if usage is not None:
        found["usage"] = usage
    return {**found, **(top or {})}


def chunk_envelope(name: str) -> dict[str, Any]:
    """The object around the choices of a chunk, without them."""
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": f"mock-{name}",
    }


def chunk(
    name: str,
    delta: Json,
    *,
    finish: str | None = None,
    index: int = 0,
    choice: Json | None = None,
    top: Json | None = None,
) -> dict[str, Any]:
    """One chunk with one choice."""
    one = {"index": index, "delta": delta, "finish_reason": finish, **(choice or {})}
    return {**chunk_envelope(name), "choices": [one], **(top or {})}


def whole(name: str, body: Any, *, status: int = 200, headers: Json | None = None) -> Script:
    """One JSON answer with its length; bytes are taken as they are."""
    data = body if isinstance(body, bytes) else dumps(body)
    return Script.whole(status, {"x-request-id": f"req-{name}", **(headers or {})}, data)


def json_head(length: int) -> bytes:
    """The head of a JSON answer that promises this many bytes."""
    return head(200, [("content-type", "application/json"), ("content-length", str(length))])


def streamed(
    name: str, pieces: Iterable[Step], *, chunked: bool = True, headers: Json | None = None
) -> Script:
    """An event stream from pieces, one write each."""
    named = {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-request-id": f"req-{name}",
        **(headers or {}),
    }
    return Script.sse(pieces, chunked=chunked, headers=named)
