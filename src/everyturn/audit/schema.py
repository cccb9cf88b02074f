"""From the record types to the columns and tables of a store, and the numbered migrations.

Everything is derived from `LOGS`. A new log is a type in `records`, an entry here and the next
migration number; a new field is a field there and an entry in `ADDED_LATER`. A migration, once
released, never changes: it holds the columns whose number it is, however the types look today.

SQLite: a log rests in `NAME_rows` and is read through a view that has the contract's name, order
and columns, so any tool can `SELECT * FROM model_calls`. The rows hold a small integer where the
contract has a turn id, and references where a text rests elsewhere already (decision 0006).
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from everyturn.audit.records import (
    AccessEvent,
    ContentRef,
    ModelCall,
    QualityReview,
    ReasoningText,
    Record,
    RetrievalEvent,
    ToolCall,
    TurnAudit,
)

Kind = Literal["text", "json", "integer", "real", "boolean"]

_SQLITE_TYPES: Final[dict[Kind, str]] = {
    "text": "TEXT",
    "json": "TEXT",
    "integer": "INTEGER",
    "real": "REAL",
    "boolean": "INTEGER",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One field of a record as a store sees it."""

    name: str
    kind: Kind
    is_nullable: bool
    is_listed: bool
    """Whether the value may be a `ContentRef`."""
    is_whole: bool
    """A payload: never cut, whatever its length."""
    default: Any
    """What the field is when a record leaves it out; None where it may not."""
    since: int
    """The migration that adds the column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One log: its type, its columns in the contract's order, and how its rows are found."""

    name: str
    """The contract's name of the table."""
    type: type[Record]
    id: str
    """The column that names the record; with `revision` it is the key."""
    time: str
    """The column that says when it was."""
    is_revised: bool
    """Whether a later revision of a row may come; such rows rest apart while they are open."""
    indexed: tuple[str, ...]
    """Columns that readers select by, beside the id and the turn."""
    since: int
    """The migration that adds the log."""
    columns: tuple[Column, ...]

    @property
    def rows(self) -> str:
        """The table behind the view."""
        return f"{self.name}_rows"

    @property
    def is_turn(self) -> bool:
        """Whether a row is a turn itself, rather than something that belongs to one."""
        return self.id == "turn_id"

    @property
    def listed(self) -> tuple[Column, ...]:
        """The columns that may refer to content."""
        return tuple(column for column in self.columns if column.is_listed)


WHOLE: Final = frozenset(
    {
        "prompt_messages_json",
        "tools_json",
        "parameters_json",
        "response_json",
        "request_json",
        "sources_json",
    }
)
"""Payloads: kept whole. Every other text is cut at `columns.TEXT_BYTES_MAX`."""

ADDED_LATER: Final[dict[tuple[str, str], int]] = {("turn_audit", "sources_by_field_json"): 2}
"""(log, field) → the migration that adds the column, for fields younger than their log."""


def _log(
    name: str,
    record: type[Record],
    *,
    id: str,  # the contract's own word
    time: str = "timestamp",
    is_revised: bool = False,
    indexed: tuple[str, ...] = (),
    since: int,
) -> Log:
    hints = typing.get_type_hints(record)
    columns = tuple(
        _column(name, field, hints[field.name], since) for field in msgspec.structs.fields(record)
    )
    return Log(
        name=name,
        type=record,
        id=id,
        time=time,
        is_revised=is_revised,
        indexed=indexed,
        since=since,
        columns=columns,
    )


def _column(log: str, field: msgspec.structs.FieldInfo, hint: Any, since: int) -> Column:
    members = _members(hint)
    name = field.name
    return Column(
        name=name,
        kind=_kind(name, members),
        is_nullable=type(None) in members,
        is_listed=ContentRef in members,
        is_whole=name in WHOLE,
        default=None if field.default is msgspec.NODEFAULT else field.default,
        since=ADDED_LATER.get((log, name), since),
    )


