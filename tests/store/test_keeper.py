from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import apsw

from everyturn.audit.records import Group, TurnAudit
from everyturn.store.keeper import CHECKPOINT_PAGES
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import a_turn

BOUND_SECONDS = 30


def until(fact: Callable[[], bool]) -> None:
    """Wait until `fact()` is true."""
    end = time.monotonic() + BOUND_SECONDS
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_log_does_not_grow_without_end(tmp_path: Path) -> None:
    """However much is written, the log begins again when it was moved to the database."""
    store = SqliteStore(tmp_path / "data")
    log = store.path.with_name("everyturn.db-wal")
    page_bytes = 4096
    written = 0
    turns = 0
    while written < 4 * CHECKPOINT_PAGES * page_bytes:
        store.append([Group(tuple(a_turn(user_text="x" * 50_000) for _ in range(8)))])
        written += 8 * 50_000
        turns += 8
        store.tend()
        if written % (40 * 50_000) == 0:
            until(lambda: not store.tend() and store.path.stat().st_size > 0)

    until(lambda: store.path.stat().st_size > written // 2)
    assert log.stat().st_size < written
    assert sum(1 for _ in store.scan(TurnAudit)) == turns
    store.close()


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
