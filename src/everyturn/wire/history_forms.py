"""The forms in which providers take reasoning back: a member, details, tags, a content list.

Pure rewriting of one assistant message; what is sent and what is refused is decided in `history`.
A message is never changed in place, and what does not change is shared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

Message = dict[str, Any]

EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})
"""Values that say nothing; an answer may have shown them on any carrier."""


def without(message: Message, keys: Iterable[str]) -> Message:
    """The message without these members; the same object where it has none of them."""
    gone = [key for key in keys if key in message]
    if not gone:
        return message
    return {key: value for key, value in message.items() if key not in gone}


def as_text(message: Message, key: str, text: str | None, copies: list[str]) -> Message:
    """The message with one text member `key`, in the place of the first of its copies.

    copies: the members that hold the text now. The same object where nothing has to change.
    """
    if not copies or copies == [key]:
        return message
    sent: Message = {}
    for name, value in message.items():
        if name not in copies:
            sent[name] = value
        elif name == copies[0]:
            sent[key] = text
    return sent


def beside_details(message: Message, key: str, text: str | None, copies: list[str]) -> Message:
    """The message with `reasoning_details` as they came, and the text only where it says more."""
    details = message.get("reasoning_details")
    if details and (text is None or text == "".join(texts_of(details))):
        return without(message, copies)
    return as_text(message, key, text, copies)


def as_tags(
    message: Message, tag: tuple[str, str], text: str | None, copies: list[str]
) -> tuple[Message, int]:
    """The message with the text in tags in front of its content, and their length together.

    The length is in code points, 0 where there is no text. A content that begins with the same
    thought has a copy of it, and stays.
    """
    sent = without(message, copies)
    if text is None:
        return sent, 0
    tags = f"{tag[0]}{text}{tag[1]}"
    content = sent.get("content")
    if type(content) is list:
        return {**sent, "content": [{"type": "text", "text": tags}, *content]}, len(tags)
    if content is not None and content.startswith(tags):
        return sent, len(tags)
    return {**sent, "content": tags + (content or "")}, len(tags)


def as_content_list(message: Message, text: str | None, details: list[Message]) -> Message:
    """The message with its content rebuilt as a list that begins with the thinking.

    details: what stood beside the text of the thinking items, as it was shown; see `details_of`.
    """
    if text is None and not details:
        return message
    content = message.get("content")
    if type(content) is list:
        rest = content
    else:
        rest = [{"type": "text", "text": content}] if content else []
    return {**message, "content": [*_thinking_items(text or "", details), *rest]}


def _thinking_items(text: str, details: list[Message]) -> list[Message]:
    """One thinking item for each of `details`, or one plain item; the text stands in the first.

    Where the text was divided between several items is not shown to clients and not known here.
    """
    inner: list[Any] = [{"type": "text", "text": text}] if text else []
    if not details:
        return [{"type": "thinking", "thinking": inner}]
    items: list[Message] = []
    for item in details:
        items.append({**item, "thinking": [*inner, *item.get("thinking", [])]})
        inner = []
    return items


def is_detail(item: Any) -> bool:
    """Whether an item of `reasoning_details` is what is shown of a content list's thinking item."""
    return (
        type(item) is dict
        and item.get("type") == "thinking"
        and type(item.get("thinking", [])) is list
    )


def details_of(items: Iterable[Message]) -> list[Message]:
    """What `reasoning_details` show of thinking items: all that stands beside their text."""
    details: list[Message] = []
    for item in items:
        detail = {key: value for key, value in item.items() if key != "thinking"}
        inner = item["thinking"]
        others = [part for part in inner if not _is_text(part)] if type(inner) is list else []
        if others:
            detail["thinking"] = others
        if len(detail) > 1:
            details.append(detail)
    return details


def thinking_text(item: Message) -> str | None:
    """The text of a thinking item, inner items of other kinds left out; None if it has no form."""
    inner = item.get("thinking")
    if type(inner) is str:
        return inner
    if type(inner) is not list:
        return None
    return "".join(part["text"] for part in inner if _is_text(part))


def _is_text(part: Any) -> bool:
    """Whether an inner item is text and nothing beside; answers are read by the same rule."""
    return (
        type(part) is dict
        and len(part) == 2
        and part.get("type") == "text"
        and type(part.get("text")) is str
    )


def texts_of(items: Iterable[Any]) -> Iterable[str]:
    """The readable texts of `reasoning_details` or `thinking_blocks`."""
    for item in items:
        if type(item) is dict:
            for key in ("text", "summary", "thinking"):
                text = item.get(key)
                if type(text) is str:
                    yield text
