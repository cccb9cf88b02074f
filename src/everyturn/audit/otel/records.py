"""Spans of others, and our own, as records for `POST /v1/records`.

Pure, in two passes over the same requests, so that nothing but one request is held: the first
chooses the span of each turn, the second gives the records.

    plan, account = Plan(), Account()
    for request in …: plan.look(request)
    for request in …: records = plan.records(request, account)

A trace is a turn, unless its spans name turns of ours. Its span is the one without a parent, or
the earliest. Ids come from trace and span ids, so the same spans give the same records. What has
no place is counted by name in the account.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from everyturn import ids
from everyturn.audit.otel import names
from everyturn.audit.otel.calls import a_call, words_of
from everyturn.audit.otel.fields import Fields
from everyturn.audit.otel.values import (
    STATUS_ERROR,
    Unreadable,
    made_id,
    made_turn_id,
    read_attributes,
    read_integer,
)
from everyturn.audit.reasoning import mark_tree
from everyturn.audit.schema import LOG_NAMED
from everyturn.wire.reader import write_text

_SPAN_ID: Final = re.compile(r"(?!0{16})[0-9a-f]{16}")
_MICROSECOND: Final = 1_000
_PREFIXES: Final = {
    "model_calls": "call",
    "tool_calls": "tool",
    "retrieval_events": "ret",
    "access_events": "acc",
}
_ROWS: Final = ("model_calls", "tool_calls", "retrieval_events", "access_events")
_NO_SERVICE: Final = "unknown_service"
"""How the name begins that SDKs of OpenTelemetry give where none is set."""


class Account:
    """What became of what was read."""

    def __init__(self) -> None:
        self.spans = 0
        self.records: Counter[str] = Counter()
        """Log → records."""
        self.left_out: Counter[tuple[str, str]] = Counter()
        """(what it is, its name) → how often it had no place."""
        self.reasoning_chars = 0
        """Code points of reasoning that was left out."""

    def leave(self, what: str, name: str) -> None:
        """Count something that has no place."""
        self.left_out[what, name] += 1


class _Span(NamedTuple):
    trace_id: str
    span_id: str
    parent_id: str | None
    start: int
    """Microseconds."""
    duration_ms: float | None
    is_error: bool
    message: str | None
    name: str
    fields: Fields
    resource: Mapping[str, Any]
    events: list[Any]
    is_ours: bool

    @property
    def log(self) -> str | None:
        """Which log it is of, as far as its names say."""
        ours = self.fields.get(names.RECORD)
        if ours in LOG_NAMED:
            return str(ours)
        operation = self.fields.text(names.OPERATION)
        kind = self.fields.text(names.KIND)
        by_operation = names.LOG_OF_OPERATION.get(operation or "")
        return by_operation or names.LOG_OF_KIND.get((kind or "").upper())

    @property
    def turn_id(self) -> str | None:
        """The turn it is of; None for a row of ours that has none."""
        named = self.fields.text(f"{names.OWN}turn_id")
        if named is not None and ids.is_turn_id(named):
            return named
        return None if self.is_ours else made_turn_id(self.trace_id)


class Plan:
    """Which span is a turn's, by what was looked at."""

    def __init__(self) -> None:
        self._turns: dict[str, tuple[int, int, str]] = {}
        """Turn → (rank, start, span id) of the span that tells of it; the least wins."""
        self._chats: dict[str, str] = {}
        """Turn → the conversation that any of its spans names."""

    def look(self, request: Any) -> None:
        """Take notice of the spans of a request."""
        for span in _spans(request, Account()):
            turn_id = span.turn_id
            chat_id = span.fields.text("gen_ai.conversation.id", "session.id")
            if turn_id is not None and chat_id is not None and not span.is_ours:
                self._chats.setdefault(turn_id, chat_id)
            if turn_id is None or (span.is_ours and span.log != "turn_audit"):
                continue
            rank = 0 if span.is_ours else 1 if span.parent_id is None else 2
            found = (rank, span.start, span.span_id)
            self._turns[turn_id] = min(found, self._turns.get(turn_id, found))

    def records(self, request: Any, account: Account) -> list[dict[str, Any]]:
        """The records of a request's spans, each an item of `POST /v1/records`."""
        records = []
        for span in _spans(request, account):
            account.spans += 1
            for record in self._of_span(span, account):
                account.records[record["log"]] += 1
                records.append(record)
            for key in span.fields.unread():
                account.leave("attribute", key)
        return records

    def _of_span(self, span: _Span, account: Account) -> Iterator[dict[str, Any]]:
        turn_id, log = span.turn_id, span.log
        _, _, chosen = self._turns.get(turn_id or "", (0, 0, ""))
        is_turn = chosen == span.span_id and (log == "turn_audit" or not span.is_ours)
        span.fields.skip((names.OPERATION, names.KIND, names.MADE))
        row = _row(log, span, account) if log in _ROWS else None
        if row is not None:
            yield row
        if is_turn and turn_id is not None:
            told = _turn(turn_id, span, row)
            if turn_id in self._chats:
                told.setdefault("chat_id", self._chats[turn_id])
            yield told
            if f"{names.ACCESS}access_id" in span.fields.attributes:
                yield _access(turn_id, span)
        elif log not in (*_ROWS, "quality_reviews"):
            kind = span.fields.text(names.OPERATION) or span.fields.text(names.KIND)
            account.leave("span", kind or span.name)
        yield from _reviews(span, account)


