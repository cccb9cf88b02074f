"""One HTTP/1.1 connection to a provider, and the answer that arrives over it.

Rests on an asyncio transport below and on httptools (llhttp) for the framing; knows nothing of
how a connection is made (see `dial`) or where it rests between two calls (see `pool`). One request
at a time, no pipelining.

    connection.start(…) ── head ──> status, headers ── body ──> parts ── end ──> back to the owner
          │                 │                             │
          │          UpstreamUnreachable       UpstreamStreamIncomplete (lost)
          │          UpstreamTimeout           UpstreamTimeout
          │          UpstreamTooLarge          UpstreamTooLarge (trailers)
          │          TranslationError          TranslationError (framing)
          └ nobody asked: whatever arrives, the end included, closes the connection

Sources: RFC 9112 section 6.3 (length of a body), section 9.8 (a close inside TLS); the bounds are
those of nginx and Node rounded up (100 fields; 64 KiB where they have 32 and 16).
"""

from __future__ import annotations

import asyncio
import select
import ssl
from collections.abc import Callable
from math import inf
from typing import Final, Protocol, cast

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpResponseParser,
)

from everyturn.errors import (
    Failure,
    InternalError,
    TranslationError,
    UpstreamStreamIncomplete,
    UpstreamTimeout,
    UpstreamTooLarge,
    UpstreamUnreachable,
)
from everyturn.transport.base import Timeouts
from everyturn.transport.deadlines import Deadlines
from everyturn.transport.response import LOWER_NAMES, DirectResponse, lower_name

HEAD_BYTES_MAX: Final = 64 * 1024
HEADERS_MAX: Final = 100
BUFFER_BYTES_MAX: Final = 256 * 1024
"""Unread body bytes at which the socket is no longer read; one network read may go beyond."""
ONE_WRITE_BYTES_MAX: Final = 64 * 1024
"""Up to here a body is copied behind its head, so that both leave in one segment or system call."""

_SPACE: Final = ord(" ")
_TAB: Final = ord("\t")
FRAMING_HEADERS: Final = frozenset({"content-length", "transfer-encoding", "keep-alive"})
TIMEOUT_MESSAGES: Final = {
    "first_byte_ms": "The provider did not begin its answer in time; `first_byte_ms` is: {}",
    "idle_ms": "The provider stopped in the middle of its answer; `idle_ms` is: {}",
    "total_ms": "The provider's answer was not complete in time; `total_ms` is: {}",
}


class Owner(Protocol):
    """Who a connection goes back to."""

    def release(self, connection: Connection, keep_alive_s: float) -> None:
        """The connection can take a further request; the server keeps it for `keep_alive_s`."""

    def forget(self, connection: Connection) -> None:
        """The connection can take no further request; its socket may still be closing."""

    def gone(self, connection: Connection) -> None:
        """The socket is closed."""


