"""The search index: a file of its own beside the database, behind it by seconds, never in its way.

It reads the store as any reader does and writes only `search.db`, so no turn waits for it, and what
it holds can be made anew from the store at any time. `following` keeps it up to date.

Each step is one transaction: a process that is killed leaves whole turns indexed, and the next one
goes on after them. Several may bring it up to date at once; each looks into the file for what is
done, not into its memory.

It holds words, not texts (FTS5 without content), of what is stored: redacted, without reasoning.
When turns are erased it is emptied, and filled again from what remains.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import apsw

from everyturn.audit import schema
from everyturn.store.base import StoreFailure, StoreRefused
from everyturn.store.folder import DATABASE_NAME, make_private
from everyturn.store.opening import open_read_only
from everyturn.store.said import (
    FIELDS,
    INDEX_SQL,
    NOTE_SAID_SQL,
    NOTE_WALKED_SQL,
    spaced,
    version_sql,
)

SEARCH_NAME: Final = "search.db"
ERASURES: Final = "erasures"
"""The number of the store that counts erasures, so that one is never missed."""

BATCH_TURNS: Final = 64
STEP_SECONDS: Final = 0.05
"""After which a step takes no more turns."""
NEWEST_TURNS: Final = 2_000
"""How many of the newest turns are looked at for changes each time."""
ALL_TURNS: Final = 1 << 62

_FORMAT: Final = 2_000 + schema.MIGRATION_LAST
"""Of the file; another one is made anew. It grows with what is indexed and the store's tables."""
_BUSY_MS: Final = 5_000

_TABLES: Final = (
    f"CREATE VIRTUAL TABLE words USING fts5({', '.join(FIELDS)}, content='',"
    ' contentless_delete=1, tokenize="unicode61 remove_diacritics 2")',
    "CREATE TABLE indexed (turn_key INTEGER PRIMARY KEY, version INTEGER NOT NULL)",
    "CREATE TABLE open_turns (turn_key INTEGER PRIMARY KEY)",
    "CREATE TABLE walked (node INTEGER PRIMARY KEY)",
    "CREATE TABLE said (content_key INTEGER PRIMARY KEY, turn_key INTEGER NOT NULL)",
    "CREATE INDEX said_by_turn ON said (turn_key)",
    "CREATE TABLE marks (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
)
_NAMES: Final = ("words", "indexed", "open_turns", "walked", "said", "marks")

_LAST: Final = "coalesce((SELECT max(turn_key) FROM indexed), 0)"
_VERSION: Final = version_sql("i.turn_key")
_ERASURES_SQL: Final = (
    f"SELECT coalesce((SELECT value FROM store_numbers WHERE name = '{ERASURES}'), 0)"
)


