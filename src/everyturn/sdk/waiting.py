"""The queue of records that were not sent yet, bounded in bytes, and the batch that is under way.

Whoever takes records from here answers for them: sends, spills or counts them.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

BATCH_COUNT_MAX: Final = 1000
"""Records in a request; the gateway takes no more."""

BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""A record that is larger travels alone."""


class Waiting:
    """A queue for many threads that put and one that takes."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[bytes] = deque()
        self._batch: list[bytes] = []
        self._bytes = 0
        """Of the queue and the batch."""

    def put(self, record: bytes) -> bool:
        """Append a record; False when it does not fit any more."""
        with self._changed:
            if self._bytes + len(record) > self._bytes_max:
                return False
            self._queue.append(record)
            self._bytes += len(record)
        return True

    def take(self) -> list[bytes]:
        """The batch under way; a new one from the queue if there is none. Empty: nothing waits."""
        with self._changed:
            if not self._batch:
                size = 0
                while self._queue and len(self._batch) < BATCH_COUNT_MAX:
                    size += len(self._queue[0])
                    if self._batch and size > BATCH_BYTES_MAX:
                        break
                    self._batch.append(self._queue.popleft())
            return self._batch

    def settle(self, batch: list[bytes], left: list[bytes]) -> None:
        """Of the batch that `take` gave, only `left` is still to be sent."""
        with self._changed:
            if self._batch is not batch:
                return  # Somebody took everything meanwhile and answers for it.
            self._bytes -= sum(map(len, batch)) - sum(map(len, left))
            self._batch = left
            self._tell()

    def take_all(self) -> list[bytes]:
        """Everything as one batch, the one that was under way included; to be settled as well."""
        with self._changed:
            self._batch = [*self._batch, *self._queue]
            self._queue.clear()
            return self._batch

    def wait_until_empty(self, seconds: float) -> bool:
        """Whether nothing waits any more within `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._batch, seconds)

    def sizes(self) -> tuple[int, int]:
        """(records, bytes) that wait now."""
        with self._changed:
            return len(self._queue) + len(self._batch), self._bytes

    @property
    def is_half_full(self) -> bool:
        """Whether more than half of the bytes are used."""
        return self._bytes * 2 > self._bytes_max

    @property
    def is_batch_ready(self) -> bool:
        """Whether there is more than a batch, so that waiting for others is of no use."""
        return self._bytes > BATCH_BYTES_MAX or len(self._queue) >= BATCH_COUNT_MAX

    def _tell(self) -> None:
        if not self._queue and not self._batch:
            self._changed.notify_all()
