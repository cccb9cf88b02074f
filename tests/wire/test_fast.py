"""The fast path says what the strict reader says; these tests tell which of the two was at work."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from everyturn.errors import TranslationError
from everyturn.wire import events as ev
from everyturn.wire.dialects.chat_reply import ChatDecoder
from everyturn.wire.fast import PADDINGS, TEMPLATES_MAX, Templates
from everyturn.wire.frames import SseSplitter, parse_frame
from everyturn.wire.limits import Limits
from everyturn.wire.preset import Carrier, Target
from everyturn.wire.reply import Fold
from everyturn.wire.stream import ReplyStream
from tests.support.chat_replies import a_chunk, a_frame, a_target, read_stream

RC: Carrier = "reasoning_content"


@dataclass
class Read:
    """How frames were read by both paths."""

    events: list[ev.Event]
    strict: list[bool]
    """Of each frame, whether the strict reader had to read it."""
    shown: bytes


class Apart:
    """Templates by themselves, to see which frames they read."""

    def __init__(self, target: Target) -> None:
        self._decoder = ChatDecoder(target, Limits())
        self._templates = Templates(self._decoder, Fold())

    def is_strict(self, raw: bytes) -> bool:
        """Whether the strict reader has to read a frame; it is read and learned then."""
        if self._templates.match(raw) is not None:
            return False
        frame = parse_frame(raw)
        if frame.data is not None:
            self._templates.learn(frame, frame.data, self._decoder.chunk(frame.data))
        return True


def read(target: Target, *data: Any) -> Read:
    """Read frames with and without templates; both have to say the same."""
    fast = ReplyStream(target, Limits())
    slow = ReplyStream(target, Limits(), is_fast=False)
    apart = Apart(target)
    seen = Read([], [], b"")
    for frame in map(a_frame, data):
        events = fast.receive(frame)
        shown = fast.take()
        assert events == slow.receive(frame)
        assert _meaning(shown) == _meaning(slow.take())
        seen.events += events
        seen.shown += shown
        seen.strict.append(apart.is_strict(frame))
    assert fast.reply() == slow.reply()
    assert fast.ledger == slow.ledger
    return seen


def _meaning(frames: bytes) -> list[Any]:
    raws = SseSplitter().feed(frames)
    return [(f.comments, f.event, json.loads(f.data or b"0")) for f in map(parse_frame, raws)]


def texts(read: Read) -> list[str | None]:
    """What the events say, in order."""
    return [e.text for e in read.events if isinstance(e, ev.TextDelta | ev.ReasoningDelta)]


# ------------------------------------------------------------------ what is read fast


@pytest.mark.parametrize(
    ("narrowed", "key"),
    [
        ({}, "content"),
        ({"read": (RC,)}, "reasoning_content"),
        ({"read": ("reasoning",)}, "reasoning"),
        ({"read": ("reasoning", RC)}, "reasoning"),
        ({"read": ("thinking",)}, "thinking"),
    ],
)
def test_frames_that_differ_in_one_text(narrowed: dict[str, Any], key: str) -> None:
    """After one frame of a kind the others are read by template, mapped carriers included."""
    pieces = ["a", "\u00e9\n\"'\\", "\x00", "", "\N{SLICE OF PIZZA}", " b"]

    seen = read(a_target(**narrowed), *[a_chunk({key: text}) for text in pieces])

    assert seen.strict == [True, *[False] * 5]
    assert texts(seen) == pieces
    if key != "content":
        assert b'"reasoning_content"' in seen.shown


@pytest.mark.parametrize(
    "beside",
    [
        {"content": None},
        {"content": "", "role": "assistant"},
        {"refusal": None},
        {"refusal": ""},
        {"tool_calls": None},
        {"tool_calls": []},
        {"channel": "analysis"},
        {"tokens": 3},
        {"flag": True},
    ],
)
def test_what_may_stand_beside_the_text(beside: dict[str, Any]) -> None:
    """Members that may be said again without adding anything do not keep a frame from it."""
    target = a_target(read=("reasoning",))

    seen = read(target, *[a_chunk({**beside, "reasoning": text}) for text in "abc"])

    assert seen.strict == [True, False, False]


def test_what_may_stand_around_the_choice() -> None:
    """Members of the body and of the choice that stay the same do not keep a frame from it."""
    chunks = [
        {
            "choices": [{"delta": {"content": text}, "logprobs": None, "verdict": "safe"}],
            "usage": None,
            "citations": ["u"],
            "p": 0.10,
        }
        for text in "abc"
    ]

    assert read(a_target(), *chunks).strict == [True, False, False]


def test_several_kinds_take_turns() -> None:
    """Reasoning and text, and the choices of a request, each have their template."""
    chunks = [
        a_chunk({key: text}, index=index)
        for text in "abc"
        for index in (0, 1, 2)
        for key in ("content", "reasoning_content")
    ]

    seen = read(a_target(read=(RC,)), *chunks)

    assert seen.strict == [True] * 6 + [False] * 12


def test_the_oldest_template_goes() -> None:
    """More kinds than there are templates are all read right."""
    kinds = [a_chunk({"content": "a"}, index=index) for index in range(TEMPLATES_MAX + 1)]

    assert all(read(a_target(), *kinds, kinds[0]).strict)


def test_the_last_said_value_stands() -> None:
    """What is said anew in each frame counts from the frame that said it last."""
    one, two = ([a_chunk({"content": t}, node=node) for t in "ab"] for node in "xy")

    seen = read(a_target(), *one, *two, one[0], a_chunk({}, "stop", node="z"), one[0], two[0])

    assert seen.strict == [True, False, True, False, False, True, True, True]


def test_frames_with_other_lines() -> None:
    """Frames with an event line or another line end are read by template, too."""
    frames = [
        b"event: message\r\ndata: " + json.dumps(a_chunk({"content": t})).encode() for t in "ab"
    ]

    assert read(a_target(), *[frame + b"\r\n\r\n" for frame in frames]).strict == [True, False]


@pytest.mark.parametrize("key", PADDINGS)
def test_frames_with_padding(key: str) -> None:
    """Random letters that hide a text's length may differ, and the last of them stand."""
    chunks = [a_chunk({"content": text}, **{key: "x" * at}) for at, text in enumerate("abcd", 1)]
    chunks.insert(2, a_chunk({"content": 'e","p":"y'}, **{key: "zz"}))

    seen = read(a_target(), *chunks)

    assert seen.strict == [True, False, False, False, False]
    assert seen.shown == b"".join(map(a_frame, chunks))


