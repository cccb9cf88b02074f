"""Records to rows of SQLite and back: one codec a log, made from the schema.

The quick way takes a record's values as they are and looks at their text once, all together; only
where that finds something does each column go through `audit.columns`. The careful way takes any
value there is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from operator import itemgetter
from typing import Any, Final

import msgspec

from everyturn.audit import columns as text_columns
from everyturn.audit import schema
from everyturn.audit.records import ContentRef, ModelCall, Record

_INTEGER_MAX: Final = (1 << 63) - 1
_PIECE_BYTES: Final = 2_000
_ENCODER: Final = msgspec.json.Encoder()
_astuple: Final = msgspec.structs.astuple
_SHA256: Final = hashlib.sha256()
"""To be copied: a new one is looked for by its name."""

REFERENCE_CHARS_MIN: Final = 128
"""Texts of at least so many characters are stored once and referred to."""

DIGEST_BYTES: Final = 36
"""One older revision: its number in 4 bytes, then the SHA-256 of its content."""


class Elsewhere:
    """The texts of a row that rest in contents. No change after it is made."""

    __slots__ = ("columns", "texts")

    def __init__(
        self, columns: tuple[int | None, ...], texts: Sequence[tuple[int, str | None]]
    ) -> None:
        self.columns = columns
        """The extra columns of the log's table; empty for a log that has none."""
        self.texts = texts
        """Position and value of the text columns that hold less than their text."""


NOWHERE_ELSE: Final = {
    log.type: Elsewhere((None,) * len(schema.extra_columns(log)), ()) for log in schema.LOGS
}
"""Of a row whose texts all stand in their own columns."""


