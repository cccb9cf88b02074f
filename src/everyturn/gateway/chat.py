"""`POST /v1/chat/completions`: one turn with one call, from the client's bytes to the last byte.

The order is the product's promise: the rows of the turn and the call are durable before the
provider is asked, and the end of the answer leaves after the closed rows are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from everyturn import __version__, ids
from everyturn.audit.trace import TraceContext
from everyturn.errors import (
    AuditUnavailable,
    Failure,
    GatewayStopping,
    InternalError,
    InvalidValue,
    RateLimited,
)
from everyturn.gateway.call import Call, CallPlan, CallResult
from everyturn.gateway.guard import check_content_type, is_origin_here
from everyturn.gateway.http import (
    SSE_TYPE,
    Exchange,
    failure_body,
    failure_frame,
    failure_headers,
)
from everyturn.gateway.log import Log
from everyturn.gateway.metrics import Metrics
from everyturn.gateway.models import Model, Models
from everyturn.gateway.records import Recording
from everyturn.gateway.upstream import Headers
from everyturn.wire.dialects.openai_chat import Encoded, encode
from everyturn.wire.envelope import Envelope
from everyturn.wire.limits import Limits
from everyturn.wire.request import ChatRequest, parse_chat_request

Task = asyncio.Task[None]

_AGENT: Final = (("user-agent", f"everyturn/{__version__}"),)
_TRACE_HEADERS = ("traceparent", "tracestate", "x-request-id")
"""Sent as the gateway has them, never as a client sent them."""


class ChatService:
    """Answers chat completions; knows how many turns are open and when to stop taking new ones."""

    def __init__(
        self,
        models: Models,
        recording: Recording,
        limits: Limits,
        log: Log,
        *,
        request_bytes_max: int,
        open_turns_max: int,
    ) -> None:
        self._models = models
        self._recording = recording
        self._limits = limits
        self._log = log
        self._request_bytes_max = request_bytes_max
        self._open_turns_max = open_turns_max
        self._open: set[Task] = set()
        self._calling: set[Task] = set()
        """Of the open turns, those whose call is under way; the others end by themselves."""
        self._is_cut_off = False
        self._is_idle: asyncio.Event | None = None
        self.is_stopping = False
        self.metrics = Metrics()

    @property
    def open_turns(self) -> int:
        """Turns under way."""
        return len(self._open)

    async def idle(self, seconds: float, hurry: asyncio.Event) -> bool:
        """Wait until no turn is open, at most `seconds` or until `hurry`; whether none is."""
        if not self._open:
            return True
        self._is_idle = asyncio.Event()
        waits = [asyncio.create_task(event.wait()) for event in (self._is_idle, hurry)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return not self._open

    def cut_off(self) -> None:
        """End every open turn now, as an error to its client and complete in the record."""
        self._is_cut_off = True
        for task in self._calling:
            task.cancel()

    async def answer(self, exchange: Exchange) -> None:
        """Serve one request. Failures before the turn began are raised; later ones are answered."""
        task = self._admit(exchange)
        self._open.add(task)
        try:
            request: ChatRequest | None = None
            failure: Failure | None = None
            try:
                request = parse_chat_request(
                    await exchange.body(self._request_bytes_max), bytes_max=self._request_bytes_max
                )
                if request.envelope is not None:
                    _adopt(exchange, request.envelope, self._recording)
            except Failure as refused:
                failure = refused
            record = await self._recording.turn(exchange)
            try:
                if failure is not None or request is None:
                    assert failure is not None  # What is not read is refused.
                    await record.refuse(failure, request)
                    raise failure
                try:
                    model = self._models.get(request.model)
                    encoded = encode(request, model.target, api_key=model.api_key)
                    await record.open(request, model, encoded, exchange.call_span_id)
                except Failure as refused:
                    failure = refused
                if failure is not None:
                    await record.refuse(failure, request)
                    raise failure
                call = self._call(exchange, request, model, encoded)
                result = await self._run(exchange, call, task)
                self.metrics.call(model.target.name, result)
                try:
                    await record.close(result)
                except AuditUnavailable as unwritten:
                    result.failure = unwritten
                if exchange.request.is_blocked:
                    await exchange.request.unblocked()
                _end(exchange, result, call)
                record.close_later()
                if call.leftover is not None:
                    await call.drain(call.leftover)
            finally:
                record.release()
        finally:
            self._open.discard(task)
            if self._is_idle is not None and not self._open:
                self._is_idle.set()

    def _admit(self, exchange: Exchange) -> Task:
        """The task of a request that a turn may come of. Raises the failure of any other."""
        exchange.principal.require("call")
        check_content_type(exchange.header(b"content-type"))
        if self.is_stopping:
            raise GatewayStopping("the gateway is shutting down", retry_after_ms=1000)
        if len(self._open) >= self._open_turns_max:
            raise RateLimited(
                f"the gateway has its most open turns: {self._open_turns_max}", retry_after_ms=1000
            )
        _join(exchange)
        task = exchange.request.task
        assert task is not None  # Each request is served by one.
        return task

    def _call(
        self, exchange: Exchange, request: ChatRequest, model: Model, encoded: Encoded
    ) -> Call:
        plan = CallPlan(
            request=request,
            target=model.target,
            encoded=encoded,
            timeouts=model.timeouts,
            limits=self._limits,
            common=() if "user-agent" in model.target.forward_headers else _AGENT,
            further=_further_headers(exchange, model, encoded),
        )
        return Call(plan, model.transport, exchange)

    async def _run(self, exchange: Exchange, call: Call, task: Task) -> CallResult:
        """Run the call while the client is there, and answer whatever ends it."""
        if self._is_cut_off:
            return call.broken_off(GatewayStopping("the gateway shut down before the call began"))
        exchange.request.watch(task)
        self._calling.add(task)
        try:
            result = await call.run()
        except asyncio.CancelledError:
            return self._cancelled(exchange, call, task)
        except Exception as bug:  # noqa: BLE001 - a defect must not leave a turn open
            self._log.bug("call.failed", bug, request_id=exchange.request_id)
            return call.broken_off(InternalError("the gateway failed in this call"))
        finally:
            exchange.request.stop_watching()
            self._calling.discard(task)
        if exchange.is_client_gone or self._is_cut_off:
            await _absorb_cancellation(task)
        return result

    def _cancelled(self, exchange: Exchange, call: Call, task: Task) -> CallResult:
        if exchange.is_client_gone:
            task.uncancel()
            return call.broken_off(None)
        if self._is_cut_off:
            task.uncancel()
            return call.broken_off(GatewayStopping("the gateway shut down before the answer ended"))
        raise asyncio.CancelledError


async def _absorb_cancellation(task: Task) -> None:
    """Take a cancellation that was asked for while the call ended by itself."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        task.uncancel()


