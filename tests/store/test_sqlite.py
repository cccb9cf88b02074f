from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import msgspec
import pytest

from everyturn.audit import schema
from everyturn.audit.columns import TEXT_BYTES_MAX
from everyturn.audit.group import Content, Group, PrefixNode
from everyturn.audit.records import AccessEvent, ContentRef, ModelCall, TurnAudit
from everyturn.store.base import RecordRefused, StoreRefused
from everyturn.store.reader import open_reader
from everyturn.store.sqlite import PAGE_BYTES, SqliteStore
from tests.support.store_records import (
    a_call,
    a_turn,
    all_records,
    an_access,
    an_index,
    bytes_of,
    closed_call,
    closed_turn,
    group_of,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder that does not exist yet."""
    return tmp_path / "data"


@pytest.fixture
def open_store(folder: Path) -> Iterator[Callable[[], SqliteStore]]:
    """Opens the store of the folder; what is open at the end is closed."""
    stores: list[SqliteStore] = []

    def open_it() -> SqliteStore:
        for store in stores:
            store.close()
        stores.append(SqliteStore(folder))
        return stores[-1]

    yield open_it
    for store in stores:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], SqliteStore]) -> SqliteStore:
    """An empty store."""
    return open_store()


def test_what_was_appended_is_scanned(store: SqliteStore) -> None:
    """Each record comes back as it was given, in the order in which records first came."""
    turns = [a_turn(user_text="Hello"), a_turn(outcome="failure", duration_ms=1.5)]
    call = a_call(turns[0], stream=True, temperature=0.2, parameters_json='{"n":1.0}')
    access = an_access(turns[0], status_code=200)

    store.append([Group((turns[0], call)), Group((turns[1], access, an_access()))])

    assert list(store.scan(TurnAudit)) == turns
    assert list(store.scan(ModelCall)) == [call]
    assert [event.turn_id for event in store.scan(AccessEvent)] == [turns[0].turn_id, None]


def test_a_later_revision_replaces_the_row(store: SqliteStore) -> None:
    """A turn and a call that close are one row each, with what the closing says."""
    turn = a_turn(user_text="Hello")
    call = a_call(turn, requested_model="m")
    store.append([Group((turn, call))])

    ended = closed_turn(turn, assistant_text="Hi", duration_ms=3.25, model_call_count=1)
    answered = closed_call(call, response_json='{"choices":[]}', prompt_tokens=0)
    store.append([Group((answered, ended))])

    assert all_records(store) == [ended, answered]


def test_opening_and_closing_may_share_a_commit(store: SqliteStore) -> None:
    """A turn that opens and closes in one batch is whole."""
    turn = a_turn()
    call = a_call(turn)

    store.append([Group((turn, call)), Group((closed_call(call), closed_turn(turn)))])

    assert all_records(store) == [closed_turn(turn), closed_call(call)]


def test_a_turn_may_close_again(store: SqliteStore) -> None:
    """Each further call that joins a turn closes it again, with one revision more."""
    turn = a_turn(user_text="Hello")
    last = closed_turn(turn)
    store.append([Group((turn,))])
    store.append([Group((last,))])
    for text in ("one", "two"):
        call = a_call(turn)
        store.append([Group((call,))])
        last = closed_turn(last, assistant_text=text)
        store.append([Group((closed_call(call), last))])

    assert list(store.scan(TurnAudit)) == [last]
    assert last.revision == 4


def test_the_same_group_again_is_no_change(
    store: SqliteStore, open_store: Callable[[], SqliteStore]
) -> None:
    """Appending what is stored changes nothing, in this process and in the next."""
    turn = a_turn(user_text="Hello", duration_ms=3)
    opening = Group((turn, a_call(turn), an_access(turn)))
    closing = Group((closed_turn(turn, assistant_text="Hi"),))
    store.append([opening])
    store.append([closing])
    before = all_records(store)

    store.append([opening])
    store.append([closing, opening])
    again = open_store()
    again.append([opening, closing])

    assert all_records(again) == before


@pytest.mark.parametrize("is_reopened", [False, True])
def test_other_content_under_a_stored_key_is_refused(
    open_store: Callable[[], SqliteStore], is_reopened: bool
) -> None:
    """The current revision, an older one and an access event cannot be changed; nothing is."""
    store = open_store()
    turn, access = a_turn(user_text="Hello"), an_access(status_code=200)
    store.append([Group((turn, access))])
    store.append([Group((closed_turn(turn),))])
    before = all_records(store)
    if is_reopened:
        store = open_store()

    for other in (
        msgspec.structs.replace(turn, user_text="Other"),
        closed_turn(turn, outcome="failure"),
        msgspec.structs.replace(access, status_code=500),
    ):
        with pytest.raises(RecordRefused):
            store.append([Group((an_access(), other))])

    assert all_records(store) == before


def test_many_rows_of_one_turn_stay_together(open_store: Callable[[], SqliteStore]) -> None:
    """A turn that many calls join, over restarts and beside other turns, is read in order."""
    turn = a_turn()
    calls = [a_call(turn) for _ in range(9)]
    for start in range(0, 9, 3):
        store = open_store()
        store.append([Group((*calls[start : start + 3], a_turn(), an_access(turn)))])
        store.append([Group((closed_call(calls[start]), a_turn()))])

    with open_reader(store.folder) as reader:
        found = reader.turn(turn.turn_id)

    assert found is not None
    assert [row["model_call_id"] for row in found["model_calls"]] == [
        call.model_call_id for call in calls
    ]
    assert len(found["access_events"]) == 3


def test_a_group_is_stored_whole_or_not_at_all(store: SqliteStore) -> None:
    """A record at fault leaves nothing of its group, and nothing of its batch."""
    turn, kept = a_turn(), a_turn()
    store.append([Group((kept,))])

    with pytest.raises(RecordRefused):
        store.append(
            [Group((turn,)), Group((an_access(), msgspec.structs.replace(kept, plugin="x")))]
        )

    assert all_records(store) == [kept]
    store.append([Group((turn,))])
    assert list(store.scan(TurnAudit)) == [kept, turn]


def test_odd_text_is_stored_as_it_is(store: SqliteStore) -> None:
    """NUL, lone surrogates and the escape itself come back, and do not meet their look-alikes."""
    texts = ["a\0b", "a\\u0000b", "\ud83c", "\udf55\ud83c", "␛", "␛0000", "␛241B", "\0␛\ud800", ""]
    turns = [a_turn(user_text=text, outcome="success", assistant_text=text) for text in texts]

    for turn in turns:
        store.append([Group((turn,))])

    assert list(store.scan(TurnAudit)) == turns


def test_odd_text_rests_so_that_other_tools_can_read_it(store: SqliteStore) -> None:
    """In the files, of open turns and of closed ones, stands the escape and not the NUL."""
    open_one = a_turn(user_text="a\0b")
    closed_one = a_turn(user_text="a\0b", outcome="success")
    store.append([Group((open_one, closed_one))])

    db = apsw.Connection(str(store.path))
    found = {text for (text,) in db.execute("SELECT user_text FROM turn_audit")}
    db.close()

    assert found == {"a␛0000b"}


def test_odd_text_in_json_keeps_its_meaning(store: SqliteStore) -> None:
    """A NUL or surrogate that stands raw in a JSON column becomes the escape that means it."""
    turn = a_turn()
    store.append([Group((turn, a_call(turn, response_json='["a\0b","\ud83c","␛"]')))])

    (call,) = store.scan(ModelCall)

    assert call.response_json == '["a\\u0000b","\\ud83c","␛"]'


def test_numbers_beyond_a_column_do_not_stop_a_record(store: SqliteStore) -> None:
    """An integer of more than 64 bits is stored as the nearest number."""
    turn = a_turn()
    store.append([Group((turn, a_call(turn, max_tokens=10**30, prompt_tokens=-(10**400))))])

    (call,) = store.scan(ModelCall)

    assert (call.max_tokens, call.prompt_tokens) == (1e30, None)


def test_long_texts_are_cut_and_payloads_are_not(store: SqliteStore) -> None:
    """A text column keeps 1 MiB with hash and length of the whole; a payload is whole."""
    turn = a_turn(user_text="ü" * TEXT_BYTES_MAX)
    payload = json.dumps({"choices": ["x" * (2 * TEXT_BYTES_MAX)]})
    error = json.dumps({"error": "y" * (2 * TEXT_BYTES_MAX)})
    store.append([Group((turn, a_call(turn, response_json=payload, error_json=error)))])

    (stored,) = store.scan(TurnAudit)
    (call,) = store.scan(ModelCall)

    assert stored.user_text is not None
    assert stored.user_text.startswith("ü" * (TEXT_BYTES_MAX // 2) + f"[cut:{2 * TEXT_BYTES_MAX} ")
    assert call.response_json == payload
    assert json.loads(call.error_json or "")["everyturn_cut"]["bytes"] == len(error)
    store.append([Group((turn,))])


def test_prompts_are_rebuilt_from_what_is_new(store: SqliteStore) -> None:
    """Each request of a conversation is read back as it was sent, number texts included."""
    index = an_index()
    history = [b'{"role":"system","content":"Be brief."}']
    sent: list[str] = []
    for number in range(4):
        history.append(b'{"role":"user","content":"%d","n":0.10,"big":1E400}' % number)
        group, _ = group_of(a_turn(), index, history)
        store.append([group])
        index.confirm(group)
        sent.append("[" + b",".join(history).decode() + "]")
        assert len(group.contents) == (2 if number == 0 else 1)

    assert [call.prompt_messages_json for call in store.scan(ModelCall)] == sent


def test_what_memory_forgot_is_looked_up(store: SqliteStore) -> None:
    """With more turns and messages than are remembered, the first are still found and closed."""
    index = an_index(entries_max=100_000)
    turn, ended = a_turn(), closed_turn(a_turn())
    first, call = group_of(turn, index, [b'"first"'])
    store.append([first, Group((ended,))])
    index.confirm(first)
    long, _ = group_of(a_turn(), index, [b"%d" % number for number in range(18_000)])
    crowd = [a_turn(outcome="success") for _ in range(9_000)]
    store.append([long, Group(tuple(crowd))])

    later, _ = group_of(a_turn(), index, [b'"first"', b'"second"'])
    assert [node.parent for node in later.nodes] == [1]
    again = a_call(turn)
    store.append([later, Group((again, closed_turn(ended)))])
    store.append([Group((closed_call(call), closed_call(again), closed_turn(turn)))])

    with open_reader(store.folder) as reader:
        found = reader.turn(turn.turn_id)
    assert found is not None
    assert [row["stream_state"] for row in found["model_calls"]] == ["whole", "whole"]
    assert found["turn"]["outcome"] == "success"
    assert closed_turn(ended) in list(store.scan(TurnAudit))


def test_a_list_given_as_text_is_kept_as_text(store: SqliteStore) -> None:
    """Records that come from elsewhere bring their prompts as text."""
    turn = a_turn()
    call = a_call(turn, prompt_messages_json='[{"role":"user"}]', tools_json="[]")
    store.append([Group((turn, call))])

    assert list(store.scan(ModelCall)) == [call]


def test_a_list_that_is_not_stored_is_refused(store: SqliteStore) -> None:
    """A call cannot refer to a list, nor a list to a prefix or message, that does not exist."""
    turn = a_turn()
    content = Content(b"a" * 16, "{}")
    groups = [
        Group((turn, a_call(turn, prompt_messages_json=ContentRef(7)))),
        Group((turn,), contents=(content,), nodes=(PrefixNode(9, 7, content.address),)),
        Group((turn,), nodes=(PrefixNode(9, None, b"b" * 16),)),
    ]

    for group in groups:
        with pytest.raises(RecordRefused):
            store.append([group])

    assert all_records(store) == []


def test_a_prefix_node_cannot_change(store: SqliteStore) -> None:
    """The same node again is no change; with another item it is refused."""
    one, two = Content(b"a" * 16, "1"), Content(b"b" * 16, "2")
    group = Group((a_turn(),), contents=(one, two), nodes=(PrefixNode(9, None, one.address),))
    store.append([group])

    store.append([Group((a_turn(),), nodes=group.nodes)])

    with pytest.raises(RecordRefused):
        store.append([Group((a_turn(),), nodes=(PrefixNode(9, None, two.address),))])


def test_content_is_stored_once_over_restarts(open_store: Callable[[], SqliteStore]) -> None:
    """A message that an index forgot is written again by it and found by the store."""
    message = b'{"role":"user","content":"the only one of its kind"}'
    for _ in range(3):
        store = open_store()
        group, _ = group_of(a_turn(), an_index(node_first=store.node_last + 1), [message])
        store.append([group])

    store = open_store()
    assert apsw.Connection(str(store.path)).execute("SELECT count(*) FROM contents").get == 1
    prompts = [call.prompt_messages_json for call in store.scan(ModelCall)]
    assert prompts == [f"[{message.decode()}]"] * 3


def test_open_turns_are_closed_at_the_next_start(
    store: SqliteStore, open_store: Callable[[], SqliteStore]
) -> None:
    """What a process left open ends as a failure, once; what it closed stays."""
    turn, done, joined = a_turn(user_text="Hello"), a_turn(), a_turn()
    call = a_call(turn, stream=True)
    late = a_call(joined)
    store.append([Group((turn, call)), Group((done, joined))])
    store.append([Group((closed_turn(done), closed_turn(joined))), Group((late,))])

    again = open_store()
    counts = [again.close_interrupted(now=1), again.close_interrupted(now=2)]

    assert counts == [2, 0]
    turns = {one.turn_id: one for one in again.scan(TurnAudit)}
    assert turns[turn.turn_id] == closed_turn(
        turn,
        outcome="failure",
        failure_type="unknown",
        error_code="gateway_interrupted",
        model_call_count=1,
    )
    assert turns[done.turn_id] == closed_turn(done)
    assert turns[joined.turn_id].outcome == "failure"
    assert list(again.scan(ModelCall)) == [
        closed_call(one, stream_state="cut", error_code="gateway_interrupted")
        for one in (call, late)
    ]


def test_erased_turns_are_gone_from_the_files(
    store: SqliteStore, folder: Path, open_store: Callable[[], SqliteStore]
) -> None:
    """Nothing of an erased turn is in any file; what others share with it stays."""
    index = an_index()
    shared = b'{"role":"system","content":"shared instructions"}'
    groups = []
    for text in (b"kept question", b"erased question"):
        message = b'{"role":"user","content":"%b"}' % (text * 20)
        turn = a_turn(user_text=(text * 20).decode())
        group, call = group_of(turn, index, [shared, message])
        store.append([group])
        index.confirm(group)
        answer = text.replace(b"question", b"answer").decode() * 20
        response = json.dumps({"content": answer}, separators=(",", ":"))
        closing = (
            closed_call(call, response_json=response),
            closed_turn(turn, assistant_text=answer),
        )
        store.append([Group((*closing, an_access(turn)))])
        groups.append((turn, *closing))

    assert store.erase([groups[1][0].turn_id, "not-there"]) == 1

    store.close()
    assert b"erased question" not in bytes_of(folder)
    assert b"erased answer" not in bytes_of(folder)
    assert groups[1][0].turn_id.encode() not in bytes_of(folder)
    store = open_store()
    (call,) = store.scan(ModelCall)
    assert call.prompt_messages_json is not None
    assert "shared instructions" in str(call.prompt_messages_json)
    assert "kept question" in str(call.prompt_messages_json)
    assert list(store.scan(TurnAudit)) == [groups[0][2]]


def test_a_newer_store_is_refused(store: SqliteStore, folder: Path) -> None:
    """A folder that a newer version wrote is left alone, with a reason."""
    store.close()
    db = apsw.Connection(str(store.path))
    db.execute("INSERT INTO migrations VALUES (?, 0)", (schema.MIGRATION_LAST + 1,))
    db.close()

    with pytest.raises(StoreRefused, match="newer everyturn"):
        SqliteStore(folder)


def test_a_file_that_is_no_database_is_refused(folder: Path) -> None:
    """What somebody put in the database's place is not touched."""
    folder.mkdir(mode=0o700)
    path = folder / "everyturn.db"
    path.write_bytes(b"not a database, but long enough to look at" * 100)
    path.chmod(0o600)

    with pytest.raises(StoreRefused, match="cannot be opened as a database"):
        SqliteStore(folder)

    assert path.read_bytes().startswith(b"not a database")


def test_a_damaged_database_is_refused(store: SqliteStore, folder: Path) -> None:
    """A page that holds something else is told like a file that is no database at all."""
    store.append([Group((a_turn(),))])
    page = store._db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'turn_ids'").get
    store.close()
    with store.path.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES)
        file.write(b"\xa5" * PAGE_BYTES)

    with pytest.raises(StoreRefused, match="cannot be opened as a database"):
        SqliteStore(folder)


def test_each_group_is_on_the_disk_where_that_is_asked_for(folder: Path) -> None:
    """With `durability = "disk"` a commit syncs before it returns."""
    store = SqliteStore(folder, durability="disk")
    turn = a_turn()

    store.append([Group((turn,))])

    assert all_records(store) == [turn]
    store.close()
