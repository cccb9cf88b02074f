"""OpenAI Chat Completions as a dialect: how a request is put to a provider that speaks it.

Pure: a ChatRequest and a Target become path, query, headers and body. Only what has to differ from
the client's body is copied; member order and number texts stay as the client sent them.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from everyturn.errors import UnknownParameter
from everyturn.wire.controls import translate_controls
from everyturn.wire.history import convert_history
from everyturn.wire.preset import Target
from everyturn.wire.reader import key_name, write
from everyturn.wire.request import CHAT_PARAMETERS, ChatRequest

ENDPOINT: Final = "/chat/completions"

_PATH_SAFE: Final = "/:@!$&'()*+,;=~%"
_CONTENT_TYPE: Final = ("content-type", "application/json")
_ACCEPT: Final = ("accept", "application/json")
_ACCEPT_STREAM: Final = ("accept", "text/event-stream")


class Encoded:
    """One call to a provider, ready for a transport. `headers` hold the key; nothing else does."""

    __slots__ = (
        "body",
        "headers",
        "notes",
        "origin",
        "path",
        "query",
        "reasoning_in_history",
        "reasoning_tags",
        "sent",
        "stream",
        "url",
        "withhold_usage",
    )

    def __init__(
        self,
        *,
        origin: str,
        path: str,
        query: tuple[tuple[str, str], ...],
        url: str,
        headers: tuple[tuple[str, str], ...],
        body: bytes,
        sent: dict[str, Any],
        notes: tuple[str, ...],
        stream: bool,
        withhold_usage: bool,
        reasoning_in_history: int,
        reasoning_tags: tuple[tuple[int, int], ...],
    ) -> None:
        self.origin: Final = origin
        """`https://host[:port]`, as in the target's base URL."""
        self.path: Final = path
        """The whole path at the origin: the base URL's own, then `/chat/completions`."""
        self.query: Final = query
        """The base URL's own query, then the target's, which outweighs it; not yet encoded."""
        self.url: Final = url
        """The absolute URL, percent-encoded."""
        self.headers: Final = headers
        self.body: Final = body
        self.sent: Final = sent
        """The tree that `body` is the text of. Shares parts with the request; do not change it."""
        self.notes: Final = notes
        """What was done to the request that the client could not see; no values, no content."""
        self.stream: Final = stream
        """Whether the provider is asked to stream; may differ from what the client asked for."""
        self.withhold_usage: Final = withhold_usage
        """The stream's usage was asked for by this gateway alone: its frame is not the client's."""
        self.reasoning_in_history: Final = reasoning_in_history
        """Reasoning text in the client's history, in Unicode code points."""
        self.reasoning_tags: Final = reasoning_tags
        """Messages of `sent` with reasoning in front of their content: index, and code points."""


def encode(request: ChatRequest, target: Target, *, api_key: str | None) -> Encoded:
    """The call that puts `request` to `target`.

    api_key: sent as `Authorization: Bearer KEY`, or bare under the target's own header; None sends
    no credentials.
    Raises UnknownParameter for a top-level key that nobody knows, and what `translate_controls`
    and `convert_history` raise. The request is not changed.
    """
    _check_keys(request.body, target)
    controls = translate_controls(request.body, target)
    history = convert_history(request.messages, target, thinking=controls.thinking)
    body = controls.body
    is_own = body is request.body and history.messages is request.messages
    if body is request.body:
        body = dict(body)
    body["model"] = target.upstream_model
    body["messages"] = history.messages
    notes = [*controls.notes, *history.notes]
    is_streamed = request.stream
    if target.stream != "as_asked":
        is_streamed = target.stream == "always"
        is_own = is_own and is_streamed == request.stream
        if is_streamed != request.stream:
            notes.append(_set_stream(body, is_streamed))
    withhold_usage = is_streamed and _set_stream_options(body, request, target, notes)
    origin, path, query, url = _address(target)
    return Encoded(
        origin=origin,
        path=path,
        query=query,
        url=url,
        headers=_headers(target, api_key, is_streamed),
        # A streamed body also asks for usage, so it is no more the client's own.
        body=_with_model(request, target) if is_own and not is_streamed else write(body),
        sent=body,
        notes=tuple(notes),
        stream=is_streamed,
        withhold_usage=withhold_usage,
        reasoning_in_history=history.reasoning_chars,
        reasoning_tags=history.tagged,
    )