def _end(exchange: Exchange, result: CallResult, call: Call) -> None:
    """Send what the client is still owed. After this the answer is over."""
    if result.stream_state == "cancelled" and result.failure is None:
        return  # The client has left.
    failure = result.failure
    if failure is None and not result.is_stream:
        exchange.send_whole(200, result.final, extra=call.head_headers())
        return
    if failure is not None and not exchange.is_started and not result.tail:
        exchange.error_code = failure.code
        headers = call.head_headers()
        if not any(name == b"retry-after" for name, _ in headers):
            headers += failure_headers(failure)
        exchange.send_whole(failure.status, failure_body(failure), extra=headers)
        return
    if failure is not None:
        exchange.error_code = failure.code
    if not exchange.is_started:
        exchange.start(200, SSE_TYPE, call.head_headers())
    end = result.final if failure is None else failure_frame(failure)
    exchange.send(result.tail + end, is_last=True)


def _join(exchange: Exchange) -> None:
    """Take the turn that the client names, if it names one. Raises InvalidValue."""
    wanted = exchange.all(b"x-everyturn-turn-id")
    if not wanted:
        return
    if len(wanted) > 1 or not ids.is_turn_id(wanted[0]):
        raise InvalidValue(
            "the header is not one UUID version 4 in lower case",
            param="x-everyturn-turn-id",
            hint="Leave the header out, or send the turn id as it was received.",
        )
    exchange.turn_id = wanted[0]
    exchange.is_joining = True


def _adopt(exchange: Exchange, envelope: Envelope, recording: Recording) -> None:
    """Take the ids that the body names, where no valid header named them. Raises InvalidValue."""
    if envelope.turn_id is not None:
        if exchange.is_joining and exchange.turn_id != envelope.turn_id:
            raise InvalidValue(
                "the envelope and the header `x-everyturn-turn-id` name two turns",
                param="everyturn.turn_id",
                hint="Name the turn in one of the two places.",
            )
        exchange.turn_id = envelope.turn_id
        exchange.is_joining = True
    if envelope.trace_id is not None and exchange.parent_span_id is None:
        exchange.trace = TraceContext(trace_id=envelope.trace_id, span_id=exchange.trace.span_id)
    wanted = envelope.request_id
    if wanted is not None and not exchange.has_request_id and recording.may_rest(wanted):
        exchange.request_id = wanted


def _further_headers(exchange: Exchange, model: Model, encoded: Encoded) -> Headers:
    """What else the provider is told: the trace, where it is the operator's own server or the
    operator says so, and the client headers that the operator forwards."""
    forward = model.target.forward_headers
    headers: Headers = ()
    is_traced = model.is_on_worker or "traceparent" in forward or is_origin_here(encoded.origin)
    if is_traced:
        trace = exchange.trace
        headers = (("traceparent", trace.traceparent_of(exchange.call_span_id)),)
        if (tracestate := trace.tracestate) is not None:
            headers = (*headers, ("tracestate", tracestate))
    if is_traced or "x-request-id" in forward:
        headers = (*headers, ("x-request-id", exchange.request_id))
    return headers + _forwarded(exchange.headers, forward)


def _forwarded(headers: Mapping[bytes, bytes], forward: tuple[str, ...]) -> Headers:
    if not forward:
        return ()
    return tuple(
        (name, value.decode("latin-1"))
        for name in forward
        if name not in _TRACE_HEADERS
        and (value := headers.get(name.encode("ascii", "ignore"))) is not None
    )
