"""Rows of the record as spans: one OTLP/JSON request for all that is known of a turn.

Pure. Rows come as the store's reader gives them: dicts with the contract's columns, `*_json`
columns as text. Every field of a row that says something stands in its span, but for the
bookkeeping of the store (`NOT_CARRIED`). No row has a field that holds reasoning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from everyturn.audit.otel import names
from everyturn.audit.otel.messages import to_output, to_parts
from everyturn.audit.otel.values import (
    SPAN_CLIENT,
    SPAN_INTERNAL,
    SPAN_SERVER,
    STATUS_ERROR,
    STATUS_OK,
    STATUS_UNSET,
    attributes,
    made_id,
)
from everyturn.audit.schema import LOG_NAMED
from everyturn.wire.reader import Malformed, Num, read_provider, write_text

SCOPE: Final = "everyturn"
NOT_CARRIED: Final = frozenset(
    {
        "revision",
        "schema_version",
        "redaction_applied",
        "redaction_rules_version",
        "redactions_json",
        "sources_by_field_json",
    }
)
"""What the store says of its own row."""
_CHILDREN: Final = ("model_calls", "tool_calls", "retrieval_events")
_RESOURCE: Final = ("service", "instance", "environment")
_NANOSECONDS: Final = 1_000

Row = Mapping[str, Any]


def request_of(found: Mapping[str, Any], *, version: str) -> dict[str, Any] | None:
    """One ExportTraceServiceRequest of a turn; None where nothing is known that makes a span.

    found: `turn` (a row or None) and the rows of each other log, as `store.reader.turn` gives them.
    version: of this program, for the scope.
    """
    turn = found.get("turn")
    reviews = list(found.get("quality_reviews", ()))
    accesses = list(found.get("access_events", ()))
    spans: list[tuple[tuple[str | None, ...], dict[str, Any]]] = []
    if turn is not None:
        own = next((one for one in accesses if _is_same_span(one, turn)), None)
        if own is not None:
            accesses.remove(own)
        spans.append((_resource_of(own, turn), _turn_span(turn, own, reviews)))
        reviews = []
    resource = spans[0][0] if spans else _resource_of(accesses[0] if accesses else None, {})
    for access in accesses:
        spans.append((_resource_of(access, {}), _access_span(access)))
    for log in _CHILDREN:
        spans += [(resource, _child_span(log, row, turn)) for row in found.get(log, ())]
    spans += [(resource, _review_span(row)) for row in reviews]
    return _request(spans, version) if spans else None


def _request(
    spans: Iterable[tuple[tuple[str | None, ...], dict[str, Any]]], version: str
) -> dict[str, Any]:
    by_resource: dict[tuple[str | None, ...], list[dict[str, Any]]] = {}
    for resource, span in spans:
        by_resource.setdefault(resource, []).append(span)
    scope = {"name": SCOPE, "version": version}
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _resource_attributes(*resource)},
                "scopeSpans": [{"scope": scope, "spans": held}],
            }
            for resource, held in by_resource.items()
        ]
    }


def _resource_of(access: Row | None, turn: Row) -> tuple[str | None, ...]:
    return tuple(turn.get(name) or (access or {}).get(name) for name in _RESOURCE)


def _resource_attributes(
    service: str | None, instance: str | None, environment: str | None
) -> list[dict[str, Any]]:
    told = {
        # Required of every resource; this is what the SDKs of OpenTelemetry say where none is set.
        "service.name": service or "unknown_service",
        "service.instance.id": instance,
        "deployment.environment.name": environment,
    }
    return attributes({key: value for key, value in told.items() if value is not None})


def _is_same_span(access: Row, turn: Row) -> bool:
    return access["span_id"] is not None and access["span_id"] == turn["span_id"]


def _turn_span(turn: Row, access: Row | None, reviews: Iterable[Row]) -> dict[str, Any]:
    said = _said("turn_audit", turn)
    if turn["user_text"] is not None:
        said[names.INPUT_TYPE] = names.TEXT_TYPE
    if turn["assistant_text"] is not None:
        said[names.OUTPUT_TYPE] = names.TEXT_TYPE
    if access is not None:
        said.update(_access_attributes(access, turn))
    made = []
    if turn["outcome"] == "failure" and "error.type" not in said:
        said["error.type"] = turn["failure_type"]
        made.append("error_code")
    outcome = turn["outcome"]
    status = STATUS_ERROR if outcome == "failure" else STATUS_OK if outcome else STATUS_UNSET
    kind = SPAN_SERVER if access is not None else SPAN_INTERNAL
    name = " ".join(one for one in ("invoke_workflow", turn["plugin"]) if one)
    events = [event for row in reviews for event in _review_events(row)]
    return _span("turn_audit", turn, name, kind, said, status, events=events, made=made)


def _access_attributes(access: Row, turn: Row) -> dict[str, Any]:
    """The request that a turn came of, beside the turn's own attributes."""
    said: dict[str, Any] = {}
    for name in names.NAMES["access_events"]:
        if access[name.field] is not None and name.field != "error_code":
            said[name.written[0]] = access[name.field]
    for field, value in access.items():
        is_told = field in NOT_CARRIED or field in ("turn_id", "span_id")
        is_same = field in ("trace_id", "parent_span_id") and value == turn[field]
        if value is not None and not is_told and not is_same:
            said[names.ACCESS + field] = value
    return said


