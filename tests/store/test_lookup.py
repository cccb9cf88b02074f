from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everyturn.audit.group import Group
from everyturn.audit.records import TurnAudit
from everyturn.store import lookup
from everyturn.store.base import StoreFailure
from everyturn.store.lookup import (
    CACHE_ENTRIES_MAX,
    CONTENTS,
    MERGE_ENTRIES_MIN,
    TURNS,
    Filter,
    Lookup,
    address_hash,
    turn_hash,
)
from everyturn.store.reader import open_reader
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import a_turn, a_turn_id, an_index, group_of

INDEXED = "SELECT count(*) FROM turn_ids_lookup"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store."""
    store = SqliteStore(tmp_path / "data")
    yield store
    store.close()


def fill(db: apsw.Connection, first: int, count: int) -> dict[str, int]:
    """Rows of turn ids, as appends would leave them."""
    rows = {a_turn_id(10**6 + key): key for key in range(first, first + count)}
    with db:
        db.executemany("INSERT INTO turn_ids VALUES (?, ?)", [(k, v) for v, k in rows.items()])
    return rows


def test_values_are_found_before_during_and_after_a_merge(store: SqliteStore) -> None:
    """Wherever an entry is at the moment, its key is found, also by a store that starts anew."""
    db = apsw.Connection(str(store.path))
    lookup = Lookup(db, TURNS)
    rows = fill(db, 1, MERGE_ENTRIES_MIN + 10)
    lookup.added(rows)
    some = [value for value, key in rows.items() if key % 997 == 0]
    slices = 0
    while lookup.merge_slice():
        slices += 1
        lookup.ask(some)
        assert [lookup.find(value) for value in some] == [rows[value] for value in some]
    assert slices > 10
    assert db.execute(INDEXED).get == MERGE_ENTRIES_MIN
    late = fill(db, len(rows) + 1, 5)
    lookup.added(late)

    for one in (lookup, Lookup(db, TURNS)):
        one.ask([*some, *late, a_turn_id(5)])
        assert [one.find(value) for value in some] == [rows[value] for value in some]
        assert [one.find(value) for value in late] == list(late.values())
        assert one.find(a_turn_id(5)) is None
        assert one.key_last == len(rows) + 5
    db.close()


def test_what_was_asked_for_is_known_until_the_commit_is_over(store: SqliteStore) -> None:
    """However many keys a commit asks for, none of them is let go for another; then they are."""
    db = apsw.Connection(str(store.path))
    rows = fill(db, 1, 2 * MERGE_ENTRIES_MIN)
    lookup = Lookup(db, TURNS)
    while lookup.merge_slice():
        pass
    early, late = list(rows)[:10], list(rows)[-10:]

    lookup.ask(early)
    lookup.ask(list(rows)[10:-10])
    lookup.ask(late)

    assert all(lookup.find(value) == key for value, key in rows.items())
    lookup.trim()
    assert sum(lookup.find(value) is not None for value in rows) <= CACHE_ENTRIES_MAX
    lookup.ask(early)
    assert [lookup.find(value) for value in early] == [rows[value] for value in early]
    db.close()


def test_a_merge_that_was_cut_short_begins_again(store: SqliteStore) -> None:
    """Slices that were merged before a crash are merged again without harm."""
    db = apsw.Connection(str(store.path))
    lookup = Lookup(db, TURNS)
    rows = fill(db, 1, MERGE_ENTRIES_MIN)
    lookup.added(rows)
    assert lookup.merge_slice()
    assert lookup.merge_slice()

    again = Lookup(db, TURNS)
    while again.merge_slice():
        pass

    assert db.execute(INDEXED).get == len(rows)
    assert not again.merge_slice()
    db.close()


def test_few_entries_are_not_merged(store: SqliteStore) -> None:
    """The index is left alone until a merge puts many entries on a page."""
    db = apsw.Connection(str(store.path))
    lookup = Lookup(db, TURNS)
    lookup.added(fill(db, 1, 100))

    assert not lookup.merge_slice()
    assert db.execute(INDEXED).get == 0
    db.close()


def test_a_reader_finds_turns_on_both_sides_of_the_index(store: SqliteStore) -> None:
    """A turn is found whether the index holds it or not, by id and by beginning."""
    db = apsw.Connection(str(store.path))
    lookup = Lookup(db, TURNS)
    lookup.added(fill(db, 1, MERGE_ENTRIES_MIN))
    while lookup.merge_slice():
        pass
    fill(db, MERGE_ENTRIES_MIN + 1, 3)
    db.close()
    store.close()
    again = SqliteStore(store.folder)
    turns = [a_turn(turn_id=a_turn_id(10**6 + key)) for key in (1, 777, MERGE_ENTRIES_MIN + 2)]
    again.append([Group(tuple(turns))])
    while again.tend():
        pass

    with open_reader(again.folder) as reader:
        for turn in turns:
            for text in (turn.turn_id, turn.turn_id[:12], turn.turn_id[:20]):
                found = reader.turn(text)
                assert found is not None
                assert found["turn"]["turn_id"] == turn.turn_id
    again.close()


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_has_a_place_in_the_index(text: str) -> None:
    """Ids of any form hash to as many bits as their table says, which an integer column holds."""
    assert 0 <= turn_hash(text) < 1 << TURNS.hash_bits <= 2**63


@given(st.binary(min_size=16, max_size=16))
def test_any_address_has_a_place_in_the_index(address: bytes) -> None:
    """As an id has."""
    assert 0 <= address_hash(address) < 1 << CONTENTS.hash_bits <= 2**63


@given(st.lists(st.integers(0, 2**63 - 1)), st.integers(0, 2**63 - 1))
def test_a_filter_denies_nothing_that_was_added(added: list[int], other: int) -> None:
    """What it says no to was not added; what shares no bit with anything added gets that no."""
    some = Filter()
    for hashed in added:
        some.add(hashed)

    assert all(some.may_hold(hashed) for hashed in added)
    places = {hashed & (1 << 23) - 1 for hashed in added}
    places |= {hashed >> 23 & (1 << 23) - 1 for hashed in added}
    if other & (1 << 23) - 1 not in places:
        assert not some.may_hold(other)


def merged_contents(db: apsw.Connection) -> tuple[Lookup[bytes], list[bytes]]:
    """Contents with keys from 1 on, all of them in the index; their addresses."""
    stored = [sha256(b"%d" % key).digest()[:16] for key in range(1, MERGE_ENTRIES_MIN + 1)]
    rows = [(key, address, "{}") for key, address in enumerate(stored, start=1)]
    with db:
        db.executemany("INSERT INTO contents VALUES (?, ?, ?, NULL, NULL)", rows)
    merging = Lookup(db, CONTENTS)
    while merging.merge_slice():
        pass
    return merging, stored


def test_new_contents_are_not_asked_for(store: SqliteStore) -> None:
    """The index is asked for what it may hold: all that was merged, also by a process before, and
    of what is new about none."""
    db = apsw.Connection(str(store.path))
    merging, stored = merged_contents(db)
    merging.trim()

    for one in (merging, Lookup(db, CONTENTS)):
        asked: list[int] = []
        db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda _, asked=asked: asked.append(1))
        new = [sha256(b"new %d" % number).digest()[:16] for number in range(1_000)]
        one.ask(new, is_one_by_one=True)
        assert len(asked) < 10
        assert not any(one.find(address) for address in new)
        one.ask(stored[:50], is_one_by_one=True)
        assert [one.find(address) for address in stored[:50]] == list(range(1, 51))
        db.trace_v2(0)
    db.close()


def test_a_large_index_is_asked_each_time(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index with more than a filter is kept for is asked for all, from the start or from there
    on."""
    monkeypatch.setattr(lookup, "FILTER_ENTRIES_MAX", MERGE_ENTRIES_MIN - 1)
    db = apsw.Connection(str(store.path))
    merging, stored = merged_contents(db)

    for one in (merging, Lookup(db, CONTENTS)):
        asked: list[int] = []
        db.trace_v2(apsw.SQLITE_TRACE_STMT, lambda _, asked=asked: asked.append(1))
        one.ask([sha256(b"new").digest()[:16], stored[0]], is_one_by_one=True)
        assert one.find(stored[0]) == 1
        assert asked
        db.trace_v2(0)
    db.close()


