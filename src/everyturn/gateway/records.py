"""What the gateway records of its requests, and when: rows before the call, rows before the end.

`Recording` is the gateway's one way to the store. A turn's rows go through a `TurnRecord`; requests
that no turn came of leave one access row. With recording off, both do nothing.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from everyturn import ids
from everyturn.audit.answer import user_text
from everyturn.audit.cleaning import Cleaner
from everyturn.audit.content import ContentIndex
from everyturn.audit.facts import CallClosing, CallOpening, Cost, TurnOpening, rounded_ms
from everyturn.audit.group import Group
from everyturn.audit.recorder import TurnRecorder
from everyturn.audit.records import AccessEvent, StreamState
from everyturn.audit.redact import Redacted, Redactor
from everyturn.audit.rules import Rule
from everyturn.audit.sent import raw_messages
from everyturn.audit.turn_state import TurnState
from everyturn.audit.usage import Tokens
from everyturn.errors import AuditUnavailable, Failure, NotPermitted
from everyturn.gateway.call import CallResult
from everyturn.gateway.http import Exchange, failure_body, failure_frame
from everyturn.gateway.keys import redaction_key
from everyturn.gateway.local_reads import LocalReads
from everyturn.gateway.log import Log
from everyturn.gateway.models import Model
from everyturn.gateway.pricing import price_as_served
from everyturn.gateway.turn_states import TurnStates
from everyturn.gateway.unstored import Unstored, without_answer
from everyturn.store.document import document
from everyturn.store.local_reads import LocalRead
from everyturn.store.reader import Reader
from everyturn.store.sqlite import SqliteStore
from everyturn.store.writer import GroupWriter
from everyturn.wire.dialects.openai_chat import Encoded
from everyturn.wire.request import ChatRequest

LOOP_BYTES_MAX: Final = 256 << 10
"""Of a request whose messages are cleaned on the event loop; those of a larger one by a thread."""
LONG_BYTES: Final = 16 << 10
"""Of a message of such a request that the thread cleans; the others take no time."""

Ready = dict[bytes | str, Redacted[str]]
"""What was sent → as it may rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """How turns are recorded."""

    is_on: bool
    data: Path
    durability: Literal["process", "disk"]
    on_failure: Literal["refuse", "serve"]
    queue_bytes_max: int
    service: str
    instance: str
    environment: str
    known_secrets: tuple[str, ...]
    """Provider keys, and values the operator named: the first things that redaction knows."""
    rules: tuple[Rule, ...]
    """What redaction finds."""
    media_bytes_max: int
    """Of a file or medium that is kept; 0: none is."""

    def __repr__(self) -> str:
        return f"RecordSettings(is_on={self.is_on}, data={self.data})"


