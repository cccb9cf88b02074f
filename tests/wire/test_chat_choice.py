"""What is remembered of a choice over its frames: tags, mirrors, tool calls, finish, bounds."""

from __future__ import annotations

from typing import Any

import pytest

from everyturn.errors import (
    ReasoningConflict,
    ToolFragmentOrphan,
    TranslationError,
    UpstreamTooLarge,
)
from everyturn.wire.limits import Limits
from everyturn.wire.preset import Carrier
from everyturn.wire.reader import write
from tests.support.chat_replies import (
    Seen,
    a_chunk,
    a_completion,
    a_message,
    a_target,
    read_body,
    read_stream,
)

RC: Carrier = "reasoning_content"
BOTH: tuple[Carrier, ...] = ("reasoning_content", "reasoning")
THOUGHT = ("<thought>", "</thought>")


def contents(*pieces: str, **narrowed: Any) -> Seen:
    """A stream of content in these pieces, the finish in the last one, at a target with tags."""
    target = a_target(**{"tags": "split", **narrowed})
    *first, last = pieces
    return read_stream(
        target, *[a_chunk({"content": p}) for p in first], a_chunk({"content": last}, "stop")
    )


# ------------------------------------------------------------------ tags


@pytest.mark.parametrize("cut", range(len("<think>a</think>b") + 1))
def test_tags_are_split_wherever_they_are_cut(cut: int) -> None:
    """B09: every split position of every tag gives reasoning `a` and content `b`."""
    text = "<think>a</think>b"

    seen = contents(text[:cut], text[cut:])

    assert seen.failure is None
    assert (seen.text(RC), seen.text()) == ("a", "b")
    assert (seen.choice.reasoning, seen.choice.content) == ("a", "b")
    assert seen.choice.carriers == ["tags"]
    assert seen.chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_false_tag_is_released_unchanged() -> None:
    """B09: what only began like a tag reaches the client unchanged."""
    seen = contents("<think>a</th", "x>b</think>c<", "d")

    assert (seen.text(RC), seen.text()) == ("a</thx>b", "c<d")


def test_what_is_held_goes_out_with_the_finish() -> None:
    """Text held back as a possible tag is in the frame of the finish, not after it."""
    seen = contents("a", "b</th")
    alone = contents("a<th", "")

    assert seen.deltas[-1] == {"content": "b</th"}
    assert alone.deltas == [{"content": "a"}, {"content": "<th"}]


def test_what_is_held_goes_out_with_a_finish_that_has_no_delta() -> None:
    """A finish without a delta gets one for what was held back."""
    finish = {"choices": [{"index": 0, "finish_reason": "stop"}]}

    seen = read_stream(a_target(tags="split"), a_chunk({"content": "<think>a</th"}), finish)

    assert seen.deltas == [{"reasoning_content": "a"}, {"reasoning_content": "</th"}]
    assert seen.flags == ["unterminated_tag", "missing_done"]


def test_order_within_one_delta() -> None:
    """Text before a thought goes out in a frame before it, since a delta says reasoning first."""
    seen = contents("x<think>a</think>b<think>c</think>d")

    assert seen.deltas == [
        {"content": "x"},
        {RC: "a", "content": "b"},
        {RC: "c", "content": "d"},
    ]
    assert [chunk["id"] for chunk in seen.chunks] == ["c-1"] * 3
    assert [c["choices"][0]["finish_reason"] for c in seen.chunks] == [None, None, "stop"]


def test_a_stream_that_ends_inside_a_tag() -> None:
    """A stream that breaks off shows what was held back before the error."""
    seen = read_stream(a_target(tags="split"), a_chunk({"content": "<think>a</th"}))

    assert seen.failure is not None
    assert seen.text(RC) == "a</th"
    assert seen.choice.reasoning == "a</th"


def test_tags_in_a_whole_answer() -> None:
    """A whole answer is split the same way; an answer without tags passes as it came."""
    target = a_target(tags="split")
    plain = a_message({"content": "a"})

    seen = read_body(target, a_message({"content": "<think>a</think>b<think>c</think>d</th"}))

    assert seen.message == {"role": "assistant", "content": "bd</th", RC: "ac"}
    assert read_body(target, plain).body == plain
    assert read_body(target, a_message({"content": "<think>a"})).message["content"] == ""


