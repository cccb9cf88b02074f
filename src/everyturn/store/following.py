"""Keeps the search index of a data folder up to date: the program that `serve` runs for it.

    python -m everyturn.store.following FOLDER

Says on stdout how many turns the index does not know, a number a line, each time that changes. Ends
when its stdin does, which is when the gateway is gone; with status 1 and a word when it fails. It
may be ended at any moment: what it does, it does in whole steps.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from everyturn.errors import AuditUnavailable, ConfigError
from everyturn.store.search import ALL_TURNS, NEWEST_TURNS, SearchIndex

ROUND_SECONDS: Final = 1.0
"""Between two looks at the store."""
WIDER: Final = ((3_600.0, ALL_TURNS), (60.0, 100_000))
"""How often, in seconds, more than the newest turns are looked at for changes, and how many.

A turn changes late where an application delivers its record late, or joins it again.
"""


class Follower:
    """Brings an index up to date, round by round."""

    def __init__(
        self,
        index: SearchIndex,
        *,
        wait: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """wait: for so many seconds."""
        self._index = index
        self._wait = wait
        self._clock = clock
        self._seen: int | None = None
        """The version of the store that was taken in whole."""
        self._last_at: dict[int, float] = {}
        """When so many turns were last looked at."""

    def round(self) -> int:
        """Take in what is new; how many turns are still not known. Raises StoreFailure."""
        index = self._index
        version = index.store_version
        newest = self._newest()
        if version == self._seen and newest == NEWEST_TURNS and index.lag == 0:
            return 0
        if index.catch_up(newest=newest, pause=self._rest):
            self._seen = version
        return index.lag

    def _newest(self) -> int:
        """How many of the newest turns are looked at this time."""
        now = self._clock()
        for period, newest in WIDER:
            if newest not in self._last_at or now - self._last_at[newest] >= period:
                self._last_at[newest] = now
                return newest
        return NEWEST_TURNS

    def _rest(self, seconds: float) -> bool:
        """Leave as much time as a step took to whoever else wants the machine."""
        self._wait(seconds)
        return False


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Run until stdin ends."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    said = None
    try:
        follower = Follower(SearchIndex(Path(sys.argv[1])))
        while True:
            lag = follower.round()
            if lag != said:
                _say(str(lag))
                said = lag
            time.sleep(ROUND_SECONDS)
    except (AuditUnavailable, ConfigError) as failure:
        _say(type(failure).__name__)
        sys.exit(1)


if __name__ == "__main__":
    main()
