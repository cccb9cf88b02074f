from __future__ import annotations

from typing import Any

import pytest

from everyturn.wire import events as ev
from everyturn.wire.reply import MISSING, Choice, Fold, Reply, ToolCall, is_plain_text


def folded(*events: ev.Event, usage_incremental: bool = False) -> Reply:
    """The reply that these events add up to."""
    fold = Fold(usage_incremental=usage_incremental)
    for event in events:
        fold.add(event)
    return fold.reply()


def choice_of(*events: ev.Event) -> Choice:
    """The only choice of these events."""
    (choice,) = folded(*events).choices
    return choice


# ------------------------------------------------------------------ texts


@pytest.mark.parametrize(
    ("kind", "member"),
    [
        (lambda text: ev.TextDelta(0, text), "content"),
        (lambda text: ev.ReasoningDelta(0, text, "reasoning"), "reasoning"),
        (lambda text: ev.RefusalDelta(0, text), "refusal"),
    ],
)
def test_absence_null_and_empty_are_three_things(kind: Any, member: str) -> None:
    """A text that was never sent, only null, empty, or said in pieces: four different values."""
    other = ev.Finish(0, None)

    values = [
        getattr(choice_of(other, *map(kind, texts)), member)
        for texts in ([], [None], [""], [None, ""], ["a", None, "", "b"])
    ]

    assert values == [MISSING, None, "", "", "ab"]


def test_pieces_of_a_character_are_joined() -> None:
    """B44: halves of a character in two deltas are one character of the text."""
    assert choice_of(ev.TextDelta(0, "a\ud83c"), ev.TextDelta(0, "\udf55")).content == (
        "a\N{SLICE OF PIZZA}"
    )
    assert choice_of(ev.TextDelta(0, "a\ud83c")).content == "a\ud83c"


def test_where_reasoning_stood() -> None:
    """The carriers that said something are told in order of appearance, without null ones."""
    choice = choice_of(
        ev.ReasoningDelta(0, None, "x"),
        ev.ReasoningDelta(0, "a", "tags"),
        ev.ReasoningDelta(0, "b", "reasoning"),
        ev.ReasoningDelta(0, "c", "tags"),
    )

    assert choice.carriers == ["tags", "reasoning"]
    assert Reply([choice, Choice(1, carriers=["tags", "y"])]).carriers == ["tags", "reasoning", "y"]


def test_reasoning_is_counted() -> None:
    """Reasoning is counted in code points, over all choices."""
    reply = folded(
        ev.ReasoningDelta(0, "ab", "x"),
        ev.ReasoningDelta(1, "\U0001f355", "x"),
        ev.TextDelta(2, ""),
    )

    assert reply.reasoning_chars == 3


def test_a_reply_may_be_asked_for_while_it_grows() -> None:
    """B31: what arrived so far is told at any time, and an earlier reply stays as it was."""
    fold = Fold()
    fold.add(ev.TextDelta(0, "a"))
    first = fold.reply()
    fold.add(ev.TextDelta(0, "b"))
    fold.add(ev.Value("message", 0, "annotations", [1]))

    assert (first.choices[0].content, first.choices[0].values) == ("a", {})
    assert fold.reply().choices[0].content == "ab"
    assert fold.reply() == fold.reply()


# ------------------------------------------------------------------ choices, finishes


def test_choices_are_kept_apart() -> None:
    """B27: interleaved choices have their own state, and stand in the order of their index."""
    reply = folded(
        ev.TextDelta(1, "x"), ev.TextDelta(0, "a"), ev.Finish(1, "stop"), ev.TextDelta(0, "b")
    )

    assert [(c.index, c.content, c.finish_reason) for c in reply.choices] == [
        (0, "ab", MISSING),
        (1, "x", "stop"),
    ]


@pytest.mark.parametrize(
    ("values", "finish"),
    [
        ([], MISSING),
        ([None], None),
        ([None, ""], ""),
        (["stop", None, ""], "stop"),
        (["stop", "length"], "length"),
    ],
)
def test_a_finish_is_not_unsaid(values: list[str | None], finish: Any) -> None:
    """A null or empty finish after a real one changes nothing; a later one is the finish."""
    events = [ev.Finish(0, value) for value in values]

    assert choice_of(ev.TextDelta(0, "a"), *events).finish_reason == finish


@pytest.mark.parametrize(
    ("event", "refused"),
    [
        (ev.RefusalDelta(0, "I cannot"), True),
        (ev.RefusalDelta(0, ""), False),
        (ev.RefusalDelta(0, None), False),
        (ev.Finish(0, "content_filter"), True),
        (ev.Finish(0, "stop"), False),
    ],
)
def test_what_is_a_refusal(event: ev.Event, refused: bool) -> None:
    """B29: a refusal that says something, or a content filter, is one; an empty refusal is none."""
    assert folded(event).is_refused is refused


