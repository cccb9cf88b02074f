"""What holds for any answer of any provider, whatever it says and however its bytes arrive."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from everyturn.errors import Failure, ReasoningConflict, UpstreamStreamIncomplete
from everyturn.wire import events as ev
from everyturn.wire.dialects.failures import line_failure, reported_failure, status_failure
from everyturn.wire.frames import SseSplitter, parse_frame
from everyturn.wire.limits import Limits
from everyturn.wire.reader import Malformed, read_provider, write
from everyturn.wire.render import body_of_reply, frames_of_body
from everyturn.wire.stream import ReplyStream, read_whole
from tests.support.answers import (
    FORMS,
    Form,
    Said,
    almost,
    almost_bodies,
    forms,
    said,
    spoken_in,
    stream,
    whole,
)
from tests.support.chat_replies import Seen, a_target, read_body, read_stream

LINE_ENDS = (b"\n", b"\r\n", b"\r")
READERS = [
    *FORMS,
    Form("marked", a_target(tags="marked", tag=("<thought>", "</thought>"))),
    Form("carried", a_target(on_drift="carry")),
    Form("carried and tags", a_target(read=("reasoning",), on_drift="carry", tags="split")),
    Form("withheld", a_target(read=("reasoning",), show_reasoning=False, terminal="done")),
    Form(
        "top level",
        a_target(read=("reasoning_content", "body.reasoning_content", "reasoning_details")),
    ),
    Form(
        "the rest",
        a_target(
            read=("thinking", "thinking_blocks", "thought_signature"),
            carry=("thoughts",),
            usage_places=("usage", "choice.usage", "x_groq.usage"),
            usage_incremental=True,
            finish_failures=("stop",),
        ),
    ),
]
readers = st.sampled_from(READERS)


def framed(chunks: list[Any], line_end: bytes = b"\n", *, has_done: bool = True) -> bytes:
    """Chunks as the bytes of an event stream."""
    data = [write(chunk) for chunk in chunks] + ([b"[DONE]"] if has_done else [])
    return b"".join(b"data: " + item + line_end * 2 for item in data)


def cut(body: bytes, places: list[int]) -> list[bytes]:
    """The body cut at these places, which may lie anywhere."""
    edges = sorted({0, len(body), *(place % (len(body) + 1) for place in places)})
    return [body[start:end] for start, end in pairwise(edges)]


places = st.lists(st.integers(0, 10_000), max_size=8)
limits = st.sampled_from(
    [
        Limits(),
        Limits(frame_bytes_max=200, stream_bytes_max=900),
        Limits(text_bytes_max=6, carried_bytes_max=60),
    ]
)
bodies = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.sampled_from(
            [
                *(
                    b"\n",
                    b"\r",
                    b"\r\n",
                    b"\xef\xbb\xbf",
                    b"\xef\xbb",
                    b": c",
                    b"retry: 1",
                    b"x: y",
                ),
                *(b"data: ", b"data:", b"data: [DONE]", b"event: error", b"error: e", b"data"),
                b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n',
                b'data: {"choices":[{"delta":{"content":"\\ud83c"}}]}\r\n\r\n',
                b'data: {"choices":[{"delta":{"reasoning":"r"},"finish_reason":"stop"}]}\n\n',
                b'data: {"choices":[{"delta":{"content":"<think>a</th"}}]}\r\r',
                b'data: {"choices":[{"delta":{"content":"b"}}],"p":"x"}\n\n',
                b'data: {"choices":[{"delta":{"content":"\\"}}],"}}],"p":"yy"}\n\n',
                b'data: {"choices":[{"delta":{"reasoning":"r","reasoning_content":""}}]}\n\n',
                b'data: {"choices":[],"usage":{"n":1}}\n\n',
                b'data: {"error":{"message":"m"}}\n\n',
            ]
        ),
        max_size=12,
    ).map(b"".join),
    st.lists(almost_bodies, max_size=4).map(framed),
    st.tuples(forms, said, st.sampled_from(LINE_ENDS)).map(
        lambda made: framed(stream(made[0], spoken_in(made[0], made[1])), made[2])
    ),
)


def told(seen: Seen) -> Any:
    """All that two readings of one body have to agree in."""
    failure = seen.failure and (type(seen.failure), seen.failure.envelope())
    # After a failure nobody reads on, so how many bytes were received is the chunks' business.
    ledger = seen.stream.ledger
    counts = (ledger.frames, ledger.events_read, ledger.rendered, ledger.carried, ledger.refused)
    bytes_ = None if failure else (ledger.bytes_framed, ledger.bytes_tail, ledger.frames_late)
    return seen.reply, seen.shown, seen.stream.final, counts, bytes_, failure


# ------------------------------------------------------------------ law 1: chunks


@given(body=bodies, places=places, reader=readers, limits=limits)
def test_chunks_make_no_difference(
    body: bytes, places: list[int], reader: Form, limits: Limits
) -> None:
    """Any chunking, down to single bytes, gives the same events, bytes, ledger and ending."""
    once = read_stream(reader.target, chunks=[body], limits=limits)
    cuts = read_stream(reader.target, chunks=cut(body, places), limits=limits)
    bytewise = read_stream(reader.target, chunks=cut(body, list(range(len(body)))), limits=limits)

    assert told(once) == told(cuts) == told(bytewise)
    if once.failure is None:
        assert once.events == cuts.events == bytewise.events


@given(body=bodies, reader=readers, limits=limits)
def test_the_fast_path_says_the_same(body: bytes, reader: Form, limits: Limits) -> None:
    """Read by templates or strictly, frame by frame: the same events, and the same to a client."""
    fast = read_stream(reader.target, chunks=cut(body, list(range(len(body)))), limits=limits)
    slow = read_stream(
        reader.target, chunks=cut(body, list(range(len(body)))), limits=limits, is_fast=False
    )

    assert fast.events == slow.events
    assert fast.reply == slow.reply
    assert meanings(fast.shown) == meanings(slow.shown)
    assert (fast.failure and fast.failure.envelope()) == (slow.failure and slow.failure.envelope())


def meanings(shown: bytes) -> list[Any]:
    """What frames say, whatever escapes their JSON is written with."""
    frames = [parse_frame(raw) for raw in SseSplitter().feed(shown)]
    return [
        (frame.event, frame.comments, frame.data and read_provider(frame.data).value)
        for frame in frames
    ]


# ------------------------------------------------------------------ law 2: bytes


@given(body=bodies, places=places, reader=readers)
@example(body=b"\xef\xbb", places=[1], reader=READERS[0])
def test_every_byte_is_somewhere(body: bytes, places: list[int], reader: Form) -> None:
    """Every byte is in exactly one frame or in what is left; the ledger says how many."""
    splitter = SseSplitter()
    raws = [raw for chunk in cut(body, places) for raw in splitter.feed(chunk)]
    left = splitter.close()
    ledger = read_stream(reader.target, chunks=cut(body, places)).stream.ledger

    assert b"".join(raws) + left == body
    assert ledger.bytes_received <= len(body)
    assert ledger.is_balanced


# ------------------------------------------------------------------ law 3: endings


@given(form=forms, answer=said, place=st.integers(0, 100_000), line_end=st.sampled_from(LINE_ENDS))
def test_a_cut_is_never_a_good_ending(
    form: Form, answer: Said, place: int, line_end: bytes
) -> None:
    """A stream that is cut anywhere before its legal ending raises a typed failure."""
    answer = spoken_in(form, answer)
    chunks = stream(form, answer)
    good = framed(chunks, line_end)
    # The last finish is in the frame before the one with the usage.
    finished = len(framed(chunks[:-1], line_end, has_done=False)) - 2 * len(line_end)
    marked = len(good) - 2 * len(line_end)
    at = place % marked

    cut_off = read_stream(form.target, good[:at], is_cut=True, choices=answer.n)
    ended = read_stream(form.target, good[:at], choices=answer.n)

    assert isinstance(cut_off.failure, UpstreamStreamIncomplete)
    if at < finished:
        assert isinstance(ended.failure, UpstreamStreamIncomplete)
    assert read_stream(form.target, good, choices=answer.n).failure is None


# ------------------------------------------------------------------ law 4: nothing is lost

SILENT_KEYS = {"choices", "delta", "message", "index", "function", "content", "finish_reason"}
"""Keys whose meaning is the kind of an event."""
EVENT_OF_KEY = {
    "usage": ev.Usage,
    "refusal": ev.RefusalDelta,
    "tool_calls": ev.ToolCallDelta,
    "arguments": ev.ToolCallDelta,
    "reasoning": ev.ReasoningDelta,
    "reasoning_content": ev.ReasoningDelta,
    "reasoning_details": ev.ReasoningDetails,
}


def strings_of(value: Any) -> set[str]:
    """Every key and every string in a tree."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return set(value).union(*map(strings_of, value.values()))
    if isinstance(value, list):
        return set().union(*map(strings_of, value))
    return set()


