"""A store in memory that is told what to do, and the small things that tests of writers need."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import TypeVar

from everyturn.audit.group import Group
from everyturn.audit.records import Record
from tests.support.store_records import a_turn

R = TypeVar("R", bound=Record)
BOUND_SECONDS = 20


class ScriptedStore:
    """A store in memory that can be told to wait, to fail, or to find fault with a group."""

    def __init__(self) -> None:
        self.batches: list[list[Group]] = []
        self.may_write = threading.Event()
        self.may_write.set()
        self.failure: Exception | None = None
        self.refused: dict[int, Exception] = {}
        """id of a group → what appending it raises."""
        self.is_closed = False
        self.upkeep = 0
        self.is_locked = False
        """Whether someone else has the lock on the files."""
        self.threads: list[str] = []
        """Which thread each append ran in."""
        self.tended = threading.Event()
        self.upkeep_may_end = threading.Event()
        self.upkeep_may_end.set()
        self.upkeep_failure: Exception | None = None
        self.merging: list[bool] = []
        """Whether each upkeep was to merge as well."""

    def append(self, groups: Sequence[Group]) -> None:
        assert self.may_write.wait(BOUND_SECONDS)
        if self.failure is not None:
            raise self.failure
        for group in groups:
            if id(group) in self.refused:
                raise self.refused[id(group)]
        self.batches.append(list(groups))
        self.threads.append(threading.current_thread().name)

    def try_append(self, groups: Sequence[Group]) -> bool:
        if self.is_locked:
            return False
        self.append(groups)
        return True

    def scan(self, record: type[R]) -> Iterator[R]:
        return (
            one
            for batch in self.batches
            for group in batch
            for one in group.records
            if isinstance(one, record)
        )

    def erase(self, turn_ids: Sequence[str]) -> int:
        return 0

    def probe(self) -> None:
        if self.failure is not None:
            raise self.failure

    def tend(self, *, is_merging: bool = True) -> bool:
        self.merging.append(is_merging)
        self.tended.set()
        assert self.upkeep_may_end.wait(BOUND_SECONDS)
        if self.upkeep_failure is not None:
            raise self.upkeep_failure
        self.upkeep -= 1
        return self.upkeep > 0

    def close(self) -> None:
        self.is_closed = True


async def until(fact: object, seconds: float = BOUND_SECONDS) -> None:
    """Wait until `fact()` is true."""
    assert callable(fact)
    async with asyncio.timeout(seconds):
        while not fact():
            await asyncio.sleep(0.005)


def a_group(**fields: object) -> Group:
    """A group of one turn."""
    return Group((a_turn(**fields),))
