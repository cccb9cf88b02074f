"""One end of a link: greeting, calls, credit, silence, and the end."""

from __future__ import annotations

from typing import get_args

import pytest

from everyturn.link.messages import (
    MESSAGES,
    PAYLOAD_BYTES_MAX,
    Bye,
    Call,
    Cancel,
    Credit,
    Data,
    Drain,
    End,
    Fail,
    FaultCode,
    Head,
    Hello,
    LinkFault,
    Message,
    Rotate,
    Rotated,
    Welcome,
    encode,
    parse,
)
from everyturn.link.session import HEARTBEAT_S, LOST_S, MAY_RECEIVE, NEXT, NotCarried, Session
from everyturn.link.versions import VERSIONS, Version, highest_common
from tests.support.linked import OLD, Linked, a_call

NEW = VERSIONS[-1]


def farewell(session: Session) -> Bye:
    """The last message in a session's queue."""
    message, _ = parse(session.take()[-1])
    assert isinstance(message, Bye)
    return message


# ---------------------------------------------------------------------------------- greeting


def test_hello_and_welcome_open_the_link() -> None:
    """Both ends agree on the version, and the gateway may call."""
    linked = Linked(is_greeted=False)
    assert (linked.gateway.state, linked.worker.state) == ("new", "greeting")

    at_gateway, at_worker = linked.settle()

    ((hello, _),), ((welcome, _),) = at_gateway, at_worker
    assert isinstance(hello, Hello)
    assert isinstance(welcome, Welcome)
    assert (linked.gateway.state, linked.worker.state) == ("open", "open")
    assert linked.gateway.version == linked.worker.version == NEW
    assert linked.gateway.can_call


@pytest.mark.parametrize(
    ("gateway", "worker", "chosen"),
    [((OLD, NEW), (OLD, NEW), NEW), ((OLD, NEW), (OLD,), OLD), ((OLD,), (NEW, OLD), OLD)],
)
def test_the_highest_common_version_is_chosen(
    gateway: tuple[Version, ...], worker: tuple[Version, ...], chosen: Version
) -> None:
    """A peer of an older version is served its own."""
    linked = Linked(gateway_versions=gateway, worker_versions=worker)

    assert linked.gateway.version == linked.worker.version == chosen


def test_no_common_version_ends_the_link_at_both_ends() -> None:
    """Both learn why: one by a fault, the other by a farewell with the same code."""
    linked = Linked(worker_versions=(OLD,), is_greeted=False)
    linked.collect()

    with pytest.raises(LinkFault) as fault:
        linked.deliver_to_gateway()
    linked.collect()
    event = linked.deliver_to_worker()

    assert fault.value.code == "protocol_version_unsupported"
    assert event is not None
    assert isinstance(event[0], Bye)
    assert event[0].code == "protocol_version_unsupported"
    assert (linked.gateway.state, linked.worker.state) == ("closed", "closed")


def test_a_version_that_was_not_offered_is_a_fault() -> None:
    """A gateway cannot choose what the worker does not speak."""
    linked = Linked(is_greeted=False)

    with pytest.raises(LinkFault, match="unexpected"):
        linked.worker.receive(encode(Welcome(version=7, window=1)), 0.0)


def test_what_a_version_cannot_carry_fails_the_call_closed() -> None:
    """Nothing is sent of a call that would lose something; the link and other calls go on."""
    linked = Linked(gateway_versions=(OLD, NEW), worker_versions=(OLD,))

    with pytest.raises(NotCarried, match="version 0 cannot carry query parameters"):
        linked.call(query="a=1")
    with pytest.raises(NotCarried, match="the operation models"):
        linked.call(operation="models")
    assert linked.gateway.take() == []
    call = linked.call()
    _, at_worker = linked.settle()

    assert [message.call for message, _ in at_worker if isinstance(message, Call)] == [call]


def test_highest_common() -> None:
    """No common version is None."""
    assert highest_common((OLD, NEW), (1, 0, 9)) == NEW
    assert highest_common((NEW, OLD), (0,)) == OLD
    assert highest_common((OLD,), (1,)) is None


# ------------------------------------------------------------------------------------- calls


