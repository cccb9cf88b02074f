"""Recorded exchanges: read, cut for the wire, and what must become of their requests and answers.

The recordings belong to nobody here; see their own README. What is said of requests is the
documented mapping (guide, HTTP reference, preset pages), written once more for the tests.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everyturn.mock.script import CHUNKED_END, Script, Step, chunk_bytes, head
from everyturn.wire.preset import Preset
from tests.support.comparing import DONE, named_events, read_json, write_json

SIMPLE: list[dict[str, Any]] = [{"role": "user", "content": "Say what you said."}]
PIECE_BYTES = 600
"""Most bytes of one write to a socket; the least is one."""


@dataclass(frozen=True)
class Recording:
    """One exchange. `raw` is the line of the file as a tree that keeps number texts."""

    raw: dict[str, Any]

    @property
    def id(self) -> str:
        """Names it in a failing test."""
        return str(self.raw["id"])

    @property
    def status(self) -> int:
        return int(self.raw["status"])

    @property
    def is_stream(self) -> bool:
        return bool(self.raw["stream"])

    @property
    def body(self) -> bytes:
        """The body of the answer."""
        if self.is_stream:
            return str(self.raw["sse"]).encode()
        if "body" in self.raw:
            return write_json(self.raw["body"]).encode()
        return str(self.raw["text"]).encode()

    @property
    def request(self) -> dict[str, Any]:
        """The recorded request, or a simple one where only the answer was kept."""
        return self.raw["request"] or {
            "model": "recorded",
            "messages": SIMPLE,
            "stream": self.is_stream,
        }

    @property
    def model(self) -> str:
        return str(self.request["model"])

    def events(self) -> list[tuple[str | None, Any]]:
        """The events of a streamed answer with data, each with its name."""
        return list(named_events(self.body))

    def error(self) -> tuple[int | None, Any] | None:
        """The error that the provider reported: its event's position, and the tree it stands in.

        The position is None in a whole answer. None where there is no error.
        """
        if not self.is_stream:
            tree = self.raw.get("body")
            return (None, tree) if isinstance(tree, dict) and tree.get("error") else None
        for position, (name, tree) in enumerate(self.events()):
            if tree != DONE and (tree.get("error") or name == "error"):
                return position, tree
        return None

    def is_finished(self) -> bool:
        """Whether every choice of a stream has a finish."""
        seen: set[Any] = set()
        finished: set[Any] = set()
        for _, tree in self.events():
            for choice in [] if tree == DONE else tree.get("choices") or []:
                seen.add(choice["index"])
                if choice.get("finish_reason"):
                    finished.add(choice["index"])
        return bool(seen) and seen == finished

    def script(self, chance: random.Random) -> Script:
        """The answer on the wire, cut anywhere: between chunks, and between writes."""
        body = self.body
        headers = [("content-type", str(self.raw["content_type"]))]
        if self.is_stream or chance.random() < 0.5:
            headers.append(("transfer-encoding", "chunked"))
            chunks = [chunk_bytes(piece) for piece in cuts(body, chance)]
            wire = head(self.status, headers) + b"".join(chunks) + CHUNKED_END
        else:
            headers.append(("content-length", str(len(body))))
            wire = head(self.status, headers) + body
        steps: list[Step] = list(cuts(wire, chance))
        return Script.raw(steps)


def read_recordings(folder: Path, preset: str) -> list[Recording]:
    """Every exchange that was recorded at a provider of this preset."""
    lines = (folder / f"{preset}.jsonl").read_bytes().splitlines()
    return [Recording(read_json(line)) for line in lines]


def cuts(data: bytes, chance: random.Random) -> list[bytes]:
    """The data in pieces of one to PIECE_BYTES bytes, short ones as likely as long ones."""
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        size = int(PIECE_BYTES ** chance.random())
        if chance.random() < 0.5:
            size = chance.randint(1, PIECE_BYTES)
        pieces.append(data[at : at + size])
        at += size
    return pieces


# ------------------------------------------------------------------------------- requests


def sent_request(request: dict[str, Any], preset: Preset) -> dict[str, Any]:
    """What the provider must receive for a recorded request, by the documented mapping."""
    sent = dict(request)
    sent["messages"] = [_sent_message(message, preset) for message in request["messages"]]
    if request.get("stream") is True:
        options = request.get("stream_options") or {}
        if preset.stream_options == "evidenced":
            sent["stream_options"] = {**options, "include_usage": True}
        elif preset.stream_options == "refused":
            sent.pop("stream_options", None)
    controls = preset.controls
    has_control = any(
        request.get(key) is not None for key in ("reasoning_effort", "reasoning", *controls.native)
    )
    if has_control and not any(key in request for key in preset.adds_unless):
        sent = {**preset.adds, **sent}
    effort = request.get("reasoning_effort")
    if effort is not None and "reasoning_effort" not in controls.native:
        del sent["reasoning_effort"]
        sent.update(controls.effort[controls.clamps.get(effort, effort)])
    return sent


def _sent_message(message: dict[str, Any], preset: Preset) -> dict[str, Any]:
    """An assistant message with its reasoning in the provider's carrier; others as they came."""
    if message["role"] != "assistant":
        return message
    texts = [key for key in ("reasoning_content", "reasoning") if key in message]
    kept = {key: value for key, value in message.items() if key not in texts}
    if preset.history in ("ignored", "forbidden") or not texts:
        return kept
    return {**kept, preset.history_carrier: message[texts[0]]}
