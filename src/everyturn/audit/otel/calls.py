"""What a model call's span says of its messages: one answer from up to three copies."""

from __future__ import annotations

from typing import Any, Final

from everyturn.audit.otel import names
from everyturn.audit.otel.fields import KINDS, UNSAID, Fields, fitting, read_json
from everyturn.audit.otel.messages import Read

_REQUESTED: Final = ("gen_ai.request.model", "llm.request.model_name")
_REPEATED: Final = (
    "llm.model_name",
    "llm.finish_reason",
    names.INPUT_TYPE,
    names.OUTPUT_TYPE,
)


def a_call(fields: Fields, row: dict[str, Any], *, is_ours: bool) -> int:
    """Complete the row of a call; returns code points of reasoning that was left out.

    `input.value` of a span of ours is the messages. Of others it is the request's body, or words
    for a person to read; the conventions' own messages are better then.
    """
    read = Read()
    sent = read.from_parts(fields.json("gen_ai.input.messages"))
    flat = _messages(fields, "llm.input_messages")
    sent = sent or read.from_flat(flat)
    before = fields.json("gen_ai.system_instructions")
    if isinstance(before, list):
        system = read.from_parts([{"role": "system", "parts": before}]) or []
        sent = [*system, *(sent or [])]
    answers = Read()
    got = answers.from_output(fields.json("gen_ai.output.messages"))
    flat = _messages(fields, "llm.output_messages")
    if got is None and flat:
        told = enumerate(answers.from_flat(flat))
        got = {"choices": [{"index": index, "message": one} for index, one in told]}
    tools = [_tool(one) for one in fields.listed("llm.tools")]
    named = fields.json("gen_ai.tool.definitions")
    if not tools and isinstance(named, list):
        tools = named
    parameters = {
        member: value
        for key, member in names.PARAMETERS.items()
        if (value := fields.get(key)) is not None
    }
    response_id = fields.text("gen_ai.response.id")
    fields.skip(_REPEATED)
    if not is_ours:
        _take_body(row)
        if sent:
            row["prompt_messages_json"] = sent
        if got is not None:
            row["response_json"] = got
        if response_id is not None:
            told = row.setdefault("response_json", {})
            if isinstance(told, dict):
                row["response_json"] = {"id": response_id, **told}
        if answers.has_reasoning:
            row.setdefault("reasoning_chars", answers.reasoning_chars)
        if parameters:
            row.setdefault("parameters_json", parameters)
        _take_parameters(fields, row)
    if tools:
        row.setdefault("tools_json", tools)
    return 0 if is_ours else read.reasoning_chars + answers.reasoning_chars


def _take_body(row: dict[str, Any]) -> None:
    """Where `input.value` is the body of a request: its messages, tools and parameters apart."""
    body = row.get("prompt_messages_json")
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        return
    row["prompt_messages_json"] = body["messages"]
    if isinstance(body.get("tools"), list):
        row["tools_json"] = body["tools"]
    rest = {name: value for name, value in body.items() if name not in ("messages", "tools")}
    if rest:
        row.setdefault("parameters_json", rest)


def _take_parameters(fields: Fields, row: dict[str, Any]) -> None:
    """Fields of their own that stand among the parameters of a request.

    `llm.model_name` is what answered, where the parameters say what was asked for.
    """
    told = row.get("parameters_json")
    if not isinstance(told, dict):
        return
    model = told.get("model")
    if isinstance(model, str) and fields.text(*_REQUESTED) is None:
        if "requested_model" in row:
            row.setdefault("served_model_name", row["requested_model"])
        row["requested_model"] = model
    for name in ("stream", "temperature", "max_tokens"):
        value = fitting(told.get(name), KINDS["model_calls"][name], "")
        if value is not UNSAID:
            row.setdefault(name, value)


def _messages(fields: Fields, prefix: str) -> list[dict[str, Any]]:
    return [
        one["message"] if isinstance(one.get("message"), dict) else {}
        for one in fields.listed(prefix)
    ]


def _tool(entry: dict[str, Any]) -> Any:
    """A tool definition: whole where the span has it, else its name and description."""
    told = entry.get("tool")
    told = told if isinstance(told, dict) else {}
    schema = told.get("json_schema")
    if schema is not None:
        return read_json(schema) if isinstance(schema, str) else schema
    return {"type": "function", "function": told}


def words_of(call: dict[str, Any]) -> dict[str, Any]:
    """The question, the answer and the error of a call that is all there is of a turn."""
    words: dict[str, Any] = {"error_code": call.get("error_code")}
    sent = call.get("prompt_messages_json")
    for one in sent if isinstance(sent, list) else ():
        if isinstance(one, dict) and one.get("role") == "user":
            words["user_text"] = one.get("content")
    got = call.get("response_json")
    choices = got.get("choices") if isinstance(got, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    if isinstance(message, dict):
        words["assistant_text"] = message.get("content")
    return {name: value for name, value in words.items() if isinstance(value, str)}
