"""Messages between the shape of chat requests, GenAI's parts and OpenInference's flat names.

Reasoning never passes: in either direction a part that holds it is left out, and who reads is told
how many code points it had.
"""

from __future__ import annotations

from typing import Any, Final

from everyturn.wire.reader import write_text

_REASONING: Final = ("thinking", "redacted_thinking", "thought")
_CHAT_KEYS: Final = ("role", "content", "tool_calls", "tool_call_id", "name", "refusal")


def to_parts(messages: Any) -> list[dict[str, Any]] | None:
    """Chat messages as GenAI's input messages; None for what is no list of messages."""
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        return None
    return [_message_parts(one) for one in messages]


def to_output(response: Any) -> list[dict[str, Any]] | None:
    """A chat completion as GenAI's output messages; None for an answer of another shape."""
    choices = response.get("choices") if isinstance(response, dict) else None
    if not isinstance(choices, list) or not all(isinstance(one, dict) for one in choices):
        return None
    found = []
    for choice in choices:
        message = choice.get("message")
        if not isinstance(message, dict):
            return None
        told = _message_parts({"role": "assistant", **message})
        reason = choice.get("finish_reason")
        found.append({**told, "finish_reason": reason if isinstance(reason, str) else ""})
    return found


def _message_parts(message: dict[str, Any]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    content = message.get("content")
    if message.get("role") == "tool":
        parts.append(
            {
                "type": "tool_call_response",
                "id": message.get("tool_call_id"),
                "response": content,
            }
        )
    elif isinstance(content, str):
        parts.append({"type": "text", "content": content})
    elif isinstance(content, list):
        parts += [part for one in content if (part := _content_part(one)) is not None]
    refusal = message.get("refusal")
    if isinstance(refusal, str):
        parts.append({"type": "refusal", "content": refusal})
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        asked = call.get("function") if isinstance(call, dict) else None
        if isinstance(asked, dict):
            parts.append(
                {
                    "type": "tool_call",
                    "id": call.get("id"),
                    "name": asked.get("name"),
                    "arguments": asked.get("arguments"),
                }
            )
    return {"role": message.get("role"), "parts": parts}


def _content_part(one: Any) -> dict[str, Any] | None:
    if not isinstance(one, dict) or _is_reasoning(one.get("type")):
        return None
    if one.get("type") == "text":
        return {"type": "text", "content": one.get("text")}
    return one


class Read:
    """Reads messages of both conventions and counts the reasoning that it leaves out."""

    def __init__(self) -> None:
        self.reasoning_chars = 0
        """Code points of reasoning that was left out."""
        self.has_reasoning = False

    def from_parts(self, messages: Any) -> list[dict[str, Any]] | None:
        """GenAI's messages in the shape of chat requests; None for what are no messages."""
        if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
            return None
        return [told for one in messages for told in self._chat_messages(one)]

    def from_output(self, messages: Any) -> dict[str, Any] | None:
        """GenAI's output messages in the shape of a chat completion."""
        if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
            return None
        choices = []
        for index, one in enumerate(messages):
            told = self._chat_messages({"role": "assistant", **one})
            choice: dict[str, Any] = {"index": index, "message": told[0]}
            if one.get("finish_reason"):
                choice["finish_reason"] = one["finish_reason"]
            choices.append(choice)
        return {"choices": choices}

    def _chat_messages(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """One message, or one for each tool result that it holds."""
        parts = message.get("parts")
        if not isinstance(parts, list):
            return [{key: message[key] for key in _CHAT_KEYS if key in message}]
        content: list[Any] = []
        calls: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        for part in parts:
            kind = part.get("type") if isinstance(part, dict) else None
            if _is_reasoning(kind):
                self._leave_out(part.get("content"))
            elif kind == "tool_call":
                calls.append(_call(part.get("id"), part.get("name"), part.get("arguments")))
            elif kind == "tool_call_response":
                given = part.get("response", part.get("result"))
                results.append(
                    {"role": "tool", "tool_call_id": part.get("id"), "content": _as_text(given)}
                )
            elif kind == "text":
                content.append({"type": "text", "text": part.get("content")})
            else:
                content.append(part)
        told: dict[str, Any] = {"role": message.get("role"), "content": _plainest(content)}
        if calls:
            told["tool_calls"] = calls
        return results if results and not content and not calls else [told, *results]

    def from_flat(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """OpenInference's messages, one dict each with the names behind `N.message.`."""
        return [self._flat(one) for one in entries]

    def _flat(self, entry: dict[str, Any]) -> dict[str, Any]:
        told: dict[str, Any] = {"role": entry.get("role"), "content": entry.get("content")}
        parts = []
        for one in _dicts(entry.get("contents")):
            part = _dict(one.get("message_content"))
            if _is_reasoning(part.get("type")):
                self._leave_out(part.get("text"))
            else:
                parts.append(part)
        if parts:
            told["content"] = _plainest(parts)
        for name in ("tool_call_id", "name"):
            if name in entry:
                told[name] = entry[name]
        calls = [_dict(one.get("tool_call")) for one in _dicts(entry.get("tool_calls"))]
        asked = [(one, _dict(one.get("function"))) for one in calls]
        if asked:
            told["tool_calls"] = [
                _call(one.get("id"), function.get("name"), function.get("arguments"))
                for one, function in asked
            ]
        return told

    def _leave_out(self, text: Any) -> None:
        self.has_reasoning = True
        self.reasoning_chars += len(text) if isinstance(text, str) else 0


def _is_reasoning(kind: Any) -> bool:
    return isinstance(kind, str) and (kind.startswith("reasoning") or kind in _REASONING)


def _call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": _as_text(arguments)},
    }


def _dict(value: Any) -> dict[str, Any]:
    """The object that a flat name leads to; an empty one where it leads to something else."""
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else write_text(value)


def _plainest(parts: list[Any]) -> Any:
    """Content as one text where it is one, as parts otherwise; None where there is none."""
    if len(parts) == 1 and isinstance(parts[0], dict) and set(parts[0]) == {"type", "text"}:
        return parts[0]["text"]
    return parts or None