def test_content_without_tags_passes_as_it_came() -> None:
    """A frame whose content holds no tag is forwarded as the bytes that came."""
    chunks = [a_chunk({"content": ""}), a_chunk({"content": "a"}), a_chunk({}, "stop")]

    seen = read_stream(a_target(tags="split"), *chunks)

    assert seen.chunks == chunks


def test_marked_thoughts() -> None:
    """B02: on Gemini's endpoint marked text with its tag is reasoning; the mark is forwarded."""
    mark = {"extra_content": {"google": {"thought": True}}}

    seen = read_stream(
        a_target(tags="marked", tag=THOUGHT),
        a_chunk({"content": "<thought>plan", **mark}),
        a_chunk({"content": "</thought>answer"}, "stop"),
    )

    assert seen.deltas == [{RC: "plan", **mark}, {"content": "answer"}]
    assert (seen.choice.reasoning, seen.choice.content) == ("plan", "answer")


# ------------------------------------------------------------------ mirrors in a stream


def test_mirrored_deltas_are_told_once() -> None:
    """B05: both aliases in every chunk: the text once, under one name."""
    both = [a_chunk({"reasoning": text, "reasoning_content": text}) for text in "ab"]

    seen = read_stream(a_target(read=BOTH), *both, a_chunk({}, "stop"))

    assert seen.deltas == [{RC: "a"}, {RC: "b"}, {}]
    assert seen.choice.carriers == ["reasoning_content", "reasoning"]
    assert seen.flags == ["missing_done"]


def test_a_conflict_in_a_stream() -> None:
    """B05: once neither text is a prefix of the other, the stream fails; what came before stays."""
    seen = read_stream(
        a_target(read=BOTH),
        a_chunk({"reasoning": "a", "reasoning_content": "a"}),
        a_chunk({"reasoning": "b", "reasoning_content": "X"}),
    )

    assert isinstance(seen.failure, ReasoningConflict)
    assert seen.deltas == [{RC: "a"}]
    assert seen.choice.reasoning == "a"


def test_one_mirror_lags_in_the_same_delta() -> None:
    """Where one mirror says less than the other for a while, the longer text is told at once."""
    seen = read_stream(
        a_target(read=BOTH),
        a_chunk({"reasoning": "one ", "reasoning_content": "one two"}),
        a_chunk({"reasoning": "two three"}),
        a_chunk({"reasoning_content": " th"}, "stop"),
    )

    assert [delta.get(RC) for delta in seen.deltas] == ["one two", " three", ""]
    assert seen.choice.reasoning == "one two three"
    assert seen.flags == ["reasoning_mirror_short", "missing_done"]


def test_details_come_before_their_text() -> None:
    """Details that are told first are a mirror of the text carrier that follows."""
    target = a_target(read=("reasoning_details", "reasoning"))
    details = [{"type": "reasoning.text", "text": "a", "index": 0}]

    seen = read_stream(
        target,
        a_chunk({"reasoning_details": details}),
        a_chunk({"reasoning": "ab"}),
        a_chunk({"reasoning_details": [{**details[0], "text": "b"}]}, "stop"),
    )

    assert [delta.get(RC) for delta in seen.deltas] == ["a", "b", None]
    assert seen.choice.reasoning == "ab"
    assert seen.flags == ["missing_done"]


# ------------------------------------------------------------------ tool calls


def a_call(index: int, name: str) -> dict[str, Any]:
    """A whole tool call in one fragment."""
    function = {"name": name, "arguments": "{}"}
    return {"index": index, "id": f"id-{name}", "type": "function", "function": function}


