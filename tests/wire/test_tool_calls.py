from __future__ import annotations

from typing import Any

import pytest

from everyturn.errors import Failure, ToolFragmentOrphan, TranslationError, UpstreamTooLarge
from everyturn.wire.events import ToolCallDelta
from everyturn.wire.reader import read_provider
from everyturn.wire.tool_calls import CALLS_MAX, ToolCalls


def a_fragment(**members: Any) -> dict[str, Any]:
    """A fragment; `name` and `arguments` go to its function."""
    function = {key: members.pop(key) for key in ("name", "arguments") if key in members}
    return {**members, **({"function": function} if function else {})}


def read(*fragments: Any, is_whole: bool = False) -> list[tuple[ToolCallDelta, Any, bool]]:
    """Each fragment as it was read: event, what the client sees, whether that changed."""
    calls = ToolCalls(0)
    return [
        calls.read(fragment, position=at if is_whole else 0, is_whole=is_whole, path="t")
        for at, fragment in enumerate(fragments)
    ]


def indexes(*fragments: Any) -> list[int]:
    """The calls that fragments of a stream were put to."""
    return [event.call for event, _, _ in read(*fragments)]


def failure(*fragments: Any, is_whole: bool = False) -> Failure:
    """What the last fragment is refused with."""
    calls = ToolCalls(0)
    for fragment in fragments[:-1]:
        calls.read(fragment, position=0, is_whole=is_whole, path="t")
    with pytest.raises(Failure) as raised:
        calls.read(fragments[-1], position=0, is_whole=is_whole, path="t")
    return raised.value


# ------------------------------------------------------------------ whose fragment


def test_fragments_go_by_their_index() -> None:
    """Fragments with an index belong to the call of that index, and pass as they came."""
    fragments = [
        a_fragment(index=0, id="a", type="function", name="f", arguments=""),
        a_fragment(index=1, id="b", type="function", name="g", arguments="{"),
        a_fragment(index=0, arguments="{}"),
        a_fragment(index=1, arguments="}"),
    ]

    assert indexes(*fragments) == [0, 1, 0, 1]
    assert [(seen, changed) for _, seen, changed in read(*fragments)] == [
        (fragment, False) for fragment in fragments
    ]


def test_without_an_index_fragments_go_by_their_id() -> None:
    """B10: two ids without an index are two calls; a known id goes on its call."""
    fragments = [
        a_fragment(id="a", name="f", arguments="{}"),
        a_fragment(id="b", name="g", arguments="{"),
        a_fragment(id="a", arguments="!"),
    ]

    assert indexes(*fragments) == [0, 1, 0]


def test_without_either_fragments_continue_the_open_call() -> None:
    """B10: neither index nor id: a name opens a call, arguments alone go on the last one."""
    fragments = [
        a_fragment(name="f", arguments="{"),
        a_fragment(arguments="}"),
        a_fragment(id="", name="g", arguments=""),
        a_fragment(id=None, arguments="{}"),
    ]

    assert indexes(*fragments) == [0, 0, 1, 1]


def test_the_client_gets_an_index() -> None:
    """B11: parallel calls without an index get ours; all else of the fragment stays."""
    first = a_fragment(id="a", name="f", arguments='{"x":1}', extra_content={"google": {"s": "x"}})
    second = a_fragment(id="b", name="f", arguments='{"x":2}')

    (one, seen_one, changed), (two, seen_two, _) = read(first, second)

    assert changed
    assert seen_one == {"index": 0, **first}
    assert seen_two == {"index": 1, **second}
    assert one.rest == {"extra_content": {"google": {"s": "x"}}}
    assert two.rest is None


def test_an_id_that_differs_opens_a_call() -> None:
    """An index that is used again with another id is another call, shown under an index of its own.

    Ollama sent index 0 for every call.
    """
    fragments = [
        a_fragment(index=0, id="a", name="f", arguments="{}"),
        a_fragment(index=0, id="b", name="g", arguments="{"),
        a_fragment(index=0, arguments="}"),
        a_fragment(index=0, id="a", arguments=" "),
        a_fragment(index=0, arguments=" "),
        a_fragment(index=1, id="c", name="h", arguments=" "),
    ]

    assert indexes(*fragments) == [0, 1, 1, 0, 0, 2]
    assert [seen["index"] for _, seen, _ in read(*fragments)] == [0, 1, 1, 0, 0, 2]


def test_an_empty_id_is_no_id() -> None:
    """DashScope repeats an empty id: the fragment belongs to its index."""
    assert indexes(
        a_fragment(index=0, id="a", name="f", arguments=""), a_fragment(index=0, id="")
    ) == [0, 0]