def strings_told(events: list[ev.Event]) -> set[str]:
    """Every string that stands in an event."""
    found: set[str] = set()
    for event in events:
        for name in event.__struct_fields__:
            found |= strings_of(getattr(event, name))
    return {text.removeprefix("function.") for text in found}


@given(
    form=forms.filter(lambda form: form.name not in ("tags", "content list")),
    answer=said,
    is_whole=st.booleans(),
)
def test_every_key_and_string_is_told(form: Form, answer: Said, is_whole: bool) -> None:
    """Every key and every string that a provider sent is in an event, and the ledger balances."""
    answer = spoken_in(form, answer)
    if is_whole:
        trees = [whole(form, answer)]
        events = read_body(form.target, trees[0] and write(trees[0]), choices=answer.n).events
    else:
        trees = stream(form, answer)
        seen = read_stream(form.target, framed(trees), choices=answer.n)
        events = seen.events
        assert seen.failure is None
        assert seen.stream.ledger.is_balanced
        assert seen.stream.ledger.events_read == len(events)
        assert seen.stream.ledger.refused == 0

    sent = set().union(*map(strings_of, trees))
    missing = sent - strings_told(events) - SILENT_KEYS
    kinds = {type(event) for event in events}
    # `id`, `type` and `name` of a tool call are members of its event.
    assert {k for k in missing if EVENT_OF_KEY.get(k) not in kinds} <= {"id", "type", "name"}


