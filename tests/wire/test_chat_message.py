"""What one message or delta says, seen from outside: the bodies and chunks that a client gets."""

from __future__ import annotations

from typing import Any

import pytest

from everyturn.errors import ProtocolDrift, ReasoningConflict, TranslationError
from everyturn.wire import events as ev
from everyturn.wire.preset import Carrier
from everyturn.wire.reply import MISSING
from tests.support.chat_replies import (
    a_chunk,
    a_completion,
    a_message,
    a_target,
    read_body,
    read_stream,
)

RC: Carrier = "reasoning_content"
BOTH: tuple[Carrier, ...] = ("reasoning_content", "reasoning")
ALL: tuple[Carrier, ...] = ("reasoning_details", "reasoning", "reasoning_content")

# ------------------------------------------------------------------ the matrix: whole answers


@pytest.mark.parametrize("carrier", ["reasoning_content", "reasoning", "thinking"])
def test_each_text_carrier_becomes_the_alias(carrier: Carrier) -> None:
    """Reasoning text in any carrier that the preset reads is shown as `reasoning_content`."""
    seen = read_body(a_target(read=(carrier,)), a_completion(**{carrier: "r"}, content="c"))

    assert seen.message == {"role": "assistant", "content": "c", RC: "r"}
    assert (seen.choice.reasoning, seen.choice.carriers) == ("r", [carrier])


def test_reasoning_details_are_told_and_kept() -> None:
    """Details are forwarded verbatim; where they are the only carrier their text is the alias."""
    details = [{"type": "reasoning.text", "text": "r", "signature": "s", "index": 0}]

    seen = read_body(a_target(read=("reasoning_details",)), a_completion(reasoning_details=details))

    assert seen.message["reasoning_details"] == details
    assert seen.message[RC] == "r"
    assert seen.choice.carriers == ["reasoning_details"]


def test_equal_aliases_are_one() -> None:
    """B05: two carriers with the same text are told once, under one name."""
    seen = read_body(a_target(read=BOTH), a_completion(reasoning="r", reasoning_content="r"))

    assert seen.message == {"role": "assistant", "content": None, RC: "r"}
    assert seen.choice.reasoning == "r"
    assert seen.choice.carriers == ["reasoning_content", "reasoning"]


@pytest.mark.parametrize(
    "message",
    [
        {"reasoning": "a", "reasoning_content": "X"},
        {"reasoning": "a", "reasoning_content": "ab"},
        {"reasoning_content": "a", "reasoning": ""},
    ],
)
def test_conflicting_aliases(message: dict[str, Any]) -> None:
    """B05: in a whole answer two carriers with text have to be equal; an empty one is no text."""
    target = a_target(read=BOTH)

    if message["reasoning"]:
        with pytest.raises(ReasoningConflict):
            read_body(target, a_completion(**message))
    else:
        assert read_body(target, a_completion(**message)).message[RC] == "a"


@pytest.mark.parametrize("value", [1, True, ["a"], {"text": "a"}, []])
def test_a_carrier_of_the_wrong_type(value: Any) -> None:
    """Reasoning that is no string is a typed failure, never turned into text."""
    with pytest.raises(TranslationError) as failure:
        read_body(a_target(read=("reasoning",)), a_completion(reasoning=value))

    assert failure.value.param == "choices[0].message.reasoning"


@pytest.mark.parametrize("value", [None, ""])
def test_null_and_empty_stay_what_they_are(value: Any) -> None:
    """A mapped carrier is renamed with its value, null and empty included."""
    seen = read_body(a_target(read=("reasoning",)), a_completion(reasoning=value))

    assert seen.message == {"role": "assistant", "content": None, RC: value}
    assert seen.choice.reasoning == value


def test_absence_stays_absence() -> None:
    """Without a carrier there is no alias, and the body's own bytes are shown."""
    body = (
        b'{ "choices": [{"message": {"role":"assistant", "content":"c"}, "finish_reason":"stop"}] }'
    )

    seen = read_body(a_target(read=ALL), body)

    assert seen.shown is body
    assert seen.choice.reasoning is MISSING


@pytest.mark.parametrize("content", ["", None])
def test_reasoning_alone_is_an_answer(content: Any) -> None:
    """B04: an answer that is only reasoning is good; content and finish stay as they came."""
    body = a_message({"content": content, "reasoning_content": "long"}, finish="length")

    seen = read_body(a_target(read=(RC,)), body)

    assert seen.message == {"role": "assistant", "content": content, RC: "long"}
    assert seen.choice.content == content
    assert seen.choice.finish_reason == "length"
    assert seen.reply.flags == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reasoning_content", "r"),
        ("reasoning", "r"),
        ("reasoning", {"x": 1}),
        ("reasoning_details", [{"text": "r"}]),
        ("thinking", "r"),
        ("thinking_blocks", [{}]),
        ("thought_signature", "s"),
        ("my_thoughts", "r"),
        ("model_reasoning", 0),
    ],
)
def test_unevidenced_reasoning_is_drift(key: str, value: Any) -> None:
    """A known carrier, or a name that speaks of reasoning, that the preset does not evidence."""
    with pytest.raises(ProtocolDrift) as failure:
        read_body(a_target(), a_completion(**{key: value}))

    assert failure.value.param == f"choices[0].message.{key}"


