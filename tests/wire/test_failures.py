from __future__ import annotations

import json
from typing import Any

import pytest

from everyturn.errors import Failure, UpstreamError, UpstreamRejected
from everyturn.wire.dialects.failures import line_failure, reported_failure, status_failure


def status(code: int, body: Any, **options: Any) -> Failure:
    """The failure of an answer with this status and body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return status_failure(code, data, **options)


def reported(tree: Any) -> Failure:
    """The failure that a good status's body reports."""
    failure = reported_failure(tree)
    assert failure is not None
    return failure


# ------------------------------------------------------------------ an error status


def test_a_provider_that_refuses() -> None:
    """A 4xx comes back with its own status; what the provider said stands, its code beside ours."""
    failure = status(
        422, {"error": {"message": "m", "type": "t", "param": "p", "code": "c", "x": 1}, "id": 7}
    )

    assert isinstance(failure, UpstreamRejected)
    assert failure.status == 422
    envelope = failure.envelope()
    assert envelope["id"] == 7
    assert envelope["error"]["hint"] == failure.hint
    assert {k: v for k, v in envelope["error"].items() if k != "hint"} == {
        "message": "m",
        "type": "t",
        "param": "p",
        "code": "upstream_rejected",
        "upstream_code": "c",
        "x": 1,
    }


@pytest.mark.parametrize("code", [500, 503, 301, 600])
def test_a_provider_that_fails(code: int) -> None:
    """Any other status is an error of the provider, answered with 502."""
    failure = status(code, {"error": {"message": "m"}})

    assert isinstance(failure, UpstreamError)
    assert (failure.status, failure.extra) == (502, {"message": "m"})


@pytest.mark.parametrize("code", [401, 403])
def test_refused_credentials_are_the_operators_business(code: int) -> None:
    """A 401 or 403 of the provider says nothing of what it said: it may name the key."""
    failure = status(code, {"error": {"message": "Incorrect API key: sk-test-FAKE"}, "x": "FAKE"})

    assert isinstance(failure, UpstreamError)
    assert failure.status == 502
    assert "FAKE" not in json.dumps(failure.envelope())
    assert "api_key_env" in failure.hint


def test_how_long_to_wait() -> None:
    """What the provider says of waiting is in the failure."""
    assert status(429, {}, retry_after_ms=1500).retry_after_ms == 1500
    assert status(503, {}, retry_after_ms=0).retry_after_ms == 0
    assert status(429, {}).type == "rate_limit_error"


@pytest.mark.parametrize(
    "body", [b"<html>502 Bad Gateway</html>", b"", b"\xff", b"[]", b'"x"', b"1"]
)
def test_a_body_that_says_nothing(body: bytes) -> None:
    """A body that holds no error leaves the status alone to tell."""
    failure = status(502, body)

    assert failure.message == "the provider answered with status 502"
    assert (failure.extra, failure.frame_extra) == ({}, {})


def test_a_large_payload_in_an_error() -> None:
    """B40: an echoed request stands in the provider's own message, and in no word of ours."""
    echoed = f"invalid image: data:image/png;base64,{'A' * 100_000}"

    failure = status(400, {"error": {"message": echoed}})

    assert failure.error_object()["message"] == echoed
    assert "AAAA" not in failure.message + failure.hint


# ------------------------------------------------------------------ shapes