# ------------------------------------------------------------------ law 5: one fold


@given(form=forms, answer=said)
def test_streamed_and_whole_are_one_reply(form: Form, answer: Said) -> None:
    """The streamed and the whole body of one answer fold to equal replies."""
    answer = spoken_in(form, answer)

    seen = read_stream(form.target, framed(stream(form, answer)), choices=answer.n)
    reply = read_body(form.target, write(whole(form, answer)), choices=answer.n).reply

    assert seen.failure is None
    streamed = seen.reply
    assert streamed.envelope.pop("object") == "chat.completion.chunk"
    assert reply.envelope.pop("object") == "chat.completion"
    assert streamed == reply


@given(form=forms, answer=said, show=st.booleans())
def test_the_other_form_says_the_same(form: Form, answer: Said, show: bool) -> None:
    """Frames made of a whole answer, and a body made of a stream, are read as what they came of."""
    answer = spoken_in(form, answer)
    client = a_target(read=("reasoning_details", "reasoning_content"))
    direct = read_body(form.target, write(whole(form, answer)), choices=answer.n)

    frames = b"".join(frames_of_body(direct.body, include_usage=True))
    made = read_stream(client, frames + b"data: [DONE]\n\n", choices=answer.n)
    folded = body_of_reply(direct.reply, show_reasoning=show)

    assert made.failure is None
    assert made.shown == frames
    for choice, back in zip(direct.reply.choices, made.reply.choices, strict=True):
        assert (choice.content, choice.reasoning) == (back.content, back.reasoning)
        assert (choice.tool_calls, choice.values) == (back.tool_calls, back.values)
        assert (choice.message_bag, choice.choice_bag) == (back.message_bag, back.choice_bag)
    again = read_body(client, write(folded), choices=answer.n)
    for choice, back in zip(direct.reply.choices, again.reply.choices, strict=True):
        assert (choice.content or None) == (back.content or None)
        assert (choice.tool_calls, choice.values) == (back.tool_calls, back.values)
        assert not back.reasoning or (show and back.reasoning == choice.reasoning)


# ------------------------------------------------------------------ law 6: rendering


