"""Walk a JSON text and replace strings in place, leaving every other byte as it was.

The text has to be valid JSON. Each string is handed over decoded, with what the names above it say
of it; a string that comes back changed is written anew, and so is nothing else. Pure; one pass, no
recursion, so depth costs nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from everyturn.audit.checks import is_mixed, name_level
from everyturn.audit.rules import NAME_KEYS, VALUE_KEYS
from everyturn.wire import reader

OnString = Callable[[str, int, str], str]
"""(text, level, name) → the text to stand there; level as of `checks.name_level`."""

# One class of characters: there is nothing to backtrack over.
_SIGN: Final = re.compile(r'["{}\[\],:]')
_WORDS: Final = frozenset({"", "true", "false", "null"})
_NUMBER_LENGTH_MIN: Final = 4
"""A number under a secret's name that is shorter is a count or a switch."""
_LONG_NUMBER_MIN: Final = 8
"""Digits of a number that may be a known value, a card, an account, under any name."""


class _Frame:
    """One open object or array."""

    __slots__ = (
        "count",
        "first",
        "is_named",
        "is_object",
        "level",
        "name",
        "scalar_at",
        "value",
        "wants_name",
    )

    def __init__(self, *, is_object: bool, level: int, at: int) -> None:
        self.is_object = is_object
        self.wants_name = is_object
        self.level = level
        """What the names above say of what is inside."""
        self.name = ""
        self.scalar_at = at
        """Where the current value starts; -1 once it was a string or a container."""
        self.is_named = False
        """Whether a member said that the member `value` beside it is a secret."""
        self.value: tuple[int, int, str] | None = None
        """Span and text of the member `value`, or of an array's last string."""
        self.count = 1
        """Items of an array so far; 0 once one is no string."""
        self.first = ""
        """An array's first string."""

    def no_pair(self) -> None:
        """Something that is no string stands in an array: it is no pair of a name and a value."""
        if not self.is_object:
            self.count = 0
            self.is_named = False

    def child_level(self) -> int:
        """What the names say of the current value."""
        if not self.is_object:
            return self.level
        own = name_level(self.name)
        if self.level == 2:
            return 2 if self.name in VALUE_KEYS else max(own, 1)
        return max(own, self.level)


def replace_strings(text: str, on_string: OnString) -> str:
    """The JSON text with each string, names included, as `on_string` wants it.

    The same object when nothing changes. A number under a secret's name, and any whole number that
    is long, is handed over as text.
    """
    changes = _Walk(text, on_string).run()
    if not changes:
        return text
    pieces: list[str] = []
    done = 0
    for start in sorted(changes):
        end, written = changes[start]
        pieces += [text[done:start], written]
        done = end
    pieces.append(text[done:])
    return "".join(pieces)


class Placed(NamedTuple):
    """A string of a JSON text, or a long number, and where it stands there."""

    start: int
    end: int
    """Of the token, quotes included."""
    value: str
    level: int
    name: str


def strings_of(text: str) -> list[Placed]:
    """What `replace_strings` hands over, in the order of the text."""
    found: list[Placed] = []

    def note(value: str, level: int, name: str) -> str:
        start, end = walk.at
        found.append(Placed(start, end, value, level, name))
        return value

    walk = _Walk(text, note)
    walk.run()
    return found


class _Walk:
    """One pass over one text."""

    def __init__(self, text: str, on_string: OnString) -> None:
        self._text = text
        self._on_string = on_string
        self._changes: dict[int, tuple[int, str]] = {}
        """Where a change starts → where it ends, and what stands there then."""
        self._frames = [_Frame(is_object=False, level=0, at=0)]
        self.at = (0, 0)
        """Span of what is being handed over."""

    def run(self) -> dict[int, tuple[int, str]]:
        """All changes."""
        text, frames = self._text, self._frames
        position = 0
        while found := _SIGN.search(text, position):
            at = found.start()
            position = at + 1
            frame = frames[-1]
            match text[at]:
                case '"':
                    end = _string_end(text, position)
                    self._string(frame, at, end)
                    position = end + 1
                case ":":
                    frame.wants_name = False
                    frame.scalar_at = position
                case ",":
                    self._scalar(frame, at)
                    frame.wants_name = frame.is_object
                    frame.scalar_at = position
                    frame.count += frame.count > 0
                case "{" | "[" as sign:
                    level = frame.child_level()
                    if level == 1 and frame.level == 0:
                        level = 0  # A weak name speaks of its own string only.
                    frame.scalar_at = -1
                    frame.no_pair()
                    frames.append(_Frame(is_object=sign == "{", level=level, at=position))
                case _:
                    self._scalar(frame, at)
                    self._named_value(frame)
                    frames.pop()
        return self._changes

    def _string(self, frame: _Frame, start: int, end: int) -> None:
        token = self._text[start : end + 1]
        value = json.loads(token) if "\\" in token else token[1:-1]
        if frame.wants_name:
            frame.name = value
            self._hand_over(start, end + 1, value, 0, "")
            return
        frame.scalar_at = -1
        self._hand_over(start, end + 1, value, frame.child_level(), frame.name)
        if not frame.is_object:
            self._item(frame, start, end + 1, value)
        elif frame.name in NAME_KEYS:
            frame.is_named = frame.is_named or name_level(value) == 2
        elif frame.name == "value":
            frame.value = (start, end + 1, value)

    def _item(self, frame: _Frame, start: int, end: int, value: str) -> None:
        """A string of an array: the second of a pair whose first names it may be a secret."""
        if frame.count == 1:
            frame.first = value
        elif frame.count == 2:
            frame.is_named = name_level(frame.first) == 2 and is_mixed(value)
            frame.value = (start, end, value)
        else:
            frame.is_named = False

    def _scalar(self, frame: _Frame, end: int) -> None:
        """A number, if one stands between here and where the current value starts."""
        if frame.scalar_at < 0 or frame.wants_name:
            return
        frame.no_pair()
        level = frame.child_level()
        if level < 2 and end - frame.scalar_at < _LONG_NUMBER_MIN:
            return
        raw = self._text[frame.scalar_at : end]
        value = raw.strip()
        if value in _WORDS or len(value) < _NUMBER_LENGTH_MIN:
            return
        if level < 2 and not (len(value) >= _LONG_NUMBER_MIN and value.isdigit()):
            return
        start = frame.scalar_at + raw.index(value)
        self._hand_over(start, start + len(value), value, level, frame.name)

    def _named_value(self, frame: _Frame) -> None:
        if frame.is_named and frame.value is not None:
            start, end, value = frame.value
            self._hand_over(start, end, value, 2, "value")

    def _hand_over(self, start: int, end: int, value: str, level: int, name: str) -> None:
        self.at = (start, end)
        after = self._on_string(value, level, name)
        if after != value:
            self._changes[start] = (end, reader.write_text(after))


def _string_end(text: str, start: int) -> int:
    """Where the quote stands that closes the string whose first character is at `start`."""
    at = start
    while True:
        quote = text.index('"', at)
        slash = quote
        while text[slash - 1] == "\\":
            slash -= 1
        if (quote - slash) % 2 == 0:
            return quote
        at = quote + 1
