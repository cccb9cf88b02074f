"""Counters of one process: what was recorded, what left, and everything that did not.

Counting never fails and never blocks for longer than an addition takes. Names are a closed set, so
that a page can say what each means (`COUNTERS`).
"""

from __future__ import annotations

import threading
from typing import Final

COUNTERS: Final = {
    "recorded": "records that were made and handed to the queue",
    "sent": "records that the gateway has on disk",
    "refused": "records that the gateway refused, each with a reason in the log",
    "spilled": "records that went to the spill file because the gateway was away",
    "spill_sent": "spilled records that the gateway took later, those of dead processes included",
    "spill_refused": "spilled records that the gateway refused later",
    "captured": "records that went to a `capture()` and nowhere else",
    "dropped_queue_full": "records lost: the queue was full",
    "dropped_spill_full": "records lost: the spill folder was full",
    "dropped_spill_failed": "records lost: the gateway was away and the spill file not writable",
    "dropped_too_large": "records lost: larger than a request or the queue may be",
    "dropped_rejected": "records lost: the gateway refused the request (a wrong key, for example)",
    "payload_not_spilled": "spilled records without their texts: they could not be redacted",
    "spill_lines_torn": "lines of a spill file that a crash left incomplete",
    "spill_files_unreadable": "spill files that could not be read; they stay where they are",
    "retries": "requests that were sent again",
    "outside_turn": "tool runs and retrievals outside of a turn: run, not recorded",
    "envelope_invalid": "envelopes that named no turn: the work ran, nothing was recorded",
    "values_not_json": "values that JSON cannot hold; their type stands in the record",
    "characters_replaced": "records in which a lone surrogate became U+FFFD",
    "probes": "requests to health and metrics paths, which have no record",
    "settings_invalid": "times that settings of the environment could not be used",
    "records_failed": "records lost: making them failed, which is a defect of this package",
}
"""Each counter and what it counts."""


class Counters:
    """The counters. Every method may be called from any thread."""

    __slots__ = ("_lock", "_values")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values = dict.fromkeys(COUNTERS, 0)

    def add(self, name: str, count: int = 1) -> None:
        """Count `count` more of `name`, which must be in `COUNTERS`."""
        with self._lock:
            self._values[name] += count

    def snapshot(self) -> dict[str, int]:
        """Every counter, at one moment."""
        with self._lock:
            return dict(self._values)