class SearchIndex:
    """The index of a data folder, open to be brought up to date. Use from one thread at a time."""

    def __init__(self, folder: Path, *, is_writable: bool = True) -> None:
        """Raises StoreRefused when there is no store, or what is asked of the index cannot be had.

        is_writable: False opens what is there, to be read only.
        """
        open_read_only(folder).close()
        self.is_writable = is_writable
        self._path = folder / SEARCH_NAME
        try:
            self.db = self._open()
        except (apsw.NotADBError, apsw.CorruptError) as failure:
            told = self.failed(failure)
            if not is_writable:
                raise told from failure
            self.db = self._open()
        except apsw.Error as failure:
            raise self.failed(failure) from failure

    def _open(self) -> apsw.Connection:
        if self.is_writable:
            make_private(self._path)
        elif not self._path.exists():
            raise _none_here(self._path)
        db = _open(self._path, is_writable=self.is_writable)
        try:
            if not self.is_writable and not _is_of_this_store(db):
                raise _none_here(self._path)
            if db.execute("PRAGMA main.user_version").get != _FORMAT:
                _make(db)
        except BaseException:
            db.close()
            raise
        return db

    def close(self) -> None:
        """Give the files back."""
        self.db.close()

    @property
    def store_version(self) -> int:
        """A number that differs once the store has changed, as this connection sees it."""
        return int(self.db.pragma("data_version", schema="store"))

    @property
    def lag(self) -> int:
        """How many turns of the store the index does not know."""
        try:
            last = self.db.execute("SELECT coalesce(max(turn_key), 0) FROM turn_ids").get
            done = self.db.execute(f"SELECT {_LAST}").get
        except apsw.Error as failure:
            raise self.failed(failure) from failure
        return max(0, int(last) - int(done))

    @property
    def unreadable(self) -> int:
        """How many times a turn could not be taken in because its rows are damaged."""
        try:
            return int(self.db.execute(f"SELECT {_mark_sql('unreadable')}").get)
        except apsw.Error as failure:
            raise self.failed(failure) from failure

    def failed(self, failure: apsw.Error) -> StoreFailure:
        """What is to be raised for a failure; where the file is damaged, it goes.

        All of it can be made anew, and the next one that opens it does.
        """
        if isinstance(failure, apsw.CorruptError | apsw.NotADBError) and self.is_writable:
            _remove(self._path)
        return _failure(failure)

    def catch_up(
        self,
        *,
        newest: int = NEWEST_TURNS,
        pause: Callable[[float], bool] = lambda _: False,
        seconds: float | None = None,
    ) -> bool:
        """Take in new turns, and those of the `newest` that changed; whether all was taken in.

        pause: called with the seconds of each step; it may wait, and True ends it. seconds: ends
        it too. Raises StoreFailure; what was done by then stays.
        """
        started = time.monotonic()
        changed_from: int | None = None
        while True:
            at = time.monotonic()
            try:
                more, changed_from = self._step(newest, changed_from)
            except apsw.Error as failure:
                raise self.failed(failure) from failure
            now = time.monotonic()
            if not more:
                return True
            if pause(now - at) or (seconds is not None and now - started > seconds):
                return False

    def catch_up_at_rest(self) -> bool:
        """As `catch_up` for all turns, while no gateway writes; quick where nothing has changed."""
        files = _files(self._path.with_name(DATABASE_NAME))
        mark = "SELECT value FROM marks WHERE name = 'files'"
        try:
            if _is_of_this_store(self.db) and self.db.execute(mark).get == files:
                return True
            is_whole = self.catch_up(newest=ALL_TURNS)
            self.db.execute("INSERT OR REPLACE INTO marks VALUES ('files', ?)", (files,))
        except apsw.Error as failure:
            raise self.failed(failure) from failure
        return is_whole

    def _step(self, newest: int, changed_from: int | None) -> tuple[bool, int | None]:
        """One transaction; whether more is due, and from which key on changes are looked for."""
        db = self.db
        db.execute("BEGIN IMMEDIATE")
        try:
            if not _is_of_this_store(db):
                _empty(db)
            last = int(db.execute(f"SELECT {_LAST}").get)
            if changed_from is None:
                changed_from = max(0, last - newest)
            due = changed = self._changed(changed_from)
            if len(changed) < BATCH_TURNS:
                due = changed + self._opened(changed) + self._new(last)
            is_done = self._take_in(due)
            if is_done:
                changed_from = changed[-1] if len(changed) == BATCH_TURNS else last
            self._note()
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        return not is_done or len(due) >= BATCH_TURNS, changed_from

    def _take_in(self, due: list[int]) -> bool:
        """Put turns into the index, one at least; False where time ran out before the last.

        A step is short: while it lasts, the store cannot start its log again from the beginning.
        """
        until = time.monotonic() + STEP_SECONDS
        for number, key in enumerate(due, start=1):
            _take_in(self.db, key)
            if time.monotonic() > until:
                return number == len(due)
        return True

    def _changed(self, after: int) -> list[int]:
        rows = self.db.execute(
            f"SELECT turn_key FROM indexed i WHERE turn_key > ? AND version <> {_VERSION}"
            " ORDER BY turn_key LIMIT ?",
            (after, BATCH_TURNS),
        )
        return [int(key) for (key,) in rows]

    def _opened(self, but: list[int]) -> list[int]:
        """Turns that were open when they were looked at last, and have changed since."""
        rows = self.db.execute(
            "SELECT i.turn_key FROM open_turns o JOIN indexed i ON i.turn_key = o.turn_key"
            f" WHERE i.version <> {_VERSION} ORDER BY 1 LIMIT ?",
            (BATCH_TURNS,),
        )
        return [int(key) for (key,) in rows if key not in but]

    def _new(self, last: int) -> list[int]:
        rows = self.db.execute(
            "SELECT turn_key FROM turn_ids WHERE turn_key > ? ORDER BY turn_key LIMIT ?",
            (last, BATCH_TURNS),
        )
        return [int(key) for (key,) in rows]

    def _note(self) -> None:
        db = self.db
        now_open = "SELECT turn_key FROM open_records"
        db.execute(
            f"DELETE FROM open_turns WHERE turn_key NOT IN ({now_open}) AND NOT EXISTS (SELECT 1"
            f" FROM indexed i WHERE i.turn_key = open_turns.turn_key AND i.version <> {_VERSION})"
        )
        db.execute(f"INSERT OR IGNORE INTO open_turns {now_open}")
        db.execute(
            "INSERT OR REPLACE INTO marks SELECT 'last_turn', turn_id FROM turn_ids"
            f" WHERE turn_key = {_LAST}"
        )


def _mark_sql(name: str) -> str:
    return f"coalesce((SELECT value FROM marks WHERE name = '{name}'), 0)"


def _make(db: apsw.Connection) -> None:
    """Make the tables of a new index, or of one that is not of this store any more."""
    db.execute("BEGIN IMMEDIATE")
    if not _is_of_this_store(db):
        _empty(db)
    db.execute("COMMIT")


