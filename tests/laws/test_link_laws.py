"""Law 12: two linked sessions deliver in order and once, whatever crosses on the way.

Any interleaving of data, credit, cancel, failure, drain, loss and reconnection; and any bytes at
either end: never a crash, never a byte in the wrong call.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from everyturn.link.messages import (
    Call,
    Cancel,
    Credit,
    Data,
    Drain,
    End,
    Fail,
    Head,
    LinkFault,
    encode,
)
from everyturn.link.session import Session
from tests.support.linked import Linked, a_call

WINDOW = 16
CALLS_MAX = 3


@dataclass
class Told:
    """What one call was given and what arrived, on both ways."""

    request: bytes = b""
    request_arrived: bytes = b""
    answer: bytes = b""
    answer_arrived: bytes = b""
    held_by_gateway: int = 0
    held_by_worker: int = 0
    has_arrived: bool = False
    """Whether the worker knows of it."""
    has_head: bool = False
    is_request_over: bool = False
    ends: list[str] = field(default_factory=list)
    """How the gateway was told that it is over; at most one."""


class Link(RuleBasedStateMachine):
    """Random acts at both ends, with deliveries in between."""

    def __init__(self) -> None:
        super().__init__()
        self.connect()

    def connect(self) -> None:
        """A new link; what was on its way over the old one is gone."""
        self.linked = Linked(window=WINDOW, calls_max=CALLS_MAX)
        self.told: dict[int, Told] = {}

    def known(self, session: Session, pick: int) -> int:
        """One of the calls that a session has under way."""
        return session.calls[pick % len(session.calls)]

    # ---- acts

    @precondition(lambda self: self.linked.gateway.can_call)
    @precondition(lambda self: len(self.linked.gateway.calls) < CALLS_MAX)
    @rule()
    def call(self) -> None:
        self.told[self.linked.call()] = Told()

    @precondition(lambda self: self.linked.gateway.calls)
    @rule(pick=st.integers(0, 9), body=st.binary(min_size=1, max_size=3 * WINDOW))
    def ask(self, pick: int, body: bytes) -> None:
        number = self.known(self.linked.gateway, pick)
        told = self.told[number]
        if not told.is_request_over:
            told.request += body[: self.linked.gateway.data(number, body)]

    @precondition(lambda self: self.linked.gateway.calls)
    @rule(pick=st.integers(0, 9))
    def end_request(self, pick: int) -> None:
        number = self.known(self.linked.gateway, pick)
        if not self.told[number].is_request_over:
            self.told[number].is_request_over = True
            self.linked.gateway.end(number)

    @precondition(lambda self: self.linked.gateway.calls)
    @rule(pick=st.integers(0, 9))
    def cancel(self, pick: int) -> None:
        number = self.known(self.linked.gateway, pick)
        self.linked.gateway.cancel(number)
        self.told[number].ends.append("cancel")

    @precondition(lambda self: self.linked.worker.calls)
    @rule(pick=st.integers(0, 9), body=st.binary(min_size=1, max_size=3 * WINDOW))
    def answer(self, pick: int, body: bytes) -> None:
        number = self.known(self.linked.worker, pick)
        told = self.told[number]
        if not told.has_head:
            told.has_head = True
            self.linked.worker.head(number, 200, ())
        told.answer += body[: self.linked.worker.data(number, body)]

    @precondition(lambda self: self.linked.worker.calls)
    @rule(pick=st.integers(0, 9), is_good=st.booleans())
    def end_answer(self, pick: int, is_good: bool) -> None:
        number = self.known(self.linked.worker, pick)
        if is_good and self.told[number].has_head:
            self.linked.worker.end(number)
        else:
            self.linked.worker.fail(number, "internal_error", "")

    @rule(pick=st.integers(0, 9), size=st.integers(1, WINDOW), is_gateway=st.booleans())
    def consume(self, pick: int, size: int, is_gateway: bool) -> None:
        session = self.linked.gateway if is_gateway else self.linked.worker
        if not session.calls:
            return
        number = self.known(session, pick)
        told = self.told[number]
        held = told.held_by_gateway if is_gateway else told.held_by_worker
        size = min(size, held)
        session.consumed(number, size)
        if is_gateway:
            told.held_by_gateway -= size
        else:
            told.held_by_worker -= size

    @rule(is_gateway=st.booleans(), chance=st.integers(0, 9))
    def drain(self, is_gateway: bool, chance: int) -> None:
        if chance == 0:
            (self.linked.gateway if is_gateway else self.linked.worker).drain()

    @rule(chance=st.integers(0, 9))
    def lose(self, chance: int) -> None:
        if chance:
            return
        open_calls = self.linked.gateway.calls
        assert self.linked.gateway.lose() == list(open_calls)
        self.linked.worker.lose()
        for number, told in self.told.items():
            assert (number in open_calls) is (not told.ends)
        self.connect()

    # ---- deliveries

    @rule(count=st.integers(1, 5))
    def to_gateway(self, count: int) -> None:
        self.linked.collect()
        for _ in range(min(count, len(self.linked.to_gateway))):
            event = self.linked.deliver_to_gateway()
            if event is None:
                continue
            message, payload = event
            if isinstance(message, Drain | Credit):
                continue
            assert isinstance(message, Head | Data | End | Fail)
            told = self.told[message.call]
            assert not told.ends
            told.answer_arrived += payload
            told.held_by_gateway += len(payload)
            assert told.answer.startswith(told.answer_arrived)
            if isinstance(message, End):
                assert told.answer_arrived == told.answer
            if isinstance(message, End | Fail):
                told.ends.append("end")

    @rule(count=st.integers(1, 5))
    def to_worker(self, count: int) -> None:
        self.linked.collect()
        for _ in range(min(count, len(self.linked.to_worker))):
            event = self.linked.deliver_to_worker()
            if event is None:
                continue
            message, payload = event
            if isinstance(message, Drain | Credit | Cancel):
                continue
            assert isinstance(message, Call | Data | End)
            told = self.told[message.call]
            if isinstance(message, Call):
                assert not told.has_arrived
                told.has_arrived = True
            told.request_arrived += payload
            told.held_by_worker += len(payload)
            assert told.request.startswith(told.request_arrived)
            if isinstance(message, End):
                assert told.request_arrived == told.request

    # ---- what always holds

    @invariant()
    def memory_is_bounded(self) -> None:
        for told in self.told.values():
            assert told.held_by_gateway <= WINDOW
            assert told.held_by_worker <= WINDOW
            assert len(told.ends) <= 1

    def teardown(self) -> None:
        """In the end all that was said arrives, and every call can come to its end."""
        self.to_gateway(10_000)
        self.to_worker(10_000)
        self.to_gateway(10_000)
        for number in self.linked.worker.calls:
            told = self.told[number]
            if not told.has_head:
                self.linked.worker.head(number, 200, ())
            self.linked.worker.end(number)
        self.to_gateway(10_000)
        assert self.linked.gateway.calls == ()
        assert all(told.ends for told in self.told.values())


TestLink = Link.TestCase
TestLink.settings = settings(max_examples=150, stateful_step_count=80)


ANY_MESSAGE = st.sampled_from(
    [
        encode(Head(call=1, status=200, headers=(), upstream_us=0)),
        encode(Data(call=1), b"abc"),
        encode(Data(call=2), b"abc"),
        encode(End(call=1)),
        encode(End(call=2)),
        encode(Fail(call=1, code="internal_error", message="", hint="", upstream_us=0)),
        encode(Credit(call=1, bytes=5)),
        encode(Cancel(call=1)),
        encode(Cancel(call=9)),
        encode(Drain()),
        encode(a_call(1)),
        encode(a_call(2)),
        encode(a_call(3)),
        b'{"type":"ping","number":1}\n',
        b'{"type":"bye","code":"stopping","message":""}\n',
        b'{"type":"welcome","version":1,"window":16}\n',
        b'{"type":"hello","versions":[1],"software":"","targets":[],"window":16,"calls_max":2}\n',
    ]
)


@given(is_gateway=st.booleans(), raw=st.lists(ANY_MESSAGE | st.binary(max_size=40), max_size=25))
def test_any_bytes_at_either_end_are_events_or_one_fault(
    is_gateway: bool, raw: list[bytes]
) -> None:
    """A hostile peer gets a farewell and silence; nothing but `LinkFault` is ever raised."""
    linked = Linked(window=WINDOW, calls_max=2)
    linked.call()
    linked.settle()
    session = linked.gateway if is_gateway else linked.worker
    faults = 0
    for message in raw:
        was_closed = session.state == "closed"
        try:
            event = session.receive(message, 0.0)
        except LinkFault:
            faults += 1
            assert session.state == "closed"
        else:
            assert event is None or not was_closed
    assert faults <= 1
    with contextlib.suppress(LinkFault):
        session.tick(0.0)
    if session.state == "closed":
        session.take()
        session.drain()
        if is_gateway:
            session.cancel(1)
        else:
            session.fail(1, "internal_error", "")
        assert session.take() == []
