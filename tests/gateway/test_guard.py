"""Who may speak to a gateway without keys."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from everyturn.errors import InvalidValue, NotPermitted
from everyturn.gateway.guard import check_content_type, check_host, check_origin, is_loopback
from tests.support.gateway import gateway_and_mock


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "::1", "app.localhost"])
def test_loopback_names(host: str) -> None:
    """Names and addresses of this machine are loopback."""
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["example.org", "10.0.0.1", "localhost.example.org", "127.0.0.1.example.org", ""]
)
def test_other_names(host: str) -> None:
    """Names that only look like this machine are not loopback."""
    assert not is_loopback(host)


@pytest.mark.parametrize("host", [None, "example.org", "example.org:8080", "[2001:db8::1]:80"])
def test_foreign_host_is_refused(host: str | None) -> None:
    """A `Host` that does not name this machine is refused: the name was made to resolve here."""
    with pytest.raises(NotPermitted):
        check_host(host)


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "[::1]:8080"])
def test_own_host_passes(host: str) -> None:
    """A loopback `Host` passes with and without a port."""
    check_host(host)


@pytest.mark.parametrize("origin", ["https://example.org", "null", "http://localhost:3000", ""])
def test_foreign_origin_is_refused(origin: str) -> None:
    """A page of another origin, on this machine or not, is refused."""
    with pytest.raises(NotPermitted):
        check_origin(origin, "localhost:8080")


def test_own_origin_passes() -> None:
    """No `Origin`, or the gateway's own, passes."""
    check_origin(None, "localhost:8080")
    check_origin("http://localhost:8080", "localhost:8080")


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_only_json_is_a_body(kind: str | None) -> None:
    """Content types that a page can send without asking first are refused."""
    with pytest.raises(InvalidValue):
        check_content_type(kind)


async def test_guards_answer_before_anything_else(tmp_path: Path) -> None:
    """Host and origin are looked at on every path, and the refusal is typed."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        rebound = await running.client.get("/models", headers={"host": "evil.example"})
        paged = await running.client.post(
            "/chat/completions", json={}, headers={"origin": "https://evil.example"}
        )
        plain = await running.client.post(
            "/chat/completions", content=b"{}", headers={"content-type": "text/plain"}
        )

    assert (rebound.status_code, rebound.json()["error"]["code"]) == (403, "not_permitted")
    assert (paged.status_code, paged.json()["error"]["code"]) == (403, "not_permitted")
    assert (plain.status_code, plain.json()["error"]["code"]) == (400, "invalid_value")
    assert mock.stats().requests == 0


async def test_a_request_that_names_two_hosts_is_refused(tmp_path: Path) -> None:
    """What stands in front of the gateway may have looked at the other one."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        reading, writing = await asyncio.open_connection("127.0.0.1", running.gateway.port)
        writing.write(
            b"GET /v1/models HTTP/1.1\r\nhost: evil.example\r\nhost: 127.0.0.1\r\n"
            b"connection: close\r\n\r\n"
        )
        answer = await asyncio.wait_for(reading.read(), 20)
        writing.close()

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"param":"host"' in answer