@pytest.mark.parametrize("value", [None, "", [], {}])
def test_empty_values_are_no_drift(value: Any) -> None:
    """Null, "", [] and {} on a carrier that nobody evidenced pass as they came."""
    body = a_completion(reasoning=value, reasoning_content=value, my_thoughts=value)

    seen = read_body(a_target(), body)

    assert seen.body == body


# ------------------------------------------------------------------ details beside text


def test_encrypted_reasoning_has_no_text() -> None:
    """Details without text leave the null carrier null, and are kept."""
    details = [{"type": "reasoning.encrypted", "data": "b64", "id": "rs_1", "index": 0}]

    seen = read_body(a_target(read=ALL), a_completion(reasoning=None, reasoning_details=details))

    assert seen.message[RC] is None
    assert seen.message["reasoning_details"] == details
    assert seen.choice.reasoning is None


@pytest.mark.parametrize("order", [1, -1])
def test_the_text_of_details_where_the_carrier_is_null(order: int) -> None:
    """The alias is told from the details where every text carrier is null, in any order."""
    details = [{"type": "reasoning.summary", "summary": "r", "index": 0}]
    message = dict([("reasoning", None), ("reasoning_details", details)][::order])

    seen = read_body(a_target(read=ALL), a_completion(**message))

    assert seen.message[RC] == "r"
    assert seen.message["reasoning_details"] == details
    assert seen.reply.flags == []


@pytest.mark.parametrize("order", [1, -1])
def test_details_that_say_something_else(order: int) -> None:
    """A difference between details and text is flagged: both reach the client."""
    details = [{"type": "reasoning.text", "text": "other", "index": 0}]
    message = dict([("reasoning", "r"), ("reasoning_details", details)][::order])

    seen = read_body(a_target(read=ALL), a_completion(**message))

    assert seen.message[RC] == "r"
    assert seen.message["reasoning_details"] == details
    assert seen.reply.flags == ["reasoning_details_differ"]


def test_null_details() -> None:
    """Details that are null stay null."""
    seen = read_body(a_target(read=ALL), a_completion(reasoning_details=None))

    assert seen.message == {"role": "assistant", "content": None, "reasoning_details": None}
    assert seen.choice.reasoning_details is None


def test_details_of_the_wrong_type() -> None:
    """Details that are no array are a typed failure."""
    with pytest.raises(TranslationError) as failure:
        read_body(a_target(read=ALL), a_completion(reasoning_details={"text": "r"}))

    assert failure.value.param == "choices[0].message.reasoning_details"


def test_an_empty_twin_of_the_alias_gives_way() -> None:
    """Where another carrier is shown under the alias's name, an empty member of that name goes."""
    seen = read_body(
        a_target(read=("reasoning",)), a_completion(reasoning="r", reasoning_content=None)
    )

    assert seen.message == {"role": "assistant", "content": None, RC: "r"}


@pytest.mark.parametrize("order", [1, -1])
def test_an_empty_twin_does_not_erase_tagged_reasoning(order: int) -> None:
    """Reasoning from tags stays, whichever of content and an empty alias comes first."""
    members = [("content", "<think>r</think>c"), ("reasoning_content", None)]
    target = a_target(tags="split")

    seen = read_body(target, a_message(dict(members[::order])))

    assert seen.message == {"role": "assistant", "content": "c", RC: "r"}


def test_a_null_carrier_does_not_erase_tagged_reasoning() -> None:
    """Reasoning from tags stays where the carrier beside it is null."""
    target = a_target(read=(RC,), tags="split")

    seen = read_body(target, a_completion(content="<think>r</think>c", reasoning_content=None))

    assert seen.message[RC] == "r"


# ------------------------------------------------------------------ reasoning beside the choices


def test_reasoning_at_the_top_level() -> None:
    """The older DashScope form is read where the preset evidences it, as one more mirror."""
    target = a_target(read=(RC, "body.reasoning_content"))

    seen = read_body(target, {**a_completion(content="c"), "reasoning_content": "r"})

    assert "reasoning_content" not in seen.body
    assert seen.message == {"role": "assistant", "content": "c", RC: "r"}
    assert seen.choice.carriers == ["body.reasoning_content"]


