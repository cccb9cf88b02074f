"""Whole days of the record as OTLP/JSON: one line a turn, with all that belongs to it.

A turn is of the day of its own time and brings all its rows along, late ones too. Rows that no
turn of the record claims stand alone, on their own day. Written as every export is: beside its
place, renamed when whole, the same bytes when repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final

import apsw

from everyturn.audit import schema
from everyturn.audit.otel.spans import request_of
from everyturn.store.base import StoreFailure
from everyturn.store.export import Exported, rows_of_day, write_day
from everyturn.store.opening import open_read_only
from everyturn.store.reader import Reader
from everyturn.store.rows import CODECS

ROWS_A_READ: Final = 100
"""Fewer than of a table: between two of them all that belongs to a turn is read."""
_ALONE: Final = (
    "(r.turn_key IS NULL OR NOT EXISTS"
    " (SELECT 1 FROM turn_audit_rows a WHERE a.turn_key = r.turn_key))"
)
"""Closed rows that no closed turn claims."""

NAME: Final = "spans"
"""The files are `spans-DAY.jsonl`."""


def export_spans(
    folder: Path, day: date, out: Path, *, version: str, rows_a_read: int = ROWS_A_READ
) -> Exported:
    """Write the file of one day; `rows` of the answer counts its lines.

    day: of UTC; that it is over is the caller's to know. Raises what `export.export_day` does.
    """
    db = open_read_only(folder)
    try:
        with Reader(folder) as reader:
            out.mkdir(mode=0o700, parents=True, exist_ok=True)
            return write_day(_lines(db, reader, day, version, rows_a_read), out, NAME, day)
    except apsw.Error as failure:
        raise StoreFailure(f"The store cannot be read: {type(failure).__name__}.") from failure
    finally:
        db.close()


def _lines(
    db: apsw.Connection, reader: Reader, day: date, version: str, rows_a_read: int
) -> Iterator[dict[str, Any]]:
    turns, *others = schema.LOGS
    for key, _ in rows_of_day(db, CODECS[turns.type], day, rows_a_read):
        found = reader.turn_at(key)
        # None: erased since the row was read.
        request = None if found["turn"] is None else request_of(found, version=version)
        if request is not None:
            yield request
    for log in others:
        for key, row in rows_of_day(db, CODECS[log.type], day, rows_a_read, only=_ALONE):
            if row["turn_id"] is None or not reader.has_turn_at(key >> schema.TURN_ROWS_BITS):
                request = request_of({"turn": None, log.name: [row]}, version=version)
                if request is not None:
                    yield request
