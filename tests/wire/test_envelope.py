"""The ids that a request carries in its body."""

from __future__ import annotations

from typing import Any

import pytest

from everyturn.errors import Failure, InvalidValue, UnknownParameter
from everyturn.wire.envelope import Envelope, take_envelope
from everyturn.wire.request import parse_chat_request

TURN = "7d5d2c80-6b1f-4c8e-9d5e-2f4d1c1b0a99"
TRACE = "0123456789abcdef0123456789abcdef"
IDS = {"turn_id": TURN, "trace_id": TRACE, "request_id": "order:7/a"}


def test_the_envelope_is_read_and_taken_out() -> None:
    """The ids are in the request, and the body that is sent on holds no trace of them."""
    text = b'{"model":"m","messages":[{"role":"user","content":"q"}],"everyturn":{"turn_id":"%b"}}'

    request = parse_chat_request(text % TURN.encode())

    assert request.envelope == Envelope(turn_id=TURN)
    assert list(request.body) == ["model", "messages"]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({}, None),
        ({"everyturn": {}}, Envelope()),
        ({"everyturn": IDS}, Envelope(**IDS)),
        ({"everyturn": dict.fromkeys(IDS)}, Envelope()),
    ],
)
def test_what_is_absent_or_null_is_none(given: dict[str, Any], read: Envelope | None) -> None:
    """Each id may be left out; without the key there is no envelope."""
    assert take_envelope(given) == read
    assert given == {}


REFUSED: list[tuple[Any, str]] = [
    (None, "everyturn"),
    ([], "everyturn"),
    ("x", "everyturn"),
    ({"turn_id": TURN.upper()}, "everyturn.turn_id"),
    ({"turn_id": 7}, "everyturn.turn_id"),
    ({"turn_id": ""}, "everyturn.turn_id"),
    ({"trace_id": "0" * 32}, "everyturn.trace_id"),
    ({"trace_id": TRACE[:-1]}, "everyturn.trace_id"),
    ({"trace_id": TRACE.upper()}, "everyturn.trace_id"),
    ({"request_id": "a b"}, "everyturn.request_id"),
    ({"request_id": "a" * 129}, "everyturn.request_id"),
    ({"request_id": "a\n"}, "everyturn.request_id"),
]


@pytest.mark.parametrize(("value", "path"), REFUSED)
def test_what_is_no_envelope_is_refused(value: Any, path: str) -> None:
    """It is ours, so it is never repaired: the path is named, the value is not."""
    with pytest.raises(InvalidValue) as failure:
        take_envelope({"everyturn": value})

    assert failure.value.param == path
    assert TRACE[:-1] not in str(failure.value)


def test_an_unknown_member_is_refused() -> None:
    """The envelope's keys are closed; what would be lost is refused."""
    with pytest.raises(Failure) as failure:
        take_envelope({"everyturn": {"span_id": "1"}})

    assert isinstance(failure.value, UnknownParameter)
    assert failure.value.param == "everyturn.span_id"
