"""The logs that applications fill, and a data folder that is older than they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from everyturn.audit import schema
from everyturn.audit.group import Group
from everyturn.audit.records import QualityReview, Record, RetrievalEvent, ToolCall, TurnAudit
from everyturn.store.base import RecordRefused, StoreRefused
from everyturn.store.reader import open_reader
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import (
    START,
    a_retrieval,
    a_review,
    a_tool_call,
    a_turn,
    a_turn_id,
    all_records,
    bytes_of,
    closed_turn,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store."""
    store = SqliteStore(tmp_path / "data")
    yield store
    store.close()


def test_tools_retrievals_and_reviews_are_part_of_their_turn(store: SqliteStore) -> None:
    """A turn is read with all of them, each log in the order of its times; payloads are whole."""
    turn = a_turn()
    late = a_tool_call(turn, timestamp=START + 9_000_000, request_json=json.dumps("x" * (2 << 20)))
    early = a_tool_call(turn, timestamp=START + 1_000_000, status="timeout", tool_family="mcp")
    search = a_retrieval(turn, top_k=8, sources_json='[{"rank":1,"used":true}]')
    reviews = [a_review(turn, score_safety=0.0), a_review(turn, review_source="llm-judge")]
    store.append([Group((one,)) for one in (late, early, search, *reviews, turn)])

    with open_reader(store.folder) as reader:
        found = reader.turn(turn.turn_id)

    assert found is not None
    assert found["tool_calls"] == [msgspec.structs.asdict(one) for one in (early, late)]
    assert found["retrieval_events"] == [msgspec.structs.asdict(search)]
    assert found["quality_reviews"] == [msgspec.structs.asdict(one) for one in reviews]


@pytest.mark.parametrize("make", [a_tool_call, a_retrieval, a_review])
def test_the_same_again_is_no_change_and_other_content_is_refused(
    store: SqliteStore, make: type[ToolCall | RetrievalEvent | QualityReview]
) -> None:
    """A record that came before is kept once, also where an upgrade came in between; its id with
    other content is refused."""
    turn = a_turn()
    record: Record = make(turn)
    upgraded = msgspec.structs.replace(record, redaction_rules_version="newer", schema_version=99)
    other = msgspec.structs.replace(record, redactions_json='{"a":1}')
    store.append([Group((record,)), Group((a_tool_call(turn),))])

    store.append([Group((record,)), Group((record,)), Group((a_review(turn),))])
    store.append([Group((upgraded,))])
    with pytest.raises(RecordRefused):
        store.append([Group((other,))])

    assert list(store.scan(type(record))).count(record) == 1
    assert len(all_records(store)) == 3


def test_erasing_a_turn_takes_them_along(store: SqliteStore) -> None:
    """Nothing of a turn's tools, searches and reviews is left in the files."""
    turn, other = a_turn(), a_turn()
    rows = (
        a_tool_call(turn, request_json='"a-request-to-erase"'),
        a_retrieval(turn, query_text="a-query-to-erase"),
        a_review(turn, notes="a-note-to-erase"),
    )
    store.append([Group((closed_turn(turn), *rows)), Group((closed_turn(other),))])

    assert store.erase([turn.turn_id]) == 1

    assert [type(record).__name__ for record in all_records(store)] == ["TurnAudit"]
    assert b"-to-erase" not in bytes_of(store.folder)


def an_older_folder(folder: Path) -> tuple[str, str]:
    """A data folder as schema 1 left it, with a closed and an open turn; their ids."""
    folder.mkdir(mode=0o700)
    path = folder / "everyturn.db"
    path.touch(mode=0o600)
    ids = a_turn_id(), a_turn_id()
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE migrations (number INTEGER PRIMARY KEY, applied_at INTEGER)")
    for statement in schema.sqlite_migration(1):
        db.execute(statement)
    db.execute("INSERT INTO migrations VALUES (1, 1)")
    db.execute("INSERT INTO turn_ids VALUES (1, ?), (2, ?)", ids)
    db.execute(
        "INSERT INTO turn_audit_rows (turn_key, timestamp, outcome, failure_type, revision,"
        " schema_version, redaction_applied, redactions_json, human_review_status, user_text)"
        " VALUES (1, ?, 'success', 'none', 2, 1, 1, '{}', 'none', 'asked long ago')",
        (START,),
    )
    record = {"turn_id": ids[1], "timestamp": START, "user_text": "never answered"}
    key = 2 << (schema.TURN_ROWS_BITS + schema.LOG_BITS)
    db.execute(
        "INSERT INTO open_records VALUES (?, 'turn_audit', 2, ?, NULL)", (key, json.dumps(record))
    )
    db.close()
    return ids


