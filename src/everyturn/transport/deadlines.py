"""Many deadlines behind one timer.

A timer object for each read would cost more than the read. Here each thing that can run out of
time holds its own `deadline`, which it moves as often as it likes; one timer looks at all of them,
no later than the earliest deadline anybody ever announced, and is set again for the earliest that
is left. Moving a deadline later costs an attribute; moving it earlier than the next look costs one
timer.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final, Protocol

LOOK_INTERVAL_S_MIN: Final = 0.001
"""Event loops round timers to the millisecond, so a nearer look would only spin."""


class Perishable(Protocol):
    """Something that runs out of time."""

    deadline: float
    """On the loop's clock, in seconds; `inf` for none."""

    def expire(self) -> None:
        """The deadline passed. Must move `deadline` on, or remove itself from the `Deadlines`."""
        ...


class Deadlines:
    """The set of everything that may expire, and the one timer that looks at it."""

    __slots__ = ("_entries", "_loop", "_timer", "next_look")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._entries: set[Perishable] = set()
        self._timer: asyncio.TimerHandle | None = None
        self.next_look = inf
        """When the timer fires, on the loop's clock. Only an earlier deadline need be announced."""

    def add(self, entry: Perishable) -> None:
        """Look after `entry` from now on; its deadline may still be `inf`."""
        self._entries.add(entry)

    def remove(self, entry: Perishable) -> None:
        """Forget `entry`; may be called twice."""
        self._entries.discard(entry)

    def watch(self, at: float) -> None:
        """Make sure that somebody looks at `at`, seconds on the loop's clock."""
        if at < self.next_look:
            if self._timer is not None:
                self._timer.cancel()
            self.next_look = at
            self._timer = self._loop.call_at(at, self._look)

    def close(self) -> None:
        """Forget everything and stop the timer."""
        self._entries.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.next_look = inf

    def _look(self) -> None:
        """Expire what is due, then set the timer for the earliest deadline that is left."""
        self._timer = None
        self.next_look = inf
        now = self._loop.time()
        for entry in tuple(self._entries):
            # An earlier entry of this very look may have removed a later one.
            if entry.deadline <= now and entry in self._entries:
                entry.expire()
        earliest = min((entry.deadline for entry in self._entries), default=inf)
        if earliest < inf:
            self.watch(max(earliest, now + LOOK_INTERVAL_S_MIN))
