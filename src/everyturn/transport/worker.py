"""Calls that a connected worker runs: the transport for model servers in other networks.

A worker dials in (`gateway/workers.py` has the connection) and is attached here; a call goes to the
least busy one that may take it, over its link (`link/`). Dispatched once: when the link breaks the
call ends with `worker_lost` and is not run again. The provider's bytes arrive as they came.

The worker watches the time limits of connecting and of the first byte, where the provider is; the
pauses and the whole are watched here, where the reader is, and the whole on both sides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from everyturn.errors import (
    Failure,
    InternalError,
    InvalidValue,
    RequestTooLarge,
    TranslationError,
    UpstreamStreamIncomplete,
    UpstreamTimeout,
    UpstreamTooLarge,
    UpstreamUnreachable,
    WorkerLost,
    WorkerUnavailable,
)
from everyturn.link.messages import (
    QUERY_LENGTH_MAX,
    AnyMessage,
    ByeCode,
    Call,
    Credit,
    Data,
    Drain,
    End,
    Fail,
    FailCode,
    Head,
    Hello,
    Operation,
    Rotated,
)
from everyturn.link.session import NotCarried, Session
from everyturn.transport.base import Journey, Timeouts, UpstreamRequest
from everyturn.transport.connection import TIMEOUT_MESSAGES
from everyturn.transport.link import Ending, LinkEnd, Pipe
from everyturn.transport.target import header_lines

SCHEME: Final = "worker"
"""`worker://TARGET/chat/completions`: what the URL of such a call looks like."""

OPERATIONS: Final[dict[tuple[str, str], Operation]] = {
    ("POST", "/chat/completions"): "chat.completions",
    ("GET", "/models"): "models",
}
"""What may be asked, by method and path; a worker knows these names and nothing else."""

HEADERS_LENGTH_MAX: Final = 64 * 1024
"""Of a call's headers, in characters: what a head of HTTP may have."""

LINK_SLACK_MS: Final = 5000
"""How much later than the worker the gateway gives up a call whose answer does not begin."""

FAILURES: Final[dict[FailCode, type[Failure]]] = {
    "upstream_unreachable": UpstreamUnreachable,
    "upstream_timeout": UpstreamTimeout,
    "upstream_stream_incomplete": UpstreamStreamIncomplete,
    "upstream_too_large": UpstreamTooLarge,
    "translation_error": TranslationError,
    "invalid_value": InvalidValue,
    "request_too_large": RequestTooLarge,
    "target_not_allowed": WorkerUnavailable,
    "draining": WorkerUnavailable,
    "internal_error": InternalError,
}
"""What a worker's `fail` is to the client."""