def _access_span(access: Row) -> dict[str, Any]:
    said = _said("access_events", access)
    code = access["status_code"]
    status = STATUS_ERROR if code is not None and code >= 500 else STATUS_UNSET
    name = " ".join(one for one in (access["method"], access["path_template"]) if one)
    return _span("access_events", access, name or "request", SPAN_SERVER, said, status)


def _child_span(log: str, row: Row, turn: Row | None) -> dict[str, Any]:
    said = _said(log, row)
    kind, name = SPAN_INTERNAL, ""
    status = STATUS_ERROR if row.get("error_code") else STATUS_UNSET
    made = []
    match log:
        case "model_calls":
            kind, name = SPAN_CLIENT, row["requested_model"] or ""
            said.update(_call_more(row))
            if row["stream_state"] in ("whole", "complete") and status is STATUS_UNSET:
                status = STATUS_OK
        case "tool_calls":
            name = row["tool_name"]
            said["gen_ai.tool.type"] = names.TOOL_TYPES[row["tool_family"]]
            said |= _types_of(said)
            if row["status"] != "ok" and "error.type" not in said:
                said["error.type"] = row["status"]
                made.append("error_code")
            status = STATUS_OK if row["status"] == "ok" else STATUS_ERROR
        case _:
            name = row["profile"] or ""
            said |= _retrieval_more(row)
            if names.OUTPUT in said:
                said[names.OUTPUT_TYPE] = names.JSON_TYPE
    if turn is not None and turn["chat_id"] is not None:
        said["gen_ai.conversation.id"] = said["session.id"] = turn["chat_id"]
    operation = names.OPERATIONS[log][0]
    title = f"{operation} {name}".strip()
    return _span(log, row, title, kind, said, status, turn=turn, made=made)


