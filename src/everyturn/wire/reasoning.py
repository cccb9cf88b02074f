"""The reasoning-output policy: carriers, mirrors, tags and drift.

The preset decides what is reasoning; nothing here looks at models, hosts or the shape of a payload.
Text carriers of one `read` list are mirrors of each other; tags inside content are split only where
the preset says so; what speaks of reasoning and is not evidenced is drift.
"""

from __future__ import annotations

import re
from typing import Any, Final

from everyturn.errors import ReasoningConflict

_SPEAKS: Final = re.compile("reasoning|think|thought", re.IGNORECASE)


def speaks_of_reasoning(key: str) -> bool:
    """Whether a key has a name that speaks of reasoning, as all names of known carriers do."""
    return _SPEAKS.search(key) is not None


def is_withheld(key: str, value: Any) -> bool:
    """Whether `show_reasoning = false` keeps a member from the client.

    An opaque signature says nothing, and the provider wants it back.
    """
    return key != "thought_signature" and speaks_of_reasoning(key) and not is_empty(value)


def is_empty(value: Any) -> bool:
    """Null, "", [] and {}: never drift."""
    return value is None or value == "" or value == [] or value == {}


class Mirror:
    """Compares text carriers that should say the same, while their texts grow.

    While one text is a prefix of the other the longer is emitted, once. Each carrier has a place in
    what was emitted, so that only what it says anew is compared; one that appears late is compared
    from the start.
    """

    __slots__ = ("_places", "parts")

    def __init__(self) -> None:
        self.parts: list[str] = []
        """What was emitted, piece by piece. While there is one carrier, more may be appended."""
        self._places: dict[str, _Place] = {}

    @property
    def carriers(self) -> tuple[str, ...]:
        """The carriers that have said something, in order of appearance."""
        return tuple(self._places)

    @property
    def is_shared(self) -> bool:
        """Whether more than one carrier has said something."""
        return len(self._places) > 1

    @property
    def lagging(self) -> set[str]:
        """Carriers that have said less than another by now."""
        if not self.is_shared:
            return set()
        return {name for name, at in self._places.items() if at.part < len(self.parts)}

    def add(self, carrier: str, text: str) -> str:
        """The part of `text` that no carrier has said before. Raises ReasoningConflict."""
        if not text:
            return ""
        place = self._places.get(carrier)
        if place is None:
            if len(self._places) == 1:
                (only,) = self._places.values()
                only.part = len(self.parts)
            place = self._places[carrier] = _Place()
        new = self._beyond(place, text, carrier) if self.is_shared else text
        if new:
            self.parts.append(new)
            place.part, place.offset = len(self.parts), 0
        return new

    def _beyond(self, place: _Place, text: str, carrier: str) -> str:
        """What is left of `text` after what was emitted beyond the carrier's place."""
        at = 0
        while at < len(text) and place.part < len(self.parts):
            part = self.parts[place.part]
            length = min(len(text) - at, len(part) - place.offset)
            if text[at : at + length] != part[place.offset : place.offset + length]:
                before = sum(map(len, self.parts[: place.part])) + place.offset
                raise ReasoningConflict(
                    f"the provider's `{carrier}` differs from its mirror after character {before}",
                    param=carrier,
                )
            at += length
            place.offset += length
            if place.offset == len(part):
                place.part, place.offset = place.part + 1, 0
        return text[at:]


class _Place:
    """How far a carrier has come: the part it is in, and the characters of it that it has said."""

    __slots__ = ("offset", "part")

    def __init__(self) -> None:
        self.part = 0
        self.offset = 0


class TagSplitter:
    """Splits text at tags, keeping every other byte; holds back only what may become a tag."""

    __slots__ = ("_close", "_held", "_open", "inside")

    def __init__(self, tag: tuple[str, str]) -> None:
        self._open, self._close = tag
        self._held = ""
        self.inside = False

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """Segments as (is reasoning, text), in order, none empty."""
        text = self._held + text
        segments: list[tuple[bool, str]] = []
        start = 0
        while True:
            tag = self._close if self.inside else self._open
            at = text.find(tag, start)
            if at < 0:
                break
            if at > start:
                segments.append((self.inside, text[start:at]))
            self.inside = not self.inside
            start = at + len(tag)
        end = len(text) - _partial(text, tag, start)
        if end > start:
            segments.append((self.inside, text[start:end]))
        self._held = text[end:]
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
        end = len(text) - _partial(text, self._close, 0)
        self._held = text[end:]
        return [(True, text[:end])] if end else []

    def close(self) -> list[tuple[bool, str]]:
        """What was held back, as what it is when no tag follows."""
        held, self._held = self._held, ""
        return [(self.inside, held)] if held else []


def _partial(text: str, tag: str, start: int) -> int:
    """Length of the longest end of `text` from `start` on that could still become `tag`."""
    for length in range(min(len(tag) - 1, len(text) - start), 0, -1):
        if text.endswith(tag[:length]):
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
