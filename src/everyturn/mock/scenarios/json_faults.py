"""JSON that parsers disagree about, and text that is no JSON.

The texts are spliced into an answer as they stand, since no encoder would write them.
"""

from __future__ import annotations

from typing import Any, Final

from everyturn.mock.scenario import Ask, Play, Scenario
from everyturn.mock.script import Script
from everyturn.mock.speech import ANSWER, Said, Speech, dumps, streamed, whole, with_frames

DEPTH_DEFAULT: Final = 10_000
DEPTH_MAX: Final = 1_000_000
PLACE: Final = "PLACE"


def content_as(*texts: bytes) -> Play:
    """Answers whose content is written as it stands: one delta for each text, joined when whole.

    texts: the insides of JSON strings, escapes included.
    """

    def play(ask: Ask) -> Script:
        places = [f"{PLACE}{index}" for index in range(len(texts))]
        speech = Speech(said=tuple(Said("content", place) for place in places))
        body, frames = dumps(speech.body(ask.name)), speech.frames(ask.name)
        for index, (place, text) in enumerate(zip(places, texts, strict=True)):
            body = body.replace(place.encode(), text)
            frames[index + 1] = frames[index + 1].replace(place.encode(), text)
        return Script.pair(whole=whole(ask.name, body), stream=streamed(ask.name, frames))

    return play


def with_member(member: bytes) -> Play:
    """An ordinary answer with one more member of the body, once in a stream."""
    return lambda ask: _with_member(ask, member)


def _with_member(ask: Ask, member: bytes) -> Script:
    speech = Speech()
    body, frames = dumps(speech.body(ask.name)), speech.frames(ask.name)
    # Each text ends with the brace of its object.
    frames[1] = frames[1].rstrip(b"\n")[:-1] + b",%b}\n\n" % member
    return Script.pair(
        whole=whole(ask.name, body[:-1] + b",%b}" % member), stream=streamed(ask.name, frames)
    )


def logprob_as(number: bytes) -> Play:
    """An answer whose log probability is this text."""

    def play(ask: Ask) -> Script:
        token: dict[str, Any] = {
            "token": "Twelve",
            "logprob": PLACE,
            "bytes": None,
            "top_logprobs": [],
        }
        speech = Speech(choice={"logprobs": {"content": [token], "refusal": None}})
        quoted = f'"{PLACE}"'.encode()
        frames = [each.replace(quoted, number) for each in speech.frames(ask.name)]
        body = dumps(speech.body(ask.name)).replace(quoted, number)
        return Script.pair(whole=whole(ask.name, body), stream=streamed(ask.name, frames))

    return play


def framed_in(text: bytes, broken_body: bytes) -> Play:
    """An ordinary stream with one more event of this text in the middle; whole, `broken_body`."""
    return lambda ask: Script.pair(
        whole=whole(ask.name, broken_body),
        stream=with_frames(
            Speech(), lambda frames: [*frames[:2], b"data: %b\n\n" % text, *frames[2:]]
        )(ask),
    )


def _deep(ask: Ask) -> Script:
    depth = DEPTH_DEFAULT if ask.number is None else min(ask.number, DEPTH_MAX)
    return _with_member(ask, b'"x_deep":' + b"[" * depth + b"1" + b"]" * depth)


def _invalid_json(ask: Ask) -> Script:
    body = dumps(Speech().body(ask.name)).replace(b'"choices":', b'"choices"')
    return framed_in(b'{"choices":[{"index":0,"delta":{"content":"unclosed', body)(ask)


NUMBERS: Final = (
    b'"x_numbers":{"big":12345678901234567890123456789,"id":2512292042121000001,"beyond":1e400,'
    b'"price":0.10,"exact":0.1000000000000000055,"tiny":5e-324,"minus":-0,"plain":1E+2}'
)

SCENARIOS: Final = (
    Scenario(
        name="invalid-json",
        title="A frame in the middle that is no JSON; whole, a body that is none.",
        play=_invalid_json,
    ),
    Scenario(
        name="invalid-utf8",
        title="Bytes in the text that are no UTF-8.",
        play=content_as(b"Twelve \xff\xfe pears \xc3"),
    ),
    Scenario(
        name="nan-logprob",
        title="A log probability that is `NaN`.",
        play=logprob_as(b"NaN"),
    ),
    Scenario(
        name="infinite-logprob",
        title="A log probability that is `-Infinity`.",
        preset="sglang",
        play=logprob_as(b"-Infinity"),
    ),
    Scenario(
        name="duplicate-keys",
        title="The same key twice, with different values.",
        play=with_member(b'"x_twice":1,"x_twice":2'),
    ),
    Scenario(
        name="lone-surrogate",
        title="Half of a surrogate pair in the text.",
        play=content_as(b"Twelve ", b"pears \\ud83c", b" for each."),
    ),
    Scenario(
        name="split-surrogate",
        title="A surrogate pair over two deltas.",
        play=content_as(b"Twelve \\ud83c", b"\\udf50 for each."),
    ),
    Scenario(
        name="nul",
        title="NUL in the text, and the six characters that only look like its escape.",
        play=content_as(b"Twelve\\u0000pears ", b"\\\\u0000 each."),
    ),
    Scenario(
        name="escapes",
        title="Needless escapes, line separators and control characters in the text.",
        play=content_as(b"\\u0054welve \\/ pears", "\u2028\u2029\\u0007\\u001b[31m".encode()),
    ),
    Scenario(
        name="numbers",
        title="Numbers that no double holds, `1e400` among them; each must keep its text.",
        play=with_member(NUMBERS),
    ),
    Scenario(
        name="deep",
        title=f"A value nested {DEPTH_DEFAULT} deep.",
        number="the depth",
        play=_deep,
    ),
    Scenario(
        name="not-object",
        title="A frame that is a list; whole, a body that is a list.",
        play=framed_in(b'[{"choices":[]}]', b"[1,2,3]"),
    ),
    Scenario(
        name="null-frame",
        title="A frame that is `null`; whole, a body that is a string.",
        play=framed_in(b"null", b'"twelve"'),
    ),
    Scenario(
        name="empty-frame",
        title="A frame without data; whole, text after the end of the JSON.",
        play=framed_in(b"", dumps({"choices": []}) + b" and more"),
    ),
    Scenario(
        name="choices-object",
        title="`choices` is an object.",
        play=framed_in(
            b'{"choices":{"0":{"delta":{"content":"x"}}}}',
            dumps({"choices": {"0": {"message": {"content": ANSWER}}}}),
        ),
    ),
)
