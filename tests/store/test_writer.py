from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from everyturn.audit.group import Group, group_bytes
from everyturn.audit.records import TurnAudit
from everyturn.errors import AuditUnavailable
from everyturn.store.base import RecordRefused, StoreFailure
from everyturn.store.sqlite import SqliteStore
from everyturn.store.writer import GroupWriter
from tests.support.scripted_store import ScriptedStore, a_group, until
from tests.support.store_records import a_call, a_turn, closed_turn


async def test_a_group_is_kept_when_append_returns(tmp_path: Path) -> None:
    """What a task appended is in the store when its `append` returns."""
    store = SqliteStore(tmp_path / "data")
    writer = GroupWriter(store)
    writer.start()
    turn = a_turn(user_text="Hello")

    await writer.append(Group((turn, a_call(turn))))
    await writer.append(Group((closed_turn(turn),)))
    await writer.close()

    again = SqliteStore(tmp_path / "data")
    assert list(again.scan(TurnAudit)) == [closed_turn(turn)]
    assert writer.counts.groups_committed == 2
    again.close()


async def test_groups_of_one_round_of_the_loop_are_one_batch() -> None:
    """Tasks that append in the same round share a commit, however quick the thread is."""
    store = ScriptedStore()
    writer = GroupWriter(store)
    writer.start()
    groups = [a_group() for _ in range(20)]

    await asyncio.gather(*(writer.append(group) for group in groups))
    await asyncio.gather(*(writer.append(group) for group in groups[:3]))
    await writer.close()

    assert store.batches == [groups, groups[:3]]


async def test_what_was_gathered_is_written_when_the_writer_closes() -> None:
    """Groups that no round has handed over yet are not lost by closing."""
    store = ScriptedStore()
    writer = GroupWriter(store)
    writer.start()
    group = a_group()

    appending = asyncio.create_task(writer.append(group))
    await asyncio.sleep(0)
    await writer.close()
    await appending

    assert store.batches == [[group]]


async def test_what_is_queued_is_committed_together() -> None:
    """Groups that come while a commit runs form one batch, in their order."""
    store = ScriptedStore()
    store.may_write.clear()
    writer = GroupWriter(store)
    writer.start()
    groups = [a_group() for _ in range(20)]

    tasks = [asyncio.create_task(writer.append(group)) for group in groups]
    await until(lambda: writer.queued_bytes == sum(map(group_bytes, groups)))
    store.may_write.set()
    await asyncio.gather(*tasks)
    await writer.close()

    assert [group for batch in store.batches for group in batch] == groups
    assert len(store.batches) <= 3
    assert writer.queued_bytes == 0


async def test_a_group_at_fault_fails_alone() -> None:
    """The rest of its batch is kept, whatever the fault is, and the writer stays healthy."""
    store = ScriptedStore()
    groups = [a_group() for _ in range(6)]
    store.refused = {id(groups[2]): RecordRefused("refused"), id(groups[4]): ZeroDivisionError()}
    store.may_write.clear()
    writer = GroupWriter(store)
    writer.start()

    tasks = [asyncio.create_task(writer.append(group)) for group in groups]
    await until(lambda: writer.queued_bytes > 0)
    store.may_write.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await writer.close()

    kept = [group for batch in store.batches for group in batch]
    assert kept == [groups[0], groups[1], groups[3], groups[5]]
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        type(None),
        RecordRefused,
        type(None),
        RecordRefused,
        type(None),
    ]
    assert writer.healthy
    assert (writer.counts.groups_committed, writer.counts.groups_refused) == (4, 2)


async def test_a_poisoned_record_does_not_cost_its_neighbours(tmp_path: Path) -> None:
    """With a real store: a record whose key is taken is refused, the others are kept."""
    store = SqliteStore(tmp_path / "data")
    writer = GroupWriter(store)
    writer.start()
    turn = a_turn(user_text="Hello")
    await writer.append(Group((turn,)))

    others = [a_group() for _ in range(8)]
    poisoned = Group((a_turn(turn_id=turn.turn_id, user_text="other"),))
    outcomes = await asyncio.gather(
        *(writer.append(group) for group in [*others[:4], poisoned, *others[4:]]),
        return_exceptions=True,
    )

    assert [outcome is None for outcome in outcomes] == [True] * 4 + [False] + [True] * 4
    assert sum(1 for _ in store.scan(TurnAudit)) == 9
    await writer.close()


async def test_a_store_that_fails_fails_every_task_that_waits() -> None:
    """Each waiting append raises AuditUnavailable, new ones at once, until the store is back."""
    store = ScriptedStore()
    store.may_write.clear()
    writer = GroupWriter(store)
    writer.start()
    tasks = [asyncio.create_task(writer.append(a_group())) for _ in range(5)]
    await until(lambda: writer.queued_bytes > 0)

    store.failure = StoreFailure("The disk is full.")
    store.may_write.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [StoreFailure] * 5
    assert not writer.healthy
    with pytest.raises(AuditUnavailable, match="The disk is full"):
        await writer.append(a_group())
    store.failure = None
    await until(lambda: writer.healthy)
    await writer.append(a_group())
    assert (writer.counts.store_failures, writer.counts.groups_committed) == (1, 1)
    await writer.close()