def mapped(form: Form, tree: dict[str, Any]) -> dict[str, Any]:
    """A body or chunk with its carriers under the name that clients know."""
    shown = {**tree, "choices": []}
    for choice in tree["choices"]:
        holder = "message" if "message" in choice else "delta"
        message = dict(choice[holder])
        carried = [name for name in form.target.read if name in message]
        if "reasoning_details" in carried and len(carried) == 1:
            text = "".join(item["text"] for item in message["reasoning_details"])
            message.update({"reasoning_content": text} if text else {})
        elif carried:
            text = message[next(name for name in carried if name != "reasoning_details")]
            message = {k: v for k, v in message.items() if k != "reasoning"}
            message["reasoning_content"] = text
        shown["choices"].append({**choice, holder: message})
    return shown


@given(form=forms.filter(lambda form: form.name not in ("tags", "content list")), answer=said)
def test_what_is_shown_means_what_was_sent(form: Form, answer: Said) -> None:
    """What a client gets has the meaning of what was sent, number texts included, but for names."""
    answer = spoken_in(form, answer)
    body, chunks = whole(form, answer), stream(form, answer)

    seen = read_stream(form.target, framed(chunks), choices=answer.n)

    assert read_body(form.target, write(body), choices=answer.n).body == mapped(form, body)
    assert seen.chunks == [mapped(form, chunk) for chunk in chunks]


# ------------------------------------------------------------------ only typed failures


@given(
    raw=st.one_of(st.binary(max_size=80), almost_bodies.map(write), almost.map(write)),
    reader=readers,
)
def test_any_body_is_an_answer_or_a_typed_failure(raw: bytes, reader: Form) -> None:
    """Whatever a provider sends as a whole, it is an answer that can be shown, or a failure."""
    try:
        reply, shown, _, _ = read_whole(raw, reader.target, Limits(), choices=2)
    except Failure as failure:
        assert write(failure.envelope())
        return
    body = read_provider(shown).value
    assert reply.choices
    assert all(frame.endswith(b"\n\n") for frame in frames_of_body(body, include_usage=True))
    assert write(body_of_reply(reply))
    assert all(set(entry) == {"path", "type", "length", "times"} for entry in reply.drift)


@given(
    data=st.lists(
        st.one_of(almost_bodies.map(write), almost.map(write), st.binary(max_size=20)), max_size=5
    ),
    reader=readers,
    options=st.fixed_dictionaries(
        {"choices": st.integers(1, 2), "withhold_usage": st.booleans(), "is_cut": st.booleans()}
    ),
)
def test_any_stream_ends_in_a_reply_or_a_typed_failure(
    data: list[bytes], reader: Form, options: dict[str, Any]
) -> None:
    """Whatever a provider streams, it ends in a reply or a failure, and the ledger balances."""
    seen = read_stream(reader.target, *[b"data: " + item + b"\n\n" for item in data], **options)

    if seen.failure is not None:
        assert write(seen.failure.envelope())
    assert write(body_of_reply(seen.stream.abandon()))
    assert seen.stream.ledger.is_balanced


@given(
    raw=st.one_of(st.binary(max_size=80), almost.map(write)),
    status=st.integers(300, 599),
)
def test_any_error_is_a_typed_failure(raw: bytes, status: int) -> None:
    """Whatever stands in a body with an error status, or in an error line, becomes a failure."""
    found = [status_failure(status, raw), line_failure(raw)]
    with suppress(Malformed):
        found.append(reported_failure(read_provider(raw).value) or found[0])

    for failure in found:
        assert isinstance(failure, Failure)
        assert 400 <= failure.status <= 599
        assert write(failure.envelope())


@given(
    pieces=st.lists(
        st.tuples(st.sampled_from("ab"), st.text("xy", min_size=1, max_size=3)), max_size=8
    )
)
def test_mirrors_agree_or_conflict(pieces: list[tuple[str, str]]) -> None:
    """While one text is a prefix of the other the longer is told, once; otherwise they conflict."""
    names = {"a": "reasoning", "b": "reasoning_content"}
    texts = {"a": "", "b": ""}
    stream = ReplyStream(a_target(read=("reasoning", "reasoning_content")), Limits())

    for name, piece in pieces:
        texts[name] += piece
        is_good = texts["a"].startswith(texts["b"]) or texts["b"].startswith(texts["a"])
        try:
            stream.receive(framed([{"choices": [{"delta": {names[name]: piece}}]}], has_done=False))
        except ReasoningConflict:
            assert not is_good
            return
        assert is_good
        assert (stream.reply().choices[0].reasoning) == max(texts.values(), key=len)