class Recording:
    """Writes turns and requests of one gateway."""

    def __init__(self, settings: RecordSettings, log: Log) -> None:
        self.settings = settings
        self.log = log
        self.unrecorded_turns = 0
        """Turns served without a record, by the operator's choice of `on_failure`."""
        self.access_events_lost = 0
        """Access rows of requests without a turn that could not be written."""
        self.states = TurnStates(settings.data)
        """The turns under way, and the latest that applications spoke of."""
        self._large = asyncio.Lock()
        """Held while a thread cleans a large request: two would only share the interpreter."""
        self._writer: GroupWriter | None = None
        self._store: SqliteStore | None = None
        if not settings.is_on:
            return
        key = redaction_key(settings.data)
        redactor = Redactor(key, known=settings.known_secrets, rules=settings.rules)
        self.cleaner = Cleaner(redactor, key)
        store = self._store = SqliteStore(settings.data, durability=settings.durability)
        interrupted = store.close_interrupted(now=now_us())
        if interrupted:
            log("record.closed_interrupted", count=interrupted)
        self.contents = ContentIndex(redactor.version, node_first=store.node_last + 1)
        self._writer = GroupWriter(
            store,
            on_committed=self.contents.confirm,
            may_use_loop=settings.durability == "process",
            queue_bytes_max=settings.queue_bytes_max,
        )
        self.unstored = Unstored(self._writer, self._count_unrecorded)
        self._local_reads = LocalReads(settings.data, self._record_local_read, log)

    def start(self) -> None:
        """Begin to write; on the event loop that will record."""
        if self._writer is not None:
            self._writer.start()
            self._local_reads.start()

    def _count_unrecorded(self) -> None:
        self.unrecorded_turns += 1

    @property
    def is_healthy(self) -> bool:
        """Whether records can be written, as far as the last try says."""
        return self._writer is None or self._writer.healthy

    @property
    def sync_failures(self) -> int:
        """How often records that are with the kernel could not be brought to the disk."""
        return 0 if self._store is None else self._store.sync_failures

    @property
    def queued_bytes(self) -> int:
        """Bytes of records that wait for the store."""
        return 0 if self._writer is None else self._writer.queued_bytes

    def may_rest(self, text: str) -> bool:
        """Whether no rule finds a secret in a text that is recorded as it is, such as an id."""
        return self._writer is None or self.cleaner.text(text).value == text

    async def turn(self, exchange: Exchange) -> TurnRecord:
        """The record of the turn that this exchange opens or joins; `release` it at the end."""
        if self._writer is None:
            return TurnRecord(self, exchange, None)
        name = exchange.principal.name
        if not exchange.is_joining:
            return TurnRecord(self, exchange, self.states.new(exchange.turn_id, principal=name))
        state = await self.states.joined(exchange.turn_id)
        if not state.claim(name):
            self.states.release(exchange.turn_id, state)
            raise NotPermitted(
                "this turn was opened with another key",
                param="x-everyturn-turn-id",
                hint="Only the key that opened a turn may join it.",
            )
        return TurnRecord(self, exchange, state)

    def append(self, group: Group) -> Coroutine[Any, Any, None]:
        """Returns, when it is awaited, once the group is durable. Raises AuditUnavailable."""
        assert self._writer is not None  # Only a TurnRecord that is on appends.
        return self._writer.append(group)

    async def access(self, exchange: Exchange) -> None:
        """The access row of a request that no turn came of."""
        if self._writer is None or exchange.has_record:
            return
        try:
            event = self.access_event(exchange, has_turn=exchange.has_turn)
            await self._writer.append(Group((event,)))
        except AuditUnavailable as failure:
            # The request was answered, and it held no turn: what is left to do is to count.
            self.access_events_lost += 1
            self.log("record.access_lost", error_code=failure.code, request_id=exchange.request_id)

    def access_event(
        self, exchange: Exchange, *, has_turn: bool, owed_bytes: int = 0
    ) -> AccessEvent:
        """The access row. owed_bytes: what of the answer's body has yet to leave."""
        settings = self.settings
        return AccessEvent(
            access_id=time_id("acc", exchange.started_us),
            timestamp=exchange.started_us,
            service=settings.service or None,
            instance=settings.instance or None,
            environment=settings.environment or None,
            request_id=exchange.request_id,
            trace_id=exchange.trace.trace_id,
            span_id=exchange.trace.span_id,
            parent_span_id=exchange.parent_span_id,
            turn_id=exchange.turn_id if has_turn else None,
            principal=exchange.principal.name,
            method=exchange.method[:16],
            path_template=exchange.route,
            status_code=exchange.status,
            duration_ms=rounded_ms(exchange.elapsed_ms),
            request_size_bytes=exchange.received_bytes,
            response_size_bytes=exchange.sent_bytes + owed_bytes,
            client_type=exchange.client_type,
            error_code=exchange.error_code,
            redaction_applied=True,
            redaction_rules_version=self.cleaner.version,
        )

    async def cleaned_beside(self, opening: CallOpening) -> Ready:
        """The long messages of a request as they may rest, by a thread, one request at a time."""
        async with self._large:
            return await asyncio.to_thread(self._cleaned, opening)

    def _cleaned(self, opening: CallOpening) -> Ready:
        # Kept reasoning is taken out of its message by whoever opens the call, on the loop.
        raws = [] if opening.target.keep_reasoning_days else raw_messages(opening)
        long = (raw for raw in self.contents.unknown(raws) if len(raw) > LONG_BYTES)
        ready: Ready = {raw: self.cleaner.sent(raw) for raw in long}
        text = user_text(opening.sent.get("messages"))
        if text is not None and len(text) > LONG_BYTES:
            ready[text] = self.cleaner.text(text)
        return ready

    async def _record_local_read(self, read: LocalRead) -> None:
        settings = self.settings
        event = AccessEvent(
            access_id=read.access_id,
            timestamp=read.timestamp,
            service=settings.service or None,
            instance=settings.instance or None,
            environment=settings.environment or None,
            turn_id=read.turn_id,
            principal="local operator",
            method="CLI",
            path_template="everyturn show --include-reasoning",
            status_code=200,
            redaction_applied=True,
            redaction_rules_version=self.cleaner.version,
        )
        await self.append(Group((event,)))

    def read_turn(
        self, turn_id: str, *, include_reasoning: bool, permissions: frozenset[str]
    ) -> dict[str, Any] | None:
        """Everything recorded of one turn; None if there is nothing. Blocks: use a thread.

        Raises NotPermitted for reasoning without its permission.
        """
        if self._writer is None or not ids.is_turn_id(turn_id):
            return None
        with Reader(self.settings.data) as reader:
            found = reader.turn(
                turn_id, include_reasoning=include_reasoning, permissions=permissions
            )
        return None if found is None else {"turn_id": turn_id, **document(found)}

    async def close(self) -> None:
        """Write what is queued and close the store."""
        if self._writer is not None:
            self.unstored.stop()
            self._local_reads.stop()
            await self._writer.close()