class WorkerLink:
    """A connected worker, seen from the gateway."""

    def __init__(self, name: str, session: Session, pipe: Pipe, workers: Workers) -> None:
        self.name = name
        self.hello: Hello | None = None
        """What the worker said of itself; None before it did."""
        self.end = LinkEnd(session, pipe, self)
        self.end.on_can_add = workers.on_room
        self.has_greeted = asyncio.Event()
        """Set when the worker has said hello."""
        self.has_rotated = asyncio.Event()
        """Set when the worker has stored a new credential."""
        self._session = session
        self._workers = workers
        self._calls: dict[int, WorkerResponse] = {}

    @property
    def busy(self) -> int:
        """Calls under way."""
        return len(self._calls)

    def serves(self, target: str) -> bool:
        """Whether this worker takes new calls of the target."""
        return self.hello is not None and self._session.can_call and target in self.hello.targets

    @property
    def has_room(self) -> bool:
        """Whether one more call may run now; on a link that stalls no requests are gathered."""
        return not self.end.is_full and self.hello is not None and self.busy < self.hello.calls_max

    async def run(self) -> Ending:
        """Serve the link until it ends."""
        return await self.end.run()

    def close(self, code: ByeCode, message: str) -> None:
        """End the link in order."""
        self.end.close(code, message)

    def rotate(self, credential: str) -> None:
        """Give the worker a new credential; `has_rotated` tells when it is stored."""
        self.has_rotated.clear()
        self._session.rotate(credential)
        self.end.flush()

    def begin(self, call: Call, response: WorkerResponse, body: bytes) -> None:
        """Send a call. Raises NotCarried before anything is sent."""
        self._session.call(call)
        self._calls[call.call] = response
        response.unsent = memoryview(body)
        self._send_body(call.call, response)
        self.end.flush()

    @property
    def next_call(self) -> int:
        """The id of the next call."""
        return self._session.next_call

    def _send_body(self, number: int, response: WorkerResponse) -> None:
        if response.unsent is None:
            return
        response.unsent = response.unsent[self._session.data(number, response.unsent) :]
        if not response.unsent:
            response.unsent = None
            self._session.end(number)

    def consumed(self, number: int, size: int) -> None:
        """The reader took so many bytes."""
        self._session.consumed(number, size)
        self.end.flush()

    def cancel(self, number: int) -> None:
        """Nobody wants the answer any more."""
        if self._calls.pop(number, None) is not None:
            self._session.cancel(number)
            self.end.flush()
            self._workers.on_room()

    def on_message(self, message: AnyMessage, payload: bytes) -> None:
        """A message of the worker (`Owner`)."""
        match message:
            case Hello():
                self.hello = message
                self.has_greeted.set()
                self._workers.on_room()
            case Head() | Data() | End() | Fail() | Credit():
                self._of_call(message, payload)
            case Drain():
                self._workers.on_room()
            case Rotated():
                self.has_rotated.set()
            case _:
                raise AssertionError("the session hands out no other message to a gateway")

    def _of_call(self, message: Head | Data | End | Fail | Credit, payload: bytes) -> None:
        response = self._calls[message.call]
        match message:
            case Credit():
                self._send_body(message.call, response)
                return
            case Head():
                response.on_head(message)
                return
            case Data():
                response.on_data(payload)
                return
            case End():
                response.on_end()
            case Fail():
                response.on_fail(message)
        del self._calls[message.call]
        self._workers.on_room()

    def on_lost(self, calls: list[int]) -> None:
        """The link ended (`Owner`)."""
        for number in calls:
            response = self._calls.pop(number)
            response.fail(WorkerLost("the link to the worker broke during the call"))
        assert not self._calls
        self._workers.detach(self)