class Connection(asyncio.Protocol):
    """A connection to one origin: at rest, or with one call on it."""

    __slots__ = (
        "_answers_count",
        "_arrived",
        "_deadlines",
        "_fault",
        "_has_length",
        "_head_bytes",
        "_headers",
        "_is_answered",
        "_is_chunked",
        "_is_interim",
        "_is_kept",
        "_is_lost",
        "_keep_alive_s",
        "_loop",
        "_owner",
        "_parser",
        "_poll",
        "_response",
        "_silent_bytes",
        "_tls",
        "_transport",
        "deadline",
        "is_paused",
        "on_body",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, deadlines: Deadlines, owner: Owner) -> None:
        self._loop = loop
        self._deadlines = deadlines
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._tls: ssl.SSLObject | None = None
        self._poll: Callable[[int], list[tuple[int, int]]] | None = None
        self._parser: HttpResponseParser | None = None
        self._response: DirectResponse | None = None
        self._answers_count = 0
        """Answers that ended well on this connection."""
        self._is_lost = False
        """No further request; the owner knows."""
        self.deadline = inf
        """When the present wait or rest is over, on the loop's clock."""
        self.is_paused = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._arrived: list[bytes] = []
        """Content of the present read, without framing."""
        self.on_body = self._arrived.append
        """A callback of the parser: what comes most often takes the shortest way."""
        self._prepare()

    def _prepare(self) -> None:
        """Forget what the last answer left behind."""
        self._headers = []
        self._head_bytes = 0
        """Bytes read until the head was complete, what followed it in the same read included."""
        self._silent_bytes = 0
        """Bytes of framing (chunk extensions, trailers) since the last byte of content."""
        self._fault: Failure | None = None
        self._has_length = False
        self._is_chunked = False
        self._is_interim = False
        self._is_answered = False
        """The parser has seen the end of the answer."""
        self._is_kept = False
        self._keep_alive_s = inf

    # ------------------------------------------------------------ for the owner and the response

    @property
    def is_lost(self) -> bool:
        """Whether the connection can take no further request."""
        return self._is_lost

    def is_quiet(self) -> bool:
        """Whether nothing has arrived that the loop has not delivered yet.

        At rest anything readable is an end, an alert or an answer nobody asked for. The loop may
        be many callbacks away from telling us, and a request is never sent twice, so it is worth
        one system call to look.
        """
        if self._transport is not None and self._transport.is_closing():
            return False
        return self._poll is None or not self._poll(0)

    def start(
        self, head: bytes, body: bytes, timeouts: Timeouts, total_at: float
    ) -> DirectResponse:
        """Send one request. The answer's `waiter` is done when its head has arrived or it failed.

        total_at: end of the call on the loop's clock, in seconds.
        Raises UpstreamUnreachable if the connection was lost since its owner handed it out.
        """
        assert self._response is None, "one call at a time"
        transport = self._transport
        if self._is_lost or transport is None or transport.is_closing():
            self.drop()
            raise self._unreachable("was lost before the request was sent")
        self._prepare()
        response = self._response = DirectResponse(self, timeouts, total_at)
        if len(body) <= ONE_WRITE_BYTES_MAX:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        response.waiter = self.wait(response, "first_byte_ms", timeouts.first_byte_ms)
        return response

    def wait(self, response: DirectResponse, limit: str, limit_ms: int) -> asyncio.Future[None]:
        """A future for the next thing that happens to `response`, within `limit` and the total."""
        at = self._loop.time() + limit_ms / 1000
        if at < response.total_at:
            response.limit = limit
        else:
            at = response.total_at
            response.limit = "total_ms"
        self.deadline = at
        if at < self._deadlines.next_look:
            self._deadlines.watch(at)
        return self._loop.create_future()

    def resume(self) -> None:
        """Read the socket again."""
        self.is_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def drop(self) -> None:
        """Close the socket at once and tell the owner. May be called twice."""
        if self._is_lost:
            return
        self._is_lost = True
        self.deadline = inf
        self._deadlines.remove(self)
        self._owner.forget(self)
        if self._transport is not None:
            self._transport.abort()
        else:
            self._owner.gone(self)

    def fail(self, failure: Failure, *, keep_parts: bool = True) -> None:
        """End the call with `failure`, if there is one, and close the socket."""
        response = self._response
        self._response = None
        if response is not None:
            response.connection = None
            response.failure = failure
            if not keep_parts:
                response.parts.clear()
                response.size = 0
            response.wake()
        self.drop()

    def stop(self) -> None:
        """End whatever is going on because the transport closes."""
        response = self._response
        if response is not None and not response.status:
            self.fail(UpstreamUnreachable("The transport was closed before the answer began."))
        else:
            self.fail(UpstreamStreamIncomplete("The transport was closed during the answer."))

    def expire(self) -> None:
        """The present wait or rest is over (called by `Deadlines`)."""
        response = self._response
        if response is None:
            self.drop()
            return
        limit = response.limit
        milliseconds = getattr(response.timeouts, limit)
        self.fail(UpstreamTimeout(TIMEOUT_MESSAGES[limit].format(milliseconds)))

    # ------------------------------------------------------------------- callbacks of the network

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected, TLS included. Too late if the transport was closed meanwhile."""
        self._transport = cast(asyncio.Transport, transport)
        if self._is_lost:
            self._transport.abort()
            return
        self._tls = transport.get_extra_info("ssl_object")
        self._parser = HttpResponseParser(self)
        self._deadlines.add(self)
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN | select.POLLHUP)
        self._poll = poll.poll

    def data_received(self, data: bytes) -> None:
        """Bytes from the provider."""
        response = self._response
        parser = self._parser
        if response is None or parser is None:
            self.drop()
            return
        size = response.size
        refusal: Exception | None = None
        if not response.status:
            self._head_bytes += len(data)
        try:
            parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            refusal = error
        arrived = self._arrived
        if arrived:
            response.parts.extend(arrived)
            response.size += sum(map(len, arrived))
            arrived.clear()
        if self._is_answered:
            self._end(response, data, is_surplus=refusal is not None)
        elif refusal is not None:
            self.fail(self._fault or parser_failure(refusal))
        elif response.size != size:
            self._silent_bytes = 0
            response.wake()
            if response.size > BUFFER_BYTES_MAX and not self.is_paused:
                assert self._transport is not None
                self.is_paused = True
                self._transport.pause_reading()
        elif not response.status:
            if self._head_bytes > HEAD_BYTES_MAX:
                self.fail(too_large_head())
            elif len(self._headers) > HEADERS_MAX:
                self.fail(too_many_headers())
        else:
            self._silent_bytes += len(data)
            if self._silent_bytes > HEAD_BYTES_MAX:
                self.fail(
                    UpstreamTooLarge(
                        "The answer's framing holds too many bytes without content; the limit is: "
                        f"{HEAD_BYTES_MAX}"
                    )
                )

    def eof_received(self) -> None:
        """The provider closed its side; over TLS with or without a closure alert."""
        response = self._response
        if response is None:
            self.drop()
        elif not response.status:
            self.fail(self._lost_in_head())
        elif self._is_chunked or self._has_length or self._is_truncated():
            self.fail(UpstreamStreamIncomplete("The connection was closed inside the body."))
        else:
            self._is_kept = False
            self._end(response, b"", is_surplus=False)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed: by us, by an end that was told before, or by a fault."""
        self._transport = None
        self._poll = None
        self._parser = None  # The parser holds our bound methods: this breaks the cycle.
        response = self._response
        if response is None:
            self.drop()
        elif not response.status:
            self.fail(self._lost_in_head())
        elif isinstance(exc, ConnectionError):
            self.fail(UpstreamStreamIncomplete("The connection was reset inside the body."))
        else:
            self.fail(UpstreamStreamIncomplete("The connection was lost inside the body."))
        self._owner.gone(self)

    # -------------------------------------------------------------------- callbacks of the parser

    def on_message_begin(self) -> None:
        """The first byte of an answer that is not a blank line."""
        if self._is_answered:
            raise HttpParserError("a second answer to one request")
        self._is_interim = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header; after a chunked body one trailer, which is no part of the seam."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """A head is complete: of the answer, or of an interim answer (1xx) that is passed over."""
        parser, response = self._parser, self._response
        assert parser is not None
        assert response is not None
        headers, self._headers = self._headers, []
        status = parser.get_status_code()
        if status < 200:
            if status == 101 or status < 100:
                self._refuse(TranslationError("The answer has a status that nobody asked for."))
            self._is_interim = True
            return
        if len(headers) > HEADERS_MAX:
            self._refuse(too_many_headers())
        if self._head_bytes > HEAD_BYTES_MAX:
            # The read that ended the head may have brought much of the body with it.
            if sum(len(name) + len(value) + 4 for name, value in headers) > HEAD_BYTES_MAX:
                self._refuse(too_large_head())
        named: list[tuple[str, str]] = []
        for name, value in headers:
            key = LOWER_NAMES.get(name) or lower_name(name)
            if value and (value[-1] == _SPACE or value[-1] == _TAB):
                value = value.rstrip(b" \t")
            text = value.decode("latin-1")
            named.append((key, text))
            if key in FRAMING_HEADERS:
                self._note_framing(key, text)
        response.headers = tuple(named)
        response.status = status
        response.limit = "total_ms"
        self.deadline = response.total_at
        response.wake()

    def _note_framing(self, key: str, text: str) -> None:
        """Keep what a header says about the length of the body or the life of the connection."""
        if key == "content-length":
            self._has_length = True
        elif key == "transfer-encoding":
            coding = text.lower()
            if self._is_chunked or coding not in ("chunked", "identity"):
                self._refuse(
                    TranslationError("The answer has a transfer coding other than `chunked`.")
                )
            self._is_chunked = coding == "chunked"
        else:
            for parameter in text.lower().split(","):
                label, _, digits = parameter.strip().partition("=")
                if label == "timeout" and digits.isascii() and digits.isdigit():
                    self._keep_alive_s = min(self._keep_alive_s, float(digits[:9]))

    def on_message_complete(self) -> None:
        """The framing says that the answer, or an interim answer, is over."""
        if not self._is_interim:
            assert self._parser is not None
            self._is_answered = True
            self._is_kept = self._parser.should_keep_alive()

    # ------------------------------------------------------------------------------------- endings

    def _refuse(self, failure: Failure) -> None:
        """Stop the parser from inside a callback; `data_received` answers with `failure`."""
        self._fault = failure
        raise HttpParserError("refused")

    def _end(self, response: DirectResponse, data: bytes, *, is_surplus: bool) -> None:
        """The legal end of an answer; `data` are the bytes of the read that held it."""
        self._response = None
        response.connection = None
        response.has_ended = True
        if self._is_reusable(response, data) and not is_surplus:
            self._answers_count += 1
            self.deadline = inf
            self._owner.release(self, self._keep_alive_s)
        else:
            self.drop()
        response.wake()

    def _is_reusable(self, response: DirectResponse, data: bytes) -> bool:
        """Whether the connection is as good as new after an answer that `data` ended."""
        transport, parser = self._transport, self._parser
        if not self._is_kept or self._keep_alive_s <= 0 or transport is None or parser is None:
            return False
        if self.is_paused:
            return False  # A loop that delivers while it is paused may not read on when asked to.
        if transport.get_write_buffer_size():
            return False  # The provider answered before it had the whole request.
        if self._is_chunked and parser.get_http_version() == "1.0":
            return False  # RFC 9112 section 6.1: chunks from an old hop are suspect.
        if data[-1:] not in (b"\n", b"\r"):
            return True
        # Blank lines after the answer are bytes nobody asked for too, and the parser skips them.
        # What went before must be the end of a head or of chunks: a blank line, as far as it came
        # in this read. (Only a body of nothing but line ends can deceive this, to no harm.)
        if self._has_length and response.parts:
            body = response.parts[-1]
            return data.endswith(body) and b"\r\n\r\n".endswith(data[-len(body) - 4 : -len(body)])
        if len(data) < 4:
            return b"\r\n\r\n".endswith(data)
        return data.endswith(b"\r\n\r\n") and not data.endswith(b"\n\r\n\r\n")

    def _is_truncated(self) -> bool:
        """Whether TLS ended without a closure alert, which anybody on the way can bring about.

        Only such an alert makes a body complete that has no length of its own.
        """
        if self._tls is None:
            return False
        try:
            return self._tls.read(1) != b""
        except ssl.SSLError:
            return True

    def _lost_in_head(self) -> UpstreamUnreachable:
        """The failure for a connection that is lost before the head of an answer is complete."""
        if self._head_bytes:
            return self._unreachable("was lost inside the head of the answer")
        return self._unreachable("was lost before the answer began")

    def _unreachable(self, what: str) -> UpstreamUnreachable:
        kept = ", on a connection kept from an earlier call" if self._answers_count else ""
        return UpstreamUnreachable(
            f"The connection to the provider {what}{kept}; the request was not sent again.",
            hint="The provider may or may not have run the request; send it again if that does no "
            "harm.",
        )


def parser_failure(error: Exception) -> Failure:
    """The failure for bytes that the parser does not accept. Its texts are constants of llhttp."""
    if isinstance(error, HttpParserCallbackError):
        failure: Failure = InternalError("The transport failed while it read an answer.")
    else:
        reason = "it changes the protocol" if isinstance(error, HttpParserUpgrade) else error
        failure = TranslationError(f"The answer is not what HTTP/1.1 allows: {reason}")
    failure.__cause__ = error
    return failure


def too_large_head() -> UpstreamTooLarge:
    """The failure for a head over its bound."""
    return UpstreamTooLarge(
        f"The head of the answer has too many bytes; the limit is: {HEAD_BYTES_MAX}"
    )


def too_many_headers() -> UpstreamTooLarge:
    """The failure for a head with more headers than its bound."""
    return UpstreamTooLarge(f"The answer has too many headers; the limit is: {HEADERS_MAX}")