def _members(hint: Any) -> tuple[Any, ...]:
    """The types a field may have; the values of a Literal count as their type."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return tuple(one for part in typing.get_args(hint) for one in _members(part))
    if typing.get_origin(hint) is Literal:
        return tuple({type(value) for value in typing.get_args(hint)})
    return (hint,)


def _kind(name: str, members: tuple[Any, ...]) -> Kind:
    if str in members:
        return "json" if name.endswith("_json") else "text"
    if bool in members:
        return "boolean"
    if float in members:
        return "real"
    assert int in members, f"no column kind for `{name}`"
    return "integer"


LOGS: Final[tuple[Log, ...]] = (
    _log(
        "turn_audit",
        TurnAudit,
        id="turn_id",
        is_revised=True,
        indexed=("timestamp",),
        since=1,
    ),
    _log("model_calls", ModelCall, id="model_call_id", is_revised=True, since=1),
    _log("access_events", AccessEvent, id="access_id", since=1),
    _log("tool_calls", ToolCall, id="tool_call_id", since=2),
    _log("retrieval_events", RetrievalEvent, id="retrieval_id", since=2),
    _log("quality_reviews", QualityReview, id="review_id", time="created_at", since=2),
)
"""Every log, turns first: the others belong to one. A new one goes to the end: the place of a log
is part of the keys of its open records."""

LOG_OF: Final[dict[type[Record], Log]] = {log.type: log for log in LOGS}
LOG_NAMED: Final[dict[str, Log]] = {log.name: log for log in LOGS}

# ---------------------------------------------------------------------- SQLite

_BASE_1: Final = (
    "CREATE TABLE store_numbers (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    # Turn ids and addresses are random. Everything else refers to them by small keys that grow,
    # and the tables that find a key are filled later, in sorted slices (see `store.lookup`):
    # one random page a row was half of what a row cost.
    "CREATE TABLE turn_ids (turn_key INTEGER PRIMARY KEY, turn_id TEXT NOT NULL)",
    "CREATE TABLE turn_ids_lookup (hash INTEGER, turn_key INTEGER, PRIMARY KEY (hash, turn_key))"
    " WITHOUT ROWID",
    # A text that stands in another one is stored apart and put in at `part_at` characters.
    "CREATE TABLE contents (content_key INTEGER PRIMARY KEY, address BLOB NOT NULL,"
    " text TEXT NOT NULL, part_key INTEGER, part_at INTEGER)",
    "CREATE TABLE contents_lookup (hash INTEGER, content_key INTEGER,"
    " PRIMARY KEY (hash, content_key)) WITHOUT ROWID",
    "CREATE TABLE prefix_nodes (node INTEGER PRIMARY KEY, parent INTEGER,"
    " content_key INTEGER NOT NULL)",
    # Turns and calls that are open: few, for a short time, so as JSON on pages that stay hot. Their
    # rows are written once, when they close; after a crash this is what is to be closed.
    "CREATE TABLE open_records (open_key INTEGER PRIMARY KEY, log TEXT NOT NULL,"
    " turn_key INTEGER NOT NULL, record TEXT NOT NULL, older_digests BLOB)",
)

_REASONING: Final = (
    # Kept apart from every log, so that nothing that reads logs can come upon it.
    "CREATE TABLE reasoning_texts_rows (reasoning_id TEXT PRIMARY KEY, turn_key INTEGER,"
    " model_call_id TEXT, timestamp INTEGER, expires_at INTEGER, carrier TEXT, chars INTEGER,"
    " is_encrypted INTEGER, text TEXT, schema_version INTEGER, redaction_applied INTEGER,"
    " redaction_rules_version TEXT, redactions_json TEXT)",
    "CREATE INDEX reasoning_texts_by_expiry ON reasoning_texts_rows (expires_at)",
)

_MEDIA: Final = (
    # Apart from every log too. Who refers to a medium, its marks say; `erasure` looks for them.
    "CREATE TABLE media (media_id TEXT PRIMARY KEY, timestamp INTEGER, media_type TEXT,"
    " size_bytes INTEGER, is_text INTEGER, data BLOB, schema_version INTEGER,"
    " redaction_applied INTEGER, redaction_rules_version TEXT, redactions_json TEXT)",
)


def _say_version(number: int) -> str:
    """Open records leave out what is as the types have it; these were written under `number`."""
    return (
        f"UPDATE open_records SET record = json_set(record, '$.schema_version', {number})"
        " WHERE json_extract(record, '$.schema_version') IS NULL"
    )


_MORE: Final[dict[int, tuple[str, ...]]] = {
    1: _BASE_1,
    2: (_say_version(1),),
    3: (_say_version(2), *_REASONING),
    4: (_say_version(3), *_MEDIA),
}
"""Statements of a migration that no log gives."""

MIGRATION_LAST: Final = max(*_MORE, *(column.since for log in LOGS for column in log.columns))
"""The number of the newest migration: the schema version of a store's files."""