def test_an_older_folder_is_brought_up_to_date(tmp_path: Path) -> None:
    """A folder of schema 1 is refused to readers until a gateway opened it; then nothing of it is
    lost, and it takes the new logs."""
    closed, was_open = an_older_folder(tmp_path / "data")
    with pytest.raises(StoreRefused) as refused:
        open_reader(tmp_path / "data")

    store = SqliteStore(tmp_path / "data")
    count = store.close_interrupted(now=START)
    store.append([Group((a_tool_call(a_turn(turn_id=closed)),))])
    with open_reader(store.folder) as reader:
        old, interrupted = reader.turn(closed), reader.turn(was_open)
    numbers = list(apsw.Connection(str(store.path)).execute("SELECT number FROM migrations"))
    store.close()

    assert "Start this version's gateway" in refused.value.faults[0][3]
    assert count == 1
    assert old is not None
    assert interrupted is not None
    assert old["turn"]["user_text"] == "asked long ago"
    assert (old["turn"]["schema_version"], old["turn"]["sources_by_field_json"]) == (1, None)
    assert len(old["tool_calls"]) == 1
    assert interrupted["turn"]["error_code"] == "gateway_interrupted"
    assert (interrupted["turn"]["schema_version"], interrupted["turn"]["revision"]) == (1, 2)
    assert numbers == [(number,) for number in range(1, schema.MIGRATION_LAST + 1)]


def test_a_turn_that_other_records_named_first_gets_its_row(tmp_path: Path) -> None:
    """Tool runs may come before their turn, in the same commit, an earlier one or before a
    restart; the turn has one row."""
    turns = [a_turn() for _ in range(3)]
    store = SqliteStore(tmp_path / "data")
    store.append([Group((a_tool_call(turns[0]),))])
    store.close()
    store = SqliteStore(tmp_path / "data")
    store.append([Group((a_tool_call(turns[1]),))])
    store.append(
        [Group((a_tool_call(turns[2]),)), *(Group((closed_turn(t, revision=1),)) for t in turns)]
    )
    store.append([Group((closed_turn(turn, revision=2, variant="b"),)) for turn in turns])

    found = {turn.turn_id: (turn.revision, turn.variant) for turn in store.scan(TurnAudit)}
    store.close()
    assert found == {turn.turn_id: (2, "b") for turn in turns}


def test_a_turn_whose_time_changes_stays_the_last_revision(store: SqliteStore) -> None:
    """The time of a stored turn may change, with more revisions in the same commit; lists follow
    the new one."""
    turn, other = closed_turn(a_turn()), closed_turn(a_turn(timestamp=START + 1))
    store.append([Group((turn, other))])
    moved = [closed_turn(turn, timestamp=START + 5)]
    for number in range(3):
        moved.append(closed_turn(moved[-1], variant=str(number)))
    store.append([Group((one,)) for one in moved])

    assert next(store.scan(TurnAudit)) == moved[-1]
    with open_reader(store.folder) as reader:
        assert [row["turn_id"] for row in reader.turns()] == [turn.turn_id, other.turn_id]


def test_a_turn_that_was_named_first_and_opened_is_one_turn(store: SqliteStore) -> None:
    """However it was named and opened, it rests once, also when memory forgot it meanwhile."""
    undone, bad = a_turn(), a_tool_call(a_turn())
    # Fewer than memory drops at a time, so that ours are not the first that it forgets.
    store.append([Group((bad, *(a_turn() for _ in range(4_000))))])
    conflict = Group((msgspec.structs.replace(bad, tool_name="another"),))
    with pytest.raises(RecordRefused):
        store.append([Group((a_tool_call(undone),)), conflict])
    first, later, together, carefully = (a_turn() for _ in range(4))
    # Takes the key that the turn of the failed commit would have had.
    store.append([Group((first,))])
    store.append([Group((a_tool_call(later), a_tool_call(carefully)))])
    store.append([Group((later,)), Group((msgspec.structs.replace(carefully, revision=2),))])
    store.append([Group((a_tool_call(together),)), Group((together,))])
    # More open turns than are remembered.
    store.append([Group(tuple(a_turn() for _ in range(70_000)))])

    for turn in (first, later, together):
        with pytest.raises(RecordRefused):
            store.append([Group((closed_turn(turn, revision=1),))])
    store.append([Group((closed_turn(carefully, revision=1),))])

    ours = {turn.turn_id for turn in (first, later, together, carefully)}
    found = [turn for turn in store.scan(TurnAudit) if turn.turn_id in ours]
    assert [turn.outcome for turn in found] == [None] * 4
    assert [turn.turn_id for turn in found] == [
        t.turn_id for t in (first, later, carefully, together)
    ]


def test_a_commit_that_failed_is_not_remembered(store: SqliteStore) -> None:
    """Neither a turn that it named nor one that it gave its row is known after it was undone."""
    named, rowed, bad = a_turn(), a_turn(), a_tool_call(a_turn())
    store.append([Group((a_tool_call(rowed), bad))])
    conflict = Group((msgspec.structs.replace(bad, tool_name="another"),))
    with pytest.raises(RecordRefused):
        store.append([Group((a_tool_call(named), rowed)), conflict])

    store.append([Group((named,)), Group((a_tool_call(named),))])
    store.append([Group((rowed,))])
    store.append([Group((closed_turn(named), closed_turn(rowed)))])

    found = {one.turn_id: one.revision for one in store.scan(TurnAudit)}
    assert found == {named.turn_id: 2, rowed.turn_id: 2}
    with open_reader(store.folder) as reader:
        told = reader.turn(named.turn_id)
    assert told is not None
    assert len(told["tool_calls"]) == 1
