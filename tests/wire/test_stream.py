"""How a streamed answer arrives: what a client sees of it, and when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everyturn.errors import (
    TranslationError,
    UpstreamError,
    UpstreamRejected,
    UpstreamStreamIncomplete,
    UpstreamTooLarge,
)
from everyturn.wire import events as ev
from everyturn.wire.limits import Limits
from everyturn.wire.preset import Carrier
from everyturn.wire.stream import ReplyStream
from tests.support.chat_replies import (
    DONE_FRAME,
    a_chunk,
    a_frame,
    a_target,
    read_stream,
)

RC: Carrier = "reasoning_content"
BOM = b"\xef\xbb\xbf"
GOOD = (a_chunk({"content": "a"}), a_chunk({}, "stop"), "[DONE]")

# ------------------------------------------------------------------ what a client sees


def test_a_good_stream_passes_as_it_came() -> None:
    """A frame that needs no change is forwarded as the bytes that came; the end marker waits."""
    seen = read_stream(a_target(), *GOOD)

    assert seen.shown == b"".join(map(a_frame, GOOD[:2]))
    assert seen.stream.final == DONE_FRAME
    assert seen.flags == []
    assert seen.events[-1] == ev.Done()
    assert seen.stream.take() == b""


def test_a_delta_is_there_before_the_next_chunk() -> None:
    """A reasoning delta can be taken before anything after it was received."""
    stream = ReplyStream(a_target(read=(RC,)), Limits())
    frames = [a_frame(a_chunk({"reasoning_content": text})) for text in "abc"]

    for frame in frames:
        stream.receive(frame)
        assert stream.take() == frame


def test_several_frames_of_one_chunk_are_taken_together() -> None:
    """What was received since is taken at once."""
    stream = ReplyStream(a_target(), Limits())
    frames = [a_frame(a_chunk({"content": text})) for text in "abc"]

    events = stream.receive(b"".join(frames))

    assert sum(isinstance(event, ev.TextDelta) for event in events) == 3
    assert stream.take() == b"".join(frames)


@pytest.mark.parametrize("carrier", ["reasoning_content", "reasoning", "thinking"])
def test_each_carrier_by_its_delta(carrier: Carrier) -> None:
    """B01: reasoning deltas of any carrier are shown under one name, and the carrier recorded."""
    target = a_target(read=(carrier,))

    seen = read_stream(
        target, a_chunk({carrier: "because"}), a_chunk({"content": "42"}, "stop"), "[DONE]"
    )

    assert seen.deltas == [{RC: "because"}, {"content": "42"}]
    assert (seen.choice.reasoning, seen.choice.content) == ("because", "42")
    assert seen.choice.carriers == [carrier]


def test_null_empty_and_absent_deltas() -> None:
    """Null and empty carriers are renamed with their value; absent ones stay absent."""
    target = a_target(read=("reasoning",))

    seen = read_stream(
        target,
        a_chunk({"reasoning": None, "content": "a"}),
        a_chunk({"reasoning": ""}),
        a_chunk({}, "stop"),
    )

    assert seen.deltas == [{RC: None, "content": "a"}, {RC: ""}, {}]


def test_order_against_text() -> None:
    """Reasoning and text deltas keep the provider's order, and a mixed delta its two members."""
    chunks = [
        a_chunk({"reasoning_content": "1"}),
        a_chunk({"content": "2"}),
        a_chunk({"reasoning_content": "3", "content": "4"}),
        a_chunk({"content": "6", "reasoning_content": "5"}, "stop"),
    ]

    seen = read_stream(a_target(read=(RC,)), *chunks)

    texts = [e for e in seen.events if isinstance(e, ev.TextDelta | ev.ReasoningDelta)]
    assert seen.chunks == chunks
    assert [event.text for event in texts] == ["1", "2", "3", "4", "6", "5"]


def test_reasoning_after_the_finish() -> None:
    """Deltas after a finish still reach client and record."""
    chunks = [a_chunk({"content": "a"}, "stop"), a_chunk({"reasoning_content": "late"})]

    seen = read_stream(a_target(read=(RC,)), *chunks, "[DONE]")

    assert seen.failure is None
    assert seen.chunks == chunks
    assert seen.choice.reasoning == "late"


def test_a_stream_of_reasoning_alone() -> None:
    """B04: a stream that is only reasoning is a good answer."""
    seen = read_stream(
        a_target(read=(RC,)), a_chunk({"reasoning_content": "r"}), a_chunk({}, "length"), "[DONE]"
    )

    assert seen.failure is None
    assert (seen.choice.reasoning, seen.choice.finish_reason) == ("r", "length")


def test_a_wrong_type_in_a_delta() -> None:
    """Reasoning of the wrong type ends the stream with a typed failure."""
    seen = read_stream(
        a_target(read=(RC,)), a_chunk({"content": "a"}), a_chunk({"reasoning_content": ["b"]})
    )

    assert isinstance(seen.failure, TranslationError)
    assert seen.failure.param == "choices[0].delta.reasoning_content"
    assert seen.deltas == [{"content": "a"}]