_EXTRA_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "turn_audit": (
        "user_text_content",
        "user_text_offset",
        "user_text_length",
        "assistant_text_content",
    ),
    "model_calls": (
        "parameters_content",
        "response_content",
        "response_at",
        "usage_offset",
        "usage_length",
    ),
}
"""Integer columns that say where a text rests when it is not in its own column (decision 0006).

Offsets and lengths count characters. `user_text` is the JSON string at offset and length of a
content; `assistant_text` is the JSON string that a content is; `parameters_json` is a content;
`response_json` is the column with a content put in after `response_at` characters; `usage_json`
stands in the column `response_json` at offset and length.
"""


CONTENT_TEXT: Final = (
    "CASE WHEN c.part_key IS NULL THEN c.text ELSE substr(c.text, 1, c.part_at)"
    " || p.text || substr(c.text, c.part_at + 1) END"
)
"""The text of content `c`, whose part is content `p`."""


def node_column(column: str) -> str:
    """The column of a rows table that holds the prefix node of a listed column."""
    return f"{column.removesuffix('_json')}_node"


def extra_columns(log: Log) -> tuple[str, ...]:
    """The columns of a rows table that say where texts rest."""
    return _EXTRA_COLUMNS.get(log.name, ())


def row_columns(log: Log) -> tuple[str, ...]:
    """The columns of a rows table in their order there, in which a store writes them.

    First the record's own fields in their order, the turn id as `turn_key`; then the row's key
    (a turn's own key is its turn key), prefix nodes, references and the digests of older revisions;
    last the fields that are younger than the table (see `later_columns`).
    """
    first = (column for column in log.columns if column.since == log.since)
    own = tuple("turn_key" if column.name == "turn_id" else column.name for column in first)
    key = () if log.is_turn else ("row_key",)
    nodes = tuple(node_column(column.name) for column in log.listed)
    later = tuple(column.name for column in later_columns(log))
    return (*own, *key, *nodes, *extra_columns(log), "older_digests", *later)


def later_columns(log: Log) -> list[Column]:
    """The columns that migrations added to the table of a log, in the order they did."""
    return sorted((c for c in log.columns if c.since > log.since), key=lambda c: c.since)


TURN_ROWS_BITS: Final = 20
"""A row's key is its turn's key, shifted by so many bits, and a number within the turn: the rows
of a turn stand together, and finding them takes no index."""
LOG_BITS: Final = 3
"""An open record's key is its row's key (a turn's is that of number 0), shifted by so many bits,
and the number of its log."""


def turn_range_sql(turn_key: str, key: str = "r.row_key", bits: int = TURN_ROWS_BITS) -> str:
    """SQL that is true where `key` is of a turn; `turn_key` is an SQL expression."""
    return f"({key} >= ({turn_key}) << {bits} AND {key} < ({turn_key} + 1) << {bits})"


