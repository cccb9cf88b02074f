"""Whole days of a store as files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from everyturn.audit import schema
from everyturn.audit.group import Group
from everyturn.store.base import StoreFailure, StoreRefused
from everyturn.store.export import (
    MARKER_NAME,
    SETTLING,
    export_day,
    export_missed,
    exported_through,
    last_whole_day,
)
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import (
    a_call,
    a_retrieval,
    a_review,
    a_tool_call,
    a_turn,
    an_access,
    an_index,
    closed_call,
    closed_turn,
    group_of,
)

DAY = date(2026, 3, 1)
DAY_US = 86_400_000_000
START_US = (DAY - date(1970, 1, 1)).days * DAY_US


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store that stays open, as a gateway's does."""
    store = SqliteStore(tmp_path / "data")
    yield store
    store.close()


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def fill(store: SqliteStore, *, days: int = 1, first: date = DAY) -> list[str]:
    """One turn with call and access a day, from `first` on; their ids."""
    index, ids = an_index(), []
    for number in range(days):
        at = ((first - date(1970, 1, 1)).days + number) * DAY_US
        turn = a_turn(timestamp=at, user_text="Hello\0there")
        message = json.dumps({"role": "user", "content": f"number {number}"}).encode()
        opening, call = group_of(turn, index, [message])
        store.append([opening])
        closing = closed_call(call, timestamp=at, response_json='{"n":1.50}')
        access = an_access(turn, timestamp=at)
        store.append([Group((closing, closed_turn(turn), access))])
        ids.append(turn.turn_id)
    return ids


def test_a_day_is_one_file_a_table(store: SqliteStore, tmp_path: Path) -> None:
    """Rows have the contract's fields in order, times as RFC 3339, JSON columns as JSON."""
    ids = fill(store, days=3)
    out = tmp_path / "out"

    files = list(export_day(store.folder, DAY + timedelta(days=1), out))

    assert [file.path.name for file in files] == [
        f"{log.name}-2026-03-02.jsonl" for log in schema.LOGS
    ]
    assert sorted(path.name for path in out.iterdir()) == sorted(f.path.name for f in files)
    for log, file in zip(schema.LOGS, files, strict=True):
        rows = rows_of(file.path)
        assert len(rows) == file.rows
        for row in rows:
            assert list(row) == [column.name for column in log.columns]
            assert row["turn_id"] == ids[1]
    (turn,) = rows_of(out / "turn_audit-2026-03-02.jsonl")
    (call,) = rows_of(out / "model_calls-2026-03-02.jsonl")
    assert turn["timestamp"] == "2026-03-02T00:00:00.000Z"
    assert turn["user_text"] == "Hello\0there"
    assert call["prompt_messages_json"] == [{"role": "user", "content": "number 1"}]
    assert b'"response_json":{"n":1.50}' in (out / "model_calls-2026-03-02.jsonl").read_bytes()


def test_what_applications_tell_is_exported(store: SqliteStore, tmp_path: Path) -> None:
    """Tool runs, retrievals and reviews too, a review on the day on which it was given."""
    turn = a_turn(timestamp=START_US)
    rows = (
        a_tool_call(turn, timestamp=START_US, request_json='{"order":"O-4711"}'),
        a_retrieval(turn, timestamp=START_US, sources_json='[{"rank":1}]'),
        a_review(turn, created_at=START_US + DAY_US, notes="late"),
    )
    store.append([Group((turn, *rows))])

    counts = [
        [file.rows for file in export_day(store.folder, DAY + timedelta(days=days), tmp_path)]
        for days in (0, 1)
    ]

    names = [log.name for log in schema.LOGS]
    filled = ["turn_audit", "tool_calls", "retrieval_events"]
    assert counts[0] == [int(name in filled) for name in names]
    assert counts[1] == [int(name == "quality_reviews") for name in names]
    (tool,) = rows_of(tmp_path / "tool_calls-2026-03-01.jsonl")
    (review,) = rows_of(tmp_path / "quality_reviews-2026-03-02.jsonl")
    assert tool["request_json"] == {"order": "O-4711"}
    assert review["created_at"] == "2026-03-02T00:00:00.000Z"


def test_a_row_belongs_to_the_day_of_its_own_time(store: SqliteStore, tmp_path: Path) -> None:
    """The first microsecond of a day is in it, that of the next day is not."""
    for at in (START_US - 1, START_US, START_US + DAY_US - 1, START_US + DAY_US):
        turn = a_turn(timestamp=at)
        store.append([Group((closed_turn(turn, revision=1),))])

    (file,) = export_day(store.folder, DAY, tmp_path / "out", tables=["turn_audit"])

    assert [row["timestamp"] for row in rows_of(file.path)] == [
        "2026-03-01T00:00:00.000Z",
        "2026-03-01T23:59:59.999Z",
    ]


def test_the_same_day_is_the_same_bytes(store: SqliteStore, tmp_path: Path) -> None:
    """What other days bring meanwhile changes nothing, nor does who may read the files."""
    fill(store, days=2)
    first = [f.path.read_bytes() for f in export_day(store.folder, DAY, tmp_path / "a")]
    fill(store, days=0)
    store.append([Group((a_turn(timestamp=START_US + 5 * DAY_US),))])

    again = list(export_day(store.folder, DAY, tmp_path / "a"))

    assert [f.path.read_bytes() for f in again] == first
    assert any(first)
    assert {f.path.stat().st_mode & 0o777 for f in again} == {0o600}
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


