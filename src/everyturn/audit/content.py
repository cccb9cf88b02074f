"""Content addressing: a conversation that resends its history is stored once.

Pure, with a bounded memory. Each message or tool definition of a request is stored under the hash
of its redacted form and the rules' version; a list is a chain of prefix nodes, one an item, and a
request refers to the node of its last item, so references do not grow with the history either.

Memory leads from a keyed hash of the raw bytes to what is stored, so that neither redacting nor
writing is repeated for what was seen: the longest known prefix of a list costs one hash, and each
later item is looked up by itself. Only `confirm`, after the commit, makes it remember; what was
never committed is simply new the next time. What was forgotten is written again, and the store
finds by its address that it has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from everyturn.audit.records import Content, ContentRef, Group, Known, PrefixNode
from everyturn.audit.redact import NONE_FOUND, Counts, Redacted

ENTRIES_MAX: Final = 32_768
"""Items, and as many prefixes, that are remembered; about 250 bytes each."""
ADDRESS_BYTES: Final = 16

Clean = Callable[[bytes], Redacted[str]]
"""Raw JSON of an item → its JSON text as it may rest, and rule → count."""


def content_address(version: str, text: str) -> bytes:
    """The address of a content: half a SHA-256 of the rules' version and the redacted text."""
    data = f"{version}\0{text}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).digest()[:ADDRESS_BYTES]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A list as it goes into a record, and what of it is not known to be stored.

    Contents, nodes and known belong in the same `Group` as the record.
    """

    ref: ContentRef | None
    """None for an empty list."""
    counts: Counts
    """Rule → count over all items, the known ones included."""
    contents: tuple[Content, ...]
    nodes: tuple[PrefixNode, ...]
    known: tuple[Known, ...]


_EMPTY: Final = Reference(ref=None, counts=NONE_FOUND, contents=(), nodes=(), known=())


@dataclass(frozen=True, slots=True)
class _Prefix:
    node: int | None
    counts: Counts


_ROOT: Final = _Prefix(None, NONE_FOUND)


class ContentIndex:
    """Knows what is stored. Use from one task; one index for one store."""

    def __init__(
        self, key: bytes, version: str, *, node_first: int = 1, entries_max: int = ENTRIES_MAX
    ) -> None:
        """key: random bytes of this process; raw hashes cannot be computed without them.

        version: of the redaction rules. node_first: greater than every node in the store.
        """
        self._version = version
        self._node_next = node_first
        self._entries_max = entries_max
        seed = hashlib.sha256(key).digest() + version.encode()
        # SHA-256 behind a secret start: twice as quick as keyed BLAKE2 where the processor has
        # instructions for it, and a digest that never leaves memory cannot be extended.
        self._item_hash = hashlib.sha256(b"item\0" + seed)
        self._prefix_hash = hashlib.sha256(b"prefix\0" + seed)
        self._items: dict[bytes, tuple[bytes, Counts]] = {}
        self._prefixes: dict[bytes, _Prefix] = {}

    def refer(self, items: Sequence[bytes], clean: Clean, *, way: bytes = b"") -> Reference:
        """Refer to a list of JSON texts, each as it was sent.

        clean: called for items that are not known; its failures are the caller's.
        way: of cleaning; what is known of an item holds for the way it was cleaned in.
        """
        if not items:
            return _EMPTY
        keys = self._prefix_keys(items, way)
        start, before = self._longest(keys)
        if start == len(items):
            assert before.node is not None
            return Reference(
                ref=ContentRef(before.node), counts=before.counts, contents=(), nodes=(), known=()
            )
        contents: dict[bytes, Content] = {}
        nodes: list[PrefixNode] = []
        known: list[Known] = []
        parent, counts = before.node, before.counts
        for raw, prefix_key in zip(items[start:], keys[start:], strict=True):
            address, found = self._item(raw, way, clean, contents, known)
            counts = _added(counts, found)
            nodes.append(PrefixNode(self._node_next, parent, address))
            known.append(Known(prefix_key, address, self._node_next, _frozen(counts)))
            parent = self._node_next
            self._node_next += 1
        assert parent is not None
        return Reference(
            ref=ContentRef(parent),
            counts=counts,
            contents=tuple(contents.values()),
            nodes=tuple(nodes),
            known=tuple(known),
        )

    def unknown(self, items: Sequence[bytes]) -> list[bytes]:
        """Those of a list that `refer` would have to clean, as far as is known now.

        Changes nothing, and may be asked by any thread.
        """
        keys = self._prefix_keys(items, b"")
        counts = range(len(keys), 0, -1)
        start = next((count for count in counts if keys[count - 1] in self._prefixes), 0)
        return [raw for raw in items[start:] if self._item_key(raw, b"") not in self._items]

    def confirm(self, group: Group) -> None:
        """Remember what a group held, now that it is committed."""
        for known in group.known:
            counts: Counts = dict(known.counts) if known.counts else NONE_FOUND
            if known.node is None:
                _remember(self._items, known.key, (known.address, counts), self._entries_max)
            else:
                _remember(self._prefixes, known.key, _Prefix(known.node, counts), self._entries_max)

    def clear(self) -> None:
        """Forget everything, because what is stored was erased."""
        self._items.clear()
        self._prefixes.clear()

    def _prefix_keys(self, items: Sequence[bytes], way: bytes) -> list[bytes]:
        """The hash of the list up to each item; lengths go in, so no two lists are alike."""
        rolling = self._prefix_hash.copy()
        rolling.update(way)
        keys = []
        for item in items:
            rolling.update(b"%d:%b" % (len(item), item))
            keys.append(rolling.digest()[:ADDRESS_BYTES])
        return keys

    def _longest(self, keys: Sequence[bytes]) -> tuple[int, _Prefix]:
        """How many items the longest known prefix holds, and what is known of it."""
        for count in range(len(keys), 0, -1):
            prefix = self._prefixes.get(keys[count - 1])
            if prefix is not None:
                # To the end of the dict, from whose beginning the oldest are dropped.
                self._prefixes[keys[count - 1]] = self._prefixes.pop(keys[count - 1])
                return count, prefix
        return 0, _ROOT

    def _item_key(self, raw: bytes, way: bytes) -> bytes:
        hashing = self._item_hash.copy()
        hashing.update(way)
        hashing.update(raw)
        return hashing.digest()[:ADDRESS_BYTES]

    def _item(
        self,
        raw: bytes,
        way: bytes,
        clean: Clean,
        contents: dict[bytes, Content],
        known: list[Known],
    ) -> tuple[bytes, Counts]:
        """The address of an item and what was redacted in it; its content, if it is new."""
        key = self._item_key(raw, way)
        stored = self._items.get(key)
        if stored is not None:
            self._items[key] = self._items.pop(key)
            return stored
        text, counts = clean(raw)
        address = content_address(self._version, text)
        contents[address] = Content(address, text)
        known.append(Known(key, address, None, _frozen(counts)))
        return address, counts


def _added(counts: Counts, more: Counts) -> Counts:
    if not more:
        return counts
    together = dict(counts)
    for rule, count in more.items():
        together[rule] = together.get(rule, 0) + count
    return together


def _frozen(counts: Counts) -> tuple[tuple[str, int], ...]:
    return tuple(counts.items()) if counts else ()


def _remember(entries: dict[bytes, Any], key: bytes, value: Any, entries_max: int) -> None:
    if len(entries) >= entries_max:
        # An eighth at a time: dropping one would walk over all the gaps before it.
        for oldest in list(islice(entries, max(1, entries_max // 8))):
            del entries[oldest]
    entries.pop(key, None)
    entries[key] = value
