"""Answers in the other form than the provider gave: frames from a whole body, a body from a stream.

`frames_of_body` serves `stream = "never"`, `body_of_reply` serves `stream = "always"`. What the
provider said in the client's own form is not rendered at all: its bytes pass (see `stream`).
"""

from __future__ import annotations

from typing import Any, Final

from everyturn.wire.reader import write
from everyturn.wire.reasoning import speaks_of_reasoning
from everyturn.wire.reply import Choice, Missing, Reply, ToolCall

_COMMON: Final = ("id", "created", "model")
_MESSAGE_ORDER: Final = (
    "reasoning_content",
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
    body["choices"] = [
        _choice(choice, show_reasoning=show_reasoning)
        for choice in sorted(reply.choices, key=lambda c: c.index)
    ]
    if not isinstance(reply.usage, Missing):
        body["usage"] = reply.usage
    return {**body, **reply.bag}


def _choice(choice: Choice, *, show_reasoning: bool) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", **choice.values}
    content: Any = None if isinstance(choice.content, Missing) else choice.content
    message["content"] = choice.content_items if choice.content_items is not None else content
    for key, value in (
        ("reasoning_content", choice.reasoning),
        ("reasoning_details", choice.reasoning_details),
        ("refusal", choice.refusal),
    ):
        is_withheld = key != "refusal" and not show_reasoning
        if not isinstance(value, Missing) and not is_withheld:
            message[key] = value
    if choice.tool_calls:
        message["tool_calls"] = [_tool_call(call) for call in choice.tool_calls]
    finish = None if isinstance(choice.finish_reason, Missing) else choice.finish_reason
    for key, value in choice.message_bag.items():
        if key not in message and (show_reasoning or not speaks_of_reasoning(key)):
            message[key] = value
    return {
        "index": choice.index,
        "message": message,
        **choice.choice_values,
        **choice.choice_bag,
        "finish_reason": finish,
    }


def _tool_call(call: ToolCall) -> dict[str, Any]:
    function: dict[str, Any] = {"name": call.name, "arguments": call.arguments or ""}
    shown: dict[str, Any] = {"id": call.id, "type": call.type or "function", "function": function}
    for key, value in call.rest.items():
        holder, name = (
            (function, key.removeprefix("function."))
            if key.startswith("function.")
            else (shown, key)
        )
        holder[name] = value
    return shown
