"""The search index over a store, and the queries that a person may write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everyturn.audit.group import Group
from everyturn.store.base import StoreFailure, StoreRefused
from everyturn.store.finding import find, read_query
from everyturn.store.said import FIELDS
from everyturn.store.search import ALL_TURNS, BATCH_TURNS, SEARCH_NAME, SearchIndex
from everyturn.store.sqlite import SqliteStore
from tests.support.search import message, search, tell
from tests.support.store_records import (
    a_call,
    a_tool_call,
    a_turn,
    an_index,
    bytes_of,
    closed_call,
    closed_turn,
    group_of,
)

LONG = " and so on" * 20
"""Makes a text long enough to be stored apart."""

CATCH_UP_FOR_EVER = """
import sys
from pathlib import Path
from everyturn.store.search import SearchIndex
index = SearchIndex(Path(sys.argv[1]))
def told(seconds):
    print("a step is done", flush=True)
    return False
index.catch_up(pause=told)
while True:
    pass
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store that stays open, as a gateway's does."""
    store = SqliteStore(tmp_path / "data")
    yield store
    store.close()


@pytest.fixture
def index(store: SqliteStore) -> Iterator[SearchIndex]:
    """Its search index."""
    index = SearchIndex(store.folder)
    yield index
    index.close()


@pytest.mark.parametrize("tail", ["", LONG])
def test_a_turn_is_found_by_what_was_said(
    store: SqliteStore, index: SearchIndex, tail: str
) -> None:
    """By its question, its answer, and what tools were asked and said; each in its own field."""
    contents = an_index()
    call = {"id": "c1", "function": {"name": "look_up", "arguments": '{"order":"O-4711"}'}}
    asked = message("user", f"what is the refund policy{tail}")
    one = tell(store, contents, [asked], f"let me see{tail}", tool_calls=[call]).turn_id
    result = [message("assistant", f"let me see{tail}", tool_calls=[call])]
    result.append(message("tool", f"thirty days{tail}", tool_call_id="c1"))
    two = tell(store, contents, [asked, *result], f"you have a month{tail}", asked="ask").turn_id
    three = tell(store, contents, [message("user", "hello")], "hi").turn_id
    store.append([Group((a_tool_call(a_turn(turn_id=three), request_json='{"to":"Utrecht"}'),))])

    assert search(index, "refund policy", "user") == [two, one]
    assert search(index, "refund policy", "assistant", "tools") == []
    assert search(index, "see", "assistant")[-1] == one
    assert search(index, "month") == [two]
    assert search(index, "look_up", "tools")[-1] == one
    assert search(index, "O-4711", "tools")[-1] == one
    assert search(index, "thirty days", "tools") == [two]
    assert search(index, "thirty days", "user", "assistant") == []
    assert search(index, "utrecht", "tools") == [three]
    assert search(index, "month refund") == [two]


@pytest.mark.parametrize("tail", ["", LONG])
def test_history_is_not_found_again(store: SqliteStore, index: SearchIndex, tail: str) -> None:
    """What is resent is found in the turn in which it was said; what came with it, in the first."""
    contents = an_index()
    prompt = [message("system", "be brief"), message("user", "brought along" + tail)]
    prompt += [message("assistant", "of old" + tail), message("user", "first" + tail)]
    turns = [tell(store, contents, prompt, "alpha" + LONG)]
    for name in ("second", "third"):
        prompt += [message("assistant", turns[-1].assistant_text)]
        prompt += [message("user", name + tail)]
        turns.append(tell(store, contents, prompt, f"beta {name}" + LONG))
    ids = [turn.turn_id for turn in turns]

    assert search(index, "first") == [ids[0]]
    assert search(index, "second", "user") == [ids[1]]
    assert search(index, "alpha") == [ids[0]]
    assert search(index, "beta") == [ids[2], ids[1]]
    assert search(index, '"brought along"') == [ids[0]]
    assert search(index, '"of old"') == [ids[0]]
    assert search(index, "brief") == []


def test_the_same_words_of_many_turns_are_found_in_each(
    store: SqliteStore, index: SearchIndex
) -> None:
    """A message that is stored once but was said in each of many turns is found in all of them."""
    contents = an_index()
    ids = [tell(store, contents, [message("user", "hi there")], "hi").turn_id for _ in range(200)]

    assert search(index, '"hi there"', limit=1000) == ids[::-1]
    assert search(index, '"hi there"', limit=3) == ids[:-4:-1]


def test_parts_of_a_message_are_found(store: SqliteStore, index: SearchIndex) -> None:
    """Text parts of a list are searched, marks of media and of reasoning are not."""
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "look here"},
        {"type": "image_url", "image_url": "media"},
    ]
    parts.append({"type": "thinking", "thinking": [{"type": "text", "text": "contemplated"}]})
    odd = message("assistant", "fine", reasoning_content="deliberated", thinking="pondered")
    prompt = [odd, message("user", parts)]
    turn = tell(store, an_index(), prompt, "ok", asked="look here", reasoning="mused")

    assert search(index, "look here") == [turn.turn_id]
    for word in ("media", "image_url", "deliberated", "pondered", "mused", "contemplated"):
        assert search(index, word) == []


