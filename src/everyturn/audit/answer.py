"""A folded reply as JSON for the record: the body as a client would see it, without reasoning.

Pure. The form is that of a whole Chat Completions body, whether the answer was streamed or not.
"""

from __future__ import annotations

from typing import Any

import msgspec

from everyturn.audit.reasoning import MARK, Keep, mark_tree
from everyturn.wire.render import body_of_reply
from everyturn.wire.reply import Choice, Reply


def answer_tree(
    reply: Reply, keep: Keep | None = None, *, usage: str | None = None
) -> dict[str, Any]:
    """The body of the reply, reasoning as marks where it stood. Shares parts with the reply.

    keep: takes the texts, where they are stored (see `reasoning.mark_tree`).
    usage: the reply's usage as it was written already, which is not done again.
    """
    body = body_of_reply(reply)
    if not has_reasoning(reply):
        if usage is not None and _is_ever_the_same(usage) and body.get("usage") is reply.usage:
            body["usage"] = msgspec.Raw(usage)
        return body  # What else speaks of reasoning is seen when the text is scanned.
    body = dict(mark_tree(body, is_answer=True, keep=keep).value)
    for choice, shown in zip(_in_order(reply), body["choices"], strict=True):
        if choice.reasoning and isinstance(shown.get("logprobs"), dict):
            shown["logprobs"] = _logprobs(shown["logprobs"], choice)
    return body


def _is_ever_the_same(written: str) -> bool:
    """Whether both ways to write give this text: where one lone surrogate stands anywhere, all of
    a tree is written with escapes for what is no ASCII, and for DEL."""
    return written.isascii() and "\\" not in written and "\x7f" not in written


def has_reasoning(reply: Reply) -> bool:
    """Whether the reply has reasoning on a carrier that the preset reads."""
    return any(choice.reasoning or choice.reasoning_details for choice in reply.choices)


def carriers_of(reply: Reply) -> str | None:
    """Names of the carriers that held reasoning, joined by commas; None when none did."""
    if not has_reasoning(reply):
        return None
    names = list(reply.carriers)
    is_detailed = any(choice.reasoning_details for choice in reply.choices)
    if is_detailed and "reasoning_details" not in names:
        names.append("reasoning_details")
    return ",".join(names) or None


def answer_text(reply: Reply) -> str | None:
    """The visible text of the first choice; of a refusal, its text; None when there is neither."""
    choice = _first(reply)
    if choice is None:
        return None
    if choice.content_items is not None:
        return text_of(choice.content_items)
    if isinstance(choice.content, str) and choice.content:
        return choice.content
    if isinstance(choice.refusal, str) and choice.refusal:
        return choice.refusal
    return choice.content if isinstance(choice.content, str) else None


def finish_of(reply: Reply) -> str | None:
    """The finish of the first choice, as the provider sent it."""
    choice = _first(reply)
    return choice.finish_reason if choice and isinstance(choice.finish_reason, str) else None


def tool_calls_in(reply: Reply) -> int:
    """How many tool calls the model asked for."""
    return sum(len(choice.tool_calls) for choice in reply.choices)


def user_text(messages: Any) -> str | None:
    """The text of the last user message; None when there is none."""
    if not isinstance(messages, list):
        return None
    for message in reversed(messages):
        if isinstance(message, dict) and message.get("role") == "user":
            return text_of(message.get("content"))
    return None


def text_of(content: Any) -> str | None:
    """The text of a message's content: the string, or the text items of a list, one a line."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [
        item["text"]
        for item in content
        if isinstance(item, dict)
        and item.get("type") in ("text", "input_text")
        and isinstance(item.get("text"), str)
    ]
    return "\n".join(texts) if texts else None


def _first(reply: Reply) -> Choice | None:
    """The choice with the lowest index."""
    if len(reply.choices) < 2:
        return reply.choices[0] if reply.choices else None
    return min(reply.choices, key=lambda choice: choice.index)


def _in_order(reply: Reply) -> list[Choice]:
    return sorted(reply.choices, key=lambda choice: choice.index)


def _logprobs(logprobs: dict[str, Any], choice: Choice) -> dict[str, Any]:
    """Token probabilities without the tokens of reasoning.

    Some servers list all tokens that were generated. Only those that make up the content stay; if
    they cannot be told apart, none does.
    """
    tokens = logprobs.get("content")
    if not isinstance(tokens, list) or not tokens:
        return logprobs
    texts = [str(item.get("token", "")) if isinstance(item, dict) else "" for item in tokens]
    said = choice.content if isinstance(choice.content, str) else ""
    if "".join(texts) == said:
        return logprobs
    kept = len(texts)
    rest = len(said)
    while rest > 0 and kept > 0:
        kept -= 1
        rest -= len(texts[kept])
    if "".join(texts[kept:]) != said:
        kept = len(texts)
    hidden = sum(len(text) for text in texts[:kept])
    return {**logprobs, "content": [_mark(hidden), *tokens[kept:]]}


def _mark(chars: int) -> dict[str, Any]:
    return {MARK: {"chars": chars, "carrier": "logprobs"}}
