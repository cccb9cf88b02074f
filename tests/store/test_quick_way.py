"""What goes the quick way into the store, however long the store has run."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everyturn.audit.content import ContentIndex
from everyturn.audit.group import Group
from everyturn.audit.records import ModelCall, TurnAudit
from everyturn.audit.redact import NONE_FOUND, Redacted
from everyturn.store import careful, state
from everyturn.store.batch import ranges_of
from everyturn.store.rows import CODECS, NOWHERE_ELSE
from everyturn.store.sqlite import SqliteStore
from everyturn.store.state import is_open
from tests.support.store_records import (
    a_call,
    a_tool_call,
    a_turn,
    an_access,
    an_index,
    closed_call,
    closed_turn,
    group_of,
)

SYSTEM = b'{"role":"system","content":"You are helpful."}'


def test_a_prompt_that_all_turns_begin_with_stays_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prefix that memory dropped is looked up; the turns that have it need no care."""

    def refuse(*_: object) -> None:
        raise AssertionError("a plain turn went the careful way")

    monkeypatch.setattr(state, "_NODES_MAX", 8)
    monkeypatch.setattr(careful, "add", refuse)
    store = SqliteStore(tmp_path / "data")
    index = ContentIndex("v")

    for number in range(40):
        items = [SYSTEM, b'{"role":"user","content":"%d"}' % number]
        listed = index.refer(items, lambda raw: Redacted(raw.decode(), NONE_FOUND))
        turn = a_turn()
        call = a_call(turn, prompt_messages_json=listed.ref)
        group = Group((turn, call), listed.contents, listed.nodes, listed.known)
        store.append([group])
        index.confirm(group)

    store.close()


def all_rows(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of every table of a store."""
    with apsw.Connection(str(folder / "everyturn.db")) as db:
        names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        rows = {
            name: db.execute(f"SELECT * FROM {name}").fetchall()  # noqa: S608 (ours)
            for (name,) in names
            if name != "migrations"
        }
    return {name: sorted(found, key=repr) for name, found in rows.items()}


def test_the_loop_and_the_thread_leave_the_same_rows(tmp_path: Path) -> None:
    """How many rows a statement writes is not to be seen in the files."""
    index = an_index()
    groups: list[Group] = []
    for number in range(75):
        message = b'{"role":"user","content":"%d %s"}' % (number, b"how " * 50)
        opening, call = group_of(
            turn := a_turn(user_text=f"{number} " + "how " * 50), index, [SYSTEM, message]
        )
        index.confirm(opening)
        answer = f'{{"choices":[{{"message":{{"content":"{number} {"so " * 60}"}}}}]}}'
        ended = closed_turn(turn, assistant_text=f"{number} {'so ' * 60}")
        closing = Group((closed_call(call, response_json=answer), ended, an_access(turn)))
        groups += [opening, closing, Group((a_tool_call(turn),))]
        if number % 3 == 0:
            groups.append(Group((closed_turn(ended, origin="again"),)))
    left, right = SqliteStore(tmp_path / "left"), SqliteStore(tmp_path / "right")
    for start in range(0, len(groups), 140):
        left.append(groups[start : start + 140])
        assert right.try_append(groups[start : start + 140])
    left.close()
    right.close()

    assert all_rows(tmp_path / "left") == all_rows(tmp_path / "right")


ODD = st.text(st.sampled_from('ab"\\\n\u2603\0\u241b\ud800'), max_size=6)


@given(texts=st.lists(ODD | st.none(), min_size=3, max_size=3), cost=st.none() | st.integers(0, 3))
def test_the_quick_way_is_the_careful_one(texts: list[str | None], cost: float | None) -> None:
    """Whatever the texts: where they go the quick way, they come to rest as the careful one does,
    and lone surrogates, which it cannot take, are refused."""
    turn = a_turn(user_text=texts[0], origin=texts[1], attributes_json=texts[2], cost_estimate=cost)
    call = a_call(turn, response_json=texts[0], error_code=texts[1], flags_json=texts[2])
    is_odd = any("\ud800" in (text or "") for text in texts)

    record: TurnAudit | ModelCall
    for record, row_key in ((turn, None), (call, 5)):
        codec = CODECS[type(record)]
        elsewhere = NOWHERE_ELSE[type(record)]
        if is_odd:
            with pytest.raises(UnicodeEncodeError):
                codec.encode(record, 2, row_key, elsewhere, b"1")
            with pytest.raises(UnicodeEncodeError):
                codec.open_data(record)
            continue
        row = codec.encode_carefully(record, turn_key=2, row_key=row_key, older=b"1")
        assert codec.encode(record, 2, row_key, elsewhere, b"1") == row
        data, is_canonical = codec.open_data(record)
        assert data == codec.open_data_carefully(record)
        assert not is_canonical or codec.digest(record, data) == codec.digest(record)
        assert codec.digest(record) == codec.digest(codec.canonical(record))


@given(st.lists(st.integers(0, 40), min_size=1))
def test_neighbours_are_deleted_together(keys: list[int]) -> None:
    """The ranges hold each key and no other, and no two of them touch."""
    ranges = ranges_of(list(keys))

    held = [key for first, last in ranges for key in range(first, last + 1)]
    assert held == sorted(set(keys))
    assert all(first > last + 1 for (_, last), (first, _) in pairwise(ranges))


def test_a_turn_and_a_call_are_open_until_they_say_how_they_ended() -> None:
    """An access event is never open."""
    turn = a_turn()
    call = a_call(turn)

    assert is_open(turn)
    assert is_open(call)
    assert not is_open(closed_turn(turn, outcome="abandoned"))
    assert not is_open(closed_turn(turn, outcome=None, sources_by_field_json="{}"))
    assert not is_open(closed_call(call, stream_state="cut"))
    assert not is_open(an_access(turn))
