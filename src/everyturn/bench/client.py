"""The gateway as the harness sees it: one call over HTTP, its answer or a typed failure.

Failures carry a code and numbers, never a header, a URL or a body.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from everyturn import __version__, ids
from everyturn.bench.answer import Answer, Fold, NotAnAnswer
from everyturn.bench.folder import RunRefused
from everyturn.errors import Failure, InvalidValue, UpstreamUnreachable
from everyturn.transport.base import Timeouts, UpstreamRequest
from everyturn.transport.direct import DirectTransport
from everyturn.transport.response import DirectResponse

RETRY_AFTER_MAX_S: Final = 300.0
_JSON_BYTES_MAX: Final = 64 * 1024 * 1024
_FATAL: Final = frozenset(
    {
        "unauthorized",
        "not_permitted",
        "model_not_found",
        "endpoint_not_found",
        "unknown_parameter",
        "unsupported_reasoning_control",
    }
)
"""Codes that every further row would meet as well: the run stops."""
_UNKNOWN_COST: Final = frozenset(
    {
        "upstream_timeout",
        "upstream_stream_incomplete",
        "upstream_too_large",
        "upstream_unreachable",
        "protocol_drift",
        "reasoning_conflict",
        "tool_fragment_orphan",
        "translation_error",
        "audit_unavailable",
        "internal_error",
        "worker_lost",
    }
)
"""Codes after which a provider may have worked, and charges for it."""


class CallFailed(Exception):
    """A call that gave no whole answer.

    kind: `timeout` or `provider_error`. is_free: the provider cannot have charged for it.
    is_throttled: it asks for fewer calls. retry_after_s: how long to wait, where somebody said.
    """

    def __init__(
        self,
        kind: str,
        code: str,
        *,
        status: int | None = None,
        may_retry: bool = True,
        is_fatal: bool = False,
        is_free: bool = False,
        is_throttled: bool = False,
        retry_after_s: float | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(code)
        self.kind = kind
        self.code = code
        self.status = status
        self.may_retry = may_retry
        self.is_fatal = is_fatal
        self.is_free = is_free
        self.is_throttled = is_throttled
        self.retry_after_s = retry_after_s
        self.hint = hint


@dataclass(slots=True)
class Timed:
    """A call's answer with what was measured."""

    answer: Answer
    latency_ms: float
    time_to_first_token_ms: float | None


@dataclass(frozen=True, slots=True)
class Span:
    """The ids under which calls of one row are recorded."""

    turn_id: str
    trace_id: str

    def headers(self, span_bits: int) -> tuple[tuple[str, str], ...]:
        """Headers of one call."""
        return (
            ("x-everyturn-turn-id", self.turn_id),
            ("traceparent", f"00-{self.trace_id}-{ids.span_id(span_bits)}-01"),
        )


class Gateway:
    """Calls of one gateway. Close it at the end."""

    def __init__(
        self, url: str, api_key: str | None, *, timeout_s: float, idle_timeout_s: float
    ) -> None:
        self._url = url
        self._transport = DirectTransport()
        self._timeouts = Timeouts(
            connect_ms=int(min(30.0, timeout_s) * 1000),
            first_byte_ms=int(timeout_s * 1000),
            idle_ms=int(idle_timeout_s * 1000),
            total_ms=int(timeout_s * 1000),
        )
        key = (("authorization", f"Bearer {api_key}"),) if api_key else ()
        self._headers = (
            ("content-type", "application/json"),
            ("user-agent", f"everyturn-bench/{__version__}"),
            *key,
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.close()

    async def get(self, path: str) -> Any:
        """A JSON document of the gateway, numbers as floats. Raises CallFailed."""
        request = UpstreamRequest(
            url=self._url + path, method="GET", headers=self._headers, body=b""
        )
        try:
            response = await self._transport.open(request, self._timeouts)
        except Failure as failure:
            raise _transport_failed(failure) from failure
        try:
            raw = await _whole(response)
        except Failure as failure:
            raise _transport_failed(failure) from failure
        finally:
            response.close()
        if response.status != 200:
            raise _refused(response, raw)
        try:
            return msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError) as bad:
            raise CallFailed("provider_error", "not_an_answer", status=200) from bad

    async def ask(self, body: bytes, span: Span, span_bits: int) -> Timed:
        """Send one chat completion and read its whole answer. Raises CallFailed."""
        request = UpstreamRequest(
            url=f"{self._url}/chat/completions",
            headers=(*self._headers, *span.headers(span_bits)),
            body=body,
        )
        began = time.perf_counter()
        try:
            response = await self._transport.open(request, self._timeouts)
            try:
                return await self._read(response, began)
            finally:
                response.close()
        except Failure as failure:
            raise _transport_failed(failure) from failure

    async def _read(self, response: DirectResponse, began: float) -> Timed:
        if response.status != 200:
            raise _refused(response, await _whole(response))
        fold, first = Fold(), None
        kind = next((v for k, v in response.headers if k == "content-type"), "")
        try:
            if not kind.startswith("text/event-stream"):
                fold.add(await _whole(response))
                return Timed(fold.answer(), _since(began), None)
            has_ended, frames = False, _Frames()
            while chunk := await response.read():
                for frame in frames.feed(chunk):
                    if frame == b"[DONE]":
                        has_ended = True
                    elif fold.add(frame) and first is None:
                        first = _since(began)
            if not has_ended:
                raise CallFailed("provider_error", "stream_incomplete", status=200)
            return Timed(fold.answer(), _since(began), first)
        except NotAnAnswer as bad:
            raise _of_error(bad.error, 200, None) from bad


