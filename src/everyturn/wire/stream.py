"""One streamed answer: bytes in, events and the client's bytes out, one legal ending.

In the manner of h11: `receive` takes what the network gave, `take` gives what the client may see,
`close` says how it ended. The legal transitions are a table; code looks them up. The end marker is
never part of `take`: it leaves after the record is durable, which is the caller's business.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from everyturn.errors import Failure, UpstreamStreamIncomplete, UpstreamTooLarge
from everyturn.wire import events as ev
from everyturn.wire.dialects.chat_reply import ChatDecoder, Decoded
from everyturn.wire.dialects.failures import line_failure, reported_failure
from everyturn.wire.fast import Templates
from everyturn.wire.frames import Frame, SseSplitter, has_fields, parse_frame
from everyturn.wire.limits import Limits
from everyturn.wire.preset import Target, Terminal
from everyturn.wire.reader import Malformed, read_provider
from everyturn.wire.reply import Fold, Reply

DONE_FRAME: Final = b"data: [DONE]\n\n"


class State(enum.Enum):
    """Where a stream is."""

    # As they are compared; the hash of an enum is slow.
    __hash__ = object.__hash__

    OPEN = "open"
    FINISHED = "finished"
    ENDED = "ended"
    CLOSED = "closed"
    FAILED = "failed"


class Signal(enum.Enum):
    """What happened."""

    # As they are compared; the hash of an enum is slow.
    __hash__ = object.__hash__

    FRAME = "frame"
    ALL_FINISHED = "all finished"
    DONE = "[DONE]"
    ERROR = "error"
    END = "clean end"
    CUT = "cut"


_OPEN: Final = State.OPEN
_FINISHED: Final = State.FINISHED
_ENDED: Final = State.ENDED
"""For what is asked with each chunk: members of an enumeration are slow to look up."""
_CARRIED: Final = frozenset({ev.Unknown, ev.Drift})

Transitions = dict[tuple[State, Signal], State]

_FINISH: Final[Transitions] = {
    (State.OPEN, Signal.FRAME): State.OPEN,
    (State.OPEN, Signal.ALL_FINISHED): State.FINISHED,
    (State.OPEN, Signal.DONE): State.FAILED,
    (State.OPEN, Signal.ERROR): State.FAILED,
    (State.OPEN, Signal.END): State.FAILED,
    (State.OPEN, Signal.CUT): State.FAILED,
    # A choice that nobody asked for appeared and has no finish yet.
    (State.FINISHED, Signal.FRAME): State.OPEN,
    (State.FINISHED, Signal.ALL_FINISHED): State.FINISHED,
    (State.FINISHED, Signal.DONE): State.ENDED,
    (State.FINISHED, Signal.ERROR): State.FAILED,
    (State.FINISHED, Signal.END): State.CLOSED,
    (State.FINISHED, Signal.CUT): State.FAILED,
    # Nothing is read after the end marker; how the connection ends no longer matters.
    (State.ENDED, Signal.END): State.CLOSED,
    (State.ENDED, Signal.CUT): State.CLOSED,
    (State.CLOSED, Signal.END): State.CLOSED,
    (State.CLOSED, Signal.CUT): State.CLOSED,
    (State.FAILED, Signal.END): State.FAILED,
    (State.FAILED, Signal.CUT): State.FAILED,
}
TRANSITIONS: Final[dict[Terminal, Transitions]] = {
    "finish": _FINISH,
    # Some servers send [DONE] without ever sending a finish reason; presets or operators mark them.
    # Without the mark this is truncation.
    "done": {**_FINISH, (State.OPEN, Signal.DONE): State.ENDED},
}
"""Terminal marker → (state, signal) → next state. What is not listed cannot happen."""


@dataclass(slots=True)
class Ledger:
    """Where everything went. received = framed + tail; read = rendered + carried + refused."""

    bytes_received: int = 0
    bytes_framed: int = 0
    bytes_tail: int = 0
    """Bytes after the end, after a failure, or of an event that broke off."""
    events_read: int = 0
    rendered: int = 0
    carried: int = 0
    """Keys nobody asked for, forwarded verbatim."""
    refused: int = 0
    """Events of a frame that failed, the failure itself included."""
    frames: int = 0
    frames_late: int = 0
    """Frames after the end or after a failure: counted, not read."""
    fields_unknown: int = 0
    """Lines with a field that Server-Sent Events do not define; they stay in their frames."""

    def count(self, events: list[ev.Event]) -> None:
        """Add events that were shown or carried."""
        carried = 0
        for event in events:
            if type(event) in _CARRIED:
                carried += 1
        self.add(len(events), carried)

    def add(self, events: int, carried: int) -> None:
        """Add so many events, of which so many are carried and the others shown."""
        self.events_read += events
        self.carried += carried
        self.rendered += events - carried

    def refuse(self, events: int) -> None:
        """Add the events of a frame that was refused, the one that failed included."""
        self.events_read += events + 1
        self.refused += events + 1

    @property
    def is_balanced(self) -> bool:
        """Whether nothing is unaccounted for; true once the stream has ended, in any way."""
        return (
            self.bytes_received == self.bytes_framed + self.bytes_tail
            and self.events_read == self.rendered + self.carried + self.refused
        )


class ReplyStream:
    """One streamed Chat Completions answer of a target.

    choices: the request's `n`. withhold_usage: the gateway asked for stream usage on its own, so a
    frame with nothing else is not for the client. is_fast: whether frames may be read by templates.
    """

    def __init__(
        self,
        target: Target,
        limits: Limits,
        *,
        choices: int = 1,
        withhold_usage: bool = False,
        is_fast: bool = True,
    ) -> None:
        self.decoder = ChatDecoder(target, limits)
        self.fold = Fold(usage_incremental=target.preset.usage_incremental)
        self.ledger = Ledger()
        self.state = State.OPEN
        self.final = DONE_FRAME
        """The end marker as the provider sent it, to be shown when the record is durable."""
        self.all_finished = False
        """Whether every choice has its finish, or the end marker stands in for it."""
        self._table = TRANSITIONS[target.terminal]
        self._splitter = SseSplitter()
        self._templates = Templates(self.decoder, self.fold) if is_fast else None
        self._limits = limits
        self._expected = set(range(choices))
        self._withhold_usage = withhold_usage
        self._is_marked = False
        self._out: list[bytes] = []

    # ------------------------------------------------------------ bytes in

    def receive(self, chunk: bytes) -> list[ev.Event]:
        """Read bytes as they came; the events they complete. Raises a typed failure.

        What was read before the failure stays: `take` gives its bytes, `reply` its content.
        """
        ledger, limits = self.ledger, self._limits
        ledger.bytes_received += len(chunk)
        if not self._is_reading():
            self._late(self._splitter.feed(chunk), len(chunk))
            return []
        beyond = ledger.bytes_received - limits.stream_bytes_max
        is_long = self._splitter.pending + len(chunk) > limits.frame_bytes_max
        raws = self._splitter.feed(chunk if beyond <= 0 else chunk[:-beyond])
        events: list[ev.Event] = []
        for position, raw in enumerate(raws):
            try:
                ledger.bytes_framed += len(raw)
                if is_long and len(raw) > limits.frame_bytes_max:
                    raise _too_large("an event", limits.frame_bytes_max)
                events.extend(self._frame(raw))
            except Failure:
                self._stop(raws[position + 1 :], max(beyond, 0))
                raise
            if self.has_ended():
                self._stop(raws[position + 1 :], max(beyond, 0))
                return events
        if is_long and self._splitter.pending > limits.frame_bytes_max:
            self._stop([], max(beyond, 0))
            raise _too_large("an event", limits.frame_bytes_max)
        if beyond > 0:
            self._stop([], beyond)
            raise _too_large("a stream", limits.stream_bytes_max)
        return events

    def _is_reading(self) -> bool:
        return self.state is _OPEN or self.state is _FINISHED

    def _advance(self, signal: Signal) -> None:
        self.state = self._table[self.state, signal]

    def _stop(self, raws: list[bytes], beyond: int) -> None:
        """Read no further: what comes after the end or after a failure is counted, not shown.

        raws: frames already split off. beyond: bytes that were not given to the splitter.
        """
        if self.state is not State.ENDED:
            self._advance(Signal.ERROR)
        self._late(raws, sum(map(len, raws)) + self._splitter.pending + beyond)

    def _late(self, raws: list[bytes], size: int) -> None:
        self.ledger.bytes_tail += size
        self.ledger.frames_late += sum(1 for raw in raws if raw.strip(b"\r\n"))
        if self._splitter.pending > self._limits.frame_bytes_max:
            self._splitter.close()

    def _frame(self, raw: bytes) -> list[ev.Event]:
        """Read one frame. Raises a typed failure, which the caller answers."""
        self.ledger.frames += 1
        if self._templates is not None:
            hit = self._templates.match(raw)
            if hit is not None:
                self._out.append(hit.out)
                self.ledger.add(len(hit.events), hit.carried)
                return hit.events
        frame = parse_frame(raw)
        self.ledger.fields_unknown += frame.unknown_fields
        failure = _failure_outside_data(frame)
        if failure is not None:
            self.ledger.refuse(0)
            raise failure
        data = frame.data.strip() if frame.data is not None else b""
        if not data:
            self._comments(frame)
            return []
        if data == b"[DONE]":
            return self._done(frame)
        return self._data(frame, data)

    def _comments(self, frame: Frame) -> None:
        """Comments pass as keep-alives; an event without data is the provider's word to us."""
        if frame.comments:
            self._out.append(b"".join(b":" + line + b"\n" for line in frame.comments) + b"\n")

    def _done(self, frame: Frame) -> list[ev.Event]:
        done: list[ev.Event] = [ev.Done()]
        is_good = self._table[self.state, Signal.DONE] is State.ENDED
        # Even where [DONE] needs no finish, an answer without its choices is none.
        if not is_good or not self._expected <= self.decoder.seen:
            self.ledger.refuse(0)
            raise _incomplete("[DONE] came before a finish reason")
        if not self.all_finished:
            self.decoder.flag("missing_finish")
        self._advance(Signal.DONE)
        self.all_finished = True
        self._is_marked = True
        if frame.shown.endswith((b"\n\n", b"\r\n\r\n")):
            self.final = frame.shown
        self.ledger.count(done)
        return done

    def _data(self, frame: Frame, data: bytes) -> list[ev.Event]:
        try:
            decoded = self.decoder.chunk(data)
        except Failure:
            self.ledger.refuse(self.decoder.pending_events)
            if frame.event == b"error":
                raise line_failure(data) from None
            raise
        if frame.event == b"error" and decoded.failure is None:
            decoded.failure = line_failure(data)
        for event in decoded.events:
            self.fold.add(event)
        self.ledger.count(decoded.events)
        if decoded.failure is not None:
            raise decoded.failure
        self.all_finished = self._expected | self.decoder.seen <= self.decoder.finished
        self._advance(Signal.ALL_FINISHED if self.all_finished else Signal.FRAME)
        if not (decoded.is_usage_only and self._withhold_usage):
            self._show(frame, decoded)
        if self._templates is not None:
            self._templates.learn(frame, data, decoded)
        return decoded.events

    def _show(self, frame: Frame, decoded: Decoded) -> None:
        if decoded.payloads is None:
            self._out.append(frame.shown)
            return
        for payload in decoded.payloads[:-1]:
            self._out.append(b"data: " + payload + b"\n\n")
        self._out.append(frame.with_data(decoded.payloads[-1]))

    # ----------------------------------------------------------- bytes out

    def take(self) -> bytes:
        """What the client may see by now, without the end marker; b"" if nothing is new."""
        if not self._out:
            return b""
        out = b"".join(self._out) if len(self._out) > 1 else self._out[0]
        self._out.clear()
        return out

    # ----------------------------------------------------------------- end

    def has_ended(self) -> bool:
        """Whether the end marker was read: nothing that follows matters."""
        return self.state is _ENDED

    def close(self, *, is_cut: bool = False) -> Reply:
        """The reply, if the stream ended legally. Raises UpstreamStreamIncomplete otherwise.

        is_cut: the body stopped before its own framing said so. `take` may have more afterwards.
        """
        is_inside = self._last_event()
        self._advance(Signal.CUT if is_cut or is_inside else Signal.END)
        self._flush()
        if self.state is not State.CLOSED:
            if is_cut or is_inside:
                where = "inside an event" if is_inside else "between two events"
                raise _incomplete(f"it was cut {where}")
            raise _incomplete("it ended before a finish reason")
        if not self._is_marked:
            self.decoder.flag("missing_done")
        return self.reply()

    def abandon(self) -> Reply:
        """What arrived, of a stream that nobody reads on; `take` may have more afterwards."""
        if self._is_reading():
            self.ledger.bytes_tail += len(self._splitter.close())
        self._advance(Signal.CUT)
        self._flush()
        return self.reply()

    def _last_event(self) -> bool:
        """Read an event without its blank line, if it is whole; returns whether one broke off."""
        if not self._is_reading():
            return False
        raw = self._splitter.close()
        frame = parse_frame(raw)
        is_whole = _is_whole((frame.data or b"").strip())
        if not is_whole and _failure_outside_data(frame) is None:
            self.ledger.bytes_tail += len(raw)
            return has_fields(raw)
        self.ledger.bytes_framed += len(raw)
        try:
            self._frame(raw.rstrip(b"\r\n") + b"\n\n")
        except Failure:
            self._stop([], 0)
            raise
        return False

    def _flush(self) -> None:
        held = self.decoder.close()
        for event in held.events:
            self.fold.add(event)
        self.ledger.count(held.events)
        for payload in held.payloads or ():
            self._out.append(b"data: " + payload + b"\n\n")

    def reply(self) -> Reply:
        """What arrived so far, on any ending."""
        return finished_reply(self.fold, self.decoder)


