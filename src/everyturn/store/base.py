"""The seam behind which records rest, and the ways it can fail.

A store keeps groups of records: all of a group or nothing of it, under the key of record id and
revision. It answers no report query; `scan` in order is all a backend has to offer to readers.
One contract suite runs against every store (`tests/contract/`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

from everyturn.audit.group import Group
from everyturn.audit.records import Record
from everyturn.errors import AuditUnavailable, ConfigError

R = TypeVar("R", bound=Record)


class Store(Protocol):
    """Keeps records. Not safe for two threads at once: the writer sees to that."""

    def append(self, groups: Sequence[Group]) -> None:
        """Commit all of these groups, or nothing of them.

        A record whose key is stored with the same content is no change, with other content a
        `RecordRefused`. An older revision than the stored one is kept as a digest. Raises
        RecordRefused when a group is at fault (the caller then tries them one by one) and
        StoreFailure when the store is.
        """

    def try_append(self, groups: Sequence[Group]) -> bool:
        """As `append`, but where it would wait for someone else's lock: False, nothing is done."""

    def scan(self, record: type[R]) -> Iterator[R]:
        """The highest revision of each record of one log, in the order their turns first came.

        Listed columns are given as text.
        """

    def erase(self, turn_ids: Sequence[str]) -> int:
        """Remove these turns, all that belongs to them and content that no other call sent.

        Returns how many turns were there. Nothing of them can be read from the files after.
        """

    def probe(self) -> None:
        """Write something. Raises StoreFailure while the store cannot."""

    def tend(self, *, is_merging: bool = True) -> bool:
        """Do a small part of the upkeep that appends leave behind; whether more is left.

        is_merging: whether that includes what `try_append` does itself, a little each time.
        """

    def close(self) -> None:
        """Give everything back; the store can be opened again."""


class StoreFailure(AuditUnavailable):
    """The store cannot be written or read at this moment: full, gone, locked or damaged."""


class RecordRefused(AuditUnavailable):
    """A group cannot be stored whatever the state of the store: its own content is at fault."""

    default_hint = "This is a defect of the gateway; the record's key is in its log."


class StoreRefused(ConfigError):
    """A data folder that cannot be used: locked, open to others, too new, or without a store."""

    def __init__(self, folder: str, what: str, hint: str) -> None:
        super().__init__(folder, [(0, "data", what, hint)])