# ------------------------------------------------------------------ tool calls


def test_fragments_become_calls() -> None:
    """Fragments of a call are added up; calls stand in the order of their index."""
    choice = choice_of(
        ev.ToolCallDelta(0, 1, "b", "function", "g", ""),
        ev.ToolCallDelta(0, 0, "a", "function", "f", '{"x"'),
        ev.ToolCallDelta(0, 0, None, None, None, ":1}", {"extra": {"s": "x"}}),
        ev.ToolCallDelta(0, 1, "", None, None, None, {"extra": {"s": "y"}}),
        ev.ToolCallDelta(0, 1, None, None, None, None, {"extra": {"s": "z"}}),
    )

    assert choice.tool_calls == [
        ToolCall(0, "a", "function", "f", '{"x":1}', {"extra": {"s": "x"}}),
        ToolCall(1, "b", "function", "g", "", {"extra": {"s": "yz"}}),
    ]


def test_a_call_without_arguments() -> None:
    """B14: no arguments and empty arguments are two things."""
    none, empty = (
        choice_of(ev.ToolCallDelta(0, 0, "a", arguments=text)).tool_calls[0] for text in (None, "")
    )

    assert (none.arguments, empty.arguments) == (None, "")


def test_a_name_in_pieces_and_a_name_again() -> None:
    """Pieces of a name are joined; a name that is only repeated is not doubled."""
    names = [
        choice_of(*[ev.ToolCallDelta(0, 0, name=name) for name in pieces]).tool_calls[0].name
        for pieces in (["get_", "weather"], ["f", "f"])
    ]

    assert names == ["get_weather", "f"]


# ------------------------------------------------------------------ lists


def test_content_items_and_text_become_one_list() -> None:
    """Text before, between and after items stands among them; text alone is joined."""
    image = {"type": "image_url", "image_url": {"url": "u"}}
    fold = Fold()
    for event in (
        ev.TextDelta(0, "a"),
        ev.ContentItems(0, [image, {"type": "text", "text": "b"}]),
        ev.TextDelta(0, "c"),
    ):
        fold.add(event)
    (before,) = fold.reply().choices
    fold.add(ev.TextDelta(0, "d"))
    fold.add(ev.ContentItems(0, [{"type": "text", "text": "e", "x": 1}]))
    (choice,) = fold.reply().choices

    assert before.content_items == [_text("a"), image, _text("bc")]
    assert choice.content_items == [_text("a"), image, _text("bcd"), {**_text("e"), "x": 1}]
    assert choice.content is MISSING


def test_an_empty_content_list() -> None:
    """A content list without items is a content list."""
    assert choice_of(ev.ContentItems(0, [])).content_items == []
    assert choice_of(ev.ContentItems(0, [_text("")])).content_items == []


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize(
    ("item", "plain"),
    [
        (_text("a"), True),
        ({"type": "text", "text": 1}, False),
        ({"type": "text", "text": "a", "x": 1}, False),
        ({"type": "refusal", "text": "a"}, False),
        ("a", False),
    ],
)
def test_what_is_plain_text(item: Any, plain: bool) -> None:
    """An item that is text and nothing beside may be joined with text; no other may."""
    assert is_plain_text(item) is plain


def test_details_are_merged() -> None:
    """B06: a signature in the last delta joins its text; no item is left out for lack of text."""
    choice = choice_of(
        ev.ReasoningDetails(0, None),
        ev.ReasoningDetails(0, [{"type": "reasoning.text", "text": "a", "index": 0}]),
        ev.ReasoningDetails(0, [{"type": "reasoning.encrypted", "data": "d", "index": 1}]),
        ev.ReasoningDetails(0, [{"type": "reasoning.text", "signature": "s", "index": 0}]),
    )

    assert choice.reasoning_details == [
        {"type": "reasoning.text", "text": "a", "index": 0, "signature": "s"},
        {"type": "reasoning.encrypted", "data": "d", "index": 1},
    ]
    assert choice_of(ev.ReasoningDetails(0, None)).reasoning_details is None


def test_logprobs_are_appended() -> None:
    """B28: logprobs of each chunk go on those before, content and refusal apart."""
    one, two = ({"token": token, "logprob": -0.1, "bytes": [97]} for token in "ab")

    choice = choice_of(
        ev.Value("choice", 0, "logprobs", {"content": [one], "refusal": None}),
        ev.Value("choice", 0, "logprobs", None),
        ev.Value("choice", 0, "logprobs", {"content": [two], "refusal": [one]}),
    )

    assert choice.choice_values == {"logprobs": {"content": [one, two], "refusal": [one]}}


