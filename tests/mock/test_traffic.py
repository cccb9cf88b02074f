"""What was seen is bounded, and says what it is."""

from __future__ import annotations

import pytest

from everyturn.mock import ClientAbort, SeenRequest
from everyturn.mock.traffic import KEPT_BYTES_MAX, KEPT_REQUESTS_MAX, Traffic


def seen(body: bytes) -> SeenRequest:
    """A request with this body."""
    return SeenRequest(method="POST", target="/", headers=(("X-A", "1"),), body=body)


def test_only_the_newest_requests_are_kept() -> None:
    """Beyond the bound the oldest request is dropped, and the counts say so."""
    traffic = Traffic()
    for number in range(KEPT_REQUESTS_MAX + 3):
        traffic.keep(seen(b"%d" % number))

    kept = traffic.kept()
    assert len(kept) == traffic.stats().requests_kept == KEPT_REQUESTS_MAX
    assert [kept[0].body, kept[-1].body] == [b"3", b"%d" % (KEPT_REQUESTS_MAX + 2)]


def test_kept_bodies_are_bounded_in_bytes() -> None:
    """Large bodies push older requests out; the newest stays whatever its size."""
    traffic, large = Traffic(), bytes(KEPT_BYTES_MAX)
    traffic.keep(seen(b"old"))
    traffic.keep(seen(large))
    assert [len(each.body) for each in traffic.kept()] == [KEPT_BYTES_MAX]

    traffic.keep(seen(b"new"))

    assert [each.body for each in traffic.kept()] == [b"new"]


def test_aborts_are_counted_by_model() -> None:
    """Clients that went away are counted under the model they asked for, or under none."""
    traffic = Traffic()
    for model in ("a", "a", None):
        traffic.client_went(ClientAbort(model=model, scenario=None, bytes_sent=1))

    stats = traffic.stats()
    assert (stats.aborts_of("a"), stats.aborts_of(""), stats.aborts_of("b")) == (2, 1, 0)
    assert stats.as_shown()["client_aborts"] == 3


def test_request_is_read_and_shown() -> None:
    """A request gives its headers and its JSON; bytes that are no text are shown escaped."""
    request = seen(b"[1]")

    assert request.header("x-a") == "1"
    assert request.json() == [1]
    assert seen(b"\xff").as_shown()["body"] == "\udcff"
    with pytest.raises(ValueError):
        seen(b"{").json()
