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
from everyturn.audit.records import ContentRef, Record, TurnAudit

_INTEGER_MAX: Final = (1 << 63) - 1
_QUICK_CHARS_MAX: Final = text_columns.TEXT_BYTES_MAX // 4
"""Where all text of a row is shorter than this, no column can be too long."""

REFERENCE_CHARS_MIN: Final = 64
"""From here on a reference is shorter than the text."""

References = tuple[int | None, ...]
"""Where the texts of a turn rest: content, offset, length; row, offset, length. Else empty."""

_TURN_COLUMNS: Final = [column.name for column in schema.LOG_OF[TurnAudit].columns]
_USER_TEXT_AT: Final = _TURN_COLUMNS.index("user_text")
_ASSISTANT_TEXT_AT: Final = _TURN_COLUMNS.index("assistant_text")
_PIECE_BYTES: Final = 2_000
_PACKER: Final = msgspec.msgpack.Encoder()

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
        references: References,
        older: bytes | None,
    ) -> list[Any]:
        """The values of a row in the order of `schema.row_columns`.

        row_key: None for a turn, whose key is its turn key. references: the extra columns of a
        turn, empty for other logs; where they stand, the text itself does not.
        """
        row: list[Any] = list(msgspec.structs.astuple(record))
        if row_key is not None:
            row.append(row_key)
        for at in self._listed_at:
            value = row[at]
            if type(value) is ContentRef:
                row[at] = None
                row.append(value.node)
            else:
                row.append(None)
        if not self._is_quick(self._texts_of(row)):
            self._settle_texts(row)
        row[self._turn_at] = turn_key
        if references:
            row += references
            if references[1] is not None:
                row[_USER_TEXT_AT] = None
            if references[4] is not None:
                row[_ASSISTANT_TEXT_AT] = None
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
        data = _packed(record) if self._is_canonical(record) else None
        if data is None:
            record = self.canonical(record)
            # Lone surrogates cannot be packed; `repr` escapes them, always the same way.
            data = _packed(record) or repr(msgspec.structs.astuple(record)).encode("utf-8")
        # In pieces under 2 KiB: above that hashlib lets go of the interpreter lock, and taking
        # it back from a busy event loop costs more than the hash.
        sha = hashlib.sha256(data[:_PIECE_BYTES])
        for start in range(_PIECE_BYTES, len(data), _PIECE_BYTES):
            sha.update(data[start : start + _PIECE_BYTES])
        return record.revision.to_bytes(4, "big") + sha.digest()

    def _is_canonical(self, record: Record) -> bool:
        """Whether reading the record will give the very same values."""
        row = msgspec.structs.astuple(record)
        for at in self._reals_at:
            if type(row[at]) is int:
                return False
        return self._is_quick(self._texts_of(row))

    def _is_quick(self, texts: tuple[Any, ...]) -> bool:
        """Whether the text columns of a row can rest as they are."""
        together = "".join([text for text in texts if type(text) is str])
        if len(together) > _QUICK_CHARS_MAX or "\0" in together:
            return False
        return together.isascii() or text_columns.ESCAPE not in together

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


def _packed(record: Record) -> bytes | None:
    try:
        return _PACKER.encode(record)
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


CODECS: Final[dict[type[Any], RowCodec]] = {log.type: RowCodec(log) for log in schema.LOGS}
