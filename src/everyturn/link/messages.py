"""The messages of the worker link, and how each is put into bytes.

A message is a header, one line of JSON, and after the line end the bytes it carries, as they are.
The set of messages is closed, and each header has exactly one spelling: members in the order in
which they stand here, all of them, no white space. So a member that stands twice, one that nobody
knows, a wrong type or a second spelling cannot be read in two ways: it ends the link, by name.

No message can carry a command, a file path or an environment variable: a call names an operation
and a target, and what those are is for the worker to say.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal, NoReturn, get_args

import msgspec
from msgspec import Meta

HEADER_BYTES_MAX: Final = 256 * 1024
"""Of one header. An HTTP head of 64 KiB, escaped as JSON, is well below."""

PAYLOAD_BYTES_MAX: Final = 128 * 1024
"""Of the bytes that one message carries."""

MESSAGE_BYTES_MAX: Final = HEADER_BYTES_MAX + 1 + PAYLOAD_BYTES_MAX

WINDOW_BYTES_MAX: Final = 64 * 1024 * 1024
"""The most that either side may offer to hold of one direction of one call."""

QUERY_LENGTH_MAX: Final = 16_384
"""Of a call's query parameters, in characters."""

FaultCode = Literal[
    "malformed",
    "duplicate_member",
    "unknown_type",
    "unknown_member",
    "missing_member",
    "wrong_type",
    "oversize",
    "unexpected",
    "unknown_call",
    "credit_exceeded",
    "heartbeat_lost",
    "protocol_version_unsupported",
]
"""Why a link is ended: what the peer did."""

FAULTS: Final[tuple[FaultCode, ...]] = get_args(FaultCode)

ByeCode = Literal["stopping", "revoked", "replaced", "fault", "protocol_version_unsupported"]
"""Why a side ends the link in order."""

BYES: Final[tuple[ByeCode, ...]] = get_args(ByeCode)

FailCode = Literal[
    "upstream_unreachable",
    "upstream_timeout",
    "upstream_stream_incomplete",
    "upstream_too_large",
    "translation_error",
    "invalid_value",
    "request_too_large",
    "target_not_allowed",
    "draining",
    "internal_error",
]
"""Why a worker ends a call without an answer, or in the middle of one."""

FAILS: Final[tuple[FailCode, ...]] = get_args(FailCode)

Operation = Literal["chat.completions", "models"]
"""What may be asked of a target. Closed; a version may carry fewer of them."""

CallId = Annotated[int, Meta(ge=1, le=2**53)]
"""Given by the gateway, one higher for each call of a link; never used again."""

