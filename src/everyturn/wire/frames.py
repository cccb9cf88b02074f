"""Split an event stream into frames without losing a byte.

Sans-IO. Knows Server-Sent Events framing and nothing about what a frame means (see `dialects`).
Every byte received is inside exactly one frame or in the tail; nothing is skipped, comments
included. Source: WHATWG HTML, "Server-sent events"; we differ at the end of input, where a last
event without its blank line still counts (decision 0004).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

FRAME_BYTES_MAX: Final = 32 * 1024 * 1024
"""Default bound of one frame; a longer one is refused, never cut."""

_BOM: Final = b"\xef\xbb\xbf"
_LINE: Final = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)")
_ENDS: Final = re.compile(rb"\r\n|\n|\r")


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
        """The bytes a client may get: all but a byte order mark, which is the provider's own."""
        return self.raw.removeprefix(_BOM)

    def with_data(self, data: bytes) -> bytes:
        """The frame's bytes with other data: every other line stays as it came."""
        lines: list[bytes] = []
        is_placed = False
        for line in _LINE.findall(self.shown.rstrip(b"\r\n") + b"\n"):
            if not line.startswith(b"data"):
                lines.append(line)
            elif not is_placed:
                lines.append(b"data: " + data + b"\n")
                is_placed = True
        return b"".join(lines) + b"\n"


class SseSplitter:
    """Bytes in, whole frames out. `close` gives what was left."""

    __slots__ = ("_buffer", "_frame_bytes_max", "_lead", "_scanned", "_started", "received")

    def __init__(self, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self._lead = b""
        self._started = False
        self._frame_bytes_max = frame_bytes_max
        self.received = 0

    @property
    def pending(self) -> int:
        """Bytes received that are in no frame yet."""
        return len(self._buffer) + len(self._lead)

    @property
    def is_overfull(self) -> bool:
        """Whether the event that has begun passes the bound of a frame."""
        return len(self._buffer) > self._frame_bytes_max

    def feed(self, chunk: bytes) -> list[bytes]:
        """The raw bytes of each frame that `chunk` completes, for `parse_frame`.

        Look at `is_overfull` after they were dealt with.
        """
        self.received += len(chunk)
        if not self._started:
            chunk = self._start(chunk)
        raws = self._cut(chunk)
        if self._lead and raws:
            raws[0] = self._lead + raws[0]
            self._lead = b""
        return raws

    def close(self) -> bytes:
        """The raw bytes of a last event without its blank line; b"" if there is none."""
        raw = self._lead + bytes(self._buffer)
        self._buffer.clear()
        self._lead = b""
        return raw

    def _start(self, chunk: bytes) -> bytes:
        """The first bytes: a byte order mark is kept for the first frame's raw bytes only."""
        self._buffer += chunk
        if len(self._buffer) < len(_BOM) and _BOM.startswith(bytes(self._buffer)):
            return b""
        self._started = True
        chunk = bytes(self._buffer)
        self._buffer.clear()
        if chunk.startswith(_BOM):
            self._lead = _BOM
            return chunk[len(_BOM) :]
        return chunk

    def _cut(self, chunk: bytes) -> list[bytes]:
        """Whole events in the buffer and `chunk`; what is left stays in the buffer."""
        if b"\r" in chunk or (self._buffer and b"\r" in self._buffer):
            return self._cut_by_lines(chunk)
        if not self._buffer:
            end = chunk.rfind(b"\n\n") + 2
            if end == 1:
                self._buffer += chunk
                self._scanned = max(0, len(chunk) - 1)
                return []
            self._buffer += chunk[end:]
            self._scanned = max(0, len(self._buffer) - 1)
            return _split_events(chunk[:end])
        self._buffer += chunk
        if self._buffer.find(b"\n\n", self._scanned) < 0:
            self._scanned = max(0, len(self._buffer) - 1)
            return []
        end = self._buffer.rfind(b"\n\n") + 2
        whole = bytes(self._buffer[:end])
        del self._buffer[:end]
        self._scanned = max(0, len(self._buffer) - 1)
        return _split_events(whole)

    def _cut_by_lines(self, chunk: bytes) -> list[bytes]:
        """As `_cut`, for streams with carriage returns.

        A carriage return at the very end may be half of a CRLF: it waits for the next byte, unless
        it already ends a blank line (then a line feed that follows belongs to the next event and
        is an empty line there, which means nothing).
        """
        self._buffer += chunk
        raws: list[bytes] = []
        start = 0
        line_start = self._scanned
        data = bytes(self._buffer)
        while True:
            line = _LINE.match(data, line_start)
            if line is None:
                break
            is_blank = data[line_start] in b"\r\n"
            at_end = line.end() == len(data) and data[line.end() - 1] == 13
            if at_end and not is_blank:
                break
            line_start = line.end()
            if is_blank and line.start() > start:
                raws.append(data[start : line.end()])
                start = line.end()
        del self._buffer[:start]
        self._scanned = line_start - start
        return raws


def _split_events(whole: bytes) -> list[bytes]:
    """Events of bytes that end with a blank line and hold no carriage return."""
    parts = whole.split(b"\n\n")
    rest = parts.pop()  # Nothing, or the odd line feed of a longer run of blank lines.
    raws: list[bytes] = []
    lead = b""
    for part in parts:
        if part.strip(b"\n"):
            raws.append(lead + part + b"\n\n")
            lead = b""
        else:
            lead += part + b"\n\n"
    lead += rest
    if lead and raws:
        raws[-1] += lead
    elif lead:
        raws.append(lead)
    return raws


def parse_frame(raw: bytes) -> Frame:
    """The fields of one event. Bytes that are not UTF-8 stay: who reads the data answers them."""
    # The common form, told without looking at lines.
    if raw.startswith(b"data: ") and raw.count(b"\n") == 2 and b"\r" not in raw:
        return Frame(raw, raw[6:-2])
    body = raw[len(_BOM) :] if raw.startswith(_BOM) else raw
    data: list[bytes] = []
    comments: list[bytes] = []
    event: bytes | None = None
    error: bytes | None = None
    unknown = 0
    for line in _ENDS.split(body):
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
