"""What the gateway reads of a provider's HTTP answer before the dialect reads its body."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Final, Literal

from everyturn.errors import Failure, TranslationError
from everyturn.transport.base import Journey, UpstreamRequest, UpstreamResponse
from everyturn.wire.dialects.failures import status_failure
from everyturn.wire.dialects.openai_chat import Encoded
from everyturn.wire.preset import Target

Headers = tuple[tuple[str, str], ...]

ERROR_BODY_BYTES_MAX: Final = 1024 * 1024
"""An error body beyond this is not read: its status alone makes the failure."""

RETRY_AFTER_MS_MAX: Final = 24 * 3600 * 1000
"""A longer wait in `retry-after` counts as this."""

_PASSED: Final = ("retry-after", "retry-after-ms")
_PASSED_PREFIX: Final = "x-ratelimit-"
_REQUEST_IDS: Final = ("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id")
_PLAIN: Final = ("", "text/plain", "application/octet-stream")


def upstream_request(
    encoded: Encoded, common: Headers, further: Headers, journey: Journey
) -> UpstreamRequest:
    """The HTTP request of a call. common: headers of all calls; further: those of this one."""
    return UpstreamRequest(
        url=encoded.url,
        headers=encoded.headers + common,
        further=further,
        body=encoded.body,
        journey=journey,
    )


def first_of_each(headers: Headers) -> Mapping[str, str]:
    """Headers by their lower-case names; of one that stands more than once, the first."""
    named: dict[str, str] = {}
    for name, value in headers:
        named.setdefault(name, value)
    return named


def passed_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The provider's headers that come back to the client: how long to wait, and rate limits."""
    passed: list[tuple[bytes, bytes]] = []
    for key, value in headers:
        if key in _PASSED or key.startswith(_PASSED_PREFIX):
            passed.append((key.encode("latin-1"), value.encode("latin-1", "replace")))
    return passed


def provider_request_id(named: Mapping[str, str]) -> str | None:
    """The provider's own id of the request, if it told one."""
    for name in _REQUEST_IDS:
        if found := named.get(name):
            return found
    return None


@lru_cache(maxsize=64)
def media_type(content_type: str) -> str:
    """What a `content-type` names, without its parameters. Cached: there are few."""
    return content_type.partition(";")[0].strip().lower()


def answer_kind(named: Mapping[str, str], *, is_stream_asked: bool) -> Literal["sse", "json"]:
    """How the body of a good answer is framed. Raises TranslationError where it cannot be read."""
    encoding = named.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise TranslationError(
            f"the provider compressed its answer ({encoding[:32]}) though nobody asked for it",
            hint="Turn compression off at the provider, or at the proxy in front of it.",
        )
    kind = media_type(named.get("content-type", ""))
    if kind == "text/event-stream":
        return "sse"
    if kind == "application/json" or kind.endswith("+json"):
        return "json"
    if kind in _PLAIN:
        return "sse" if is_stream_asked else "json"
    raise TranslationError(
        f"the provider answered with content type {kind[:64]}",
        hint="Check that `base_url` is the address of the API, not of a web page.",
    )


async def rejected(response: UpstreamResponse, encoded: Encoded, target: Target) -> Failure:
    """The failure of an answer with an error status, its body included while it is small."""
    body = b""
    while chunk := await response.read():
        body += chunk
        if len(body) > ERROR_BODY_BYTES_MAX:
            body = b""
            break
    wait_ms = retry_after_ms(first_of_each(response.headers), datetime.now(UTC))
    failure = status_failure(response.status, body, retry_after_ms=wait_ms)
    if response.status == 400 and _lacks_reasoning(encoded, target):
        failure.hint = (
            "This provider requires the reasoning of earlier assistant messages: send back their "
            "`reasoning_content` as it was received."
        )
    return failure


def _lacks_reasoning(encoded: Encoded, target: Target) -> bool:
    if target.preset.history not in ("required", "required_tools"):
        return False
    messages = encoded.sent.get("messages", [])
    return encoded.reasoning_in_history == 0 and any(m.get("role") == "assistant" for m in messages)


def retry_after_ms(named: Mapping[str, str], now: datetime) -> int | None:
    """How long the provider says to wait, in milliseconds; None if it does not say.

    Sources: RFC 9110, section 10.2.3 (seconds or a date); `retry-after-ms` as OpenAI sends it.
    """
    exact = named.get("retry-after-ms")
    if exact is not None and exact.isascii() and exact.isdigit():
        return min(int(exact), RETRY_AFTER_MS_MAX)
    value = named.get("retry-after")
    if value is None:
        return None
    if value.isascii() and value.isdigit():
        return min(int(value) * 1000, RETRY_AFTER_MS_MAX)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None  # Not a form that the standard knows; the header itself still comes back.
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    wait = int((when - now).total_seconds() * 1000)
    return min(max(wait, 0), RETRY_AFTER_MS_MAX)
