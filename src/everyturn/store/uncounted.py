"""Turns that may have more rows than their counts say, so that a crash in between is made good.

Records of an application are committed before the row of their turn, whose counts come from what is
stored by then. With such records goes a mark of their turn, in the same transaction; a row of the
turn that counts all there is takes it away. What is marked at the next start is counted again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import apsw

from everyturn.audit.group import Group
from everyturn.audit.records import (
    ModelCall,
    QualityReview,
    Record,
    RetrievalEvent,
    ToolCall,
    TurnAudit,
)
from everyturn.audit.turn_state import counted_as
from everyturn.store.batch import SET_NUMBER_SQL, Batch
from everyturn.store.standing import tally_of

MARKED_MAX: Final = 65_536
"""Marks that are remembered; an older one stays in the files until the next start."""
_KINDS: Final[frozenset[type[Record]]] = frozenset(
    (ModelCall, QualityReview, ToolCall, RetrievalEvent)
)
"""What a turn's row may tell of."""
_MARK: Final = "uncounted:"
_ALL: Final = f"name GLOB '{_MARK}*'"


class Uncounted:
    """The marks in one store. For whoever holds the store."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._marked: dict[str, None] = {}
        """Turn ids that this process marked, oldest first."""
        self._changes: dict[str, bool] = {}
        """Turn id → whether it is marked by the transaction under way."""

    def note(self, groups: Sequence[Group], batch: Batch) -> None:
        """Set and take away the marks of what a transaction wrote, before it is committed."""
        self._changes.clear()
        for group in groups:
            for record in group.records:
                if _is_counted_later(record) and record.turn_id is not None:
                    self._changes[record.turn_id] = True
        if not self._changes and not self._marked:
            return
        records = (record for group in groups for record in group.records)
        rows = {record.turn_id: record for record in records if isinstance(record, TurnAudit)}
        for turn_id, row in rows.items():
            key = batch.find_turn(turn_id)
            if key is None or not (turn_id in self._marked or turn_id in self._changes):
                continue
            self._changes[turn_id] = counted_as(row, tally_of(self._db, key)) is not row
        for turn_id, is_marked in self._changes.items():
            key = batch.find_turn(turn_id)
            assert key is not None  # Its rows were written just now.
            if is_marked and turn_id not in self._marked:
                self._db.execute(SET_NUMBER_SQL, (f"{_MARK}{key}", key))
            elif not is_marked and turn_id in self._marked:
                self._db.execute("DELETE FROM store_numbers WHERE name = ?", (f"{_MARK}{key}",))

    def committed(self) -> None:
        """Remember what the transaction left."""
        for turn_id, is_marked in self._changes.items():
            self._marked.pop(turn_id, None)
            if is_marked:
                self._marked[turn_id] = None
        while len(self._marked) > MARKED_MAX:
            del self._marked[next(iter(self._marked))]

    def left(self) -> Iterator[tuple[int, str]]:
        """Key and id of the turns that were left marked."""
        found: Any = self._db.execute(
            "SELECT t.turn_key, t.turn_id FROM store_numbers n JOIN turn_ids t"
            f" ON t.turn_key = n.value WHERE {_ALL}"
        )
        for key, turn_id in found.fetchall():
            yield int(key), str(turn_id)

    def clear(self) -> None:
        """Take all marks away: every turn was counted."""
        self._db.execute(f"DELETE FROM store_numbers WHERE {_ALL}")
        self._marked.clear()


def _is_counted_later(record: Record) -> bool:
    """Whether the turn's row tells of this record, and is written after it."""
    kind = type(record)
    if kind not in _KINDS:
        return False
    if kind is ModelCall:
        return cast(ModelCall, record).transport == "external"
    if kind is QualityReview:
        return cast(QualityReview, record).review_source == "human"
    return True
