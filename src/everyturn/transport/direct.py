"""HTTP/1.1 from this process: the transport that needs nothing in between.

Small on purpose, since the client library is the largest single cost of a Python gateway: one
future for each wait, one timer for all limits, the unchanging part of each request encoded once.
It keeps connections (`pool`), makes them (`dial`), reads answers (`connection`), and

- sends each request once: a connection that its server closes just then is a failure, never a
  second try (retrying is for those who know whether the request may run twice),
- follows no redirect, asks for no compression and undoes none,
- verifies TLS always,
- adds `host`, `accept-encoding: identity` and `content-length`, and nothing else.

Runs on asyncio's own loop and on uvloop. One instance belongs to the loop that first used it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final

from everyturn.errors import UpstreamTimeout
from everyturn.transport.base import Timeouts, UpstreamRequest
from everyturn.transport.connection import Connection
from everyturn.transport.deadlines import Deadlines
from everyturn.transport.dial import dial, proxy_refusal
from everyturn.transport.pool import OriginPool, closed
from everyturn.transport.proxy import ProxySettings
from everyturn.transport.response import DirectResponse
from everyturn.transport.target import Origin, Target, encode_head, parse_target

CONNECTIONS_PER_ORIGIN_MAX: Final = 1000
"""Streams of a model last minutes, so each caller at work holds a connection."""
IDLE_EXPIRY_S: Final = 4.0
"""Node, uvicorn and gunicorn behind a proxy close after 5 seconds or little less."""
TARGETS_MAX: Final = 1024
"""Parsed URLs that are kept; beyond it all are forgotten and parsed again as they come."""


class DirectTransport:
    """A `Transport` that speaks HTTP/1.1 to the provider itself."""

    def __init__(
        self,
        *,
        proxy_env: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        connections_per_origin_max: int = CONNECTIONS_PER_ORIGIN_MAX,
        idle_expiry_s: float = IDLE_EXPIRY_S,
    ) -> None:
        """Opens nothing yet.

        proxy_env: the environment, for the variables that name proxies; None for no proxy.
        ssl_context: for a certificate authority of one's own; None for those of the system.
        idle_expiry_s: how long an unused connection is kept, in seconds.
        Raises ValueError for a context that does not verify certificates and host names.
        """
        if ssl_context is not None:
            check_verifies(ssl_context)
        if connections_per_origin_max < 1:
            raise ValueError("`connections_per_origin_max` must be at least 1")
        self._proxies = ProxySettings(proxy_env or {})
        self._ssl_context = ssl_context
        self._connections_max = connections_per_origin_max
        self._idle_expiry_s = idle_expiry_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._deadlines: Deadlines | None = None
        self._targets: dict[tuple[str, str], tuple[Target, OriginPool]] = {}
        self._pools: dict[Origin, OriginPool] = {}
        self._dials: set[asyncio.Timeout] = set()
        self._is_closed = False

    async def open(self, request: UpstreamRequest, timeouts: Timeouts) -> DirectResponse:
        """Send `request` once and wait for the head of its answer, interim answers (1xx) skipped.

        `first_byte_ms` ends with the complete head. A call that waits for a free connection does
        so inside `total_ms`. Cancelling the task that awaits this closes the connection.
        Raises InvalidValue before anything is sent for what HTTP cannot carry; UpstreamUnreachable,
        UpstreamTimeout, UpstreamTooLarge and TranslationError as the seam says.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._bind(loop)
        if self._is_closed:
            raise closed()
        known = self._targets.get((request.method, request.url))
        target, pool = known or self._target(loop, request.method, request.url)
        head = encode_head(target, request.headers, len(request.body), request.further)
        total_at = loop.time() + timeouts.total_ms / 1000
        connection = pool.take()
        if connection is None:
            connection = await self._connect(loop, target.origin, pool, timeouts, total_at)
        response = connection.start(head, request.body, timeouts, total_at)
        waiter = response.waiter
        assert waiter is not None
        try:
            await waiter
        except BaseException:
            response.close()
            raise
        finally:
            response.waiter = None
        if not response.status:
            assert response.failure is not None, "woken by a head or by a failure"
            raise response.failure
        if response.status == 407 and target.origin.proxy is not None:
            response.close()
            raise proxy_refusal(407)
        return response

    async def close(self) -> None:
        """Close every connection; returns when their sockets are closed.

        Calls in flight end with UpstreamUnreachable or, within an answer, with
        UpstreamStreamIncomplete. Later calls are refused. May be called twice.
        """
        self._is_closed = True
        for limit in self._dials:
            if not limit.expired():
                limit.reschedule(0)
        for pool in self._pools.values():
            await pool.close()
        if self._deadlines is not None:
            self._deadlines.close()

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Belong to `loop` from now on."""
        if self._loop is not None:
            raise RuntimeError("a transport belongs to the event loop that first used it")
        self._loop = loop
        self._deadlines = Deadlines(loop)

    def _target(
        self, loop: asyncio.AbstractEventLoop, method: str, url: str
    ) -> tuple[Target, OriginPool]:
        """Parse a URL that is not known yet, and find the pool of its origin."""
        assert self._deadlines is not None
        target = parse_target(method, url, self._proxies)
        pool = self._pools.get(target.origin)
        if pool is None:
            # Origins come from the configuration, so they are few and need no bound.
            pool = self._pools[target.origin] = OriginPool(
                loop,
                self._deadlines,
                connections_max=self._connections_max,
                idle_expiry_s=self._idle_expiry_s,
            )
        if len(self._targets) >= TARGETS_MAX:
            self._targets.clear()
        self._targets[method, url] = (target, pool)
        return target, pool

    async def _connect(
        self,
        loop: asyncio.AbstractEventLoop,
        origin: Origin,
        pool: OriginPool,
        timeouts: Timeouts,
        total_at: float,
    ) -> Connection:
        """A connection where none is at rest: a new one, or the next that becomes free."""
        assert self._deadlines is not None
        if not pool.reserve():
            free = await pool.wait(total_at, timeouts.total_ms)
            if free is not None:
                return free
        connection = Connection(loop, self._deadlines, pool)
        pool.admit(connection)
        connect_at = loop.time() + timeouts.connect_ms / 1000
        try:
            async with asyncio.timeout_at(min(connect_at, total_at)) as limit:
                self._dials.add(limit)
                try:
                    await dial(loop, origin, connection, self._tls)
                finally:
                    self._dials.discard(limit)
        except TimeoutError:
            pool.abandon(connection)
            if self._is_closed:
                raise closed() from None
            name, milliseconds = "connect_ms", timeouts.connect_ms
            if total_at < connect_at:
                name, milliseconds = "total_ms", timeouts.total_ms
            raise UpstreamTimeout(
                f"No connection to the provider was made in time; `{name}` is: {milliseconds}"
            ) from None
        except BaseException:
            pool.abandon(connection)
            raise
        return connection

    def _tls(self) -> ssl.SSLContext:
        """The context for a new connection. The default one is made late: it takes milliseconds."""
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
            self._ssl_context.set_alpn_protocols(["http/1.1"])
        check_verifies(self._ssl_context)
        return self._ssl_context


def check_verifies(context: ssl.SSLContext) -> None:
    """Raise ValueError unless `context` verifies certificates and host names."""
    if context.verify_mode is not ssl.CERT_REQUIRED or not context.check_hostname:
        raise ValueError("the TLS context must verify certificates and host names")