def test_reasoning_at_the_top_level_mirrors_the_message() -> None:
    """The same text at both places is told once; different texts conflict."""
    target = a_target(read=(RC, "body.reasoning_content"))
    body = a_completion(content="c", reasoning_content="r")

    assert read_body(target, {**body, "reasoning_content": "r"}).message[RC] == "r"
    with pytest.raises(ReasoningConflict):
        read_body(target, {**body, "reasoning_content": "X"})


@pytest.mark.parametrize("value", [None, ""])
def test_nothing_at_the_top_level_is_renamed_too(value: Any) -> None:
    """Null and empty at the top level are the alias of the first choice; a text beside stays."""
    target = a_target(read=(RC, "body.reasoning_content"))

    empty = read_body(target, {**a_completion(), "reasoning_content": value})
    beside = read_body(target, {**a_completion(reasoning_content="r"), "reasoning_content": value})

    assert empty.message[RC] == value
    assert beside.message[RC] == "r"
    assert "reasoning_content" not in beside.body


def test_reasoning_at_the_top_level_of_a_chunk() -> None:
    """A chunk's top-level reasoning goes into its delta, also where it has none."""
    target = a_target(read=(RC, "body.reasoning_content"))
    bare = {"choices": [{"index": 0, "finish_reason": None}], "reasoning_content": "b"}

    seen = read_stream(
        target, a_chunk({"content": ""}, reasoning_content="a"), bare, a_chunk({}, "stop")
    )

    assert seen.failure is None
    assert seen.deltas == [{"content": "", RC: "a"}, {RC: "b"}, {}]


@pytest.mark.parametrize(
    ("value", "choices"), [("r", []), ("r", None), (1, [{"delta": {}}]), ([], [{"delta": {}}])]
)
def test_top_level_reasoning_that_has_no_place(value: Any, choices: Any) -> None:
    """Top-level reasoning beside no choice, or of a wrong type, is a typed failure."""
    target = a_target(read=("body.reasoning_content",))

    seen = read_stream(target, {"choices": choices, "reasoning_content": value})

    assert isinstance(seen.failure, TranslationError)
    assert seen.failure.param == "reasoning_content"


def test_an_empty_one_that_has_no_place() -> None:
    """An empty top-level member beside no choice passes as it came."""
    target = a_target(read=("body.reasoning_content",))
    chunk = {"choices": [], "reasoning_content": ""}

    assert read_stream(target, chunk).chunks == [chunk]


# ------------------------------------------------------------------ other members


def test_a_refusal_is_forwarded() -> None:
    """B29: a refusal reaches client and record; the content stays null."""
    body = a_completion(refusal="I cannot")

    seen = read_body(a_target(), body)

    assert seen.body == body
    assert seen.choice.refusal == "I cannot"
    assert seen.reply.is_refused


@pytest.mark.parametrize(
    ("member", "value"), [("refusal", 1), ("content", 1), ("content", {"text": "a"})]
)
def test_texts_of_the_wrong_type(member: str, value: Any) -> None:
    """A refusal that is no string, or content that is neither string nor list, fails."""
    with pytest.raises(TranslationError) as failure:
        read_body(a_target(), a_message({member: value}))

    assert failure.value.param == f"choices[0].message.{member}"


def test_annotations_of_the_last_chunk() -> None:
    """B30: annotations are kept from every chunk, the last one included."""
    annotations = [{"type": "url_citation", "url_citation": {"url": "u", "start_index": 0}}]

    seen = read_stream(
        a_target(),
        a_chunk({"content": "a"}),
        a_chunk({"annotations": annotations}, "stop"),
        "[DONE]",
    )

    assert seen.choice.values["annotations"] == annotations
    assert seen.deltas[1] == {"annotations": annotations}


def test_a_nul_in_content() -> None:
    """B45: U+0000 in content is a character like any other."""
    body = b'{"choices":[{"message":{"content":"a\\u0000b"},"finish_reason":"stop"}]}'

    seen = read_body(a_target(), body)

    assert seen.choice.content == "a\x00b"
    assert seen.shown is body


def test_a_lone_surrogate_in_deltas() -> None:
    """B44: each delta stays escaped as it was sent; the stored text has the whole character."""
    frames = [
        b'data: {"choices":[{"delta":{"content":"a\\ud83c"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\udf55b"},"finish_reason":"stop"}]}\n\n',
    ]

    seen = read_stream(a_target(), *frames)

    assert seen.shown == b"".join(frames)
    assert seen.choice.content == "a\N{SLICE OF PIZZA}b"


def test_opaque_signatures_pass() -> None:
    """Carriers that are opaque are forwarded verbatim where the preset evidences them."""
    extra = {"google": {"thought_signature": "s"}}
    body = a_completion(content="c", thought_signature="s", extra_content=extra)

    seen = read_body(a_target(read=("thought_signature",)), body)

    assert seen.body == body
    assert ev.Value("message", 0, "thought_signature", "s") in seen.events
