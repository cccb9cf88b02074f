"""Dial out to a gateway: a WebSocket over verified TLS, with this worker's credential.

Plaintext is spoken on loopback only. There is no switch that turns verification off; a private
certificate authority is named in `SSL_CERT_FILE`.
"""

from __future__ import annotations

import ipaddress
import ssl
from typing import Final
from urllib.parse import SplitResult, urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from everyturn.errors import InvalidValue
from everyturn.link.messages import MESSAGE_BYTES_MAX
from everyturn.transport.link import PipeClosed

LINK_PATH: Final = "/v1/workers/link"
PAIR_PATH: Final = "/v1/workers/pair"

OPEN_S: Final = 20.0
"""How long connecting may take, TLS and the WebSocket's own greeting included."""


class Unreachable(Exception):
    """No connection was made; another try may succeed. The message has no address in it."""


class Refused(Exception):
    """The gateway does not take this worker: its credential is not valid any more."""


class _Connect(connect):
    """A connection to the address that was given, and to no other."""

    def process_redirect(self, exc: Exception) -> Exception:
        """Follow no redirect: it would lead past what `gateway_url` allows."""
        return exc


class WebSocketPipe:
    """A `Pipe` over a WebSocket that this side opened."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def send(self, message: bytes) -> None:
        """Send; waits while the peer does not read."""
        try:
            await self._connection.send(message)
        except ConnectionClosed:
            raise PipeClosed from None

    async def receive(self) -> bytes:
        """The next message; a text message breaks the protocol, as bytes it is no message."""
        try:
            message = await self._connection.recv(decode=False)
        except ConnectionClosed:
            raise PipeClosed from None
        assert isinstance(message, bytes)
        return message

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


def gateway_url(text: str) -> SplitResult:
    """A gateway's address, `wss://HOST[:PORT]`. Raises InvalidValue, also for plaintext elsewhere
    than on loopback."""
    try:
        parts = urlsplit(text)
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        port_is_right = False
    if (
        not port_is_right
        or parts.scheme not in ("ws", "wss")
        or not parts.hostname
        or parts.username is not None
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        raise InvalidValue(
            "the gateway's address is not of the form wss://HOST[:PORT]",
            param="gateway",
            hint="Give scheme, host and port only, such as wss://gateway.example:8443.",
        )
    if parts.scheme == "ws" and not is_loopback(parts.hostname):
        raise InvalidValue(
            "plaintext is spoken on loopback only",
            param="gateway",
            hint="Serve TLS at the gateway (`--tls-cert`, `--tls-key`) and use wss://.",
        )
    return parts


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def dial(gateway: str, credential: str) -> WebSocketPipe:
    """A pipe to the gateway. Raises Refused, Unreachable and InvalidValue."""
    parts = gateway_url(gateway)
    assert parts.hostname is not None
    context = ssl.create_default_context() if parts.scheme == "wss" else None
    try:
        connection = await _Connect(
            f"{parts.scheme}://{parts.netloc}{LINK_PATH}",
            ssl=context,
            additional_headers={"authorization": f"Bearer {credential}"},
            user_agent_header=None,
            compression=None,
            open_timeout=OPEN_S,
            ping_interval=None,  # The link has a heartbeat of its own.
            close_timeout=1,
            max_size=MESSAGE_BYTES_MAX,
            proxy=None if is_loopback(parts.hostname) else True,
        )
    except InvalidStatus as answer:
        status = answer.response.status_code
        if status in (401, 403):
            raise Refused("the gateway does not know this worker's credential") from None
        raise Unreachable(f"the gateway answered with status {status}") from None
    except ssl.SSLCertVerificationError as bad:
        raise Unreachable(f"the gateway's certificate is not valid: {bad.verify_message}") from None
    except TimeoutError:
        raise Unreachable("the gateway did not answer in time") from None
    except ImportError:
        # What the WebSocket library does for want of a package of its own.
        raise Unreachable("a SOCKS proxy is named, and only HTTP proxies can be used") from None
    except (OSError, WebSocketException) as bad:
        raise Unreachable(
            f"the gateway cannot be reached: {getattr(bad, 'strerror', None) or 'no connection'}"
        ) from None
    return WebSocketPipe(connection)