@pytest.mark.parametrize(
    "chunks",
    [
        [a_chunk({"content": "a"}, p=padding) for padding in ("x", "", "y z", "\u00e9", "\\")],
        [{"p": padding, **a_chunk({"content": "a"})} for padding in "xyz"],
        [a_chunk({"content": "a"}, p=padding) for padding in (1, 2, 3)],
        [{**a_chunk({"content": "a"}), "q": [{"p": "x"}] * 9, "p": padding} for padding in "xyz"],
        [a_chunk({"reasoning": "a"}, p=padding) for padding in "xyz"],
    ],
)
def test_padding_of_another_kind(chunks: list[dict[str, Any]]) -> None:
    """Padding that is no plain letters, or that a rewritten frame has, is read strictly."""
    assert all(read(a_target(read=("reasoning",)), *chunks).strict)


def test_two_places_of_padding() -> None:
    """The padding is the member of the body, whatever else has its name."""
    chunks = [{**a_chunk({"content": "a"}), "q": {"p": "x"}, "p": padding} for padding in "xyz"]

    assert read(a_target(), *chunks).strict == [True, False, False]


# ------------------------------------------------------------------ what is not


@pytest.mark.parametrize(
    ("narrowed", "delta"),
    [
        ({"tags": "split"}, {"content": "a"}),
        ({"read": ("reasoning", RC)}, {"reasoning": "a", "reasoning_content": "a"}),
        ({"read": (RC,)}, {"reasoning_content": "a", "content": "a"}),
        ({"read": ("reasoning_details",)}, {"reasoning_details": [{"text": "a"}]}),
        ({"read": ("content_list",)}, {"content": [{"type": "text", "text": "a"}]}),
        ({"read": (RC,), "show_reasoning": False}, {"reasoning_content": "a"}),
        ({}, {"content": "a", "x": "y"}),
        ({}, {"content": "a", "annotations": [1]}),
        ({}, {"content": "a", "tool_calls": [{"index": 0, "id": "a"}]}),
        ({}, {"content": "a", "refusal": "b"}),
        ({}, {"content": ""}),
        ({"on_drift": "carry"}, {"content": "a", "reasoning": "b"}),
        ({"read": ("reasoning_details", RC)}, {"reasoning_details": None, "content": "a"}),
    ],
)
def test_frames_that_depend_on_more_than_their_text(
    narrowed: dict[str, Any], delta: dict[str, Any]
) -> None:
    """A frame that says more than one text, or whose text depends on others, is read strictly."""
    assert all(read(a_target(**narrowed), *[a_chunk(delta)] * 3).strict)