async def test_a_store_that_fails_after_a_refusal_fails_the_rest() -> None:
    """While a batch is retried one by one, the groups after the failure hear of it too."""
    store = ScriptedStore()
    groups = [a_group() for _ in range(4)]
    store.refused = {
        id(groups[1]): RecordRefused("refused"),
        id(groups[2]): StoreFailure("The disk is full."),
    }
    store.may_write.clear()
    writer = GroupWriter(store)
    writer.start()

    tasks = [asyncio.create_task(writer.append(group)) for group in groups]
    await until(lambda: writer.queued_bytes > 0)
    store.may_write.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    await writer.close()

    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        RecordRefused,
        StoreFailure,
        StoreFailure,
    ]
    assert [group for batch in store.batches for group in batch] == groups[:1]


async def test_a_full_queue_makes_tasks_wait() -> None:
    """A task whose group has no room goes on when there is room, and nothing is dropped."""
    store = ScriptedStore()
    store.may_write.clear()
    big = [a_group(user_text="x" * 10_000) for _ in range(5)]
    writer = GroupWriter(store, queue_bytes_max=group_bytes(big[0]) * 2)
    writer.start()

    tasks = [asyncio.create_task(writer.append(group)) for group in big]
    await until(lambda: writer.queued_bytes == group_bytes(big[0]) * 2)
    store.may_write.set()
    await asyncio.gather(*tasks)
    await writer.close()

    kept = [group for batch in store.batches for group in batch]
    assert sorted(map(id, kept)) == sorted(map(id, big))


async def test_a_queue_that_stays_full_refuses() -> None:
    """After the limit the task hears AuditUnavailable; what was queued is still written."""
    store = ScriptedStore()
    store.may_write.clear()
    writer = GroupWriter(store, queue_bytes_max=1, queue_wait_seconds=0.05)
    writer.start()
    first = asyncio.create_task(writer.append(a_group()))
    await until(lambda: writer.queued_bytes > 0)

    with pytest.raises(AuditUnavailable, match="stayed full"):
        await writer.append(a_group())

    store.may_write.set()
    await first
    await writer.close()
    assert len(store.batches) == 1


async def test_a_group_larger_than_the_queue_goes_alone() -> None:
    """A bound on the queue is no bound on a group."""
    store = ScriptedStore()
    writer = GroupWriter(store, queue_bytes_max=10)
    writer.start()

    await writer.append(a_group(user_text="x" * 100_000))

    await writer.close()
    assert len(store.batches) == 1


async def test_closing_writes_what_is_queued() -> None:
    """`close` returns after the last group is kept and the store is closed; then none is taken."""
    store = ScriptedStore()
    store.may_write.clear()
    writer = GroupWriter(store)
    writer.start()
    tasks = [asyncio.create_task(writer.append(a_group())) for _ in range(10)]
    await until(lambda: writer.queued_bytes >= 10 * 1024)

    closing = asyncio.create_task(writer.close())
    store.may_write.set()
    await closing
    await asyncio.gather(*tasks)

    assert sum(len(batch) for batch in store.batches) == 10
    assert store.is_closed
    with pytest.raises(AuditUnavailable, match="closed"):
        await writer.append(a_group())


async def test_a_writer_that_never_started_closes_its_store() -> None:
    """Closing works at any time."""
    store = ScriptedStore()

    await GroupWriter(store).close()

    assert store.is_closed


async def test_a_cancelled_task_does_not_disturb_the_others() -> None:
    """A task that goes away while it waits leaves its group to be written."""
    store = ScriptedStore()
    store.may_write.clear()
    writer = GroupWriter(store)
    writer.start()
    gone, stays = (asyncio.create_task(writer.append(a_group())) for _ in range(2))
    await until(lambda: writer.queued_bytes >= 2 * 1024)

    gone.cancel()
    store.may_write.set()
    await stays
    await writer.close()

    assert sum(len(batch) for batch in store.batches) == 2


async def test_only_kept_groups_are_confirmed() -> None:
    """`on_committed` is called before the task goes on, and never for a group that failed."""
    store = ScriptedStore()
    good, bad = a_group(), a_group()
    store.refused = {id(bad): RecordRefused("refused")}
    confirmed: list[Group] = []
    writer = GroupWriter(store, on_committed=confirmed.append)
    writer.start()

    await writer.append(good)
    assert confirmed == [good]
    with pytest.raises(RecordRefused):
        await writer.append(bad)

    assert confirmed == [good]
    await writer.close()


async def test_upkeep_is_done_while_nothing_is_queued() -> None:
    """What appends leave behind is tended between them, without being asked."""
    store = ScriptedStore()
    store.upkeep = 50
    writer = GroupWriter(store)
    writer.start()

    await writer.append(a_group())

    await until(lambda: store.upkeep <= 0)
    await writer.close()


async def test_upkeep_is_done_though_nothing_comes() -> None:
    """What becomes due by the clock, such as texts whose time is over, waits for no append."""
    store = ScriptedStore()
    writer = GroupWriter(store, upkeep_seconds=0.01)
    writer.start()
    await until(store.tended.is_set)

    store.upkeep = 5

    await until(lambda: store.upkeep <= 0)
    await writer.close()
