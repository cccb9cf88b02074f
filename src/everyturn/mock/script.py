"""Scripts: what the scripted provider writes to the socket, step by step.

A step is bytes (one write), a pause, a repetition, or an ending. A script is two lists of steps,
one for a whole request and one for a streamed one; the steps are what goes on the wire, with head
and framing included, so that any fault of an HTTP server can be played exactly. The constructors
below write correct heads and framing for the usual cases. Pure: nothing here opens a socket.
Source: RFC 9112 (HTTP/1.1), sections 3 to 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final

TYPE_JSON: Final = "application/json"
TYPE_SSE: Final = "text/event-stream"

CHUNKED_END: Final = b"0\r\n\r\n"
"""The last chunk of a chunked body, without trailers."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before the next step."""

    ms: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """Write the same bytes many times, at the speed the client reads them."""

    data: bytes
    count: int


class Ending(Enum):
    """How a script ends other than by leaving the connection open for the next request."""

    ABORT = "abort"
    """Reset the connection (RST), after everything before it has reached the client's machine."""
    CLOSE = "close"
    """Close the connection in order (FIN), after everything before it was written."""
    HANG = "hang"
    """Write nothing more and keep the connection until the client goes."""


ABORT: Final = Ending.ABORT
CLOSE: Final = Ending.CLOSE
HANG: Final = Ending.HANG

Step = bytes | Pause | Repeat | Ending
Headers = Mapping[str, str] | Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Script:
    """What one request is answered with, on the wire.

    on_whole: the steps for a request without `stream: true`.
    on_stream: the steps for a request with it.
    After the last step the connection waits for the next request, unless that step was an ending.
    """

    on_whole: tuple[Step, ...]
    on_stream: tuple[Step, ...]

    @classmethod
    def raw(cls, steps: Iterable[Step]) -> Script:
        """Exactly these steps, for both kinds of request; the status line is the caller's too."""
        wire = tuple(steps)
        return cls(wire, wire)

    @classmethod
    def whole(cls, status: int = 200, headers: Headers = (), body: bytes = b"") -> Script:
        """One answer with its length, for both kinds of request.

        headers: `content-type: application/json` and `content-length` are added where they are not
        given; a given `content-length` or `transfer-encoding` stands, true or not.
        """
        pairs = _with_default(_pairs(headers), "content-type", TYPE_JSON)
        if not _names(pairs) & {"content-length", "transfer-encoding"}:
            pairs.append(("content-length", str(len(body))))
        return cls.raw([head(status, pairs) + body])

    @classmethod
    def sse(
        cls,
        chunks: Iterable[Step],
        *,
        chunked: bool = True,
        status: int = 200,
        headers: Headers = (),
    ) -> Script:
        """A body written piece by piece, for both kinds of request; the head is a write of its own.

        chunks: the pieces; bytes become one HTTP chunk and one write each, however they are cut.
        chunked: with True the body ends with the last chunk, unless an ending stands among the
        pieces; with False it has no length, its pieces are written bare and it ends by closing.
        headers: `content-type: text/event-stream` is added where none is given.
        """
        pairs = _with_default(_pairs(headers), "content-type", TYPE_SSE)
        pairs.append(("transfer-encoding", "chunked") if chunked else ("connection", "close"))
        steps: list[Step] = [head(status, pairs)]
        for piece in chunks:
            steps.append(as_chunk(piece) if chunked else piece)
            if isinstance(piece, Ending):
                return cls.raw(steps)
        steps.append(CHUNKED_END if chunked else CLOSE)
        return cls.raw(steps)

    @classmethod
    def pair(cls, *, whole: Script, stream: Script) -> Script:
        """One script for whole requests and another for streamed ones."""
        return cls(whole.on_whole, stream.on_stream)

    def steps(self, *, streamed: bool) -> tuple[Step, ...]:
        """The steps for this kind of request."""
        return self.on_stream if streamed else self.on_whole


def head(status: int, headers: Headers = ()) -> bytes:
    """A status line and headers, with the empty line that ends them."""
    lines = [f"HTTP/1.1 {status} {_reason(status)}"]
    lines += [f"{name}: {value}" for name, value in _pairs(headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def as_chunk(piece: Step) -> Step:
    """One step as a chunk of a chunked body; pauses, endings and empty bytes stay as they are.

    An empty chunk would end the body, so empty bytes are no chunk.
    """
    if isinstance(piece, bytes):
        return chunk_bytes(piece) if piece else piece
    if isinstance(piece, Repeat):
        return Repeat(chunk_bytes(piece.data), piece.count)
    return piece


def chunk_bytes(data: bytes) -> bytes:
    """One chunk of a chunked body: size, data, line end."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _pairs(headers: Headers) -> list[tuple[str, str]]:
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers)


def _names(pairs: list[tuple[str, str]]) -> set[str]:
    return {name.lower() for name, _ in pairs}


def _with_default(pairs: list[tuple[str, str]], name: str, value: str) -> list[tuple[str, str]]:
    return pairs if name in _names(pairs) else [(name, value), *pairs]


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        # Providers and proxies use numbers nobody registered (529, 522); a reason may be empty.
        return ""