@pytest.mark.parametrize(
    ("tree", "extra", "beside"),
    [
        ({"error": {"message": "m"}}, {"message": "m"}, {}),
        ({"error": "text"}, {"message": "text"}, {}),
        ({"error": "text", "code": "c"}, {"message": "text", "upstream_code": "c"}, {}),
        ([{"error": {"code": 400, "message": "m"}}], {"message": "m", "upstream_code": 400}, {}),
        (
            {"code": 20015, "message": "m", "data": None},
            {"message": "m", "upstream_code": 20015, "data": None},
            {},
        ),
        (
            {"object": "error", "message": "m", "type": "t"},
            {"object": "error", "message": "m", "type": "t"},
            {},
        ),
        ({"detail": "m"}, {"detail": "m", "message": "m"}, {}),
        (
            {"error": {"message": ["m"]}},
            {"message": "the provider sent an error", "upstream_message": ["m"]},
            {},
        ),
        (
            {"detail": [{"loc": 1}]},
            {
                "detail": [{"loc": 1}],
                "message": "the provider sent an error",
                "upstream_message": [{"loc": 1}],
            },
            {},
        ),
        (
            {"error": {"hint": "h", "code": "c"}, "usage": {"n": 1}},
            {
                "upstream_hint": "h",
                "upstream_code": "c",
                "message": "the provider sent an error",
            },
            {"usage": {"n": 1}},
        ),
        (
            {"error": 5},
            {"message": "the provider sent an error", "upstream_message": 5},
            {},
        ),
    ],
)
def test_each_shape_of_an_error(tree: Any, extra: Any, beside: Any) -> None:
    """An error is read in all the shapes it comes in, and nothing of it is lost."""
    failure = reported(tree)

    assert failure.extra == extra
    assert failure.frame_extra == beside


@pytest.mark.parametrize(
    "tree",
    [
        {"choices": []},
        {"choices": [{}], "error": None},
        {"choices": [{}], "error": {}},
        {"choices": [], "message": "m", "code": 1},
        {"message": "m"},
        {"id": "x"},
        [],
        [1],
        "text",
        None,
    ],
)
def test_what_is_no_error(tree: Any) -> None:
    """An empty error is none, and an answer with choices may have any other key."""
    assert reported_failure(tree) is None


@pytest.mark.parametrize(
    ("tree", "kind", "code"),
    [
        ({"error": {"code": 400}}, UpstreamRejected, 400),
        ({"error": {"code": "429"}}, UpstreamRejected, 429),
        ({"error": {"status_code": 503}}, UpstreamError, 503),
        ({"error": {"code": "tool_use_failed", "status_code": 400}}, UpstreamRejected, 400),
        ({"error": "x", "status_code": 404}, UpstreamRejected, 404),
        ({"error": {"status": 599}}, UpstreamError, 599),
        ({"error": {"code": 200}}, UpstreamError, 502),
        ({"error": {"code": 600}}, UpstreamError, 502),
        ({"error": {"code": True}}, UpstreamError, 502),
        ({"error": {"code": "٤٠٠"}}, UpstreamError, 502),
        ({"error": {"code": "4000"}}, UpstreamError, 502),
        ({"error": {"status": "INVALID_ARGUMENT"}}, UpstreamError, 502),
    ],
)
def test_the_status_of_an_error_with_a_good_status(
    tree: Any, kind: type[Failure], code: int
) -> None:
    """B24: the error's own code is the status if it is one of 400 to 599, else 502."""
    failure = reported(tree)

    assert type(failure) is kind
    assert failure.status == code


@pytest.mark.parametrize("code", [401, 403, "401"])
def test_refused_credentials_with_a_good_status(code: Any) -> None:
    """A refusal of the operator's key is hidden wherever it is told."""
    failure = reported({"error": {"code": code, "message": "key sk-test-FAKE"}, "x": "FAKE"})

    assert isinstance(failure, UpstreamError)
    assert "FAKE" not in json.dumps(failure.envelope())


# ------------------------------------------------------------------ an error line


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b'{"error":{"message":"m"}}', "m"),
        (b'{"message":"m"}', "m"),
        (b'"m"', "m"),
        (b"m", "m"),
        (b"", "the provider sent an error"),
        (b"null", "the provider sent an error"),
        (b"\xff", "\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_an_error_line(value: bytes, message: str) -> None:
    """An `error:` line is an error whatever it holds."""
    assert line_failure(value).extra["message"] == message