def test_annotations_and_audio_grow() -> None:
    """B30: annotations of every chunk are kept, and so are all pieces of audio."""
    choice = choice_of(
        ev.Value("message", 0, "annotations", [{"url": "u"}]),
        ev.Value("message", 0, "audio", {"id": "a", "data": "AA", "transcript": "x"}),
        ev.Value("message", 0, "annotations", [{"url": "v"}]),
        ev.Value("message", 0, "audio", {"id": "a", "data": "BB", "transcript": "y", "expires": 1}),
    )

    assert choice.values == {
        "annotations": [{"url": "u"}, {"url": "v"}],
        "audio": {"id": "a", "data": "AABB", "transcript": "xy", "expires": 1},
    }


# ------------------------------------------------------------------ usage and the bags


def test_the_last_usage_stands() -> None:
    """B16: usage replaces, never adds, and null erases nothing."""
    assert folded(
        ev.Usage("usage", {"total_tokens": 10}),
        ev.Usage("usage", None),
        ev.Usage("choice.usage", {"total_tokens": 100}),
        ev.Usage("usage", None),
    ).usage == {"total_tokens": 100}
    assert folded(ev.Usage("usage", {}), ev.Usage("usage", None)).usage == {}
    assert folded(ev.Usage("usage", None)).usage is None
    assert folded().usage is MISSING


def test_incremental_usage_is_added() -> None:
    """Where the preset says that usage is incremental, counts add up; all else replaces."""
    usage = folded(
        ev.Usage("usage", {"n": 1, "cost": 0.5, "d": {"r": 1}, "x": "a", "b": True, "e": 1}),
        ev.Usage("usage", {"n": 2, "cost": 0.25, "d": {"r": 2}, "x": "b", "b": False, "e": None}),
        ev.Usage("usage", {"new": None}),
        usage_incremental=True,
    ).usage

    assert usage == {
        "n": 3,
        "cost": 0.75,
        "d": {"r": 3},
        "x": "b",
        "b": False,
        "e": 1,
        "new": None,
    }


def test_the_envelope_is_said_anew() -> None:
    """Members of the body replace each other; an empty id in a last frame erases none."""
    reply = folded(
        ev.Value("body", 0, "id", ""),
        ev.Value("body", 0, "id", "c-1"),
        ev.Value("body", 0, "id", ""),
        ev.Value("body", 0, "model", None),
        ev.Unknown("body", 0, "citations", ["a"]),
        ev.Unknown("body", 0, "citations", ["a", "b"]),
        ev.Unknown("body", 0, "citations", None),
        ev.Unknown("body", 0, "note", "x"),
        ev.Unknown("body", 0, "note", ""),
    )

    assert reply.envelope == {"id": "c-1", "model": None}
    assert reply.bag == {"citations": ["a", "b"], "note": ""}


def test_what_is_said_of_a_choice() -> None:
    """A verdict on a choice is said anew; a list, such as token ids, goes on."""
    choice = choice_of(
        ev.Unknown("choice", 0, "filter", {"hate": "safe"}),
        ev.Unknown("choice", 0, "token_ids", [1]),
        ev.Unknown("choice", 0, "filter", {"hate": "high"}),
        ev.Unknown("choice", 0, "filter", None),
        ev.Unknown("choice", 0, "token_ids", [2]),
        ev.Unknown("choice", 0, "stop", None),
    )

    assert choice.choice_bag == {"filter": {"hate": "high"}, "token_ids": [1, 2], "stop": None}


def test_what_nobody_asked_for_in_a_message() -> None:
    """Unknown members of a message, and carried drift, grow as deltas do."""
    choice = choice_of(
        ev.Unknown("message", 0, "x", "a"),
        ev.Drift("message", 0, "thinking", "b"),
        ev.Unknown("message", 0, "x", "c"),
        ev.Drift("message", 0, "thinking", "d"),
    )

    assert choice.message_bag == {"x": "ac", "thinking": "bd"}


def test_endings_are_not_added() -> None:
    """An error and the end marker change nothing of what was said."""
    assert folded(ev.ErrorSeen({"message": "m"}), ev.Done()) == Reply()


def test_a_reply_says_what_is_in_it() -> None:
    """Its text has all of its parts, and no part equals one of another type."""
    call = ToolCall(3, name="f")
    choice = Choice(2, content="said", tool_calls=[call])
    reply = Reply([choice], {"total_tokens": 7})

    text = repr(reply)
    assert all(part in text for part in ("Choice(2, 'said'", "ToolCall(3", "'f'", "total_tokens"))
    assert reply != choice != call != reply
