"""Write whole days of the record to JSONL files: one a table and day, the same bytes when repeated.

A day is a day of UTC, and a row belongs to the day of its own time. Rows come in the order in which
their turns first came, with the contract's fields in their order. A file is written beside its
place and renamed into it, so what stands there is whole. Of reasoning there is nothing to leave
out: no log has a field that holds its text.
"""

from __future__ import annotations

import fcntl
import heapq
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, Final

import apsw
import msgspec

from everyturn.audit import schema
from everyturn.audit.records import Record
from everyturn.store.base import StoreFailure, StoreRefused
from everyturn.store.careful import with_texts
from everyturn.store.document import document
from everyturn.store.opening import Moment, fetch, open_read_only
from everyturn.store.rows import CODECS, RowCodec
from everyturn.wire.reader import write

MARKER_NAME: Final = ".exported-through"
"""The file beside the exports that names the last day of `export_missed`."""
SETTLING: Final = timedelta(minutes=15)
"""How long after midnight a day counts as over: turns that ran across it have closed by then."""

ROWS_A_READ: Final = 1_000
_BYTES_A_READ: Final = 8 << 20
"""What is read from one moment of the store: a longer one would hold up its checkpoints."""
_BEFORE_ALL: Final = -1
_DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """One file that was written."""

    path: Path
    rows: int


def export_day(
    folder: Path,
    day: date,
    out: Path,
    *,
    tables: Sequence[str] = (),
    rows_a_read: int = ROWS_A_READ,
) -> Iterator[Exported]:
    """Write the files of one day, each when it is asked for; of all tables if none is named.

    day: of UTC; that it is over is the caller's to know. A file that has rows is not replaced by
    one without any. Raises StoreRefused, StoreFailure, and OSError for `out`.
    """
    db = open_read_only(folder)
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        for log in schema.LOGS:
            if not tables or log.name in tables:
                rows = rows_of_day(db, CODECS[log.type], day, rows_a_read)
                yield write_day((document(row) for _, row in rows), out, log.name, day)
    except apsw.Error as failure:
        raise StoreFailure(f"The store cannot be read: {type(failure).__name__}.") from failure
    finally:
        db.close()


def export_missed(folder: Path, out: Path, *, now: datetime) -> Iterator[Exported]:
    """Write the files of every day that is over and was not written by this before.

    Starts at the oldest row of any log, or after the day that the marker in `out` names; the
    marker moves when all tables of a day are there. A day of which the record holds nothing gets
    no files, so one row from a clock that was years behind costs one day. Raises what
    `export_day` does.
    """
    through, last = exported_through(out), last_whole_day(now)
    if through is not None and through >= last:
        return
    days = _days_held(folder, None if through is None else through + timedelta(days=1), last)
    for day in days:
        yield from export_day(folder, day, out)
        _move_marker(out, day)
    if days and days[-1] != last:
        _move_marker(out, last)


def exported_through(out: Path) -> date | None:
    """The last day that `export_missed` wrote into a folder; None where it never did."""
    try:
        return date.fromisoformat((out / MARKER_NAME).read_text("ascii").strip())
    except (FileNotFoundError, ValueError):
        return None  # What cannot be read as a day is no mark: all days are written again.


def last_whole_day(now: datetime) -> date:
    """The newest day of UTC that is over, with the time that open turns may take to close."""
    return (now.astimezone(UTC) - SETTLING).date() - timedelta(days=1)


def _move_marker(out: Path, day: date) -> None:
    beside = out / f"{MARKER_NAME}.part"
    beside.write_text(f"{day.isoformat()}\n", "ascii")
    beside.replace(out / MARKER_NAME)