def _incomplete(what: str) -> UpstreamStreamIncomplete:
    return UpstreamStreamIncomplete(f"the provider's stream broke off: {what}")


def _too_large(what: str, bytes_max: int) -> UpstreamTooLarge:
    return UpstreamTooLarge(f"the provider sent {what} of more than {bytes_max} bytes")


def read_whole(
    data: bytes, target: Target, limits: Limits, *, choices: int = 1
) -> tuple[Reply, bytes, ChatDecoder, list[ev.Event]]:
    """Read a whole answer: its reply, the client's bytes, the decoder and the events.

    choices: the request's `n`; fewer choices in the answer are a flag, not a failure. Raises the
    typed failure of an error body, or of an answer that cannot be carried.
    """
    if len(data) > limits.body_bytes_max:
        raise _too_large("a body", limits.body_bytes_max)
    decoder = ChatDecoder(target, limits)
    decoded, _ = decoder.body(data)
    fold = Fold(usage_incremental=target.preset.usage_incremental)
    for event in decoded.events:
        fold.add(event)
    if len(decoder.seen) < choices:
        decoder.flag("missing_choices")
    shown = decoded.payloads[-1] if decoded.payloads else data
    return finished_reply(fold, decoder), shown, decoder, decoded.events


def finished_reply(fold: Fold, decoder: ChatDecoder) -> Reply:
    """The fold's reply with the decoder's flags and drift, and tool arguments looked at."""
    for index in decoder.seen:
        fold.open(index)
    reply = fold.reply()
    reply.flags = list(decoder.flags)
    reply.drift = decoder.drifted
    for choice in reply.choices:
        mirrored = decoder.choice(choice.index).carriers
        choice.carriers = list(dict.fromkeys([*choice.carriers, *mirrored]))
        for call in choice.tool_calls:
            if call.arguments and call.arguments.strip() and not _is_json(call.arguments):
                reply.flags.append("tool_arguments_invalid")
    reply.flags = list(dict.fromkeys(reply.flags))
    return reply


def _failure_outside_data(frame: Frame) -> Failure | None:
    """The error of an `error:` line, or of a bare JSON body that calls itself an event stream."""
    if frame.error is not None:
        return line_failure(frame.error)
    if frame.data is None and frame.unknown_fields:
        try:
            return reported_failure(read_provider(frame.shown).value)
        except Malformed:
            return None  # Not JSON, so only a field that nobody defines; it is counted.
    return None


def _is_whole(data: bytes) -> bool:
    """Whether the data of a last event is whole: the end marker, or JSON that closes by itself."""
    if data == b"[DONE]":
        return True
    try:
        return isinstance(read_provider(data).value, dict | list)
    except Malformed:
        return False


def _is_json(text: str) -> bool:
    try:
        return not read_provider(text.encode("utf-8", "surrogatepass")).has_nonfinite
    except Malformed:
        return False
