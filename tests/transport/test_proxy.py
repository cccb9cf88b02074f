"""Which proxy the environment names for a target."""

from __future__ import annotations

import pytest

from everyturn.errors import UpstreamUnreachable
from everyturn.transport.proxy import Proxy, ProxySettings

P = "http://proxy.test:3128"


def routed(environment: dict[str, str], scheme: str, host: str, port: int = 443) -> Proxy | None:
    """The proxy for a target."""
    return ProxySettings(environment).route(scheme, host, port)


@pytest.mark.parametrize(
    "environment, scheme, proxied",
    [
        ({}, "https", False),
        ({"HTTPS_PROXY": P}, "https", True),
        ({"https_proxy": P}, "https", True),
        ({"HTTPS_PROXY": P}, "http", False),
        ({"http_proxy": P}, "http", True),
        ({"http_proxy": P}, "https", False),
        ({"HTTP_PROXY": P}, "http", False),
        ({"ALL_PROXY": P}, "http", True),
        ({"all_proxy": P}, "https", True),
        ({"https_proxy": "", "ALL_PROXY": ""}, "https", False),
        ({"https_proxy": "", "HTTPS_PROXY": P}, "https", True),
    ],
)
def test_the_variable_follows_the_scheme(
    environment: dict[str, str], scheme: str, proxied: bool
) -> None:
    """As curl reads them; `HTTP_PROXY` in upper case is never read."""
    assert (routed(environment, scheme, "api.test") is not None) is proxied


@pytest.mark.parametrize(
    "environment",
    [
        {"https_proxy": P, "HTTPS_PROXY": "http://other.test"},
        {"HTTPS_PROXY": P, "ALL_PROXY": "http://other.test"},
        {"all_proxy": P, "ALL_PROXY": "http://other.test"},
    ],
)
def test_the_more_special_variable_wins(environment: dict[str, str]) -> None:
    """Lower case before upper case, the scheme's own before the one for all."""
    proxy = routed(environment, "https", "api.test")

    assert proxy is not None
    assert proxy.host == "proxy.test"


@pytest.mark.parametrize(
    "url, expected",
    [
        ("proxy.test", ("http", "proxy.test", 80, None)),
        ("proxy.test:8080", ("http", "proxy.test", 8080, None)),
        ("https://Proxy.Test/", ("https", "proxy.test", 443, None)),
        ("http://[::1]:3128", ("http", "::1", 3128, None)),
        ("http://u:p@proxy.test", ("http", "proxy.test", 80, "Basic dTpw")),
        ("u@proxy.test:1", ("http", "proxy.test", 1, "Basic dTo=")),
        ("http://%75:p%3A%40@proxy.test", ("http", "proxy.test", 80, "Basic dTpwOkA=")),
        ("http://u:p@ss@proxy.test", ("http", "proxy.test", 80, "Basic dTpwQHNz")),
    ],
)
def test_a_proxy_is_read_from_its_url(url: str, expected: tuple[str, str, int, str | None]) -> None:
    """Scheme and port have defaults; user and password are decoded."""
    proxy = routed({"https_proxy": url}, "https", "api.test")

    assert proxy is not None
    assert (proxy.scheme, proxy.host, proxy.port, proxy.authorization) == expected
    assert "Basic" not in repr(proxy)


@pytest.mark.parametrize(
    "url",
    [
        "socks5://user:secret@proxy.test",
        "http://user:secret@",
        "http://user:secret@proxy.test:0",
        "http://user:secret@proxy.test:99999",
        "http://user:secret@pro xy.test",
        "http://user:secret@a..test",
        "http://user:sécret@proxy.test",
        "http://proxy.test/secret",
    ],
)
def test_a_proxy_that_cannot_be_used_fails_closed(url: str) -> None:
    """The call fails rather than going around the proxy, and no part of the URL is told."""
    settings = ProxySettings({"https_proxy": url})

    with pytest.raises(UpstreamUnreachable, match="`https_proxy`") as failure:
        settings.route("https", "api.test", 443)
    assert "ecret" not in str(failure.value.envelope())
    assert settings.route("http", "api.test", 80) is None
    assert settings.route("https", "localhost", 443) is None


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost.", "vllm.localhost"),
        *("127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"),
    ],
)
@pytest.mark.parametrize("no_proxy", ["", "api.test"])
def test_loopback_is_never_behind_a_proxy(host: str, no_proxy: str) -> None:
    """Whatever the variables say."""
    assert routed({"all_proxy": P, "no_proxy": no_proxy}, "http", host, 8000) is None


@pytest.mark.parametrize(
    "no_proxy, host, port, is_exempt",
    [
        ("*", "api.test", 443, True),
        ("api.test", "api.test", 443, True),
        ("API.Test", "api.test", 443, True),
        ("test", "api.test", 443, True),
        (".test", "api.test", 443, True),
        ("*.test", "api.test", 443, True),
        (".api.test", "api.test", 443, True),
        ("pi.test", "api.test", 443, False),
        ("api.test", "evilapi.test", 443, False),
        ("api.test", "api.test.evil", 443, False),
        ("api.test", "api.test.", 443, True),
        ("a.test, api.test", "api.test", 443, True),
        ("a.test api.test,", "api.test", 443, True),
        ("api.test:443", "api.test", 443, True),
        ("api.test:8443", "api.test", 443, False),
        ("*:8443", "api.test", 443, False),
        ("10.1.2.3", "10.1.2.3", 443, True),
        ("10.1.2.3", "10.1.2.4", 443, False),
        ("10.1.2.3:80", "10.1.2.3", 443, False),
        ("10.0.0.0/8", "10.1.2.3", 443, True),
        ("10.1.2.3/8", "10.9.9.9", 443, True),
        ("10.0.0.0/8", "11.1.2.3", 443, False),
        ("10.0.0.0/8", "api.test", 443, False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", 443, True),
        ("10.0.0.0/8", "fd00::1", 443, False),
        ("fd00::/8", "fd00::1", 443, True),
        ("fd00::1", "fd00:0::1", 443, True),
        ("[fd00::1]:443", "fd00::1", 443, True),
        ("[fd00::1]:80", "fd00::1", 443, False),
        ("[fd00::1]", "fd00::1", 443, True),
        ("10.0.0.0/99", "10.1.2.3", 443, False),
        (".", "api.test", 443, False),
        ("", "api.test", 443, False),
    ],
)
def test_no_proxy_names_what_is_reached_directly(
    no_proxy: str, host: str, port: int, is_exempt: bool
) -> None:
    """Names with everything under them, addresses, networks and `*`, each with a port if wanted."""
    for variable in ("no_proxy", "NO_PROXY"):
        proxy = routed({"https_proxy": P, variable: no_proxy}, "https", host, port)
        assert (proxy is None) is is_exempt