# ------------------------------------------------------------------ framing


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_line_ends(line_end: str) -> None:
    """B19: events with any line end are read, and forwarded as they came."""
    body = "".join(f"data: {_json(c)}" + line_end * 2 for c in ("a", "b")) + "data: [DONE]\n\n"

    seen = read_stream(a_target(terminal="done"), chunks=[body.encode()])

    assert seen.choice.content == "ab"
    assert seen.shown == body.removesuffix("data: [DONE]\n\n").encode()


def _json(content: str) -> str:
    return json.dumps({"choices": [{"delta": {"content": content}}]})


def test_data_without_a_space() -> None:
    """B21: `data:` needs no space after it."""
    raw = b'data:{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata:[DONE]\n\n'

    seen = read_stream(a_target(), chunks=[raw])

    assert seen.choice.content == "a"
    assert seen.shown + seen.stream.final == raw


def test_data_over_several_lines() -> None:
    """B19: several data lines of one event are one text."""
    raw = b'data: {"choices":\ndata: [{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'

    seen = read_stream(a_target(), chunks=[raw])

    assert seen.choice.content == "a"
    assert seen.shown == raw


def test_comments_pass_as_comments() -> None:
    """B20: a comment is never data; it passes as a keep-alive."""
    seen = read_stream(a_target(), b": PROCESSING\n\n", *GOOD, b": late\n\n")

    assert seen.shown == b": PROCESSING\n\n" + b"".join(map(a_frame, GOOD[:2]))
    assert seen.failure is None


@pytest.mark.parametrize(
    "raw", [b"retry: 100\n\n", b"id: 1\n\n", b"data:\n\n", b"data: \n\n", b"\n\n"]
)
def test_events_without_data_are_not_passed_on(raw: bytes) -> None:
    """An event without data is the provider's word to us."""
    seen = read_stream(a_target(), raw, *GOOD)

    assert seen.shown == b"".join(map(a_frame, GOOD[:2]))


def test_a_byte_order_mark_is_not_passed_on() -> None:
    """A byte order mark is read over, and its bytes are in the first frame."""
    seen = read_stream(a_target(), BOM + a_frame(GOOD[0]), *GOOD[1:])

    assert seen.shown == b"".join(map(a_frame, GOOD[:2]))
    assert seen.stream.ledger.is_balanced


def test_other_lines_of_a_rewritten_frame_stay() -> None:
    """A frame that is rewritten keeps its other lines; unknown fields are counted."""
    raw = b': c\nid: 7\nfoo: 1\ndata: {"choices":[{"delta":{"reasoning":"r"}}]}\n\n'

    seen = read_stream(a_target(read=("reasoning",)), raw, a_chunk({}, "stop"))

    head, _, rest = seen.shown.partition(b"data: ")
    assert head == b": c\nid: 7\nfoo: 1\n"
    assert rest.startswith(b'{"choices":[{"delta":{"reasoning_content":"r"}}]}\n\n')
    assert seen.stream.ledger.fields_unknown == 1


# ------------------------------------------------------------------ errors


def test_an_error_event() -> None:
    """A provider's error as an event of its own (Groq) is told with all that it says."""
    error = {
        "message": "m",
        "code": "tool_use_failed",
        "failed_generation": "{}",
        "status_code": 400,
    }
    raw = b"event: error\n" + a_frame({"error": error})

    seen = read_stream(a_target(), a_chunk({"content": "a"}), raw)

    assert isinstance(seen.failure, UpstreamRejected)
    assert seen.failure.extra["failed_generation"] == "{}"
    assert seen.failure.extra["upstream_code"] == "tool_use_failed"
    assert seen.deltas == [{"content": "a"}]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"event: error\ndata: overloaded\n\n", "overloaded"),
        (b'event: error\ndata: "overloaded"\n\n', "overloaded"),
        (b'event: error\ndata: {"message":"overloaded"}\n\n', "overloaded"),
        (b'event: error\ndata: {"reasoning":"x"}\n\n', "the provider sent an error"),
        (b"error: overloaded\n\n", "overloaded"),
        (b'error: {"error":{"message":"overloaded"}}\n\n', "overloaded"),
        (b"error: overloaded", "overloaded"),
    ],
)
def test_errors_outside_the_envelope(raw: bytes, message: str) -> None:
    """An `event: error`, or an `error:` line, is an error whatever its data is."""
    seen = read_stream(a_target(), a_chunk({}, "stop"), raw)

    assert isinstance(seen.failure, UpstreamError)
    assert seen.failure.extra["message"] == message
    assert seen.stream.ledger.is_balanced


@pytest.mark.parametrize(
    "raw",
    [
        b'{"error":{"code":429,"message":"m"}}',
        b'{\r\n "error": {"code": 429, "message": "m"}\r\n}\r\n',
        b'\xef\xbb\xbf{"error":{"code":429,"message":"m"}}\n\n',
    ],
)
def test_a_bare_error_body(raw: bytes) -> None:
    """B24: an error body that came as an event stream is the provider's error."""
    seen = read_stream(a_target(), raw)

    assert isinstance(seen.failure, UpstreamRejected)
    assert (seen.failure.status, seen.failure.extra["message"]) == (429, "m")
    assert seen.stream.ledger.is_balanced


