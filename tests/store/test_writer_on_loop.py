"""Commits of the event loop itself, and what goes to the writer's thread instead."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from everyturn.audit.group import Group
from everyturn.errors import AuditUnavailable
from everyturn.store.base import RecordRefused, StoreFailure
from everyturn.store.sqlite import SqliteStore
from everyturn.store.writer import (
    LOOP_BYTES_MAX,
    LOOP_COMMITS_MAX,
    LOOP_GROUP_RECORDS_MAX,
    LOOP_QUICK_COMMITS,
    THREAD_SECONDS,
    GroupWriter,
)
from tests.support.scripted_store import BOUND_SECONDS, ScriptedStore, a_group, until

HERE = threading.main_thread().name
THERE = "everyturn-writer"


async def test_a_small_batch_is_committed_on_the_loop() -> None:
    """Where the loop may commit, groups of one round are one batch, and no thread is woken."""
    store = ScriptedStore()
    writer = GroupWriter(store, may_use_loop=True)
    writer.start()
    groups = [a_group() for _ in range(20)]

    await asyncio.gather(*(writer.append(group) for group in groups))
    await writer.close()

    assert store.batches == [groups]
    assert store.threads == [HERE]
    assert (writer.counts.batches, writer.counts.batches_on_loop) == (1, 1)
    assert writer.queued_bytes == 0


@pytest.mark.parametrize(
    ("arrivals", "batches"),
    [
        ([1, 1, 1, 1], [1, 1, 1, 1]),
        ([2, 1, 1, 1, 1], [4, 1, 1]),
        ([2, 0, 2], [2, 2]),
        ([2, 1, 0, 2], [3, 2]),
    ],
)
async def test_a_batch_of_several_grows_for_two_more_rounds(
    arrivals: list[int], batches: list[int]
) -> None:
    """A group alone is committed in the next round. Several wait for more, while more come, for
    two rounds at most."""
    store = ScriptedStore()
    writer = GroupWriter(store, may_use_loop=True)
    writer.start()
    tasks = []

    for count in arrivals:
        tasks += [asyncio.create_task(writer.append(a_group())) for _ in range(count)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    await writer.close()

    assert [len(batch) for batch in store.batches] == batches


async def test_what_grows_is_written_before_the_end() -> None:
    """A writer that is closed while a batch grows writes it first."""
    store = ScriptedStore()
    writer = GroupWriter(store, may_use_loop=True)
    writer.start()
    tasks = [asyncio.create_task(writer.append(a_group())) for _ in range(3)]
    for _ in range(2):
        await asyncio.sleep(0)
    assert not store.batches

    await writer.close()
    await asyncio.gather(*tasks)

    assert [len(batch) for batch in store.batches] == [3]


async def test_a_large_batch_goes_to_the_thread() -> None:
    """The loop does not commit what would hold it up."""
    store = ScriptedStore()
    writer = GroupWriter(store, may_use_loop=True)
    writer.start()

    await writer.append(a_group(user_text="x" * LOOP_BYTES_MAX))
    await writer.append(Group(a_group().records * (LOOP_GROUP_RECORDS_MAX + 1)))
    await writer.append(a_group())
    await writer.close()

    assert store.threads == [THERE, THERE, HERE]


async def test_the_loop_does_not_wait_for_a_lock() -> None:
    """What would wait for someone's lock is given to the thread, which can wait."""
    store = ScriptedStore()
    store.is_locked = True
    writer = GroupWriter(store, may_use_loop=True)
    writer.start()

    await writer.append(a_group())
    await writer.close()

    assert store.threads == [THERE]


async def test_after_a_slow_commit_the_thread_has_the_next() -> None:
    """A store that is slow holds the loop up once, then for a while not, then for longer not."""
    now = 0.0

    class SlowStore(ScriptedStore):
        def append(self, groups: Sequence[Group]) -> None:
            nonlocal now
            super().append(groups)
            now += 1.0

    store = SlowStore()
    writer = GroupWriter(store, may_use_loop=True, clock=lambda: now)
    writer.start()

    await writer.append(a_group())
    await writer.append(a_group())
    now += THREAD_SECONDS
    await writer.append(a_group())
    now += THREAD_SECONDS
    await writer.append(a_group())
    now += THREAD_SECONDS
    await writer.append(a_group())
    await writer.close()

    assert store.threads == [HERE, THERE, HERE, THERE, HERE]


async def test_a_slow_commit_long_after_the_last_is_the_first_again() -> None:
    """A store that has been quick for long is trusted as at the beginning."""
    now, step = 0.0, 1.0

    class PacedStore(ScriptedStore):
        def append(self, groups: Sequence[Group]) -> None:
            nonlocal now
            super().append(groups)
            now += step

    store = PacedStore()
    writer = GroupWriter(store, may_use_loop=True, clock=lambda: now)
    writer.start()

    await writer.append(a_group())
    now, step = now + THREAD_SECONDS, 0.0
    for _ in range(LOOP_QUICK_COMMITS):
        await writer.append(a_group())
    step = 1.0
    await writer.append(a_group())
    now += THREAD_SECONDS
    await writer.append(a_group())
    await writer.close()

    assert set(store.threads) == {HERE}


