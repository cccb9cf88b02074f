"""Split an event stream into frames without losing a byte.

Sans-IO. Knows Server-Sent Events framing and nothing about what a frame means (see `dialects`).
Every byte received is inside exactly one frame or in the tail; nothing is skipped, comments and
spare blank lines included, and where the body was cut into chunks makes no difference. Source:
WHATWG HTML, "Server-sent events"; we differ at the end of input, where a last event without its
blank line still counts (decision 0004).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

FRAME_BYTES_MAX: Final = 32 * 1024 * 1024
"""Default bound of one frame; a longer one is refused, never cut."""

_BOM: Final = b"\xef\xbb\xbf"
_LINE_FEED: Final = 0x0A
_RETURN: Final = 0x0D
"""As numbers: `in` takes bytes for a number first, and an exception inside says that they are none.
"""
_LINE: Final = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)")
_ENDS: Final = re.compile(rb"\r\n|\n|\r")
# The end of a line and the blank line after it. A carriage return may be half of a CRLF: after a
# line feed it waits for the next byte; after a carriage return it ends the event at once, since a
# stream with bare carriage returns would else be shown one event late.
_EVENT_END: Final = re.compile(rb"\n(?:\n|\r\n|\r(?=[^\n]))|\r\r")
_EVENT_END_PART: Final = 2
"""Bytes at the end of what was searched that may begin an event's end."""


class Frame(msgspec.Struct, frozen=True):
    """One event of the stream, as it came.

    raw: all its bytes, with the blank line that ends it. data: the joined `data:` lines, None when
    it has none. comments: its comment lines without the line ends. event: the `event:` value.
    error: the value of an `error:` line, which some servers send instead of data. unknown_fields:
    how many lines had a field name that nobody defines.
    """

    raw: bytes
    data: bytes | None
    event: bytes | None = None
    comments: tuple[bytes, ...] = ()
    error: bytes | None = None
    unknown_fields: int = 0

    @property
    def shown(self) -> bytes:
        """The bytes a client may get: all but what comes before the event's first line.

        That is a byte order mark, which is the provider's own, and spare blank lines.
        """
        return self.raw.removeprefix(_BOM).lstrip(b"\r\n")

    def with_data(self, data: bytes) -> bytes:
        """The frame's bytes with other data: every other line stays as it came."""
        lines: list[bytes] = []
        is_placed = False
        for line in _LINE.findall(self.shown.rstrip(b"\r\n") + b"\n"):
            if not line.startswith(b"data:") and line.rstrip(b"\r\n") != b"data":
                lines.append(line)
            elif not is_placed:
                lines.append(b"data: " + data + b"\n")
                is_placed = True
        return b"".join(lines) + b"\n"


class SseSplitter:
    """Bytes in, whole frames out. `close` gives what was left."""

    __slots__ = ("_buffer", "_has_returns", "_searched")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0
        self._has_returns = False

    @property
    def pending(self) -> int:
        """Bytes received that are in no frame yet."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The raw bytes of each frame that `chunk` completes, for `parse_frame`."""
        if self._has_returns or _RETURN in chunk:
            return self._cut_at_any_end(chunk)
        return self._cut_at_line_feeds(chunk)

    def close(self) -> bytes:
        """The bytes of the last event, when the body ended without its blank line; b"" if none."""
        raw = bytes(self._buffer)
        self._buffer.clear()
        self._searched = 0
        return raw

    def _cut_at_line_feeds(self, chunk: bytes) -> list[bytes]:
        """Whole events of a stream that so far has no carriage return."""
        buffer = self._buffer
        if buffer:
            buffer += chunk
            if buffer.find(b"\n\n", self._searched) < 0:
                self._searched = max(0, len(buffer) - _EVENT_END_PART)
                return []
            chunk = bytes(buffer)
            buffer.clear()
        raws: list[bytes] = []
        start = at = 0
        size = len(chunk)
        # From line feed to line feed, since one byte is found faster than two.
        while at < size:
            at = chunk.find(b"\n", at) + 1
            if not 0 < at < size:
                break
            if chunk[at] == _LINE_FEED:
                at += 1
                raws.append(chunk[start:at])
                start = at
        self._searched = 0
        if start < size:
            buffer += chunk[start:]
            self._searched = max(0, len(buffer) - _EVENT_END_PART)
        return raws

    def _cut_at_any_end(self, chunk: bytes) -> list[bytes]:
        """Whole events of a stream with carriage returns."""
        self._has_returns = True
        self._buffer += chunk
        ends = [found.end() for found in _EVENT_END.finditer(self._buffer, self._searched)]
        raws: list[bytes] = []
        start = 0
        for end in ends:
            raws.append(bytes(self._buffer[start:end]))
            start = end
        del self._buffer[:start]
        self._searched = max(0, len(self._buffer) - _EVENT_END_PART)
        return raws


def parse_frame(raw: bytes) -> Frame:
    """The fields of one event. Bytes that are not UTF-8 stay: who reads the data answers them."""
    # The common form, told without looking at lines.
    if (
        raw.startswith(b"data: ")
        and raw.endswith(b"\n\n")
        and raw.count(b"\n") == 2
        and _RETURN not in raw
    ):
        return Frame(raw, raw[6:-2])
    data: list[bytes] = []
    comments: list[bytes] = []
    event: bytes | None = None
    error: bytes | None = None
    unknown = 0
    for line in _ENDS.split(raw.removeprefix(_BOM)):
        if not line:
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data.append(value)
        elif not name:
            comments.append(line[1:])
        elif name == b"event":
            event = value
        elif name == b"error":
            error = value
        elif name not in (b"id", b"retry"):
            unknown += 1
    joined = b"\n".join(data) if data else None
    return Frame(raw, joined, event, tuple(comments), error, unknown)


def has_fields(raw: bytes) -> bool:
    """Whether bytes hold a line, or part of one, that is neither blank nor a comment."""
    lines = _ENDS.split(raw.removeprefix(_BOM))
    return any(line and not line.startswith(b":") for line in lines)
