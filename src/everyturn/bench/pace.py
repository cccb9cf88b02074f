"""How many calls run at once: as many as allowed, fewer while a provider says 429.

Additive increase, multiplicative decrease: a 429 halves the limit, at most once for each limit's
worth of calls, and nothing new starts until its `retry-after` is over; each answer lifts the limit
a little. One pace for each model, since limits are a model's.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque


class Pace:
    """Lets calls of one model in. For one event loop."""

    def __init__(self, limit_max: int) -> None:
        self._limit_max = limit_max
        self._limit = float(limit_max)
        self._active = 0
        self._closed_until = 0.0
        self._calm_after = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def limit(self) -> int:
        """Calls that may run at once now."""
        return max(1, int(self._limit))

    async def enter(self) -> None:
        """Wait for a place."""
        while self._active >= self.limit or time.monotonic() < self._closed_until:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            self._arm()
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done():
                    self._wake()
                raise
        self._active += 1

    def leave(
        self, *, is_answered: bool = True, is_throttled: bool = False, wait_s: float = 0.0
    ) -> None:
        """Give the place back. is_throttled: the call met a 429; wait_s: what it was told."""
        self._active -= 1
        now = time.monotonic()
        if is_throttled:
            self._closed_until = max(self._closed_until, now + wait_s)
            if now >= self._calm_after:
                # Calls that were sent before the limit fell say nothing about the new one.
                self._limit = max(1.0, self._limit / 2)
                self._calm_after = max(now + 1.0, self._closed_until)
        elif is_answered:
            self._limit = min(float(self._limit_max), self._limit + 1 / max(1.0, self._limit))
        self._wake()

    def _wake(self) -> None:
        if time.monotonic() < self._closed_until:
            self._arm()
            return
        for _ in range(max(0, self.limit - self._active)):
            while self._waiting:
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    break

    def _arm(self) -> None:
        seconds = self._closed_until - time.monotonic()
        if seconds > 0 and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._open)

    def _open(self) -> None:
        self._timer = None
        self._wake()
