"""URLs and headers as bytes, and what is refused before anything is sent."""

from __future__ import annotations

import pytest

from everyturn.errors import InvalidValue
from everyturn.transport.proxy import ProxySettings
from everyturn.transport.target import Target, encode_head, parse_target
from everyturn.wire.preset import CONNECTION_HEADERS

DIRECT = ProxySettings({})


def a_target(url: str, method: str = "POST") -> Target:
    """A target without a proxy."""
    return parse_target(method, url, DIRECT)


def encode_one(name: str, value: str) -> None:
    """A head with one header, once as one of many calls and once as one of this call."""
    target = a_target("http://a.test/")
    common = encode_head(target, ((name, value),), 0)
    assert encode_head(target, (), 0, ((name, value),)) == common


@pytest.mark.parametrize(
    "url, line, host, origin",
    [
        ("https://api.test/v1/x", "POST /v1/x HTTP/1.1", "api.test", ("https", "api.test", 443)),
        ("HTTP://API.Test", "POST / HTTP/1.1", "api.test", ("http", "api.test", 80)),
        ("http://a.test:80/", "POST / HTTP/1.1", "a.test", ("http", "a.test", 80)),
        ("http://a.test:443/", "POST / HTTP/1.1", "a.test:443", ("http", "a.test", 443)),
        ("https://a.test?q=1%20&b", "POST /?q=1%20&b HTTP/1.1", "a.test", ("https", "a.test", 443)),
        ("http://[::1]:8080/x", "POST /x HTTP/1.1", "[::1]:8080", ("http", "::1", 8080)),
        ("http://127.0.0.1/x?", "POST /x? HTTP/1.1", "127.0.0.1", ("http", "127.0.0.1", 80)),
        ("http://a_b.test./", "POST / HTTP/1.1", "a_b.test.", ("http", "a_b.test.", 80)),
    ],
)  # fmt: skip
def test_a_url_becomes_a_request_line_and_an_origin(
    url: str, line: str, host: str, origin: tuple[str, str, int]
) -> None:
    """Path and query stand as given, the host in lower case, the default port is left out."""
    target = a_target(url)

    assert target.prefix.decode() == f"{line}\r\nhost: {host}\r\naccept-encoding: identity\r\n"
    assert (target.origin.scheme, target.origin.host, target.origin.port) == origin


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.test/v1",
        "ftp://api.test/",
        "//api.test/",
        "http://",
        "http:///v1",
        "http://sk-secret@api.test/",
        "http://user:sk-secret@api.test/",
        "http://api.test/#sk-secret",
        "http://api.test/a b",
        "http://api.test/\r\nsk-secret: 1",
        "http://api.test/ü",
        "http://bücher.test/",
        "http://api.test\\sk-secret/",
        "http://api.test:/",
        "http://api.test:0/",
        "http://api.test:65536/",
        "http://api.test:８０/",
        "http://api..test/",
        "http://.api.test/",
        f"http://{'a' * 64}.test/",
        "http://[::1/",
        "http://[sk-secret]/",
    ],
)
def test_a_url_that_cannot_be_sent_is_refused(url: str) -> None:
    """Anything but plain http or https in visible ASCII, and the message does not repeat it."""
    with pytest.raises(InvalidValue) as failure:
        a_target(url)

    assert "sk-secret" not in str(failure.value.envelope())


@pytest.mark.parametrize("method", ["", "PO ST", "POST\r\nx: y", "HEAD", "CONNECT", "PÖST"])
def test_a_method_that_cannot_be_sent_is_refused(method: str) -> None:
    """No token, or a method whose answers have another framing."""
    with pytest.raises(InvalidValue):
        a_target("http://api.test/", method)


def test_the_head_holds_all_lines_in_order() -> None:
    """The transport's own lines, the request's in their order, and the length."""
    head = encode_head(
        a_target("http://a.test/x"), (("x-b", "2"), ("X-A", " é\t")), 12, (("x-b", ""),)
    )

    assert head == (
        b"POST /x HTTP/1.1\r\nhost: a.test\r\naccept-encoding: identity\r\n"
        b"x-b: 2\r\nX-A:  \xe9\t\r\nx-b: \r\ncontent-length: 12\r\n\r\n"
    )


@pytest.mark.parametrize(
    "method, size, has_length",
    [
        ("GET", 0, False),
        ("DELETE", 0, False),
        ("GET", 1, True),
        ("POST", 0, True),
        ("PUT", 0, True),
    ],
)
def test_a_length_is_told_where_a_body_is_expected(
    method: str, size: int, has_length: bool
) -> None:
    """A request without a body says so only where its method would have one."""
    head = encode_head(a_target("http://a.test/", method), (), size)

    assert (b"content-length: %d\r\n" % size in head) is has_length
    assert head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("name", sorted(CONNECTION_HEADERS))
def test_the_transports_own_headers_are_refused(name: str) -> None:
    """In any case of letters."""
    with pytest.raises(InvalidValue, match=f"`{name}`"):
        encode_one(name.title(), "x")


@pytest.mark.parametrize(
    "value", ["sk-secret\n", "\rsk-secret", "sk\x00secret", "\x7f", "\u2028", "\x1f"]
)
def test_a_value_that_ends_a_line_is_refused_without_being_told(value: str) -> None:
    """The failure names the header only."""
    with pytest.raises(InvalidValue, match="`authorization`") as failure:
        encode_one("Authorization", value)
    with pytest.raises(InvalidValue, match="`authorization`"):
        encode_head(a_target("http://a.test/"), (), 0, (("x", "y"), ("Authorization", value)))

    assert "secret" not in str(failure.value.envelope())
    assert "secret" not in repr(failure.value)


@pytest.mark.parametrize("name", ["", "x y", "x:", "x\r\ny", "é", "x\x00", "(x)", "x\n"])
def test_a_name_that_is_no_token_is_refused(name: str) -> None:
    """Only the characters that HTTP allows in a name."""
    with pytest.raises(InvalidValue):
        encode_one(name, "x")


def test_an_ipv6_origin_is_bracketed_for_a_tunnel() -> None:
    """Host and port stay apart."""
    assert a_target("https://[::1]/").origin.authority == "[::1]:443"
    assert a_target("https://a.test:8443/").origin.authority == "a.test:8443"


def test_an_http_target_behind_a_proxy_is_named_in_full() -> None:
    """Absolute form, with the proxy's credentials; an https target keeps its own form."""
    proxies = ProxySettings({"all_proxy": "http://u:p%40ss@proxy.test:3128"})

    assert parse_target("POST", "http://a.test:81/x?y", proxies).prefix == (
        b"POST http://a.test:81/x?y HTTP/1.1\r\nhost: a.test:81\r\naccept-encoding: identity\r\n"
        b"proxy-authorization: Basic dTpwQHNz\r\n"
    )
    assert parse_target("POST", "https://a.test/x", proxies).prefix == (
        b"POST /x HTTP/1.1\r\nhost: a.test\r\naccept-encoding: identity\r\n"
    )