@pytest.mark.parametrize(
    "deltas",
    [
        [{"reasoning_content": "r"}, {"tool_calls": [a_call(0, "f")]}],
        [{"tool_calls": [a_call(0, "f")]}, {"reasoning_content": "r"}],
        [
            {"tool_calls": [a_call(0, "f")]},
            {"reasoning_content": "r"},
            {"tool_calls": [a_call(1, "g")]},
        ],
        [{"reasoning_content": "r"}, {"tool_calls": [a_call(0, "f"), a_call(1, "g")]}],
        [{"reasoning_content": "r", "content": "c", "tool_calls": [a_call(0, "f")]}],
        [{"tool_calls": [a_call(0, "f")]}],
    ],
)
def test_reasoning_and_tool_calls(deltas: list[dict[str, Any]]) -> None:
    """Reasoning before, after, between and beside tool calls passes in its order, as it came."""
    chunks = [a_chunk(delta) for delta in deltas] + [a_chunk({}, "tool_calls")]

    seen = read_stream(a_target(read=(RC,)), *chunks)

    assert seen.chunks == chunks
    assert [call.name for call in seen.choice.tool_calls] == [
        call["function"]["name"] for delta in deltas for call in delta.get("tool_calls", [])
    ]
    assert seen.text(RC) == (seen.choice.reasoning or "")


def test_parallel_calls_without_an_index() -> None:
    """B11: parallel calls without an index are two calls; the signature is kept on the first."""
    extra = {"extra_content": {"google": {"thought_signature": "s"}}}
    calls = [
        {"id": "a", "function": {"name": "f", "arguments": '{"x":1}'}, **extra},
        {"id": "b", "function": {"name": "f", "arguments": '{"x":2}'}},
    ]

    seen = read_stream(
        a_target(), *[a_chunk({"tool_calls": [call]}) for call in calls], a_chunk({}, "tool_calls")
    )

    assert [d["tool_calls"] for d in seen.deltas[:2]] == [
        [{"index": at, **call}] for at, call in enumerate(calls)
    ]
    first, second = seen.choice.tool_calls
    assert (first.arguments, first.rest) == ('{"x":1}', extra)
    assert (second.arguments, second.rest) == ('{"x":2}', {})


def test_a_zero_argument_call() -> None:
    """B14: an empty string of arguments reaches the client as it was, without a complaint."""
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}

    seen = read_stream(a_target(), a_chunk({"tool_calls": [call]}, "tool_calls"), "[DONE]")

    assert seen.deltas == [{"tool_calls": [call]}]
    assert seen.flags == []


@pytest.mark.parametrize("arguments", ['{"x":', "x", '{"a":NaN}', '{"a":1,"a":2}', "\ud83c"])
def test_arguments_that_are_no_json(arguments: str) -> None:
    """B14: arguments that cannot be read are forwarded verbatim and flagged."""
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}]
    body = a_completion(tool_calls=calls)

    seen = read_body(a_target(), write(body))

    assert seen.message["tool_calls"] == calls
    assert seen.reply.flags == ["tool_arguments_invalid"]


def test_a_fragment_that_belongs_nowhere() -> None:
    """B12: a fragment that belongs to no call ends the stream with a typed failure."""
    seen = read_stream(
        a_target(), a_chunk({"tool_calls": [{"index": 1, "function": {"arguments": "x"}}]})
    )

    assert isinstance(seen.failure, ToolFragmentOrphan)
    assert seen.failure.param == "choices[0].delta.tool_calls[0]"


def test_a_repaired_index_is_flagged() -> None:
    """B12: a fragment that was put to its call by inference is flagged."""
    seen = read_stream(
        a_target(),
        a_chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f"}}]}),
        a_chunk({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}, "tool_calls"),
        "[DONE]",
    )

    assert seen.flags == ["tool_index_repaired"]
    assert seen.deltas[1]["tool_calls"] == [{"index": 0, "function": {"arguments": "{}"}}]


@pytest.mark.parametrize("value", [None, []])
def test_no_tool_calls(value: Any) -> None:
    """Tool calls that are null or an empty list stay what they are."""
    body = a_completion(tool_calls=value)

    seen = read_body(a_target(), body)

    assert seen.body == body
    assert seen.choice.message_bag == {"tool_calls": value}


def test_tool_calls_of_the_wrong_type() -> None:
    """Tool calls that are no array are a typed failure."""
    with pytest.raises(TranslationError):
        read_body(a_target(), a_completion(tool_calls={"id": "a"}))


# ------------------------------------------------------------------ finish