def _days_held(folder: Path, first: date | None, last: date) -> list[date]:
    """The days, up to the last, of which any log has a row, open ones included."""
    start = -(1 << 63) if first is None else _midnight(first)
    found: set[int] = set()
    db = open_read_only(folder)
    try:
        for log in schema.LOGS:
            for rows in (
                f"SELECT {log.time} AS at FROM {log.rows}",
                f"SELECT json_extract(record, '$.{log.time}') AS at FROM open_records"
                f" WHERE log = '{log.name}'",
            ):
                found |= {
                    int(day)
                    for (day,) in fetch(
                        db,
                        f"SELECT DISTINCT at / {_DAY_US} FROM ({rows}) WHERE at >= ? AND at < ?",
                        (start, _midnight(last) + _DAY_US),
                    )
                }
    finally:
        db.close()
    return [_EPOCH + timedelta(days=day) for day in sorted(found)]


def _midnight(day: date) -> int:
    """When a day begins, in microseconds since 1970."""
    return (day - _EPOCH).days * _DAY_US


def write_day(rows: Iterator[Any], out: Path, table: str, day: date) -> Exported:
    """Write one file of a day, a line for each of `rows`, and put it into its place when whole."""
    path = out / f"{table}-{day.isoformat()}.jsonl"
    with _beside(path) as file:
        count = 0
        for row in rows:
            file.write(write(row) + b"\n")
            count += 1
        if count == 0 and path.exists() and path.stat().st_size > 0:
            raise StoreRefused(
                str(path),
                f"The record holds nothing of {day.isoformat()} any more, and this file does.",
                "It stays as it is; move it away to export that day again.",
            )
    return Exported(path=path, rows=count)


@contextmanager
def _beside(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` once it is whole and on the disk; else it goes away."""
    part = path.with_name(f".{path.name}.part")
    descriptor = os.open(part, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        if not _is_ours(file, part):
            raise StoreRefused(
                str(path),
                "Another export writes this file at this moment.",
                "Wait for it, or choose another folder with `--out`.",
            )
        # What an export that was killed left there goes; its name is used again.
        file.truncate()
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    _sync_folder(path.parent)


def _is_ours(file: BinaryIO, part: Path) -> bool:
    """Whether nobody else writes this file, and nobody renamed it since it was opened."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(file.fileno()), part.stat())
    except (BlockingIOError, FileNotFoundError):
        return False


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rows_of_day(
    db: apsw.Connection, codec: RowCodec, day: date, rows_a_read: int, *, only: str = ""
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Key and row of what a log has of a day, read a stretch at a time; not more than one is held.

    only: an SQL condition on closed rows `r`; open ones come in any case.
    """
    start = _midnight(day)
    last = _BEFORE_ALL
    while True:
        count = size = 0
        with Moment(db):
            for key, record in _after(db, codec, last, start, only):
                row = msgspec.structs.asdict(with_texts(db, record))
                yield key, row
                last = key
                count += 1
                size += sum(len(value) for value in row.values() if isinstance(value, str))
                if count == rows_a_read or size > _BYTES_A_READ:
                    break
            else:
                return


def _after(
    db: apsw.Connection, codec: RowCodec, last: int, start: int, only: str
) -> Iterator[tuple[int, Record]]:
    """Key and record of what comes after a key, open ones included; lists may be references."""
    key, time = codec.key_column, codec.log.time
    closed = (
        (row[-1], codec.decode(row[:-1]))
        for row in db.execute(
            # The plus keeps an index of times out of it: keys give the order, without a sort.
            f"{codec.select_keyed_sql} WHERE r.{key} > ? AND +r.{time} >= ? AND +r.{time} < ?"
            f" {f'AND {only}' if only else ''} ORDER BY r.{key}",
            (last, start, start + _DAY_US),
        )
    )
    opened: list[tuple[int, Record]] = []
    for open_key, text in db.execute(
        "SELECT open_key, record FROM open_records WHERE log = ? ORDER BY open_key",
        (codec.log.name,),
    ):
        row_key = codec.row_key_of(int(open_key))
        if row_key > last:
            record = codec.decode_open(text)
            if start <= getattr(record, time) < start + _DAY_US:
                opened.append((row_key, record))
    return heapq.merge(closed, opened, key=itemgetter(0))