class TurnRecord:
    """The record of one turn while it runs."""

    def __init__(self, recording: Recording, exchange: Exchange, state: TurnState | None) -> None:
        """state: of the turn; None when nothing is recorded."""
        self._recording = recording
        self._exchange = exchange
        self._is_on = state is not None
        self._state = state
        self._model: Model | None = None
        self._call_id = ""
        self._unstored: Group | None = None
        """The closed rows, where they could not be written."""
        if state is None:
            return
        settings = recording.settings
        self._recorder = TurnRecorder(
            TurnOpening(
                turn_id=exchange.turn_id,
                timestamp=exchange.started_us,
                trace_id=exchange.trace.trace_id,
                span_id=exchange.trace.span_id,
                parent_span_id=exchange.parent_span_id,
                request_id=exchange.request_id,
                principal=exchange.principal.name,
                service=settings.service or None,
                environment=settings.environment or None,
                is_new=not exchange.is_joining,
            ),
            cleaner=recording.cleaner,
            contents=recording.contents,
            state=state,
            media_bytes_max=settings.media_bytes_max,
        )

    async def open(
        self, request: ChatRequest, model: Model, encoded: Encoded, call_span: str
    ) -> None:
        """Make the rows of turn and call durable. Raises AuditUnavailable, unless the operator
        chose to serve unrecorded."""
        if not self._is_on:
            return
        started_us = now_us()
        self._model = model
        self._call_id = time_id("call", started_us)
        opening = CallOpening(
            model_call_id=self._call_id,
            timestamp=started_us,
            span_id=call_span,
            target=model.target,
            requested_model=request.model,
            sent=encoded.sent,
            stream=encoded.stream,
            reasoning_tags=encoded.reasoning_tags,
            transport="worker" if model.is_on_worker else "direct",
        )
        ready: Ready = {}
        if self._exchange.received_bytes > LOOP_BYTES_MAX:
            ready = await self._recording.cleaned_beside(opening)
        await self._append(self._opened(opening, ready))

    def _opened(self, opening: CallOpening, ready: Ready) -> Group:
        if not ready:
            return self._recorder.open_call(opening)
        with self._recording.cleaner.having(ready):
            return self._recorder.open_call(opening)

    async def refuse(self, failure: Failure, request: ChatRequest | None) -> None:
        """Record a turn that ends before its call. What cannot be written is counted."""
        exchange = self._exchange
        if not self._is_on:
            return
        exchange.has_record = True
        exchange.status = failure.status
        exchange.error_code = failure.code
        group = self._recorder.close_turn(
            duration_ms=exchange.elapsed_ms,
            call=self._unopened(failure),
            failure=failure,
            body=None if request is None else request.body,
            access=self._recording.access_event(
                exchange, has_turn=True, owed_bytes=len(failure_body(failure))
            ),
        )
        try:
            await self._append(group)
        except AuditUnavailable:
            # The client is being refused already; its failure says more than ours would.
            self._recording.unrecorded_turns += 1

    def _unopened(self, failure: Failure) -> CallClosing | None:
        """The closing of a call whose opening could not be committed; None if there was none."""
        if not self._call_id:
            return None
        return CallClosing(stream_state="error", failure=failure, status_code=failure.status)

    async def close(self, result: CallResult) -> None:
        """Make the closed rows durable. Raises AuditUnavailable as `open` does."""
        if not self._is_on:
            return
        exchange, failure = self._exchange, result.failure
        is_gone = exchange.is_client_gone
        exchange.has_record = True
        exchange.error_code = None if failure is None else failure.code
        if exchange.status is None and not is_gone:
            exchange.status = _status(result)
        call = CallClosing(
            stream_state=cast(StreamState, result.stream_state),
            reply=result.reply,
            failure=failure,
            is_client_gone=is_gone,
            is_shown=exchange.is_started or bool(result.tail),
            status_code=exchange.status,
            upstream_status=result.upstream_status,
            provider_request_id=result.provider_request_id,
            latency_ms=result.latency_ms,
            time_to_first_token_ms=result.time_to_first_token_ms,
            worker=result.journey.worker,
            queue_ms=result.journey.queue_ms,
            link_ms=result.journey.link_ms,
            upstream_ms=self._upstream_ms(result),
            notes=tuple(result.notes),
            pricing=self._pricing,
        )
        group = self._recorder.close_turn(
            duration_ms=exchange.elapsed_ms,
            call=call,
            access=self._recording.access_event(
                exchange, has_turn=True, owed_bytes=_owed_bytes(exchange, result)
            ),
        )
        self._recording.log(
            "llm.response",
            turn_id=exchange.turn_id,
            model_call_id=self._call_id,
            reasoning_chars=0 if result.reply is None else result.reply.reasoning_chars,
        )
        try:
            await self._append(group, may_be_later=True)
        except AuditUnavailable as failed:
            self._unstored = without_answer(group, failed, is_shown=call.is_shown)
            raise

    def release(self) -> None:
        """Say that nobody works on the turn here any more; once, however it ended."""
        if self._state is not None:
            self._recording.states.release(self._exchange.turn_id, self._state)

    def close_later(self) -> None:
        """Where the closed rows could not be written, once the client was told: have it recorded
        that the answer is not on record, as soon as that can be."""
        if self._unstored is not None:
            access = self._recording.access_event(self._exchange, has_turn=True)
            self._recording.unstored.add(Group((*self._unstored.records, access)))

    def _upstream_ms(self, result: CallResult) -> float | None:
        """The provider's part of a call's time; None where a worker did not tell of its own."""
        assert self._model is not None  # A call that closes was opened.
        if not self._model.is_on_worker:
            return result.latency_ms
        journey = result.journey
        if journey.link_ms is None:
            return None
        return max(0.0, result.latency_ms - ((journey.queue_ms or 0.0) + journey.link_ms))

    def _pricing(self, tokens: Tokens, served: str | None) -> Cost:
        assert self._model is not None  # A call that closes was opened.
        return price_as_served(self._model.target, tokens, served, at_us=now_us())

    async def _append(self, group: Group, *, may_be_later: bool = False) -> None:
        """Store a group. may_be_later: what could not be stored is `close_later`'s."""
        is_refusing = self._recording.settings.on_failure == "refuse"
        try:
            await self._recording.append(group)
        except AuditUnavailable:
            if not (may_be_later and is_refusing):
                # A later call that joins the turn must not go on from what nobody has.
                self._recorder.not_stored()
            if is_refusing:
                raise
            if self._is_on:
                self._recording.unrecorded_turns += 1
                self._recording.log("record.unrecorded", turn_id=self._exchange.turn_id)
            self._is_on = False


def _status(result: CallResult) -> int:
    """The HTTP status of an answer whose head has not left yet."""
    if result.failure is None or result.tail:
        return 200
    return result.failure.status


def _owed_bytes(exchange: Exchange, result: CallResult) -> int:
    """Bytes of the answer's body that leave after its record is durable."""
    if exchange.is_client_gone:
        return 0
    if result.failure is None:
        return len(result.tail) + len(result.final)
    if exchange.is_started or result.tail:
        return len(result.tail) + len(failure_frame(result.failure))
    return len(failure_body(result.failure))


def now_us() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000


def time_id(prefix: str, timestamp_us: int) -> str:
    """A record id that grows with time."""
    return ids.time_id(prefix, timestamp_us, random.getrandbits(64))


def open_recording(settings: RecordSettings, log: Log) -> Recording:
    """Open the store and begin to write.

    Raises AuditUnavailable and ConfigError when the data folder cannot be used.
    """
    recording = Recording(settings, log)
    recording.start()
    return recording
