"""Content that is more than one text: text with tags, and lists of items, taken apart.

A segment is a piece of text and whether it is reasoning. Content lists are Mistral's form: items of
text, thinking and other things; see section 3 of the HTTP reference.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from everyturn.errors import TranslationError
from everyturn.wire.reply import is_plain_text

ALIAS: Final = "reasoning_content"
"""The one name under which a client sees reasoning text."""

Segment = tuple[bool, str]
"""Whether it is reasoning, and the text."""


def groups_of(segments: list[Segment], *, is_whole: bool) -> list[dict[str, str]]:
    """Messages or deltas that say the segments: in each, reasoning comes before text.

    A whole message has one group; deltas have as many as keep the order.
    """
    groups: list[dict[str, str]] = [{}]
    for is_reasoning, text in segments:
        key = ALIAS if is_reasoning else "content"
        if is_reasoning and "content" in groups[-1] and not is_whole:
            groups.append({})
        groups[-1][key] = groups[-1].get(key, "") + text
    return groups


class ContentList(NamedTuple):
    """A content list taken apart."""

    segments: list[Segment]
    """The thinking and the items that are nothing but text, in order."""
    others: list[Any]
    """All items but the thinking, in order."""
    has_other: bool
    """Whether there is an item that is neither thinking nor nothing but text."""
    details: list[dict[str, Any]]
    """What stood beside the text of thinking items: signatures, references."""


def read_content_list(items: list[Any], path: str) -> ContentList:
    """Take a content list with thinking apart. Raises TranslationError for a wrong type."""
    read = ContentList([], [], any(_is_other(item) for item in items), [])
    for position, item in enumerate(items):
        if _kind(item) == "thinking":
            text, detail = _thinking(item, f"{path}[{position}]")
            read.segments.append((True, text))
            if detail is not None:
                read.details.append(detail)
            continue
        read.others.append(item)
        if is_plain_text(item):
            read.segments.append((False, item["text"]))
    return read


def is_thinking(item: Any) -> bool:
    """Whether an item of a content list is known to hold reasoning somewhere."""
    return _kind(item) in ("thinking", "redacted_thinking", "reasoning")


def _kind(item: Any) -> str | None:
    kind = item.get("type") if isinstance(item, dict) else None
    return kind if isinstance(kind, str) else None


def _is_other(item: Any) -> bool:
    return _kind(item) != "thinking" and not is_plain_text(item)


def _thinking(item: dict[str, Any], path: str) -> tuple[str, dict[str, Any] | None]:
    """The text of a thinking item, and what stood beside it as an item of its own."""
    inner = item.get("thinking")
    if not isinstance(inner, str | list):
        raise TranslationError("the provider sent a thinking item without thinking", param=path)
    parts = [{"type": "text", "text": inner}] if isinstance(inner, str) else inner
    rest = [part for part in parts if not is_plain_text(part)]
    detail = {key: value for key, value in item.items() if key != "thinking"}
    if rest:
        detail["thinking"] = rest
    text = "".join(part["text"] for part in parts if is_plain_text(part))
    return text, detail if len(detail) > 1 else None
