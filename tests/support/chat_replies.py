"""Builders for answers of providers, and a reader that says all of how one was read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from everyturn.errors import Failure
from everyturn.wire import events as ev
from everyturn.wire.limits import Limits
from everyturn.wire.preset import Target
from everyturn.wire.reader import read_provider
from everyturn.wire.reply import Choice, Reply
from everyturn.wire.stream import DONE_FRAME, ReplyStream, read_whole
from tests.support.chat_requests import a_target

__all__ = [
    "DONE_FRAME",
    "Seen",
    "SeenWhole",
    "a_chunk",
    "a_completion",
    "a_frame",
    "a_message",
    "a_target",
    "read_body",
    "read_stream",
]

ENVELOPE: dict[str, Any] = {"id": "c-1", "created": 1, "model": "m"}


def a_chunk(
    delta: dict[str, Any] | None = None, finish: str | None = None, *, index: int = 0, **body: Any
) -> dict[str, Any]:
    """One chunk of a stream with one choice; `body` has further members of the body."""
    choice = {"index": index, "delta": delta or {}, "finish_reason": finish}
    return {**ENVELOPE, "object": "chat.completion.chunk", "choices": [choice], **body}


def a_frame(data: Any) -> bytes:
    """One event: an object as JSON, text and bytes as they are."""
    if isinstance(data, bytes):
        return data
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def a_message(*choices: dict[str, Any], finish: str | None = "stop", **body: Any) -> dict[str, Any]:
    """A whole answer whose choices have these messages."""
    return {
        **ENVELOPE,
        "object": "chat.completion",
        "choices": [
            {"index": index, "message": {"role": "assistant", **message}, "finish_reason": finish}
            for index, message in enumerate(choices)
        ],
        **body,
    }


def a_completion(**message: Any) -> dict[str, Any]:
    """A whole answer with one choice, whose message has these members."""
    return a_message({"content": None, **message})


@dataclass
class Seen:
    """How a stream was read, and what the client saw of it."""

    stream: ReplyStream
    events: list[ev.Event] = field(default_factory=list)
    shown: bytes = b""
    """All that the client got but the end marker."""
    failure: Failure | None = None

    @property
    def reply(self) -> Reply:
        return self.stream.reply()

    @property
    def choice(self) -> Choice:
        """The only choice."""
        (choice,) = self.reply.choices
        return choice

    @property
    def flags(self) -> list[str]:
        return self.reply.flags

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The chunks that the client saw, read with the strict reader."""
        return [
            read_provider(event.removeprefix(b"data: ")).value
            for event in self.shown.replace(b"\r\n", b"\n").split(b"\n\n")
            if event.startswith(b"data: ")
        ]

    @property
    def deltas(self) -> list[dict[str, Any]]:
        """The deltas of the chunks that the client saw."""
        return [choice["delta"] for chunk in self.chunks for choice in chunk["choices"]]

    def text(self, key: str = "content", index: int = 0) -> str:
        """What a client adds up of one member of one choice."""
        return "".join(
            choice["delta"].get(key) or ""
            for chunk in self.chunks
            for choice in chunk["choices"]
            if choice.get("index", 0) == index
        )


def read_stream(
    target: Target,
    *data: Any,
    chunks: Iterable[bytes] | None = None,
    limits: Limits | None = None,
    is_cut: bool = False,
    is_closed: bool = True,
    **options: Any,
) -> Seen:
    """Read a stream to its end.

    data: what `a_frame` takes, one event each; they arrive one by one. chunks: instead of `data`,
    the bytes as they arrive. options: of ReplyStream.
    """
    stream = ReplyStream(target, limits or Limits(), **options)
    seen = Seen(stream)
    try:
        for chunk in chunks if chunks is not None else map(a_frame, data):
            seen.events += stream.receive(chunk)
            seen.shown += stream.take()
        if is_closed:
            stream.close(is_cut=is_cut)
    except Failure as failure:
        seen.failure = failure
    seen.shown += stream.take()
    return seen


@dataclass
class SeenWhole:
    """How a whole answer was read, and what the client saw of it."""

    reply: Reply
    shown: bytes
    notes: list[str]
    events: list[ev.Event]

    @property
    def choice(self) -> Choice:
        """The only choice."""
        (choice,) = self.reply.choices
        return choice

    @property
    def body(self) -> dict[str, Any]:
        """The body that the client saw."""
        body: dict[str, Any] = read_provider(self.shown).value
        return body

    @property
    def message(self) -> dict[str, Any]:
        """The message of the only choice that the client saw."""
        (choice,) = self.body["choices"]
        message: dict[str, Any] = choice["message"]
        return message


def read_body(
    target: Target, body: Any, *, limits: Limits | None = None, choices: int = 1
) -> SeenWhole:
    """Read a whole answer: an object as JSON, bytes as they are. Raises its failure."""
    data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    reply, shown, decoder, events = read_whole(data, target, limits or Limits(), choices=choices)
    return SeenWhole(reply, shown, decoder.notes, events)
