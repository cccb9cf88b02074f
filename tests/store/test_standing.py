"""How turns stand: for whoever adds to them, and for the next start of a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from everyturn.audit.group import Group
from everyturn.audit.records import ModelCall, TurnAudit
from everyturn.audit.turn_state import NOTHING, Tally
from everyturn.store.base import RecordRefused
from everyturn.store.sqlite import SqliteStore
from everyturn.store.standing import Standing, standing_of
from tests.support.store_records import (
    START,
    a_call,
    a_retrieval,
    a_tool_call,
    a_turn,
    a_turn_id,
    closed_call,
    closed_turn,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store."""
    store = SqliteStore(tmp_path / "data")
    yield store
    store.close()


def test_turns_stand_with_their_sums(store: SqliteStore) -> None:
    """Row and sums of each turn asked for, open ones too; a turn that nobody recorded is absent."""
    turn, is_open, named = a_turn(user_text="q" * 300), a_turn(), a_turn()
    calls = [
        closed_call(a_call(turn), cost_estimate=0.25),
        closed_call(a_call(turn), error_code="upstream_error"),
        closed_call(a_call(turn, transport="external", revision=0), cost_estimate=0.5),
        closed_call(a_call(turn, transport="external", revision=0)),
    ]
    more = (a_tool_call(turn), a_tool_call(turn), a_retrieval(turn))
    store.append([Group((turn, is_open)), Group((*calls, *more, a_tool_call(named)))])
    store.append([Group((closed_turn(turn),))])

    found = standing_of(
        store.folder, [turn.turn_id, is_open.turn_id, named.turn_id, a_turn_id(), "no id"]
    )

    assert found == {
        turn.turn_id: Standing(closed_turn(turn), Tally(2, 0.25, 2, None, 2, 1)),
        is_open.turn_id: Standing(is_open, NOTHING),
        named.turn_id: Standing(None, Tally(tools=1)),
    }


def test_a_call_that_owes_a_cost_makes_the_sum_unknown(store: SqliteStore) -> None:
    """A failed call that reported usage owes; one that failed before that does not."""
    first, second = a_turn(), a_turn()
    owing = closed_call(a_call(first), error_code="upstream_error", usage_json='{"a":1}')
    owed = closed_call(a_call(second), error_code="upstream_error")
    store.append([Group((first, second)), Group((owing, owed))])

    found = standing_of(store.folder, [first.turn_id, second.turn_id])

    assert [found[turn.turn_id].tally.cost for turn in (first, second)] == [None, 0.0]


def test_a_call_that_was_cut_off_is_counted(store: SqliteStore) -> None:
    """Also in a turn that had closed before this call joined it; so are tool runs and retrievals
    that were stored when the turn's row was not yet."""
    turn = a_turn()
    ended = closed_turn(turn, model_call_count=1, tool_call_count=1)
    store.append([Group((turn, a_call(turn))), Group((ended,)), Group((a_call(turn),))])
    store.append([Group((a_tool_call(turn), a_tool_call(turn), a_retrieval(turn)))])

    store.close_interrupted(now=START)

    (row,) = store.scan(TurnAudit)
    assert (row.outcome, row.model_call_count) == ("failure", 2)
    assert (row.tool_call_count, row.retrieval_count) == (2, 1)


def test_what_an_application_told_of_is_not_interrupted(store: SqliteStore) -> None:
    """At a crash only a turn with a call under way ends as interrupted."""
    said = '{"user_text":"application"}'
    alone, elsewhere, ours = (a_turn(sources_by_field_json=said) for _ in range(3))
    store.append([Group((alone, elsewhere, ours))])
    store.append([Group((closed_call(a_call(elsewhere, transport="external", revision=0)),))])
    store.append([Group((a_call(ours),))])

    count = store.close_interrupted(now=START)

    assert count == 1
    ended = {turn.turn_id: turn.outcome for turn in store.scan(TurnAudit)}
    assert ended == {alone.turn_id: None, elsewhere.turn_id: None, ours.turn_id: "failure"}


def test_a_call_whose_end_was_not_stored_leaves_a_later_success(store: SqliteStore) -> None:
    """At the next start only that call is interrupted; its turn keeps what a later call made."""
    turn = a_turn()
    lost, later = a_call(turn), a_call(turn)
    store.append([Group((turn, lost)), Group((later,))])
    ended = closed_turn(turn, outcome="success", assistant_text="said", model_call_count=1)
    store.append([Group((closed_call(later), ended))])

    store.close_interrupted(now=START)

    (row,) = store.scan(TurnAudit)
    assert (row.outcome, row.error_code, row.assistant_text) == ("success", None, "said")
    assert (row.model_call_count, row.revision) == (2, ended.revision + 1)
    states = {call.model_call_id: call.error_code for call in store.scan(ModelCall)}
    assert states == {lost.model_call_id: "gateway_interrupted", later.model_call_id: None}


def test_a_call_that_was_cut_off_after_a_success_ends_its_turn(store: SqliteStore) -> None:
    """The words of a turn are those of its last call, also where that one was interrupted."""
    turn = a_turn()
    first, last = a_call(turn), a_call(turn)
    store.append([Group((turn, first))])
    store.append([Group((closed_call(first), closed_turn(turn, outcome="success")))])
    store.append([Group((last,))])

    store.close_interrupted(now=START)

    (row,) = store.scan(TurnAudit)
    assert (row.outcome, row.error_code) == ("failure", "gateway_interrupted")


def marks(store: SqliteStore) -> int:
    """Turns that are marked to be counted again."""
    sql = "SELECT count(*) FROM store_numbers WHERE name LIKE 'uncounted:%'"
    return int(apsw.Connection(str(store.path)).execute(sql).get)


def test_counts_that_a_crash_left_behind_are_made_good(store: SqliteStore) -> None:
    """Records whose turn has no row that counts them are counted at the next start."""
    turn, told, named = closed_turn(a_turn()), closed_turn(a_turn()), a_turn()
    store.append([Group((turn, told))])
    elsewhere = closed_call(a_call(turn, transport="external", revision=0))
    store.append([Group((a_tool_call(turn), a_retrieval(turn), elsewhere, a_tool_call(named)))])
    store.append([Group((a_tool_call(told),))])
    counted = structs.replace(told, tool_call_count=1, revision=told.revision + 1)
    store.append([Group((counted,))])
    before = marks(store)

    store.close_interrupted(now=START)

    rows = {row.turn_id: row for row in store.scan(TurnAudit)}
    row = rows[turn.turn_id]
    assert (row.model_call_count, row.tool_call_count, row.retrieval_count) == (1, 1, 1)
    assert row.revision == turn.revision + 1
    assert rows[told.turn_id] == counted
    assert (before, marks(store)) == (2, 0)


def test_what_could_not_be_written_is_marked_when_it_is(store: SqliteStore) -> None:
    """A transaction that failed leaves no mark behind, and none is missing from the next one."""
    turn = closed_turn(a_turn())
    run = a_tool_call(turn)
    store.append([Group((turn, run))])
    with pytest.raises(RecordRefused):
        store.append([Group((structs.replace(run, tool_name="other"), a_tool_call(turn)))])
    refused = marks(store)

    store.append([Group((a_tool_call(turn),))])

    store.close_interrupted(now=START)
    (row,) = store.scan(TurnAudit)
    assert (refused, row.tool_call_count) == (1, 2)
