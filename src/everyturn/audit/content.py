"""Content addressing: a conversation that resends its history is stored once.

Pure, with a bounded memory. Each message or tool definition of a request is stored under the hash
of its redacted form and the rules' version; a list is a chain of prefix nodes, one an item, and a
request refers to the node of its last item, so references do not grow with the history either.

Memory leads from a hash of the raw bytes to what is stored, so that neither redacting nor writing
is repeated for what was seen; a message that nothing was found in has its address for that hash, so
a new one is hashed once. A list is followed from its beginning, node by node, as far as it is
known. Only `confirm`, after the commit, makes it remember; what was never committed is simply new
the next time. What was forgotten is written again, and the store finds by its address that it has
it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from everyturn.audit.group import Content, Group, Known, PrefixNode
from everyturn.audit.records import ContentRef
from everyturn.audit.redact import NONE_FOUND, Counts, Redacted

ENTRIES_MAX: Final = 16_384
"""Items, and as many nodes, that are remembered; about 250 bytes each."""
ADDRESS_BYTES: Final = 16
_AGAIN_MAX: Final = 1024
_AGAIN_BYTES_MAX: Final = 4096
"""Items that came again, where nothing was found in them, are remembered as they are: how many, and
how long each may be."""
_ROOT: Final = 0
"""Stands for the parent of a list's first node."""

Clean = Callable[[bytes], Redacted[str]]
"""Raw JSON of an item → its JSON text as it may rest, and rule → count."""


def content_address(version: str, text: str) -> bytes:
    """The address of a content: half a SHA-256 of the rules' version and the redacted text."""
    return _address(_seeded(version), text.encode("utf-8", "surrogatepass"))


def _seeded(version: str) -> Any:
    """The hash of an address as it begins, to be copied: a new one is looked for by its name."""
    return hashlib.sha256(version.encode() + b"\0")


def _address(seeded: Any, data: bytes) -> bytes:
    sha256 = seeded.copy()
    sha256.update(data)
    address: bytes = sha256.digest()[:ADDRESS_BYTES]
    return address


class Reference:
    """A list as it goes into a record, and what of it is not known to be stored.

    Contents, nodes and known belong in the same `Group` as the record.
    """

    __slots__ = ("contents", "counts", "known", "nodes", "ref")

    def __init__(
        self,
        ref: ContentRef | None,
        counts: Counts,
        contents: tuple[Content, ...] = (),
        nodes: tuple[PrefixNode, ...] = (),
        known: tuple[Known, ...] = (),
    ) -> None:
        """ref: None for an empty list. counts: over all items, the known ones included."""
        self.ref = ref
        self.counts = counts
        self.contents = contents
        self.nodes = nodes
        self.known = known


_EMPTY: Final = Reference(None, NONE_FOUND)


class _Item:
    """Something that is stored."""

    __slots__ = ("address", "counts")

    def __init__(self, address: bytes, counts: Counts) -> None:
        self.address = address
        self.counts = counts


class ContentIndex:
    """Knows what is stored. Use from one task; one index for one store."""

    def __init__(
        self, version: str, *, node_first: int = 1, entries_max: int = ENTRIES_MAX
    ) -> None:
        """version: of the redaction rules. node_first: greater than every node in the store."""
        self._seeded = _seeded(version)
        self._node_next = node_first
        self._entries_max = entries_max
        self._again: dict[bytes, _Item] = {}
        """Sparing the hash of what every request brings, such as a system prompt."""
        self._items: dict[bytes, _Item] = {}
        self._nodes: dict[tuple[int, bytes], int] = {}
        """(parent, address of the last item) → node."""

    def refer(self, items: Sequence[bytes], clean: Clean, *, way: bytes = b"") -> Reference:
        """Refer to a list of JSON texts, each as it was sent.

        clean: called for items that are not known; its failures are the caller's.
        way: of cleaning; what is known of an item holds for the way it was cleaned in.
        """
        if not items:
            return _EMPTY
        contents: dict[bytes, Content] = {}
        nodes: list[PrefixNode] = []
        known: list[Known] = []
        parent, counts = _ROOT, NONE_FOUND
        for raw in items:
            # No JSON text has a NUL in it.
            named = b"%b\0%b" % (raw, way) if way else raw
            item = self._again.get(named)
            if item is None:
                item = self._item(raw, named, clean, contents, known)
            if item.counts:
                counts = _added(counts, item.counts)
            address = item.address
            # What follows a new node is new itself.
            node = None if nodes else self._node(parent, address)
            if node is None:
                node = self._node_next
                self._node_next = node + 1
                nodes.append(PrefixNode(node, parent or None, address))
            parent = node
        return Reference(
            ContentRef(parent), counts, tuple(contents.values()), tuple(nodes), tuple(known)
        )

    def unknown(self, items: Sequence[bytes]) -> list[bytes]:
        """Those of a list that `refer` would have to clean, as far as is known now.

        Changes nothing, and may be asked by any thread.
        """
        return [
            raw
            for raw in items
            if raw not in self._again and _address(self._seeded, raw) not in self._items
        ]

    def confirm(self, group: Group) -> None:
        """Remember what a group held, now that it is committed."""
        for known in group.known:
            counts: Counts = dict(known.counts) if known.counts else NONE_FOUND
            _remember(self._items, known.key, _Item(known.address, counts), self._entries_max)
        for node in group.nodes:
            key = (node.parent or _ROOT, node.address)
            _remember(self._nodes, key, node.node, self._entries_max)

    def clear(self) -> None:
        """Forget everything, because what is stored was erased."""
        self._again.clear()
        self._items.clear()
        self._nodes.clear()

    def _node(self, parent: int, address: bytes) -> int | None:
        key = (parent, address)
        node = self._nodes.pop(key, None)
        if node is not None:
            # To the end of the dict, from whose beginning the oldest are dropped.
            self._nodes[key] = node
        return node

    def _item(
        self,
        raw: bytes,
        named: bytes,
        clean: Clean,
        contents: dict[bytes, Content],
        known: list[Known],
    ) -> _Item:
        """Where an item is stored and what was redacted in it; its content, if it is new.

        named: the raw text with its way of cleaning.
        """
        key = _address(self._seeded, named)
        stored = self._items.pop(key, None)
        if stored is not None:
            self._items[key] = stored
            if stored.address == key and len(named) <= _AGAIN_BYTES_MAX:
                if len(self._again) >= _AGAIN_MAX:
                    self._again.clear()
                self._again[named] = stored
            return stored
        cleaned = clean(raw)
        text, counts = cleaned.value, cleaned.counts
        data = text.encode("utf-8", "surrogatepass")
        address = key if data == named else _address(self._seeded, data)
        if address not in contents:
            contents[address] = Content(address, text)
        known.append(Known(key, address, _frozen(counts)))
        return _Item(address, counts)


def _added(counts: Counts, more: Counts) -> Counts:
    if not more:
        return counts
    together = dict(counts)
    for rule, count in more.items():
        together[rule] = together.get(rule, 0) + count
    return together


def _frozen(counts: Counts) -> tuple[tuple[str, int], ...]:
    return tuple(counts.items()) if counts else ()


def _remember(entries: dict[Any, Any], key: Any, value: Any, entries_max: int) -> None:
    if len(entries) >= entries_max:
        # An eighth at a time: dropping one would walk over all the gaps before it.
        for oldest in list(islice(entries, max(1, entries_max // 8))):
            del entries[oldest]
    entries.pop(key, None)
    entries[key] = value