class _Frames:
    """The data of the gateway's server-sent events, whose form is one `data:` line an event."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        if b"\n" not in chunk:
            self._parts.append(chunk)
            return []
        lines = b"".join((*self._parts, chunk)).split(b"\n")
        self._parts = [lines.pop()]
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]


async def _whole(response: DirectResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    while part := await response.read():
        parts.append(part)
        size += len(part)
        if size > _JSON_BYTES_MAX:
            raise CallFailed("provider_error", "answer_too_large", may_retry=False)
    return b"".join(parts)


def _since(began: float) -> float:
    return round((time.perf_counter() - began) * 1000, 3)


def _transport_failed(failure: Failure) -> CallFailed:
    if isinstance(failure, InvalidValue):
        hint = "Correct `run.gateway` or the API key."
        return CallFailed("provider_error", "invalid_value", is_fatal=True, is_free=True, hint=hint)
    code = {
        "upstream_unreachable": "gateway_unreachable",
        "upstream_timeout": "gateway_timeout",
        "upstream_stream_incomplete": "stream_incomplete",
        "upstream_too_large": "answer_too_large",
    }.get(failure.code, "not_an_answer")
    kind = "timeout" if code == "gateway_timeout" else "provider_error"
    is_free = isinstance(failure, UpstreamUnreachable) and not failure.may_have_arrived
    return CallFailed(kind, code, is_free=is_free)


def _refused(response: DirectResponse, raw: bytes) -> CallFailed:
    try:
        error = msgspec.json.decode(raw)["error"]
    except (msgspec.DecodeError, LookupError, TypeError, RecursionError):
        error = None
    headers = dict(response.headers)
    wait = retry_after(headers.get("retry-after-ms"), headers.get("retry-after"), time.time())
    return _of_error(error, response.status, wait)


def _of_error(error: Any, status: int, retry_after_s: float | None) -> CallFailed:
    code = error.get("code") if isinstance(error, dict) else None
    hint = error.get("hint") if isinstance(error, dict) else None
    if not isinstance(code, str) or not code.isidentifier():
        code = "not_an_answer" if status == 200 else f"status_{status}"
    is_caller = 400 <= status < 500 and status not in (408, 409, 425, 429)
    return CallFailed(
        "timeout" if code == "upstream_timeout" else "provider_error",
        code,
        status=status,
        may_retry=not is_caller,
        is_fatal=code in _FATAL,
        is_free=status >= 400 and code not in _UNKNOWN_COST,
        is_throttled=status == 429,
        retry_after_s=retry_after_s,
        hint=hint if isinstance(hint, str) else "",
    )


def retry_after(milliseconds: str | None, text: str | None, now: float) -> float | None:
    """Seconds to wait by the headers of an answer, numbers and dates; None: nobody said."""
    for value, scale in ((milliseconds, 1000.0), (text, 1.0)):
        if value is None:
            continue
        try:
            seconds = float(value) / scale
        except ValueError:
            try:
                seconds = parsedate_to_datetime(value).timestamp() - now
            except (ValueError, OverflowError):
                continue
        if seconds == seconds:  # not a NaN
            return min(max(0.0, seconds), RETRY_AFTER_MAX_S)
    return None


async def models_at(gateway: Gateway) -> dict[str, dict[str, Any]]:
    """The models of a gateway by name, each with its preset and prices. Raises CallFailed."""
    found = await gateway.get("/models")
    try:
        return {model["id"]: model.get("everyturn") or {} for model in found["data"]}
    except (LookupError, TypeError, AttributeError) as bad:
        raise CallFailed("provider_error", "not_an_answer", status=200) from bad


async def models_or_refuse(gateway: Gateway) -> dict[str, dict[str, Any]]:
    """The same. Raises RunRefused, with what to do."""
    try:
        return await models_at(gateway)
    except CallFailed as failed:
        what = "does not answer" if failed.status is None else "refuses"
        hint = failed.hint or "Start the gateway, or correct `run.gateway`."
        if failed.code == "unauthorized":
            hint = "Set EVERYTURN_API_KEY to a key of this gateway."
        raise RunRefused(f"the gateway {what}: {failed.code}.", hint) from failed
