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
from everyturn.wire.dialects.failures import line_failure
from everyturn.wire.fast import Templates
from everyturn.wire.frames import Frame, SseSplitter, parse_frame
from everyturn.wire.limits import Limits
from everyturn.wire.preset import Target, Terminal
from everyturn.wire.reader import Malformed, read_provider
from everyturn.wire.reply import Fold, Reply

DONE_FRAME: Final = b"data: [DONE]\n\n"


class State(enum.Enum):
    """Where a stream is."""

    OPEN = "open"
    FINISHED = "finished"
    ENDED = "ended"
    CLOSED = "closed"
    FAILED = "failed"


class Signal(enum.Enum):
    """What happened."""

    FRAME = "frame"
    ALL_FINISHED = "all finished"
    DONE = "[DONE]"
    ERROR = "error"
    END = "clean end"
    CUT = "cut"


Transitions = dict[tuple[State, Signal], State]

_FINISH: Final[Transitions] = {
    (State.OPEN, Signal.FRAME): State.OPEN,
    (State.OPEN, Signal.ALL_FINISHED): State.FINISHED,
    (State.OPEN, Signal.DONE): State.FAILED,
    (State.OPEN, Signal.ERROR): State.FAILED,
    (State.OPEN, Signal.END): State.FAILED,
    (State.OPEN, Signal.CUT): State.FAILED,
    (State.FINISHED, Signal.FRAME): State.FINISHED,
    (State.FINISHED, Signal.ALL_FINISHED): State.FINISHED,
    (State.FINISHED, Signal.DONE): State.ENDED,
    (State.FINISHED, Signal.ERROR): State.FAILED,
    (State.FINISHED, Signal.END): State.CLOSED,
    (State.FINISHED, Signal.CUT): State.FAILED,
    (State.ENDED, Signal.END): State.CLOSED,
    (State.ENDED, Signal.CUT): State.CLOSED,
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
    events_read: int = 0
    rendered: int = 0
    carried: int = 0
    refused: int = 0
    frames: int = 0
    frames_after_end: int = 0

    def count(self, events: list[ev.Event]) -> None:
        """Add events that were shown or carried."""
        carried = sum(1 for event in events if isinstance(event, ev.Unknown | ev.Drift))
        self.events_read += len(events)
        self.carried += carried
        self.rendered += len(events) - carried

    def refuse(self, events: int) -> None:
        """Add the events of a frame that was refused, the one that failed included."""
        self.events_read += events + 1
        self.refused += events + 1

    @property
    def is_balanced(self) -> bool:
        """Whether nothing is unaccounted for."""
        return (
            self.bytes_received == self.bytes_framed + self.bytes_tail
            and self.events_read == self.rendered + self.carried + self.refused
        )


class ReplyStream:
    """One streamed Chat Completions answer of a target.

    choices: the request's `n`. withhold_usage: the gateway asked for stream usage on its own, so a
    frame with nothing else is not for the client.
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
        self._table = TRANSITIONS[target.terminal]
        self._splitter = SseSplitter(frame_bytes_max=limits.frame_bytes_max)
        self._templates = Templates(self.decoder, self.fold) if is_fast else None
        self._limits = limits
        self._expected = set(range(choices))
        self._withhold_usage = withhold_usage
        self._out: list[bytes] = []

    # ------------------------------------------------------------ bytes in

    def receive(self, chunk: bytes) -> list[ev.Event]:
        """Read bytes as they came; the events they complete. Raises a typed failure.

        What was read before the failure stays: `take` gives its bytes, `reply` its content.
        """
        self.ledger.bytes_received += len(chunk)
        if self.has_ended():
            self._tail(chunk)
            return []
        if self.ledger.bytes_received > self._limits.stream_bytes_max:
            self.ledger.bytes_tail += len(chunk)
            self._fail(Signal.ERROR)
            raise UpstreamTooLarge(
                f"the provider's stream passes {self._limits.stream_bytes_max} bytes"
            )
        events: list[ev.Event] = []
        raws = self._splitter.feed(chunk)
        for position, raw in enumerate(raws):
            try:
                events += self._frame(raw)
            except Failure:
                self._abandon(raws[position + 1 :])
                raise
            if self.has_ended():
                for late in raws[position + 1 :]:
                    self._tail(late)
                self._abandon([])
                break
        if self._splitter.is_overfull:
            self._abandon([])
            self._fail(Signal.ERROR)
            raise UpstreamTooLarge(
                f"the provider sent an event of more than {self._limits.frame_bytes_max} bytes"
            )
        return events

    def _tail(self, raw: bytes) -> None:
        self.ledger.bytes_tail += len(raw)
        self.ledger.frames_after_end += 1

    def _abandon(self, raws: list[bytes]) -> None:
        """What comes after the end or after a failure is counted, not shown."""
        for raw in raws:
            self._tail(raw)
        self.ledger.bytes_tail += len(self._splitter.close())

    def _frame(self, raw: bytes) -> list[ev.Event]:
        self.ledger.bytes_framed += len(raw)
        self.ledger.frames += 1
        templates = self._templates
        if templates is not None:
            hit = templates.match(raw)
            if hit is not None:
                self._out.append(hit.out)
                self.ledger.events_read += len(hit.events)
                self.ledger.carried += hit.carried
                self.ledger.rendered += len(hit.events) - hit.carried
                return hit.events
        frame = parse_frame(raw)
        if frame.error is not None:
            self._refuse(line_failure(frame.error), 0)
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
        if self._table[self.state, Signal.DONE] is State.FAILED:
            self._refuse(self._incomplete("[DONE] came before a finish reason"), 0)
        if self.state is State.OPEN:
            self.decoder.flag("missing_finish")
        self.state = self._table[self.state, Signal.DONE]
        self.final = frame.shown if frame.shown.endswith((b"\n\n", b"\r\n\r\n")) else DONE_FRAME
        self.ledger.count(done)
        return done

    def _data(self, frame: Frame, data: bytes) -> list[ev.Event]:
        try:
            decoded = self.decoder.chunk(data)
        except Failure as failure:
            self._refuse(failure, self.decoder.pending_events)
        if frame.event == b"error" and decoded.failure is None:
            decoded.failure = line_failure(data)
        for event in decoded.events:
            self.fold.add(event)
        self.ledger.count(decoded.events)
        if decoded.failure is not None:
            self._fail(Signal.ERROR)
            raise decoded.failure
        is_finished = self._expected | self.decoder.seen <= self.decoder.finished
        signal = Signal.ALL_FINISHED if is_finished else Signal.FRAME
        self.state = self._table[self.state, signal]
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

    def _refuse(self, failure: Failure, events: int) -> None:
        self.ledger.refuse(events)
        self._fail(Signal.ERROR)
        raise failure

    def _fail(self, signal: Signal) -> None:
        self.state = self._table.get((self.state, signal), State.FAILED)

    def _incomplete(self, what: str) -> UpstreamStreamIncomplete:
        return UpstreamStreamIncomplete(f"the provider's stream broke off: {what}")

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
        return self.state is State.ENDED

    @property
    def all_finished(self) -> bool:
        """Whether every choice has its finish."""
        return self.state in (State.FINISHED, State.ENDED, State.CLOSED)

    def close(self, *, is_cut: bool = False) -> Reply:
        """The reply, if the stream ended legally. Raises UpstreamStreamIncomplete otherwise.

        is_cut: the body stopped before its own framing said so. `take` may have more afterwards.
        """
        self._last_event()
        signal = Signal.CUT if is_cut else Signal.END
        had_marker = self.has_ended()
        self.state = self._table.get((self.state, signal), State.FAILED)
        self._flush()
        if self.state is not State.CLOSED:
            raise self._incomplete(
                "the connection was cut" if is_cut else "it ended before a finish reason"
            )
        if not had_marker:
            self.decoder.flag("missing_done")
        return self.reply()

    def _last_event(self) -> None:
        """An event without its blank line counts, if it is whole; else it is tail."""
        raw = self._splitter.close()
        if not raw:
            return
        frame = parse_frame(raw)
        data = (frame.data or b"").strip()
        if self.state is State.ENDED or not _is_whole(data):
            self.ledger.bytes_tail += len(raw)
            return
        self._frame(raw)
        if self._out and not self._out[-1].endswith(b"\n\n"):
            self._out[-1] = self._out[-1].rstrip(b"\r\n") + b"\n\n"

    def _flush(self) -> None:
        held = self.decoder.close()
        for event in held.events:
            self.fold.add(event)
        self.ledger.count(held.events)
        for payload in held.payloads or ():
            self._out.append(b"data: " + payload + b"\n\n")

    def abandon(self) -> Reply:
        """What arrived, where no ending will come; `take` may have text that was held back."""
        self._flush()
        return self.reply()

    def reply(self) -> Reply:
        """What arrived so far, on any ending."""
        return finished_reply(self.fold, self.decoder)


def read_whole(
    data: bytes, target: Target, limits: Limits, *, choices: int = 1
) -> tuple[Reply, bytes, ChatDecoder, list[ev.Event]]:
    """Read a whole answer: its reply, the client's bytes, the decoder and the events.

    choices: the request's `n`; fewer choices in the answer are a flag, not a failure. Raises the
    typed failure of an error body, or of an answer that cannot be carried.
    """
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
    reply = fold.reply()
    for name in decoder.flags:
        reply.flag(name)
    reply.drift = decoder.drift
    for choice in reply.choices:
        for call in choice.tool_calls:
            if call.arguments and call.arguments.strip() and not _is_json(call.arguments):
                reply.flag("tool_arguments_invalid")
    return reply


def _is_whole(data: bytes) -> bool:
    """Whether the data of a last event is whole: the end marker, or JSON that can be read."""
    if data == b"[DONE]":
        return True
    try:
        read_provider(data)
    except Malformed:
        return False
    return True


def _is_json(text: str) -> bool:
    try:
        read_provider(text.encode("utf-8", "surrogatepass"))
    except Malformed:
        return False
    return True
