"""How a streamed answer ends: the table of section 4 of the HTTP reference."""

from __future__ import annotations

from typing import Any

import pytest

from everyturn.errors import UpstreamError, UpstreamStreamIncomplete
from everyturn.wire.limits import Limits
from everyturn.wire.stream import DONE_FRAME, TRANSITIONS, ReplyStream, Signal, State
from tests.support.chat_replies import Seen, a_chunk, a_frame, a_target, read_stream

TEXT = a_chunk({"content": "half an ans"})
FINISH = a_chunk({}, "stop")
ERROR = {"error": {"message": "m"}}
DONE = "[DONE]"
SECOND = a_chunk({"content": "x"}, index=1)
SECOND_FINISH = a_chunk({}, "stop", index=1)


def outcome(seen: Seen) -> str:
    """How a stream ended, in one word."""
    if seen.failure is not None:
        return seen.failure.code
    return "+".join(["good", *seen.flags])


@pytest.mark.parametrize(
    ("data", "options", "ending"),
    [
        ([TEXT, FINISH, DONE], {}, "good"),
        ([TEXT, FINISH, DONE], {"is_cut": True}, "good"),
        ([TEXT, FINISH], {}, "good+missing_done"),
        ([TEXT, FINISH], {"is_cut": True}, "upstream_stream_incomplete"),
        ([TEXT], {}, "upstream_stream_incomplete"),
        ([TEXT], {"is_cut": True}, "upstream_stream_incomplete"),
        ([TEXT, DONE], {}, "upstream_stream_incomplete"),
        ([DONE], {}, "upstream_stream_incomplete"),
        ([], {}, "upstream_stream_incomplete"),
        ([b": only comments\n\n"], {}, "upstream_stream_incomplete"),
        ([a_chunk({}, ""), DONE], {}, "upstream_stream_incomplete"),
        ([TEXT, ERROR], {}, "upstream_error"),
        ([TEXT, FINISH, ERROR, DONE], {}, "upstream_error"),
        ([TEXT, FINISH, DONE, ERROR], {}, "good"),
        ([FINISH, DONE], {"choices": 2}, "upstream_stream_incomplete"),
        ([FINISH, SECOND, DONE], {"choices": 2}, "upstream_stream_incomplete"),
        ([FINISH, SECOND_FINISH, DONE], {"choices": 2}, "good"),
        ([SECOND_FINISH, DONE], {}, "upstream_stream_incomplete"),
        # A choice that nobody asked for needs its finish, too.
        ([FINISH, SECOND], {}, "upstream_stream_incomplete"),
        ([FINISH, SECOND, SECOND_FINISH], {}, "good+missing_done"),
    ],
)
def test_endings(data: list[Any], options: dict[str, Any], ending: str) -> None:
    """B22, B23, B25, B27, B32: only a finish for each choice and a clean end is a good ending."""
    seen = read_stream(a_target(), *data, **options)

    assert outcome(seen) == ending
    assert seen.stream.ledger.is_balanced


@pytest.mark.parametrize(
    ("data", "options", "ending"),
    [
        ([TEXT, DONE], {}, "good+missing_finish"),
        ([TEXT, FINISH, DONE], {}, "good"),
        ([TEXT, FINISH], {}, "good+missing_done"),
        ([TEXT], {}, "upstream_stream_incomplete"),
        ([TEXT, DONE], {"is_cut": True}, "good+missing_finish"),
        ([TEXT, ERROR, DONE], {}, "upstream_error"),
        # `[DONE]` alone proves nothing: an answer without its choices is none.
        ([DONE], {}, "upstream_stream_incomplete"),
        ([TEXT, DONE], {"choices": 2}, "upstream_stream_incomplete"),
        ([TEXT, SECOND, DONE], {"choices": 2}, "good+missing_finish"),
    ],
)
def test_endings_where_the_marker_is_enough(
    data: list[Any], options: dict[str, Any], ending: str
) -> None:
    """B25: where `terminal = "done"`, the end marker stands in for a finish, and is flagged."""
    seen = read_stream(a_target(terminal="done"), *data, **options)

    assert outcome(seen) == ending


def test_nothing_is_invented() -> None:
    """B25, B32: what arrived of a broken stream is kept, and no finish is made up."""
    seen = read_stream(a_target(), TEXT, DONE)

    assert seen.choice.content == "half an ans"
    assert seen.choice.finish_reason is None
    assert seen.chunks == [TEXT]


def test_our_own_end_marker() -> None:
    """B22: where the provider sent no end marker, there is one of ours to send."""
    assert read_stream(a_target(), TEXT, FINISH).stream.final == DONE_FRAME
    assert read_stream(a_target(), TEXT, FINISH, b"data:[DONE]\r\n\r\n").stream.final == (
        b"data:[DONE]\r\n\r\n"
    )
    assert read_stream(a_target(), TEXT, FINISH, b"data:[DONE]\r\r").stream.final == DONE_FRAME


# ------------------------------------------------------------------ the last event


@pytest.mark.parametrize("tail", [b"", b"\n", b"\r", b"\r\n"])
@pytest.mark.parametrize("is_taken", [True, False])
def test_a_last_event_without_its_blank_line(tail: bytes, is_taken: bool) -> None:
    """A last event that is whole counts, and goes out with its blank line; others stay."""
    stream = ReplyStream(a_target(), Limits())
    text = b'data: {"choices":[{"delta":{"content":"a"}}]}\r\n\r\n'
    finish = a_frame(FINISH).rstrip(b"\n")
    shown = b""

    stream.receive(text + finish + tail)
    if is_taken:
        shown = stream.take()
    reply = stream.close()

    assert shown + stream.take() == text + finish + b"\n\n"
    assert reply.flags == ["missing_done"]
    assert stream.ledger.is_balanced
    assert stream.ledger.bytes_framed == len(text + finish + tail)