def _spans(request: Any, account: Account) -> Iterator[_Span]:
    """The spans of a request that are whole; the others are counted."""
    groups = request.get("resourceSpans") if isinstance(request, dict) else None
    if not isinstance(groups, list):
        named = next(iter(request), "") if isinstance(request, dict) else ""
        account.leave("line", f"no spans but `{named[:40]}`" if named else "no spans")
        return
    for group in groups:
        resource = _resource(group, account)
        scopes = group.get("scopeSpans") if isinstance(group, dict) else None
        for scope in scopes if isinstance(scopes, list) else ():
            spans = scope.get("spans") if isinstance(scope, dict) else None
            for span in spans if isinstance(spans, list) else ():
                try:
                    yield _span(span, resource)
                except Unreadable:
                    account.leave("span", "broken: ids, time or attributes")


def _resource(group: Any, account: Account) -> dict[str, Any]:
    held = group.get("resource") if isinstance(group, dict) else None
    try:
        told = read_attributes(held.get("attributes") if isinstance(held, dict) else None)
    except Unreadable:
        account.leave("resource", "broken attributes")
        return {}
    fields = Fields(told)
    service = fields.text("service.name")
    found = {
        "service": None if (service or "").startswith(_NO_SERVICE) else service,
        "instance": fields.text("service.instance.id"),
        "environment": fields.text("deployment.environment.name", "deployment.environment"),
    }
    for key in fields.unread():
        account.leave("resource attribute", key)
    return found


def _span(span: Any, resource: dict[str, Any]) -> _Span:
    """Raises Unreadable."""
    if not isinstance(span, dict):
        raise Unreadable
    trace_id, span_id = _hex(span.get("traceId")), _hex(span.get("spanId"))
    parent_id = _hex(span.get("parentSpanId"))
    if not ids.is_trace_id(trace_id) or not _SPAN_ID.fullmatch(span_id):
        raise Unreadable
    start, end = (read_integer(span.get(f"{name}TimeUnixNano", 0)) for name in ("start", "end"))
    fields = Fields(read_attributes(span.get("attributes")))
    status = span.get("status")
    status = status if isinstance(status, dict) else {}
    message, name, events = status.get("message"), span.get("name"), span.get("events")
    return _Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=parent_id if _SPAN_ID.fullmatch(parent_id) else None,
        start=start // _MICROSECOND,
        duration_ms=(end - start) / 1_000_000 if end >= start > 0 else None,
        is_error=status.get("code") in (STATUS_ERROR, "STATUS_CODE_ERROR"),
        message=message if isinstance(message, str) and message else None,
        name=name if isinstance(name, str) else "",
        fields=fields,
        resource=resource,
        events=events if isinstance(events, list) else [],
        is_ours=fields.get(names.RECORD) in LOG_NAMED,
    )


def _hex(value: Any) -> str:
    return value.lower() if isinstance(value, str) else ""


def _times(log: str, span: _Span, row: dict[str, Any]) -> dict[str, Any]:
    """Ids and times of a record: those of its span."""
    told: dict[str, Any] = {"trace_id": span.trace_id, "span_id": span.span_id}
    if span.parent_id is not None:
        told["parent_span_id"] = span.parent_id
    told["timestamp"] = span.start
    field = names.DURATION[log]
    if not span.is_ours and field not in row and span.duration_ms is not None:
        told[field] = span.duration_ms
    return told


def _without_made(span: _Span, row: dict[str, Any]) -> dict[str, Any]:
    """The row without what a span of ours has only because it must."""
    made = (span.fields.text(names.MADE) or "").split(",") if span.is_ours else ()
    return {name: value for name, value in row.items() if name not in made}


def _row(log: str, span: _Span, account: Account) -> dict[str, Any]:
    """A call, a tool run, a search or a request."""
    row = span.fields.row(log)
    key = LOG_NAMED[log].id
    row.setdefault(key, f"{_PREFIXES[log]}_{made_id(32, log, span.trace_id, span.span_id)}")
    row |= _times(log, span, row)
    if span.turn_id is not None:
        row["turn_id"] = span.turn_id
    else:
        row.pop("turn_id", None)
    if span.is_error and not span.is_ours and "error_code" not in row:
        raised = _exception_type(span.events)
        if raised is not None and log != "retrieval_events":
            row["error_code"] = raised
    match log:
        case "model_calls":
            account.reasoning_chars += a_call(span.fields, row, is_ours=span.is_ours)
            if span.is_error and not span.is_ours:
                row.setdefault("error_json", {"message": span.message})
        case "tool_calls":
            _finish_tool(span, row)
        case "retrieval_events":
            _finish_search(span.fields, row)
        case _ if not span.is_ours:
            row |= {name: value for name, value in span.resource.items() if value is not None}
        case _:
            pass
    _skip_repeated(span.fields)
    if span.is_ours:
        span.fields.skip(("server.address", "server.port"))  # `base_url` says it.
    return {"log": log, **_without_made(span, row)}