def test_words_beside_a_nul_are_found(store: SqliteStore, index: SearchIndex) -> None:
    """Texts taken from documents have NULs between words; they part words as spaces do."""
    turn = a_turn(user_text="refund\0policy", assistant_text="within\0\0thirty days \u241b")
    store.append([Group((turn, closed_turn(turn)))])

    for words in ("policy", '"refund policy"', "refund", "thirty", "within days"):
        assert search(index, words) == [turn.turn_id]


def test_changes_are_followed(store: SqliteStore, index: SearchIndex) -> None:
    """A turn that closes, is joined, gets a late tool run or other words is found by them."""
    contents = an_index()
    turn = a_turn(user_text="question")
    opening, call = group_of(turn, contents, [message("user", "question")])
    store.append([opening])
    assert search(index, "answered") == []
    closing = closed_call(call, response_json='{"choices":[]}')
    closed = closed_turn(turn, assistant_text="answered")
    store.append([Group((closing, closed))])
    assert search(index, "answered") == [turn.turn_id]

    second = a_call(turn, response_json=None)
    store.append([Group((second,))])
    assert search(index, "joined") == []
    reply = '{"choices":[{"message":{"role":"assistant","content":"joined"}}]}'
    store.append([Group((closed_call(second, response_json=reply),))])
    assert search(index, "joined") == [turn.turn_id]
    store.append([Group((a_tool_call(turn, response_json='"late"'),))])
    assert search(index, "late", "tools") == [turn.turn_id]
    other = msgspec.structs.replace(closed, assistant_text="corrected", revision=3)
    store.append([Group((other,))])
    assert search(index, "corrected") == [turn.turn_id]
    assert search(index, "answered") == []


def test_an_old_turn_that_changes_is_found_when_all_are_looked_at(
    store: SqliteStore, index: SearchIndex
) -> None:
    """Changes of turns that are no longer among the newest wait for a wider look."""
    old = a_turn(user_text="old")
    store.append([Group((closed_turn(old),))])
    store.append([Group((closed_turn(a_turn()),)) for _ in range(5)])
    index.catch_up()
    store.append([Group((a_tool_call(old, request_json='"afterwards"'),))])
    query = read_query("afterwards")

    index.catch_up(newest=3)
    assert find(index, query, fields=FIELDS, limit=5) == []
    index.catch_up(newest=ALL_TURNS)

    assert [f.turn_id for f in find(index, query, fields=FIELDS, limit=5)] == [old.turn_id]


def test_a_turn_that_was_open_for_long_is_found(store: SqliteStore, index: SearchIndex) -> None:
    """It is remembered, though many newer turns change meanwhile."""
    turn = a_turn()
    count = BATCH_TURNS + 6
    newer = [a_turn() for _ in range(count)]
    store.append([Group((turn,)), *(Group((closed_turn(one),)) for one in newer)])
    index.catch_up()
    store.append([Group((a_tool_call(one, request_json='"tool"'),)) for one in newer])
    store.append([Group((closed_turn(turn, assistant_text="finally"),))])

    index.catch_up(newest=count)

    query = read_query("finally")
    assert [f.turn_id for f in find(index, query, fields=FIELDS, limit=5)] == [turn.turn_id]
    assert index.db.execute("SELECT count(*) FROM open_turns").get == 0


def test_what_is_known_is_not_looked_at_again_at_rest(
    store: SqliteStore, index: SearchIndex
) -> None:
    """Without a gateway, a store whose files are as they were is taken as known."""
    turn = a_turn()
    store.append([Group((closed_turn(turn),))])

    assert index.catch_up_at_rest()
    version = index.db.total_changes()
    assert index.catch_up_at_rest()
    assert index.db.total_changes() == version
    store.append([Group((a_tool_call(turn, request_json='"more"'),))])
    assert index.catch_up_at_rest()
    assert len(find(index, read_query("more"), fields=FIELDS, limit=5)) == 1


def test_a_new_index_knows_no_turn(store: SqliteStore, index: SearchIndex) -> None:
    """Before anything is taken in, it can be asked, and is behind by every turn."""
    tell(store, an_index(), [message("user", "hello")], "a")

    assert index.lag == 1
    assert (store.folder / SEARCH_NAME).stat().st_mode & 0o777 == 0o600
    assert find(index, read_query("hello"), fields=FIELDS, limit=5) == []