def test_a_call_goes_there_and_its_answer_comes_back() -> None:
    """Call, body, end; head, body, end; then it is over on both sides."""
    linked = Linked()
    call = linked.call()
    assert linked.gateway.data(call, b"question") == 8
    linked.gateway.end(call)

    _, at_worker = linked.settle()
    linked.worker.head(call, 200, (("x-a", "1"),))
    assert linked.worker.data(call, b"ans") == 3
    assert linked.worker.data(call, b"wer") == 3
    linked.worker.end(call)
    at_gateway, _ = linked.settle()

    assert at_worker == [
        (a_call(1), b""),
        (Data(call=1), b"question"),
        (End(call=1), b""),
    ]
    assert at_gateway == [
        (Head(call=1, status=200, headers=(("x-a", "1"),), upstream_us=0), b""),
        (Data(call=1), b"ans"),
        (Data(call=1), b"wer"),
        (End(call=1), b""),
    ]
    assert linked.gateway.calls == linked.worker.calls == ()


def test_a_long_body_is_split() -> None:
    """No message carries more than its limit, and nothing is lost at the borders."""
    body = bytes(range(256)) * 2048
    linked = Linked(window=len(body))
    call = linked.call()
    linked.gateway.data(call, body)

    _, at_worker = linked.settle()

    parts = [payload for message, payload in at_worker if isinstance(message, Data)]
    assert b"".join(parts) == body
    assert max(len(part) for part in parts) == PAYLOAD_BYTES_MAX


def test_a_failed_call_is_over_at_once() -> None:
    """What the worker still sends is dropped, and what it says is said once."""
    linked = Linked()
    call = linked.call()
    linked.settle()
    linked.worker.fail(call, "upstream_unreachable", "x" * 3000, hint="y", upstream_us=1)
    linked.worker.head(call, 200, ())
    linked.worker.end(call)
    linked.worker.fail(call, "upstream_timeout", "again")
    assert linked.worker.data(call, b"late") == 4

    at_gateway, _ = linked.settle()

    ((fail, _),) = at_gateway
    assert isinstance(fail, Fail)
    assert (fail.code, len(fail.message), fail.hint) == ("upstream_unreachable", 2000, "y")
    assert linked.gateway.calls == ()


def test_an_answer_may_end_before_its_request() -> None:
    """A server that answers early ends the call; the rest of the request goes nowhere."""
    linked = Linked()
    call = linked.call()
    linked.gateway.data(call, b"begin")
    linked.settle()
    linked.worker.head(call, 413, ())
    linked.worker.end(call)
    linked.gateway.data(call, b"crossing")
    linked.settle()

    assert linked.gateway.data(call, b"rest") == 4
    linked.gateway.end(call)
    assert linked.settle() == ([], [])


def test_what_comes_after_a_cancel_belongs_to_nobody() -> None:
    """Messages that cross a cancel are dropped; the next call does not get them."""
    linked = Linked()
    call = linked.call()
    linked.settle()
    linked.worker.head(call, 200, ())
    linked.worker.data(call, b"late")
    linked.worker.end(call)
    linked.gateway.cancel(call)
    linked.gateway.cancel(call)
    other = linked.call()

    at_gateway, at_worker = linked.settle()

    assert at_gateway == []
    assert [message.call for message, _ in at_worker if isinstance(message, Call)] == [other]
    assert not [message for message, _ in at_worker if isinstance(message, Cancel)]


def test_a_cancel_reaches_the_worker_once() -> None:
    """The worker learns of it and the call is over there too."""
    linked = Linked()
    call = linked.call()
    linked.settle()
    linked.gateway.cancel(call)

    _, at_worker = linked.settle()

    assert at_worker == [(Cancel(call=call), b"")]
    assert not linked.worker.is_open(call)


# ------------------------------------------------------------------------------------ credit


def test_credit_bounds_what_is_on_its_way() -> None:
    """A sender stops at the window, and goes on when half of it was consumed."""
    linked = Linked(window=100)
    call = linked.call()
    linked.settle()
    linked.worker.head(call, 200, ())

    assert linked.worker.data(call, bytes(250)) == 100
    assert linked.worker.credit(call) == 0
    linked.settle()
    linked.gateway.consumed(call, 49)
    linked.settle()
    assert linked.worker.credit(call) == 0
    linked.gateway.consumed(call, 1)
    _, at_worker = linked.settle()

    assert at_worker == [(Credit(call=call, bytes=50), b"")]
    assert linked.worker.data(call, bytes(150)) == 50