def test_commits_of_the_loop_merge_on_the_way(store: SqliteStore) -> None:
    """A slice a commit, of turns and then of contents; who tends meanwhile leaves that to them."""
    db = apsw.Connection(str(store.path))
    fill(db, 1, MERGE_ENTRIES_MIN)
    addresses = [(key, key.to_bytes(16, "big"), "{}") for key in range(1, MERGE_ENTRIES_MIN + 1)]
    with db:
        db.executemany("INSERT INTO contents VALUES (?, ?, ?, NULL, NULL)", addresses)
    store.close()
    again = SqliteStore(store.folder)
    assert not again.tend(is_merging=False)
    assert db.execute(INDEXED).get == 0

    commits, contents = 0, "SELECT count(*) FROM contents_lookup"
    while min(db.execute(INDEXED).get, db.execute(contents).get) < MERGE_ENTRIES_MIN:
        assert again.try_append([Group((a_turn(),))])
        commits += 1
        assert commits < 1_000

    assert commits > 100
    db.close()
    again.close()


@pytest.mark.parametrize(("turns", "contents"), [(1, 30), (60, 1)])
def test_merges_keep_up_with_commits(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, turns: int, contents: int
) -> None:
    """However much commits bring, what waits to be merged stays under what readers should scan,
    and a little: what commits do not keep up with, upkeep does."""
    monkeypatch.setattr(lookup, "MERGE_ENTRIES_MIN", 1_024)
    db = apsw.Connection(str(store.path))
    index = an_index()
    for number in range(200):
        groups = []
        for one in range(turns):
            messages = [b'"%d %d %d"' % (number, one, item) for item in range(contents)]
            group, _ = group_of(a_turn(), index, messages)
            index.confirm(group)
            groups.append(group)
        assert store.try_append(groups)
        if number % 16 == 0:
            while store.tend(is_merging=False):
                pass

        waiting = db.execute(
            "SELECT (SELECT count(*) FROM turn_ids) - (SELECT count(*) FROM turn_ids_lookup),"
            " (SELECT count(*) FROM contents) - (SELECT count(*) FROM contents_lookup)"
        ).fetchone()
        assert waiting is not None
        assert max(waiting) <= 2 * 1_024 + 16 * turns * contents
    db.close()


