"""Each message has one spelling; everything else is a fault with a name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everyturn.link.messages import (
    HEADER_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    MESSAGES,
    PAYLOAD_BYTES_MAX,
    Bye,
    Credit,
    Data,
    Drain,
    End,
    Fail,
    Head,
    Hello,
    LinkFault,
    Message,
    Ping,
    Pong,
    Rotate,
    Rotated,
    Welcome,
    encode,
    parse,
)
from tests.support.linked import a_call

EXAMPLES: list[Message] = [
    Hello(versions=(0, 1), software="x/1 é", targets=("a", "b-2"), window=1, calls_max=1),
    Welcome(version=1, window=64 * 1024 * 1024),
    a_call(1, query="a=%20"),
    Head(call=2**53, status=200, headers=(("x", "\xff\t"), ("x", "")), upstream_us=0),
    End(call=1),
    Fail(call=1, code="upstream_timeout", message="`idle_ms` is: 1", hint="", upstream_us=7),
    MESSAGES["cancel"](call=1),
    Credit(call=1, bytes=1),
    Ping(number=0),
    Pong(number=1),
    Drain(),
    Rotate(credential="obviously-fake-credential"),
    Rotated(),
    Bye(code="stopping", message="\x00"),
]


def test_every_message_is_read_as_it_was_written() -> None:
    """Each type goes out and comes back equal, and none is forgotten here."""
    for message in EXAMPLES:
        assert parse(encode(message)) == (message, b"")

    assert {type(message) for message in EXAMPLES} | {Data} == set(MESSAGES.values())


@given(body=st.binary(min_size=1, max_size=2000))
def test_any_bytes_are_carried_as_they_are(body: bytes) -> None:
    """Line ends, zero bytes and what looks like a header included."""
    assert parse(encode(Data(call=1), body)) == (Data(call=1), body)


FAULTS: list[tuple[bytes, str]] = [
    (b"", "malformed"),
    (b'{"type":"drain"}', "malformed"),
    (b"\n", "malformed"),
    (b"null\n", "malformed"),
    (b"[]\n", "malformed"),
    (b'{"call":1}\n', "malformed"),
    (b'{"type":1}\n', "malformed"),
    (b'{"type":"drain"}\xff\n', "malformed"),
    (b"[" * 100_000 + b"\n", "malformed"),
    (b'{"type":"drain"}\nx', "malformed"),
    (b'{"type":"data","call":1}\n', "malformed"),
    (b'{"type":"drain" }\n', "malformed"),
    (b'{"call":1,"type":"cancel"}\n', "malformed"),
    (b'{"type":"bye","code":"fault","message":"\\u0061"}\n', "malformed"),
    (b'{"type":"drain","type":"drain"}\n', "duplicate_member"),
    (b'{"type":"cancel","call":1,"call":1}\n', "duplicate_member"),
    (b'{"type":"cancel","call":1,"call":2}\n', "duplicate_member"),
    (b'{"type":"exec","command":"x"}\n', "unknown_type"),
    (b'{"type":"Drain"}\n', "unknown_type"),
    (b'{"type":"drain","why":1}\n', "unknown_member"),
    (b'{"type":"cancel"}\n', "missing_member"),
    (b'{"type":"cancel","call":"1"}\n', "wrong_type"),
    (b'{"type":"cancel","call":1.0}\n', "wrong_type"),
    (b'{"type":"cancel","call":true}\n', "wrong_type"),
    (b'{"type":"cancel","call":0}\n', "wrong_type"),
    (b'{"type":"cancel","call":null}\n', "wrong_type"),
    (b'{"type":"credit","call":1,"bytes":-5}\n', "wrong_type"),
    (b'{"type":"head","call":1,"status":101,"headers":[],"upstream_us":0}\n', "wrong_type"),
    (b'{"type":"head","call":1,"status":200,"headers":[["a"]],"upstream_us":0}\n', "wrong_type"),
    (b'{"type":"bye","code":"why","message":""}\n', "wrong_type"),
    (encode(Data(call=1), bytes(PAYLOAD_BYTES_MAX + 1)), "oversize"),
    (b"{" + b" " * HEADER_BYTES_MAX + b"}\n", "oversize"),
    (b" " * (MESSAGE_BYTES_MAX + 1), "oversize"),
]


@pytest.mark.parametrize(("raw", "code"), FAULTS, ids=lambda value: str(value)[:40])
def test_anything_else_is_a_named_fault(raw: bytes, code: str) -> None:
    """What is wrong is said by a code of the closed set, without content."""
    with pytest.raises(LinkFault) as fault:
        parse(raw)

    assert fault.value.code == code
    assert len(str(fault.value)) < 200


@pytest.mark.parametrize("operation", ["shell", "files.read", "", "../models"])
def test_a_call_names_an_operation_and_nothing_else(operation: str) -> None:
    """No operation outside of the closed set can be asked for, whatever the target."""
    raw = encode(a_call(1)).replace(b'"chat.completions"', b'"%b"' % operation.encode())

    with pytest.raises(LinkFault, match="wrong_type"):
        parse(raw)


@pytest.mark.parametrize(
    "target", ["", "-a", "a/b", "a.b", "../etc", "http://127.0.0.1", "a\n", "É"]
)
def test_a_target_is_a_name(target: str) -> None:
    """A call can hold neither an address nor a path."""
    raw = encode(a_call(1)).replace(b'"llama"', msgspec.json.encode(target))

    with pytest.raises(LinkFault, match="wrong_type"):
        parse(raw)


@given(raw=st.binary(max_size=300))
def test_any_bytes_are_a_message_or_a_fault(raw: bytes) -> None:
    """Nothing else is raised, and what is read is written the same way."""
    try:
        message, payload = parse(raw)
    except LinkFault:
        return
    assert encode(message, payload) == raw


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(
    kind=st.sampled_from(sorted(MESSAGES)),
    members=st.dictionaries(
        st.sampled_from(
            sorted({name for kind in MESSAGES.values() for name in kind.__struct_fields__})
        ),
        JSON,
    ),
)
def test_nearly_right_headers_are_a_message_or_a_fault(kind: str, members: dict[str, Any]) -> None:
    """Headers of known types with members of any value never crash the reader."""
    raw = msgspec.json.encode({"type": kind, **members}) + b"\n"
    try:
        message, payload = parse(raw)
    except LinkFault:
        return
    assert encode(message, payload) == raw


def test_a_credential_is_not_shown() -> None:
    """The text form of a rotation, as it may end up in a log, does not hold the credential."""
    assert "fake" not in repr(Rotate(credential="obviously-fake-credential"))
