"""Reasoning that the operator withholds, and reasoning that is carried as drift by their word."""

from __future__ import annotations

from typing import Any

import pytest

from everyturn.errors import ProtocolDrift, ReasoningConflict
from everyturn.presets.load import load_preset, preset_names
from everyturn.wire import events as ev
from everyturn.wire.dialects.chat_reply import DRIFT_NOTES_MAX
from everyturn.wire.preset import Carrier
from everyturn.wire.render import body_of_reply
from tests.support.chat_replies import (
    a_chunk,
    a_completion,
    a_message,
    a_target,
    read_body,
    read_stream,
)

RC: Carrier = "reasoning_content"
SECRET = "why it is so"
DETAILS = [{"type": "reasoning.text", "text": SECRET, "index": 0}]
THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": SECRET}], "signature": "s"}
IMAGE = {"type": "image_url", "image_url": "u"}

# ------------------------------------------------------------------ withheld

FORMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"read": (RC,)}, {"reasoning_content": SECRET}),
    ({"read": ("reasoning",)}, {"reasoning": SECRET}),
    ({"read": ("reasoning", RC)}, {"reasoning": SECRET, "reasoning_content": SECRET}),
    ({"read": ("reasoning_details",)}, {"reasoning_details": DETAILS}),
    (
        {"read": ("reasoning_details", "reasoning")},
        {"reasoning_details": DETAILS, "reasoning": SECRET},
    ),
    ({"read": ("thinking_blocks",)}, {"thinking_blocks": [{"thinking": SECRET}]}),
    ({"tags": "split"}, {"content": f"a<think>{SECRET}</think>"}),
    ({"tags": "split"}, {"content": f"<think>{SECRET}</th"}),
    ({"read": ("content_list",)}, {"content": [THINKING]}),
    ({"read": ("content_list",)}, {"content": [THINKING, IMAGE]}),
    ({"on_drift": "carry"}, {"reasoning": SECRET}),
    ({"on_drift": "carry"}, {"my_thoughts": [SECRET]}),
    ({"on_drift": "carry"}, {"content": [THINKING, IMAGE]}),
    ({"carry": ("reasoning_logprobs",)}, {"reasoning_logprobs": [{"token": SECRET}]}),
]


@pytest.mark.parametrize(("narrowed", "message"), FORMS)
def test_a_whole_answer_without_its_reasoning(
    narrowed: dict[str, Any], message: dict[str, Any]
) -> None:
    """`show_reasoning = false` withholds reasoning in each form it has, with a note."""
    seen = read_body(a_target(**narrowed, show_reasoning=False), a_completion(**message))
    open_ = read_body(a_target(**narrowed), a_completion(**message))

    assert SECRET.encode() not in seen.shown
    assert "reasoning withheld" in seen.notes
    assert seen.reply == open_.reply
    assert SECRET.encode() in open_.shown


@pytest.mark.parametrize(("narrowed", "message"), FORMS)
def test_a_stream_without_its_reasoning(narrowed: dict[str, Any], message: dict[str, Any]) -> None:
    """`show_reasoning = false` withholds reasoning from streams and from what they fold to."""
    target = a_target(**narrowed, show_reasoning=False)

    seen = read_stream(target, a_chunk(message), a_chunk({"content": "c"}, "stop"), "[DONE]")
    folded = body_of_reply(seen.reply, show_reasoning=False)

    assert seen.failure is None
    assert SECRET.encode() not in seen.shown
    assert SECRET not in str(folded)
    assert "reasoning withheld" in seen.stream.decoder.notes
    assert SECRET in str(seen.reply)


def test_text_around_withheld_reasoning_stays() -> None:
    """What stands before, between and after withheld thoughts reaches the client in its order."""
    content = f"x<think>{SECRET}</think>b<think>{SECRET}</think>d"

    seen = read_stream(
        a_target(tags="split", show_reasoning=False), a_chunk({"content": content}, "stop")
    )

    assert seen.deltas == [{"content": "x"}, {"content": "b"}, {"content": "d"}]


