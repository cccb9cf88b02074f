"""Make a connection to an origin: TCP, a proxy's tunnel, TLS.

TLS is always verified; there is no argument, setting or fallback that changes that. Failures are
`UpstreamUnreachable` with the reason in words of our own or constants of the TLS library: never an
address, a host name or a proxy's credentials. Limits in time are the caller's.
Source of `CONNECT`: RFC 9110 section 9.3.6.
"""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final, cast

from everyturn.errors import UpstreamUnreachable
from everyturn.transport.connection import HEAD_BYTES_MAX, Connection
from everyturn.transport.proxy import Proxy
from everyturn.transport.target import Origin

TLS_LIMIT_S: Final = 3600.0
"""Longer than any limit of a call: only the caller's own limit ends a handshake."""

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?\r\n")
_REASONS: Final = {
    errno.ECONNREFUSED: "it refused the connection",
    errno.ECONNRESET: "it reset the connection",
    errno.EHOSTUNREACH: "there is no route to its host",
    errno.ENETUNREACH: "there is no route to its network",
    errno.ETIMEDOUT: "the system gave up waiting for it",
    errno.EMFILE: "this process has no file descriptor left",
    errno.ENFILE: "this machine has no file descriptor left",
    errno.EADDRNOTAVAIL: "this machine has no local port left",
}
HOSTNAME_MISMATCH: Final = 62
IP_ADDRESS_MISMATCH: Final = 64
"""OpenSSL's `X509_V_ERR_*`; their texts name the host."""


class Tunnel(asyncio.Protocol):
    """The first exchange with a proxy: `CONNECT`, and its answer up to the end of the head."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._answered: asyncio.Future[None] = loop.create_future()

    async def open(self, origin: Origin, proxy: Proxy) -> None:
        """Have the proxy connect to `origin`; afterwards the transport leads there.

        Raises UpstreamUnreachable if it does not.
        """
        lines = [f"CONNECT {origin.authority} HTTP/1.1", f"host: {origin.authority}"]
        if proxy.authorization is not None:
            lines.append(f"proxy-authorization: {proxy.authorization}")
        if self._transport is not None:
            self._transport.write("".join(f"{line}\r\n" for line in [*lines, ""]).encode("ascii"))
        await self._answered
        head, end, rest = self._received.partition(b"\r\n\r\n")
        status_line = _STATUS_LINE.match(head + b"\r\n")
        if not end or status_line is None:
            raise UpstreamUnreachable("The proxy did not answer as an HTTP proxy does.")
        if not status_line[1].startswith(b"2"):
            raise proxy_refusal(int(status_line[1]))
        if rest:
            raise UpstreamUnreachable("The proxy sent bytes before it was spoken to.")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected to the proxy."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Part of the proxy's answer."""
        self._received += data
        if b"\r\n\r\n" in self._received or len(self._received) > HEAD_BYTES_MAX:
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's
        """The proxy closed the connection."""
        self._transport = None
        self._end()

    def _end(self) -> None:
        if not self._answered.done():
            self._answered.set_result(None)


async def dial(
    loop: asyncio.AbstractEventLoop,
    origin: Origin,
    connection: Connection,
    tls: Callable[[], ssl.SSLContext],
) -> None:
    """Connect `connection` to `origin`, by way of its proxy if it has one.

    tls: gives the context that verifies certificates; called only where TLS is spoken.
    Raises UpstreamUnreachable. After any exception no socket is left open.
    """
    proxy = origin.proxy
    context = tls() if origin.scheme == "https" else None
    try:
        if proxy is None:
            await loop.create_connection(
                lambda: connection, origin.host, origin.port, **tls_arguments(context, origin.host)
            )
            return
        outer = tls_arguments(tls() if proxy.scheme == "https" else None, proxy.host)
        if context is None:
            await loop.create_connection(lambda: connection, proxy.host, proxy.port, **outer)
            return
        transport, tunnel = await loop.create_connection(
            lambda: Tunnel(loop), proxy.host, proxy.port, **outer
        )
    except OSError as error:
        raise unreachable(error, "provider" if proxy is None else "proxy") from error
    try:
        await tunnel.open(origin, proxy)
        secured = await loop.start_tls(
            transport,
            connection,
            context,
            server_hostname=origin.host,
            ssl_handshake_timeout=TLS_LIMIT_S,
        )
    except OSError as error:
        transport.abort()
        raise unreachable(error, "provider") from error
    except BaseException:
        transport.abort()
        raise
    connection.connection_made(cast(asyncio.Transport, secured))


def tls_arguments(context: ssl.SSLContext | None, host: str) -> dict[str, Any]:
    """What `create_connection` needs to speak TLS to `host`; nothing where `context` is None."""
    if context is None:
        return {}
    return {
        "ssl": context,
        "server_hostname": host,
        "ssl_handshake_timeout": TLS_LIMIT_S,
    }


def proxy_refusal(status: int) -> UpstreamUnreachable:
    """The failure for a proxy that answers in place of the provider."""
    return UpstreamUnreachable(
        f"The proxy refused to reach the provider; its status is: {status}",
        hint="Give the proxy's user and password in the variable that names it."
        if status == 407
        else "Ask whoever runs the proxy, or name the provider's host in `NO_PROXY`.",
    )


def unreachable(error: OSError, peer: str) -> UpstreamUnreachable:
    """The failure for an error of the network or of TLS (an OSError too) while connecting.

    peer: who could not be reached, `provider` or `proxy`.
    """
    hint = None
    if isinstance(error, ssl.SSLCertVerificationError):
        mismatch = error.verify_code in (HOSTNAME_MISMATCH, IP_ADDRESS_MISMATCH)
        reason = "it is for another host" if mismatch else error.verify_message
        what = f"the certificate of the {peer} is not valid: {reason}"
        hint = "Name the certificate authority to trust in `SSL_CERT_FILE`, or correct the URL."
    elif isinstance(error, ssl.SSLError):
        reason = getattr(error, "reason", None) or "no reason given"
        what = f"TLS with the {peer} failed: {reason}"
    elif isinstance(error, socket.gaierror):
        what = f"the name of the {peer} could not be resolved"
    else:
        # With several addresses asyncio joins their errors into one that has no number.
        reason = _REASONS.get(error.errno or 0, "none of its addresses accepted a connection")
        what = f"the {peer} cannot be reached: {reason}"
    failure = UpstreamUnreachable(f"No connection was made, {what}.", hint=hint)
    failure.may_have_arrived = False
    return failure
