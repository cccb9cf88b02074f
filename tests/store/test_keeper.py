from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import apsw

from everyturn.audit.group import Group
from everyturn.audit.records import TurnAudit
from everyturn.store.keeper import CHECKPOINT_PAGES
from everyturn.store.sqlite import PAGE_BYTES, SqliteStore
from tests.support.store_records import a_turn

BOUND_SECONDS = 30


def until(fact: Callable[[], bool]) -> None:
    """Wait until `fact()` is true."""
    end = time.monotonic() + BOUND_SECONDS
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.01)


def fill(store: SqliteStore, size: int) -> int:
    """Append turns of `size` bytes together; how many."""
    count = size // 50_000
    for _ in range(count // 8):
        store.append([Group(tuple(a_turn(user_text="x" * 50_000) for _ in range(8)))])
    return count // 8 * 8


def test_the_log_is_moved_beside_the_commits(tmp_path: Path) -> None:
    """What is in the log comes to the database without the writer doing anything for it."""
    store = SqliteStore(tmp_path / "data")
    size = 2 * CHECKPOINT_PAGES * PAGE_BYTES

    fill(store, size)

    until(lambda: store.path.stat().st_size > size // 4)
    store.close()


def test_the_log_does_not_grow_without_end(tmp_path: Path) -> None:
    """However much is written, the log begins again once it was moved to the database."""
    store = SqliteStore(tmp_path / "data")
    log = store.path.with_name("everyturn.db-wal")
    size = 2 * CHECKPOINT_PAGES * PAGE_BYTES
    turns = fill(store, size)
    before = salts(log)
    more = 0

    def begins_again() -> bool:
        nonlocal more
        store.tend()
        more += fill(store, 400_000)
        return salts(log) != before

    until(begins_again)

    assert sum(1 for _ in store.scan(TurnAudit)) == turns + more
    store.close()


def salts(log: Path) -> bytes:
    """Two numbers in a log's header that change whenever it begins again.

    Source: SQLite documentation, "WAL file format".
    """
    with log.open("rb") as file:
        return file.read(24)[16:]


def test_the_log_is_in_the_database_after_closing(tmp_path: Path) -> None:
    """A closed store is one file that can be copied."""
    store = SqliteStore(tmp_path / "data")
    store.append([Group((a_turn(),))])
    store.close()

    log = store.path.with_name("everyturn.db-wal")

    assert not log.exists() or log.stat().st_size == 0
    db = apsw.Connection(
        f"{store.path.as_uri()}?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    assert db.execute("SELECT count(*) FROM turn_audit").get == 1
    db.close()