def test_what_is_empty_is_not_withheld() -> None:
    """Null reasoning says nothing, so there is nothing to withhold and no note."""
    body = a_completion(reasoning_content=None, reasoning_details=[])

    seen = read_body(a_target(read=(RC, "reasoning_details"), show_reasoning=False), body)

    assert seen.body == body
    assert seen.notes == []


def test_reasoning_is_withheld_at_every_level() -> None:
    """Carried drift is withheld in a body, a choice and a message."""
    target = a_target(on_drift="carry", show_reasoning=False)
    body = a_completion(content="c", thoughts=SECRET)
    body["thinking_time"] = SECRET
    body["choices"][0]["reasoning_trace"] = SECRET

    seen = read_body(target, body)

    assert seen.body == a_completion(content="c")


# ------------------------------------------------------------------ carried


def test_drift_is_carried_at_every_level() -> None:
    """`on_drift = "carry"` forwards drift verbatim under its own key, with a note each."""
    body = a_completion(content="c", reasoning=SECRET)
    body["thinking_time"] = {"a": 1}
    body["choices"][0]["reasoning_trace"] = [1, 2]

    seen = read_body(a_target(on_drift="carry"), body)

    assert seen.body == body
    assert sorted(seen.notes) == [
        "carried choices[0].message.reasoning as drift",
        "carried choices[0].reasoning_trace as drift",
        "carried thinking_time as drift",
    ]
    assert sorted(seen.reply.drift, key=lambda entry: str(entry["path"])) == [
        {"path": "choices[0].message.reasoning", "type": "str", "length": 12, "times": 1},
        {"path": "choices[0].reasoning_trace", "type": "list", "length": 2, "times": 1},
        {"path": "thinking_time", "type": "dict", "length": 1, "times": 1},
    ]
    assert SECRET not in str(seen.reply.drift)
    assert [e.key for e in seen.events if isinstance(e, ev.Drift)] == [
        "reasoning",
        "reasoning_trace",
        "thinking_time",
    ]


def test_drift_in_a_stream_is_noted_once() -> None:
    """Drift that comes again adds to its entry; a number counts as one."""
    target = a_target(on_drift="carry")

    seen = read_stream(
        target,
        a_chunk({"reasoning": "ab"}),
        a_chunk({"reasoning": "c"}, thinking_ms=5),
        a_chunk({}, "stop"),
    )

    assert [delta.get("reasoning") for delta in seen.deltas] == ["ab", "c", None]
    assert seen.reply.drift == [
        {"path": "choices[0].delta.reasoning", "type": "str", "length": 3, "times": 2},
        {"path": "thinking_ms", "type": "int", "length": 1, "times": 1},
    ]
    assert len(seen.stream.decoder.notes) == 2


def test_notes_on_drift_have_a_bound() -> None:
    """Many drifting names are all recorded; the first few of them are told to the client."""
    message = {f"thought_{at}": "x" for at in range(DRIFT_NOTES_MAX + 5)}

    seen = read_body(a_target(on_drift="carry"), a_completion(**message))

    assert len(seen.notes) == DRIFT_NOTES_MAX
    assert len(seen.reply.drift) == DRIFT_NOTES_MAX + 5


def test_an_odd_name_is_escaped() -> None:
    """The name of a drifting member stands in messages shortened and escaped."""
    with pytest.raises(ProtocolDrift) as failure:
        read_body(a_target(), {**a_completion(), "thought\n\u00e9" + "x" * 99: "s"})

    assert failure.value.param is not None
    assert failure.value.param.isascii()
    assert len(failure.value.param) < 80


def test_thinking_in_a_list_that_nobody_evidenced() -> None:
    """Thinking items are drift where the preset reads no content lists; carried, they stay."""
    body = a_completion(content=[THINKING, IMAGE])

    with pytest.raises(ProtocolDrift) as failure:
        read_body(a_target(), body)
    seen = read_body(a_target(on_drift="carry"), body)

    assert failure.value.param == "choices[0].message.content"
    assert seen.body == body
    assert seen.choice.content_items == [THINKING, IMAGE]
    assert [entry["path"] for entry in seen.reply.drift] == ["choices[0].message.content"]


