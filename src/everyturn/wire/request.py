"""A client's bytes become a ChatRequest, or a typed refusal that names the parameter.

Checks what the gateway itself reads (section 2 of the HTTP reference): the JSON, the model, the
messages, what decides about streaming, and that numbers are numbers. Every other value is carried
as it came; whether a key is known depends on the model and is decided where the request is encoded.

`Failure.param` is the path of what is wrong (`messages[3].role`); no value is ever in a message.
"""

from __future__ import annotations

import math
from typing import Any, Final

from everyturn.errors import InvalidJson, InvalidValue, MissingParameter, RequestTooLarge
from everyturn.wire.envelope import Envelope, take_envelope
from everyturn.wire.reader import Malformed, Num, key_name, read_client_text

BYTES_MAX: Final = 32 * 1024 * 1024
"""Default limit of a request body."""

CHOICES_MAX: Final = 128
"""The most choices (`n`) a request may ask for; OpenAI's own limit."""

CHAT_PARAMETERS: Final = frozenset(
    {
        "audio",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "metadata",
        "modalities",
        "model",
        "moderation",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning_effort",
        "response_format",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "store",
        "stream",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
        "web_search_options",
    }
)
"""Every top-level parameter of Chat Completions, the deprecated ones included.

Source: openai-python 3.57.0, `types/chat/completion_create_params.py`.
"""

ROLES: Final = ("developer", "system", "user", "assistant", "tool", "function")
"""The roles of Chat Completions. Closed, so that no message escapes the history policy."""

_ROLES: Final = frozenset(ROLES)
_CONTENT_REQUIRED: Final = ("developer", "system", "user")
_REALS: Final = ("temperature", "top_p", "frequency_penalty", "presence_penalty")
_INTEGERS: Final = ("max_tokens", "max_completion_tokens", "top_logprobs", "seed")
_NUMBER_KINDS: Final[dict[str, frozenset[type]]] = {
    **dict.fromkeys(_REALS, frozenset({int, float, type(None)})),
    **dict.fromkeys(_INTEGERS, frozenset({int, type(None)})),
    "logit_bias": frozenset({type(None)}),
}
"""Parameters that hold numbers, and the kinds of values that need no closer look."""
_OBJECT_LISTS: Final = ("tools", "functions")


class ChatRequest:
    """A Chat Completions request whose types are as the gateway needs them. Never changed."""

    __slots__ = (
        "body",
        "bytes_received",
        "envelope",
        "include_usage",
        "model",
        "n",
        "stream",
        "text",
    )

    def __init__(
        self,
        *,
        model: str,
        stream: bool,
        include_usage: bool | None,
        n: int,
        body: dict[str, Any],
        bytes_received: int,
        envelope: Envelope | None = None,
        text: bytes = b"",
    ) -> None:
        self.model: Final = model
        """As the client named it."""
        self.stream: Final = stream
        self.include_usage: Final = include_usage
        """`stream_options.include_usage`; None: not said."""
        self.n: Final = n
        """How many choices are asked for; 1 where the client did not say."""
        self.body: Final = body
        """The tree as read, `model`, `stream` and the rest included. Do not change it in place."""
        self.bytes_received: Final = bytes_received
        """The length of the text it was read from."""
        self.envelope: Final = envelope
        """The ids that the client named in the body, which holds them no more."""
        self.text: Final = text
        """The JSON text of `body`, where what was received is what `write` gives; else empty."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages as read: at least one, each an object with a known role."""
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages


def parse_chat_request(raw: bytes, *, bytes_max: int = BYTES_MAX) -> ChatRequest:
    """The request in a client's body.

    bytes_max: the most bytes the body may have.
    Raises RequestTooLarge, InvalidJson (with the path, where there is one), MissingParameter,
    InvalidValue and, for the envelope alone, UnknownParameter; nothing else.
    """
    if len(raw) > bytes_max:
        raise RequestTooLarge(f"The body is larger than the limit in bytes: {bytes_max}.")
    try:
        body, text = read_client_text(raw)
    except Malformed as bad:
        raise InvalidJson(
            f"The body cannot be read as JSON: {bad.reason}.", param=bad.path
        ) from None
    if type(body) is not dict:
        raise InvalidJson("The body must be one JSON object.")

    envelope = take_envelope(body)
    model = _required(body, "model")
    if type(model) is not str or not model:
        raise InvalidValue("`model` must be a string that is not empty.", param="model")
    _check_messages(_required(body, "messages"))
    stream = _flag(body.get("stream"), "stream")
    _check_numbers(body)
    for key in _OBJECT_LISTS:
        _check_object_list(body.get(key), key)
    return ChatRequest(
        model=model,
        stream=stream is True,
        include_usage=_include_usage(body.get("stream_options")),
        n=_choices(body.get("n")),
        body=body,
        bytes_received=len(raw),
        envelope=envelope,
        text=text if envelope is None else b"",
    )


