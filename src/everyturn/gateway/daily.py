"""The daily export: a thread that has each day written to files once it is over.

The work is done by `everyturn export --missed` in a process of its own (see `child`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from everyturn.gateway.child import Child
from everyturn.gateway.log import Log
from everyturn.store.export import last_whole_day

CHECK_SECONDS: Final = 60.0
"""Between two looks at the clock; short, so that a clock that was set or a sleep costs little."""
RETRY_SECONDS: Final = 900.0
"""After an export that failed."""


class DailyExport:
    """Writes every day that is over to a folder, days that were missed included."""

    def __init__(
        self,
        data: Path,
        out: Path,
        log: Log,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        check_seconds: float = CHECK_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        where = ["--data", str(data), "--out", str(out)]
        self._child = Child(["everyturn", "export", "--missed", *where])
        self._log = log
        self._clock = clock
        self._check_seconds = check_seconds
        self._retry_seconds = retry_seconds
        self._done: date | None = None
        """The last day that is known to be written."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="everyturn-export", daemon=True)
        self.files = 0
        self.failures = 0

    def start(self) -> None:
        """Begin: what was missed is written at once."""
        self._thread.start()

    def stop(self) -> None:
        """End, and end an export that is under way; the next start does it again."""
        self._stop.set()
        self._child.stop()
        self._thread.join()

    def gauges(self) -> Mapping[str, tuple[str, float]]:
        """What `/metrics` tells of it."""
        return {
            "everyturn_export_files_total": ("Files of whole days that were written.", self.files),
            "everyturn_export_failures_total": (
                "Daily exports that failed; each is tried again.",
                self.failures,
            ),
        }

    def _run(self) -> None:
        wait = 0.0
        while not self._stop.wait(wait):
            wait = self._check_seconds
            due = last_whole_day(self._clock())
            if due == self._done:
                continue
            if self._export():
                self._done = due
            else:
                wait = self._retry_seconds

    def _export(self) -> bool:
        """Whether every day that is over was written; a failure is counted and logged."""
        files: list[str] = []
        try:
            status = self._child.run(files.append)
        except OSError as failure:
            return self._failed(reason=f"cannot start: {failure.strerror}")
        if self._stop.is_set():
            return False
        if status:
            # The command says why on its stderr, to the person who runs it by hand.
            return self._failed(reason=f"exit status {status}")
        if files:
            self.files += len(files)
            self._log("export.written", count=len(files))
        return True

    def _failed(self, *, reason: str) -> bool:
        self.failures += 1
        self._log("export.failed", reason=reason, count=self.failures)
        return False
