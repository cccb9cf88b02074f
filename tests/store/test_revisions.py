"""Revisions of a record that come late, again, or with another time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from everyturn.audit.group import Group
from everyturn.audit.records import ModelCall, TurnAudit
from everyturn.store.base import RecordRefused
from everyturn.store.reader import open_reader
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import a_call, a_turn, closed_call, closed_turn


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store."""
    store = SqliteStore(tmp_path / "data")
    yield store
    store.close()


def test_revisions_may_come_out_of_order(store: SqliteStore) -> None:
    """An older revision that comes late leaves the row, and is known from then on."""
    turn = a_turn(user_text="Hello")
    store.append([Group((closed_turn(turn),))])

    store.append([Group((turn,))])
    store.append([Group((turn,))])

    assert list(store.scan(TurnAudit)) == [closed_turn(turn)]
    with pytest.raises(RecordRefused):
        store.append([Group((msgspec.structs.replace(turn, user_text="Other"),))])


def test_a_revision_that_was_read_back_is_known_when_it_comes_again(
    tmp_path: Path,
) -> None:
    """Its digest is the same whoever made its values: defaults that a file or a sender spelled out
    are those that nobody spelled."""
    first = closed_turn(a_turn(user_text="Hello"))
    spelled = msgspec.structs.replace(first, failure_type="".join(("no", "ne")))
    last = msgspec.structs.replace(first, revision=first.revision + 1, assistant_text="Hi")
    store = SqliteStore(tmp_path / "data")
    store.append([Group((first,))])
    store.close()

    store = SqliteStore(tmp_path / "data")
    store.append([Group((last,))])
    for again in (first, spelled):
        store.append([Group((again,))])

    assert list(store.scan(TurnAudit)) == [last]
    store.close()


def test_a_revision_may_change_time_and_turn(store: SqliteStore) -> None:
    """A later revision says when it was and which turn it belongs to, and is found there."""
    turn, other = a_turn(), a_turn()
    call = a_call(turn)
    store.append([Group((turn, other, call))])

    moved = closed_call(call, turn_id=other.turn_id, timestamp=call.timestamp + 1)
    closed = closed_turn(turn)
    store.append([Group((moved, closed))])
    later = closed_turn(closed, timestamp=turn.timestamp + 1)
    store.append([Group((later,))])

    assert list(store.scan(ModelCall)) == [moved]
    assert next(store.scan(TurnAudit)) == later
    with open_reader(store.folder) as reader:
        calls = [(reader.turn(one.turn_id) or {})["model_calls"] for one in (turn, other)]
        latest = [row["timestamp"] for row in reader.turns(since=later.timestamp)]
    assert [len(found) for found in calls] == [0, 1]
    assert latest == [later.timestamp]
