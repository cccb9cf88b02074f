"""Who may speak to a gateway that has no keys: only this machine, and only on purpose.

Loopback is no protection by itself: a web page in a browser on this machine can send requests to
it, under a name that was made to resolve here (DNS rebinding). So the `Host` must be a loopback
name, an `Origin` must be the gateway's own, and a body must say that it is JSON, which a page of
another site cannot say without being asked first (CORS preflight).
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from everyturn.errors import InvalidValue, NotPermitted


def is_loopback(host: str) -> bool:
    """Whether a host name or address, without port and brackets, means this machine."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(authority: str) -> str:
    """The host of `host[:port]` or `[address][:port]`."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.rpartition(":")[0] if authority.count(":") == 1 else authority


@lru_cache(maxsize=256)
def is_here(authority: str) -> bool:
    """Whether `host[:port]` means this machine."""
    return is_loopback(host_of(authority))


@lru_cache(maxsize=256)
def is_origin_here(origin: str) -> bool:
    """Whether `scheme://host[:port]` means this machine."""
    return is_here(origin.partition("://")[2])


def check_host(host: str | None) -> None:
    """Raises NotPermitted unless the `Host` header is a loopback name."""
    if host is None or not is_here(host):
        raise NotPermitted(
            "the `Host` header does not name this machine",
            param="host",
            hint="Use http://127.0.0.1 or http://localhost as the base URL.",
        )


def check_origin(origin: str | None, host: str | None) -> None:
    """Raises NotPermitted for a request that a page of another site made."""
    if origin is None:
        return
    scheme, separator, authority = origin.partition("://")
    if not separator or scheme not in ("http", "https") or authority != host:
        raise NotPermitted(
            "the `Origin` header is not this gateway's own",
            param="origin",
            hint="Call the gateway from a server or a program, not from a page of another site.",
        )


def check_content_type(content_type: str | None) -> None:
    """Raises InvalidValue unless the body says that it is JSON."""
    if content_type == "application/json":
        return
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise InvalidValue(
            "the content type must be application/json",
            param="content-type",
            hint="Send the header `content-type: application/json`.",
        )
