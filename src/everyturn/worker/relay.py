"""Run the calls of a link against the targets of this worker, and send back what came.

The worker's own list says which target is which address; nothing in a message can name another.
Each call is run once, over the same transport the gateway itself would use. The provider's bytes go
back as they came: nothing here reads them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from everyturn import ids
from everyturn.errors import Failure
from everyturn.link.messages import (
    FAILS,
    AnyMessage,
    ByeCode,
    Call,
    Cancel,
    Credit,
    Data,
    Drain,
    End,
    FailCode,
    Operation,
    Rotate,
    Welcome,
)
from everyturn.link.session import Session
from everyturn.transport.base import Timeouts, Transport, UpstreamRequest, UpstreamResponse
from everyturn.transport.link import Ending, LinkEnd, Pipe

CALLS_MAX: Final = 256
"""Calls at once, by default."""

BODY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of one request, by default. A gateway's own limit is usually lower."""

PATHS: Final[dict[Operation, tuple[str, str]]] = {
    "chat.completions": ("POST", "/chat/completions"),
    "models": ("GET", "/models"),
}
"""Operation → method, and path under the target's base URL."""

Tell = Callable[..., None]
"""Takes an event's name and its counts and ids, never content."""


class _Running:
    """A call under way."""

    __slots__ = ("call", "credited", "parts", "size", "task")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.parts: list[bytes] = []
        self.size = 0
        self.credited = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class Relay:
    """The worker's end of one link."""

    def __init__(
        self,
        pipe: Pipe,
        transport: Transport,
        targets: Mapping[str, str],
        *,
        software: str,
        tell: Tell,
        store_credential: Callable[[str], None],
        calls_max: int = CALLS_MAX,
        body_bytes_max: int = BODY_BYTES_MAX,
        session: Session | None = None,
    ) -> None:
        """targets: name → base URL, as one gives it to an OpenAI SDK.

        store_credential: keeps a new credential; what it raises ends the worker.
        session: one of another version, for tests.
        """
        self._transport = transport
        self._targets = targets
        self._tell = tell
        self._store_credential = store_credential
        self._body_bytes_max = body_bytes_max
        self._session = session or Session("worker")
        self._session.greet(software=software, targets=tuple(targets), calls_max=calls_max)
        self._end = LinkEnd(self._session, pipe, self)
        self._calls: dict[int, _Running] = {}
        self._idle: asyncio.Event | None = None
        self.is_welcome = False
        """Whether the gateway took this worker."""

    async def run(self) -> Ending:
        """Serve the link until it ends; every call that is then under way is cancelled."""
        return await self._end.run()

    async def drain(self, seconds: float) -> None:
        """Take nothing new, wait until nothing is under way or `seconds` are over, and end."""
        self._session.drain()
        self._end.flush()
        self._idle = asyncio.Event()
        if self._calls:
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                self._tell("worker.cutting_off", count=len(self._calls))
        self.close("stopping", "the worker ends")

    def close(self, code: ByeCode, message: str) -> None:
        """End the link in order, now."""
        self._end.close(code, message)

    # ----------------------------------------------------------------------------- from the link

    def on_message(self, message: AnyMessage, payload: bytes) -> None:
        """A message of the gateway (`Owner`)."""
        match message:
            case Welcome():
                self.is_welcome = True
                self._tell("worker.connected", version=message.version)
            case Call():
                self._calls[message.call] = _Running(message)
            case Data():
                self._collect(self._calls[message.call], payload)
            case End():
                running = self._calls[message.call]
                running.task = asyncio.create_task(self._run(running))
            case Credit():
                self._calls[message.call].credited.set()
            case Cancel():
                self._forget(message.call)
            case Rotate():
                self._store_credential(message.credential)
                self._session.rotated()
                self._end.flush()
                self._tell("worker.credential_rotated")
            case Drain():
                self._tell("worker.gateway_draining")
            case _:
                raise AssertionError("the session hands out no other message to a worker")

    def on_lost(self, calls: list[int]) -> None:
        """The link ended (`Owner`): nobody waits for these answers any more."""
        if calls:
            self._tell("worker.calls_lost", count=len(calls))
        for number in tuple(self._calls):
            self._forget(number)

    def _forget(self, number: int) -> None:
        running = self._calls.pop(number, None)
        if running is not None and running.task is not None:
            running.task.cancel()
        if self._idle is not None and not self._calls:
            self._idle.set()

    def _collect(self, running: _Running, payload: bytes) -> None:
        number = running.call.call
        running.size += len(payload)
        if running.size > self._body_bytes_max:
            limit = self._body_bytes_max
            self._session.fail(
                number, "request_too_large", f"the worker takes at most {limit} bytes"
            )
            self._forget(number)
        else:
            running.parts.append(payload)
            self._session.consumed(number, len(payload))
        self._end.flush()

    # --------------------------------------------------------------------------------- one call

    async def _run(self, running: _Running) -> None:
        """Run a call whose request is complete, and end it in one of the ways there are."""
        # Not the event loop's clock, which may be as coarse as a millisecond.
        started = time.perf_counter()
        number = running.call.call
        code: FailCode | None = None
        message = hint = ""
        try:
            async with asyncio.timeout(running.call.total_ms / 1000):
                await self._answer(running, started)
        except Failure as failure:
            code, message, hint = _fail_code(failure), failure.message, failure.hint
        except TimeoutError:
            code = "upstream_timeout"
            message = (
                "The provider's answer was not complete in time; "
                f"`total_ms` is: {running.call.total_ms}"
            )
        except Exception as bug:  # noqa: BLE001 - a defect ends its call and no other
            code, message = "internal_error", "the worker failed in this call"
            self._tell("worker.call_failed", failure=type(bug).__name__)
        upstream_us = int((time.perf_counter() - started) * 1_000_000)
        if code is None:
            self._session.end(number)
        else:
            self._session.fail(number, code, message, hint=hint, upstream_us=upstream_us)
        self._tell(
            "worker.call",
            call=number,
            target=running.call.target,
            **_ids(running.call),
            error_code=code,
            upstream_us=upstream_us,
        )
        running.task = None
        self._forget(number)
        self._end.flush()

    async def _answer(self, running: _Running, started: float) -> None:
        call = running.call
        base_url = self._targets.get(call.target)
        if base_url is None:
            raise _NotAllowed("the worker does not allow this target")
        method, path = PATHS[call.operation]
        query = f"?{call.query}" if call.query else ""
        request = UpstreamRequest(
            url=f"{base_url.rstrip('/')}{path}{query}",
            method=method,
            headers=call.headers,
            body=b"".join(running.parts),
        )
        running.parts.clear()
        # Pauses are watched by the gateway, where the reader is: a slow one is no fault of the
        # provider's.
        timeouts = Timeouts(
            connect_ms=call.connect_ms,
            first_byte_ms=call.first_byte_ms,
            idle_ms=call.total_ms,
            total_ms=call.total_ms,
        )
        response = await self._transport.open(request, timeouts)
        try:
            upstream_us = int((time.perf_counter() - started) * 1_000_000)
            self._session.head(
                call.call, response.status, response.headers, upstream_us=upstream_us
            )
            self._end.flush()
            await self._pass_on(running, response)
        finally:
            response.close()

    async def _pass_on(self, running: _Running, response: UpstreamResponse) -> None:
        number = running.call.call
        while data := await response.read():
            body = memoryview(data)
            while body:
                running.credited.clear()
                body = body[self._session.data(number, body) :]
                self._end.flush()
                if body:
                    await running.credited.wait()
            await self._end.can_add()


class _NotAllowed(Failure):
    """A target that this worker does not allow; the gateway answers for it."""

    code = "target_not_allowed"
    default_hint = "Allow the target at the worker (`--allow NAME=URL`)."


def _ids(call: Call) -> dict[str, str | None]:
    """The ids by which this call is found in the gateway's record."""
    named = dict(call.headers)
    parent = named.get("traceparent", "").split("-")
    trace_id = parent[1] if len(parent) == 4 and ids.is_trace_id(parent[1]) else None
    request_id = named.get("x-request-id", "")
    return {
        "trace_id": trace_id,
        "request_id": request_id if ids.is_request_id(request_id) else None,
    }


def _fail_code(failure: Failure) -> FailCode:
    return next((code for code in FAILS if code == failure.code), "internal_error")