class RowCodec:
    """How the records of one log become rows of its table."""

    def __init__(self, log: schema.Log) -> None:
        self.log = log
        self._names = schema.row_columns(log)
        self._own = own = tuple(column.name for column in log.columns)
        self._turn_at = own.index("turn_id")
        self._listed_at = tuple(own.index(column.name) for column in log.listed)
        self._texts = tuple((i, c) for i, c in enumerate(log.columns) if c.kind in ("text", "json"))
        self._booleans_at = tuple(i for i, c in enumerate(log.columns) if c.kind == "boolean")
        self._defaults = {column.name: column.default for column in log.columns}
        self._reals_at = tuple(i for i, c in enumerate(log.columns) if c.kind == "real")
        self._plain_at = tuple(i for i, c in enumerate(log.columns) if c.kind == "text")
        # JSON leaves a default out where the value is that very object (omit_defaults of msgspec).
        self._text_defaults = tuple(
            (i, c.default) for i, c in enumerate(log.columns) if isinstance(c.default, str)
        )
        self._later_at = tuple(own.index(column.name) for column in schema.later_columns(log))
        self._later_backwards = tuple(sorted(self._later_at, reverse=True))
        self.key_column = schema.row_key(log)
        self.key_of = itemgetter(self._names.index(self.key_column))
        """The key of a row that `encode` made."""
        self.kind = log.type
        self.is_turn = log.is_turn
        self.is_call = log.type is ModelCall
        self.is_revised = log.is_revised
        """Whether its rows may get a later revision; those of the others are written once."""
        self.nowhere_else = NOWHERE_ELSE[log.type]
        self._open_shift = schema.LOG_BITS + (schema.TURN_ROWS_BITS if log.is_turn else 0)
        self._log_number = schema.LOGS.index(log)
        self.insert_sql = cache(self._insert_sql)
        self.replace_sql = cache(self._replace_sql)
        self.select_sql = schema.sqlite_select(log)
        self.select_keyed_sql = schema.sqlite_select(log, f"r.{self.key_column}")

    def open_key(self, key: int) -> int:
        """The key among the open records of one whose row's key will be `key`."""
        return key << self._open_shift | self._log_number

    def row_key_of(self, open_key: int) -> int:
        """The row's key of an open record; undoes `open_key`."""
        return open_key >> self._open_shift

    def _insert_sql(self, count: int) -> str:
        # Without names: the longer the text, the longer it takes to find the prepared statement.
        row = "(" + ",".join("?" * len(self._names)) + ")"
        return f"INSERT INTO {self.log.rows} VALUES {','.join([row] * count)}"

    def _replace_sql(self, count: int) -> str:
        """Later revisions of stored rows; ids, turns and times, which indexes hold, stay."""
        return self._upsert_sql(count, {self.key_column, "turn_key", self.log.id, "timestamp"})

    @property
    def careful_replace_sql(self) -> str:
        """A row, or its later revision, times and turn included."""
        return self._upsert_sql(1, {self.key_column, self.log.id, "turn_id"})

    def _upsert_sql(self, count: int, fixed: set[str]) -> str:
        changes = ",".join(f"{n}=excluded.{n}" for n in self._names if n not in fixed)
        return f"{self._insert_sql(count)} ON CONFLICT ({self.key_column}) DO UPDATE SET {changes}"

    def encode(
        self,
        record: Record,
        turn_key: int | None,
        row_key: int | None,
        elsewhere: Elsewhere,
        older: bytes | None,
    ) -> list[Any]:
        """The values of a row in the order of `schema.row_columns`.

        row_key: None for a turn, whose key is its turn key. Raises UnicodeEncodeError for a lone
        surrogate, which `encode_carefully` takes.
        """
        row: list[Any] = list(_astuple(record))
        nodes = self._take_nodes(row)
        for at, text in elsewhere.texts:
            row[at] = text
        if not _is_quick(row):
            self._settle_texts(row)
        row[self._turn_at] = turn_key
        return self._completed(row, row_key, nodes, elsewhere, older)

    def encode_carefully(
        self, record: Record, *, turn_key: int | None, row_key: int | None, older: bytes | None
    ) -> list[Any]:
        """As `encode`, for any values: what no column takes is made fit, and every text is here."""
        row, nodes = self._settled(record)
        row[self._turn_at] = turn_key
        return self._completed(row, row_key, nodes, self.nowhere_else, older)

    def _settled(self, record: Record) -> tuple[list[Any], list[int | None]]:
        """A record's own values as they rest, without its lists, and the nodes of those."""
        row: list[Any] = list(_astuple(record))
        nodes = self._take_nodes(row)
        self._settle_texts(row)
        _settle_numbers(row)
        return row, nodes

    def _take_nodes(self, row: list[Any]) -> list[int | None]:
        """The nodes of the lists among a record's own values, which they leave."""
        nodes: list[int | None] = []
        for at in self._listed_at:
            value = row[at]
            if type(value) is ContentRef:
                row[at] = None
                nodes.append(value.node)
            else:
                nodes.append(None)
        return nodes

    def _completed(
        self,
        row: list[Any],
        row_key: int | None,
        nodes: list[int | None],
        elsewhere: Elsewhere,
        older: bytes | None,
    ) -> list[Any]:
        """The row of a record's own values: all its columns, in their order."""
        later = [row[at] for at in self._later_at]
        for at in self._later_backwards:
            del row[at]
        if row_key is not None:
            row.append(row_key)
        row += nodes
        row += elsewhere.columns
        row.append(older)
        row += later
        return row

    def _settle_texts(self, row: list[Any]) -> None:
        for at, column in self._texts:
            if row[at] is not None:
                row[at] = text_columns.at_rest(column, row[at])

    def open_data(self, record: Record) -> tuple[bytes, bool]:
        """An open record as it rests, in JSON; True where its digest may be taken of just that.

        Raises UnicodeEncodeError for a lone surrogate, which `open_data_carefully` takes.
        """
        values: list[Any] = list(_astuple(record))
        if not _is_quick(values):
            return self.open_data_carefully(record), False
        is_canonical = True
        for at in self._reals_at:
            if type(values[at]) is int:
                is_canonical = False
        for at, default in self._text_defaults:
            if values[at] is not default and values[at] == default:
                record = msgspec.structs.replace(record, **{self._own[at]: default})
        return _ENCODER.encode(record), is_canonical

    def open_data_carefully(self, record: Record) -> bytes:
        """As `open_data`, for any values."""
        return _ENCODER.encode(self._resting(record))

    def decode_open(self, text: str) -> Record:
        """The record of an open one's JSON; its lists stay references."""
        values = {
            name: value
            for name, value in msgspec.json.decode(text).items()
            if name in self._defaults
        }
        for column in self.log.listed:
            value = values.get(column.name)
            if isinstance(value, dict):
                values[column.name] = ContentRef(value["node"])
        row = list(_astuple(self.log.type(**values)))
        _settle_numbers(row)
        return self._as_read(row)

    def _resting(self, record: Record) -> Record:
        """The record with its values as they rest."""
        own, _ = self._settled(record)
        own[self._turn_at] = record.turn_id
        for at, column in zip(self._listed_at, self.log.listed, strict=True):
            own[at] = getattr(record, column.name)
        return self._made_of(own)

    def canonical(self, record: Record) -> Record:
        """The record as it will be when it is read again; lists stay as they are given."""
        return self._as_read(list(_astuple(self._resting(record))))

    def digest(self, record: Record, data: bytes | None = None) -> bytes:
        """What is kept of a revision that a later one replaced: its number and its hash.

        data: the record's JSON, where it is known to be what reading it again would give.
        """
        if data is None:
            data = self._canonical_data(record)
        # In pieces under 2 KiB: above that hashlib lets go of the interpreter lock, and taking
        # it back from a busy event loop costs more than the hash.
        sha = _SHA256.copy()
        for start in range(0, len(data), _PIECE_BYTES):
            sha.update(data[start : start + _PIECE_BYTES])
        return record.revision.to_bytes(4, "big") + sha.digest()

    def _canonical_data(self, record: Record) -> bytes:
        try:
            data, is_canonical = self.open_data(record)
            if is_canonical:
                return data
            return _ENCODER.encode(self.canonical(record))
        except UnicodeEncodeError:
            # Lone surrogates cannot be encoded; `repr` escapes them, always the same way.
            return repr(_astuple(self.canonical(record))).encode("utf-8")

    def decode(self, values: Sequence[Any]) -> Record:
        """The record of a row that `select_sql` gave."""
        return self._as_read(list(values))

    def _as_read(self, row: list[Any]) -> Record:
        for at in self._booleans_at:
            if row[at] is not None:
                row[at] = bool(row[at])
        for at in self._reals_at:
            if type(row[at]) is int:
                row[at] = float(row[at])
        for at in self._plain_at:
            if row[at] is not None:
                row[at] = text_columns.unescape(row[at])
        return self._made_of(row)

    def _made_of(self, row: list[Any]) -> Record:
        for at, default in self._text_defaults:
            if row[at] == default:
                row[at] = default
        return self.log.type(**dict(zip(self._defaults, row, strict=True)))


