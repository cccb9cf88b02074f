"""Media at rest: each once, found by its marks wherever they stand, gone with the last of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from everyturn.audit.group import Content, Group, PrefixNode, group_bytes
from everyturn.audit.records import ContentRef, Medium, Record
from everyturn.store.media import refs_in, texts_of
from everyturn.store.reader import open_reader
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import (
    a_call,
    a_retrieval,
    a_review,
    a_tool_call,
    a_turn,
    bytes_of,
    closed_call,
    closed_turn,
)

NAME = "0123456789abcdef" * 2
MARK = f"[media:image/png:9:{NAME}:kept]"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """An empty store."""
    opened = SqliteStore(tmp_path / "data")
    yield opened
    opened.close()


def a_medium(data: bytes = b"a picture", name: str = NAME, *, is_text: bool = False) -> Medium:
    """A medium that is kept."""
    return Medium(
        media_id=name,
        timestamp=1_000,
        media_type="image/png",
        size_bytes=len(data),
        is_text=is_text,
        data=data,
        redaction_applied=is_text,
    )


def kept(store: SqliteStore, *names: str) -> list[Medium]:
    """What is read of these names."""
    with open_reader(store.folder) as reader:
        return list(reader.media(names or (NAME,)))


@pytest.mark.parametrize("data", [b"", b"\x00\xff\n" * 50_000])
def test_a_medium_is_read_as_it_was(store: SqliteStore, data: bytes) -> None:
    """Any bytes come back whole with their facts; a name that nothing has gives nothing."""
    medium = a_medium(data, is_text=True)
    store.append([Group((a_turn(),), media=(medium,))])

    assert kept(store, "f" * 32, NAME) == [medium]


def test_a_medium_that_comes_again_is_no_change(store: SqliteStore) -> None:
    """The row that came first stays, on the quick way and on the careful one."""
    turn, later = a_turn(), a_turn()
    store.append([Group((turn,), media=(a_medium(),))])
    again = msgspec.structs.replace(a_medium(), timestamp=2_000, media_type="wav")
    store.append([Group((later,), media=(again,))])
    store.append([Group((turn,), media=(again, a_medium(b"other", NAME[::-1])))])

    assert [one.media_type for one in kept(store)] == ["image/png"]
    assert [one.data for one in kept(store, NAME[::-1])] == [b"other"]


def test_marks_tell_what_is_kept() -> None:
    """Marks of what stays a hash, and texts like marks, name nothing."""
    others = [MARK.replace("kept", word) for word in ("too_large", "unreadable", "x")]
    others += [MARK.replace(":kept", ""), MARK.replace(NAME, NAME[:-1]), MARK.replace(NAME, "G")]
    second = MARK.replace(NAME, NAME[::-1]).replace("kept", "redacted")

    assert refs_in(*others) == []
    assert refs_in(f"a {MARK} b {second}", f"{MARK}{MARK}") == [NAME, NAME[::-1]]


def places() -> list[tuple[str, list[Record]]]:
    """A turn and its records with a mark in one place each."""
    said = f'{{"choices":[{{"message":{{"content":"{MARK}"}}}}]}}'
    found: list[tuple[str, list[Record]]] = []
    turn = a_turn()
    found.append(("open turn", [msgspec.structs.replace(turn, user_text=MARK)]))
    turn = a_turn()
    found.append(("turn", [closed_turn(turn, assistant_text=MARK)]))
    turn = a_turn()
    found.append(("call", [turn, closed_call(a_call(turn), response_json=said)]))
    turn = a_turn()
    parameters = f'{{"image":"{MARK}"}}'
    found.append(("parameters", [turn, a_call(turn, parameters_json=parameters)]))
    turn = a_turn()
    found.append(("tool", [turn, a_tool_call(turn, response_json=f'"{MARK}"')]))
    turn = a_turn()
    found.append(("retrieval", [turn, a_retrieval(turn, sources_json=f'["{MARK}"]')]))
    turn = a_turn()
    found.append(("review", [turn, a_review(turn, notes=MARK)]))
    return found


@pytest.mark.parametrize(("place", "records"), places())
def test_a_medium_stays_while_any_record_has_its_mark(
    store: SqliteStore, place: str, records: list[Record]
) -> None:
    """Wherever the mark stands, erasing another turn leaves the medium, and this one's takes it."""
    other = a_turn()
    media = (a_medium(), a_medium(b"no marks", NAME[::-1]))
    store.append([Group((other,), media=media)])
    store.append([Group((record,)) for record in records])
    with open_reader(store.folder) as reader:
        found = reader.turn(str(records[0].turn_id))
    assert found is not None
    assert refs_in(*texts_of(found)) == [NAME], place

    store.erase([other.turn_id])
    left = bytes_of(store.folder)
    assert [one.data for one in kept(store)] == [b"a picture"]
    store.erase([str(records[0].turn_id)])

    assert b"no marks" not in left
    assert b"a picture" not in bytes_of(store.folder)
    assert kept(store) == []


def test_a_message_that_two_turns_share_keeps_its_medium(store: SqliteStore) -> None:
    """Content is shared, and so is the mark in it: the medium goes with the second turn."""
    turns = [a_turn(), a_turn()]
    content = Content(b"a" * 16, f'{{"role":"user","content":"{MARK}"}}')
    node = PrefixNode(1, None, content.address)
    calls = [a_call(turn, prompt_messages_json=ContentRef(1)) for turn in turns]
    store.append([Group((turns[0], calls[0]), (content,), (node,), media=(a_medium(),))])
    store.append([Group((turns[1], calls[1]))])

    store.erase([turns[0].turn_id])
    assert len(kept(store)) == 1
    store.erase([turns[1].turn_id])
    assert kept(store) == []


def test_media_count_in_the_queue() -> None:
    """A group is as large as what it brings, so large media are the writer thread's and bounded."""
    turn = a_turn()
    without = group_bytes(Group((turn,)))

    assert group_bytes(Group((turn,), media=(a_medium(b"x" * 5_000),))) >= without + 5_000
