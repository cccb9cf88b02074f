"""Answers in the other form than the provider gave: frames from a whole body, a body from a stream.

`frames_of_body` serves `stream = "never"`, `body_of_reply` serves `stream = "always"`. What the
provider said in the client's own form is not rendered at all: its bytes pass (see `stream`).
"""

from __future__ import annotations

from typing import Any, Final

from everyturn.wire.dialects.chat_content import ALIAS, is_thinking
from everyturn.wire.reader import write
from everyturn.wire.reasoning import is_empty, is_withheld
from everyturn.wire.reply import Choice, Missing, Reply, ToolCall

_COMMON: Final = ("id", "created", "model")
_MESSAGE_ORDER: Final = (
    ALIAS,
    "reasoning_details",
    "content",
    "refusal",
    "annotations",
    "audio",
    "tool_calls",
)


def frames_of_body(body: dict[str, Any], *, include_usage: bool) -> list[bytes]:
    """SSE frames for a whole answer as the client sees it, without the end marker.

    Per choice: role, reasoning, reasoning details, content, refusal, annotations, audio, tool
    calls, other message keys, logprobs with other choice keys, finish; at the end usage with empty
    `choices`, where the client asked for it. Keys of the body go out once, in the first frame.
    """
    common: dict[str, Any] = {key: body[key] for key in _COMMON if key in body}
    common["object"] = "chat.completion.chunk"
    rest = {
        key: value
        for key, value in body.items()
        if key not in _COMMON and key not in ("object", "choices", "usage")
    }
    frames: list[bytes] = []
    for position, choice in enumerate(body["choices"]):
        index = choice.get("index", position)
        for part in _choice_parts(choice, index):
            frames.append(_frame({**common, "choices": [part], **rest}))
            rest = {}
    if include_usage and "usage" in body:
        frames.append(_frame({**common, "choices": [], "usage": body["usage"]}))
    return frames


def _frame(chunk: dict[str, Any]) -> bytes:
    return b"data: " + write(chunk) + b"\n\n"


def _choice_parts(choice: dict[str, Any], index: int) -> list[dict[str, Any]]:
    message: dict[str, Any] = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": message.get("role", "assistant")}]
    for key in _MESSAGE_ORDER:
        if key not in message:
            continue
        value = message[key]
        if key == "tool_calls" and isinstance(value, list):
            deltas.extend({key: [_indexed(call, at)]} for at, call in enumerate(value))
            if not value:
                deltas.append({key: value})
        else:
            deltas.append({key: value})
    others = {k: v for k, v in message.items() if k not in _MESSAGE_ORDER and k != "role"}
    if others:
        deltas.append(others)
    parts: list[dict[str, Any]] = [
        {"index": index, "delta": delta, "finish_reason": None} for delta in deltas
    ]
    beside = {
        key: value
        for key, value in choice.items()
        if key not in ("index", "message", "finish_reason")
    }
    if beside:
        parts.append({"index": index, "delta": {}, **beside, "finish_reason": None})
    parts.append({"index": index, "delta": {}, "finish_reason": choice.get("finish_reason")})
    return parts


def _indexed(call: Any, index: int) -> Any:
    return {**call, "index": index} if isinstance(call, dict) else call


def body_of_reply(reply: Reply, *, show_reasoning: bool = True) -> dict[str, Any]:
    """The whole body for an answer that was folded from a stream, as the client sees it."""
    body = {**reply.envelope, "object": "chat.completion"}
    body["choices"] = [_choice(choice, show_reasoning) for choice in reply.choices]
    if not isinstance(reply.usage, Missing):
        body["usage"] = reply.usage
    _add_rest(body, reply.bag)
    return body if show_reasoning else _without_reasoning(body)


def _choice(choice: Choice, show_reasoning: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", **choice.values}
    message["content"] = None if isinstance(choice.content, Missing) else choice.content
    if choice.content_items is not None:
        message["content"] = choice.content_items
    reasoning, details, refusal = choice.reasoning, choice.reasoning_details, choice.refusal
    if not isinstance(reasoning, Missing):
        message[ALIAS] = reasoning
    if not isinstance(details, Missing):
        message["reasoning_details"] = details
    if not isinstance(refusal, Missing):
        message["refusal"] = refusal
    if choice.tool_calls:
        message["tool_calls"] = [_tool_call(call) for call in choice.tool_calls]
    _add_rest(message, choice.message_bag)
    if not show_reasoning:
        message = _without_reasoning(message)
        if choice.content_items is not None:
            message["content"] = [i for i in choice.content_items if not is_thinking(i)]
    shown = {"index": choice.index, "message": message, **choice.choice_values}
    finish = choice.finish_reason
    shown["finish_reason"] = None if isinstance(finish, Missing) else finish
    _add_rest(shown, choice.choice_bag)
    return shown if show_reasoning else _without_reasoning(shown)


def _add_rest(shown: dict[str, Any], bag: dict[str, Any]) -> None:
    """Add keys nobody asked for. Where one has the name of what is shown, it gives way.

    Chunks may repeat a member in the form of whole bodies (`choices: null`, `message`).
    """
    for key, value in bag.items():
        if key not in shown or is_empty(shown[key]):
            shown[key] = value


def _without_reasoning(members: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in members.items() if not is_withheld(key, value)}


def _tool_call(call: ToolCall) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": call.id, "type": call.type or "function"}
    function: dict[str, Any] = {"name": call.name, "arguments": call.arguments or ""}
    for key, value in call.rest.items():
        if key.startswith("function."):
            function[key.removeprefix("function.")] = value
        else:
            shown[key] = value
    if shown["type"] == "function" or call.name is not None or call.arguments is not None:
        shown["function"] = function
    return shown