def _exception_type(events: list[Any]) -> str | None:
    """The type of the exception that a span ended with. Its words and its stack have no place."""
    for event in reversed(events):
        if isinstance(event, dict) and event.get("name") == "exception":
            try:
                return Fields(read_attributes(event.get("attributes"))).text("exception.type")
            except Unreadable:
                return None  # Counted where the events are read.
    return None


def _finish_tool(span: _Span, row: dict[str, Any]) -> None:
    kind = span.fields.text("gen_ai.tool.type")
    row.setdefault("tool_family", names.FAMILY_OF_TYPE.get(kind or "", "internal"))
    row.setdefault("tool_name", span.name or "unknown")
    if "status" not in row:
        is_late = row.get("error_code") in ("timeout", "TimeoutError")
        row["status"] = ("timeout" if is_late else "error") if span.is_error else "ok"


def _finish_search(fields: Fields, row: dict[str, Any]) -> None:
    """The candidates of a search, from whichever list has them."""
    flat = [one.get("document", {}) for one in fields.listed("retrieval.documents")]
    told = fields.json("gen_ai.retrieval.documents")
    listed = flat or (told if isinstance(told, list) else [])
    if "sources_json" in row and (not listed or isinstance(row["sources_json"], list)):
        return
    if listed:
        row["sources_json"] = [
            {
                "rank": rank,
                **({"score": one["score"]} if isinstance(one, dict) and "score" in one else {}),
                "source": one,
            }
            for rank, one in enumerate(listed, start=1)
        ]


def _skip_repeated(fields: Fields) -> None:
    """Attributes that only say in other words what a row of the same span says."""
    fields.skip(
        (
            names.INPUT_TYPE,
            names.OUTPUT_TYPE,
            "gen_ai.tool.type",
            "gen_ai.conversation.id",  # Of the turn: see `Plan.look`.
            "session.id",
        )
    )


def _turn(turn_id: str, span: _Span, call: dict[str, Any] | None) -> dict[str, Any]:
    """The record of a turn.

    call: the row of the same span, of which there is then nothing else in the turn.
    """
    fields = span.fields
    if call is None:
        row = fields.row("turn_audit")
    else:
        row = words_of(call)
    row |= _times("turn_audit", span, row)
    if call is not None:
        row.pop("span_id")  # It is the row's.
    row["turn_id"] = turn_id
    if not span.is_ours:
        for name in ("service", "environment"):
            if span.resource.get(name) is not None:
                row.setdefault(name, span.resource[name])
        row.setdefault("outcome", "failure" if span.is_error else "success")
        if span.is_error:
            row.setdefault("failure_type", "unknown")
        for name in ("user_text", "assistant_text"):
            if name in row:
                row[name] = _without_reasoning(row[name])
    fields.skip((names.INPUT_TYPE, names.OUTPUT_TYPE))
    return {"log": "turn_audit", **_without_made(span, row)}


def _without_reasoning(text: str) -> str:
    """A turn's words, which in spans of others may be a whole request or answer as JSON."""
    marked = mark_tree(text, is_answer=True).value
    return marked if isinstance(marked, str) else write_text(marked)


def _access(turn_id: str, span: _Span) -> dict[str, Any]:
    """The request that a turn of ours came of."""
    fields = span.fields
    row = fields.row("access_events", names.ACCESS)
    row |= {**_times("access_events", span, row), "turn_id": turn_id}
    for name in ("trace_id", "parent_span_id", "timestamp"):
        own = fields.get(names.ACCESS + name)
        row[name] = row.get(name) if own is None else own
    written = (key for name in names.NAMES["access_events"] for key in name.written)
    fields.skip(key for key in written if key != "error.type")
    return {"log": "access_events", **row}


def _reviews(span: _Span, account: Account) -> Iterator[dict[str, Any]]:
    """The reviews of ours among a span's events; others are counted."""
    for event in span.events:
        name = event.get("name") if isinstance(event, dict) else None
        try:
            fields = Fields(read_attributes(event.get("attributes") if name else None))
        except Unreadable:
            account.leave("event", "broken attributes")
            continue
        if fields.text(f"{names.OWN}review_id") is None:
            account.leave("event", str(name))
        elif fields.text(f"{names.OWN}review_source") is not None:
            row = fields.row("quality_reviews")
            fields.skip(("gen_ai.evaluation.name", "gen_ai.evaluation.score.value"))
            for key in fields.unread():
                account.leave("attribute", key)
            yield {"log": "quality_reviews", **row}
