"""The reasoning-output policy: carriers, mirrors, tags and drift.

The preset decides what is reasoning; nothing here looks at models, hosts or the shape of a payload.
Text carriers of one `read` list are mirrors of each other; tags inside content are split only where
the preset says so; what speaks of reasoning and is not evidenced is drift.
"""

from __future__ import annotations

import re
from typing import Any, Final

from everyturn.errors import ReasoningConflict

KNOWN_CARRIERS: Final = frozenset(
    {
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "thinking",
        "thinking_blocks",
        "thought_signature",
    }
)
"""Keys of a message or delta that are known to carry reasoning somewhere."""

_SPEAKS: Final = re.compile("reasoning|think|thought", re.IGNORECASE)


def speaks_of_reasoning(key: str) -> bool:
    """Whether a key nobody evidenced has a name that speaks of reasoning."""
    return _SPEAKS.search(key) is not None


def is_empty(value: Any) -> bool:
    """Null, "", [] and {}: never drift."""
    return value is None or value == "" or value == [] or value == {}


class Mirror:
    """Compares text carriers that should say the same, while their texts grow.

    While one text is a prefix of the other the longer is emitted, once. Only the difference that
    some carrier has yet to confirm is compared; a carrier that appears late is compared from the
    start.
    """

    __slots__ = ("_base", "_offsets", "_tail", "parts")

    def __init__(self) -> None:
        self.parts: list[str] = []
        """What was emitted, piece by piece."""
        self._offsets: dict[str, int] = {}
        self._base = 0
        self._tail = ""

    @property
    def carriers(self) -> int:
        """How many carriers have said something."""
        return len(self._offsets)

    def opened(self, carrier: str) -> None:
        """Note that `carrier` is the only one so far, for pieces that go to `parts` directly."""
        self._offsets.setdefault(carrier, 0)

    def add(self, carrier: str, text: str) -> str:
        """The part of `text` that no carrier has said before. Raises ReasoningConflict."""
        if not text:
            return ""
        if carrier not in self._offsets:
            if self._offsets:
                self._compare_from_start(carrier)
            else:
                self._offsets[carrier] = 0
        if len(self._offsets) == 1:
            self.parts.append(text)
            return text
        start = self._offsets[carrier] - self._base
        known = self._tail[start : start + len(text)]
        if not text.startswith(known):
            raise ReasoningConflict(
                f"the provider's `{carrier}` differs from its mirror near character "
                f"{self._offsets[carrier]}",
                param=carrier,
            )
        new = text[len(known) :]
        if new:
            self._tail += new
            self.parts.append(new)
        self._offsets[carrier] += len(text)
        base = min(self._offsets.values())
        self._tail = self._tail[base - self._base :]
        self._base = base
        return new

    def _compare_from_start(self, newcomer: str) -> None:
        if len(self._offsets) == 1:
            only = next(iter(self._offsets))
            self._offsets[only] = sum(map(len, self.parts))
        self._tail = "".join(self.parts)
        self._base = 0
        self._offsets[newcomer] = 0

    @property
    def is_uneven(self) -> bool:
        """Whether some carrier said less than another in the end."""
        return len(self._offsets) > 1 and len(set(self._offsets.values())) > 1


class TagSplitter:
    """Splits text at tags, keeping every other byte; holds back only what may become a tag."""

    __slots__ = ("_close", "_held", "_open", "inside")

    def __init__(self, tag: tuple[str, str]) -> None:
        self._open, self._close = tag
        self._held = ""
        self.inside = False

    @property
    def is_holding(self) -> bool:
        """Whether some text waits to be told from a tag."""
        return bool(self._held)

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """Segments as (is reasoning, text), in order, none empty."""
        text = self._held + text
        self._held = ""
        segments: list[tuple[bool, str]] = []
        while text:
            tag = self._close if self.inside else self._open
            at = text.find(tag)
            if at >= 0:
                if at:
                    segments.append((self.inside, text[:at]))
                self.inside = not self.inside
                text = text[at + len(tag) :]
                continue
            keep = _partial(text, tag)
            if keep < len(text):
                segments.append((self.inside, text[: len(text) - keep]))
            self._held = text[len(text) - keep :] if keep else ""
            break
        return segments

    def close(self) -> list[tuple[bool, str]]:
        """What was held back, as what it is when no tag follows."""
        held, self._held = self._held, ""
        return [(self.inside, held)] if held else []


class MarkedSplitter:
    """Gemini's form: reasoning runs from `<thought>` at the start of marked text to `</thought>`.

    A mark without the tag leaves content as content, and so does a tag without the mark.
    """

    __slots__ = ("_close", "_held", "_open", "inside")

    def __init__(self, tag: tuple[str, str]) -> None:
        self._open, self._close = tag
        self._held = ""
        self.inside = False

    @property
    def is_holding(self) -> bool:
        """Whether some text waits to be told from a tag."""
        return bool(self._held)

    def feed(self, text: str, *, is_marked: bool) -> list[tuple[bool, str]]:
        """Segments as (is reasoning, text), in order, none empty."""
        is_marked = is_marked or bool(self._held)
        text = self._held + text
        self._held = ""
        if self.inside:
            return self._until_closed(text)
        if is_marked and text.startswith(self._open):
            self.inside = True
            return self._until_closed(text[len(self._open) :])
        if is_marked and text and self._open.startswith(text):
            self._held = text
            return []
        return [(False, text)] if text else []

    def _until_closed(self, text: str) -> list[tuple[bool, str]]:
        thought, tag, answer = text.partition(self._close)
        if tag:
            self.inside = False
            return [(kind, piece) for kind, piece in ((True, thought), (False, answer)) if piece]
        keep = _partial(text, self._close)
        self._held = text[len(text) - keep :]
        thought = text[: len(text) - keep]
        return [(True, thought)] if thought else []

    def close(self) -> list[tuple[bool, str]]:
        """What was held back, as what it is when no tag follows."""
        held, self._held = self._held, ""
        return [(self.inside, held)] if held else []


def _partial(text: str, tag: str) -> int:
    """Length of the longest end of `text` that could still become `tag`."""
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-length:]):
            return length
    return 0


def is_marked_thought(message: dict[str, Any]) -> bool:
    """Whether Gemini's compatible endpoint marks this message or delta as a thought.

    Source: providers evidence P19, `extra_content.google.thought` (Vertex: `extra_content.vertex`).
    """
    extra = message.get("extra_content")
    if not isinstance(extra, dict):
        return False
    return any(
        isinstance(place, dict) and place.get("thought") is True
        for place in (extra.get("google"), extra.get("vertex"))
    )


def detail_text(items: list[Any]) -> str:
    """The readable text of `reasoning_details` items: `text` and `summary`, in order."""
    return "".join(
        item[key]
        for item in items
        if isinstance(item, dict)
        for key in ("text", "summary")
        if isinstance(item.get(key), str)
    )
