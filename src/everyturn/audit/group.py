"""What is appended in one commit: records, and what they refer to.

Plain classes: the way of a turn reads their members often, which compiled code does at once.
Nobody changes one after it is made.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec

from everyturn.audit.records import (
    AccessEvent,
    Medium,
    ModelCall,
    ReasoningText,
    Record,
    TurnAudit,
)

# Constants: compiled, what is imported is looked up by its name each time.
_CALL: Final = ModelCall
_TURN: Final = TurnAudit
_ACCESS: Final = AccessEvent
_ROW_BYTES: Final = 1_024
"""What a row counts for beside its payloads."""


class Content:
    """One message or tool definition, redacted, under the hash of what it says."""

    __slots__ = ("address", "text")

    def __init__(self, address: bytes, text: str) -> None:
        self.address = address
        """16 bytes: hash of the rules' version and `text` (see `content.content_address`)."""
        self.text = text
        """JSON text."""


class PrefixNode:
    """A list that ends with one item: the list of `parent`, then the content at `address`."""

    __slots__ = ("address", "node", "parent")

    def __init__(self, node: int, parent: int | None, address: bytes) -> None:
        self.node = node
        """Unique in the store, greater than `parent`, and growing with time."""
        self.parent = parent
        """None: the item is the first."""
        self.address = address


class Known:
    """What the content index remembers of a raw item once it is stored."""

    __slots__ = ("address", "counts", "key")

    def __init__(self, key: bytes, address: bytes, counts: tuple[tuple[str, int], ...]) -> None:
        self.key = key
        """Hash of the raw bytes. It stays in memory."""
        self.address = address
        """Of the content."""
        self.counts = counts
        """Rule → count of what was redacted in the item."""


class Group:
    """What is appended in one commit: all of it or nothing."""

    __slots__ = ("contents", "is_turn_new", "known", "media", "nodes", "reasoning", "records")

    def __init__(
        self,
        records: tuple[Record, ...],
        contents: tuple[Content, ...] = (),
        nodes: tuple[PrefixNode, ...] = (),
        known: tuple[Known, ...] = (),
        reasoning: tuple[ReasoningText, ...] = (),
        media: tuple[Medium, ...] = (),
        is_turn_new: bool = False,
    ) -> None:
        self.records = records
        self.contents = contents
        """In no order; an address that is stored already is no change."""
        self.nodes = nodes
        """Parents before children; a parent outside the group is stored already."""
        self.known = known
        """For `ContentIndex.confirm`, once the group is committed; no store looks at it."""
        self.reasoning = reasoning
        """Reasoning texts to keep; one that is kept already is no change."""
        self.media = media
        """Media to keep; one that is kept already is no change."""
        self.is_turn_new = is_turn_new
        """Whether all its records are of a turn whose id was made for it just now: nothing that
        was stored before names it."""


def group_bytes(group: Group) -> int:
    """What a group counts for in the queue: its payloads in characters, and a sum for its rows."""
    size = _ROW_BYTES * len(group.records)
    for content in group.contents:
        size += len(content.text)
    for kept in group.reasoning:
        size += _ROW_BYTES + len(kept.text)
    for medium in group.media:
        size += _ROW_BYTES + len(medium.data)
    for record in group.records:
        kind = type(record)  # `isinstance` takes long to say no
        if kind is _CALL:
            call = cast(ModelCall, record)
            size += len(call.response_json or "") + len(call.parameters_json or "")
        elif kind is _TURN:
            turn = cast(TurnAudit, record)
            size += len(turn.user_text or "") + len(turn.assistant_text or "")
        elif kind is not _ACCESS:
            size += sum(len(v) for v in msgspec.structs.astuple(record) if isinstance(v, str))
    return size
