"""Has the search index kept up to date beside a gateway, by a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from everyturn.gateway.child import Child
from everyturn.gateway.log import Log

START_SECONDS: Final = 2.0
"""After the start of the gateway: its first turns come first."""
RETRY_SECONDS: Final = 30.0
"""After a failure."""


class Indexing:
    """Runs `store.following` on a data folder until it is stopped."""

    def __init__(
        self,
        data: Path,
        log: Log,
        *,
        start_seconds: float = START_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._log = log
        self._start_seconds = start_seconds
        self._retry_seconds = retry_seconds
        self._child = Child(["everyturn.store.following", str(data)])
        self._said = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="everyturn-search", daemon=True)
        self.lag: int | None = None
        """Turns that the index did not know when it was last told; None: nothing was told yet."""
        self.failures = 0

    def start(self) -> None:
        """Begin with what the index missed."""
        self._thread.start()

    def stop(self) -> None:
        """End where it is; the next start goes on from there."""
        self._stop.set()
        self._child.stop()
        self._thread.join()

    def gauges(self) -> Mapping[str, tuple[str, float]]:
        """What `/metrics` tells of it."""
        told: dict[str, tuple[str, float]] = {
            "everyturn_search_failures_total": (
                "How often the search index could not be kept up to date; it is tried again.",
                self.failures,
            ),
        }
        if self.lag is not None:
            told["everyturn_search_lag_turns"] = ("Turns that cannot be found yet.", self.lag)
        return told

    def _run(self) -> None:
        wait = self._start_seconds
        while not self._stop.wait(wait):
            wait = self._retry_seconds
            self._said = ""
            try:
                status = self._child.run(self._hear)
                reason = self._said or f"exit status {status}"
            except OSError as failure:
                reason = f"cannot start: {failure.strerror}"
            if not self._stop.is_set():
                self.failures += 1
                self._log("search.failed", reason=reason, count=self.failures)

    def _hear(self, line: str) -> None:
        """A number is the lag; anything else is why it ends."""
        if line.isdecimal():
            self.lag = int(line)
        else:
            self._said = line