class Workers:
    """The connected workers of a gateway."""

    def __init__(self) -> None:
        self._links: dict[str, WorkerLink] = {}
        self._waits: set[asyncio.Future[None]] = set()

    @property
    def names(self) -> tuple[str, ...]:
        """Who is connected."""
        return tuple(self._links)

    def get(self, name: str) -> WorkerLink | None:
        """A connected worker."""
        return self._links.get(name)

    def attach(self, name: str, pipe: Pipe, session: Session | None = None) -> WorkerLink:
        """A worker connected. One of the same name gives way: its link is ended as `replaced`."""
        old = self._links.get(name)
        if old is not None:
            old.close("replaced", "a worker with the same credential connected")
        link = self._links[name] = WorkerLink(name, session or Session("gateway"), pipe, self)
        return link

    def detach(self, link: WorkerLink) -> None:
        """A link has ended."""
        if self._links.get(link.name) is link:
            del self._links[link.name]
        self.on_room()

    def on_room(self) -> None:
        """Something changed that a waiting call may have waited for."""
        for wait in self._waits:
            if not wait.done():
                wait.set_result(None)

    async def choose(self, names: Sequence[str], target: str, wait_ms: int) -> WorkerLink:
        """The least busy worker that takes the call, the earlier named among equals.

        Waits at most `wait_ms` where all that could take it run as many calls as they may.
        Raises WorkerUnavailable.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        while True:
            links = [link for name in names if (link := self._links.get(name)) is not None]
            if not links:
                raise WorkerUnavailable("no worker of this model is connected")
            serving = [link for link in links if link.serves(target)]
            if not serving:
                raise WorkerUnavailable(
                    "no connected worker of this model takes new calls of its target",
                    hint="Allow the target at the worker (`--allow NAME=URL`), or try again later.",
                )
            free = [link for link in serving if link.has_room]
            if free:
                return min(free, key=lambda link: link.busy)
            wait: asyncio.Future[None] = loop.create_future()
            self._waits.add(wait)
            try:
                async with asyncio.timeout_at(until):
                    await wait
            except TimeoutError:
                raise WorkerUnavailable(
                    f"all workers of this model were busy; `connect_ms` is: {wait_ms}"
                ) from None
            finally:
                self._waits.discard(wait)

    def close(self, message: str) -> None:
        """End every link in order."""
        for link in tuple(self._links.values()):
            link.close("stopping", message)


class WorkerTransport:
    """A `Transport` over the workers of one model."""

    def __init__(self, workers: Workers, names: Sequence[str]) -> None:
        """names: of the workers that may take a call; any connected one does."""
        self._workers = workers
        self._names = tuple(names)
        self._open: set[WorkerResponse] = set()
        self._is_closed = False

    async def open(self, request: UpstreamRequest, timeouts: Timeouts) -> WorkerResponse:
        """Send `request` once and wait for the head of its answer.

        A worker that drains just then did not run it, so another may. Raises WorkerUnavailable,
        WorkerLost, InvalidValue for what HTTP cannot carry, and what the seam says.
        """
        if self._is_closed:
            raise _closed()
        operation, target, query = _parse(request)
        headers = (*request.headers, *request.further)
        size = len(header_lines(headers))
        if size > HEADERS_LENGTH_MAX or len(query) > QUERY_LENGTH_MAX:
            raise InvalidValue(
                "The headers or the query of a call are longer than a worker's link carries.",
                param="headers" if size > HEADERS_LENGTH_MAX else "query",
                hint="Forward fewer headers (`forward_headers`), or shorten `query`.",
            )
        loop = asyncio.get_running_loop()
        started, queued_at = loop.time(), time.perf_counter()
        journey = request.journey or Journey()
        while True:
            link = await self._workers.choose(self._names, target, timeouts.connect_ms)
            journey.worker = link.name
            journey.queue_ms = (time.perf_counter() - queued_at) * 1000
            response = WorkerResponse(
                link, link.next_call, timeouts, started + timeouts.total_ms / 1000, journey
            )
            call = Call(
                call=response.call,
                operation=operation,
                target=target,
                query=query,
                headers=headers,
                connect_ms=timeouts.connect_ms,
                first_byte_ms=timeouts.first_byte_ms,
                total_ms=timeouts.total_ms,
            )
            try:
                link.begin(call, response, request.body)
            except NotCarried as lack:
                raise WorkerUnavailable(
                    f"the worker speaks {lack}",
                    hint="Update everyturn on the worker's machine.",
                ) from None
            self._open.add(response)
            response.on_over = self._open.discard
            try:
                await response.begin()
            except BaseException as end:
                response.close()
                if response.is_declined and isinstance(end, WorkerUnavailable):
                    continue
                raise
            return response

    async def close(self) -> None:
        """End the calls of this transport. The links belong to `Workers` and go on."""
        self._is_closed = True
        for response in tuple(self._open):
            cut = UpstreamStreamIncomplete("The transport was closed during the answer.")
            response.give_up(cut if response.status else _closed())


class WorkerResponse:
    """An answer as the seam promises it (`UpstreamResponse`)."""

    def __init__(
        self, link: WorkerLink, call: int, timeouts: Timeouts, total_at: float, journey: Journey
    ) -> None:
        self.call = call
        self.status = 0
        """0 until the head has arrived, which is before anybody outside sees this object."""
        self.headers: tuple[tuple[str, str], ...] = ()
        self.unsent: memoryview | None = None
        """What of the request's body is still to be sent."""
        self.is_declined = False
        """Whether the worker said that it did not run the call."""
        self.on_over: Callable[[WorkerResponse], None] = _nothing
        self._link = link
        self._timeouts = timeouts
        self._total_at = total_at
        self._sent_at = time.perf_counter()  # An event loop's clock may be as coarse as 1 ms.
        self._journey = journey
        self._parts: list[bytes] = []
        self._is_over = False
        """Whether the answer ended, well or not: nothing more comes over the link."""
        self._failure: Failure | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """Wait for the head. Raises the failure that came instead."""
        first_ms = self._timeouts.connect_ms + self._timeouts.first_byte_ms + LINK_SLACK_MS
        while not self.status and self._failure is None:
            await self._wait("first_byte_ms", first_ms)
        if not self.status:
            assert self._failure is not None
            raise self._failure

    async def read(self) -> bytes:
        """What arrived since the last read, as one; b"" at the legal end and ever after."""
        while not self._parts:
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                return b""
            await self._wait("idle_ms", self._timeouts.idle_ms)
        parts = self._parts
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        if not self._is_over:
            self._link.consumed(self.call, len(data))
        return data

    def close(self) -> None:
        """Let go: before the end the call is cancelled and unread bytes are dropped."""
        if not self._is_over:
            self.give_up(UpstreamStreamIncomplete("The answer was given up before its end."))

    def give_up(self, failure: Failure) -> None:
        """End the call from this side."""
        self._parts.clear()
        self._link.cancel(self.call)
        self.fail(failure)

    async def _wait(self, limit: str, limit_ms: int) -> None:
        """Wait until something happens, within the limit and the total."""
        loop = asyncio.get_running_loop()
        at = loop.time() + limit_ms / 1000
        if self._total_at <= at:
            limit, at = "total_ms", self._total_at
        assert self._waiter is None, "an answer has one reader"
        self._waiter = loop.create_future()
        timer = loop.call_at(at, self._expire, limit)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _expire(self, limit: str) -> None:
        milliseconds: int = getattr(self._timeouts, limit)
        if not self._is_over:
            self.give_up(UpstreamTimeout(TIMEOUT_MESSAGES[limit].format(milliseconds)))

    # ----------------------------------------------------------------------------- from the link

    def on_head(self, head: Head) -> None:
        """The answer begins."""
        self.status = head.status
        self.headers = head.headers
        self._measure(head.upstream_us)
        self._wake()

    def on_data(self, data: bytes) -> None:
        """Part of the body."""
        self._parts.append(data)
        self._wake()

    def on_end(self) -> None:
        """The body is complete."""
        self._over()

    def on_fail(self, fail: Fail) -> None:
        """The worker ended the call."""
        if not self.status:
            self._measure(fail.upstream_us)
        self.is_declined = fail.code == "draining"
        self.fail(FAILURES[fail.code](fail.message, hint=fail.hint or None))

    def fail(self, failure: Failure) -> None:
        """The call is over without a good end; what arrived before is still handed out."""
        if self._failure is None:
            self._failure = failure
        self._over()

    def _measure(self, upstream_us: int) -> None:
        """What of the time until now was neither the worker's wait nor the server's."""
        passed_ms = (time.perf_counter() - self._sent_at) * 1000
        self._journey.link_ms = max(0.0, passed_ms - upstream_us / 1000)

    def _over(self) -> None:
        self._is_over = True
        self.on_over(self)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _nothing(response: WorkerResponse) -> None:
    """Nobody wants to know."""


def _closed() -> UpstreamUnreachable:
    return UpstreamUnreachable("The transport was closed before the answer began.")


def _parse(request: UpstreamRequest) -> tuple[Operation, str, str]:
    """Operation, target and query of a request. Raises InvalidValue for anything else."""
    parts = urlsplit(request.url)
    operation = OPERATIONS.get((request.method, parts.path))
    if parts.scheme != SCHEME or operation is None or parts.fragment:
        raise InvalidValue(
            "A worker can be asked for chat completions and its models, and for nothing else.",
            param="target",
        )
    return operation, parts.netloc, parts.query
