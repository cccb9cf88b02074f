from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from everyturn.audit import schema
from everyturn.audit.group import Group
from everyturn.store.base import StoreRefused
from everyturn.store.reader import AmbiguousTurnId, open_reader
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import (
    START,
    a_call,
    a_retrieval,
    a_review,
    a_tool_call,
    a_turn,
    a_turn_id,
    an_access,
    an_index,
    closed_call,
    closed_turn,
    group_of,
)

OTHER_TOOL = """
import json, sqlite3, sys
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
db.row_factory = sqlite3.Row
print(json.dumps([dict(row) for row in db.execute(f"SELECT * FROM {sys.argv[2]}")]))
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store that stays open, as a gateway's does."""
    store = SqliteStore(tmp_path / "data")
    yield store
    store.close()


def seen_by_others(store: SqliteStore, view: str) -> list[dict[str, object]]:
    """The rows of a view as Python's own SQLite sees them, in a process of its own."""
    output = subprocess.run(
        [sys.executable, "-c", OTHER_TOOL, str(store.path), view],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    rows: list[dict[str, object]] = json.loads(output)
    return rows


def test_a_turn_is_read_whole_while_the_store_is_open(store: SqliteStore) -> None:
    """Access, turn and calls in order, each with its prompt, by the whole id or its beginning."""
    index = an_index()
    turn = a_turn(user_text="Hello\0there")
    opening, first = group_of(turn, index, [b'{"role":"user","content":"Hello\\u0000there"}'])
    second = a_call(turn, attempt=2, fallback_of=first.model_call_id, stream=True)
    access = an_access(turn, status_code=200)
    store.append([opening, Group((a_turn(),))])
    failed = closed_call(first, stream_state="error", error_code="upstream_error")
    store.append([Group((failed, second))])
    store.append([Group((closed_call(second), closed_turn(turn), access))])

    with open_reader(store.folder) as reader:
        whole = reader.turn(turn.turn_id)
        short = reader.turn(turn.turn_id[:6])

    assert whole is not None
    assert short == whole
    assert whole["turn"]["user_text"] == "Hello\0there"
    assert list(whole["turn"]) == [column.name for column in schema.LOG_NAMED["turn_audit"].columns]
    assert [call["attempt"] for call in whole["model_calls"]] == [1, 2]
    assert whole["model_calls"][1]["stream"] is True
    assert whole["model_calls"][0]["prompt_messages_json"] == (
        '[{"role":"user","content":"Hello\\u0000there"}]'
    )
    assert [event["status_code"] for event in whole["access_events"]] == [200]


def test_what_is_committed_is_seen_at_once(store: SqliteStore) -> None:
    """An open reader sees each commit, and each turn, as it comes."""
    turn = a_turn()
    with open_reader(store.folder) as reader:
        assert reader.turn(turn.turn_id) is None
        store.append([Group((turn,))])
        opened = reader.turn(turn.turn_id)
        store.append([Group((closed_turn(turn),))])
        closed = reader.turn(turn.turn_id)

    assert opened is not None
    assert closed is not None
    assert (opened["turn"]["outcome"], closed["turn"]["outcome"]) == (None, "success")


def test_an_unknown_or_short_id_is_no_turn(store: SqliteStore) -> None:
    """Fewer than six characters are no beginning, and what fits nothing is nothing."""
    turn = a_turn()
    store.append([Group((turn,))])

    with open_reader(store.folder) as reader:
        assert reader.turn(turn.turn_id[:5]) is None
        assert reader.turn("ffffff") is None
        assert reader.turn("no hex") is None
        assert reader.turn("") is None


def test_a_beginning_that_fits_two_turns_is_ambiguous(store: SqliteStore) -> None:
    """It takes more characters, or the whole id."""
    one, two = a_turn_id(1), a_turn_id(1)[:-1] + "f"
    store.append([Group((a_turn(turn_id=one), a_turn(turn_id=two)))])

    with open_reader(store.folder) as reader:
        with pytest.raises(AmbiguousTurnId):
            reader.turn(one[:12])
        found = reader.turn(two)

    assert found is not None
    assert found["turn"]["turn_id"] == two


def test_ids_that_are_no_uuids_are_found(store: SqliteStore) -> None:
    """Records from elsewhere may bring any id."""
    for turn_id in ("turn-of-import/1", "Ж" * 12, "abc123", "0"):
        store.append([Group((a_turn(turn_id=turn_id),))])
        with open_reader(store.folder) as reader:
            found = reader.turn(turn_id)
        assert found is not None
        assert found["turn"]["turn_id"] == turn_id


def test_records_without_their_turn_are_found(store: SqliteStore) -> None:
    """A call that names a turn nobody recorded is shown under that id."""
    turn = a_turn()
    store.append([Group((a_call(turn),))])

    with open_reader(store.folder) as reader:
        found = reader.turn(turn.turn_id)

    assert found is not None
    assert found["turn"] is None
    assert len(found["model_calls"]) == 1


def test_turns_are_listed_newest_first(store: SqliteStore) -> None:
    """By time, model and outcome, up to a limit, with the models their calls asked for."""
    turns = [a_turn(timestamp=START + number) for number in range(6)]
    for number, turn in enumerate(turns):
        model = "even" if number % 2 == 0 else "odd"
        store.append([Group((turn, a_call(turn, requested_model=model)))])
    store.append([Group((closed_turn(turns[0]), closed_turn(turns[1], outcome="failure")))])

    with open_reader(store.folder) as reader:
        listed = reader.turns()
        some = reader.turns(since=START + 1, model="odd", limit=2)
        ended = [reader.turns(outcome=name) for name in ("success", "failure", "open")]

    ids = [turn.turn_id for turn in turns]
    assert [row["turn_id"] for row in listed] == ids[::-1]
    assert listed[0]["models"] == ["odd"]
    assert [row["turn_id"] for row in some] == [ids[5], ids[3]]
    assert [[row["turn_id"] for row in rows] for rows in ended] == [ids[:1], ids[1:2], ids[:1:-1]]


def test_other_tools_read_the_contract(store: SqliteStore) -> None:
    """Python's own SQLite selects every log under its name, with its columns and its texts."""
    question, answer = "What is it? " * 20, "It is this. " * 20
    message = json.dumps({"role": "user", "content": question}, separators=(",", ":"))
    parameters = json.dumps({"model": "m", "stop": ["x" * 300]}, separators=(",", ":"))
    usage = '{"prompt_tokens":12,"completion_tokens":30,"total_tokens":42}'
    response = (
        '{"choices":[{"message":{"role":"assistant","content":'
        + json.dumps(answer)
        + '}}],"usage":'
        + usage
        + "}"
    )
    index = an_index()
    turn = a_turn(user_text=question)
    opening, call = group_of(turn, index, [message.encode()])
    store.append([opening])
    index.confirm(opening)
    closing = closed_call(
        call, response_json=response, parameters_json=parameters, usage_json=usage
    )
    ended = closed_turn(turn, assistant_text=answer)
    more = (an_access(turn), a_tool_call(turn), a_retrieval(turn), a_review(turn))
    store.append([Group((closing, ended, *more))])
    reply = json.dumps({"role": "assistant", "content": answer}, separators=(",", ":"))
    following, _ = group_of(a_turn(), index, [message.encode(), reply.encode()])
    store.append([following])

    turns, calls = seen_by_others(store, "turn_audit"), seen_by_others(store, "model_calls")

    assert (turns[0]["user_text"], turns[0]["assistant_text"]) == (question, answer)
    assert calls[0]["prompt_messages_json"] == f"[{message}]"
    assert calls[1]["prompt_messages_json"] == f"[{message},{reply}]"
    assert calls[0]["response_json"] == response
    assert (calls[0]["parameters_json"], calls[0]["usage_json"]) == (parameters, usage)
    assert len(seen_by_others(store, "access_events")) == 1
    for log in schema.LOGS:
        rows = seen_by_others(store, log.name)
        assert list(rows[0]) == [column.name for column in log.columns]


def test_a_text_that_stands_in_several_places_is_stored_once(store: SqliteStore) -> None:
    """A question and an answer of a conversation are each in the files once."""
    question, answer = "A question like no other. " * 10, "An answer like no other. " * 10
    message = json.dumps({"role": "user", "content": question}, separators=(",", ":")).encode()
    reply = json.dumps({"role": "assistant", "content": answer}, separators=(",", ":")).encode()
    index = an_index()
    turn = a_turn(user_text=question)
    opening, call = group_of(turn, index, [message])
    store.append([opening])
    index.confirm(opening)
    response = f'{{"choices":[{{"message":{reply.decode()}}}]}}'
    store.append(
        [
            Group(
                (
                    closed_call(call, response_json=response),
                    closed_turn(turn, assistant_text=answer),
                )
            )
        ]
    )
    store.append([group_of(a_turn(), index, [message, reply])[0]])
    store.close()

    data = store.path.read_bytes()

    assert data.count(question.encode()) == 1
    assert data.count(answer.encode()) == 1


def test_a_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    """The reason says what to do, and nothing is made there."""
    with pytest.raises(StoreRefused, match="no records here"):
        open_reader(tmp_path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [0, schema.MIGRATION_LAST + 1])
def test_a_store_of_another_version_is_refused(store: SqliteStore, number: int) -> None:
    """A reader reads what its own version writes."""
    store.close()
    db = apsw.Connection(str(store.path))
    db.execute("DELETE FROM migrations")
    db.execute("INSERT INTO migrations VALUES (?, 0)", (number,))
    db.close()

    with pytest.raises(StoreRefused, match=r"newer|older"):
        open_reader(store.folder)


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    """A reader says so and does not touch it."""
    (tmp_path / "everyturn.db").write_bytes(b"not a database, but long enough to look at" * 100)

    with pytest.raises(StoreRefused, match="cannot be read"):
        open_reader(tmp_path)


def test_a_closed_store_is_read_where_nothing_can_be_written(store: SqliteStore) -> None:
    """Records of a gateway that has ended can be read from a folder that is read-only."""
    turn = a_turn()
    store.append([Group((turn,))])
    store.close()
    for path in store.folder.iterdir():
        if path.name.endswith(("-wal", "-shm")):
            path.unlink()
    os.chmod(store.folder, 0o500)

    try:
        with open_reader(store.folder) as reader:
            assert reader.turn(turn.turn_id) is not None
    finally:
        os.chmod(store.folder, 0o700)