@pytest.mark.parametrize("value", ["network_error", "eos", "weird"])
def test_an_unknown_finish_is_never_a_known_one(value: str) -> None:
    """B26: an unknown finish value reaches client and record as it came."""
    seen = read_body(a_target(), a_message({"content": "par"}, finish=value))

    assert seen.body["choices"][0]["finish_reason"] == value
    assert seen.choice.finish_reason == value
    assert seen.reply.flags == []


def test_a_failing_finish_is_flagged() -> None:
    """B26: a finish value that the preset lists as a failure is flagged; the frame stays."""
    target = a_target(finish_failures=("error",))
    chunk = a_chunk({"content": "a"}, "error", native_finish_reason="x")

    seen = read_stream(target, chunk, "[DONE]")

    assert seen.chunks == [chunk]
    assert seen.flags == ["failing_finish"]


def test_a_finish_of_the_wrong_type() -> None:
    """A finish that is no string is a typed failure."""
    with pytest.raises(TranslationError) as failure:
        read_body(a_target(), {"choices": [{"message": {}, "finish_reason": 1}]})

    assert failure.value.param == "choices[0].finish_reason"


# ------------------------------------------------------------------ shapes of a choice


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {"content": "a"}, "finish_reason": "stop"},
        {"text": "a", "finish_reason": "stop"},
        {"delta": None, "message": {"content": "a"}},
        {"delta": "a"},
    ],
)
def test_an_answer_to_another_kind_of_request(choice: dict[str, Any]) -> None:
    """A choice of a stream whose text stands elsewhere is a typed failure, not an empty one."""
    assert isinstance(read_stream(a_target(), {"choices": [choice]}).failure, TranslationError)


@pytest.mark.parametrize("choice", [{}, {"message": None}, {"delta": {}}, {"message": "a"}])
def test_a_whole_choice_without_a_message(choice: dict[str, Any]) -> None:
    """A choice of a whole answer without a message is a typed failure."""
    with pytest.raises(TranslationError):
        read_body(a_target(), {"choices": [choice]})


@pytest.mark.parametrize("choice", [{"index": 0, "filter": {"x": 1}}, {"delta": None, "text": ""}])
def test_a_chunk_that_only_speaks_of_the_choice(choice: dict[str, Any]) -> None:
    """A chunk without a delta passes where there is nothing that one would hold."""
    chunk = {"choices": [choice]}

    seen = read_stream(a_target(), chunk, a_chunk({"content": "a"}, "stop"))

    assert seen.failure is None
    assert seen.chunks[0] == chunk


def test_a_message_beside_the_delta_is_carried() -> None:
    """A chunk that repeats the whole message beside its delta (Perplexity) is carried."""
    choice = {"index": 0, "delta": {"content": "b"}, "message": {"content": "ab"}}

    seen = read_stream(a_target(), {"choices": [choice]}, a_chunk({}, "stop"))

    assert seen.chunks[0] == {"choices": [choice]}
    assert seen.choice.content == "b"


# ------------------------------------------------------------------ bounds


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "\N{EURO SIGN}\N{EURO SIGN}\N{EURO SIGN}"},
        {"reasoning_content": "123456789"},
        {
            "tool_calls": [
                {"index": 0, "id": "a", "function": {"name": "12345", "arguments": "6789"}}
            ]
        },
    ],
)
def test_texts_have_a_bound(delta: dict[str, Any]) -> None:
    """Content, reasoning and tool calls of a choice have the same bound each, in bytes of UTF-8."""
    target = a_target(read=(RC,))

    exact = read_stream(target, a_chunk(delta, "stop"), limits=Limits(text_bytes_max=9))
    beyond = read_stream(target, a_chunk(delta, "stop"), limits=Limits(text_bytes_max=8))

    assert exact.failure is None
    assert isinstance(beyond.failure, UpstreamTooLarge)
    assert beyond.shown == b""


def test_a_mirror_counts_once() -> None:
    """A text that two carriers say counts once against its bound."""
    chunk = a_chunk({"reasoning": "12345678", "reasoning_content": "12345678"}, "stop")

    seen = read_stream(a_target(read=BOTH), chunk, limits=Limits(text_bytes_max=8))

    assert seen.failure is None
