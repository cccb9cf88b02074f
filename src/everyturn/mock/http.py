"""Read HTTP/1.1 requests from bytes, and say what is wrong with one. Sans-IO.

Just enough for a provider: request line, headers, a body with a length or in chunks. What cannot be
read becomes a `Refusal`, a value that knows its status and OpenAI-shaped body.
Source: RFC 9112, sections 2 to 7.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from everyturn.mock.script import CLOSE, Script, Step

HEAD_BYTES_MAX: Final = 256 * 1024
"""Request line and headers; more is answered 431 and the connection closed."""
BODY_BYTES_MAX: Final = 128 * 1024 * 1024
"""A request body; more is answered 413 and the connection closed."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request as it arrived."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    keep_alive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A request that gets an error in OpenAI's envelope.

    is_fatal: the next request cannot be found in the bytes, so the connection must close.
    """

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    is_fatal: bool = False

    def script(self) -> Script:
        """The answer on the wire."""
        error = {
            "message": self.message,
            "type": "invalid_request_error",
            "param": self.param,
            "code": self.code,
        }
        body = json.dumps({"error": error}).encode()
        answer = Script.whole(self.status, {}, body)
        end: tuple[Step, ...] = (CLOSE,) if self.is_fatal else ()
        return Script.raw(answer.on_whole + end)


@dataclass(slots=True)
class _Head:
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    keep_alive: bool
    expects_continue: bool
    length: int | None
    """Bytes of the body; None when it comes in chunks."""


class RequestReader:
    """Bytes in, requests out, one at a time; what follows a request waits for the next `next`."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._body = bytearray()
        self._chunk_left = 0
        self._in_trailer = False
        self._continue_due = False

    @property
    def buffered(self) -> int:
        """Bytes received and not yet part of a finished request."""
        return len(self._buffer) + len(self._body)

    def feed(self, data: bytes) -> None:
        """Take bytes from the socket."""
        self._buffer += data

    def take_continue(self) -> bool:
        """Whether `100 Continue` should be sent now; True once for each request that asks."""
        due, self._continue_due = self._continue_due, False
        return due

    def next(self) -> HttpRequest | Refusal | None:
        """The next request; a fatal Refusal when the bytes are none; None when more are needed."""
        if self._head is None:
            found = self._read_head()
            if not isinstance(found, _Head):
                return found
            self._head = found
            self._continue_due = found.expects_continue
        head = self._head
        outcome = self._read_body(head)
        if isinstance(outcome, Refusal):
            return outcome
        if not outcome:
            return None
        self._head, self._continue_due = None, False
        body, self._body = bytes(self._body), bytearray()
        return HttpRequest(head.method, head.target, head.headers, body, head.keep_alive)

    def _read_head(self) -> _Head | Refusal | None:
        while self._buffer.startswith(b"\r\n"):
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                return _malformed(431, f"The headers are larger than {HEAD_BYTES_MAX} bytes.")
            return None
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        return _parse_head(lines)

    def _read_body(self, head: _Head) -> Refusal | bool:
        """Move body bytes out of the buffer; True when the body is complete."""
        if head.length is not None:
            if head.length > BODY_BYTES_MAX:
                return _too_large()
            if len(self._buffer) < head.length:
                return False
            self._body, self._buffer = self._buffer, self._buffer[head.length :]
            del self._body[head.length :]
            return True
        while True:
            if len(self._body) > BODY_BYTES_MAX:
                return _too_large()
            if self._chunk_left:
                if not self._move_chunk():
                    return False
                continue
            line_end = self._buffer.find(b"\r\n")
            if line_end < 0:
                return False
            line = bytes(self._buffer[:line_end])
            del self._buffer[: line_end + 2]
            outcome = self._chunk_line(line)
            if outcome is not False:
                return outcome

    def _move_chunk(self) -> bool:
        """Take what there is of the open chunk and its line end; False when more is needed.

        `_chunk_left` counts the two bytes of the line end.
        """
        data_left = self._chunk_left - 2
        if data_left > 0:
            part = self._buffer[:data_left]
            self._body += part
            del self._buffer[: len(part)]
            self._chunk_left -= len(part)
            if len(part) < data_left:
                return False
        if len(self._buffer) < self._chunk_left:
            return False
        del self._buffer[: self._chunk_left]
        self._chunk_left = 0
        return True

    def _chunk_line(self, line: bytes) -> Refusal | bool:
        """Read a chunk size, or a trailer line (trailers are ignored); True at the end."""
        if self._in_trailer:
            self._in_trailer = bool(line)
            return not line
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            return _malformed(400, "A chunk of the body has no size.")
        if size < 0 or size > BODY_BYTES_MAX:
            return _too_large()
        if size:
            self._chunk_left = size + 2
        else:
            self._in_trailer = True
        return False


def _parse_head(lines: list[str]) -> _Head | Refusal:
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return _malformed(400, "This is no HTTP/1.1 request line.")
    headers: list[tuple[str, str]] = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return _malformed(400, "A header line has no name.")
        headers.append((name, value.strip()))
    found = {name.lower(): value.lower() for name, value in headers}
    length = found.get("content-length", "0")
    if not length.isdecimal():
        return _malformed(400, "`content-length` is no number.")
    connection = found.get("connection", "")
    keep_alive = "close" not in connection
    if parts[2] == "HTTP/1.0":
        keep_alive = "keep-alive" in connection
    return _Head(
        method=parts[0],
        target=parts[1],
        headers=tuple(headers),
        keep_alive=keep_alive,
        expects_continue=found.get("expect") == "100-continue",
        length=None if found.get("transfer-encoding", "") == "chunked" else int(length),
    )


def _malformed(status: int, message: str) -> Refusal:
    return Refusal(status=status, message=message, code="bad_http", is_fatal=True)


def _too_large() -> Refusal:
    message = f"The body is larger than {BODY_BYTES_MAX} bytes."
    return Refusal(status=413, message=message, code="request_too_large", is_fatal=True)