def test_a_merge_that_cannot_be_takes_nothing_from_its_commit(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit before it stands and counts; who tends the store tells of what is in the way."""

    def in_the_way(_: object) -> bool:
        raise apsw.FullError

    monkeypatch.setattr(Lookup, "merge_slice", in_the_way)
    turn = a_turn()

    assert store.try_append([Group((turn,))])
    assert [one.turn_id for one in store.scan(TurnAudit)] == [turn.turn_id]
    for _ in range(2):
        with pytest.raises(StoreFailure):
            store.tend(is_merging=False)
    monkeypatch.undo()
    assert not store.tend(is_merging=False)


def test_what_only_the_index_holds_is_not_stored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many groups one commit holds, and whoever commits them: their turns and contents are
    found again."""
    monkeypatch.setattr(lookup, "MERGE_ENTRIES_MIN", 8)
    messages = [b'{"role":"user","content":"%d"}' % number for number in range(24)]
    turns = [a_turn() for _ in messages]
    counts = "SELECT (SELECT count(*) FROM turn_ids), (SELECT count(*) FROM contents)"

    for is_on_loop in (False, True, True, False):
        store = SqliteStore(tmp_path / "data")
        index = an_index(node_first=store.node_last + 1)
        groups: list[Group] = []
        for turn, message in zip(turns, messages, strict=True):
            group, _ = group_of(turn, index, [message])
            group.records = group.records[1:]
            groups.append(group)
        if is_on_loop:
            assert store.try_append(groups)
        else:
            store.append(groups)
        while store.tend():
            pass
        store.close()

    with apsw.Connection(str(tmp_path / "data" / "everyturn.db")) as db:
        assert db.execute(INDEXED).get == len(turns)
        assert db.execute(counts).fetchone() == (len(turns), len(messages))


def test_a_turn_whose_id_was_just_made_is_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its contents are, and the ids of all other turns."""
    monkeypatch.setattr(lookup, "MERGE_ENTRIES_MIN", 1)
    store = SqliteStore(tmp_path / "data")
    store.append([group_of(a_turn(), an_index(), [b'{"role":"user","content":"?"}'])[0]])
    while store.tend():
        pass
    asked: list[object] = []
    ask = Lookup.ask

    def listen(self: Lookup[Any], values: Iterable[Any], **options: Any) -> None:
        given = list(values)
        asked.extend(given)
        ask(self, given, **options)

    monkeypatch.setattr(Lookup, "ask", listen)
    index = an_index(node_first=store.node_last + 1)
    opening, _ = group_of(made := a_turn(), index, [b'{"role":"user","content":"!"}'])
    other = a_turn()
    opening.is_turn_new = True
    store.append([opening, Group((other,))])

    assert set(asked) == {other.turn_id, opening.contents[0].address}
    assert {turn.turn_id for turn in store.scan(TurnAudit)} > {made.turn_id, other.turn_id}
    store.close()