def test_open_rows_stand_in_their_place(store: SqliteStore, tmp_path: Path) -> None:
    """A turn that never ended is exported with what is known, between those around it."""
    turns = [a_turn(timestamp=START_US + number) for number in range(3)]
    for turn in turns:
        store.append([Group((turn, a_call(turn, timestamp=START_US)))])
    for turn in (turns[0], turns[2]):
        store.append([Group((closed_turn(turn),))])

    list(export_day(store.folder, DAY, tmp_path / "out"))

    rows = rows_of(tmp_path / "out" / "turn_audit-2026-03-01.jsonl")
    assert [row["turn_id"] for row in rows] == [turn.turn_id for turn in turns]
    assert [row["outcome"] for row in rows] == ["success", None, "success"]
    assert len(rows_of(tmp_path / "out" / "model_calls-2026-03-01.jsonl")) == 3


def test_many_rows_come_each_once(store: SqliteStore, tmp_path: Path) -> None:
    """A day that takes several reads has every row once and in order."""
    turns = [a_turn(timestamp=START_US + number) for number in range(11)]
    store.append([Group(tuple(turns))])
    store.append([Group((closed_turn(turn),)) for turn in turns[::2]])

    (file,) = export_day(store.folder, DAY, tmp_path, tables=["turn_audit"], rows_a_read=4)

    assert [row["turn_id"] for row in rows_of(file.path)] == [turn.turn_id for turn in turns]


def test_a_failure_leaves_what_was_there(store: SqliteStore, tmp_path: Path) -> None:
    """Where a file cannot be finished, the one of before stays and nothing is left beside it."""
    (file,) = export_day(store.folder, DAY, tmp_path / "out", tables=["turn_audit"])
    fill(store)
    store.close()
    damage = apsw.Connection(str(store.path))
    damage.execute("DROP TABLE open_records")
    damage.close()

    with pytest.raises(StoreFailure, match="cannot be read"):
        list(export_day(store.folder, DAY, tmp_path / "out", tables=["turn_audit"]))

    assert [path.name for path in (tmp_path / "out").iterdir()] == [file.path.name]
    assert file.path.read_bytes() == b""


def test_a_day_that_is_gone_does_not_empty_its_file(store: SqliteStore, tmp_path: Path) -> None:
    """An export is not replaced by one without rows: the record may have expired."""
    ids = fill(store)
    (file,) = export_day(store.folder, DAY, tmp_path, tables=["turn_audit"])
    before = file.path.read_bytes()
    store.erase(ids)

    with pytest.raises(StoreRefused, match="holds nothing of 2026-03-01"):
        list(export_day(store.folder, DAY, tmp_path, tables=["turn_audit"]))

    assert file.path.read_bytes() == before


def test_missed_days_are_caught_up(store: SqliteStore, tmp_path: Path) -> None:
    """From the oldest row to the last day that is over; then only what is new."""
    fill(store, days=3)
    out = tmp_path / "out"
    now = datetime(2026, 3, 3, 12, tzinfo=UTC)

    first = list(export_missed(store.folder, out, now=now))
    again = list(export_missed(store.folder, out, now=now))
    later = list(export_missed(store.folder, out, now=now + timedelta(days=2)))

    tables = len(schema.LOGS)
    assert {file.path.stem[-10:] for file in first} == {"2026-03-01", "2026-03-02"}
    assert len(first) == 2 * tables
    assert again == []
    assert {file.path.stem[-10:] for file in later} == {"2026-03-03"}
    assert exported_through(out) == date(2026, 3, 4)
    (out / MARKER_NAME).write_text("no day")
    assert exported_through(out) is None


def test_days_without_a_turn_are_not_missed(store: SqliteStore, tmp_path: Path) -> None:
    """What no turn came of, or came before the first turn, is exported too."""
    out = tmp_path / "out"
    store.append([Group((an_access(timestamp=START_US),))])

    alone = list(export_missed(store.folder, out, now=datetime(2026, 3, 2, 12, tzinfo=UTC)))
    store.append([Group((a_tool_call(a_turn(), timestamp=START_US + DAY_US),))])
    fill(store, first=DAY + timedelta(days=3))
    rest = list(export_missed(store.folder, out, now=datetime(2026, 3, 6, 12, tzinfo=UTC)))

    assert [len(rows_of(file.path)) for file in alone if "access" in file.path.name] == [1]
    assert {file.path.stem[-10:] for file in rest} == {"2026-03-02", "2026-03-04"}
    assert exported_through(out) == date(2026, 3, 5)


def test_a_clock_years_behind_costs_one_day(store: SqliteStore, tmp_path: Path) -> None:
    """Days of which nothing is held get no files, so one odd time does not bring thousands."""
    store.append([Group((a_tool_call(a_turn(), timestamp=START_US - 9_000 * DAY_US),))])
    fill(store)

    files = list(
        export_missed(store.folder, tmp_path / "out", now=datetime(2026, 3, 3, tzinfo=UTC))
    )

    assert len(files) == 2 * len(schema.LOGS)
    assert sum(file.rows for file in files) == 4


def test_nothing_is_missed_of_an_empty_record(store: SqliteStore, tmp_path: Path) -> None:
    """No turn, no file, no folder."""
    assert list(export_missed(store.folder, tmp_path / "out", now=datetime.now(UTC))) == []
    assert not (tmp_path / "out").exists()


def test_a_day_is_over_when_its_turns_have_closed() -> None:
    """A few minutes after midnight in UTC, whatever the zone of the clock."""
    midnight = datetime(2026, 3, 2, tzinfo=UTC)

    assert last_whole_day(midnight + SETTLING - timedelta(seconds=1)) == date(2026, 2, 28)
    assert last_whole_day(midnight + SETTLING) == DAY
