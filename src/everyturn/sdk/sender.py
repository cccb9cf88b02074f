"""Brings records to the gateway in the background: a queue, one thread, and a spill.

`put` never waits for the gateway and never raises. Bounds: the queue in bytes (full means dropped
and counted), a request in records and bytes, the spill folder in bytes, the end of the process in
seconds. What the gateway has on disk, refused or never got is counted.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from everyturn.sdk.counting import Counters
from everyturn.sdk.forking import IMPORTS
from everyturn.sdk.resting import Resting
from everyturn.sdk.settings import Settings
from everyturn.sdk.spill import SpillFolder
from everyturn.sdk.waiting import BATCH_BYTES_MAX, BATCH_COUNT_MAX, Waiting

if TYPE_CHECKING:
    from everyturn.sdk.delivery import Delivery

RECORD_BYTES_MAX: Final = 32 * 1024 * 1024 - 1024
"""A request may have 32 MiB."""

LINGER_SECONDS: Final = 0.05
"""How long the first record of a batch waits for others."""

SPILL_AFTER_SECONDS: Final = 2.0
"""How long a gateway may be away (a restart) before what waits is spilled."""

AWAY_CHECK_SECONDS: Final = 0.2
"""How often the queue is looked at while the gateway is away: it may be about to overflow."""

ORPHANS_SECONDS: Final = 60.0
"""How often to look for spill files of processes that ended."""

REST_COUNT: Final = 256
"""Records that are spilled by one write: all of them or none."""

BATCHES_BEFORE_SPILL: Final = 8
"""Batches of the queue after which one of the spill has its turn."""


class Sender:
    """A queue and the thread that empties it. The first record starts the thread."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self._settings = settings
        self._counters = counters
        self._waiting = Waiting(bytes_max=settings.queue_bytes_max)
        self._thread: threading.Thread | None = None
        self._start_lock = threading.Lock()
        self._wake = threading.Event()
        """There is something to send."""
        self._hurry = threading.Event()
        """Somebody waits for the queue to be empty."""
        self._is_closing = False
        self._spill_lock = threading.Lock()
        self._spill = SpillFolder(settings.spill_folder, bytes_max=settings.spill_bytes_max)
        self._resting = Resting(counters, settings.api_key)
        self._orphans_at = 0.0
        """When to look into the spill folder, on the monotonic clock; 0: now."""

    # ------------------------------------------------------------- any thread

    def put(self, record: bytes) -> None:
        """Queue a record (a JSON object). Never waits for the gateway, never raises."""
        self._counters.add("recorded")
        if len(record) > min(RECORD_BYTES_MAX, self._settings.queue_bytes_max):
            self._counters.add("dropped_too_large")
            return
        if self._is_closing:
            with self._spill_lock:
                self._rest([record])  # After the end there is no thread to send it.
            return
        if not self._waiting.put(record):
            self._counters.add("dropped_queue_full")
            return
        if self._thread is None:
            self._start()
        if not self._wake.is_set():
            self._wake.set()

    def sizes(self) -> tuple[int, int]:
        """(records, bytes) that wait in memory now."""
        return self._waiting.sizes()

    def flush(self, seconds: float) -> bool:
        """Wait until nothing waits in memory any more; whether that was so within `seconds`.

        While the gateway is away, what waits is spilled at once.
        """
        self._hurry.set()
        self._wake.set()
        return self._waiting.wait_until_empty(seconds)

    def close(self, seconds: float) -> None:
        """Send what waits, spill what could not be sent within `seconds`, and stop."""
        with self._start_lock:
            self._is_closing = True
            thread = self._thread
        self._hurry.set()
        self._wake.set()
        if thread is not None:
            thread.join(seconds)
        # The thread is done, or stuck with a gateway that does not answer.
        self._rest_waiting()
        if thread is None or not thread.is_alive():
            with self._spill_lock:
                self._spill.release()

    def forget(self) -> None:
        """Let go of what a forked child shares with its parent. Locks may be held by nobody."""
        self._spill.release()

    # ------------------------------------------------------------- the thread

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is not None or self._is_closing:
                return
            thread = threading.Thread(target=self._run, name="everyturn-sender", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return  # The interpreter ends or has no thread left; `close` spills what waits.
            self._thread = thread
        # A forked child of multiprocessing ends without `atexit`, but runs these.
        multiprocessing = sys.modules.get("multiprocessing.util")
        if multiprocessing is not None:
            seconds = self._settings.exit_seconds_max
            multiprocessing.Finalize(None, self.close, args=(seconds,), exitpriority=0)

    def _run(self) -> None:
        with IMPORTS:
            from everyturn.sdk.delivery import Delivery

        delivery = Delivery(self._settings, self._counters)
        try:
            while not self._is_closing:
                self._pause(delivery)
                is_hurried = self._hurry.is_set()
                self._hurry.clear()
                # While the gateway is away and nothing waits, the spill is what tries again.
                if (
                    delivery.may_try(is_hurried=is_hurried)
                    and self._send_waiting(delivery, BATCHES_BEFORE_SPILL)
                    and not self._is_closing
                ):
                    self._send_spilled(delivery)
                if self._must_spill(delivery, is_hurried):
                    self._rest_waiting()
            if delivery.may_try(is_hurried=True):
                self._send_waiting(delivery, sys.maxsize)
        finally:
            delivery.close()

    def _pause(self, delivery: Delivery) -> None:
        """Sleep until there is something to do."""
        now = time.monotonic()
        has_records = self._waiting.sizes()[0] > 0
        if delivery.away_since is not None and has_records:
            self._hurry.wait(min(max(delivery.next_try - now, 0.0), AWAY_CHECK_SECONDS))
        else:
            self._wake.wait(max(self._orphans_at, delivery.next_try) - now)
        # Cleared before the queue is looked at: who puts after that sets it again.
        self._wake.clear()
        if delivery.away_since is None and not self._waiting.is_batch_ready:
            if self._waiting.sizes()[0]:
                self._hurry.wait(LINGER_SECONDS)

    def _send_waiting(self, delivery: Delivery, batches: int) -> bool:
        """Send what waits, at most `batches`; False when the gateway is away."""
        for _ in range(batches):
            batch = self._waiting.take()
            if not batch:
                return True
            left = delivery.deliver(batch, sent="sent", refused="refused")
            self._waiting.settle(batch, left)
            if left:
                return False
        self._wake.set()
        return True

    def _must_spill(self, delivery: Delivery, is_hurried: bool) -> bool:
        if delivery.away_since is None:
            return False
        is_long = time.monotonic() - delivery.away_since >= SPILL_AFTER_SECONDS
        return is_hurried or is_long or self._waiting.is_half_full

    # ------------------------------------------------------------- the spill

    def _rest_waiting(self) -> None:
        """Spill everything that waits; it waits until it is on disk."""
        with self._spill_lock:
            batch = self._waiting.take_all()
            self._rest(batch)
            self._waiting.settle(batch, [])

    def _rest(self, records: list[bytes]) -> None:
        """Spill records, as far as they may rest. The spill's lock is held."""
        for start in range(0, len(records), REST_COUNT):
            lines = [
                line
                for record in records[start : start + REST_COUNT]
                if (line := self._line(record)) is not None
            ]
            written = self._spill.write(lines)
            match written:
                case "written":
                    self._counters.add("spilled", len(lines))
                case "full":
                    self._counters.add("dropped_spill_full", len(lines))
                case "failed":
                    self._counters.add("dropped_spill_failed", len(lines))
        if records:
            self._orphans_at = 0.0

    def _line(self, record: bytes) -> bytes | None:
        try:
            return self._resting.line(record)
        except Exception:  # noqa: BLE001 - nothing may rest that was not decided upon
            self._counters.add("records_failed")
            return None

    def _send_spilled(self, delivery: Delivery) -> None:
        """Send one batch of a spill file; delete the file when that was the last."""
        if time.monotonic() < self._orphans_at:
            return
        with self._spill_lock:
            file, unreadable = self._spill.next()
            self._counters.add("spill_files_unreadable", unreadable)
            if file is None:
                self._orphans_at = time.monotonic() + ORPHANS_SECONDS
                return
            lines, torn = file.take(bytes_max=BATCH_BYTES_MAX, count_max=BATCH_COUNT_MAX)
        if lines and delivery.deliver(lines, sent="spill_sent", refused="spill_refused"):
            return
        with self._spill_lock:
            self._counters.add("spill_lines_torn", torn)
            file.sent()
            if file.is_sent:
                self._spill.done()