def test_more_bytes_than_credit_are_a_fault() -> None:
    """A peer that does not wait cannot make the other side hold more."""
    linked = Linked(window=100)
    call = linked.call()
    linked.settle()
    linked.gateway.receive(encode(Head(call=call, status=200, headers=(), upstream_us=0)), 0.0)
    linked.gateway.receive(encode(Data(call=call), bytes(60)), 0.0)

    with pytest.raises(LinkFault) as fault:
        linked.gateway.receive(encode(Data(call=call), bytes(41)), 0.0)
    assert fault.value.code == "credit_exceeded"


def test_more_credit_than_the_window_is_a_fault() -> None:
    """A peer cannot make the other side send without bounds."""
    linked = Linked(window=100)
    call = linked.call()

    with pytest.raises(LinkFault, match="credit_exceeded"):
        linked.gateway.receive(encode(Credit(call=call, bytes=1)), 0.0)


def test_credit_for_a_call_that_is_over_is_not_sent() -> None:
    """What is read after the end of a call gives nothing back."""
    linked = Linked(window=100)
    call = linked.call()
    linked.settle()
    linked.worker.head(call, 200, ())
    linked.worker.data(call, bytes(100))
    linked.worker.end(call)
    linked.settle()
    linked.gateway.consumed(call, 100)

    assert linked.gateway.take() == []


# ---------------------------------------------------------------------------------- the ends


def test_a_draining_worker_takes_nothing_new_and_ends_what_it_has() -> None:
    """A call that crosses the word is failed as never run; the open one goes on."""
    linked = Linked()
    first = linked.call()
    linked.settle()
    linked.worker.drain()
    linked.worker.drain()
    crossing = linked.call()
    at_gateway, at_worker = linked.settle()

    assert not linked.gateway.can_call
    assert at_worker == []
    assert [type(message) for message, _ in at_gateway] == [Drain, Fail]
    assert at_gateway[1][0] == Fail(
        call=crossing,
        code="draining",
        message="the worker takes no new calls",
        hint="",
        upstream_us=0,
    )
    linked.worker.head(first, 200, ())
    linked.worker.end(first)
    assert [type(message) for message, _ in linked.settle()[0]] == [Head, End]


def test_a_gateway_that_drains_calls_no_more() -> None:
    """Its own word binds it too."""
    linked = Linked()
    linked.gateway.drain()

    assert not linked.gateway.can_call
    assert linked.settle()[1] == [(Drain(), b"")]
    assert linked.worker.is_peer_draining


def test_losing_the_link_names_the_calls() -> None:
    """Each call under way is told, once, oldest first; nothing is sent any more."""
    linked = Linked()
    calls = [linked.call() for _ in range(3)]
    linked.settle()

    assert linked.worker.lose() == calls
    assert linked.worker.lose() == []
    linked.worker.head(calls[0], 200, ())
    assert linked.worker.take() == []
    assert linked.worker.receive(b"anything", 0.0) is None


def test_a_farewell_says_why() -> None:
    """The peer gets the code, and both ends are closed."""
    linked = Linked()
    call = linked.call()
    linked.settle()

    assert linked.gateway.close("revoked", "the operator revoked this worker") == [call]
    _, at_worker = linked.settle()

    assert at_worker == [(Bye(code="revoked", message="the operator revoked this worker"), b"")]
    assert linked.worker.state == "closed"
    assert linked.worker.lose() == [call]


def test_a_silent_peer_is_asked_and_then_lost() -> None:
    """A ping after HEARTBEAT_S, again after as long; after LOST_S the link is over."""
    linked = Linked()
    session = linked.gateway
    session.receive(encode(Rotated()), 100.0)
    session.tick(100.0 + HEARTBEAT_S - 0.1)
    assert session.take() == []
    session.tick(100.0 + HEARTBEAT_S)
    session.tick(100.0 + HEARTBEAT_S + 0.1)
    (ping,) = session.take()
    linked.worker.receive(ping, 0.0)
    (pong,) = linked.worker.take()
    session.receive(pong, 200.0)
    session.tick(200.0 + LOST_S - 0.1)

    with pytest.raises(LinkFault) as fault:
        session.tick(200.0 + LOST_S)
    assert fault.value.code == "heartbeat_lost"
    session.tick(1000.0)


