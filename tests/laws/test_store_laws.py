"""Laws 10 and 11: appending twice is appending once; a store that was cut holds whole groups."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everyturn.audit.group import Group
from everyturn.audit.records import ModelCall, Record, TurnAudit
from everyturn.audit.schema import LOG_OF, LOGS
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import (
    a_call,
    a_retrieval,
    a_review,
    a_tool_call,
    a_turn,
    all_records,
    an_access,
    an_index,
    closed_call,
    closed_turn,
    group_of,
)

any_text = st.one_of(
    st.none(),
    st.text(st.characters(exclude_categories=()), max_size=40),
    st.text("aé␛\0\\u0", min_size=128, max_size=300),
)
"""Any string there is: NUL, lone surrogates, the escape and long ones among them."""


@st.composite
def histories(draw: st.DrawFn) -> list[Group]:
    """What a gateway may append: turns and calls that open, close and are joined, in any mix."""
    index = an_index()
    messages = [b'{"role":"user","content":"%d"}' % number for number in range(4)]
    groups: list[Group] = []
    for _ in range(draw(st.integers(1, 4))):
        turn = a_turn(user_text=draw(any_text))
        opening, call = group_of(turn, index, messages[: draw(st.integers(1, 4))])
        groups.append(opening)
        if draw(st.booleans()):
            index.confirm(opening)
        if draw(st.booleans()):
            text = draw(any_text)
            answer = msgspec.json.encode({"content": "answer " * draw(st.integers(0, 60))}).decode()
            turn = closed_turn(turn, assistant_text=text, duration_ms=draw(st.floats(0, 1e6)))
            groups.append(Group((closed_call(call, response_json=answer), turn)))
        if draw(st.booleans()):
            groups.append(Group((an_access(turn, status_code=draw(st.integers(100, 599))),)))
            groups.append(Group((a_tool_call(turn, request_json='{"a":1}'), a_retrieval(turn))))
            groups.append(Group((a_review(turn, notes=draw(any_text)),)))
            late = a_call(turn, max_tokens=draw(st.integers(-(2**63), 2**63 - 1)))
            groups.append(Group((late,)))
            groups.append(Group((closed_turn(turn, error_code=draw(any_text)),)))
            if draw(st.booleans()):
                # An application says when its turn began, and more calls join.
                earlier = closed_turn(
                    closed_turn(turn), timestamp=turn.timestamp - draw(st.integers(0, 9))
                )
                groups.append(Group((earlier,)))
                groups.append(Group((closed_turn(earlier, user_text=draw(any_text)),)))
        if draw(st.booleans()):
            named = a_turn(user_text=draw(any_text))
            groups.append(Group((a_tool_call(named),)))
            groups.append(Group((closed_turn(named, revision=1),)))
    return groups


def latest(groups: Sequence[Group]) -> list[Record]:
    """What a store of these groups holds: the highest revision of each, log by log."""
    found: dict[tuple[type, str], Record] = {}
    for group in groups:
        for record in group.records:
            key = (type(record), identity(record))
            if key not in found or record.revision > found[key].revision:
                found[key] = record
    return [found[key] for log in LOGS for key in found if key[0] is log.type]


def identity(record: Record) -> str:
    """The id of a record."""
    return str(getattr(record, LOG_OF[type(record)].id))


def without_prompt(record: object) -> object:
    """A record as it compares: a prompt is a reference going in and text coming out."""
    if isinstance(record, ModelCall):
        return msgspec.structs.replace(record, prompt_messages_json=None)
    return record


def in_batches(groups: Sequence[Group], draw: random.Random) -> Iterator[Sequence[Group]]:
    """The groups in their order, cut into batches anywhere."""
    start = 0
    while start < len(groups):
        end = draw.randint(start + 1, len(groups))
        yield groups[start:end]
        start = end


@settings(max_examples=40)
@given(groups=histories(), seed=st.integers(0, 2**32))
def test_appending_twice_is_appending_once(groups: list[Group], seed: int) -> None:
    """Law 10: whatever is appended again, in whatever batches, a scan gives each record once."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as parent:
        store = SqliteStore(Path(parent) / "data")
        done: list[Group] = []
        for batch in in_batches(groups, draw):
            store.append(batch)
            done += batch
            store.append(draw.sample(done, draw.randint(0, len(done))))
        first = all_records(store)
        store.close()

        store = SqliteStore(Path(parent) / "data")
        store.append(groups)
        second = all_records(store)
        store.close()

    assert [without_prompt(record) for record in first] == [
        without_prompt(record) for record in latest(groups)
    ]
    assert second == first
    assert all(
        call.prompt_messages_json is not None
        for call in first
        if isinstance(call, ModelCall) and call.max_tokens is None
    )


