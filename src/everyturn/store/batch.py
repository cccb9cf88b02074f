"""Groups on their way into one transaction: rows staged, then written kind by kind.

Each step of a statement lets go of the interpreter lock, and a busy event loop gives it back only
after a while; so a thread beside it writes rows of one kind together, in a few fixed counts that
stay prepared. The loop itself writes row by row, which costs less: a statement of one row needs
no way back of its own, and finds its few values where the one before had them.

The quick way serves what a gateway does all day: new turns and calls, and the next revision of
those it remembers. All else (a key seen before, a time that changed) is for `careful`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any, Final, cast

import apsw

from everyturn.audit import schema
from everyturn.audit.group import Group
from everyturn.audit.records import (
    AccessEvent,
    ContentRef,
    Medium,
    ModelCall,
    ReasoningText,
    Record,
    TurnAudit,
)
from everyturn.store import kept, media
from everyturn.store.base import RecordRefused
from everyturn.store.rows import CODECS, Elsewhere, RowCodec
from everyturn.store.sharing import (
    Contents,
    call_elsewhere,
    part_address,
    split_content,
    turn_elsewhere,
)
from everyturn.store.state import Memory, RowsOf, Stored, is_open, record_id

ROOM: Final = "no-turn-"
"""Begins what stands for a turn id where there are only rows of no turn."""
_COUNTS: Final = (64, 16, 4, 1)
"""Rows a statement may have. So few that the statements of all tables keep their places: to prepare
them again and again cost more than a third of a commit."""

SET_NUMBER_SQL: Final = "INSERT OR REPLACE INTO store_numbers VALUES (?, ?)"
# A constant: compiled, what is imported is looked up by its name each time.
_CONTENT_REF: Final = ContentRef
_KINDS_OF_EVERY_TURN: Final = (ModelCall, AccessEvent)
"""What nearly every turn gets rows of, in this commit or the next."""


@cache
def _insert_sql(table: str, width: int, count: int) -> str:
    row = "(" + ",".join("?" * width) + ")"
    verb = "INSERT OR REPLACE" if table == "open_records" else "INSERT"
    return f"{verb} INTO {table} VALUES {','.join([row] * count)}"


@cache
def _delete_open_sql(count: int) -> str:
    """SQL that deletes `count` ranges: the row of a turn and that of its first call are neighbours,
    and a list of keys would be put into a table of its own first."""
    return "DELETE FROM open_records WHERE " + " OR ".join(["open_key BETWEEN ? AND ?"] * count)


_insert_turn_ids_sql = partial(_insert_sql, "turn_ids", 2)
_insert_contents_sql = partial(_insert_sql, "contents", 5)
_insert_nodes_sql = partial(_insert_sql, "prefix_nodes", 3)
_insert_open_sql = partial(_insert_sql, "open_records", 5)


_Row = Sequence[Any]


class _Step:
    """One record on its way, and what is known of it."""

    __slots__ = ("before", "codec", "id", "is_open", "record", "turn_id")

    def __init__(
        self,
        record: Record,
        codec: RowCodec,
        turn_id: str | None,
        key: str,
        before: Stored | None,
        is_open: bool,
    ) -> None:
        self.record = record
        self.codec = codec
        self.turn_id = turn_id
        self.id = key
        """Its record id; empty in a log whose rows get no later revision."""
        self.before = before
        """The row it replaces; None if it is new."""
        self.is_open = is_open


class Batch(Contents):
    """What one transaction will write, and what is to be remembered once it is committed."""

    def __init__(
        self,
        db: apsw.Connection,
        memory: Memory,
        cursor: apsw.Cursor,
        *,
        is_row_by_row: bool = False,
    ) -> None:
        """cursor: of `db`, for what is written. is_row_by_row: whether a statement writes one row
        only, for whoever has the interpreter's lock at hand."""
        self._db = db
        self._memory = memory
        self._cursor = cursor
        self._is_row_by_row = is_row_by_row
        self.new_turns: dict[str, int] = {}
        self.new_contents: dict[bytes, int] = {}
        self._parts: dict[str, int] = {}
        """Text that is stored apart → its content's key, of those this transaction met."""
        self.new_nodes: dict[int, None] = {}
        self.rows: dict[str, Stored] = {}
        self.rowless: dict[int, None] = {}
        """Keys of turns that are new and have no row of their own yet."""
        self._rowed: list[int] = []
        """Keys of turns without a row that get one here."""
        self._last_rows: dict[RowsOf, int] = {}
        self._open_rows: list[_Row] = []
        self._closed_keys: list[int] = []
        self._turn_key_last = memory.turns.key_last
        self._content_key_last = memory.contents.key_last
        self._turn_id_rows: list[_Row] = []
        self._content_rows: list[_Row] = []
        self._node_rows: list[_Row] = []
        self._reasoning_rows: list[list[Any]] = []
        self._media: list[Medium] = []
        self._inserts: defaultdict[RowCodec, list[_Row]] = defaultdict(list)
        self._replaces: defaultdict[RowCodec, list[_Row]] = defaultdict(list)
        self._retimed: dict[int, list[Any]] = {}
        """Turn key → its last row, of one whose time changed: an application's is earlier."""

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
            self._turn_id_rows.append((key, turn_id))
            self.rowless[key] = None
            for kind in _KINDS_OF_EVERY_TURN:
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
            self._content_rows.append((key, address, *split_content(text, self)))
        return key

    def part_key(self, text: str) -> int:
        """The key of a text that is stored apart; a new one is staged."""
        key = self._parts.get(text)
        if key is None:
            address = part_address(text)
            key = self.find_content(address)
            if key is None:
                self._content_key_last += 1
                key = self.new_contents[address] = self._content_key_last
                self._content_rows.append((key, address, text, None, None))
            self._parts[text] = key
        return key

    def find_part(self, text: str) -> int | None:
        """The key of a text that is stored apart, if it is stored or staged."""
        key = self._parts.get(text)
        return key if key is not None else self.find_content(part_address(text))

    def knows_node(self, node: int) -> bool:
        """Whether a prefix node is stored or staged.

        One that memory dropped is looked up and remembered anew: the prompt that all turns begin
        with is as old as the record, and stands in every request.
        """
        if node in self.new_nodes or self._memory.knows_node(node):
            return True
        if self._db.execute("SELECT 1 FROM prefix_nodes WHERE node = ?", (node,)).get is None:
            return False
        self._memory.keep_nodes({node: None})
        return True

    def next_row_key(self, kind: type[Record], turn_key: int | None) -> int:
        """A key for a new row of a turn; rows of no turn stand with those of the last one."""
        is_of_no_turn = turn_key is None
        if turn_key is None:
            turn_key = self._turn_key_last
        rows = (kind, turn_key)
        last = self._last_rows.get(rows)
        if last is None and turn_key > self._memory.turns.key_last:
            last = (turn_key << schema.TURN_ROWS_BITS) - 1  # The turn is new in this transaction.
        if last is None:
            last = self._memory.last_row(rows)
        if last is None:
            last = self._find_last_row(rows)
        if last + 1 == (turn_key + 1) << schema.TURN_ROWS_BITS:
            if is_of_no_turn:
                # So many requests without a turn between them: more room for their rows.
                return self.next_row_key(kind, self.turn_key(f"{ROOM}{turn_key + 1}"))
            raise RecordRefused(f"A turn has too many rows of `{CODECS[kind].log.name}`.")
        self._last_rows[rows] = last + 1
        return last + 1

    def _find_last_row(self, rows: RowsOf) -> int:
        kind, turn_key = rows
        log = CODECS[kind].log
        found = self._db.execute(
            f"SELECT max(row_key) FROM (SELECT r.row_key FROM {log.rows} r"
            f" WHERE {schema.turn_range_sql('?1')}"
            f" UNION ALL SELECT o.open_key >> {schema.LOG_BITS} FROM open_records o"
            f" WHERE {schema.open_range_sql('?1')} AND o.log = ?2)",
            (turn_key, log.name),
        ).get
        return (turn_key << schema.TURN_ROWS_BITS) - 1 if found is None else int(found)

    # ------------------------------------------------------------- the quick way

    def add(self, group: Group) -> bool:
        """Stage a group; False, with nothing staged, where it needs care."""
        steps = self._quick_steps(group)
        if steps is None or not self._has_quick_contents(group, steps):
            return False
        for content in group.contents:
            self.content_key(content.address, content.text)
        for node in group.nodes:
            key = self.find_content(node.address)
            assert key is not None
            self.stage_node(node.node, node.parent, key)
        turns: list[_Step] = []
        turn_id: str | None = None
        turn_key: int | None = None
        for step in steps:
            if step.turn_id != turn_id:
                turn_id = step.turn_id
                turn_key = None if turn_id is None else self.turn_key(turn_id)
            codec, before = step.codec, step.before
            if codec.is_turn:
                turns.append(step)
                continue
            row_key = before.key if before is not None else self.next_row_key(codec.kind, turn_key)
            elsewhere = codec.nowhere_else
            if codec.is_call and not step.is_open:
                elsewhere = call_elsewhere(cast(ModelCall, step.record), self)
            self._stage(step, row_key, turn_key, elsewhere)
        # After the calls, whose answers hold the text of the turn.
        for step in turns:
            self._stage_turn(step, group)
        if group.reasoning:
            self.stage_reasoning(group.reasoning)
        if group.media:
            self.stage_media(group.media)
        return True

    def _quick_steps(self, group: Group) -> list[_Step] | None:
        """The records, each with the row it replaces; None where a record needs care."""
        steps: list[_Step] = []
        for record in group.records:
            codec = CODECS[type(record)]
            turn_id = record.turn_id
            revision = record.revision
            if not codec.is_revised:
                if revision != 1:
                    return None
                steps.append(_Step(record, codec, turn_id, "", None, False))
                continue
            key = record_id(record)
            before = self.stored(key)
            will_be_open = is_open(record)
            if before is None:
                if revision != 1 or (codec.is_turn and self._may_have_row(key)):
                    return None
            else:
                last = before.record
                if (
                    revision != last.revision + 1
                    or (codec.is_call and _time_of(record) != last.timestamp)
                    or turn_id != last.turn_id
                    or not (before.is_open or (codec.is_turn and not will_be_open))
                ):
                    return None
            steps.append(_Step(record, codec, turn_id, key, before, will_be_open))
        return steps

    def _may_have_row(self, turn_id: str) -> bool:
        """Whether a turn that is not remembered may have a row; other records may have named it."""
        key = self.find_turn(turn_id)
        return key is not None and key not in self.rowless and not self._memory.is_rowless(key)

    def _has_quick_contents(self, group: Group, steps: list[_Step]) -> bool:
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
        for step in steps:
            if step.codec.is_call:
                call = cast(ModelCall, step.record)
                for listed in (call.prompt_messages_json, call.tools_json):
                    if type(listed) is _CONTENT_REF:
                        node_last = listed.node
                        if node_last not in own_nodes and not self.knows_node(node_last):
                            return False
        return True

    def _stage_turn(self, step: _Step, group: Group) -> None:
        record, before = cast(TurnAudit, step.record), step.before
        key = self.turn_key(record.turn_id)
        same = None
        if before is not None and cast(TurnAudit, before.record).user_text == record.user_text:
            same = before.elsewhere
        self._stage(step, key, key, turn_elsewhere(record, same, group.contents, self))

    # ------------------------------------------------------------------- staging

    def stage_node(self, node: int, parent: int | None, content_key: int) -> None:
        """Stage a prefix node that is not stored."""
        self.new_nodes[node] = None
        self._node_rows.append((node, parent, content_key))

    def stage_reasoning(self, texts: Sequence[ReasoningText]) -> None:
        """Stage reasoning texts, each for the turn that brought it."""
        self._reasoning_rows += [kept.values_of(t, self.turn_key(t.turn_id)) for t in texts]

    def stage_media(self, media: Sequence[Medium]) -> None:
        """Stage media that are kept."""
        self._media += media

    def _stage(self, step: _Step, key: int, turn_key: int | None, elsewhere: Elsewhere) -> None:
        record, before, codec = step.record, step.before, step.codec
        older = data = None
        if codec.is_turn and before is None:
            self.note_turn_row(key)
        if before is not None:
            older = (before.older or b"") + codec.digest(before.record, before.data)
        if step.is_open:
            data, is_canonical = codec.open_data(record)
            self.stage_open(codec, key, turn_key, data, older)
            data = data if is_canonical else None
        else:
            row_key = None if codec.is_turn else key
            row = codec.encode(record, turn_key, row_key, elsewhere, older)
            if before is None:
                self._inserts[codec].append(row)
            elif before.is_open:
                self._inserts[codec].append(row)
                self._closed_keys.append(codec.open_key(key))
            elif codec.is_turn and (
                _time_of(record) != before.record.timestamp or key in self._retimed
            ):
                # Later ones of this commit go the same way, so that the last one is written last.
                self._retimed[key] = row
            else:
                self._replaces[codec].append(row)
        if step.id:
            revised = cast("TurnAudit | ModelCall", record)
            self.rows[step.id] = Stored(key, revised, data, older, elsewhere, step.is_open)

    def note_turn_row(self, turn_key: int) -> None:
        """Remember that a turn has a row of its own from here on."""
        if turn_key in self.rowless:
            del self.rowless[turn_key]
        else:
            self._rowed.append(turn_key)

    def stage_open(
        self, codec: RowCodec, key: int, turn_key: int | None, data: bytes, older: bytes | None
    ) -> None:
        """Stage an open record of a log, or a further revision that leaves it open."""
        self._open_rows.append(
            (codec.open_key(key), codec.log.name, turn_key, data.decode(), older)
        )

    # ------------------------------------------------------------------- writing

    def write(self) -> None:
        """Execute what is staged, in the open transaction."""
        self._write_rows(_insert_turn_ids_sql, self._turn_id_rows)
        self._write_rows(_insert_contents_sql, self._content_rows)
        self._write_rows(_insert_nodes_sql, self._node_rows)
        self._write_rows(_insert_open_sql, self._open_rows)
        if self._reasoning_rows:
            kept.insert(self._db, self._reasoning_rows)
            self._reasoning_rows.clear()
        if self._media:
            media.insert(self._db, self._media)
            self._media.clear()
        for codec, rows in self._inserts.items():
            # In the order of their keys: each row that ends a table goes beside the one before it,
            # to the last page, and fills it.
            rows.sort(key=codec.key_of)
            self._write_rows(codec.insert_sql, rows)
        for codec, rows in self._replaces.items():
            self._write_rows(codec.replace_sql, rows)
        if self._retimed:
            for row in self._retimed.values():
                self._cursor.execute(CODECS[TurnAudit].careful_replace_sql, row)
            self._retimed.clear()
        if self._closed_keys:
            self._write_rows(_delete_open_sql, ranges_of(self._closed_keys))
            self._closed_keys.clear()

    def _write_rows(self, sql_of: Callable[[int], str], rows: list[_Row]) -> None:
        """Execute a statement for rows of values. sql_of: the statement for so many of them."""
        if not rows:
            return
        if self._is_row_by_row:
            self._cursor.executemany(sql_of(1), rows)
            rows.clear()
            return
        at = 0
        for count in _counts(len(rows)):
            values: list[Any] = []
            for row in rows[at : at + count]:
                values += row
            self._cursor.execute(sql_of(count), values)
            at += count
        rows.clear()

    def committed(self) -> None:
        """Hand over to memory what the transaction left."""
        memory = self._memory
        if self.new_turns:
            memory.turns.added(self.new_turns)
        if self.new_contents:
            memory.contents.added(self.new_contents)
        if self.new_nodes:
            memory.keep_nodes(self.new_nodes)
        memory.keep_rows(self.rows)
        if self._last_rows:
            memory.keep_last_rows(self._last_rows)
        if self.rowless or self._rowed:
            memory.keep_rowless(self.rowless, self._rowed)


def _time_of(record: Record) -> int:
    """When a turn or a call opened."""
    return cast("TurnAudit | ModelCall", record).timestamp


def ranges_of(keys: list[int]) -> list[_Row]:
    """First and last of each run of neighbours among keys."""
    keys.sort()
    ranges: list[_Row] = []
    first = last = keys[0]
    for key in keys:
        if key > last + 1:
            ranges.append((first, last))
            first = key
        last = key
    ranges.append((first, last))
    return ranges


@lru_cache(maxsize=1024)
def _counts(total: int) -> tuple[int, ...]:
    """`total` as a sum of the counts that have a prepared statement."""
    counts = []
    for count in _COUNTS:
        while total >= count:
            counts.append(count)
            total -= count
    return tuple(counts)
