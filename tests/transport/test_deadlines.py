"""Many deadlines behind one timer."""

from __future__ import annotations

import asyncio
from math import inf

from everyturn.transport.deadlines import Deadlines
from tests.support.scripted_upstream import until


class Entry:
    """Something that expires and remembers when."""

    def __init__(self, deadlines: Deadlines, after_s: float) -> None:
        self.loop = asyncio.get_running_loop()
        self.deadlines = deadlines
        self.deadline = self.loop.time() + after_s
        self.expired: list[float] = []
        deadlines.add(self)

    def expire(self) -> None:
        self.expired.append(self.loop.time())
        self.deadline = inf


async def test_each_expires_once_and_not_early() -> None:
    """Deadlines in any order are kept, each within the loop's precision."""
    deadlines = Deadlines(asyncio.get_running_loop())
    entries = [Entry(deadlines, delay) for delay in (0.08, 0.02, 0.05, 0.02)]
    due = [entry.deadline for entry in entries]
    for entry in entries:
        deadlines.watch(entry.deadline)
    await until(lambda: all(entry.expired for entry in entries))
    await asyncio.sleep(0.05)

    assert [len(entry.expired) for entry in entries] == [1, 1, 1, 1]
    assert all(entry.expired[0] >= at for entry, at in zip(entries, due, strict=True))


async def test_a_deadline_that_moved_later_is_kept_without_a_new_timer() -> None:
    """The timer looks at the old time, finds nothing, and is set for the new one by itself."""
    deadlines = Deadlines(asyncio.get_running_loop())
    entry = Entry(deadlines, 0.02)
    deadlines.watch(entry.deadline)
    entry.deadline = later = entry.deadline + 0.08
    await until(lambda: bool(entry.expired))

    assert entry.expired[0] >= later


async def test_a_deadline_that_moved_earlier_is_announced() -> None:
    """`watch` brings the timer forward."""
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    entry = Entry(deadlines, 60)
    deadlines.watch(entry.deadline)
    first = deadlines._timer
    entry.deadline = loop.time() + 0.02
    deadlines.watch(entry.deadline)

    assert first is not None
    assert first.cancelled()
    await until(lambda: bool(entry.expired))


async def test_what_was_removed_does_not_expire() -> None:
    """Also when another entry removes it in the same look."""
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)

    class Remover(Entry):
        def expire(self) -> None:
            super().expire()
            for other in both:
                if other is not self:
                    deadlines.remove(other)

    both = [Remover(deadlines, 0.01), Remover(deadlines, 0.01)]
    gone = Entry(deadlines, 0.01)
    deadlines.remove(gone)
    deadlines.remove(gone)
    deadlines.watch(loop.time() + 0.01)
    await until(lambda: any(entry.expired for entry in both))

    assert sorted(len(entry.expired) for entry in both) == [0, 1]
    assert gone.expired == []


async def test_nothing_left_needs_no_timer() -> None:
    """After the last deadline, and after `close`, no timer is set."""
    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop)
    entry = Entry(deadlines, 0.01)
    deadlines.watch(entry.deadline)
    await until(lambda: bool(entry.expired))
    assert deadlines.next_look == inf

    other = Entry(deadlines, 0.01)
    deadlines.watch(other.deadline)
    deadlines.close()
    await asyncio.sleep(0.05)
    assert deadlines.next_look == inf
    assert other.expired == []
    deadlines.close()
