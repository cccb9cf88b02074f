"""Media at rest: each once, written with its marks, gone with the last turn that has one.

`refs_in` says what a turn's records refer to, and `read` is the one function through which a medium
comes back. Nothing that lists, searches, exports or serves records reads this table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import apsw
import msgspec

from everyturn.audit import schema
from everyturn.audit.media import MARK
from everyturn.audit.records import Medium
from everyturn.store.opening import fetch

_NAMES: Final = tuple(field.name for field in msgspec.structs.fields(Medium))
_INSERT_SQL: Final = (
    f"INSERT OR IGNORE INTO media ({','.join(_NAMES)}) VALUES ({','.join('?' * len(_NAMES))})"
)
_READ_SQL: Final = f"SELECT {','.join(_NAMES)} FROM media WHERE media_id = ?"
_REF: Final = re.compile(r"\[media:[A-Za-z0-9._+/-]+:[0-9]+:([0-9a-f]{32}):(?:kept|redacted)\]")
"""A mark of a medium that is kept, as `audit.shelf` makes it."""


def insert(db: apsw.Connection, media: Sequence[Medium]) -> None:
    """Write media in the open transaction; one that is kept already stays as it is."""
    for medium in media:
        db.execute(_INSERT_SQL, msgspec.structs.astuple(medium))


def read(db: apsw.Connection, refs: Iterable[str]) -> Iterator[Medium]:
    """The media of these names, one at a time; what was erased is left out."""
    for ref in refs:
        for row in fetch(db, _READ_SQL, (ref,)):
            values = dict(zip(_NAMES, row, strict=True))
            for name in ("is_text", "redaction_applied"):
                values[name] = bool(values[name])
            yield Medium(**values)


def refs_in(*texts: str) -> list[str]:
    """What the marks in texts name, each once, in order."""
    return list(dict.fromkeys(ref for text in texts for ref in _REF.findall(text)))


def sweep(db: apsw.Connection) -> None:
    """Delete media that no text in the store refers to any more, in the open transaction."""
    left = {ref for (ref,) in db.execute("SELECT media_id FROM media")}
    if not left:
        return
    for table, column in _places():
        sql = f"SELECT {column} FROM {table} WHERE instr({column}, '{MARK}')"
        for (text,) in db.execute(sql):
            left.difference_update(refs_in(text))
    db.executemany("DELETE FROM media WHERE media_id = ?", [(ref,) for ref in left])


def _places() -> Iterator[tuple[str, str]]:
    """Tables and columns in which a text of a record may rest."""
    yield "contents", "text"
    yield "open_records", "record"
    for log in schema.LOGS:
        for column in log.columns:
            if column.kind in ("text", "json") and column.name != "turn_id":
                yield log.rows, column.name


def texts_of(found: dict[str, Any]) -> list[str]:
    """The texts of a turn as `Reader.turn` gives it, in the order of its records."""
    rows = [row for name, log in found.items() if name in schema.LOG_NAMED for row in log]
    rows += [found["turn"]] if found["turn"] is not None else []
    return [value for row in rows for value in row.values() if isinstance(value, str)]
