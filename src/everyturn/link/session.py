"""One end of a worker link: what may be said when, and how much. Sans-IO.

The same machine on both sides; a table says which messages each side may get in which state. Bytes
go in with `receive`, bytes come out with `take`; times come in as arguments. It promises

- each body arrives in order and once, or its call ends with `fail`, `cancel` or the link's loss,
- neither side ever holds more of a call than it offered (`window`): who sends more breaks the
  protocol,
- what belongs to a call that is over belongs to nobody, and is dropped,
- whatever the peer sends is answered with events or with one `LinkFault`; after that with nothing.

It does not run calls, open sockets or keep credentials: see `transport/worker.py` and `worker/`.
"""

from __future__ import annotations

from typing import Final, Literal

from everyturn.link.messages import (
    PAYLOAD_BYTES_MAX,
    AnyMessage,
    Bye,
    ByeCode,
    Call,
    CallId,
    Cancel,
    Credit,
    Data,
    Drain,
    End,
    Fail,
    FailCode,
    FaultCode,
    Head,
    Hello,
    LinkFault,
    Message,
    Ping,
    Pong,
    Rotate,
    Rotated,
    Welcome,
    encode,
    parse,
)
from everyturn.link.versions import VERSIONS, Version, highest_common

Role = Literal["gateway", "worker"]
State = Literal["new", "greeting", "open", "closed"]
Event = tuple[AnyMessage, bytes]
"""A message that means something to the owner of the session, and the bytes it carried."""

WINDOW_BYTES: Final = 512 * 1024
"""What either side offers by default to hold of one direction of a call."""

HEARTBEAT_S: Final = 5.0
"""After so long without a word the peer is asked whether it is there."""

LOST_S: Final = 15.0
"""After so long without a word the link is lost."""

MAY_RECEIVE: Final[dict[tuple[Role, State], frozenset[type[Message]]]] = {
    ("gateway", "new"): frozenset({Hello, Bye}),
    ("gateway", "open"): frozenset(
        {Head, Data, End, Fail, Credit, Ping, Pong, Drain, Rotated, Bye}
    ),
    ("worker", "greeting"): frozenset({Welcome, Bye}),
    ("worker", "open"): frozenset(
        {Call, Data, End, Cancel, Credit, Ping, Pong, Drain, Rotate, Bye}
    ),
}
"""What each side may get in each state. In every other state: nothing."""

NEXT: Final[dict[tuple[State, str, type[Message]], State]] = {
    ("new", "sends", Hello): "greeting",
    ("new", "receives", Hello): "greeting",
    ("greeting", "sends", Welcome): "open",
    ("greeting", "receives", Welcome): "open",
    ("new", "sends", Bye): "closed",
    ("new", "receives", Bye): "closed",
    ("greeting", "sends", Bye): "closed",
    ("greeting", "receives", Bye): "closed",
    ("open", "sends", Bye): "closed",
    ("open", "receives", Bye): "closed",
}
"""The messages that change the state; all others leave it as it is."""


class NotCarried(Exception):
    """The version of this link cannot carry a call; `what` says what of it."""

    def __init__(self, version: int, what: str) -> None:
        super().__init__(f"protocol version {version} cannot carry {what}")
        self.version = version
        self.what = what


class _CallState:
    """One call, seen from one side."""

    __slots__ = ("consumed", "has_head", "is_receiving", "is_sending", "may_receive", "may_send")

    def __init__(self, *, may_send: int, may_receive: int) -> None:
        self.may_send = may_send
        """Bytes the peer gave credit for."""
        self.may_receive = may_receive
        """Bytes the peer may still send."""
        self.consumed = 0
        """Bytes that were consumed and not yet given back as credit."""
        self.is_sending = True
        """Whether our body is not complete."""
        self.is_receiving = True
        """Whether the peer's body is not complete."""
        self.has_head = False
        """Whether the answer has begun."""


