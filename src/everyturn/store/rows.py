"""Records to rows of SQLite and back: one codec a log, made from the schema.

The quick way takes a record's fields as they are and looks at its text once; only what that finds
goes column by column (`audit.columns`). Lone surrogates and integers beyond 64 bits are not
looked for: binding them fails, and the store then takes the careful way.
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
from everyturn.audit.records import ContentRef, Record

_INTEGER_MAX: Final = (1 << 63) - 1
_QUICK_CHARS_MAX: Final = text_columns.TEXT_BYTES_MAX // 4
"""Where all text of a row is shorter than this, no column can be too long."""

DIGEST_BYTES: Final = 36
"""One older revision: its number in 4 bytes, then the SHA-256 of its content."""


class RowCodec:
    """How the records of one log become rows of its table."""

    def __init__(self, log: schema.Log) -> None:
        self.log = log
        names = schema.row_columns(log)
        own = tuple(column.name for column in log.columns)
        self._names = names
        self._turn_at = own.index("turn_id")
        self._listed_at = tuple(own.index(column.name) for column in log.listed)
        texts = [i for i, c in enumerate(log.columns) if c.kind in ("text", "json")]
        self._texts_of = itemgetter(*texts)
        self._text_columns = tuple((i, log.columns[i]) for i in texts)
        self._booleans_at = tuple(i for i, c in enumerate(log.columns) if c.kind == "boolean")
        self._reals_at = tuple(i for i, c in enumerate(log.columns) if c.kind == "real")
        self._plain_at = tuple(i for i, c in enumerate(log.columns) if c.kind == "text")
        self._key = schema.row_key(log)
        self.insert_sql = cache(self._insert_sql)
        self.replace_sql = cache(self._replace_sql)
        self.select_sql = schema.sqlite_select(log)

    def _insert_sql(self, count: int) -> str:
        row = "(" + ",".join("?" * len(self._names)) + ")"
        return (
            f"INSERT INTO {self.log.rows} ({','.join(self._names)})"
            f" VALUES {','.join([row] * count)}"
        )

    def _replace_sql(self, count: int) -> str:
        """Later revisions of stored rows; ids, turns and times, which indexes hold, stay."""
        fixed = {self._key, "turn_key", self.log.id, "timestamp"}
        changes = ",".join(f"{n}=excluded.{n}" for n in self._names if n not in fixed)
        return f"{self._insert_sql(count)} ON CONFLICT ({self._key}) DO UPDATE SET {changes}"

    @property
    def careful_replace_sql(self) -> str:
        """As `replace_sql` for one row, times and turn included."""
        fixed = {self._key, self.log.id} | ({"turn_key"} if self.log.is_turn else set())
        changes = ",".join(f"{n}=excluded.{n}" for n in self._names if n not in fixed)
        return f"{self._insert_sql(1)} ON CONFLICT ({self._key}) DO UPDATE SET {changes}"

    def encode(
        self,
        record: Record,
        *,
        turn_key: int | None,
        row_key: int | None,
        references: Sequence[int | None],
        older: bytes | None,
    ) -> list[Any]:
        """The values of a row in the order of `schema.row_columns`.

        row_key: None for a turn, whose key is its turn key. references: the extra columns of a
        turn, empty for other logs; where they stand, the text itself does not.
        """
        row: list[Any] = list(msgspec.structs.astuple(record))
        nodes: list[int | None] = []
        for at in self._listed_at:
            value = row[at]
            if type(value) is ContentRef:
                row[at] = None
                nodes.append(value.node)
            else:
                nodes.append(None)
        texts = "".join(filter(None, self._texts_of(row)))
        if len(texts) > _QUICK_CHARS_MAX or not text_columns.is_plain(texts):
            self._settle_texts(row)
        row[self._turn_at] = turn_key
        if row_key is not None:
            row.append(row_key)
        row += nodes
        row += references
        row.append(older)
        return row

    def _settle_texts(self, row: list[Any]) -> None:
        for at, column in self._text_columns:
            if row[at] is not None:
                row[at] = text_columns.at_rest(column, row[at])

    def settle(self, row: list[Any]) -> None:
        """Make every value of an encoded row one that can be bound.

        Text that has been settled already holds nothing more to escape but `␛`, so this must be
        given rows of `encode` that failed, once.
        """
        for at, column in self._text_columns:
            value = row[at]
            if isinstance(value, str) and not _is_utf8(value):
                row[at] = text_columns.at_rest(column, value)
        for at, value in enumerate(row):
            if type(value) is int and not -_INTEGER_MAX - 1 <= value <= _INTEGER_MAX:
                # The exact digits stand in the payload; here it is a number to compare.
                row[at] = float(value) if abs(value) < 10**308 else None
            elif type(value) is float and value != value:
                row[at] = None

    def canonical(self, record: Record) -> Record:
        """The record as it will be when it is read again."""
        row = self.encode(record, turn_key=None, row_key=None, references=(), older=None)
        self.settle(row)
        own = row[: len(self.log.columns)]
        own[self._turn_at] = record.turn_id
        for at, column in zip(self._listed_at, self.log.listed, strict=True):
            own[at] = getattr(record, column.name)
        return self.decode(own)

    def digest(self, record: Record) -> bytes:
        """What is kept of a revision that a later one replaced: its number and its hash."""
        row: list[Any] = list(msgspec.structs.astuple(record))
        data = _packed(row) if self._is_canonical(row) else None
        if data is None:
            row = list(msgspec.structs.astuple(self.canonical(record)))
            # Lone surrogates cannot be packed; `repr` escapes them, always the same way.
            data = _packed(row) or repr(row).encode("utf-8")
        sha = hashlib.sha256()
        # In pieces under 2 KiB: above that hashlib lets go of the interpreter lock, and taking
        # it back from a busy event loop costs more than the hash.
        for start in range(0, len(data), 2_000):
            sha.update(data[start : start + 2_000])
        return record.revision.to_bytes(4, "big") + sha.digest()

    def _is_canonical(self, row: list[Any]) -> bool:
        """Whether reading gives these values; reals are made so here."""
        for at in self._reals_at:
            if type(row[at]) is int:
                row[at] = float(row[at])
        texts = "".join(t for t in self._texts_of(row) if type(t) is str)
        return len(texts) <= _QUICK_CHARS_MAX and text_columns.is_plain(texts)

    def decode(self, values: Sequence[Any]) -> Record:
        """The record of a row that `select_sql` gave."""
        row = list(values)
        for at in self._booleans_at:
            if row[at] is not None:
                row[at] = bool(row[at])
        for at in self._plain_at:
            if row[at] is not None:
                row[at] = text_columns.unescape(row[at])
        names = (column.name for column in self.log.columns)
        return self.log.type(**dict(zip(names, row, strict=True)))


def _packed(row: list[Any]) -> bytes | None:
    try:
        return msgspec.msgpack.encode(row)
    except (UnicodeEncodeError, OverflowError):
        return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def digest_of(older: bytes | None, revision: int) -> bytes | None:
    """The digest of one revision among those kept; None if it never came."""
    for start in range(0, len(older or b""), DIGEST_BYTES):
        entry = (older or b"")[start : start + DIGEST_BYTES]
        if int.from_bytes(entry[:4], "big") == revision:
            return entry
    return None


def text_reference(text: str | None, payload: str) -> tuple[int, int] | None:
    """Where `text` stands as a string of the JSON text `payload`: offset and length in characters.

    Offset counts from 1, both include the quotes. None when it does not, or when it is so short
    that a reference saves nothing, or so odd or long that the column would not hold it as it is.
    """
    if text is None or not REFERENCE_CHARS_MIN <= len(text) <= _QUICK_CHARS_MAX:
        return None
    if not text_columns.is_plain(text):
        return None
    try:
        literal = msgspec.json.encode(text).decode()
    except UnicodeEncodeError:
        return None
    at = payload.find(literal)
    return None if at < 0 else (at + 1, len(literal))


REFERENCE_CHARS_MIN: Final = 64
CODECS: Final[dict[type[Any], RowCodec]] = {log.type: RowCodec(log) for log in schema.LOGS}