def _call_more(row: Row) -> dict[str, Any]:
    """Attributes of a model call that hold no field's own value."""
    more: dict[str, Any] = {}
    model = row["served_model_name"] or row["requested_model"]
    if model is not None:
        more["llm.model_name"] = model
    if row["finish_reason"] is not None:
        more["llm.finish_reason"] = row["finish_reason"]
    more |= _server(row["base_url"])
    sent, answer = _tree(row["prompt_messages_json"]), _tree(row["response_json"])
    for attribute, value in (
        ("gen_ai.input.messages", to_parts(sent)),
        ("gen_ai.output.messages", to_output(answer)),
    ):
        if value is not None:
            more[attribute] = write_text(value)
    if row["prompt_messages_json"] is not None:
        more[names.INPUT_TYPE] = names.JSON_TYPE
    if row["response_json"] is not None:
        more[names.OUTPUT_TYPE] = names.JSON_TYPE
    if isinstance(answer, dict) and isinstance(answer.get("id"), str):
        more["gen_ai.response.id"] = answer["id"]
    parameters = _tree(row["parameters_json"])
    for attribute, member in names.PARAMETERS.items():
        told = parameters.get(member) if isinstance(parameters, dict) else None
        if member == "stop" and isinstance(told, str):
            told = [told]
        if isinstance(told, Num):
            told = float(told)
        if isinstance(told, int | float) or (isinstance(told, list) and _are_texts(told)):
            more[attribute] = told
    return more | _tools(row["tools_json"])


def _tools(text: Any) -> dict[str, Any]:
    """The tools that a model was told of: the whole of each for OpenInference, names for GenAI."""
    tools = _tree(text)
    if not isinstance(tools, list):
        return {} if text is None else {f"{names.OWN}tools_json": text}
    more: dict[str, Any] = {}
    listed = []
    for index, tool in enumerate(tools):
        more[f"llm.tools.{index}.tool.json_schema"] = write_text(tool)
        asked = tool.get("function", tool) if isinstance(tool, dict) else None
        name = asked.get("name") if isinstance(asked, dict) else None
        if isinstance(name, str):
            more[f"llm.tools.{index}.tool.name"] = name
            listed.append({"type": "function", "name": name})
    if listed:
        more["gen_ai.tool.definitions"] = write_text(listed)
    return more


def _retrieval_more(row: Row) -> dict[str, Any]:
    """The candidates of a search as documents; `output.value` has them as they are recorded."""
    more: dict[str, Any] = {}
    listed = []
    sources = _tree(row["sources_json"])
    for index, one in enumerate(sources if isinstance(sources, list) else []):
        if not isinstance(one, dict):
            continue
        source, score = one.get("source", one), one.get("score")
        prefix = f"retrieval.documents.{index}.document."
        told = source if isinstance(source, dict) else {}
        document: dict[str, Any] = {}
        if isinstance(told.get("id"), str | int):
            document["id"] = more[f"{prefix}id"] = str(told["id"])
        if isinstance(score, int | float | Num) and not isinstance(score, bool):
            document["score"] = more[f"{prefix}score"] = float(score)
        content = next((told[key] for key in ("content", "text") if key in told), source)
        more[f"{prefix}content"] = content if isinstance(content, str) else write_text(content)
        listed.append(document)
    if listed:
        more["gen_ai.retrieval.documents"] = write_text(listed)
    if row["query_text"] is not None:
        more[names.INPUT_TYPE] = names.TEXT_TYPE
    return more


def _types_of(said: Mapping[str, Any]) -> dict[str, Any]:
    pairs = ((names.INPUT, names.INPUT_TYPE), (names.OUTPUT, names.OUTPUT_TYPE))
    return {kind: names.JSON_TYPE for value, kind in pairs if value in said}


def _server(base_url: Any) -> dict[str, Any]:
    if not isinstance(base_url, str):
        return {}
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return {}  # `everyturn.base_url` has it as it stands.
    if host is None:
        return {}
    return {
        "server.address": host,
        "server.port": port or (443 if parts.scheme == "https" else 80),
    }


def _review_events(row: Row) -> list[dict[str, Any]]:
    """A review as one event for each of its scores; the first has all its fields."""
    said = _said("quality_reviews", row)
    scores = [(name, row[name]) for name in names.SCORES if row[name] is not None]
    events = []
    for index, (name, score) in enumerate(scores or [("score_review", None)]):
        told: dict[str, Any] = {"gen_ai.evaluation.name": name.removeprefix("score_")}
        if score is not None:
            told["gen_ai.evaluation.score.value"] = score
        told |= said if index == 0 else {f"{names.OWN}review_id": row["review_id"]}
        events.append(
            {
                "timeUnixNano": str(row["created_at"] * _NANOSECONDS),
                "name": names.EVALUATION,
                "attributes": attributes(told),
            }
        )
    return events


