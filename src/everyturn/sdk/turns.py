"""Turns, and work that joins one: where the records of an application come together.

A turn's own record is made once, when it is left. What the application does not say stays what the
gateway found out: the outcome of a turn that never was finished, the model calls and their cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everyturn import ids
from everyturn.errors import InvalidValue
from everyturn.sdk.carried import ids_in, trace_of
from everyturn.sdk.process import this_process
from everyturn.sdk.retrievals import Retrieval, retrieval_fields
from everyturn.sdk.spans import CURRENT, Line, Span, emit
from everyturn.sdk.tools import ToolRun, tool_fields
from everyturn.sdk.words import (
    FAILURE_TYPES,
    HUMAN_REVIEW_STATUSES,
    OUTCOMES,
    TOOL_FAMILIES,
    FailureType,
    HumanReviewStatus,
    Outcome,
    ToolFamily,
    check_word,
    is_cancellation,
)


class Root(Span):
    """What holds tool runs and retrievals: a turn, or work that joined one."""

    __slots__ = ()

    def tool(
        self,
        family: ToolFamily,
        name: str,
        *,
        target_service: str | None = None,
        provider_call_id: str | None = None,
        retry_count: int | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> ToolRun:
        """A run of a tool in this turn, from whatever thread or context. Raises InvalidValue.

        family: `adapter`, `mcp`, `rag`, `internal` or `external-http`.
        target_service: who runs it, where that is not this process.
        provider_call_id: the id that the model gave the call.
        """
        check_word("family", family, TOOL_FAMILIES)
        fields = tool_fields(target_service, provider_call_id, retry_count, attributes)
        return ToolRun(self._innermost(), {"tool_family": family, "tool_name": name, **fields})

    def retrieval(
        self,
        *,
        query: str | None = None,
        profile: str | None = None,
        index_version: str | None = None,
        top_k: int | None = None,
        plugin: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Retrieval:
        """A search in this turn, from whatever thread or context.

        profile: which way of searching; index_version: of what was searched.
        """
        fields = retrieval_fields(query, profile, index_version, top_k, plugin, attributes)
        return Retrieval(self._innermost(), fields)

    def _innermost(self) -> Span | None:
        """The span of this turn that this context is in, else the turn itself."""
        if not self.is_recording:
            return None
        span = CURRENT.get()
        return span if span is not None and span.root is self else self


class Turn(Root):
    """One exchange as the user sees it. Enter it once; see `turn`."""

    __slots__ = ("_failure", "_fields", "_has_sent_headers", "_is_finished")

    def __init__(self, line: Line, parent_span_id: str | None, fields: dict[str, Any]) -> None:
        super().__init__(line, parent_span_id=parent_span_id)
        self._fields = fields
        self._is_finished = False
        self._has_sent_headers = False

    def headers(self) -> dict[str, str]:
        """Headers for calls of the gateway and of other services: all three ids."""
        self._has_sent_headers = True
        return super().headers()

    def finish(
        self,
        *,
        assistant_text: str | None = None,
        outcome: Outcome | None = None,
        failure_type: FailureType | None = None,
        error_code: str | None = None,
        assistant_message_id: str | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """How the turn ended, as the application sees it. May be called again; later words win.

        outcome: `success` if left out, and `failure` if only a failure type or an error code is
        given. error_code: a short code, never a message. Raises InvalidValue.
        """
        check_word("outcome", outcome, OUTCOMES)
        check_word("failure_type", failure_type, FAILURE_TYPES)
        self._is_finished = True
        given = {
            "assistant_text": this_process().plain.text(assistant_text),
            "outcome": outcome,
            "failure_type": failure_type,
            "error_code": error_code,
            "assistant_message_id": assistant_message_id,
        }
        self._fields.update({name: value for name, value in given.items() if value is not None})
        if attributes:
            known = self._fields.get("attributes_json") or {}
            self._fields["attributes_json"] = {**known, **attributes}

    def _opening(self) -> None:
        around = CURRENT.get()
        if self.is_open or self._fields.get("timestamp") is not None:
            raise InvalidValue("a turn is entered once", hint="Make another with `turn(...)`.")
        if around is not None and isinstance(around.root, Root) and around.root.is_open:
            raise InvalidValue(
                "a turn is open in this context already",
                hint="Use `tool` or `retrieval` inside of a turn, and `join` for other services.",
            )

    def _closing(self, failure: BaseException | None) -> None:
        fields = self._fields
        if failure is not None:
            self._failed(failure)
        elif "outcome" not in fields:
            has_failed = fields.get("failure_type", "none") != "none" or "error_code" in fields
            # Without a word of the application, who called a model says how the turn ended.
            if self._is_finished or not self._has_sent_headers:
                fields["outcome"] = "failure" if has_failed else "success"
        line, settings = self.line, this_process().settings
        fields["timestamp"] = self.started_us
        emit(
            "turn_audit",
            {
                **self.ids(),
                **fields,
                "service": settings.service,
                "environment": settings.environment,
                "request_id": line.request_id,
                "tool_call_count": line.tools,
                "retrieval_count": line.retrievals,
                "duration_ms": self.elapsed_ms(),
            },
        )

    def _failed(self, failure: BaseException) -> None:
        """An exception left the body: what the application said of a failure stands."""
        fields = self._fields
        if fields.get("outcome") in (None, "success"):
            fields["outcome"] = "abandoned" if is_cancellation(failure) else "failure"
            if fields.get("failure_type") in (None, "none") and fields["outcome"] == "failure":
                is_late = isinstance(failure, TimeoutError)
                fields["failure_type"] = "timeout" if is_late else "unknown"
        # The class says what went wrong; the text may hold anything and is left out.
        fields.setdefault("error_code", type(failure).__name__)


class Joined(Root):
    """Work that belongs to a turn which somebody else opened; see `join`."""

    __slots__ = ()


def turn(
    *,
    chat_id: str | None = None,
    project_id: str | None = None,
    plugin: str | None = None,
    user_text: str | None = None,
    user_message_id: str | None = None,
    turn_id: str | None = None,
    request_id: str | None = None,
    prompt_id: str | None = None,
    prompt_version: str | None = None,
    variant: str | None = None,
    origin: str | None = None,
    human_review_status: HumanReviewStatus | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> Turn:
    """A turn: `with everyturn.turn(…) as turn:`, or `async with`. Turns do not nest.

    Inside of the middleware it takes the ids of the request. An exception in the body makes it a
    failure and goes on; its text is not recorded. turn_id: a UUID version 4, where it was made
    elsewhere. attributes: what the plugin declares. Raises InvalidValue.
    """
    check_word("human_review_status", human_review_status, HUMAN_REVIEW_STATUSES)
    if turn_id is not None and not ids.is_turn_id(turn_id):
        raise InvalidValue("`turn_id` is not a UUID version 4 in lower case", param="turn_id")
    fields: dict[str, Any] = {
        "chat_id": chat_id,
        "project_id": project_id,
        "plugin": plugin,
        "user_text": this_process().plain.text(user_text),
        "user_message_id": user_message_id,
        "prompt_id": prompt_id,
        "prompt_version": prompt_version,
        "variant": variant,
        "origin": origin,
        "human_review_status": human_review_status,
        "attributes_json": dict(attributes) if attributes else None,
    }
    around = CURRENT.get()
    if around is None or not around.root.is_open:
        # A task may outlive the turn it was started in; its own turns are not part of that trace.
        line = Line(turn_id=turn_id or ids.generate_turn_id(), request_id=request_id)
        return Turn(line, None, fields)
    line = Line(
        turn_id=turn_id or around.root.take_turn_id() or ids.generate_turn_id(),
        trace_id=around.line.trace_id,
        request_id=request_id or around.line.request_id,
        flags=around.line.flags,
        state=around.line.state,
    )
    return Turn(line, around.span_id, fields)


def join(
    envelope: Mapping[str, Any] | None,
    *,
    traceparent: str | None = None,
    tracestate: str | None = None,
) -> Joined:
    """Join the turn that an envelope names: `with everyturn.join(envelope) as job:`.

    For work that outlives a turn or runs elsewhere: a child span under the same trace, whose
    records join the turn. envelope: what `turn.envelope()` gave, or its inner object.
    traceparent, tracestate: of the caller's span, where they came along; they count if they are of
    the same trace. An envelope that names no turn lets the work run and records nothing: counted.
    """
    inner = envelope.get("everyturn", envelope) if isinstance(envelope, Mapping) else None
    named = ids_in(inner)
    if named is None:
        this_process().counters.add("envelope_invalid")
        return Joined(Line(turn_id=None), parent_span_id=None)
    turn_id, trace_id, request_id = named
    parent = trace_of(traceparent, tracestate)
    if parent is None or (trace_id is not None and parent.trace_id != trace_id):
        line = Line(turn_id=turn_id, trace_id=trace_id, request_id=request_id)
        return Joined(line, parent_span_id=None)
    line = Line(
        turn_id=turn_id,
        trace_id=parent.trace_id,
        request_id=request_id,
        flags=parent.flags,
        state=parent.tracestate,
    )
    return Joined(line, parent_span_id=parent.span_id)