def test_a_peer_that_never_greets_is_lost() -> None:
    """Silence counts from the first look at the clock."""
    session = Session("gateway")
    session.tick(5.0)
    session.tick(5.0 + HEARTBEAT_S)
    assert session.take() == []

    with pytest.raises(LinkFault, match="heartbeat_lost"):
        session.tick(5.0 + LOST_S)


def test_a_credential_is_rotated_over_the_link() -> None:
    """The worker gets it and says that it is stored."""
    linked = Linked()
    linked.gateway.rotate("obviously-fake-credential")
    _, at_worker = linked.settle()
    linked.worker.rotated()
    at_gateway, _ = linked.settle()

    assert at_worker == [(Rotate(credential="obviously-fake-credential"), b"")]
    assert at_gateway == [(Rotated(), b"")]


# ------------------------------------------------------------------------------------ faults

GREETING = encode(Hello(versions=(1,), software="", targets=(), window=100, calls_max=2))


def at_gateway(*raw: bytes) -> Session:
    """A gateway's session that got these messages after one call was opened."""
    session = Session("gateway", window=100)
    session.receive(GREETING, 0.0)
    session.call(a_call(1))
    for message in raw:
        session.receive(message, 0.0)
    return session


HEAD = encode(Head(call=1, status=200, headers=(), upstream_us=0))
DATA = encode(Data(call=1), b"x")
END = encode(End(call=1))

BROKEN: list[tuple[list[bytes], FaultCode]] = [
    ([GREETING], "unexpected"),
    ([encode(a_call(2))], "unexpected"),
    ([encode(Cancel(call=1))], "unexpected"),
    ([DATA], "unexpected"),
    ([END], "unexpected"),
    ([HEAD, HEAD], "unexpected"),
    ([encode(Head(call=2, status=200, headers=(), upstream_us=0))], "unknown_call"),
    ([HEAD, encode(Data(call=7), b"x")], "unknown_call"),
    ([b"{}\n"], "malformed"),
]


@pytest.mark.parametrize(("raw", "code"), BROKEN)
def test_a_worker_that_breaks_the_protocol_is_told_and_cut(
    raw: list[bytes], code: FaultCode
) -> None:
    """The first wrong message ends the link with a named fault; what follows is dropped."""
    session = at_gateway(*raw[:-1])

    with pytest.raises(LinkFault) as fault:
        session.receive(raw[-1], 0.0)

    assert fault.value.code == code
    assert farewell(session).code == "fault"
    assert session.state == "closed"
    assert session.receive(HEAD, 0.0) is None
    assert session.lose() == [1]


def test_a_gateway_that_breaks_the_protocol_is_told_and_cut() -> None:
    """A call out of turn, one too many, data after the end, one the version does not have."""
    for raw, code in [
        ([encode(a_call(2))], "unexpected"),
        ([encode(a_call(1)), encode(a_call(1))], "unexpected"),
        ([encode(a_call(n)) for n in (1, 2, 3)], "unexpected"),
        ([encode(a_call(1)), END, DATA], "unexpected"),
        ([encode(a_call(1)), END, END], "unexpected"),
        ([DATA], "unknown_call"),
        ([HEAD], "unexpected"),
    ]:
        session = Session("worker", window=100)
        session.greet(software="", targets=(), calls_max=2)
        session.receive(encode(Welcome(version=1, window=100)), 0.0)
        for message in raw[:-1]:
            session.receive(message, 0.0)
        with pytest.raises(LinkFault) as fault:
            session.receive(raw[-1], 0.0)
        assert fault.value.code == code
    session = Session("worker", versions=(OLD,))
    session.greet(software="", targets=(), calls_max=2)
    session.receive(encode(Welcome(version=0, window=100)), 0.0)
    with pytest.raises(LinkFault, match="unexpected"):
        session.receive(encode(a_call(1, query="a=1")), 0.0)


def test_the_tables_are_closed() -> None:
    """Every message may be received by somebody, and each state change starts where it may."""
    anywhere = frozenset[type[Message]]().union(*MAY_RECEIVE.values())

    assert anywhere == set(MESSAGES.values())
    assert {state for _, state in MAY_RECEIVE} == {"new", "greeting", "open"}
    for (state, way, kind), after in NEXT.items():
        assert state != after
        if way == "receives" and kind is not Welcome:
            assert kind in MAY_RECEIVE.get(("gateway", state), set()) | MAY_RECEIVE.get(
                ("worker", state), set()
            )
    assert len(get_args(FaultCode)) == 12
