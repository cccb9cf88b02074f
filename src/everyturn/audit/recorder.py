"""One turn's facts into records, on every way it can end.

Pure: facts in, groups out. Nothing is kept of a body but what its rows hold; every text passes the
cleaner before it stands in a record. A row is given whole each time, its revision one higher.

    recorder = TurnRecorder(opening, cleaner=…, contents=…)
    group = recorder.open_call(CallOpening(…))          # commit, then ask the provider
    group = recorder.close_call(CallClosing(…))         # an attempt that another one follows
    group = recorder.close_turn(…, call=CallClosing(…), access=…)   # commit, then the last bytes
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from everyturn.audit.answer import (
    answer_text,
    answer_tree,
    carriers_of,
    finish_of,
    tool_calls_in,
    user_text,
)
from everyturn.audit.cleaning import Cleaner, merged
from everyturn.audit.content import ContentIndex
from everyturn.audit.facts import CallClosing, CallOpening, TurnOpening, rounded_ms
from everyturn.audit.group import Group
from everyturn.audit.kept import WAY, Shelf
from everyturn.audit.outcome import Ending, ending_of
from everyturn.audit.reasoning import texts_in, without_reasoning
from everyturn.audit.records import (
    REDACTIONS_NONE,
    AccessEvent,
    ContentRef,
    Medium,
    ModelCall,
    ReasoningText,
    Record,
    TurnAudit,
)
from everyturn.audit.redact import NONE_FOUND, Counts, Redacted
from everyturn.audit.sent import raw_items, raw_messages
from everyturn.audit.shelf import MediaShelf
from everyturn.audit.turn_state import Mark, TurnState, filled
from everyturn.audit.usage import COUNT_MAX, NOT_REPORTED, tokens_of
from everyturn.errors import Failure, ProtocolDrift
from everyturn.wire import reader
from everyturn.wire.reply import Reply

_LISTED: Final = ("messages", "tools")
_replace: Final = msgspec.structs.replace


class _OpenCall:
    """A call that was opened and has not closed."""

    __slots__ = ("counts", "opening", "row")

    def __init__(self, opening: CallOpening, row: ModelCall, counts: Counts) -> None:
        self.opening = opening
        self.row = row
        self.counts = counts


class _Said:
    """What a provider said, as it may rest."""

    __slots__ = ("counts", "finish", "request_id", "response", "served", "tokens", "usage")

    def __init__(self, request_id: str | None, counts: Counts) -> None:
        self.request_id = request_id
        self.counts = counts
        self.response: str | None = None
        self.usage: str | None = None
        self.tokens = NOT_REPORTED
        self.served: str | None = None
        self.finish: str | None = None


class TurnRecorder:
    """Records one turn. Use from one task; methods in the order of the module's example.

    contents: knows what is stored already; its `confirm` is called by whoever commits a group.
    """

    def __init__(
        self,
        opening: TurnOpening,
        *,
        cleaner: Cleaner,
        contents: ContentIndex,
        state: TurnState | None = None,
        media_bytes_max: int = 0,
    ) -> None:
        """media_bytes_max: of a medium that is kept; 0: none is."""
        self._opening = opening
        self._media: MediaShelf | None = None
        """Takes the turn's media, where the deployment keeps them."""
        if media_bytes_max:
            self._media = MediaShelf(cleaner, opening.timestamp, media_bytes_max)
            cleaner = cleaner.keeping(self._media.keep)
        self._cleaner = cleaner
        self._contents = contents
        self._state = state if state is not None else TurnState()
        self._user_text: str | None = None
        self._turn_counts: Counts = NONE_FOUND
        self._open: _OpenCall | None = None
        self._marks: tuple[Mark, Mark]
        """The turn's state before and after the newest group."""
        self._is_counted = True
        """Whether the open call is among the turn's calls."""
        self._shelf: Shelf | None = None
        """Takes the open call's reasoning, where the deployment keeps it."""

    # -------------------------------------------------------------- opening

    def open_call(self, opening: CallOpening) -> Group:
        """The turn, if this is its first call, and the call, both open; and content that is new.

        Has to be durable before the provider is asked.
        """
        assert self._open is None, "the call before is still open"
        cleaner, sent = self._cleaner, opening.sent
        before = self._state.mark()
        records: list[Record] = []
        if opening.target.keep_reasoning_days:
            shelf = self._shelf = Shelf(cleaner, self._opening.turn_id, opening)
            messages = self._contents.refer(raw_messages(opening, shelf.keep), shelf.sent, way=WAY)
        else:
            self._shelf = None
            messages = self._contents.refer(raw_messages(opening), cleaner.sent)
        self._read_user_text(sent.get("messages"), is_clean=not messages.counts)
        if self._state.row is None:
            self._state.row = self._open_turn()
            records.append(self._state.row)
        tools = self._contents.refer(raw_items(sent.get("tools")), cleaner.sent)
        rest = {name: value for name, value in sent.items() if name not in _LISTED}
        parameters = cleaner.parameters(rest)
        counts = merged(messages.counts, tools.counts, parameters.counts)
        # An empty list that was sent is something else than no list.
        listed = "[]" if sent.get("tools") == [] else tools.ref
        row = self._call_row(opening, messages.ref, listed, parameters.value, counts)
        self._open = _OpenCall(opening, row, counts)
        self._state.calls += 1
        self._is_counted = True
        records.append(row)
        self._marks = before, self._state.mark()
        return Group(
            tuple(records),
            messages.contents + tools.contents,
            messages.nodes + tools.nodes,
            messages.known + tools.known,
            self._kept(),
            self._kept_media(),
            len(records) > 1 and self._opening.is_new,
        )

    def not_stored(self) -> None:
        """The newest group could not be stored. A call that it opened may still be closed."""
        before, after = self._marks
        self._state.take_back(before, after)
        self._is_counted = after.calls == before.calls
        if self._media is not None:
            self._media.give_back()

    def _kept(self) -> tuple[ReasoningText, ...]:
        return () if self._shelf is None else self._shelf.take()

    def _kept_media(self) -> tuple[Medium, ...]:
        return () if self._media is None else self._media.take()

    def _read_user_text(self, messages: Any, *, is_clean: bool) -> None:
        text = user_text(messages)
        if text is not None:
            cleaned = self._text(text, is_clean=is_clean)
            self._user_text, self._turn_counts = cleaned.value, cleaned.counts

    def _text(self, text: str, *, is_clean: bool) -> Redacted[str]:
        """A text as it may rest. is_clean: no rule found anything in the JSON it stands in."""
        if is_clean and "data:" not in text:
            return Redacted(text, NONE_FOUND)
        return self._cleaner.text(text)

    def _open_turn(self) -> TurnAudit:
        facts = self._opening
        return TurnAudit(
            turn_id=facts.turn_id,
            timestamp=facts.timestamp,
            project_id=facts.project_id,
            chat_id=facts.chat_id,
            plugin=facts.plugin,
            service=facts.service,
            environment=facts.environment,
            trace_id=facts.trace_id,
            span_id=facts.span_id,
            parent_span_id=facts.parent_span_id,
            request_id=facts.request_id,
            principal=facts.principal,
            user_message_id=facts.user_message_id,
            user_text=self._user_text,
            origin=facts.origin,
            redaction_applied=True,
            redaction_rules_version=self._cleaner.version,
            redactions_json=_counts_json(self._turn_counts),
        )

    def _call_row(
        self,
        opening: CallOpening,
        messages: ContentRef | None,
        tools: ContentRef | str | None,
        parameters: str,
        counts: Counts,
    ) -> ModelCall:
        facts, target, sent = self._opening, opening.target, opening.sent
        return ModelCall(
            model_call_id=opening.model_call_id,
            turn_id=facts.turn_id,
            trace_id=facts.trace_id,
            span_id=opening.span_id,
            parent_span_id=facts.span_id,
            attempt=opening.attempt,
            fallback_of=opening.fallback_of,
            timestamp=opening.timestamp,
            provider_id=target.preset.name,
            provider_type=opening.provider_type,
            base_url=self._cleaner.url(target.base_url),
            model_registry_id=target.name,
            requested_model=opening.requested_model,
            route_name=opening.route_name or target.name,
            transport=opening.transport,
            stream=opening.stream,
            temperature=_real(sent.get("temperature")),
            max_tokens=_count(sent.get("max_completion_tokens", sent.get("max_tokens"))),
            prompt_messages_json=messages,
            tools_json=tools,
            parameters_json=parameters,
            redaction_applied=True,
            redaction_rules_version=self._cleaner.version,
            redactions_json=_counts_json(counts),
        )

    # -------------------------------------------------------------- closing

    def close_call(self, closing: CallClosing) -> Group:
        """The open call, closed. The turn stays open: another call follows."""
        call = self._closed_call(closing)
        return Group((call,), reasoning=self._kept(), media=self._kept_media())

    def close_turn(
        self,
        *,
        duration_ms: float,
        call: CallClosing | None = None,
        failure: Failure | None = None,
        body: dict[str, Any] | None = None,
        access: AccessEvent | None = None,
    ) -> Group:
        """The turn with its last call and its access event, closed in one group.

        call: how the open call ended; None when no call was made.
        failure: why no call was made; `call.failure` counts when there was one.
        body: the request of a turn that made no call, for its text; None when it was not read.

        A turn that several recorders share takes its words and outcome from the one that closes
        last, its time from its beginning, and the sums of all. One that was refused before its
        provider was asked takes nothing from a turn that has calls: its access event tells of it.
        """
        before = self._state.mark()
        is_refused = before.calls > 0 and (call is None or not self._is_counted)
        records: list[Record] = []
        target = self._open.opening.target if self._open is not None else None
        reply: Reply | None = None
        if call is not None:
            records.append(self._closed_call(call))
            failure, reply = call.failure, call.reply
        ending = ending_of(
            reply=reply,
            failure=failure,
            target=target,
            is_client_gone=call is not None and call.is_client_gone,
            is_shown=call is not None and call.is_shown,
            is_complete=call is not None
            and call.stream_state in ("whole", "complete", "missing_done"),
        )
        row = self._closed_call_row(records)
        if not is_refused or self._state.row is None:
            records.append(self._closed_turn(ending, reply, row, body, duration_ms))
        elif row is not None:
            records.append(self._with_sums(self._state.row))
        if access is not None:
            records.append(access)
        self._marks = before, self._state.mark()
        return Group(tuple(records), reasoning=self._kept(), media=self._kept_media())

    @staticmethod
    def _closed_call_row(records: list[Record]) -> ModelCall | None:
        row = records[0] if records else None
        return row if isinstance(row, ModelCall) else None

    def _closed_turn(
        self,
        ending: Ending,
        reply: Reply | None,
        call: ModelCall | None,
        body: dict[str, Any] | None,
        duration_ms: float,
    ) -> TurnAudit:
        state = self._state
        if body is not None:
            self._read_user_text(body.get("messages"), is_clean=False)
        opened = state.row if state.row is not None else self._open_turn()
        if state.words:
            opened = filled(opened, self._open_turn())
        # A joined turn began before this recorder did.
        before_ms = max(0, self._opening.timestamp - opened.timestamp) / 1000
        counts = self._turn_counts
        text = answer_text(reply) if reply is not None else None
        if text:
            is_clean = call is not None and call.redactions_json == REDACTIONS_NONE
            cleaned = self._text(text, is_clean=is_clean)
            text, counts = cleaned.value, merged(counts, cleaned.counts)
        row = _replace(
            opened,
            user_text=self._user_text if self._user_text is not None else opened.user_text,
            assistant_text=text,
            outcome=ending.outcome,
            failure_type=ending.failure_type,
            error_code=ending.error_code,
            duration_ms=rounded_ms(before_ms + duration_ms),
            model_call_count=state.calls,
            tool_call_count=state.tool_calls,
            cost_estimate=state.cost if state.calls else None,
            redactions_json=_counts_json(counts),
            revision=1 if state.row is None else opened.revision + 1,
        )
        state.row = state.settle(row)
        return state.row

    def _with_sums(self, row: TurnAudit) -> TurnAudit:
        """The turn as it stood, with the sums of its calls."""
        calls, revision = self._state.calls, row.revision + 1
        row = self._state.settle(_replace(row, model_call_count=calls, revision=revision))
        self._state.row = row
        return row

    def _closed_call(self, closing: CallClosing) -> ModelCall:
        call = self._open
        assert call is not None, "no call is open"
        self._open = None
        if not self._is_counted:
            self._state.calls += 1
        said = self._said(closing)
        tokens = said.tokens
        error, drift, found = self._failure_columns(closing, call.opening)
        counts = merged(call.counts, said.counts, found)
        price = closing.pricing(tokens, said.served) if closing.pricing is not None else None
        cost = price.dollars if price is not None else None
        self._add_cost(cost, is_owed=said.usage is not None or closing.failure is None)
        flags, reply = _flags(closing), closing.reply
        return _replace(
            call.row,
            served_model_name=said.served,
            response_json=said.response,
            prompt_tokens=tokens.prompt_tokens,
            completion_tokens=tokens.completion_tokens,
            total_tokens=tokens.total_tokens,
            reasoning_tokens=tokens.reasoning_tokens,
            cache_read_tokens=tokens.cache_read_tokens,
            cache_write_tokens=tokens.cache_write_tokens,
            usage_json=said.usage,
            cost_estimate=cost,
            price_source=price.source if price is not None else None,
            price_version=price.version if price is not None else None,
            latency_ms=_rounded(closing.latency_ms),
            time_to_first_token_ms=_rounded(closing.time_to_first_token_ms),
            finish_reason=said.finish,
            stream_state=closing.stream_state,
            status_code=closing.status_code,
            upstream_status=closing.upstream_status,
            provider_request_id=said.request_id,
            error_code=closing.failure.code if closing.failure is not None else None,
            error_json=error,
            flags_json=reader.write_text(flags) if flags else None,
            reasoning_carrier=carriers_of(reply) if reply is not None else None,
            reasoning_chars=reply.reasoning_chars if reply is not None else None,
            drift_json=drift,
            worker=closing.worker,
            queue_ms=_rounded(closing.queue_ms),
            link_ms=_rounded(closing.link_ms),
            upstream_ms=_rounded(closing.upstream_ms),
            redactions_json=_counts_json(counts),
            revision=call.row.revision + 1,
        )

    def _said(self, closing: CallClosing) -> _Said:
        """What the provider said, as it may rest."""
        reply, request_id = closing.reply, closing.provider_request_id
        found: Counts = NONE_FOUND
        if reply is None or not (reply.choices or reply.envelope or reply.bag):
            if request_id is not None:
                cleaned = self._cleaner.text(request_id)
                request_id, found = cleaned.value, cleaned.counts
            return _Said(request_id, found)
        self._state.tool_calls += tool_calls_in(reply)
        keep = None if self._shelf is None else self._shelf.keep
        usage = reader.write_text(reply.usage) if isinstance(reply.usage, dict) else None
        tree = answer_tree(reply, keep, usage=usage)
        said, named = self._cleaner.said_beside(tree, request_id, keep)
        response, in_response = said.value, said.counts
        if named is not None:
            request_id, found = named.value, named.counts
        told = _Said(request_id, merged(found, in_response))
        told.response = response
        told.served, told.finish = _text(reply.envelope.get("model")), finish_of(reply)
        if usage is not None:
            told.tokens = tokens_of(reply.usage, reply.bag.get("timings"))
            told.usage = usage
        # These stand in the response too: they are clean where it is.
        if in_response:
            if told.served is not None:
                told.served = self._cleaner.text(told.served).value
            if told.finish is not None:
                told.finish = self._cleaner.text(told.finish).value
            if told.usage is not None:
                told.usage = self._cleaner.said(reply.usage).value
        return told

    def _failure_columns(
        self, closing: CallClosing, opening: CallOpening
    ) -> tuple[str | None, str | None, Counts]:
        """`error_json`, `drift_json` and what was redacted in them."""
        failure, reply = closing.failure, closing.reply
        drift = list(reply.drift) if reply is not None else []
        if isinstance(failure, ProtocolDrift) and failure.param is not None:
            if not any(entry.get("path") == failure.param for entry in drift):
                drift.append({"path": failure.param})
        error: str | None = None
        counts: Counts = NONE_FOUND
        if failure is not None:
            said = [*texts_in(opening.sent.get("messages"))]
            if reply is not None:
                said += [c.reasoning for c in reply.choices if isinstance(c.reasoning, str)]
            tree = without_reasoning(failure.envelope(), said)
            cleaned = self._cleaner.said(tree)
            error, counts = cleaned.value, cleaned.counts
        if not drift:
            return error, None, counts
        paths = self._cleaner.said(drift)
        return error, paths.value, merged(counts, paths.counts)

    def _add_cost(self, cost: float | None, *, is_owed: bool) -> None:
        """Add a call's cost to the turn's; one that is owed and unknown makes the sum unknown."""
        if cost is not None:
            self._state.cost = None if self._state.cost is None else self._state.cost + cost
        elif is_owed:
            self._state.cost = None


def _flags(closing: CallClosing) -> list[str]:
    """Repairs and oddities, then what was done to request and answer as `note: …`."""
    flags = list(closing.reply.flags) if closing.reply is not None else []
    if closing.is_client_gone and closing.stream_state in ("whole", "complete", "missing_done"):
        if "client_closed_early" not in flags:
            flags.append("client_closed_early")
    return flags + [f"note: {note}" for note in closing.notes]


def _counts_json(counts: Counts) -> str:
    return reader.write_text(dict(counts)) if counts else REDACTIONS_NONE


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded_ms(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _real(value: Any) -> float | None:
    """A number for a column; what no double holds stands in `parameters_json` alone."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or not isinstance(value, (int, reader.Num)):
        return None  # A union of types would be made anew each time.
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _count(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= COUNT_MAX:
        return value
    return None
