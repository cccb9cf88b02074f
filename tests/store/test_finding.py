"""Queries that a person may write, and what is shown of the turns they find."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from everyturn.store.finding import BadQuery, find, read_query
from everyturn.store.said import FIELDS
from everyturn.store.search import SearchIndex
from everyturn.store.sqlite import SqliteStore
from tests.support.search import message, search, tell
from tests.support.store_records import an_index

FINDS = [
    ("Das Café in Zürich", "cafe zurich"),
    ("Das Café in Zürich", "CAFÉ"),
    ("refunds are slow", "refund*"),
    ("refunds are slow", "are* refunds"),
    ("the policy on refunds", '"policy on refunds"'),
    ("请问退款政策是什么", "退款"),
    ("请问退款政策是什么", "退款政策 什么"),
    ("환불정책을 알려줘", "환불"),
    ("返金ポリシーは?", "ポリシー"),
    ("𠮷野家で", "𠮷野家"),
    ("Привет, Мир", "привет мир"),
    ("a AND b", "AND"),
    ("send to NEAR(x)", "NEAR(x)"),
    ("user: hello", "user:hello"),
    ("it costs 42", "42"),
    ('he said "stop it"', 'he "stop it"'),
    ("an unclosed quote", '"unclosed quote'),
    ("path /etc/passwd there", "/etc/passwd"),
    ("minus -5 and plus", "-5"),
    ("emoji 🎉 here", "🎉 here"),
    ("snake_case_name", "snake_case_name"),
    ("don't", "don't"),
    ("one\0two", "two"),
]
FINDS_NOT = [
    ("the policy on refunds", '"refunds on policy"'),
    ("请问退款政策是什么", "款退"),
    ("refund", "refunds"),
    ("one two", "one NOT two"),
    ("one two", "one three"),
    ("one two", "one OR three"),
    ("hello", "assistant:hello"),
]


@pytest.fixture(scope="module")
def sayings(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[SearchIndex, dict[str, str]]]:
    """An index with a turn for each text of the lists, and text → turn id."""
    store = SqliteStore(tmp_path_factory.mktemp("sayings") / "data")
    contents = an_index()
    texts = dict.fromkeys(said for said, _ in FINDS + FINDS_NOT)
    ids = {text: tell(store, contents, [message("user", text)], "a").turn_id for text in texts}
    index = SearchIndex(store.folder)
    yield index, ids
    index.close()
    store.close()


@pytest.mark.parametrize("said, query", FINDS)
def test_a_query_finds(sayings: tuple[SearchIndex, dict[str, str]], said: str, query: str) -> None:
    """Words of any script, phrases, beginnings, and operators as the words they are."""
    index, ids = sayings

    found = search(index, query)

    assert ids[said] in found
    assert len(found) < 4


@pytest.mark.parametrize("said, query", FINDS_NOT)
def test_a_query_does_not_find(
    sayings: tuple[SearchIndex, dict[str, str]], said: str, query: str
) -> None:
    """All the words must be there, phrases in their order; there are no operators."""
    index, ids = sayings

    assert ids[said] not in search(index, query)


@pytest.mark.parametrize("query", ["", " ", '"', '""', "***", "!?", "()", "\0", "\ud800", "🎉"])
def test_a_query_without_a_word_is_refused(query: str) -> None:
    """It says so, rather than finding nothing or everything."""
    with pytest.raises(BadQuery, match="no word"):
        read_query(query)


def test_a_query_with_too_many_words_is_refused() -> None:
    """The message names the bound."""
    assert read_query("word " * 32).pieces == ("word",) * 32
    with pytest.raises(BadQuery, match="33 words; at most 32"):
        read_query("word " * 33)


def test_an_excerpt_shows_the_place(tmp_path: Path) -> None:
    """Around the first word that stands in it, with the field and the ids of the turn."""
    store = SqliteStore(tmp_path / "data")
    index = SearchIndex(store.folder)
    text = "blah " * 100 + "the Réfund policy" + " blah" * 100
    turn = tell(store, an_index(), [message("user", text)], "a refund it is")
    index.catch_up()

    (found,) = find(index, read_query("refund"), fields=FIELDS, limit=5)
    index.close()
    store.close()

    assert found.fields == ("user", "assistant")
    assert "the Réfund policy" in found.excerpt
    assert found.excerpt.startswith("…")
    assert found.excerpt.endswith("…")
    assert (found.turn_id, found.timestamp) == (turn.turn_id, turn.timestamp)
    assert found.outcome == "success"
