"""Delivers batches: what an answer means for its records, when to try again, what is logged.

For the sender's thread alone. A request that one bad record spoiled is halved until that record
stands alone; only it is lost.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Final

from everyturn.sdk.counting import Counters
from everyturn.sdk.post import Away, Channel, Delivered, Rejected
from everyturn.sdk.settings import Settings

BACKOFF_SECONDS: Final = 0.25
BACKOFF_SECONDS_MAX: Final = 30.0

LOGGER: Final = "everyturn.sdk"
"""Warnings are about lost records, the rest is `info`. Codes, counts and names of fields only."""


class Delivery:
    """A channel with a memory: whether the gateway is away, since when, and when to try again."""

    def __init__(self, settings: Settings, counters: Counters) -> None:
        self._channel = Channel(settings)
        self._counters = counters
        self._attempt = 0
        self.away_since: float | None = None
        """On the monotonic clock; None while the gateway answers."""
        self.next_try = 0.0
        """On the monotonic clock: when a request may be sent again."""
        self._asked_until = 0.0
        """Until when the gateway itself asked not to be asked."""

    def may_try(self, *, is_hurried: bool) -> bool:
        """Whether a request may be sent now. Hurry ends our own delay, never the gateway's."""
        return time.monotonic() >= (self._asked_until if is_hurried else self.next_try)

    def deliver(self, records: list[bytes], *, sent: str, refused: str) -> list[bytes]:
        """Send records; returns those that have to be sent again later.

        sent, refused: the counters of what the gateway has, and of what it refused.
        """
        if self._attempt:
            self._counters.add("retries")
        answer = self._channel.send(records)
        if isinstance(answer, Away):
            self._is_away(answer)
            return records
        self._is_back()
        if isinstance(answer, Delivered):
            self._counters.add(sent, answer.accepted)
            self._counters.add(refused, len(answer.refused))
            for code, param in dict.fromkeys(answer.refused):
                _log("warning", "the gateway refused a record: %s `%s`", code, param)
            return []
        return self._rejected(records, answer, sent=sent, refused=refused)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _rejected(
        self, records: list[bytes], answer: Rejected, *, sent: str, refused: str
    ) -> list[bytes]:
        if answer.may_be_one_record and len(records) > 1:
            middle = len(records) // 2
            left = self.deliver(records[:middle], sent=sent, refused=refused)
            if left:
                return [*left, *records[middle:]]
            return self.deliver(records[middle:], sent=sent, refused=refused)
        self._counters.add("dropped_rejected", len(records))
        _log(
            "warning",
            "the gateway refused a request; %d records are lost: %s",
            len(records),
            answer.code,
        )
        return []

    def _is_away(self, answer: Away) -> None:
        now = time.monotonic()
        if self.away_since is None:
            self.away_since = now
            _log("info", "the gateway takes no records: %s", answer.reason)
        # Half of the delay is chance, so that many senders do not come back at one moment.
        delay = min(BACKOFF_SECONDS * 2 ** min(self._attempt, 16), BACKOFF_SECONDS_MAX)
        delay *= 0.5 + 0.5 * os.urandom(1)[0] / 256
        self._attempt += 1
        self._asked_until = now + (answer.retry_after_seconds or 0.0)
        self.next_try = max(now + delay, self._asked_until)

    def _is_back(self) -> None:
        if self.away_since is not None:
            _log("info", "the gateway takes records again")
        self.away_since = None
        self._attempt = 0
        self.next_try = self._asked_until = 0.0


def _log(level: str, text: str, *values: object) -> None:
    """A log line, where the application uses `logging`.

    It is not imported for us: `logging` takes part in forks from its import on, and an import in a
    thread while another one forks leaves its lock in disorder. What is logged is counted as well.
    """
    logging = sys.modules.get("logging")
    if logging is not None and not getattr(logging.__spec__, "_initializing", False):
        getattr(logging.getLogger(LOGGER), level)(text, *values)