@pytest.mark.parametrize("raw", [b'{"choices":[]}\n\n', b"<html>\n\n", b"{}"])
def test_a_bare_body_that_is_no_error(raw: bytes) -> None:
    """Any other bare body is a stream that says nothing."""
    assert isinstance(read_stream(a_target(), raw).failure, UpstreamStreamIncomplete)


def test_frames_after_an_error_are_counted() -> None:
    """What comes after a failure is counted and not shown, in the same chunk and after it."""
    stream = ReplyStream(a_target(), Limits())
    error, late = a_frame({"error": "x"}), a_frame(a_chunk({"content": "b"}))

    with pytest.raises(UpstreamError):
        stream.receive(error + late + late + b"data: ")
    assert stream.receive(b"x\n\n" + late) == []

    ledger = stream.ledger
    assert stream.take() == b""
    assert (ledger.frames, ledger.frames_late) == (1, 4)
    assert ledger.bytes_framed == len(error)
    assert ledger.is_balanced


def test_frames_after_the_end_marker_are_tail() -> None:
    """After the end marker the rest is counted, not read."""
    seen = read_stream(a_target(), *GOOD, b"\n\ndata: junk", b"\n\ndata", b": more\n\n")

    assert seen.failure is None
    assert seen.stream.ledger.frames_late == 2
    assert seen.stream.ledger.bytes_tail == len(b"\n\ndata: junk\n\ndata: more\n\n")
    assert seen.stream.ledger.is_balanced


# ------------------------------------------------------------------ usage that nobody asked for

USAGE = {"total_tokens": 3}


@pytest.mark.parametrize(
    ("chunk", "withheld"),
    [
        ({"id": "c", "choices": [], "usage": USAGE}, True),
        ({"choices": [], "usage": USAGE, "x_groq": {}}, False),
        ({"choices": [], "usage": None}, False),
        ({"choices": []}, False),
        ({"usage": USAGE}, False),
        (a_chunk({}, usage=USAGE), False),
    ],
)
def test_the_usage_frame_that_the_gateway_asked_for(chunk: dict[str, Any], withheld: bool) -> None:
    """Only a frame with nothing but usage and the envelope is withheld; the record has it."""
    seen = read_stream(a_target(), *GOOD[:2], chunk, "[DONE]", withhold_usage=True)
    open_ = read_stream(a_target(), *GOOD[:2], chunk, "[DONE]")

    assert seen.chunks == list(GOOD[:2]) + ([] if withheld else [chunk])
    assert open_.chunks == [*GOOD[:2], chunk]
    assert seen.reply == open_.reply


# ------------------------------------------------------------------ bounds


def limited(*chunks: bytes, **limits: int) -> Any:
    """A stream in these chunks under these limits."""
    return read_stream(a_target(), chunks=chunks, limits=Limits(**limits))


def test_a_frame_has_a_bound() -> None:
    """A frame beyond the bound is a typed failure, whether it comes at once or byte by byte."""
    frame = a_frame(a_chunk({"content": "a"}, "stop"))
    bound = len(frame)

    for chunks in ([frame], [frame[at : at + 1] for at in range(len(frame))]):
        assert limited(*chunks, frame_bytes_max=bound).failure is None
        beyond = limited(*chunks, frame_bytes_max=bound - 1)
        assert isinstance(beyond.failure, UpstreamTooLarge)
        assert beyond.stream.ledger.is_balanced
        assert beyond.shown == b""


def test_a_line_that_never_ends() -> None:
    """A line that never ends is refused when it passes the bound of a frame."""
    seen = limited(*[b"data: x"] * 100, frame_bytes_max=50)

    assert isinstance(seen.failure, UpstreamTooLarge)
    assert seen.stream.ledger.bytes_received == 56
    assert seen.stream.receive(b"x" * 100) == []
    assert seen.stream.ledger.is_balanced


def test_a_stream_has_a_bound() -> None:
    """A stream beyond the bound fails at the same byte in any chunks; what came before is shown."""
    frame = a_frame(a_chunk({"content": "a"}))
    body = frame * 3
    bound = 2 * len(frame)

    for chunks in ([body], [body[at : at + 1] for at in range(len(body))], [frame] * 3):
        seen = limited(*chunks, stream_bytes_max=bound)
        assert isinstance(seen.failure, UpstreamTooLarge)
        assert seen.shown == frame * 2
        assert seen.stream.ledger.is_balanced


def test_the_text_bound_holds_on_the_fast_path() -> None:
    """The bound of a text ends a stream that was read by templates, also after a finish."""
    frame = a_frame(a_chunk({"content": "a"}))

    seen = read_stream(
        a_target(),
        chunks=[a_frame(a_chunk({}, "stop")), *[frame] * 12],
        limits=Limits(text_bytes_max=10),
    )

    assert isinstance(seen.failure, UpstreamTooLarge)
    assert seen.shown.count(frame) == 10
    assert seen.choice.content == "a" * 10