@pytest.mark.parametrize(
    "chunk",
    [
        a_chunk({"content": "a"}, usage={"n": 1}),
        {"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [1]}}]},
        {"choices": [{"delta": {"content": "a"}, "token_ids": [1]}]},
        {"choices": [{"delta": {"content": "a"}}, {"delta": {"content": ""}}]},
        {"x": [{"content": "a"}] * 9, "choices": [{"delta": {"content": "a"}}]},
    ],
)
def test_frames_that_say_more_than_a_text(chunk: dict[str, Any]) -> None:
    """A frame with something that adds up beside its text is read strictly."""
    assert all(read(a_target(), *[chunk] * 3).strict)


@pytest.mark.parametrize(
    "frame",
    [
        b"foo: 1\ndata: {}\n\n",
        b"data: {\ndata: }\n\n",
        b"\ndata: {}\n\n",
    ],
)
def test_frames_of_an_odd_form(frame: bytes) -> None:
    """A frame with an unknown field, several data lines or spare blank lines is read strictly."""
    members = json.dumps(a_chunk({"content": "a"})).encode()[1:-1]
    raw = frame.replace(b"}", members + b"}")

    assert all(read(a_target(), *[raw] * 3).strict)


def test_a_name_written_with_escapes() -> None:
    """A frame whose text cannot be found by its name is read strictly."""
    raw = b'data: {"choices":[{"delta":{"cont\\u0065nt":"a"}}]}\n\n'

    assert all(read(a_target(), *[raw] * 3).strict)


def test_a_name_that_stands_elsewhere_too() -> None:
    """The text is the one in the delta, whatever else has its name."""
    chunks = [
        {"content": "x", "y": {"content": "x"}, "choices": [{"delta": {"content": text}}]}
        for text in "xab"
    ]

    seen = read(a_target(), *chunks)

    assert seen.strict == [True, False, False]
    assert texts(seen) == ["x", "a", "b"]


@pytest.mark.parametrize("empty", ["", None])
def test_an_empty_carrier_is_not_taken_for_its_mirror(empty: Any) -> None:
    """Where one mirror is empty, the text is told from the other, again and again."""
    target = a_target(read=("reasoning", RC))
    chunks = [a_chunk({"reasoning": empty, "reasoning_content": text}) for text in "aab"]

    seen = read(target, *chunks)

    assert texts(seen) == ["a", "a", "b"]
    assert seen.strict == [True, False, False]


def test_a_mirror_that_appears_ends_the_fast_path() -> None:
    """Once a second carrier speaks, templates of the first no longer hold."""
    target = a_target(read=("reasoning", RC))
    chunks = [
        a_chunk({"reasoning": "a"}),
        a_chunk({"reasoning": "b"}),
        a_chunk({"reasoning_content": "ab"}),
        a_chunk({"reasoning": "c"}),
        a_chunk({"reasoning_content": "c"}),
    ]

    seen = read(target, *chunks)

    assert texts(seen) == ["a", "b", "", "c", ""]
    assert seen.strict == [True, False, True, True, True]


def test_a_marker_of_our_own_in_the_frame() -> None:
    """A frame that holds the word the templates are made with is read strictly if rewritten."""
    target = a_target(read=("reasoning",))
    chunks = [a_chunk({"reasoning": text}, x="everyturn-marker-5b1f") for text in "abc"]

    seen = read(target, *chunks)

    assert texts(seen) == ["a", "b", "c"]
    assert all(seen.strict)


@pytest.mark.parametrize(
    "text",
    [
        b"\\ud83c",
        b"\\udf55",
        b'a\\",\\"x\\":\\"',
        b'a"},"x":{"content":"b',
        b"a\tb",
        b"\\/",
        b"\\u00e9",
    ],
)
def test_texts_that_are_odd(text: bytes) -> None:
    """Escapes, halves of characters and quotes are read as the strict reader reads them."""
    frame = b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n'
    target = a_target()

    outcomes = []
    for is_fast in (True, False):
        stream = ReplyStream(target, Limits(), is_fast=is_fast)
        events: list[Any] = stream.receive(frame % b"x")
        try:
            events += stream.receive(frame % text)
        except TranslationError as failure:
            events.append(failure.message)
        outcomes.append((events, stream.take(), stream.ledger, stream.reply()))

    assert outcomes[0] == outcomes[1]


def test_a_text_that_never_ends() -> None:
    """A frame that begins and ends like its template but has no text in between is broken JSON."""
    seen = read_stream(
        a_target(),
        b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"}}]}\n\n',
    )

    assert isinstance(seen.failure, TranslationError)


def test_frames_that_are_never_alike_are_learned_ever_more_seldom() -> None:
    """Where no two frames are alike, learning stops costing; a run of like ones is found again."""
    unlike = [a_chunk({"content": "a"}, nonce=f"x{at}") for at in range(40)]
    alike = [a_chunk({"content": text}) for text in "ab" * 40]

    seen = read(a_target(), *unlike, *alike)

    assert all(seen.strict[:40])
    assert not any(seen.strict[70:])