def _empty(db: apsw.Connection) -> None:
    """Empty the index, in a transaction that is open; what it held is overwritten."""
    for name in _NAMES:
        db.execute(f"DROP TABLE IF EXISTS main.{name}")
    for statement in _TABLES:
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {_FORMAT}")
    db.execute(f"INSERT INTO marks SELECT '{ERASURES}', ({_ERASURES_SQL})")


def forget_erased(folder: Path) -> None:
    """Empty the index of a folder in which turns were erased, and its log too. Raises StoreFailure.

    Where there is no index there is nothing to do.
    """
    if not (folder / SEARCH_NAME).exists():
        return
    index = SearchIndex(folder)
    try:
        # One that catches up may have noticed the erasure already, and emptied it.
        _make(index.db)
        index.db.wal_checkpoint(dbname="main", mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as failure:
        raise _failure(failure) from failure
    finally:
        index.close()


def _take_in(db: apsw.Connection, key: int) -> None:
    try:
        for sql in (NOTE_SAID_SQL, NOTE_WALKED_SQL, INDEX_SQL):
            db.execute(sql, (key,))
    except (apsw.SQLError, apsw.TooBigError):
        # Rows that are damaged, or longer together than SQLite takes: counted, and passed by, for
        # no later turn would be found otherwise.
        db.execute(
            f"INSERT OR REPLACE INTO marks SELECT 'unreadable', {_mark_sql('unreadable')} + 1"
        )
    db.execute(
        f"INSERT OR REPLACE INTO indexed SELECT i.turn_key, {_VERSION}"
        " FROM (SELECT ? AS turn_key) i",
        (key,),
    )


def _is_of_this_store(db: apsw.Connection) -> bool:
    """Whether the index was made by this version from this store, and nothing was erased since.

    A store that was put back from a copy, or lost its last second with the power, has given the
    keys of some turns to others; then the id of the last turn is another one.
    """
    if db.execute("PRAGMA main.user_version").get != _FORMAT:
        return False
    marks: dict[Any, Any] = dict(db.execute("SELECT name, value FROM marks"))
    if marks.get(ERASURES) != db.execute(_ERASURES_SQL).get:
        return False
    last = db.execute(f"SELECT turn_id FROM turn_ids WHERE turn_key = {_LAST}").get
    return bool(marks.get("last_turn") == last)


def open_index(folder: Path) -> SearchIndex:
    """The index of a folder, to be written where that is possible.

    Raises StoreRefused and StoreFailure.
    """
    return SearchIndex(folder, is_writable=os.access(folder, os.W_OK))


def _open(path: Path, *, is_writable: bool) -> apsw.Connection:
    mode = "rw" if is_writable else _reading_mode(path)
    db = apsw.Connection(
        f"{path.absolute().as_uri()}?mode={mode}",
        flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI,
    )
    try:
        db.set_busy_timeout(_BUSY_MS)
        # Without it SQLite plans a statement anew for each turn key it is given, which takes longer
        # than to run it.
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        if is_writable:
            # What leaves the index is overwritten.
            db.pragma("secure_delete", True)
            db.pragma("journal_mode", "wal")
            db.pragma("synchronous", "NORMAL")
        # What is sorted on the way is not written anywhere.
        db.pragma("temp_store", "MEMORY")
        db.create_scalar_function(
            "spaced", lambda *given: spaced(str(given[0])), 1, deterministic=True
        )
        store = path.with_name(DATABASE_NAME)
        mode = "ro" if is_writable else _reading_mode(store)
        db.execute("ATTACH ? AS store", (f"{store.absolute().as_uri()}?mode={mode}",))
        db.execute("SELECT count(*) FROM sqlite_schema")
    except BaseException:
        db.close()
        raise
    return db


def _spaced(*given: Any) -> str:
    return spaced(str(given[0]))


def _reading_mode(path: Path) -> str:
    """How to open a database in a folder that may not be written.

    Where no log is left, nobody has it open, and it can be read as it stands; without that word
    SQLite would want to make a file beside it.
    """
    return "ro" if path.with_name(f"{path.name}-wal").exists() else "ro&immutable=1"


def _none_here(path: Path) -> StoreRefused:
    return StoreRefused(
        str(path),
        "There is no search index of this record yet, and it cannot be made here.",
        "Run `everyturn find` once as the user that runs the gateway.",
    )


def _files(database: Path) -> str:
    """What differs once the files of the store were written, as far as can be told from outside."""
    told = []
    for path in (database, database.with_name(f"{database.name}-wal")):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if found.st_size:
            told.append(f"{found.st_mtime_ns}:{found.st_size}")
    return " ".join(told)


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _failure(failure: apsw.Error) -> StoreFailure:
    return StoreFailure(f"The search index cannot be used: {type(failure).__name__}.")
