"""What the writing side of the SQLite store remembers between commits.

All of it can be forgotten: what is not here is looked up. It is changed only after a commit, by
what that commit held, so nothing is remembered that is not stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import apsw

from everyturn.audit import schema
from everyturn.audit.records import ModelCall, Record, TurnAudit, is_open
from everyturn.store.lookup import CONTENTS, TURNS, Lookup
from everyturn.store.rows import Elsewhere

_LIVE_MAX: Final = 65_536
_SETTLED_MAX: Final = 2_048
_SETTLED_CHARS_MAX: Final = 8_192
_NODES_MAX: Final = 16_384
_LAST_ROWS_MAX: Final = 16_384

RowsOf = tuple[type[Record], int]
"""The rows of one log that belong to one turn, by its key."""


@dataclass(slots=True)
class Stored:
    """The stored row of a turn or a call that may get a later revision soon."""

    key: int
    """Its row's key; a turn's is its turn key."""
    turn_key: int
    record: TurnAudit | ModelCall
    older: bytes | None
    elsewhere: Elsewhere


class Memory:
    """Keys and rows that the next groups are likely to need."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self.turns = Lookup(db, TURNS)
        self.contents = Lookup(db, CONTENTS)
        self._live: dict[str, Stored] = {}
        self._settled: dict[str, Stored] = {}
        self._nodes: dict[int, None] = {}
        self._last_rows: dict[RowsOf, int] = {}
        self.open_from = _open_from(db)
        """The files say that no turn before this key has anything open."""
        self._open_floor = _first_open(db, self.open_from)
        """The first turn that has something open which is not among `live`; None if none has."""

    def stored(self, record_id: str) -> Stored | None:
        """The row of a turn or call, if it is remembered; None says nothing."""
        return self._live.get(record_id) or self._settled.get(record_id)

    def last_row(self, rows: RowsOf) -> int | None:
        """The last row key of a turn in one log, if it is remembered."""
        return self._last_rows.get(rows)

    def keep_last_row(self, rows: RowsOf, key: int) -> None:
        """Take up the last row key of a turn in one log."""
        if len(self._last_rows) >= _LAST_ROWS_MAX:
            _drop_oldest(self._last_rows, _LAST_ROWS_MAX // 8)
        self._last_rows[rows] = key

    def first_open(self) -> int:
        """The first turn that may have something open; the next turn's key when none has."""
        keys = [stored.turn_key for stored in self._live.values()]
        if self._open_floor is not None:
            keys.append(self._open_floor)
        return min(keys, default=self.turns.key_last + 1)

    def knows_node(self, node: int) -> bool:
        """Whether a prefix node is known to be stored; False says nothing."""
        return node in self._nodes

    def keep_node(self, node: int) -> None:
        """Take up a prefix node that is stored."""
        if len(self._nodes) >= _NODES_MAX:
            _drop_oldest(self._nodes, _NODES_MAX // 8)
        self._nodes[node] = None

    def keep_row(self, stored: Stored) -> None:
        """Take up a row that was committed.

        Open rows are kept for their closing. Of the closed ones only turns of modest size are:
        each further call that joins a turn closes it again.
        """
        record = stored.record
        key = record_id(record)
        if is_open(record):
            if len(self._live) >= _LIVE_MAX:
                self._open_floor = self.first_open()
                _drop_oldest(self._live, _LIVE_MAX // 8)
            self._live[key] = stored
            return
        self._live.pop(key, None)
        self._settled.pop(key, None)
        if type(record) is TurnAudit and _chars(record) <= _SETTLED_CHARS_MAX:
            if len(self._settled) >= _SETTLED_MAX:
                _drop_oldest(self._settled, _SETTLED_MAX // 8)
            self._settled[key] = stored

    def forget(self) -> None:
        """Start again from what the files say."""
        self._live.clear()
        self._settled.clear()
        self._nodes.clear()
        self._last_rows.clear()
        self.turns.load()
        self.contents.load()
        self.find_open()

    def find_open(self) -> None:
        """Look in the files for what is open and not remembered."""
        self._open_floor = _first_open(self._db, self.open_from)


def _chars(record: TurnAudit) -> int:
    return len(record.user_text or "") + len(record.assistant_text or "")


def _drop_oldest(entries: dict[Any, Any], count: int) -> None:
    for key in list(islice(entries, count)):
        del entries[key]


def _open_from(db: apsw.Connection) -> int:
    value = db.execute("SELECT value FROM store_numbers WHERE name = 'open_from'").get
    return 0 if value is None else int(value)


def _first_open(db: apsw.Connection, start: int) -> int | None:
    """The first turn key from `start` on that has an open row in any log."""
    found = [
        db.execute(
            f"SELECT min(turn_key) FROM {log.rows}"
            f" WHERE {schema.row_key(log)} >= ? AND {log.open_column} IS NULL",
            (start if log.is_turn else start << schema.TURN_ROWS_BITS,),
        ).get
        for log in schema.LOGS
        if log.open_column is not None
    ]
    return min((int(key) for key in found if key is not None), default=None)


def record_id(record: Record) -> str:
    """The id under which a record is stored."""
    kind = type(record)  # quicker than `match`, and this is asked of every row
    if kind is TurnAudit:
        return record.turn_id  # type: ignore[return-value]  # a turn's own id is never None
    if kind is ModelCall:
        return record.model_call_id  # type: ignore[union-attr]
    return record.access_id  # type: ignore[union-attr]
