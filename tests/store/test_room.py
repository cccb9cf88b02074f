"""Rows of no turn stand with those of the last turn, however many there are."""

from __future__ import annotations

from pathlib import Path

import apsw

from everyturn.audit import schema
from everyturn.audit.group import Group
from everyturn.audit.records import AccessEvent, TurnAudit
from everyturn.store.reader import Reader
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import a_turn, an_access, closed_turn


def test_requests_without_a_turn_do_not_use_up_their_room(tmp_path: Path) -> None:
    """After a million requests since the last turn the next is recorded, and so is a new turn."""
    folder = tmp_path / "data"
    store = SqliteStore(folder)
    first, second = closed_turn(a_turn()), closed_turn(a_turn())
    store.append([Group((first, an_access()))])
    store.close()
    with apsw.Connection(str(folder / "everyturn.db")) as db:
        last = (1 << schema.TURN_ROWS_BITS + 1) - 1
        db.execute("UPDATE access_events_rows SET row_key = ?", (last,))

    rows = [an_access() for _ in range(4)]
    store = SqliteStore(folder)
    store.append([Group((rows[0],)), Group((rows[1],))])
    store.close()
    store = SqliteStore(folder)
    store.append([Group((rows[2],)), Group((second, rows[3]))])

    found = {row.access_id for row in store.scan(AccessEvent)}
    assert len(found) == 5
    assert found.issuperset(row.access_id for row in rows)
    assert [turn.turn_id for turn in store.scan(TurnAudit)] == [first.turn_id, second.turn_id]
    with Reader(folder) as reader:
        told = reader.turn(second.turn_id)
        assert told is not None
        assert told["access_events"] == []
        assert len(list(reader.turns())) == 2
    store.close()
