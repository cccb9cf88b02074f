from __future__ import annotations

from typing import Any

import pytest

from everyturn.wire.growing import MISSING, grow, joined, settled


def grown(*deltas: Any, key: str = "") -> Any:
    """The value of a member after these deltas."""
    value: Any = MISSING
    for delta in deltas:
        value = grow(value, delta, key)
    return settled(value)


@pytest.mark.parametrize(
    ("deltas", "value"),
    [
        (["a"], "a"),
        (["a", "b", "c"], "abc"),
        (["", "a"], "a"),
        ([1, 2], 2),
        ([True, False], False),
        ([[1], [2]], [1, 2]),
        ([[1], [2], [3]], [1, 2, 3]),
        ([{"a": "x"}, {"a": "y", "b": 1}], {"a": "xy", "b": 1}),
        ([{"a": {"b": "x"}}, {"a": {"b": "y"}}, {"a": {"b": "z"}}], {"a": {"b": "xyz"}}),
        (["a", {"b": 1}], {"b": 1}),
        ([{"b": 1}, "a"], "a"),
        (["a", "b", 1], 1),
    ],
)
def test_strings_lists_and_objects_grow(deltas: list[Any], value: Any) -> None:
    """Deltas of one kind are added up; a value of another kind replaces what was there."""
    assert grown(*deltas) == value


def test_null_erases_nothing() -> None:
    """Null after a value is no value; null alone is null; nothing at all is missing."""
    assert grown("a", None) == "a"
    assert grown(None) is None
    assert grown(None, None) is None
    assert grown(None, "a") == "a"
    assert grown() is MISSING
    assert not MISSING
    assert repr(MISSING) == "MISSING"


def test_what_is_said_is_not_streamed() -> None:
    """Roles, ids, names and types replace each other, and an empty one replaces nothing."""
    assert grown("assistant", "assistant", key="role") == "assistant"
    assert grown({"id": "a"}, {"id": "b"}) == {"id": "b"}
    assert grown({"id": "a", "format": "x"}, {"id": "", "format": None}) == {
        "id": "a",
        "format": "x",
    }


def test_what_was_given_stays_as_it_was() -> None:
    """Values that are added up are not changed themselves."""
    first: dict[str, Any] = {"a": [{"index": 0, "text": "x"}], "b": {"c": "y"}}
    second: dict[str, Any] = {"a": [{"index": 0, "text": "z"}], "b": {"c": "w"}}

    assert grown(first, second, second)["b"] == {"c": "yww"}
    assert first == {"a": [{"index": 0, "text": "x"}], "b": {"c": "y"}}
    assert second == {"a": [{"index": 0, "text": "z"}], "b": {"c": "w"}}


def test_a_value_may_be_asked_for_while_it_grows() -> None:
    """What was settled once goes on growing."""
    value = grow(grow(MISSING, ["a"]), ["b"])
    text = grow(grow(MISSING, "a"), "b")

    assert (settled(value), settled(text)) == (["a", "b"], "ab")
    assert (settled(grow(value, ["c"])), settled(grow(text, "c"))) == (["a", "b", "c"], "abc")


# ------------------------------------------------------------------ items that go on


def test_a_signature_joins_its_text() -> None:
    """B06: items of a list with the same index and type are pieces of one."""
    text = {"type": "reasoning.text", "text": "a", "index": 0}
    signature = {"type": "reasoning.text", "signature": "sig", "index": 0}

    assert grown([text], [signature]) == [{**text, "signature": "sig"}]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"index": 0, "text": "a"}, {"index": 1, "text": "b"}),
        ({"index": 0, "type": "x", "text": "a"}, {"index": 0, "type": "y", "text": "b"}),
        ({"index": 0, "id": "1", "text": "a"}, {"index": 0, "id": "2", "text": "b"}),
        ({"text": "a"}, {"text": "b"}),
        ({"index": "0", "text": "a"}, {"index": "0", "text": "b"}),
        ("a", "b"),
    ],
)
def test_different_items_stay_apart(first: Any, second: Any) -> None:
    """Items with another index, type or id, or without an index, are items of their own."""
    assert grown([first], [second]) == [first, second]


@pytest.mark.parametrize(
    ("first", "second", "item"),
    [
        ({"type": "x"}, {"text": "b"}, {"type": "x", "text": "b"}),
        ({"text": "a"}, {"type": "x"}, {"text": "a", "type": "x"}),
        ({"id": "1"}, {"text": "b"}, {"id": "1", "text": "b"}),
        ({"text": "a"}, {"id": "1", "text": "b"}, {"id": "1", "text": "ab"}),
        ({"id": "1", "text": "a"}, {"id": "1", "text": "b"}, {"id": "1", "text": "ab"}),
        ({"type": ["odd"], "text": "a"}, {"text": "b"}, {"type": ["odd"], "text": "ab"}),
    ],
)
def test_a_piece_need_not_repeat_type_and_id(first: Any, second: Any, item: Any) -> None:
    """A piece without a type or id goes on the item with its index; so does the first with one."""
    assert grown([{"index": 0, **first}], [{"index": 0, **second}]) == [{"index": 0, **item}]


def test_items_that_take_turns() -> None:
    """Two items of one index that are told apart by their ids may be streamed in turns."""
    items = [{"index": 0, "id": name, "text": text} for name, text in ("1a", "2b", "1c", "2d")]

    assert grown(*[[item] for item in items]) == [
        {"index": 0, "id": "1", "text": "ac"},
        {"index": 0, "id": "2", "text": "bd"},
    ]


def test_a_list_that_came_whole_stays_as_it_is() -> None:
    """Items of one list are different things, even where their index is the same."""
    items = [{"index": 0, "text": "a"}, {"index": 0, "text": "b"}]

    assert grown(items) == items


def test_calls_of_the_providers_own_tools_are_said_whole() -> None:
    """What Groq ran itself is told twice, the second time with its outcome: that one stands."""
    call = {"index": 0, "type": "search", "arguments": "{}"}
    told = {**call, "output": "Sunny."}

    assert grown([call], [told], key="executed_tools") == [told]
    assert grown([call], [told]) == [{**told, "type": "search", "arguments": "{}{}"}]


def test_a_pair_over_two_pieces_is_one_character() -> None:
    """B44: halves of a character from two pieces are joined; a lone half stays."""
    assert joined(["a\ud83c", "\udf55"]) == "a\N{SLICE OF PIZZA}"
    assert joined(["a\ud83c", "b"]) == "a\ud83cb"
    assert grown("\ud83c", "\udf55") == "\N{SLICE OF PIZZA}"
