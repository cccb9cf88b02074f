"""One call to one provider: the only loop where I/O meets the core.

Runs an encoded request over a transport, shows the client what the core renders, and returns how
it ended. It never sends the last bytes of an answer: they leave when the record of the call is
durable, which is for the caller of `Call.run` to see to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final

from everyturn.errors import (
    Failure,
    TranslationError,
    UpstreamStreamIncomplete,
    UpstreamTooLarge,
    WorkerLost,
)
from everyturn.gateway.http import SSE_TYPE, Exchange, note_comments, note_headers
from everyturn.gateway.upstream import (
    Headers,
    answer_kind,
    first_of_each,
    passed_headers,
    provider_request_id,
    rejected,
    upstream_request,
)
from everyturn.transport.base import Journey, Timeouts, Transport, UpstreamResponse
from everyturn.wire import events as ev
from everyturn.wire.dialects.openai_chat import Encoded
from everyturn.wire.limits import Limits
from everyturn.wire.plain import read_answer
from everyturn.wire.preset import Target
from everyturn.wire.reader import read_provider, write
from everyturn.wire.render import body_of_reply, frames_of_body
from everyturn.wire.reply import Reply
from everyturn.wire.request import ChatRequest
from everyturn.wire.stream import DONE_FRAME, ReplyStream

Header = tuple[bytes, bytes]

DRAIN_S: Final = 1.0
"""How long a provider may take to end a body whose end marker was read."""

_FIRST: Final = (ev.TextDelta, ev.ReasoningDelta, ev.RefusalDelta)


class CallResult:
    """How a call ended, and what the client is still owed.

    tail: bytes to show before the end. final: the end of a good answer. stream_state: as in the
    record. Times are milliseconds since the call began; None where it never came to that.
    """

    __slots__ = (
        "failure",
        "final",
        "headers",
        "is_stream",
        "journey",
        "latency_ms",
        "notes",
        "provider_request_id",
        "reply",
        "stream_state",
        "tail",
        "time_to_first_token_ms",
        "upstream_status",
    )

    def __init__(
        self,
        *,
        reply: Reply | None = None,
        failure: Failure | None = None,
        stream_state: str = "error",
        is_stream: bool = False,
        notes: Iterable[str] = (),
        latency_ms: float = 0.0,
    ) -> None:
        self.reply = reply
        self.failure = failure
        self.stream_state = stream_state
        self.is_stream = is_stream
        """Whether the client gets a stream."""
        self.tail = b""
        self.final = b""
        self.headers: list[Header] = []
        self.notes = list(notes)
        self.upstream_status: int | None = None
        self.provider_request_id: str | None = None
        self.latency_ms = latency_ms
        self.time_to_first_token_ms: float | None = None
        self.journey = Journey()


class CallPlan:
    """All that a call needs to know. Never changed."""

    __slots__ = ("common", "encoded", "further", "limits", "request", "target", "timeouts")

    def __init__(
        self,
        *,
        request: ChatRequest,
        target: Target,
        encoded: Encoded,
        timeouts: Timeouts,
        limits: Limits,
        common: Headers,
        further: Headers,
    ) -> None:
        self.request: Final = request
        self.target: Final = target
        self.encoded: Final = encoded
        self.timeouts: Final = timeouts
        self.limits: Final = limits
        self.common: Final = common
        """Headers for the provider that calls of the model have in common, beside the dialect's."""
        self.further: Final = further
        """Headers for the provider of this call alone: trace and what the operator forwards."""


