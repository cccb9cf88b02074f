"""What was sent to a provider, item by item, as the text that is looked for in what is stored.

Pure. Reasoning that stands as tags in front of a message's content is a mark here already: where it
stood is known only to the dialect that sent it (see `CallOpening.reasoning_tags`).
"""

from __future__ import annotations

from typing import Any

from everyturn.audit.facts import CallOpening
from everyturn.audit.reasoning import Keep, tag_mark
from everyturn.wire import reader


def raw_messages(opening: CallOpening, keep: Keep | None = None) -> list[bytes]:
    """The text of each message as sent, but for reasoning that stands as tags in its content."""
    messages = opening.sent.get("messages")
    if not isinstance(messages, list):
        return []
    if not opening.reasoning_tags:
        return [reader.write(message) for message in messages]
    tagged = dict(opening.reasoning_tags)
    return [
        reader.write(_without_tags(message, tagged[index], keep) if index in tagged else message)
        for index, message in enumerate(messages)
    ]


def _without_tags(message: dict[str, Any], length: int, keep: Keep | None) -> dict[str, Any]:
    """The message with the first `length` characters of its content, all reasoning, as a mark."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": tag_mark(content[:length], keep) + content[length:]}
    assert isinstance(content, list), "tags stand in front of a text or a list"
    text = content[0]["text"]
    first = {**content[0], "text": tag_mark(text[:length], keep) + text[length:]}
    return {**message, "content": [first, *content[1:]]}


def raw_items(items: Any) -> list[bytes]:
    """The text of each item of a list as sent; none where there is no list."""
    return [reader.write(item) for item in items] if isinstance(items, list) else []