def _settle_numbers(row: list[Any]) -> None:
    """Make every number of a row one that a column holds."""
    for at, value in enumerate(row):
        if type(value) is int and not -_INTEGER_MAX - 1 <= value <= _INTEGER_MAX:
            # The exact digits stand in the payload; here it is a number to compare.
            row[at] = float(value) if abs(value) < 10**308 else None
        elif type(value) is float and value != value:
            row[at] = None


def _is_quick(values: list[Any]) -> bool:
    """Whether the texts among a record's values can rest as they are, all looked at together.

    Raises UnicodeEncodeError for a lone surrogate.
    """
    text = "".join([value for value in values if isinstance(value, str)])
    if text.isascii():
        return len(text) <= text_columns.TEXT_BYTES_MAX and "\0" not in text
    return len(text.encode()) <= text_columns.TEXT_BYTES_MAX and text_columns.is_plain(text)


def string_in(payload: str, text: str | None) -> tuple[int, int] | None:
    """Where `text` stands as a string of the JSON text `payload`: offset and length.

    In characters, offset from 0, quotes included. None when it does not, or when it is so short
    that a reference saves nothing, or so odd or long that a column would not hold it as it is.
    """
    if text is None or not REFERENCE_CHARS_MIN <= len(text) <= text_columns.TEXT_BYTES_MAX // 4:
        return None
    if not text_columns.is_plain(text) or "\0" in payload:
        return None
    try:
        literal = _ENCODER.encode(text).decode()
    except UnicodeEncodeError:
        return None
    # A message ends with its text as a rule.
    at = len(payload) - 1 - len(literal)
    if at < 0 or not payload.startswith(literal, at):
        at = payload.find(literal)
    return None if at < 0 else (at, len(literal))


def digest_of(older: bytes | None, revision: int) -> bytes | None:
    """The digest of one revision among those kept; None if it never came."""
    for start in range(0, len(older or b""), DIGEST_BYTES):
        entry = (older or b"")[start : start + DIGEST_BYTES]
        if int.from_bytes(entry[:4], "big") == revision:
            return entry
    return None


CODECS: Final[dict[type[Any], RowCodec]] = {log.type: RowCodec(log) for log in schema.LOGS}