class Call:
    """One call under way."""

    def __init__(self, plan: CallPlan, transport: Transport, exchange: Exchange) -> None:
        self._plan = plan
        self._transport = transport
        self._exchange = exchange
        self._started = time.perf_counter()
        self._stream: ReplyStream | None = None
        self._told = 0
        self.leftover: UpstreamResponse | None = None
        """A response whose end marker was read but maybe not its end: see `drain`."""
        self._result = CallResult(is_stream=plan.request.stream, notes=plan.encoded.notes)

    def _elapsed_ms(self) -> float:
        return (time.perf_counter() - self._started) * 1000.0

    async def run(self) -> CallResult:
        """Make the call. Failures of the provider are in the result, not raised.

        Raises asyncio.CancelledError when the client leaves; `broken_off` has what arrived.
        """
        plan = self._plan
        response: UpstreamResponse | None = None
        try:
            response = await self._transport.open(
                upstream_request(plan.encoded, plan.common, plan.further, self._result.journey),
                plan.timeouts,
            )
            result = self._result
            result.upstream_status = response.status
            named = first_of_each(response.headers)
            result.provider_request_id = provider_request_id(named)
            result.headers = passed_headers(response.headers)
            if not 200 <= response.status < 300:
                raise await rejected(response, plan.encoded, plan.target)
            if answer_kind(named, is_stream_asked=plan.encoded.stream) == "sse":
                await self._streamed(response)
            else:
                await self._whole(response)
        except Failure as failure:
            self._fail(failure)
        finally:
            self._result.latency_ms = self._elapsed_ms()
            if response is not None and self.leftover is None:
                response.close()
        return self._result

    def broken_off(self, failure: Failure | None) -> CallResult:
        """The result of a call that was cancelled: what arrived until then."""
        result = self._result
        result.latency_ms = self._elapsed_ms()
        result.failure = failure
        if self._stream is not None:
            result.reply = self._stream.abandon()
            has_all = failure is None and self._stream.all_finished
            result.stream_state = "complete" if has_all else "cancelled"
        else:
            result.stream_state = "cancelled"
        return result

    def _fail(self, failure: Failure) -> None:
        result = self._result
        result.failure = failure
        is_cut = isinstance(failure, UpstreamStreamIncomplete | WorkerLost)
        result.stream_state = "cut" if is_cut else "error"
        if self._stream is not None:
            result.reply = self._stream.abandon()
            result.tail = self._stream.take() if result.is_stream else b""
            self._take_notes()

    # --------------------------------------------------------------- streams

    async def _streamed(self, response: UpstreamResponse) -> None:
        plan = self._plan
        stream = self._stream = ReplyStream(
            plan.target,
            plan.limits,
            choices=plan.request.n,
            withhold_usage=plan.encoded.withhold_usage,
        )
        is_shown = self._result.is_stream
        has_first = False
        while not stream.has_ended():
            try:
                chunk = await response.read()
            except UpstreamStreamIncomplete:
                # Raises, unless the last bytes were the end marker without its blank line.
                self._finish(stream.close(is_cut=True), stream)
                return
            if not chunk:
                break
            events = stream.receive(chunk)
            if not has_first and any(isinstance(event, _FIRST) for event in events):
                has_first = True
                self._result.time_to_first_token_ms = self._elapsed_ms()
            if is_shown and not stream.has_ended():
                out = self._shown(stream)
                if out:
                    await self._exchange.write(out, is_last=False)
        is_marked = stream.has_ended()
        self._finish(stream.close(), stream)
        if is_marked:
            self.leftover = response

    def _finish(self, reply: Reply, stream: ReplyStream) -> None:
        result = self._result
        result.reply = reply
        is_marked = "missing_done" not in reply.flags
        result.stream_state = "complete" if is_marked else "missing_done"
        self._take_notes()
        if result.is_stream:
            result.tail = stream.take()
            result.final = stream.final if is_marked else DONE_FRAME
            return
        if self._plan.target.stream != "always":
            result.notes.append("provider answered with a stream; folded")
        show = self._plan.target.show_reasoning
        result.final = write(body_of_reply(reply, show_reasoning=show))

    def _take_notes(self) -> None:
        assert self._stream is not None
        self._result.notes.extend(self._stream.decoder.notes[self._told :])
        self._told = len(self._stream.decoder.notes)

    def _shown(self, stream: ReplyStream) -> bytes:
        """What the core rendered, for the client; the head goes with the first of it."""
        out = stream.take()
        if not out:
            return out
        if not self._exchange.is_started:
            self._take_notes()
            self._exchange.start(200, SSE_TYPE, self.head_headers())
        elif len(stream.decoder.notes) > self._told:
            new = stream.decoder.notes[self._told :]
            self._take_notes()
            out = note_comments(new) + out
        return out

    def head_headers(self) -> list[Header]:
        """Headers of the answer that come from the call: the provider's limits, and notes."""
        cache: list[Header] = []
        if self._result.is_stream:
            cache = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        return [*cache, *self._result.headers, *note_headers(self._result.notes)]

    async def drain(self, response: UpstreamResponse) -> None:
        """Read what follows the end marker, so that the connection can serve again.

        Bounded in time: a provider that keeps a finished stream open loses its connection.
        """
        timer = asyncio.get_running_loop().call_later(DRAIN_S, response.close)
        try:
            while await response.read():
                pass  # After the end marker nothing counts.
        except Failure:
            pass  # The answer was complete; only the connection is lost, or was closed in time.
        finally:
            timer.cancel()
            response.close()

    # ---------------------------------------------------------------- bodies

    async def _whole(self, response: UpstreamResponse) -> None:
        plan = self._plan
        parts: list[bytes] = []
        size = 0
        while chunk := await response.read():
            size += len(chunk)
            if size > plan.limits.body_bytes_max:
                raise UpstreamTooLarge(
                    f"the provider's body passes {plan.limits.body_bytes_max} bytes"
                )
            parts.append(chunk)
        result = self._result
        result.time_to_first_token_ms = self._elapsed_ms()
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        if not data.strip():
            raise TranslationError("the provider answered with an empty body")
        reply, shown, notes = read_answer(data, plan.target, plan.limits, choices=plan.request.n)
        result.reply = reply
        result.stream_state = "whole"
        result.notes.extend(notes)
        if not result.is_stream:
            result.final = shown
            return
        if plan.target.stream != "never":
            result.notes.append("provider answered whole; shown as a stream")
        frames = frames_of_body(
            read_provider(shown).value, include_usage=bool(plan.request.include_usage)
        )
        result.tail = b"".join(frames)
        result.final = DONE_FRAME