def open_range_sql(turn_key: str) -> str:
    """SQL that is true for open records `o` of a turn; `turn_key` is an SQL expression."""
    return turn_range_sql(turn_key, "o.open_key", TURN_ROWS_BITS + LOG_BITS)


def row_key(log: Log) -> str:
    """The integer primary key of a rows table."""
    return "turn_key" if log.is_turn else "row_key"


def sqlite_migration(number: int) -> tuple[str, ...]:
    """The statements of one migration, without the views (see `sqlite_views`)."""
    statements = list(_MORE.get(number, ()))
    for log in LOGS:
        if log.since == number:
            statements.extend(_create(log, number))
        elif log.since < number:
            statements.extend(
                f"ALTER TABLE {log.rows} ADD COLUMN {_declare(log, column)}"
                for column in log.columns
                if column.since == number
            )
    return tuple(statements)


def _create(log: Log, number: int) -> list[str]:
    columns = [_declare(log, column) for column in log.columns if column.since == number]
    if not log.is_turn:
        columns.append("row_key INTEGER PRIMARY KEY")
    columns.extend(f"{node_column(column.name)} INTEGER" for column in log.listed)
    columns.extend(f"{name} INTEGER" for name in extra_columns(log))
    columns.append("older_digests BLOB")
    rows = log.rows
    statements = [f"CREATE TABLE {rows} ({', '.join(columns)})"]
    statements.extend(
        f"CREATE INDEX {log.name}_by_{name} ON {rows} ({name})" for name in log.indexed
    )
    return statements


def _declare(log: Log, column: Column) -> str:
    if column.name == "turn_id":
        return "turn_key INTEGER PRIMARY KEY" if log.is_turn else "turn_key INTEGER"
    text = f"{column.name} {_SQLITE_TYPES[column.kind]}"
    if column.name == log.id:
        return f"{text} NOT NULL UNIQUE"
    return text


def sqlite_views() -> tuple[str, ...]:
    """The statements that make each contract name readable, replacing the views of old.

    Views hold no data, so they are made anew with every migration.
    """
    statements: list[str] = []
    for log in LOGS:
        statements.append(f"DROP VIEW IF EXISTS {log.name}")
        select = sqlite_select(log)
        if log.is_revised:
            select = f"{select} UNION ALL {_select_open(log)}"
        statements.append(f"CREATE VIEW {log.name} AS {select}")
    columns = [f.name for f in msgspec.structs.fields(ReasoningText)]
    listed = ", ".join("t.turn_id" if name == "turn_id" else f"r.{name}" for name in columns)
    statements.append("DROP VIEW IF EXISTS reasoning_texts")
    statements.append(
        f"CREATE VIEW reasoning_texts AS SELECT {listed} FROM reasoning_texts_rows r"
        " JOIN turn_ids t ON t.turn_key = r.turn_key"
    )
    return tuple(statements)


def sqlite_select(log: Log, *more: str) -> str:
    """The query that gives closed rows with the contract's columns, then `more` expressions.

    `r` is the rows table.
    """
    columns = ", ".join([*(f"{_expression(log, c)} AS {c.name}" for c in log.columns), *more])
    if log.is_turn:
        join = "JOIN turn_ids t ON t.turn_key = r.turn_key"
    else:
        # The range says nothing new, but lets a query for one turn go straight to its rows.
        join = f"LEFT JOIN turn_ids t ON t.turn_key = r.turn_key AND {turn_range_sql('t.turn_key')}"
    return f"SELECT {columns} FROM {log.rows} r {join}"


def _select_open(log: Log) -> str:
    """The query that gives open records with the contract's columns."""
    columns = ", ".join(f"{_open_expression(log, c)} AS {c.name}" for c in log.columns)
    return (
        f"SELECT {columns} FROM open_records o JOIN turn_ids t ON t.turn_key = o.turn_key"
        f" AND {open_range_sql('t.turn_key')} WHERE o.log = '{log.name}'"
    )


