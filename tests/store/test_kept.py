"""Reasoning texts at rest: kept once, read by permission, gone in time and with their turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from everyturn.audit.group import Group
from everyturn.audit.records import ReasoningText, TurnAudit
from everyturn.errors import NotPermitted
from everyturn.store.kept import LOCAL_OPERATOR
from everyturn.store.reader import open_reader
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import a_call, a_turn, bytes_of, closed_call, closed_turn

FAR_AWAY = 1 << 60
REF = "0123456789abcdef" * 2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store."""
    opened = SqliteStore(tmp_path / "data")
    yield opened
    opened.close()


def a_text(
    turn: TurnAudit, text: str = "a thought", ref: str = REF, **fields: Any
) -> ReasoningText:
    """A kept text of a turn."""
    given = {
        "reasoning_id": ref,
        "turn_id": turn.turn_id,
        "model_call_id": "call_1",
        "timestamp": 2_000,
        "expires_at": FAR_AWAY,
        "carrier": "reasoning_content",
        "chars": len(text),
        "is_encrypted": False,
        "text": text,
        **fields,
    }
    return ReasoningText(**given)


def said(ref: str = REF) -> str:
    """A response with a mark of a kept text, and one of a text that is not kept."""
    mark = f'{{"everyturn_reasoning":{{"chars":9,"carrier":"reasoning_content","ref":"{ref}"}}}}'
    other = '{"everyturn_reasoning":{"chars":9,"carrier":"thinking"}}'
    return f'{{"choices":[{{"message":{{"reasoning_content":{mark},"thinking":{other}}}}}]}}'


def append(store: SqliteStore, *texts: ReasoningText, turn: TurnAudit, ref: str = REF) -> None:
    """Append a closed turn with one call that has a mark, and these texts."""
    call = a_call(turn)
    store.append([Group((turn, call))])
    closed = closed_call(call, response_json=said(ref))
    store.append([Group((closed, closed_turn(turn)), reasoning=texts)])


def kept(store: SqliteStore, turn: TurnAudit) -> list[dict[str, Any]]:
    """What is read of a turn's reasoning with the permission."""
    with open_reader(store.folder) as reader:
        found = reader.turn(turn.turn_id, include_reasoning=True, permissions=LOCAL_OPERATOR)
    assert found is not None
    texts: list[dict[str, Any]] = found["reasoning_texts"]
    return texts


@pytest.mark.parametrize("text", ["a thought", "nul \0, escape \u241b, half \ud800", "ж" * 5000])
def test_a_text_is_read_as_it_was(store: SqliteStore, text: str) -> None:
    """Any text comes back whole, with its facts, to who may read it and asks."""
    turn = a_turn()
    append(store, a_text(turn, text), turn=turn)

    (found,) = kept(store, turn)

    assert found["text"] == text
    assert found["turn_id"] == turn.turn_id
    assert (found["reasoning_id"], found["chars"]) == (REF, len(text))
    assert found["is_encrypted"] is False


def test_a_reader_leaves_it_out(store: SqliteStore) -> None:
    """Without asking there is no such member; asking without the permission is refused."""
    turn = a_turn()
    append(store, a_text(turn), turn=turn)

    with open_reader(store.folder) as reader:
        plain = reader.turn(turn.turn_id, permissions=LOCAL_OPERATOR)
        with pytest.raises(NotPermitted, match="reasoning"):
            reader.turn(turn.turn_id, include_reasoning=True, permissions={"read", "admin"})

    assert plain is not None
    assert "reasoning_texts" not in plain
    assert "a thought" not in repr(plain)


def test_a_text_that_comes_again_is_kept_once(store: SqliteStore) -> None:
    """A later turn that repeats a text reads the one that is there."""
    first, later = a_turn(), a_turn()
    append(store, a_text(first), turn=first)
    append(store, a_text(later), turn=later)

    assert [text["turn_id"] for text in kept(store, later)] == [first.turn_id]
    assert bytes_of(store.folder).count(b"a thought") == 1


def test_what_expired_is_not_read_and_soon_gone(store: SqliteStore) -> None:
    """A text whose time is over is not read; upkeep deletes it from the files; others stay."""
    turn, other = a_turn(), a_turn()
    now = time.time_ns() // 1_000
    other_ref = REF[::-1]
    append(store, a_text(turn, "over and done", expires_at=now - 1), turn=turn)
    append(store, a_text(other, "still here", other_ref), turn=other, ref=other_ref)
    assert kept(store, turn) == []
    assert b"over and done" in bytes_of(store.folder)

    until(lambda: not store.tend() and b"over and done" not in bytes_of(store.folder))

    assert [text["text"] for text in kept(store, other)] == ["still here"]


def test_a_text_may_come_again_after_its_time(store: SqliteStore) -> None:
    """What expired and was not deleted yet gives way to the same text brought anew."""
    turn, later = a_turn(), a_turn()
    append(store, a_text(turn, expires_at=3_000), turn=turn)
    append(store, a_text(later, timestamp=3_000), turn=later)

    assert [text["turn_id"] for text in kept(store, later)] == [later.turn_id]


def test_erasure_takes_the_texts_of_a_turn(store: SqliteStore) -> None:
    """When a turn is erased, no file holds its reasoning; a turn that repeats it has the mark."""
    turn, later = a_turn(), a_turn()
    append(store, a_text(turn, "erase me"), turn=turn)
    append(store, a_text(later, "erase me"), turn=later)

    assert store.erase([turn.turn_id]) == 1

    assert b"erase me" not in bytes_of(store.folder)
    assert kept(store, later) == []


def test_a_group_that_needs_care_keeps_its_texts(store: SqliteStore) -> None:
    """Records that come again go the careful way, and the texts with them too."""
    turn = a_turn()
    store.append([Group((turn,))])
    store.append([Group((turn,), reasoning=(a_text(turn),))])
    call = closed_call(a_call(turn), response_json=said())
    store.append([Group((call,))])

    assert [text["text"] for text in kept(store, turn)] == ["a thought"]


def until(is_so: Callable[[], bool]) -> None:
    """Try until it is so: another thread may hold the log for a moment."""
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
