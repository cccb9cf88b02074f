"""What the writing side of the SQLite store remembers between commits.

All of it can be forgotten: what is not here is looked up. It is changed only after a commit, by
what that commit held, so nothing is remembered that is not stored.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, cast

import apsw

from everyturn.audit.records import ModelCall, Record, TurnAudit
from everyturn.audit.schema import LOG_OF
from everyturn.store.lookup import CONTENTS, TURNS, Lookup
from everyturn.store.rows import Elsewhere

_LIVE_MAX: Final = 65_536
_SETTLED_MAX: Final = 256
"""Few: each takes a few KB, and what is used again soon should stay in the processor's cache."""
_SETTLED_CHARS_MAX: Final = 8_192
_NODES_MAX: Final = 16_384
_LAST_ROWS_MAX: Final = 16_384
_ROWLESS_MAX: Final = 16_384

# Constants: compiled, what is imported is looked up by its name each time.
_TURN: Final = TurnAudit
_CALL: Final = ModelCall

RowsOf = tuple[type[Record], int]
"""The rows of one log that belong to one turn, by its key."""


class Stored:
    """The stored row of a turn or a call that may get a later revision soon."""

    __slots__ = ("data", "elsewhere", "is_open", "key", "older", "record")

    def __init__(
        self,
        key: int,
        record: TurnAudit | ModelCall,
        data: bytes | None,
        older: bytes | None,
        elsewhere: Elsewhere,
        is_open: bool,
    ) -> None:
        self.key = key
        """Its row's key; a turn's is its turn key."""
        self.record = record
        self.data = data
        """Its JSON, as digests are taken; None where that has to be made."""
        self.older = older
        self.elsewhere = elsewhere
        self.is_open = is_open
        """Whether it rests among the open records and not in its log's table."""


class Memory:
    """Keys and rows that the next groups are likely to need."""

    def __init__(self, db: apsw.Connection) -> None:
        self.turns = Lookup(db, TURNS)
        self.contents = Lookup(db, CONTENTS)
        self._live: dict[str, Stored] = {}
        self._settled: dict[str, Stored] = {}
        self._nodes: dict[int, None] = {}
        self._last_rows: dict[RowsOf, int] = {}
        self._rowless: dict[int, None] = {}

    def stored(self, record_id: str) -> Stored | None:
        """The row of a turn or call, if it is remembered; None says nothing."""
        return self._live.get(record_id) or self._settled.get(record_id)

    def last_row(self, rows: RowsOf) -> int | None:
        """The last row key of a turn in one log, if it is remembered."""
        return self._last_rows.get(rows)

    def keep_last_rows(self, last_rows: dict[RowsOf, int]) -> None:
        """Take up the last row keys of turns, by log."""
        self._last_rows.update(last_rows)
        if len(self._last_rows) > _LAST_ROWS_MAX:
            _drop_oldest(self._last_rows, _LAST_ROWS_MAX // 8)

    def is_rowless(self, turn_key: int) -> bool:
        """Whether a turn is known to have no row of its own; False says nothing."""
        return turn_key in self._rowless

    def keep_rowless(self, rowless: dict[int, None], rowed: list[int]) -> None:
        """Take up turns that only other records name, and let go of those that got a row."""
        self._rowless.update(rowless)
        for turn_key in rowed:
            self._rowless.pop(turn_key, None)
        if len(self._rowless) > _ROWLESS_MAX:
            _drop_oldest(self._rowless, _ROWLESS_MAX // 8)

    def knows_node(self, node: int) -> bool:
        """Whether a prefix node is known to be stored; False says nothing."""
        return node in self._nodes

    def keep_nodes(self, nodes: dict[int, None]) -> None:
        """Take up prefix nodes that are stored."""
        self._nodes.update(nodes)
        if len(self._nodes) > _NODES_MAX:
            _drop_oldest(self._nodes, _NODES_MAX // 8)

    def keep_rows(self, rows: dict[str, Stored]) -> None:
        """Take up rows that were committed, by record id.

        Open ones are kept for their closing. Of the closed ones only turns of modest size are:
        each further call that joins a turn closes it again.
        """
        live, settled = self._live, self._settled
        for key, stored in rows.items():
            if stored.is_open:
                live[key] = stored
                continue
            live.pop(key, None)
            record = stored.record
            if type(record) is _TURN:
                settled.pop(key, None)
                if _chars(record) <= _SETTLED_CHARS_MAX:
                    settled[key] = stored
        if len(live) > _LIVE_MAX:
            _drop_oldest(live, _LIVE_MAX // 8)
        if len(settled) > _SETTLED_MAX:
            _drop_oldest(settled, _SETTLED_MAX // 8)

    def trim(self) -> None:
        """Let go of the oldest keys, where there are too many. Not while a commit is under way."""
        self.turns.trim()
        self.contents.trim()

    def forget(self) -> None:
        """Start again from what the files say."""
        self._live.clear()
        self._settled.clear()
        self._nodes.clear()
        self._last_rows.clear()
        self._rowless.clear()
        self.turns.load()
        self.contents.load()


def _chars(record: TurnAudit) -> int:
    return len(record.user_text or "") + len(record.assistant_text or "")


def _drop_oldest(entries: dict[Any, Any], count: int) -> None:
    for key in list(islice(entries, count)):
        del entries[key]


def record_id(record: Record) -> str:
    """The id under which a record is stored."""
    # Not `match` or `isinstance`, which take long to say no, and this is asked of every row.
    kind = type(record)
    if kind is _TURN:
        return record.turn_id  # type: ignore[return-value]  # a turn's own id is never None
    if kind is _CALL:
        return record.model_call_id  # type: ignore[union-attr]
    return str(getattr(record, LOG_OF[kind].id))


def is_open(record: Record) -> bool:
    """Whether a later revision is still to come, as far as the record says."""
    kind = type(record)
    if kind is _CALL:
        return cast(ModelCall, record).stream_state is None
    if kind is _TURN:
        turn = cast(TurnAudit, record)
        # An application tells of a turn that is over, maybe without a word on its outcome.
        return (
            turn.outcome is None and turn.duration_ms is None and turn.sources_by_field_json is None
        )
    return False