def test_a_last_marker_without_its_blank_line() -> None:
    """An end marker without its blank line is one."""
    seen = read_stream(a_target(), TEXT, FINISH, b"data: [DONE]")

    assert outcome(seen) == "good"
    assert seen.stream.final == DONE_FRAME


@pytest.mark.parametrize(
    "rest",
    [b"da", b"data: ", b'data: {"choices":[', b"data: 1", b"id: 7\n", b"data: [DON", b"\xef"],
)
def test_an_event_that_broke_off(rest: bytes) -> None:
    """A body that stops inside an event was cut, even where every choice has its finish."""
    seen = read_stream(a_target(), TEXT, FINISH, rest)

    assert isinstance(seen.failure, UpstreamStreamIncomplete)
    assert "inside an event" in seen.failure.message
    assert seen.stream.ledger.bytes_tail == len(rest)
    assert seen.stream.ledger.is_balanced


@pytest.mark.parametrize("rest", [b"\n", b": ping", b": ping\n"])
def test_a_rest_that_is_no_event(rest: bytes) -> None:
    """A spare line end or a comment at the end of a body is no event that broke off."""
    assert outcome(read_stream(a_target(), TEXT, FINISH, rest)) == "good+missing_done"


def test_an_error_in_the_last_event() -> None:
    """An error without its blank line ends the stream as any other."""
    seen = read_stream(a_target(), FINISH, a_frame(ERROR).rstrip(b"\n"))

    assert isinstance(seen.failure, UpstreamError)
    assert seen.stream.state is State.FAILED
    assert seen.stream.ledger.is_balanced


def test_a_cut_inside_reasoning() -> None:
    """A stream cut inside reasoning fails; the reasoning that arrived was shown and is kept."""
    chunk = a_chunk({"reasoning_content": "half a th"})

    seen = read_stream(a_target(read=("reasoning_content",)), chunk, is_cut=True)

    assert isinstance(seen.failure, UpstreamStreamIncomplete)
    assert "between two events" in seen.failure.message
    assert seen.chunks == [chunk]
    assert seen.choice.reasoning == "half a th"


# ------------------------------------------------------------------ leaving


def test_whether_every_choice_has_its_finish() -> None:
    """`all_finished` tells a client that left early from one that had all of its answer."""
    stream = ReplyStream(a_target(), Limits())

    stream.receive(a_frame(TEXT))
    assert not stream.all_finished
    stream.receive(a_frame(FINISH))
    assert stream.all_finished
    stream.receive(a_frame(SECOND))
    assert not stream.all_finished
    stream.receive(a_frame(SECOND_FINISH))
    assert stream.all_finished


@pytest.mark.parametrize("data", [[], [TEXT], [TEXT, FINISH], [TEXT, FINISH, DONE], [TEXT, ERROR]])
def test_a_stream_that_is_abandoned(data: list[Any]) -> None:
    """B31: a stream that nobody reads on gives what arrived, in every state, and balances."""
    seen = read_stream(a_target(tags="split"), *data, is_closed=False)
    stream = seen.stream
    has_all = stream.all_finished

    stream.receive(b'data: {"cho')
    reply = stream.abandon()

    assert reply == stream.abandon()
    assert stream.all_finished == has_all == (FINISH in data)
    assert stream.ledger.is_balanced
    assert [c.content for c in reply.choices] == ["half an ans"][: len(data)]


def test_what_was_held_back_is_shown_of_an_abandoned_stream() -> None:
    """B31: what was held back as a possible tag is in the reply and in what can be taken."""
    seen = read_stream(a_target(tags="split"), a_chunk({"content": "a<th"}), is_closed=False)

    reply = seen.stream.abandon()

    assert reply.choices[0].content == "a<th"
    assert b'"content":"<th"' in seen.stream.take()


def test_a_closed_stream_stays_closed() -> None:
    """Closing again, or receiving more, changes nothing of how a stream ended."""
    good = read_stream(a_target(), TEXT, FINISH).stream
    bad = read_stream(a_target(), TEXT).stream

    assert good.close() == good.close(is_cut=True)
    assert good.receive(a_frame(ERROR)) == []
    for _ in range(2):
        with pytest.raises(UpstreamStreamIncomplete):
            bad.close()
    assert good.ledger.is_balanced


# ------------------------------------------------------------------ the table


@pytest.mark.parametrize("terminal", ["finish", "done"])
def test_the_table_is_total(terminal: Any) -> None:
    """Every signal that may come in a state that can be reached has its next state, and no other.

    A stream is read while it is open or finished; once it has ended only its end may follow.
    """
    table = TRANSITIONS[terminal]
    reached = {State.OPEN} | set(table.values())

    assert reached == set(State)
    for state in reached:
        is_reading = state in (State.OPEN, State.FINISHED)
        expected = set(Signal) if is_reading else {Signal.END, Signal.CUT}
        assert {signal for known, signal in table if known is state} == expected


@pytest.mark.parametrize("terminal", ["finish", "done"])
def test_no_way_back_from_an_ending(terminal: Any) -> None:
    """A failed stream stays failed, a closed one closed; only a finish or a marker leads there."""
    table = TRANSITIONS[terminal]

    for (state, _), target in table.items():
        if state in (State.FAILED, State.CLOSED):
            assert target is state
        if target is State.CLOSED:
            assert state in (State.FINISHED, State.ENDED, State.CLOSED)
