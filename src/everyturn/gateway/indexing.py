"""The thread that keeps the search index up to date beside a gateway.

Nearly all of its time is spent inside SQLite, without the interpreter; it reads the store as any
reader does and writes to another file. So a turn does not wait for it. After each step it rests for
longer than the step took, so that at most a fraction of a core is its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from everyturn.errors import AuditUnavailable, ConfigError
from everyturn.gateway.log import Log
from everyturn.store.search import ALL_TURNS, NEWEST_TURNS, SearchIndex

ROUND_SECONDS: Final = 1.0
"""Between two looks at the store."""
WIDER: Final = ((3_600.0, ALL_TURNS), (60.0, 100_000))
"""How often, in seconds, more than the newest turns are looked at for changes, and how many.

A turn changes late where an application delivers its record late, or joins it again.
"""
RETRY_SECONDS: Final = 30.0
"""After a round that failed."""
_REST: Final = 2.0
"""Times the length of a step."""


class Indexing:
    """Brings the search index of a data folder up to date until it is stopped."""

    def __init__(
        self,
        data: Path,
        log: Log,
        *,
        round_seconds: float = ROUND_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._data = data
        self._log = log
        self._round_seconds = round_seconds
        self._retry_seconds = retry_seconds
        self._index: SearchIndex | None = None
        self._seen: int | None = None
        """The version of the store that was taken in whole."""
        self._last_at = {newest: -period for period, newest in WIDER}
        """When so many turns were last looked at."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="everyturn-search", daemon=True)
        self.lag = 0
        """Turns that the index did not know after the last round."""
        self.failures = 0

    def start(self) -> None:
        """Begin with what the index missed."""
        self._thread.start()

    def stop(self) -> None:
        """End after the step that is under way; the next start goes on from there."""
        self._stop.set()
        self._thread.join()

    def gauges(self) -> Mapping[str, tuple[str, float]]:
        """What `/metrics` tells of it."""
        return {
            "everyturn_search_lag_turns": ("Turns that cannot be found yet.", self.lag),
            "everyturn_search_failures_total": (
                "Rounds of the search index that failed; each is tried again.",
                self.failures,
            ),
        }

    def _run(self) -> None:
        wait = 0.0
        try:
            while not self._stop.wait(wait):
                wait = self._round_seconds
                try:
                    self._round()
                except (AuditUnavailable, ConfigError) as failure:
                    self._log("search.failed", reason=type(failure).__name__)
                    wait = self._failed()
                except Exception as bug:  # noqa: BLE001 (the thread must outlive its defects)
                    self._log.bug("search.failed", bug)
                    wait = self._failed()
        finally:
            self._close()

    def _failed(self) -> float:
        self.failures += 1
        self._close()
        return self._retry_seconds

    def _round(self) -> None:
        if self._index is None:
            self._index = SearchIndex(self._data)
            self._seen = None
        index = self._index
        version = index.store_version
        if version == self._seen and index.lag == 0:
            return
        newest = self._newest()
        if index.catch_up(newest=newest, pause=self._pause):
            self._seen = version
        self.lag = index.lag

    def _newest(self) -> int:
        """How many of the newest turns are looked at this time."""
        now = time.monotonic()
        for period, newest in WIDER:
            if now - self._last_at[newest] >= period:
                self._last_at[newest] = now
                return newest
        return NEWEST_TURNS

    def _pause(self, seconds: float) -> bool:
        return self._stop.wait(seconds * _REST)

    def _close(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None