def test_an_id_may_come_late() -> None:
    """The first id of a call that had none is the call's."""
    fragments = [
        a_fragment(index=0, name="f"),
        a_fragment(index=0, id="a", arguments="{}"),
        a_fragment(id="a", arguments=" "),
    ]

    assert indexes(*fragments) == [0, 0, 0]


def test_arguments_on_an_index_that_nobody_opened() -> None:
    """B12: they belong to the one call that has none yet; that is noted as a repair."""
    calls = ToolCalls(0)
    calls.read(
        a_fragment(index=0, id="a", name="f", arguments=""), position=0, is_whole=False, path="t"
    )
    assert not calls.is_repaired

    event, seen, is_changed = calls.read(
        a_fragment(index=1, arguments='{"x":1}'), position=0, is_whole=False, path="t"
    )

    assert (event.call, seen["index"], is_changed) == (0, 0, True)
    assert calls.is_repaired
    event, _, _ = calls.read(
        a_fragment(index=1, arguments=" "), position=0, is_whole=False, path=""
    )
    assert event.call == 0


@pytest.mark.parametrize(
    "fragments",
    [
        [a_fragment(index=1, arguments="{}")],
        [a_fragment(arguments="{}")],
        [a_fragment(index=0, id="a", name="f", arguments="{}"), a_fragment(index=1, arguments="x")],
        [
            a_fragment(index=0, id="a", name="f"),
            a_fragment(index=1, id="b", name="g"),
            a_fragment(index=2, arguments="x"),
        ],
    ],
)
def test_a_fragment_of_no_call_fails(fragments: list[dict[str, Any]]) -> None:
    """B12: where no call, or more than one, may own a fragment, that is a typed failure."""
    assert isinstance(failure(*fragments), ToolFragmentOrphan)


def test_a_negative_index_is_none() -> None:
    """An index that clients cannot use becomes the next one."""
    assert indexes(a_fragment(index=-1, id="a", name="f"), a_fragment(index=-1)) == [0, 0]


# ------------------------------------------------------------------ what a fragment says


def test_arguments_as_an_object() -> None:
    """B13: an object becomes its exact text, with its number texts; the frame is rewritten."""
    fragment = a_fragment(index=0, id="a", name="f")
    fragment["function"]["arguments"] = read_provider(b'{"n":12345678901234567890,"p":0.10}').value

    ((event, seen, is_changed),) = read(fragment)

    assert event.arguments == '{"n":12345678901234567890,"p":0.10}'
    assert seen["function"] == {"name": "f", "arguments": event.arguments}
    assert is_changed


def test_empty_arguments_stay_empty() -> None:
    """B14: an empty string is what the client gets; no arguments at all are something else."""
    (empty, seen, is_changed), (none, _, _) = read(
        a_fragment(index=0, id="a", name="f", arguments=""), a_fragment(index=0, id="a")
    )

    assert (empty.arguments, none.arguments) == ("", None)
    assert seen["function"]["arguments"] == ""
    assert not is_changed


def test_other_keys_are_kept() -> None:
    """Keys of a fragment and of its function that nobody asked for are in the event."""
    fragment = {"index": 0, "id": "a", "x": 1, "function": {"name": "f", "strict": True}}

    ((event, seen, _),) = read(fragment)

    assert event.rest == {"x": 1, "function.strict": True}
    assert seen == fragment


def test_whole_calls_go_by_their_place() -> None:
    """In a whole message each item is a call; an index is not added, and a wrong one mended."""
    plain, indexed = a_fragment(id="a", name="f"), a_fragment(index=0, id="a", name="f")

    (one, seen_one, _), (two, seen_two, _) = read(plain, indexed, is_whole=True)

    assert (one.call, two.call) == (0, 1)
    assert seen_one == plain
    assert seen_two["index"] == 1


@pytest.mark.parametrize(
    ("fragment", "param"),
    [
        ("x", "t"),
        ({"function": "f"}, "t"),
        ({"index": "0"}, "t.index"),
        ({"index": True}, "t.index"),
        ({"index": 0, "id": 1}, "t.id"),
        ({"index": 0, "id": "a", "type": 1}, "t.type"),
        ({"index": 0, "function": {"name": 1}}, "t.function.name"),
        ({"index": 0, "id": "a", "function": {"arguments": 1}}, "t.function.arguments"),
        ({"index": 0, "id": "a", "function": {"arguments": True}}, "t.function.arguments"),
    ],
)
def test_a_wrong_type_fails(fragment: Any, param: str) -> None:
    """A member of the wrong type is a typed failure with its path, never turned into text."""
    found = failure(fragment)

    assert isinstance(found, TranslationError)
    assert found.param == param


def test_the_number_of_calls_has_a_bound() -> None:
    """One call more than the bound is a typed failure."""
    fragments = [a_fragment(id=f"c{at}", name="f") for at in range(CALLS_MAX + 1)]

    assert isinstance(failure(*fragments), UpstreamTooLarge)