said = st.one_of(
    st.text(st.sampled_from('ab"\\/\n\x7f\x00é€😀␛'), min_size=100, max_size=400),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    st.integers(0, 3).map(lambda number: f"the same answer as before, number {number} " * 8),
)
"""What people and models say: with all that JSON escapes, and things that were said before."""


def as_json(value: object, *, is_ascii: bool) -> str:
    """Compact JSON text, as a record holds it."""
    return json.dumps(value, ensure_ascii=is_ascii, separators=(",", ":"))


@settings(max_examples=40)
@given(
    exchanges=st.lists(st.tuples(said, said, st.booleans(), st.booleans()), min_size=1, max_size=6)
)
def test_what_stands_in_several_places_is_read_in_each(
    exchanges: list[tuple[str, str, bool, bool]],
) -> None:
    """However texts are shared, each prompt, answer, parameter and text reads as it was given."""
    index = an_index()
    history: list[str] = []
    given_records: list[TurnAudit | ModelCall] = []
    with tempfile.TemporaryDirectory() as parent:
        store = SqliteStore(Path(parent) / "data")
        for question, answer, is_ascii, is_confirmed in exchanges:
            turn = a_turn(user_text=question)
            history.append(as_json({"role": "user", "content": question}, is_ascii=False))
            opening, call = group_of(turn, index, [item.encode() for item in history])
            store.append([opening])
            if is_confirmed:
                index.confirm(opening)
            usage = as_json({"total_tokens": len(answer)}, is_ascii=True)
            reply = {"role": "assistant", "content": answer}
            whole = as_json({"choices": [{"message": reply}]}, is_ascii=is_ascii)
            closed = closed_call(
                call,
                response_json=f'{whole[:-1]},"usage":{usage}}}',
                usage_json=usage,
                parameters_json=as_json({"stop": [question, answer]}, is_ascii=is_ascii),
            )
            ended = closed_turn(turn, assistant_text=answer)
            store.append([Group((closed, ended))])
            prompt = f"[{','.join(history)}]"
            given_records += [ended, msgspec.structs.replace(closed, prompt_messages_json=prompt)]
            history.append(as_json(reply, is_ascii=is_ascii))
        read = all_records(store)
        store.close()

    assert read == [*given_records[::2], *given_records[1::2]]


@dataclass(frozen=True)
class Written:
    """A store as files, and what it held after each commit."""

    folder: Path
    states: list[list[object]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """A store whose log holds everything that was ever committed to it."""
    folder = tmp_path_factory.mktemp("law") / "data"
    store = SqliteStore(folder)
    index = an_index()
    states = [all_records(store)]
    messages: list[bytes] = []
    for number in range(12):
        messages.append(b'{"role":"user","content":"%d %b"}' % (number, b"word " * 60))
        turn = a_turn(user_text="word " * 60)
        opening, call = group_of(turn, index, messages)
        answer = f"answer {number} " * 30
        closing = Group(
            (
                closed_call(call, response_json=msgspec.json.encode({"content": answer}).decode()),
                closed_turn(turn, assistant_text=answer),
                an_access(turn),
            )
        )
        for batch in ([opening], [closing]) if number % 3 else ([opening, closing],):
            store.append(batch)
            states.append(all_records(store))
        index.confirm(opening)
    yield Written(folder, states)
    store.close()


@settings(max_examples=60)
@given(draw=st.randoms(use_true_random=False), tail=st.binary(max_size=200))
def test_a_cut_store_holds_whole_groups(written: Written, draw: random.Random, tail: bytes) -> None:
    """Law 11: cut anywhere in a write, with anything behind the cut, it opens as after a commit."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "data"
        folder.mkdir(mode=0o700)
        for name in ("everyturn.db", "everyturn.db-wal"):
            shutil.copy(written.folder / name, folder / name)
        log = folder / "everyturn.db-wal"
        size = log.stat().st_size
        cut = draw.randint(0, size)
        log.write_bytes(log.read_bytes()[:cut] + tail)

        store = SqliteStore(folder)
        held = all_records(store)
        store.append([Group((a_turn(),))])
        store.close()

    assert held in written.states
    if cut == size:
        assert held == written.states[-1]


def test_the_log_of_the_law_holds_every_commit(written: Written) -> None:
    """The cuts of law 11 fall into writes: each commit of the store is in the log."""
    assert (written.folder / "everyturn.db-wal").stat().st_size > 100_000
    assert len(written.states) > 20