class Session:
    """One end of a link. See the module docstring."""

    def __init__(
        self,
        role: Role,
        *,
        versions: tuple[Version, ...] = VERSIONS,
        window: int = WINDOW_BYTES,
        heartbeat_s: float = HEARTBEAT_S,
        lost_s: float = LOST_S,
    ) -> None:
        """window: bytes of one direction of a call that this side holds.

        heartbeat_s, lost_s: silence after which the peer is asked, and after which it is lost.
        """
        self.role: Role = role
        self.heartbeat_s = heartbeat_s
        self._lost_s = lost_s
        self.state: State = "new"
        self.version: Version | None = None
        """What both speak; known from the greeting on."""
        self.is_draining = False
        """Whether this side takes or makes no new calls."""
        self.is_peer_draining = False
        self._versions = versions
        self._window = window
        self._peer_window = 0
        self._calls: dict[int, _CallState] = {}
        self._last_call = 0
        self._calls_max = 0
        self._out: list[bytes] = []
        self._heard_at: float | None = None
        self._pinged_at: float | None = None

    # ------------------------------------------------------------------------------------ the link

    @property
    def calls(self) -> tuple[int, ...]:
        """The calls under way, oldest first."""
        return tuple(self._calls)

    @property
    def can_call(self) -> bool:
        """Whether a new call may be opened (on the gateway's side)."""
        return self.state == "open" and not self.is_draining and not self.is_peer_draining

    def take(self) -> list[bytes]:
        """What is to be sent, in order, one WebSocket message each. It is handed out once."""
        out, self._out = self._out, []
        return out

    def greet(self, *, software: str, targets: tuple[str, ...], calls_max: int) -> None:
        """Say hello; the worker's first act."""
        assert self.role == "worker"
        self._calls_max = calls_max
        self._say(
            Hello(
                versions=tuple(version.number for version in self._versions),
                software=software,
                targets=targets,
                window=self._window,
                calls_max=calls_max,
            )
        )

    def drain(self) -> None:
        """No new calls from now on. May be called twice."""
        if self.state == "open" and not self.is_draining:
            self._say(Drain())
        self.is_draining = True

    def rotate(self, credential: str) -> None:
        """Give the worker a new credential; it answers with `rotated`."""
        assert self.role == "gateway"
        self._say(Rotate(credential=credential))

    def rotated(self) -> None:
        """Say that the new credential is stored."""
        assert self.role == "worker"
        self._say(Rotated())

    def close(self, code: ByeCode, message: str) -> list[int]:
        """End the link in order; returns the calls that this ends, oldest first."""
        if self.state != "closed":
            self._say(Bye(code=code, message=message))
        return self.lose()

    def lose(self) -> list[int]:
        """The link is gone, whatever the reason; returns the calls that this ends."""
        self.state = "closed"
        lost = list(self._calls)
        self._calls.clear()
        return lost

    def tick(self, now: float) -> None:
        """Look at the clock, in seconds: ask a silent peer. Raises LinkFault when it is lost."""
        if self.state == "closed":
            return
        if self._heard_at is None:
            self._heard_at = now
        silent_s = now - self._heard_at
        if silent_s >= self._lost_s:
            raise self._fatal("heartbeat_lost", f"the peer was silent for {self._lost_s:g} seconds")
        if self.state != "open" or silent_s < self.heartbeat_s:
            return
        if self._pinged_at is None or now - self._pinged_at >= self.heartbeat_s:
            self._pinged_at = now
            self._say(Ping(number=int(now)))

    # ----------------------------------------------------------------------------------- the calls

    def call(self, message: Call) -> None:
        """Open a call. `message.call` must be `next_call`. Raises NotCarried, and sends nothing."""
        assert self.role == "gateway"
        assert self.can_call
        assert message.call == self.next_call
        assert self.version is not None
        lack = self.version.lack(message)
        if lack is not None:
            raise NotCarried(self.version.number, lack)
        self._last_call = message.call
        self._open(message.call)
        self._say(message)

    @property
    def next_call(self) -> CallId:
        """The id of the next call."""
        return self._last_call + 1

    def is_open(self, call: int) -> bool:
        """Whether the call is under way."""
        return call in self._calls

    def head(
        self, call: int, status: int, headers: tuple[tuple[str, str], ...], *, upstream_us: int = 0
    ) -> None:
        """Begin the answer; nothing if the call is over."""
        state = self._calls.get(call)
        if state is None:
            return
        assert self.role == "worker"
        assert not state.has_head
        state.has_head = True
        self._say(Head(call=call, status=status, headers=headers, upstream_us=upstream_us))

    def credit(self, call: int) -> int:
        """Bytes of the call that may be sent now; 0 if it is over."""
        state = self._calls.get(call)
        return 0 if state is None else state.may_send

    def data(self, call: int, body: bytes | memoryview) -> int:
        """Send as much of `body` as there is credit for; returns how many bytes that was.

        For a call that is over all of it is taken, to nowhere.
        """
        state = self._calls.get(call)
        if state is None:
            return len(body)
        assert state.is_sending
        assert self.role == "gateway" or state.has_head
        size = min(len(body), state.may_send)
        state.may_send -= size
        message = Data(call=call)
        for start in range(0, size, PAYLOAD_BYTES_MAX):
            self._say(message, body[start : min(start + PAYLOAD_BYTES_MAX, size)])
        return size

    def end(self, call: int) -> None:
        """Our body is complete; from the worker this ends the call."""
        state = self._calls.get(call)
        if state is None:
            return
        assert state.is_sending
        state.is_sending = False
        self._say(End(call=call))
        if self.role == "worker":
            del self._calls[call]

    def fail(
        self, call: int, code: FailCode, message: str, *, hint: str = "", upstream_us: int = 0
    ) -> None:
        """End a call without a good end; nothing if it is over."""
        assert self.role == "worker"
        if self._calls.pop(call, None) is None:
            return
        self._say(
            Fail(
                call=call,
                code=code,
                message=message[:2000],
                hint=hint[:2000],
                upstream_us=upstream_us,
            )
        )

    def cancel(self, call: int) -> None:
        """End a call whose answer nobody wants any more; nothing if it is over."""
        assert self.role == "gateway"
        if self._calls.pop(call, None) is not None:
            self._say(Cancel(call=call))

    def consumed(self, call: int, size: int) -> None:
        """So many bytes of the call are held no more: the peer may send as many again."""
        state = self._calls.get(call)
        if state is None or not state.is_receiving:
            return
        state.consumed += size
        # Not for each read: half a window at a time keeps the peer sending and the link free.
        if state.consumed * 2 >= self._window:
            state.may_receive += state.consumed
            self._say(Credit(call=call, bytes=state.consumed))
            state.consumed = 0

    # ------------------------------------------------------------------------------------ receiving

    def receive(self, raw: bytes, now: float) -> Event | None:
        """Take one message; returns it if it means something to the owner of this session.

        Raises LinkFault for what the protocol does not allow, once: the link is closed then, and
        `take` has the farewell. Afterwards everything is dropped.
        """
        if self.state == "closed":
            return None
        self._heard_at = now
        self._pinged_at = None
        try:
            message, payload = parse(raw)
        except LinkFault as fault:
            raise self._fatal(fault.code, fault.message) from None
        if type(message) not in MAY_RECEIVE.get((self.role, self.state), frozenset()):
            name = message.__struct_config__.tag
            raise self._fatal("unexpected", f"`{name}` may not be sent now")
        self.state = NEXT.get((self.state, "receives", type(message)), self.state)
        match message:
            case Hello():
                return self._hello(message)
            case Welcome():
                return self._welcome(message)
            case Call():
                return self._called(message)
            case Ping():
                self._say(Pong(number=message.number))
                return None
            case Pong():
                return None
            case Drain():
                self.is_peer_draining = True
                return message, b""
            case Head() | Data() | End() | Fail() | Cancel() | Credit():
                return self._of_call(message, payload)
            case Rotate() | Rotated() | Bye():
                return message, b""

    def _hello(self, hello: Hello) -> Event:
        version = highest_common(self._versions, hello.versions)
        if version is None:
            ours = ", ".join(str(version.number) for version in self._versions)
            raise self._fatal(
                "protocol_version_unsupported", f"the gateway speaks these versions only: {ours}"
            )
        self.version = version
        self._peer_window = hello.window
        self._say(Welcome(version=version.number, window=self._window))
        return hello, b""

    def _welcome(self, welcome: Welcome) -> Event:
        self.version = highest_common(self._versions, (welcome.version,))
        if self.version is None:
            raise self._fatal("unexpected", "the gateway chose a version that was not offered")
        self._peer_window = welcome.window
        return welcome, b""

    def _called(self, call: Call) -> Event | None:
        assert self.version is not None
        if call.call != self.next_call:
            raise self._fatal("unexpected", "the id of a `call` is not the next one")
        if self.version.lack(call) is not None:
            raise self._fatal("unexpected", "a `call` holds what its version does not have")
        if len(self._calls) >= self._calls_max:
            raise self._fatal("unexpected", "more calls at once than the worker said it runs")
        self._last_call = call.call
        self._open(call.call)
        if self.is_draining:
            # It crossed our `drain`. Nothing was run, so the gateway may choose another worker.
            self.fail(call.call, "draining", "the worker takes no new calls")
            return None
        return call, b""

    def _of_call(
        self, message: Head | Data | End | Fail | Cancel | Credit, payload: bytes
    ) -> Event | None:
        if message.call > self._last_call:
            raise self._fatal("unknown_call", "a message belongs to a call that was never opened")
        state = self._calls.get(message.call)
        if state is None:
            return None  # The call is over: what comes late belongs to nobody.
        match message:
            case Credit():
                state.may_send += message.bytes
                if state.may_send > self._peer_window:
                    raise self._fatal("credit_exceeded", "more credit than the peer's window")
            case Fail() | Cancel():
                del self._calls[message.call]
            case Head():
                if state.has_head:
                    raise self._fatal("unexpected", "a second `head` in one call")
                state.has_head = True
            case Data() | End():
                if not state.is_receiving or (self.role == "gateway" and not state.has_head):
                    name = message.__struct_config__.tag
                    raise self._fatal("unexpected", f"`{name}` outside of a body")
                if type(message) is End:
                    state.is_receiving = False
                    if self.role == "gateway":
                        del self._calls[message.call]
                elif len(payload) > state.may_receive:
                    raise self._fatal("credit_exceeded", "more bytes than there was credit for")
                state.may_receive -= len(payload)
        return message, payload

    # -------------------------------------------------------------------------------------- inside

    def _open(self, call: int) -> None:
        self._calls[call] = _CallState(may_send=self._peer_window, may_receive=self._window)

    def _say(self, message: Message, payload: bytes | memoryview = b"") -> None:
        """Put a message into the queue. After the end of the link there is nobody to say it to."""
        if self.state == "closed":
            return
        self.state = NEXT.get((self.state, "sends", type(message)), self.state)
        self._out.append(encode(message, payload))

    def _fatal(self, code: FaultCode, message: str) -> LinkFault:
        """The failure to raise; the farewell is in the queue, the calls are for `lose`."""
        fault = LinkFault(code, message)
        is_version = code == "protocol_version_unsupported"
        self._say(
            Bye(
                code="protocol_version_unsupported" if is_version else "fault",
                message=str(fault)[:2000],
            )
        )
        self.state = "closed"
        return fault