def is_number(value: Any) -> bool:
    """Whether a value of a tree is a finite number; `1e400`, true and false are none."""
    kind = type(value)
    if kind is Num:
        return math.isfinite(float(value.text))
    return kind is int or kind is float


def _required(body: dict[str, Any], key: str) -> Any:
    if key not in body:
        raise MissingParameter(f"`{key}` is missing.", param=key)
    return body[key]


def _flag(value: Any, path: str) -> bool | None:
    if value is None or type(value) is bool:
        return value
    raise InvalidValue(f"`{path}` must be true, false or null.", param=path)


def _include_usage(options: Any) -> bool | None:
    if options is None:
        return None
    if type(options) is not dict:
        raise InvalidValue("`stream_options` must be an object or null.", param="stream_options")
    return _flag(options.get("include_usage"), "stream_options.include_usage")


def _choices(value: Any) -> int:
    if value is None:
        return 1
    if type(value) is not int or not 1 <= value <= CHOICES_MAX:
        raise InvalidValue(f"`n` must be an integer from 1 to {CHOICES_MAX}.", param="n")
    return value


def _check_numbers(body: dict[str, Any]) -> None:
    for key, value in body.items():
        kind = type(value)
        if kind is Num or (key in _NUMBER_KINDS and kind not in _NUMBER_KINDS[key]):
            _check_each_number(body)
            return


def _check_each_number(body: dict[str, Any]) -> None:
    """Look closely at each number of a body where one of them is not of a plain kind."""
    for key in _REALS:
        value = body.get(key)
        if value is not None and not is_number(value):
            raise InvalidValue(f"`{key}` must be a finite number or null.", param=key)
    for key in _INTEGERS:
        value = body.get(key)
        if value is not None and not (is_number(value) and float(value).is_integer()):
            raise InvalidValue(f"`{key}` must be an integer or null.", param=key)
    bias = body.get("logit_bias")
    if bias is not None:
        _check_bias(bias)
    # A parameter we do not know by name may still not be a number that no double can hold.
    for key, value in body.items():
        if type(value) is Num and not is_number(value):
            name = key_name(key)
            raise InvalidValue(f"`{name}` must be a finite number.", param=name)


def _check_bias(bias: Any) -> None:
    """Chat Completions has an object here; llama.cpp's server also takes a list of pairs."""
    if type(bias) is dict:
        values = [(f"logit_bias.{key_name(key)}", value) for key, value in bias.items()]
    elif type(bias) is list:
        values = [
            (f"logit_bias[{index}]", value)
            for index, pair in enumerate(bias)
            for value in (pair if type(pair) is list else [pair])
        ]
    else:
        raise InvalidValue("`logit_bias` must be an object or null.", param="logit_bias")
    for path, value in values:
        if type(value) is Num and not is_number(value):
            raise InvalidValue(f"`{path}` must be a finite number.", param=path)


def _check_object_list(value: Any, path: str) -> None:
    if value is None:
        return
    if type(value) is not list:
        raise InvalidValue(f"`{path}` must be a list of objects or null.", param=path)
    for index, item in enumerate(value):
        if type(item) is not dict:
            here = f"{path}[{index}]"
            raise InvalidValue(f"`{here}` must be an object.", param=here)


def _check_messages(messages: Any) -> None:
    if type(messages) is not list or not messages:
        raise InvalidValue("`messages` must be a list that is not empty.", param="messages")
    for index, message in enumerate(messages):
        if type(message) is not dict:
            here = f"messages[{index}]"
            raise InvalidValue(f"`{here}` must be an object.", param=here)
        role = message.get("role")
        if type(role) is not str or role not in _ROLES:
            _refuse_role(message, index)
        content = message.get("content")
        if type(content) is str:
            pass
        elif type(content) is list:
            # What an assistant said comes back as its provider put it.
            if role != "assistant":
                _check_object_list(content, f"messages[{index}].content")
        elif content is not None or role in _CONTENT_REQUIRED:
            _refuse_content(message, index)
        if role == "assistant":
            _check_object_list(message.get("tool_calls"), f"messages[{index}].tool_calls")


def _refuse_role(message: dict[str, Any], index: int) -> None:
    path = f"messages[{index}].role"
    if "role" not in message:
        raise MissingParameter(f"`{path}` is missing.", param=path)
    raise InvalidValue(f"`{path}` must be one of {', '.join(ROLES)}.", param=path)


def _refuse_content(message: dict[str, Any], index: int) -> None:
    path = f"messages[{index}].content"
    if "content" not in message:
        raise MissingParameter(f"`{path}` is missing.", param=path)
    raise InvalidValue(f"`{path}` must be a string or a list of objects.", param=path)
