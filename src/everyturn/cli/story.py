"""A turn told in order, for a person: what was asked, what was tried, what came back, how it ended.

Pure: from what the reader found to lines of `(indent, label, text)`. Texts of people and models are
made safe for a terminal here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final, NamedTuple

from everyturn.cli.terminal import counted, safe
from everyturn.store.kept import refs_in
from everyturn.wire.reader import write_text

TEXT_CHARS_MAX: Final = 4_000
"""Of one text; `--json` has all of it."""


class Line(NamedTuple):
    """One line of the story. label: what it is; text: what it says; is_head: a heading."""

    label: str
    text: str
    is_head: bool = False


def story(found: dict[str, Any]) -> Iterator[Line]:
    """The lines of a turn, as `store.document.document` gives it, safe for a terminal.

    JSON that applications recorded may have any shape; what has not the usual one is told as JSON.
    """
    for line in _lines(found):
        yield Line(_on_one_line(line.label), _on_one_line(line.text), line.is_head)


def _on_one_line(text: str) -> str:
    return safe(text).replace("\n", "\\x0a")


def _lines(found: dict[str, Any]) -> Iterator[Line]:
    turn = found["turn"]
    if turn is not None:
        yield from _opening(turn)
    for _, lines in sorted(_entries(found), key=itemgetter(0)):
        yield from lines
    if "reasoning_texts" in found:
        yield from _reasoning(found["reasoning_texts"])
    if turn is not None:
        yield from _ending(turn)


def _entries(found: dict[str, Any]) -> Iterator[tuple[str, Iterator[Line]]]:
    """The time of each row, in RFC 3339, and its lines; what began together, outer work first."""
    for event in found["access_events"]:
        yield event["timestamp"], _access(event)
    for event in found["retrieval_events"]:
        yield event["timestamp"], _retrieval(event)
    for number, call in enumerate(found["model_calls"], start=1):
        yield call["timestamp"], _call(call, number, of=len(found["model_calls"]))
    for run in found["tool_calls"]:
        yield run["timestamp"], _tool(run)
    for review in found["quality_reviews"]:
        yield review["created_at"], _review(review)


def _opening(turn: dict[str, Any]) -> Iterator[Line]:
    yield Line(f"turn {turn['turn_id']}", "", is_head=True)
    yield Line("opened", str(turn["timestamp"]))
    for key in ("project_id", "chat_id", "plugin", "principal", "service", "environment"):
        if turn[key] is not None:
            yield Line(key.removesuffix("_id"), str(turn[key]))
    yield Line("trace", f"{turn['trace_id']}  request {turn['request_id']}")
    yield from _json("attributes", turn["attributes_json"])
    yield from _text("asked", turn["user_text"])


def _access(event: dict[str, Any]) -> Iterator[Line]:
    route = f"{event['method']} {event['path_template'] or 'unknown route'}"
    status = event["status_code"] if event["status_code"] is not None else "no answer"
    yield Line(f"request {route} → {status}", "", is_head=True)
    size = f"{_bytes(event['request_size_bytes'])} in, {_bytes(event['response_size_bytes'])} out"
    client = f", client {event['client_type']}" if event["client_type"] else ""
    yield Line("took", f"{_ms(event['duration_ms'])}, {size}{client}")
    yield from _who(event)


def _who(row: dict[str, Any]) -> Iterator[Line]:
    """When it began, where, and its place in the trace."""
    service = f"  service {row['service']}" if row.get("service") else ""
    span = f"  span {row['span_id']}" if row["span_id"] else ""
    below = f" below {row['parent_span_id']}" if row["parent_span_id"] else ""
    yield Line("at", f"{row['timestamp']}{service}{span}{below}")
    if row["error_code"] is not None:
        yield Line("error", str(row["error_code"]))


def _tool(run: dict[str, Any]) -> Iterator[Line]:
    name = f"{run['tool_family']} {run['tool_name']}"
    yield Line(f"tool {name}: {run['status']}", "", is_head=True)
    where = f", run by {run['target_service']}" if run["target_service"] else ""
    again = f", {run['retry_count']} retries" if run["retry_count"] else ""
    yield Line("took", f"{_ms(run['duration_ms'])}{where}{again}")
    yield from _who(run)
    if run["provider_call_id"] is not None:
        yield Line("asked for as", run["provider_call_id"])
    yield from _json("request", run["request_json"])
    yield from _json("response", run["response_json"])
    yield from _json("attributes", run["attributes_json"])
    yield from _redactions(run)


def _retrieval(event: dict[str, Any]) -> Iterator[Line]:
    profile = event["profile"] or "sources"
    yield Line(f"retrieval {profile}", "", is_head=True)
    index = f", index {event['index_version']}" if event["index_version"] else ""
    top = f", top {event['top_k']}" if event["top_k"] is not None else ""
    yield Line("took", f"{_ms(event['retrieval_latency_ms'])}{index}{top}")
    yield from _who({**event, "error_code": None})
    yield from _text("query", event["query_text"])
    for source in _items(event["sources_json"]):
        yield from _text("source", write_text(source))
    if event["context_chars"] is not None:
        yield Line("in the prompt", f"{event['context_chars']} characters")
    yield from _json("attributes", event["attributes_json"])
    yield from _redactions(event)


def _review(review: dict[str, Any]) -> Iterator[Line]:
    who = f" by {review['reviewer']}" if review["reviewer"] else ""
    yield Line(f"review {review['review_source']}{who}", "", is_head=True)
    yield Line("at", str(review["created_at"]))
    scores = [
        f"{name.removeprefix('score_')} {value:g}"
        for name, value in review.items()
        if name.startswith("score_") and value is not None
    ]
    if scores:
        yield Line("scores", ", ".join(scores))
    if review["label_primary_issue"] is not None:
        yield Line("issue", review["label_primary_issue"])
    yield from _text("notes", review["notes"])
    yield from _redactions(review)


def _call(call: dict[str, Any], number: int, *, of: int) -> Iterator[Line]:
    served = call["served_model_name"]
    name = str(call["requested_model"])
    head = f"call {number} of {of}: {name}"
    if served not in (None, call["requested_model"]):
        head += f", served as {served}"
    yield Line(head, "", is_head=True)
    yield Line("sent", f"{call['timestamp']}  attempt {call['attempt']}  {call['model_call_id']}")
    how = "streamed" if call["stream"] else "whole"
    if call["worker"] is not None:
        how += f", run by worker {call['worker']}"
    yield Line("to", f"{call['base_url']}  preset {call['provider_id']}, {how}")
    yield from _messages(call["prompt_messages_json"])
    tools = call["tools_json"]
    if tools:
        yield Line("tools", ", ".join(_tool_name(tool) for tool in _items(tools)))
    if call["parameters_json"]:
        yield from _text("parameters", write_text(call["parameters_json"]))
    yield from _timing(call)
    yield from _response(call)
    yield from _usage(call)
    if call["error_code"] is not None:
        yield Line("error", str(call["error_code"]))
        yield from _text("said", write_text(call["error_json"]) if call["error_json"] else None)
    if call["drift_json"]:
        yield from _text("drift", write_text(call["drift_json"]))
    for flag in _items(call["flags_json"]):
        told = str(flag)
        label = "note" if told.startswith("note: ") else "flag"
        yield Line(label, told.removeprefix("note: "))
    yield from _redactions(call)


def _messages(messages: Any) -> Iterator[Line]:
    if not isinstance(messages, list):
        yield from _json("messages", messages)
        return
    yield Line("messages", str(len(messages)))
    for message in messages:
        if not isinstance(message, dict):
            yield from _text("  ?", write_text(message))
            continue
        role = str(message.get("role"))
        rest = {key: value for key, value in message.items() if key not in ("role", "content")}
        content = message.get("content")
        yield from _text(f"  {role}", "" if content is None else _as_text(content))
        if rest:
            yield from _text("", write_text(rest))


def _timing(call: dict[str, Any]) -> Iterator[Line]:
    first = call["time_to_first_token_ms"]
    told = f"first token after {_ms(first)}, " if first is not None else ""
    yield Line("took", f"{told}all after {_ms(call['latency_ms'])}")
    status = call["upstream_status"] if call["upstream_status"] is not None else "none"
    state = call["stream_state"] or "open"
    yield Line("answer", f"provider's status {status}, {state}, finish {call['finish_reason']}")
    if call["provider_request_id"] is not None:
        yield Line("provider's id", str(call["provider_request_id"]))


def _response(call: dict[str, Any]) -> Iterator[Line]:
    response = call["response_json"]
    if call["reasoning_chars"]:
        carrier = call["reasoning_carrier"]
        is_kept = response is not None and bool(refs_in(write_text(response)))
        rests = "kept apart, `--include-reasoning` shows it" if is_kept else "not stored"
        yield Line("reasoning", f"{call['reasoning_chars']} characters in {carrier}; {rests}")
    choices = response.get("choices") if isinstance(response, dict) else None
    if not isinstance(choices, list):
        yield from _json("response", response)
        return
    for choice in choices:
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            yield from _text("choice", write_text(choice))
            continue
        mark = f" {choice.get('index')}" if len(choices) > 1 else ""
        content, refusal = message.get("content"), message.get("refusal")
        if content is not None:
            yield from _text(f"content{mark}", _as_text(content))
        if refusal:
            yield from _text(f"refusal{mark}", _as_text(refusal))
        for tool_call in _items(message.get("tool_calls")):
            yield from _text(f"tool call{mark}", _tool_call(tool_call))


def _tool_call(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return write_text(call)
    return f"{function.get('name')}({function.get('arguments')})  {call.get('id')}"


def _items(value: Any) -> list[Any]:
    """The items of a list; nothing where there is none; else the value itself as the one item."""
    if isinstance(value, list):
        return value
    return [] if value is None else [value]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else write_text(value)


def _reasoning(texts: list[dict[str, Any]]) -> Iterator[Line]:
    """Kept reasoning, each text once; the marks in the calls name them by the same id."""
    yield Line("kept reasoning", "", is_head=True)
    if not texts:
        yield Line("none", "nothing is kept, or its time is over")
    for kept in texts:
        about = f"{kept['chars']} characters in {kept['carrier']}, until {kept['expires_at']}"
        yield Line(kept["reasoning_id"][:12], about)
        yield from _text("", kept["text"])


def _usage(call: dict[str, Any]) -> Iterator[Line]:
    if call["usage_json"] is None:
        yield Line("usage", "not reported")
        return
    parts = [f"{_count(call['prompt_tokens'])} in, {_count(call['completion_tokens'])} out"]
    for key, label in (
        ("reasoning_tokens", "reasoning"),
        ("cache_read_tokens", "read from cache"),
        ("cache_write_tokens", "written to cache"),
    ):
        if call[key] is not None:
            parts.append(f"{call[key]} {label}")
    yield Line("usage", ", ".join(parts))
    cost = call["cost_estimate"]
    source = f" ({call['price_source']} {call['price_version']})" if call["price_source"] else ""
    yield Line("cost", f"{_dollars(cost)}{source}")


def _ending(turn: dict[str, Any]) -> Iterator[Line]:
    yield Line("end", "", is_head=True)
    said = turn["sources_by_field_json"]
    if turn["outcome"] is None and turn["duration_ms"] is None and said is None:
        yield Line("outcome", "open: the turn has not ended")
        return
    kind = "" if turn["failure_type"] == "none" else f", {turn['failure_type']}"
    code = "" if turn["error_code"] is None else f", {turn['error_code']}"
    yield Line("outcome", f"{turn['outcome'] or 'not said'}{kind}{code}")
    told = [name for name, source in (said or {}).items() if source == "application"]
    if told:
        yield Line("application's", ", ".join(told))
    calls = ", ".join(
        counted(turn[key], word)
        for key, word in (
            ("model_call_count", "model call"),
            ("tool_call_count", "tool call"),
            ("retrieval_count", "retrieval"),
        )
        if turn[key] is not None
    )
    yield Line(
        "in all", f"{_ms(turn['duration_ms'])}, {calls}, cost {_dollars(turn['cost_estimate'])}"
    )
    yield from _redactions(turn)


def _redactions(row: dict[str, Any]) -> Iterator[Line]:
    counts = row["redactions_json"]
    if counts:
        told = ", ".join(f"{rule} {count}" for rule, count in counts.items())
        yield Line("redacted", told)


def _text(label: str, text: str | None) -> Iterator[Line]:
    """A text over as many lines as it has, the first with its label."""
    if text is None:
        return
    if len(text) > TEXT_CHARS_MAX:
        left = len(text) - TEXT_CHARS_MAX
        text = f"{text[:TEXT_CHARS_MAX]}… and {left} more characters; `--json` has them"
    for number, line in enumerate(text.split("\n")):
        yield Line(label if number == 0 else "", line)


def _json(label: str, value: Any) -> Iterator[Line]:
    """A JSON value on one line; nothing where there is none."""
    return _text(label, None if value is None else write_text(value))


def _tool_name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    return str(function.get("name")) if isinstance(function, dict) else write_text(tool)


def _ms(value: float | None) -> str:
    if value is None:
        return "unknown time"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def _bytes(value: int | None) -> str:
    return "unknown bytes" if value is None else f"{value} bytes"


def _count(value: int | None) -> str:
    return "not reported" if value is None else str(value)


def _dollars(value: float | None) -> str:
    return "not known" if value is None else f"{value:.6f} USD"
