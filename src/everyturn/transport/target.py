"""What is sent to a provider, as bytes: URL and headers become the head of one HTTP/1.1 request.

Pure. Everything is checked before a byte leaves: a URL, method or header that could end a line or
a request early, or that would speak for the transport, is refused with `InvalidValue`. Messages
name the header, never its value.
Source: RFC 9110 section 5.1 and 5.5 (tokens and field values), RFC 9112 section 3.2 (targets).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from everyturn.errors import InvalidValue
from everyturn.transport.proxy import (
    DEFAULT_PORTS,
    HOST_PATTERN,
    Proxy,
    ProxySettings,
    is_possible,
)
from everyturn.transport.response import NAMES_MAX
from everyturn.wire.preset import CONNECTION_HEADERS, HEADER_NAME

_URL: Final = re.compile(
    rf"(?P<scheme>https?)://(?P<host>{HOST_PATTERN})"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>/[!\"$-~]*)?(?P<query>\?[!\"$-~]*)?",
    re.IGNORECASE,
)
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_CONTROLS: Final = bytes(code for code in range(128) if not _VALUE.fullmatch(chr(code)))

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a connection leads; connections of one origin are interchangeable."""

    scheme: str
    host: str
    """In lower case; an IPv6 address without brackets."""
    port: int
    proxy: Proxy | None
    """The proxy that stands between, None for a direct connection."""

    @property
    def authority(self) -> str:
        """Host and port as a `CONNECT` request names them."""
        return f"{bracketed(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One method and URL: the origin, and the part of the request head that never changes."""

    origin: Origin
    prefix: bytes
    """Request line and the transport's own headers, each with its line end."""


def parse_target(method: str, url: str, proxies: ProxySettings) -> Target:
    """The target of `method` and `url`, by way of the proxy that the settings name for it.

    Raises InvalidValue for a URL that is not plain `http` or `https` with host, path and query in
    visible ASCII (credentials and fragments are refused), and for a method that is no token or
    whose answers are framed differently (`HEAD`, `CONNECT`); UpstreamUnreachable for a proxy that
    cannot be used.
    """
    if not HEADER_NAME.fullmatch(method) or method in ("HEAD", "CONNECT"):
        raise InvalidValue("The method cannot be sent to a provider.", param="method")
    parts = _URL.fullmatch(url)
    if parts is None:
        raise InvalidValue(
            "The provider's URL is not `http(s)://host[:port]/path?query` in visible ASCII.",
            param="base_url",
            hint="Give the URL percent-encoded, without credentials and without a fragment.",
        )
    scheme = parts["scheme"].lower()
    host = parts["host"].lower().strip("[]")
    port = int(parts["port"]) if parts["port"] else DEFAULT_PORTS[scheme]
    if not is_possible(host, port):
        raise InvalidValue(
            "The host or the port of the provider's URL is impossible.",
            param="base_url",
            hint="Correct the URL.",
        )
    proxy = proxies.route(scheme, host, port)
    origin = Origin(scheme=scheme, host=host, port=port, proxy=proxy)
    named = bracketed(host) if port == DEFAULT_PORTS[scheme] else origin.authority
    path = (parts["path"] or "/") + (parts["query"] or "")
    lines = [f"{method} {path} HTTP/1.1", f"host: {named}", "accept-encoding: identity"]
    if proxy is not None and scheme == "http":
        lines[0] = f"{method} {scheme}://{named}{path} HTTP/1.1"
        if proxy.authorization is not None:
            lines.append(f"proxy-authorization: {proxy.authorization}")
    return Target(origin=origin, prefix="".join(f"{line}\r\n" for line in lines).encode("ascii"))


def encode_head(target: Target, headers: Headers, body_bytes: int, further: Headers = ()) -> bytes:
    """The whole request head for a body of `body_bytes` bytes.

    headers: those that calls have in common; their lines are kept. further: those of this call.
    Raises InvalidValue: for a name that is no token or is the transport's own, and for a value
    with a line end, another control character or one outside Latin-1. A request without a body gets
    no `content-length` where its method expects none.
    """
    parts = [target.prefix, _kept_lines(headers), header_lines(further)]
    if body_bytes or not target.prefix.startswith((b"GET ", b"DELETE ", b"OPTIONS ")):
        parts.append(b"content-length: %d\r\n\r\n" % body_bytes)
    else:
        parts.append(b"\r\n")
    return b"".join(parts)


def header_lines(headers: Headers) -> bytes:
    """Headers as they go over the wire. Raises InvalidValue."""
    parts: list[str] = []
    is_plain = True
    for name, value in headers:
        parts.append(_LINE_STARTS.get(name) or _line_start(name))
        parts.append(value)
        parts.append("\r\n")
        is_plain = is_plain and value.isascii() and value.isprintable()
    text = "".join(parts)
    if is_plain:
        return text.encode()
    try:
        lines = text.encode("latin-1")
    except UnicodeEncodeError:
        raise _unsendable(headers) from None
    # The only control characters are the line ends that we put.
    if len(lines.translate(None, _CONTROLS)) != len(lines) - 2 * len(headers):
        raise _unsendable(headers)
    return lines


_kept_lines: Final = lru_cache(maxsize=256)(header_lines)


_LINE_STARTS: Final[dict[str, str]] = {}
"""Lines of headers up to their values, for every request has the same few; at most NAMES_MAX."""


def _line_start(name: str) -> str:
    """A header's line up to its value, from now on in _LINE_STARTS.

    Raises InvalidValue for a name that is no token or is the transport's own.
    """
    if not HEADER_NAME.fullmatch(name):
        raise InvalidValue("A header's name is not an HTTP token.", param="headers")
    if name.lower() in CONNECTION_HEADERS:
        raise InvalidValue(
            f"A header belongs to the connection and cannot be set: `{name.lower()}`",
            param="headers",
            hint="Remove the header; the transport sends its own.",
        )
    if len(_LINE_STARTS) >= NAMES_MAX:
        _LINE_STARTS.clear()
    start = _LINE_STARTS[name] = f"{name}: "
    return start


def _unsendable(headers: Headers) -> InvalidValue:
    """The failure for headers of which one's value cannot be sent."""
    name = next(name for name, value in headers if not _VALUE.fullmatch(value))
    return InvalidValue(
        f"A header's value holds a line end or another character that cannot be sent: "
        f"`{name.lower()}`",
        param="headers",
        hint="Look where the value comes from: a key variable often ends in a line end.",
    )


def bracketed(host: str) -> str:
    """`host` as it stands in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
