"""Which proxy, if any, stands between the gateway and a provider.

Pure: the environment comes in as a mapping. The variables are those of curl:

- `https_proxy`, `HTTPS_PROXY`, then `all_proxy`, `ALL_PROXY` for `https` targets,
- `http_proxy`, then `all_proxy`, `ALL_PROXY` for `http` targets. `HTTP_PROXY` in upper case is not
  read: under CGI it is a request header that a stranger may set (CVE-2016-5385).
- `no_proxy`, `NO_PROXY`: targets that are reached directly.

An empty variable counts as absent. Loopback targets (`localhost`, names under it, `127.0.0.0/8`,
`::1`) are never sent through a proxy: there they would mean another machine. No variable changes
that. Differing from curl, `NO_PROXY` entries may carry a port.
Source: curl(1), "ENVIRONMENT".
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import unquote

from everyturn.errors import UpstreamUnreachable

HOST_PATTERN: Final = r"\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z_](?:[0-9A-Za-z._-]*[0-9A-Za-z._])?"
_PROXY_URL: Final = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?(?:(?P<userinfo>[!-~]*)@)?"
    rf"(?P<host>{HOST_PATTERN})(?::(?P<port>[0-9]{{1,5}}))?/?"
)
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_VARIABLES: Final = {
    "https": ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
    "http": ("http_proxy", "all_proxy", "ALL_PROXY"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """An HTTP proxy."""

    scheme: str
    """How the proxy itself is spoken to: `http` or `https`."""
    host: str
    port: int
    authorization: str | None = field(default=None, repr=False)
    """The value of `proxy-authorization`, a secret; None without credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exemption:
    """One entry of `NO_PROXY`."""

    name: str | None
    """A host name that also stands for all names under it; None for an address or `*`."""
    network: IPv4Network | IPv6Network | None
    """Addresses; None for a name or `*`."""
    port: int | None
    """The only port it holds for; None for every port."""

    def covers(self, host: str, address: IPv4Address | IPv6Address | None, *, port: int) -> bool:
        """Whether this entry exempts the target. `address` is `host` where that is an address."""
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            return address is not None and address in self.network
        if self.name is None:
            return True
        return host == self.name or host.endswith("." + self.name)


class ProxySettings:
    """The proxies of an environment."""

    __slots__ = ("_exemptions", "_urls")

    def __init__(self, environment: Mapping[str, str]) -> None:
        """environment: variable names and values; all others than those named above are ignored.

        Raises nothing: a proxy that cannot be used fails the calls that need it, not the rest.
        """
        self._urls = {
            scheme: next(
                ((name, environment[name]) for name in names if environment.get(name)), None
            )
            for scheme, names in _VARIABLES.items()
        }
        exempt = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
        self._exemptions = tuple(
            parse_exemption(entry) for entry in exempt.replace(",", " ").lower().split()
        )

    def route(self, scheme: str, host: str, port: int) -> Proxy | None:
        """The proxy for a target, None to reach it directly.

        host: in lower case, an IPv6 address without brackets.
        Raises UpstreamUnreachable if the variable that holds for the target names no usable
        proxy: going around it instead could pass a boundary somebody meant.
        """
        setting = self._urls[scheme]
        if setting is None:
            return None
        name = host.rstrip(".")
        address = as_address(name)
        if is_loopback(name, address):
            return None
        if any(entry.covers(name, address, port=port) for entry in self._exemptions):
            return None
        variable, url = setting
        return parse_proxy(variable, url)


def parse_proxy(variable: str, url: str) -> Proxy:
    """The proxy that `url`, the value of `variable`, names. Without a scheme it is `http`.

    Raises UpstreamUnreachable without any part of the URL, which may hold a password.
    """
    parts = _PROXY_URL.fullmatch(url)
    scheme = (parts["scheme"] or "http").lower() if parts else ""
    host = parts["host"].lower().strip("[]") if parts else ""
    port = int(parts["port"] or DEFAULT_PORTS.get(scheme, 0)) if parts else 0
    if parts is None or scheme not in DEFAULT_PORTS or not is_possible(host, port):
        raise UpstreamUnreachable(
            f"The proxy setting cannot be used: `{variable}`",
            hint="Give it as `http://[user:password@]host:port` or `https://…`, or unset it.",
        )
    authorization = None
    if parts["userinfo"] is not None:
        user, _, password = parts["userinfo"].partition(":")
        credentials = f"{unquote(user)}:{unquote(password)}".encode()
        authorization = "Basic " + base64.b64encode(credentials).decode("ascii")
    return Proxy(
        scheme=scheme,
        host=host,
        port=port,
        authorization=authorization,
    )


def is_possible(host: str, port: int) -> bool:
    """Whether a connection to `host` and `port` can be tried at all (RFC 1035 section 2.3.4)."""
    labels = host.removesuffix(".").split(".")
    return 0 < port < 65536 and all(0 < len(label) < 64 for label in labels)


def parse_exemption(entry: str) -> Exemption:
    """One entry of `NO_PROXY`, in lower case: `*`, a name, an address, a network, each with port.

    `.example.org`, `*.example.org` and `example.org` mean the same. An entry that is none of these
    is taken as a name, which then matches nothing.
    """
    port: int | None = None
    bracketed = re.fullmatch(r"\[([0-9a-f:.]+)\](?::([0-9]{1,5}))?", entry)
    if bracketed:
        entry, port = bracketed[1], int(bracketed[2]) if bracketed[2] else None
    elif (named := re.fullmatch(r"([^:]+):([0-9]{1,5})", entry)) is not None:
        entry, port = named[1], int(named[2])
    if entry == "*":
        return Exemption(name=None, network=None, port=port)
    try:
        return Exemption(name=None, network=ip_network(entry, strict=False), port=port)
    except ValueError:
        name = entry.removeprefix("*").strip(".")
        return Exemption(name=name, network=None, port=port)


def as_address(host: str) -> IPv4Address | IPv6Address | None:
    """`host` as an address, an IPv4 one for the IPv6 form of it; None where it is a name."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_loopback(host: str, address: IPv4Address | IPv6Address | None) -> bool:
    """Whether the target is this machine itself, by address or by the names RFC 6761 reserves."""
    if address is not None:
        return address.is_loopback
    return host == "localhost" or host.endswith(".localhost")