async def test_a_store_that_fails_on_the_loop_is_tried_again_by_the_thread() -> None:
    """A failure on the loop is the task's to hear, and the store is probed until it is back."""
    store = ScriptedStore()
    writer = GroupWriter(store, may_use_loop=True)
    writer.start()
    store.failure = StoreFailure("The disk is full.")

    with pytest.raises(StoreFailure):
        await writer.append(a_group())
    assert not writer.healthy
    store.failure = None
    await until(lambda: writer.healthy)
    await writer.append(a_group())
    await writer.close()

    assert store.threads == [HERE]


async def test_a_group_at_fault_costs_the_others_of_its_round_nothing() -> None:
    """Where a batch of the loop is refused, the thread tries its groups one by one."""
    store = ScriptedStore()
    writer = GroupWriter(store, may_use_loop=True)
    writer.start()
    groups = [a_group() for _ in range(3)]
    store.refused[id(groups[1])] = RecordRefused("No.")

    said = await asyncio.gather(*map(writer.append, groups), return_exceptions=True)
    await writer.close()

    assert [type(one) for one in said] == [type(None), RecordRefused, type(None)]
    assert store.batches == [[groups[0]], [groups[2]]]


async def test_commits_of_the_loop_leave_upkeep_to_the_thread() -> None:
    """After some commits of the loop the thread is woken to tend the store."""
    store = ScriptedStore()
    writer = GroupWriter(store, may_use_loop=True)
    writer.start()

    for _ in range(LOOP_COMMITS_MAX):
        assert not store.tended.is_set()
        await writer.append(a_group())

    assert await asyncio.to_thread(store.tended.wait, BOUND_SECONDS)
    await writer.close()
    assert set(store.threads) == {HERE}
    assert not any(store.merging)


async def test_a_batch_does_not_grow_out_of_the_loop() -> None:
    """What the loop could commit does not wait until only the thread can."""
    store = ScriptedStore()
    writer = GroupWriter(store, may_use_loop=True)
    writer.start()
    tasks = []
    for count in (150, 120):
        tasks += [asyncio.create_task(writer.append(a_group())) for _ in range(count)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    for _ in range(2):
        large = [a_group(user_text="x" * (LOOP_BYTES_MAX // 3)) for _ in range(2)]
        tasks += [asyncio.create_task(writer.append(group)) for group in large]
        await asyncio.sleep(0)

    await asyncio.gather(*tasks)
    await writer.close()

    assert set(store.threads) == {HERE}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_no_task_waits_for_a_thread_that_is_gone() -> None:
    """What came while upkeep failed in a way nobody knows is told that the writer is closed."""
    store = ScriptedStore()
    writer = GroupWriter(store, may_use_loop=True, upkeep_seconds=0.01, upkeep_wait_seconds=0.05)
    writer.start()
    store.upkeep_may_end.clear()
    assert await asyncio.to_thread(store.tended.wait, BOUND_SECONDS)
    store.upkeep_failure = RuntimeError()

    appending = asyncio.create_task(writer.append(a_group()))
    await asyncio.sleep(0.01)
    store.upkeep_may_end.set()
    with pytest.raises(AuditUnavailable):
        await asyncio.wait_for(appending, BOUND_SECONDS)
    await writer.close()
    assert writer.queued_bytes == 0


async def test_the_thread_merges_where_the_loop_does_not() -> None:
    """At rest, and while a commit goes its way: then no commit of the loop does a slice."""
    resting, large, locked = ScriptedStore(), ScriptedStore(), ScriptedStore()
    locked.is_locked = True
    for store, group, upkeep_seconds in (
        (resting, a_group(), 0.05),
        (large, a_group(user_text="x" * LOOP_BYTES_MAX), 60.0),
        (locked, a_group(), 60.0),
    ):
        writer = GroupWriter(store, may_use_loop=True, upkeep_seconds=upkeep_seconds)
        writer.start()

        await writer.append(group)
        await until(lambda store=store: store.merging)
        await writer.close()

        assert store.merging[0]


@pytest.mark.parametrize(
    ("wait_seconds", "held_seconds", "thread"), [(0.3, 0.01, HERE), (0.005, 0.3, THERE)]
)
async def test_upkeep_is_waited_for_a_moment(
    wait_seconds: float, held_seconds: float, thread: str
) -> None:
    """A commit that meets upkeep waits while that is short; else the thread has it."""
    store = ScriptedStore()
    writer = GroupWriter(
        store, may_use_loop=True, upkeep_seconds=0.01, upkeep_wait_seconds=wait_seconds
    )
    writer.start()
    store.upkeep_may_end.clear()
    assert await asyncio.to_thread(store.tended.wait, BOUND_SECONDS)

    appending = asyncio.create_task(writer.append(a_group()))
    await asyncio.sleep(held_seconds)
    assert not appending.done()
    store.upkeep_may_end.set()
    await appending
    await writer.close()

    assert store.threads == [thread]


async def test_a_lock_on_the_files_is_waited_for_by_the_thread(tmp_path: Path) -> None:
    """A person's tool that locks the database for a moment delays a commit, not the loop."""
    store = SqliteStore(tmp_path / "data")
    writer = GroupWriter(store, may_use_loop=True)
    writer.start()
    await writer.append(a_group())
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN IMMEDIATE")

    appending = asyncio.create_task(writer.append(a_group()))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not appending.done()
    other.execute("COMMIT")
    await appending
    other.close()
    await writer.close()

    assert (writer.counts.batches, writer.counts.batches_on_loop) == (2, 1)