def test_erased_turns_leave_the_index(store: SqliteStore, index: SearchIndex) -> None:
    """Their words are gone from the files, keys that are used again lead to the new turn only."""
    contents = an_index()
    kept = tell(store, contents, [message("user", "keepme")], "staying")
    gone = tell(store, contents, [message("user", "zyxwords")], "qqanswer")
    index.catch_up()
    assert b"zyxwords" in bytes_of(store.folder)

    store.erase([gone.turn_id])

    left = bytes_of(store.folder)
    assert b"zyxwords" not in left
    assert b"qqanswer" not in left
    contents.clear()
    new = tell(store, contents, [message("user", "newcomer")], "hello")
    assert search(index, "zyxwords") == []
    assert search(index, "newcomer") == [new.turn_id]
    assert search(index, "staying") == [kept.turn_id]


def test_an_erasure_that_broke_off_is_noticed(store: SqliteStore, index: SearchIndex) -> None:
    """Where the process died between the store and the index, the index is emptied later."""
    contents = an_index()
    gone = tell(store, contents, [message("user", "zyxwords")], "a")
    tell(store, contents, [message("user", "staying")], "a")
    index.catch_up()
    aside = store.folder.parent / "aside"
    (store.folder / SEARCH_NAME).rename(aside)  # Erasing does not see it.
    store.erase([gone.turn_id])
    aside.rename(store.folder / SEARCH_NAME)

    assert search(index, "zyxwords") == []
    assert index.db.execute("SELECT count(*) FROM words").get == 1


def test_another_store_in_its_place_is_noticed(tmp_path: Path) -> None:
    """An index that was made of other turns is made anew, though the keys are the same."""
    for word in ("before", "after"):
        store = SqliteStore(tmp_path / "data")
        turn = tell(store, an_index(), [message("user", word)], "a")
        index = SearchIndex(store.folder)
        assert search(index, word) == [turn.turn_id]
        assert search(index, "before") == ([turn.turn_id] if word == "before" else [])
        index.close()
        store.close()
        for path in (tmp_path / "data").glob("everyturn.db*"):
            path.unlink()


def test_an_index_of_another_form_is_made_anew(store: SqliteStore) -> None:
    """One that another version made, or that is empty, is filled again; others cannot read it."""
    turn = tell(store, an_index(), [message("user", "hello")], "a")
    (store.folder / SEARCH_NAME).write_bytes(b"")
    for _ in range(2):
        index = SearchIndex(store.folder)
        assert search(index, "hello") == [turn.turn_id]
        index.db.execute("PRAGMA user_version = 7")
        index.close()


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_damaged_index_is_made_anew(store: SqliteStore, first: int) -> None:
    """Wherever the damage is: it fails at most once, and then all is found; the store is whole."""
    contents = an_index()
    ids = [tell(store, contents, [message("user", f"hello {n}")], "a").turn_id for n in range(99)]
    index = SearchIndex(store.folder)
    index.catch_up()
    index.close()
    place = store.folder / SEARCH_NAME
    data = bytearray(place.read_bytes())
    data[first * 4096 :] = b"\xff" * (len(data) - first * 4096)
    place.write_bytes(data)

    failures = 0
    for _ in range(2):
        try:
            index = SearchIndex(store.folder)
            assert search(index, "hello", limit=1000) == ids[::-1]
            index.close()
        except StoreFailure:
            failures += 1

    assert failures < 2


def test_a_damaged_turn_does_not_hold_up_the_others(store: SqliteStore, index: SearchIndex) -> None:
    """It is counted and passed by."""
    contents = an_index()
    bad = tell(store, contents, [message("user", "rotten" + LONG)], "a")
    store._db.execute("UPDATE contents SET text = replace(text, 'rotten', '\"rot\"')")
    good = tell(store, contents, [message("user", "fine" + LONG)], "a")

    assert search(index, "fine") == [good.turn_id]
    assert bad.turn_id not in search(index, "rotten")
    assert index.unreadable == 1


def test_an_index_that_cannot_be_written_is_read(store: SqliteStore, index: SearchIndex) -> None:
    """Read-only it gives what it held; where there is none, it says what to do."""
    turn = tell(store, an_index(), [message("user", "hello")], "a")
    index.catch_up()
    with pytest.raises(StoreRefused, match="no records"):
        SearchIndex(store.folder.parent)

    reading = SearchIndex(store.folder, is_writable=False)
    found = find(reading, read_query("hello"), fields=FIELDS, limit=5)
    reading.close()
    index.close()
    (store.folder / SEARCH_NAME).unlink()

    assert [one.turn_id for one in found] == [turn.turn_id]
    with pytest.raises(StoreRefused, match="no search index"):
        SearchIndex(store.folder, is_writable=False)


def test_a_process_that_is_killed_costs_nothing(store: SqliteStore) -> None:
    """Killed between its steps or in one, an index goes on after what is whole."""
    contents = an_index()
    count = BATCH_TURNS * 3
    for number in range(count):
        tell(store, contents, [message("user", f"all number{number}")], "a")
    child = subprocess.Popen(
        [sys.executable, "-c", CATCH_UP_FOR_EVER, str(store.folder)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()

    index = SearchIndex(store.folder)
    assert len(search(index, "all", limit=1000)) == count
    assert len(search(index, f"number{count - 1}")) == 1
    assert index.lag == 0
    index.close()
