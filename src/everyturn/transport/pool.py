"""The connections to one origin: those at rest, how many there may be, and who waits for one.

Last in, first out: the connection used last is the least likely to have been closed by its server,
and a load that falls lets the rest grow old and go. A connection leaves the pool the moment its
server closes it, says anything unasked, or has let it rest too long. When the bound is reached,
calls wait their turn, first come first served, inside their own total deadline.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import Final

from everyturn.errors import Failure, UpstreamTimeout, UpstreamUnreachable
from everyturn.transport.connection import Connection
from everyturn.transport.deadlines import Deadlines

KEEP_ALIVE_MARGIN_S: Final = 1.0
"""How much earlier than its server we let a connection go, or half its time if that is less."""


class PoolWait:
    """A call that waits for its turn."""

    __slots__ = ("connection", "deadline", "failure", "future", "total_ms")

    def __init__(self, future: asyncio.Future[None], total_at: float, total_ms: int) -> None:
        self.future = future
        self.deadline = total_at
        self.total_ms = total_ms
        self.connection: Connection | None = None
        """What was granted once `future` is done: a connection, or with None room to make one."""
        self.failure: Failure | None = None

    def end(self, failure: Failure | None, connection: Connection | None = None) -> None:
        """Let the call go on."""
        self.failure = failure
        self.connection = connection
        self.future.set_result(None)

    def expire(self) -> None:
        """The call's time is over (called by `Deadlines`)."""
        self.deadline = inf
        if not self.future.done():
            self.end(
                UpstreamTimeout(
                    "No connection to the provider became free in time; `total_ms` is: "
                    f"{self.total_ms}",
                    hint="Raise `connections_per_origin_max`, or send fewer calls at once.",
                )
            )


class OriginPool:
    """See the module docstring. `_used` counts connections, those being made included."""

    __slots__ = (
        "_connections_max",
        "_deadlines",
        "_emptied",
        "_idle",
        "_idle_expiry_s",
        "_is_closed",
        "_live",
        "_loop",
        "_used",
        "_waits",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        deadlines: Deadlines,
        *,
        connections_max: int,
        idle_expiry_s: float,
    ) -> None:
        self._loop = loop
        self._deadlines = deadlines
        self._connections_max = connections_max
        self._idle_expiry_s = idle_expiry_s
        self._idle: dict[Connection, None] = {}
        """Connections at rest, the one used last at the end."""
        self._live: set[Connection] = set()
        """Connections whose socket is not closed yet."""
        self._used = 0
        self._waits: deque[PoolWait] = deque()
        self._is_closed = False
        self._emptied: asyncio.Future[None] | None = None
        """Done when the last socket of a closed pool is closed."""

    # --------------------------------------------------------------------------------- for a call

    def take(self) -> Connection | None:
        """The connection used last, None if none is at rest."""
        while self._idle:
            connection, _ = self._idle.popitem()
            if connection.is_quiet():
                return connection
            connection.drop()
        return None

    def reserve(self) -> bool:
        """Take room for one more connection; False if there is none. Give back with `vacate`."""
        if self._used >= self._connections_max:
            return False
        self._used += 1
        return True

    def vacate(self) -> None:
        """Give back room: to the call that has waited longest, if any does."""
        wait = self._next_wait()
        if wait is None:
            self._used -= 1
        else:
            wait.end(None)

    async def wait(self, total_at: float, total_ms: int) -> Connection | None:
        """Wait for a connection, or for room to make one (None), which is then reserved.

        Raises UpstreamTimeout at `total_at`, and UpstreamUnreachable when the pool is closed.
        """
        is_first = False
        while self._is_open():
            wait = PoolWait(self._loop.create_future(), total_at, total_ms)
            if is_first:
                self._waits.appendleft(wait)
            else:
                self._waits.append(wait)
            self._deadlines.add(wait)
            self._deadlines.watch(total_at)
            try:
                await wait.future
            except BaseException:
                self._give_back(wait)
                raise
            finally:
                self._deadlines.remove(wait)
            if wait.failure is not None:
                self._discard(wait)
                raise wait.failure
            if not self._is_open():
                self._give_back(wait)
                break
            connection = wait.connection
            if connection is None or not connection.is_lost:
                return connection
            # Its server closed it between the grant and now, which cost us our turn, not our place.
            if self.reserve():
                return None
            is_first = True
        raise closed()

    def _is_open(self) -> bool:
        return not self._is_closed

    def _discard(self, wait: PoolWait) -> None:
        if wait in self._waits:
            self._waits.remove(wait)

    def _give_back(self, wait: PoolWait) -> None:
        """A waiting call was cancelled: pass on what it may just have been granted."""
        if wait.future.cancelled() or wait.failure is not None:
            self._discard(wait)
        elif wait.connection is None:
            self.vacate()
        elif not wait.connection.is_lost:
            self._rest(wait.connection)

    def _next_wait(self) -> PoolWait | None:
        while self._waits:
            wait = self._waits.popleft()
            if not wait.future.done():
                return wait
        return None

    # --------------------------------------------------------------------- for a connection (Owner)

    def admit(self, connection: Connection) -> None:
        """A connection is about to be made in the room that was reserved for it.

        From here on it gives the room back itself, with `forget`.
        """
        self._live.add(connection)

    def abandon(self, connection: Connection) -> None:
        """Making `connection` failed or was given up.

        uvloop then closes the socket without a word to the protocol, even where it had told it
        that the connection was made.
        """
        connection.drop()
        self.gone(connection)

    def release(self, connection: Connection, keep_alive_s: float) -> None:
        """A call on `connection` is over and another may use it (`Owner`)."""
        margin = min(KEEP_ALIVE_MARGIN_S, keep_alive_s / 2)
        rest_s = min(self._idle_expiry_s, keep_alive_s - margin)
        connection.deadline = self._loop.time() + rest_s
        self._rest(connection)

    def _rest(self, connection: Connection) -> None:
        wait = self._next_wait()
        if wait is not None:
            wait.end(None, connection)
            return
        self._idle[connection] = None
        self._deadlines.watch(connection.deadline)

    def forget(self, connection: Connection) -> None:
        """`connection` takes no further call (`Owner`)."""
        self._idle.pop(connection, None)
        self.vacate()

    def gone(self, connection: Connection) -> None:
        """The socket of `connection` is closed (`Owner`)."""
        self._live.discard(connection)
        if self._emptied is not None and not self._live and not self._emptied.done():
            self._emptied.set_result(None)

    # ------------------------------------------------------------------------------------- the end

    async def close(self) -> None:
        """End every call and every wait; returns when every socket is closed."""
        self._is_closed = True
        while (wait := self._next_wait()) is not None:
            wait.end(closed())
        for connection in tuple(self._live):
            connection.stop()
        if self._live:
            self._emptied = self._emptied or self._loop.create_future()
            await self._emptied


def closed() -> UpstreamUnreachable:
    """The failure for a call that comes, or still waits, when the transport closes."""
    return UpstreamUnreachable("The transport was closed before the request was sent.")