def _open_expression(log: Log, column: Column) -> str:
    if column.name == "turn_id":
        return "t.turn_id"
    value = f"json_extract(o.record, '$.{column.name}')"
    if column.is_listed:
        node = f"json_extract(o.record, '$.{column.name}.node')"
        return list_expression(node, value)
    if column.default is not None:
        default = f"'{column.default}'" if isinstance(column.default, str) else int(column.default)
        value = f"coalesce({value}, {default})"
    if (log.name, column.name) in _TEXT_EXPRESSIONS:
        return value
    # Of the same type as the column of closed rows: then a query of a few columns of the view is
    # planned as one of the tables, and does not make the others.
    return f"CAST({value} AS {_SQLITE_TYPES[column.kind]})"


def _expression(log: Log, column: Column) -> str:
    if column.name == "turn_id":
        return "t.turn_id"
    if column.is_listed:
        return list_expression(f"r.{node_column(column.name)}", f"r.{column.name}")
    return _TEXT_EXPRESSIONS.get((log.name, column.name), f"r.{column.name}")


def column_sql(log: str, name: str) -> str:
    """SQL that gives a column of the contract from a closed row `r` of a log."""
    found = LOG_NAMED[log]
    return _expression(found, next(column for column in found.columns if column.name == name))


def _content(key: str) -> str:
    """SQL that gives the text of a content that has no part."""
    return f"(SELECT c.text FROM contents c WHERE c.content_key = {key})"


_TEXT_EXPRESSIONS: Final[dict[tuple[str, str], str]] = {
    ("turn_audit", "user_text"): (
        "CASE WHEN r.user_text_content IS NULL THEN r.user_text ELSE json_extract(substr("
        f"{_content('r.user_text_content')}, r.user_text_offset, r.user_text_length), '$') END"
    ),
    ("turn_audit", "assistant_text"): (
        "CASE WHEN r.assistant_text_content IS NULL THEN r.assistant_text ELSE"
        f" json_extract({_content('r.assistant_text_content')}, '$') END"
    ),
    ("model_calls", "parameters_json"): (
        "CASE WHEN r.parameters_content IS NULL THEN r.parameters_json ELSE"
        f" {_content('r.parameters_content')} END"
    ),
    ("model_calls", "response_json"): (
        "CASE WHEN r.response_content IS NULL THEN r.response_json ELSE"
        " substr(r.response_json, 1, r.response_at)"
        f" || {_content('r.response_content')} || substr(r.response_json, r.response_at + 1) END"
    ),
    ("model_calls", "usage_json"): (
        "CASE WHEN r.usage_offset IS NULL THEN r.usage_json ELSE"
        " substr(r.response_json, r.usage_offset, r.usage_length) END"
    ),
}


def list_expression(node: str, text: str) -> str:
    """SQL that gives a listed column as JSON text, walking its prefix nodes.

    node: an expression for its last node; text: one for a list that was given as text, for when
    there is no node. Nodes grow from parent to child, so their order is the order of the items.
    """
    return (
        f"CASE WHEN {node} IS NULL THEN {text} ELSE"
        " (WITH RECURSIVE chain (node, parent, content_key) AS ("
        f"SELECT node, parent, content_key FROM prefix_nodes WHERE node = {node}"
        " UNION ALL SELECT p.node, p.parent, p.content_key"
        " FROM chain JOIN prefix_nodes p ON p.node = chain.parent)"
        # A list of which anything is missing is null, never a shorter list.
        " SELECT '[' || group_concat(text, ',') || ']' FROM (SELECT"
        f" {CONTENT_TEXT} AS text, chain.parent FROM chain"
        " LEFT JOIN contents c ON c.content_key = chain.content_key"
        " LEFT JOIN contents p ON p.content_key = c.part_key"
        " ORDER BY chain.node)"
        " HAVING count(*) = count(text) AND count(*) = count(parent) + 1) END"
    )
