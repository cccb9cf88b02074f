"""Groups on their way into one transaction: rows staged, then written with few statements.

Each step of a statement lets go of the interpreter lock, and a busy event loop gives it back only
after a while; so rows of one kind go in together, in a few fixed counts that stay prepared.

The quick way serves what a gateway does all day: new turns and calls, and the next revision of
those it remembers. All else (a key seen before, a time that changed) is for `careful`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import apsw

from everyturn.audit import schema
from everyturn.audit.records import (
    AccessEvent,
    ContentRef,
    Group,
    ModelCall,
    Record,
    TurnAudit,
    is_open,
)
from everyturn.store.base import RecordRefused
from everyturn.store.rows import CODECS, NOWHERE_ELSE, Elsewhere
from everyturn.store.sharing import call_elsewhere, part_address, split_content, turn_elsewhere
from everyturn.store.state import Memory, RowsOf, Stored, record_id

_COUNTS: Final = (64, 32, 16, 8, 4, 2, 1)


SET_NUMBER_SQL: Final = "INSERT OR REPLACE INTO store_numbers VALUES (?, ?)"
_KINDS_OF_A_TURN: Final = tuple(kind for kind, codec in CODECS.items() if not codec.log.is_turn)


@cache
def _insert_sql(table: str, width: int, count: int) -> str:
    row = "(" + ",".join("?" * width) + ")"
    return f"INSERT INTO {table} VALUES {','.join([row] * count)}"


class Batch:
    """What one transaction will write, and what is to be remembered once it is committed."""

    def __init__(self, db: apsw.Connection, memory: Memory) -> None:
        self._db = db
        self._memory = memory
        self.new_turns: dict[str, int] = {}
        self.new_contents: dict[bytes, int] = {}
        self.new_nodes: dict[int, None] = {}
        self.rows: dict[str, Stored] = {}
        self._last_rows: dict[RowsOf, int] = {}
        self._open_from = memory.open_from
        self._turn_key_last = memory.turns.key_last
        self._content_key_last = memory.contents.key_last
        self._turn_id_rows: list[Any] = []
        self._content_rows: list[Any] = []
        self._node_rows: list[Any] = []
        self._inserts: dict[type[Record], list[list[Any]]] = {t: [] for t in CODECS}
        self._replaces: dict[type[Record], list[list[Any]]] = {t: [] for t in CODECS}

    # -------------------------------------------------------------- what is known

    def stored(self, key: str) -> Stored | None:
        """The row of a turn or call as this transaction will leave it, if it is remembered."""
        return self.rows.get(key) or self._memory.stored(key)

    def find_turn(self, turn_id: str) -> int | None:
        """The key of a turn id, if it has one."""
        key = self.new_turns.get(turn_id)
        return key if key is not None else self._memory.turns.find(turn_id)

    def turn_key(self, turn_id: str) -> int:
        """The key of a turn id; a new one gets its row."""
        key = self.find_turn(turn_id)
        if key is None:
            self._turn_key_last += 1
            key = self.new_turns[turn_id] = self._turn_key_last
            self._turn_id_rows += (key, turn_id)
            for kind in _KINDS_OF_A_TURN:
                self._last_rows[kind, key] = (key << schema.TURN_ROWS_BITS) - 1
        return key

    def find_content(self, address: bytes) -> int | None:
        """The key of a content, if it is stored or staged."""
        key = self.new_contents.get(address)
        return key if key is not None else self._memory.contents.find(address)

    def content_key(self, address: bytes, text: str) -> int:
        """The key of a content; a new one gets its row."""
        key = self.find_content(address)
        if key is None:
            self._content_key_last += 1
            key = self.new_contents[address] = self._content_key_last
            self._content_rows += (key, address, *split_content(text, self))
        return key

    def part_key(self, text: str) -> int:
        """The key of a text that is stored apart; a new one is staged."""
        address = part_address(text)
        key = self.find_content(address)
        if key is None:
            self._content_key_last += 1
            key = self.new_contents[address] = self._content_key_last
            self._content_rows += (key, address, text, None, None)
        return key

    def knows_node(self, node: int) -> bool:
        """Whether a prefix node is stored or staged; False says nothing."""
        return node in self.new_nodes or self._memory.knows_node(node)

    def next_row_key(self, kind: type[Record], turn_key: int | None) -> int:
        """A key for a new row of a turn; rows of no turn stand with those of the last one."""
        if turn_key is None:
            turn_key = self._turn_key_last
        rows = (kind, turn_key)
        last = self._last_rows.get(rows)
        if last is None:
            last = self._memory.last_row(rows)
        if last is None:
            last = self._find_last_row(rows)
        if last + 1 == (turn_key + 1) << schema.TURN_ROWS_BITS:
            raise RecordRefused(f"A turn has too many rows of `{CODECS[kind].log.name}`.")
        self._last_rows[rows] = last + 1
        return last + 1

    def _find_last_row(self, rows: RowsOf) -> int:
        kind, turn_key = rows
        first = turn_key << schema.TURN_ROWS_BITS
        end = (turn_key + 1) << schema.TURN_ROWS_BITS
        found = self._db.execute(
            f"SELECT max(row_key) FROM {CODECS[kind].log.rows} WHERE row_key >= ? AND row_key < ?",
            (first, end),
        ).get
        return first - 1 if found is None else int(found)

    # ------------------------------------------------------------- the quick way

    def add(self, group: Group) -> bool:
        """Stage a group; False, with nothing staged, where it needs care."""
        befores = self._quick_befores(group)
        if befores is None or not self._has_quick_contents(group):
            return False
        for content in group.contents:
            self.content_key(content.address, content.text)
        for node in group.nodes:
            key = self.find_content(node.address)
            assert key is not None
            self.stage_node(node.node, node.parent, key)
        turns: list[tuple[TurnAudit, Stored | None]] = []
        for record, before in zip(group.records, befores, strict=True):
            # `isinstance`, so that the type checker sees it; there are no subclasses.
            if isinstance(record, TurnAudit):
                turns.append((record, before))
            elif isinstance(record, ModelCall):
                self._stage_call(record, before)
            else:
                turn_key = None if record.turn_id is None else self.turn_key(record.turn_id)
                key = self.next_row_key(AccessEvent, turn_key)
                self._stage(record, key, turn_key, NOWHERE_ELSE[AccessEvent], None)
        # After the calls, whose answers hold the text of the turn.
        for turn, before in turns:
            self._stage_turn(turn, before, group)
        return True

    def _quick_befores(self, group: Group) -> list[Stored | None] | None:
        """The remembered rows that the records replace; None where a record needs care."""
        befores: list[Stored | None] = []
        for record in group.records:
            kind = type(record)
            revision = record.revision
            if kind is AccessEvent:
                if revision != 1:
                    return None
                befores.append(None)
                continue
            before = self.stored(record_id(record))
            if before is None:
                if revision != 1:
                    return None
                if kind is TurnAudit and self.find_turn(record.turn_id) is not None:  # type: ignore[arg-type]
                    return None
            else:
                last = before.record
                if (
                    revision != last.revision + 1
                    or record.timestamp != last.timestamp
                    or record.turn_id != last.turn_id
                    or (type(last) is ModelCall and last.stream_state is not None)
                ):
                    return None
            befores.append(before)
        return befores

    def _has_quick_contents(self, group: Group) -> bool:
        """Whether all that the group refers to is in it or known to be stored."""
        own_nodes: set[int] = set()
        if group.nodes:
            own = {content.address for content in group.contents}
            for node in group.nodes:
                if node.address not in own and self.find_content(node.address) is None:
                    return False
                parent = node.parent
                if parent is not None and parent not in own_nodes and not self.knows_node(parent):
                    return False
                own_nodes.add(node.node)
        for record in group.records:
            if type(record) is ModelCall:
                for listed in (record.prompt_messages_json, record.tools_json):
                    if type(listed) is ContentRef and listed.node not in own_nodes:
                        if not self.knows_node(listed.node):
                            return False
        return True

    def _stage_call(self, record: ModelCall, before: Stored | None) -> None:
        turn_key = self.turn_key(record.turn_id)
        key = self.next_row_key(ModelCall, turn_key) if before is None else before.key
        self._stage(record, key, turn_key, call_elsewhere(record, self), before)

    def _stage_turn(self, record: TurnAudit, before: Stored | None, group: Group) -> None:
        key = self.turn_key(record.turn_id)
        same = None
        if before is not None and isinstance(before.record, TurnAudit):
            if before.record.user_text == record.user_text:
                same = before.elsewhere
        elsewhere = turn_elsewhere(record, same, group.contents, self)
        self._stage(record, key, key, elsewhere, before)

    # ------------------------------------------------------------------- staging

    def stage_node(self, node: int, parent: int | None, content_key: int) -> None:
        """Stage a prefix node that is not stored."""
        self.new_nodes[node] = None
        self._node_rows += (node, parent, content_key)

    def _stage(
        self,
        record: Record,
        key: int,
        turn_key: int | None,
        elsewhere: Elsewhere,
        before: Stored | None,
    ) -> None:
        kind = type(record)
        codec = CODECS[kind]
        older = None
        if before is not None:
            older = (before.older or b"") + codec.digest(before.record)
        row = codec.encode(
            record,
            turn_key=turn_key,
            row_key=None if kind is TurnAudit else key,
            elsewhere=elsewhere,
            older=older,
        )
        (self._inserts if before is None else self._replaces)[kind].append(row)
        self.remember(record, key, turn_key, older, elsewhere)

    def remember(
        self,
        record: Record,
        key: int,
        turn_key: int | None,
        older: bytes | None,
        elsewhere: Elsewhere,
    ) -> None:
        """What to take up after the commit; access events get no later revision."""
        if not isinstance(record, AccessEvent):
            assert turn_key is not None
            self.rows[record_id(record)] = Stored(key, turn_key, record, older, elsewhere)
            if turn_key < self._open_from and is_open(record):
                self._open_from = turn_key

    # ------------------------------------------------------------------- writing

    def write(self) -> None:
        """Execute what is staged, in the open transaction."""
        if self._open_from < self._memory.open_from:
            # An old turn is open again: a start after a crash must look that far back.
            self._db.execute(SET_NUMBER_SQL, ("open_from", self._open_from))
        self._insert_flat("turn_ids", 2, self._turn_id_rows)
        self._insert_flat("contents", 5, self._content_rows)
        self._insert_flat("prefix_nodes", 3, self._node_rows)
        for kind, codec in CODECS.items():
            self._write_rows(codec.insert_sql, self._inserts[kind])
            self._write_rows(codec.replace_sql, self._replaces[kind])

    def _insert_flat(self, table: str, width: int, values: list[Any]) -> None:
        at = 0
        for count in _counts(len(values) // width):
            end = at + count * width
            self._db.execute(_insert_sql(table, width, count), values[at:end])
            at = end
        values.clear()

    def _write_rows(self, sql: Callable[[int], str], rows: list[list[Any]]) -> None:
        at = 0
        for count in _counts(len(rows)):
            values: list[Any] = []
            for row in rows[at : at + count]:
                values += row
            self._db.execute(sql(count), values)
            at += count
        rows.clear()

    def committed(self) -> None:
        """Hand over to memory what the transaction left."""
        memory = self._memory
        memory.turns.added(self.new_turns)
        memory.contents.added(self.new_contents)
        for node in self.new_nodes:
            memory.keep_node(node)
        for stored in self.rows.values():
            memory.keep_row(stored)
        for rows, key in self._last_rows.items():
            memory.keep_last_row(rows, key)
        memory.open_from = self._open_from


def _counts(total: int) -> list[int]:
    """`total` as a sum of the counts that have a prepared statement."""
    counts = []
    for count in _COUNTS:
        while total >= count:
            counts.append(count)
            total -= count
    return counts