def _with_model(request: ChatRequest, target: Target) -> bytes:
    """The text of a request's body with the provider's name of the model, as `write` gives it."""
    text = request.text
    asked = b'"model":' + write(request.model)
    named = b'"model":' + write(target.upstream_model)
    # The member itself has these bytes. If they stand once, that is it: further ones may be members
    # of something inside, or the end of a name with a quote in it.
    if text.startswith(b"{" + asked):
        return b"{" + named + text[len(asked) + 1 :]
    if text.count(asked) == 1:
        return text.replace(asked, named)
    return write({**request.body, "model": target.upstream_model})


def _check_keys(body: dict[str, Any], target: Target) -> None:
    """Refuse a top-level key of which nobody knows what it does."""
    preset = target.preset
    for key in body:
        if (
            key not in CHAT_PARAMETERS
            and key != "reasoning"
            and key not in preset.request_keys
            and key not in preset.controls.native
            and key not in target.allow
        ):
            name = key_name(key)
            raise UnknownParameter(f"`{name}` is not known for this model.", param=name)


def _set_stream(body: dict[str, Any], is_streamed: bool) -> str:
    """Ask for the other way of answering than the client did; returns the note for it."""
    body["stream"] = is_streamed
    if is_streamed:
        return "stream=always: the answer was put together from a stream"
    body.pop("stream_options", None)
    return "stream=never: the stream was made from a whole answer"


def _set_stream_options(
    body: dict[str, Any], request: ChatRequest, target: Target, notes: list[str]
) -> bool:
    """Ask for the usage of a stream where the provider has it.

    Returns whether only this gateway asked, so that the client must not see the usage frame. A
    whole answer has its usage always, so nothing is withheld where the stream is folded into one.
    """
    preset = target.preset
    if preset.stream_options == "refused":
        if body.pop("stream_options", None) is not None:
            notes.append("removed stream_options: this provider refuses it")
        return False
    if preset.stream_options != "evidenced" or request.include_usage is True:
        return False
    options = body.get("stream_options") or {}
    body["stream_options"] = {**options, "include_usage": True}
    return request.stream


def _headers(target: Target, api_key: str | None, is_streamed: bool) -> tuple[tuple[str, str], ...]:
    accept = _ACCEPT_STREAM if is_streamed else _ACCEPT
    if api_key is None:
        return (_CONTENT_TYPE, accept)
    name = target.auth_header.lower()
    credentials = f"Bearer {api_key}" if name == "authorization" else api_key
    return (_CONTENT_TYPE, accept, (name, credentials))


_Address = tuple[str, str, tuple[tuple[str, str], ...], str]


def _address(target: Target) -> _Address:
    """Origin, path, query and URL of the target's endpoint, worked out once."""
    address: _Address | None = target.derived.get("address")
    if address is None:
        address = target.derived["address"] = _read_address(target.base_url, target.query)
    return address


def _read_address(base_url: str, given: tuple[tuple[str, str], ...]) -> _Address:
    """Origin, path, query and URL of the endpoint under a base URL as an OpenAI SDK is given it.

    given: the target's own query, which outweighs the base URL's.
    """
    parts = urlsplit(base_url)
    path = quote(parts.path.rstrip("/"), safe=_PATH_SAFE) + ENDPOINT
    names = {name for name, _ in given}
    own = parse_qsl(parts.query, keep_blank_values=True)
    query = tuple(pair for pair in own if pair[0] not in names) + given
    origin = f"{parts.scheme}://{parts.netloc}"
    encoded = f"?{urlencode(query, quote_via=quote)}" if query else ""
    return origin, path, query, origin + path + encoded