Text = Annotated[str, Meta(max_length=2000)]
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}\Z")]
"""Of a target: small letters, digits and `-`."""
Headers = tuple[tuple[str, str], ...]
Window = Annotated[int, Meta(ge=1, le=WINDOW_BYTES_MAX)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Milliseconds = Annotated[int, Meta(ge=1, le=2**40)]
Microseconds = Annotated[int, Meta(ge=0, le=2**53)]


class Message(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    gc=False,
    tag_field="type",
    forbid_unknown_fields=True,
):
    """Something that one side says to the other."""


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """The worker's first word."""

    versions: Annotated[tuple[Annotated[int, Meta(ge=0, le=65535)], ...], Meta(max_length=64)]
    """The versions of this protocol that it speaks."""
    software: Annotated[str, Meta(max_length=100)]
    """Name and version of its program, for lists that people read."""
    targets: Annotated[tuple[Name, ...], Meta(max_length=1000)]
    """What it allows to be called, by name; the addresses stay with it."""
    window: Window
    """Bytes of a request that it holds before it must be given time."""
    calls_max: Count
    """Calls that it runs at once."""


class Welcome(Message, frozen=True, kw_only=True, tag="welcome"):
    """The gateway's first word: from here on calls may come."""

    version: int
    """The highest version that both speak. It holds for the whole link."""
    window: Window
    """Bytes of an answer that it holds before it must be given time."""


class Call(Message, frozen=True, kw_only=True, tag="call"):
    """Run this, once. The request's body follows as `data` and `end`."""

    call: CallId
    operation: Operation
    target: Name
    query: Annotated[str, Meta(max_length=QUERY_LENGTH_MAX)]
    """Percent-encoded, without the question mark; empty: none."""
    headers: Headers
    """In order, as the provider is to get them; values as Latin-1 text."""
    connect_ms: Milliseconds
    first_byte_ms: Milliseconds
    total_ms: Milliseconds


class Head(Message, frozen=True, kw_only=True, tag="head"):
    """The answer begins."""

    call: CallId
    status: Annotated[int, Meta(ge=200, le=999)]
    headers: Headers
    """Names in lower case, in order; values as Latin-1 text."""
    upstream_us: Microseconds
    """From the request's sending to this head, as the worker saw it."""


class Data(Message, frozen=True, kw_only=True, tag="data"):
    """Part of a body. Takes as much credit as it carries bytes, and carries at least one."""

    call: CallId


class End(Message, frozen=True, kw_only=True, tag="end"):
    """The body is complete. From the worker: the call is over."""

    call: CallId


class Fail(Message, frozen=True, kw_only=True, tag="fail"):
    """The call is over and has no good end."""

    call: CallId
    code: FailCode
    message: Text
    hint: Text
    """What to do; empty: as the code says."""
    upstream_us: Microseconds
    """From the request's sending to this failure, as the worker saw it."""


class Cancel(Message, frozen=True, kw_only=True, tag="cancel"):
    """The call is over: nobody wants the answer any more."""

    call: CallId


class Credit(Message, frozen=True, kw_only=True, tag="credit"):
    """The peer may send so many more bytes of this call."""

    call: CallId
    bytes: Window


class Ping(Message, frozen=True, kw_only=True, tag="ping"):
    """Say that you are there."""

    number: Annotated[int, Meta(ge=0, le=2**53)]


class Pong(Message, frozen=True, kw_only=True, tag="pong"):
    """I am here."""

    number: Annotated[int, Meta(ge=0, le=2**53)]


class Drain(Message, frozen=True, kw_only=True, tag="drain"):
    """No new calls from now on; those under way go on."""


class Rotate(Message, frozen=True, kw_only=True, tag="rotate"):
    """Use this credential from the next connection on, and say so."""

    credential: Annotated[str, Meta(min_length=20, max_length=200)]

    def __repr__(self) -> str:
        return "Rotate(credential=…)"


class Rotated(Message, frozen=True, kw_only=True, tag="rotated"):
    """The new credential is stored."""


class Bye(Message, frozen=True, kw_only=True, tag="bye"):
    """The link ends here. The last message of its sender."""

    code: ByeCode
    message: Text


AnyMessage = (
    Hello
    | Welcome
    | Call
    | Head
    | Data
    | End
    | Fail
    | Cancel
    | Credit
    | Ping
    | Pong
    | Drain
    | Rotate
    | Rotated
    | Bye
)

MESSAGES: Final[dict[str, type[Message]]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(AnyMessage)
}
"""Every message by its name."""

_DECODER: Final = msgspec.json.Decoder(AnyMessage)
_ENCODER: Final = msgspec.json.Encoder()


class LinkFault(Exception):
    """The peer broke the protocol, so the link ends. `code` names how; no content is in it."""

    def __init__(self, code: FaultCode, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code: FaultCode = code
        self.message = message


def encode(message: Message, payload: bytes | memoryview = b"") -> bytes:
    """A message as bytes. payload: only for `Data`."""
    return b"".join((_ENCODER.encode(message), b"\n", payload))


def parse(raw: bytes) -> tuple[AnyMessage, bytes]:
    """The message in `raw`, and the bytes it carries. Raises LinkFault for anything else."""
    if len(raw) > MESSAGE_BYTES_MAX:
        raise LinkFault("oversize", f"a message is longer than {MESSAGE_BYTES_MAX} bytes")
    end = raw.find(b"\n", 0, HEADER_BYTES_MAX + 1)
    if end < 0:
        if len(raw) > HEADER_BYTES_MAX:
            raise LinkFault("oversize", f"a header is longer than {HEADER_BYTES_MAX} bytes")
        raise LinkFault("malformed", "a message has no line end after its header")
    header = raw[:end]
    try:
        message: AnyMessage = _DECODER.decode(header)
    except (msgspec.DecodeError, RecursionError):
        _name_fault(header)
    if _ENCODER.encode(message) != header:
        _name_fault(header)
    payload = raw[end + 1 :]
    if type(message) is not Data:
        if payload:
            raise LinkFault("malformed", "a message that carries no bytes has some")
    elif not payload:
        raise LinkFault("malformed", "`data` carries no bytes")
    elif len(payload) > PAYLOAD_BYTES_MAX:
        raise LinkFault("oversize", f"`data` carries more than {PAYLOAD_BYTES_MAX} bytes")
    return message, payload


def _name_fault(header: bytes) -> NoReturn:
    """Say what is wrong with a header that cannot be read, or is not in its one spelling."""
    doubles: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        read = dict(found)
        if len(read) < len(found):
            doubles.append("")
        return read

    try:
        tree = json.loads(header, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        raise LinkFault("malformed", "a header is not JSON in UTF-8") from None
    if doubles:
        raise LinkFault("duplicate_member", "a member stands twice in a header")
    if type(tree) is not dict or type(tree.get("type")) is not str:
        raise LinkFault("malformed", "a header is not an object with a `type`")
    kind = MESSAGES.get(tree["type"])
    if kind is None:
        raise LinkFault("unknown_type", "a message is of a type that does not exist")
    name = tree.pop("type")
    members = set(kind.__struct_fields__)
    if tree.keys() - members:
        raise LinkFault("unknown_member", f"`{name}` has a member that does not exist")
    if members - tree.keys():
        raise LinkFault("missing_member", f"`{name}` lacks: {min(members - tree.keys())}")
    try:
        _DECODER.decode(header)
    except (msgspec.DecodeError, RecursionError):
        raise LinkFault("wrong_type", f"a member of `{name}` has a wrong type or value") from None
    raise LinkFault("malformed", f"`{name}` is not in its one spelling")