def _review_span(row: Row) -> dict[str, Any]:
    """A review of a turn that has no row here: a span that holds nothing but its events."""
    ids = {"trace_id": None, "span_id": None, "parent_span_id": None}
    told = {**ids, "timestamp": row["created_at"], "turn_id": row["turn_id"]}
    told["review_id"] = row["review_id"]
    said = {names.RECORD: "quality_reviews", names.KIND: "EVALUATOR"}
    said[f"{names.OWN}turn_id"] = row["turn_id"]
    events = _review_events(row)
    return _span("quality_reviews", told, "review", SPAN_INTERNAL, said, STATUS_UNSET, events)


def _said(log: str, row: Row) -> dict[str, Any]:
    """The attributes that hold a row's fields."""
    said: dict[str, Any] = {names.RECORD: log} if log != "quality_reviews" else {}
    if log in names.OPERATIONS:
        said[names.OPERATION], said[names.KIND] = names.OPERATIONS[log]
    known = {name.field: name for name in names.NAMES[log]}
    for field, value in row.items():
        if value is None or field in NOT_CARRIED or names.is_of_span(field):
            continue
        name = known.get(field)
        for attribute, held in _written(name, value) if name is not None else ():
            said[attribute] = held
        if (name is None or not name.is_exact) and field != "tools_json":
            said[names.OWN + field] = value
    return said


def _written(name: names.Name, value: Any) -> Iterable[tuple[str, Any]]:
    if name.field == "provider_id":
        return zip(name.written, names.PROVIDERS.get(value, (value, value)), strict=True)
    if name.form == "seconds":
        value = value / 1000
    elif name.form == "texts":
        value = [value]
    elif name.form == "real" or name.field == "top_k":  # GenAI's type of it is double.
        value = float(value)
    return ((attribute, value) for attribute in name.written)


def _span(
    log: str,
    row: Row,
    name: str,
    kind: int,
    said: dict[str, Any],
    status: int,
    events: list[dict[str, Any]] | None = None,
    turn: Row | None = None,
    made: Iterable[str] = (),
) -> dict[str, Any]:
    own_id = row["review_id"] if log == "quality_reviews" else row[LOG_NAMED[log].id]
    trace_id = row["trace_id"] or (turn or {}).get("trace_id")
    made = [*(field for field in ("trace_id", "span_id") if row[field] is None), *made]
    parent = row["parent_span_id"]
    if parent is None and turn is not None:
        made.append("parent_span_id")
        parent = turn["span_id"] or made_id(16, "span", "turn_audit", turn["turn_id"])
    if made:
        said[names.MADE] = ",".join(made)
    start = row["timestamp"] * _NANOSECONDS
    took = row.get(names.DURATION.get(log, ""))
    span: dict[str, Any] = {
        "traceId": trace_id or made_id(32, "trace", row["turn_id"] or own_id),
        "spanId": row["span_id"] or made_id(16, "span", log, own_id),
    }
    if parent is not None:
        span["parentSpanId"] = parent
    span |= {
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + round((took or 0) * 1_000_000)),
        "attributes": attributes(said),
    }
    if events:
        span["events"] = events
    span["status"] = {"code": status} if status else {}
    return span


def _tree(text: Any) -> Any:
    """The tree of a JSON column; None where it holds none."""
    if not isinstance(text, str):
        return None
    try:
        return read_provider(text.encode("utf-8", "surrogatepass")).value
    except Malformed:
        return None


def _are_texts(values: list[Any]) -> bool:
    return all(isinstance(one, str) for one in values)
