"""JSON values that arrive piece by piece: deltas of a member become its value.

Strings and lists grow, numbers and booleans replace, null never erases. What grows is kept in
pieces, so that a long stream costs no more than its length; `settled` gives the value.
"""

from __future__ import annotations

import re
from typing import Any, Final


class Missing:
    """The type of MISSING: a key that was never sent."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()

ATOMIC: Final = frozenset(
    {
        "channel",
        "format",
        "id",
        "index",
        "model",
        "name",
        "native_finish_reason",
        "object",
        "role",
        "signature",
        "type",
        "url",
    }
)
"""String members that are said, not streamed: a later value replaces the earlier one."""

WHOLE: Final = frozenset({"executed_tools"})
"""Lists that are said whole each time: a later one stands for all. Groq sends a call of its own
tools when it begins, and again with its outcome (recordings of `groq/compound`, 2025-09)."""


def grow(old: Any, new: Any, key: str = "") -> Any:
    """`old` with the delta `new` of the member `key`. Plain values given are never changed.

    old: a JSON value, what `grow` returned, or MISSING. List items with the same `index` (and
    `type`, where both have one) are merged, since providers stream items piece by piece (a
    signature in the last delta).
    """
    if new is None:
        return None if isinstance(old, Missing) else old
    if isinstance(new, str) and isinstance(old, str | _Pieces):
        if key in ATOMIC and isinstance(old, str):
            return new or old
        pieces = old if isinstance(old, _Pieces) else _Pieces(old)
        pieces.add(new)
        return pieces
    if isinstance(new, dict) and isinstance(old, dict):
        members = old if isinstance(old, _Members) else _Members(old)
        for name, value in new.items():
            members[name] = grow(members.get(name, MISSING), value, name)
        return members
    if isinstance(new, list) and isinstance(old, list | _Items) and key not in WHOLE:
        items = old if isinstance(old, _Items) else _Items(old)
        for item in new:
            items.add(item)
        return items
    return new


def settled(value: Any) -> Any:
    """The JSON value of what `grow` returned."""
    if isinstance(value, _Pieces):
        return value.text()
    if isinstance(value, _Members):
        return {key: settled(item) for key, item in value.items()}
    if isinstance(value, _Items):
        return [settled(item) for item in value.items]
    return value


_HIGH_SURROGATE: Final = re.compile(r"[\ud800-\udbff]")


def joined(pieces: list[str]) -> str:
    """The pieces as one text; a surrogate pair split over two of them becomes one character."""
    text = "".join(pieces)
    if not text.isascii() and _HIGH_SURROGATE.search(text):
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


class _Pieces:
    """A string that comes in pieces."""

    __slots__ = ("_pieces",)

    def __init__(self, first: str) -> None:
        self._pieces = [first]

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    def text(self) -> str:
        self._pieces = [joined(self._pieces)]
        return self._pieces[0]


class _Members(dict[str, Any]):
    """An object whose members grow."""


class _Items:
    """A list that grows, and where in it the items stand that may go on."""

    __slots__ = ("_places", "items")

    def __init__(self, first: list[Any]) -> None:
        self.items: list[Any] = []
        self._places: dict[tuple[int, str | None, str | None], int] = {}
        for item in first:
            self._append(item)

    def add(self, new: Any) -> None:
        place = self._place_of(new)
        if place is None:
            self._append(new)
        else:
            self.items[place] = grow(self.items[place], new)
            self._note(place)

    def _append(self, item: Any) -> None:
        self.items.append(item)
        self._note(len(self.items) - 1)

    def _note(self, place: int) -> None:
        """Remember an item under all that a later piece of it may be known by."""
        index, kind, name = _marks(self.items[place])
        if index is not None:
            for key in ((index, kind, name), (index, kind, None), (index, None, None)):
                self._places[key] = place

    def _place_of(self, new: Any) -> int | None:
        """Where the item stands that `new` goes on; None if it is a new one."""
        index, kind, name = _marks(new)
        if index is None:
            return None
        place = self._places.get((index, kind, name))
        if place is None:
            place = self._places.get((index, kind, None), self._places.get((index, None, None)))
        if place is None:
            return None
        _, old_kind, old_name = _marks(self.items[place])
        is_same = (kind is None or old_kind in (None, kind)) and (
            name is None or old_name in (None, name)
        )
        return place if is_same else None


def _marks(item: Any) -> tuple[int | None, str | None, str | None]:
    """The index, type and id of a list item, each None where there is none."""
    if not isinstance(item, dict) or not isinstance(item.get("index"), int):
        return None, None, None
    kind, name = item.get("type"), item.get("id")
    return (
        item["index"],
        kind if isinstance(kind, str) else None,
        name if isinstance(name, str) and name else None,
    )