def test_a_list_without_thinking_is_content() -> None:
    """A content list without thinking passes as it came at any preset."""
    body = a_completion(content=[{"type": "text", "text": "a"}, IMAGE])

    assert read_body(a_target(), body).body == body
    assert read_body(a_target(read=("content_list",)), body).body == body


@pytest.mark.parametrize(
    "deltas",
    [
        [{"reasoning": "a", "reasoning_content": "b"}],
        [{"reasoning_content": "b", "reasoning": "a"}],
        [{"reasoning": "a"}, {"reasoning_content": "b"}],
        [{"reasoning_content": "b"}, {"reasoning": "a"}],
    ],
)
def test_drift_under_the_name_of_the_alias(deltas: list[dict[str, Any]]) -> None:
    """Carried drift and mapped reasoning cannot share one name: that fails, in any order."""
    target = a_target(read=("reasoning",), on_drift="carry")

    seen = read_stream(target, *map(a_chunk, deltas))

    assert isinstance(seen.failure, ReasoningConflict)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("empty", [None, ""])
def test_drift_beside_an_empty_carrier(empty: Any, order: int) -> None:
    """Carried drift under the alias's name stands where the mapped carrier says nothing."""
    target = a_target(read=("reasoning",), on_drift="carry")
    message = dict([("reasoning", empty), ("reasoning_content", "b")][::order])

    seen = read_body(target, a_message(message))
    folded = body_of_reply(seen.reply)

    assert seen.message == {"role": "assistant", RC: "b"}
    assert folded["choices"][0]["message"][RC] == "b"


def test_evidenced_names_that_are_no_reasoning_text() -> None:
    """What the preset lists under `carry` passes at every level, and grows in a choice."""
    target = a_target(carry=("reasoning_logprobs",))
    chunks = [
        {
            "choices": [
                {
                    "index": 0,
                    "delta": {},
                    "reasoning_logprobs": {"content": [token]},
                    "finish_reason": f,
                }
            ]
        }
        for token, f in (("a", None), ("b", "stop"))
    ]

    seen = read_stream(target, *chunks)

    assert seen.chunks == chunks
    assert seen.choice.choice_values == {"reasoning_logprobs": {"content": ["a", "b"]}}


# ------------------------------------------------------------------ each packaged preset

PLACES: dict[str, Any] = {
    "reasoning_content": {"reasoning_content": SECRET},
    "reasoning": {"reasoning": SECRET},
    "reasoning_details": {"reasoning_details": DETAILS},
    "content_list": {"content": [THINKING]},
    "thinking": {"thinking": SECRET},
    "thinking_blocks": {"thinking_blocks": [{"thinking": SECRET}]},
    "thought_signature": {"thought_signature": SECRET},
}


@pytest.mark.parametrize("carrier", PLACES)
@pytest.mark.parametrize("name", preset_names())
def test_drift_of_each_preset(name: str, carrier: str) -> None:
    """A packaged preset maps the carriers it reads; any other is drift, whole and streamed."""
    preset = load_preset(name)
    target = a_target(preset)
    delta, body = a_chunk(PLACES[carrier], "stop"), a_completion(**PLACES[carrier])

    seen = read_stream(target, delta)

    if carrier in preset.read:
        assert seen.failure is None
        assert SECRET in read_body(target, body).shown.decode()
    else:
        assert isinstance(seen.failure, ProtocolDrift)
        with pytest.raises(ProtocolDrift):
            read_body(target, body)


@pytest.mark.parametrize("name", preset_names())
def test_top_level_reasoning_of_each_preset(name: str) -> None:
    """Top-level `reasoning_content` is mapped by `dashscope`, and drift everywhere else."""
    target = a_target(load_preset(name))
    chunk = a_chunk({"content": ""}, "stop", reasoning_content=SECRET)

    seen = read_stream(target, chunk)

    if name == "dashscope":
        assert seen.failure is None
        assert seen.deltas[0][RC] == SECRET
    else:
        assert isinstance(seen.failure, ProtocolDrift)
        assert seen.failure.param == "reasoning_content"
