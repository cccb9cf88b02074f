"""A connection that reads a store and cannot change it, and one moment of what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from everyturn.audit import schema
from everyturn.audit.columns import escape
from everyturn.store.base import StoreFailure, StoreRefused
from everyturn.store.folder import DATABASE_NAME

_BUSY_MS: Final = 2_000


class Moment:
    """A read transaction: what is read inside it is one state of the store."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        self._db.execute("ROLLBACK")


def fetch(db: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows of a query. Raises StoreFailure when the store cannot be read.

    values: a text without UTF-8, which the words of a command line can be, is asked for as it would
    rest.
    """
    try:
        return db.execute(sql, values).fetchall()
    except UnicodeEncodeError:
        resting = [escape(value) if isinstance(value, str) else value for value in values]
        return fetch(db, sql, resting)
    except apsw.Error as failure:
        raise StoreFailure(f"The store cannot be read: {type(failure).__name__}.") from failure


def open_read_only(folder: Path) -> apsw.Connection:
    """A connection to the store in a data folder.

    Raises StoreRefused when there is none, it cannot be read, or it is of another version.
    """
    path = folder / DATABASE_NAME
    if not path.is_file():
        raise StoreRefused(
            str(folder),
            "There are no records here.",
            "Give the data folder of a gateway that has been started, with `--data`.",
        )
    try:
        db = _connect(path)
        number = db.execute("SELECT coalesce(max(number), 0) FROM migrations").get
    except apsw.Error as failure:
        raise StoreRefused(
            str(folder),
            f"`{DATABASE_NAME}` cannot be read: {type(failure).__name__}.",
            "Read it as the user that runs the gateway, or look at a copy of the folder.",
        ) from failure
    if number != schema.MIGRATION_LAST:
        db.close()
        is_newer = number > schema.MIGRATION_LAST
        raise StoreRefused(
            str(folder),
            f"It was written by {'a newer' if is_newer else 'an older'} everyturn (schema"
            f" {number}, this one reads {schema.MIGRATION_LAST}).",
            "Use the version that the gateway runs."
            if is_newer
            else "Start this version's gateway on it once; that brings it up to date.",
        )
    return db


def _connect(path: Path) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    db = apsw.Connection(path.absolute().as_uri(), flags=flags)
    db.set_busy_timeout(_BUSY_MS)
    try:
        db.execute("SELECT 1 FROM migrations").fetchone()
    except apsw.CantOpenError:
        # WAL mode wants to make `-shm` in a folder we may not write. Where no log is left there
        # is nothing in it either, and the file can be read as it stands.
        db.close()
        if path.with_name(f"{path.name}-wal").exists():
            raise
        db = apsw.Connection(f"{path.absolute().as_uri()}?immutable=1", flags=flags)
    return db
