"""Find the small key of a random id without paying for a random page with every row.

A turn id or a content address lands at a random place of an index: a page of its own in the log of
each commit, which was half of what a turn cost. So the table grows at its end only, and the index
follows later: what is not indexed yet is held in memory (and scanned by readers), and when enough
has come together it is merged in sorted slices, many entries to a page, a slice at a time.

The index holds a 63-bit hash; the value itself decides.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Any, Final, Generic, TypeVar, cast

import apsw

V = TypeVar("V", bound=Hashable)

MERGE_ENTRIES_MIN: Final = 16_384
"""Entries that come together before they are merged; readers scan up to twice as many."""
_SLICE_ENTRIES: Final = 128
"""Entries that are written to an index in one transaction."""
_PLACED_AT_ONCE: Final = 1_024
"""Entries whose place is worked out in one slice of the upkeep: some 1 ms."""
_ENTRIES_A_SLICE: Final = 64
"""Entries that each slice of a merge brings forward at least."""
_SLICES_MAX: Final = 4
"""Slices after one commit."""
_SHELF_BITS: Final = 5
"""Entries are sorted by so many of their first bits before a merge, and then shelf by shelf."""
CACHE_ENTRIES_MAX: Final = 8_192
"""What is asked for again soon; the rest is for the index, which answers in a few microseconds."""
QUERY_VALUES_MAX: Final = 256
"""Values that one statement asks for."""
FILTER_ENTRIES_MAX: Final = 1 << 19
"""Entries of an index that a filter is kept for; reading them at the start takes 0.2 to 0.4 s."""
_FILTER_BITS: Final = 23
"""Bits of a hash that make a place in a filter: 1 MiB, in which 14 of 1,000 new values look known
when it is full."""


def turn_hash(turn_id: str) -> int:
    """The place of a turn id in its index: its first 60 bits, so that prefixes are ranges.

    Ids that are not UUIDs, which imports may bring, are hashed by their characters.
    """
    try:
        return int(turn_id.replace("-", "")[:15], 16)
    except ValueError:
        data = turn_id.encode("utf-8", "surrogatepass")
        return int.from_bytes(data[:7].ljust(7, b"\0"), "big")


def address_hash(address: bytes) -> int:
    """The place of a content address in its index: 63 of its bits."""
    return int.from_bytes(address[:8], "big") >> 1


class Table(Generic[V]):
    """The table whose values are to be found."""

    __slots__ = ("hash", "hash_bits", "is_asked_for_new", "key", "name", "value")

    def __init__(
        self,
        *,
        name: str,
        key: str,
        value: str,
        hash: Callable[[V], int],
        hash_bits: int,
        is_asked_for_new: bool = False,
    ) -> None:
        """is_asked_for_new: whether most values that are asked for are stored nowhere."""
        self.is_asked_for_new = is_asked_for_new
        self.name = name
        self.key = key
        self.value = value
        self.hash = hash
        self.hash_bits = hash_bits


TURNS: Final[Table[str]] = Table(
    name="turn_ids", key="turn_key", value="turn_id", hash=turn_hash, hash_bits=60
)
CONTENTS: Final[Table[bytes]] = Table(
    name="contents",
    key="content_key",
    value="address",
    hash=address_hash,
    hash_bits=63,
    is_asked_for_new=True,
)


class Filter:
    """Says of most hashes that they were never added; of none that was (a Bloom filter)."""

    __slots__ = ("_bits", "count")

    def __init__(self) -> None:
        self._bits = bytearray(1 << (_FILTER_BITS - 3))
        self.count = 0

    def add(self, hashed: int) -> None:
        """Take up a hash; its lower 46 bits must look random."""
        self.count += 1
        mask = (1 << _FILTER_BITS) - 1
        one, other = hashed & mask, (hashed >> _FILTER_BITS) & mask
        self._bits[one >> 3] |= 1 << (one & 7)
        self._bits[other >> 3] |= 1 << (other & 7)

    def may_hold(self, hashed: int) -> bool:
        """Whether a hash may have been added."""
        mask = (1 << _FILTER_BITS) - 1
        one, other = hashed & mask, (hashed >> _FILTER_BITS) & mask
        bits = self._bits
        return bool(bits[one >> 3] >> (one & 7) & bits[other >> 3] >> (other & 7) & 1)


class Lookup(Generic[V]):
    """Value → key of one table, and the upkeep of its index. Owned by the writing connection."""

    def __init__(self, db: apsw.Connection, table: Table[V]) -> None:
        self._db = db
        self._cursor = db.cursor()
        """For questions: one each time would cost as much as what it asks."""
        self._sql: dict[int, str] = {}
        """What asks for so many values."""
        self._table = table
        self._fresh: dict[V, int] = {}
        """What the index does not hold yet."""
        self._cache: dict[V, int] = {}
        """Some of what it holds: the latest asked for and merged."""
        self._unplaced: list[tuple[V, int]] = []
        """What is being merged, and not yet on a shelf."""
        self._shelves: list[list[tuple[int, int]]] = []
        """What is being merged, by the first bits of its hash; a shelf is sorted when it is its
        turn, the last one first."""
        self._merging: list[tuple[int, int]] = []
        """What is left of the shelf whose turn it is: hash and key, descending."""
        self._merging_to = 0
        self._is_settling = False
        """Whether what was merged is being moved from the fresh to those of the index."""
        self._owed = 0
        """Entries that were added since `merge_owed`."""
        self.load()

    def load(self) -> None:
        """Take up what the files say; forgets what was remembered."""
        table = self._table
        self._cache.clear()
        self._unplaced, self._shelves, self._merging = [], [], []
        self._is_settling = False
        self._filter = self._filled() if table.is_asked_for_new else None
        self._fresh = dict(
            self._db.execute(
                f"SELECT {table.value}, {table.key} FROM {table.name}"
                f" WHERE {table.key} > {indexed_to_sql(table.name)}"
            )
        )
        self.is_indexed = bool(self._db.execute(f"SELECT {indexed_to_sql(table.name)}").get)
        """Whether the index holds anything that is not also in memory."""
        self.key_last: int = self._db.execute(
            f"SELECT coalesce(max({table.key}), 0) FROM {table.name}"
        ).get

    def _filled(self) -> Filter | None:
        """The filter of the index; None where that holds too much."""
        found = self._db.execute(
            f"SELECT hash FROM {self._table.name}_lookup LIMIT {FILTER_ENTRIES_MAX + 1}"
        )
        made = Filter()
        for row in found:
            made.add(cast(int, row[0]))
        return made if made.count <= FILTER_ENTRIES_MAX else None

    def find(self, value: V) -> int | None:
        """The key, if it is in memory; None says nothing (see `ask`)."""
        key = self._fresh.get(value)
        return key if key is not None else self._cache.get(value)

    def ask(self, values: Iterable[V], *, is_one_by_one: bool = False) -> None:
        """Bring the keys of these values to memory, of those that are stored. There they stay until
        `trim`.

        is_one_by_one: whether to ask for one at a time, for whoever has the interpreter's lock at
        hand; it costs less than a list of values, which is made a table first.
        """
        if not self.is_indexed:
            return
        hashes: list[int] = []
        for value in values:
            if value not in self._fresh and value not in self._cache:
                hashed = self._table.hash(value)
                if self._filter is None or self._filter.may_hold(hashed):
                    hashes.append(hashed)
        found: Any
        if is_one_by_one and hashes:
            ones = [[hashed] for hashed in hashes]
            found = self._cursor.executemany(self._ask_sql(1), ones).fetchall()
            self._cache.update(found)
            return
        for start in range(0, len(hashes), QUERY_VALUES_MAX):
            some: list[int | None] = [*hashes[start : start + QUERY_VALUES_MAX]]
            # Padded, so that a few prepared statements serve every count.
            some += [None] * (_power_of_two(len(some)) - len(some))
            found = self._cursor.execute(self._ask_sql(len(some)), some).fetchall()
            self._cache.update(found)

    def _ask_sql(self, count: int) -> str:
        sql = self._sql.get(count)
        if sql is None:
            sql = self._sql[count] = _ask_sql(self._table, count)
        return sql

    def added(self, entries: dict[V, int]) -> None:
        """Take up rows that were committed, in the order of their keys."""
        self._fresh.update(entries)
        self._owed += len(entries)
        if entries:
            self.key_last = next(reversed(entries.values()))

    @property
    def is_behind(self) -> bool:
        """Whether more waits to be merged than readers should scan."""
        return len(self._fresh) > 2 * MERGE_ENTRIES_MIN

    def merge_owed(self) -> None:
        """Do as many slices as keep up with what was added, up to a few at once."""
        slices = min(1 + self._owed // _ENTRIES_A_SLICE, _SLICES_MAX)
        self._owed = max(0, self._owed - slices * _ENTRIES_A_SLICE)
        for _ in range(slices):
            if not self.merge_slice():
                return

    def merge_slice(self) -> bool:
        """Do one slice of a merge, a millisecond or so, in a transaction of its own; whether more
        is due."""
        if self._unplaced:
            self._place_some()
        elif self._merging or self._shelves:
            self._write_some()
        elif self._is_settling:
            self._settle_some()
        elif len(self._fresh) >= MERGE_ENTRIES_MIN:
            # They are in the order of their keys.
            self._unplaced = list(islice(self._fresh.items(), MERGE_ENTRIES_MIN))
            self._merging_to = self._unplaced[-1][1]
            self._shelves = [[] for _ in range(1 << _SHELF_BITS)]
        is_under_way = self._unplaced or self._merging or self._shelves or self._is_settling
        return bool(is_under_way) or len(self._fresh) >= MERGE_ENTRIES_MIN

    def _place_some(self) -> None:
        some = self._unplaced[-_PLACED_AT_ONCE:]
        del self._unplaced[-_PLACED_AT_ONCE:]
        shift = self._table.hash_bits - _SHELF_BITS
        for value, key in some:
            hashed = self._table.hash(value)
            self._shelves[hashed >> shift].append((hashed, key))

    def _write_some(self) -> None:
        table = self._table
        while not self._merging and self._shelves:
            self._merging = sorted(self._shelves.pop(), reverse=True)
        some = self._merging[-_SLICE_ENTRIES:]
        is_last = len(some) == len(self._merging) and not any(self._shelves)
        # One step, in which the interpreter lock is free; to read a row of marks for each entry
        # took longer than to write them all.
        entries = ",".join([f'"{hashed}":{key}' for hashed, key in reversed(some)])
        with self._db:
            self._db.execute(
                f"INSERT OR IGNORE INTO {table.name}_lookup"
                " SELECT CAST(key AS INTEGER), value FROM json_each(?)",
                ("{" + entries + "}",),
            )
            if is_last:
                self._db.execute(
                    "INSERT OR REPLACE INTO store_numbers VALUES (?, ?)",
                    (_number_name(table.name), self._merging_to),
                )
        del self._merging[-_SLICE_ENTRIES:]
        if self._filter is not None:
            for hashed, _ in some:
                self._filter.add(hashed)
            if self._filter.count > FILTER_ENTRIES_MAX:
                self._filter = None
        if is_last:
            self._shelves = []
            self.is_indexed = self._is_settling = True

    def _settle_some(self) -> None:
        for value in list(islice(self._fresh, _PLACED_AT_ONCE)):
            key = self._fresh[value]
            if key > self._merging_to:
                self._is_settling = False
                break
            self._cache[value] = key
            del self._fresh[value]
        else:
            self._is_settling = bool(self._fresh)
        self.trim()

    def trim(self) -> None:
        """Let go of the oldest keys, where there are too many.

        Not while a commit is under way: what was asked for would seem not to be stored.
        """
        excess = len(self._cache) - CACHE_ENTRIES_MAX
        if excess > 0:
            for old in list(islice(self._cache, excess + CACHE_ENTRIES_MAX // 8)):
                del self._cache[old]


def _ask_sql(table: Table[Any], count: int) -> str:
    """SQL that gives value and key of what is stored under any of `count` hashes."""
    marks = ",".join("?" * count)
    return (
        f"SELECT t.{table.value}, t.{table.key} FROM {table.name}_lookup l"
        f" JOIN {table.name} t ON t.{table.key} = l.{table.key} WHERE l.hash IN ({marks})"
    )


def indexed_to_sql(table: str) -> str:
    """SQL that gives the last key the index of a table holds; later rows are to be scanned."""
    name = _number_name(table)
    return f"coalesce((SELECT value FROM store_numbers WHERE name = '{name}'), 0)"


def _number_name(table: str) -> str:
    return f"{table}_indexed_to"


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
