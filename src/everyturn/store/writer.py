"""Group commit: many tasks append, one transaction writes, and each hears when its group is kept.

What the tasks of one round of the loop brought is committed together, and under load what those of
the next two bring; at rest a group is a batch of one. A thread commits, or, where a commit syncs
nothing, the loop itself: a small batch costs less than waking a thread and sharing the interpreter
lock with it. The thread takes over what is large, what would wait for a lock, and everything for a
while after a commit was slow. Nothing is ever dropped: a full queue makes tasks wait and then
refuses them, and what cannot be committed is reported to the task that brought it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from everyturn.audit.group import Group, group_bytes
from everyturn.errors import AuditUnavailable
from everyturn.store.base import RecordRefused, Store, StoreFailure

QUEUE_BYTES_MAX: Final = 64 << 20
"""Text that may wait to be written; twice what one request may bring."""
QUEUE_WAIT_SECONDS: Final = 10.0
BATCH_GROUPS_MAX: Final = 256
BATCH_BYTES_MAX: Final = 8 << 20
PROBE_SECONDS: Final = 0.5
"""Between two tries while the store cannot be written."""
UPKEEP_SECONDS: Final = 60.0
"""Between two turns at the store's upkeep while nothing comes."""
LOOP_BYTES_MAX: Final = 256 << 10
"""What the loop commits itself at most; a larger batch goes to the thread."""
LOOP_GROUP_RECORDS_MAX: Final = 8
"""Records of a group that the loop commits: a turn's few, and not a batch from an application."""
LOOP_SECONDS_MAX: Final = 0.05
"""A commit that took the loop longer sends the next ones to the thread."""
THREAD_SECONDS: Final = 5.0
"""For how long the first time; each time it happens again, for twice as long."""
THREAD_SECONDS_MAX: Final = 600.0
LOOP_QUICK_COMMITS: Final = 1_000
"""Quick commits of the loop in a row after which a slow one counts as the first again."""
GATHER_ROUNDS_MAX: Final = 2
"""Rounds of the loop for which a batch may go on growing."""
UPKEEP_WAIT_SECONDS: Final = 0.001
UPKEEP_WAITS_MAX: Final = 5
"""How long, and how often in a row, the loop waits for upkeep to be over; then the thread, which is
at it, commits what came. That costs more, so it is not for what is over in a moment."""
LOOP_COMMITS_MAX: Final = 16
"""Commits of the loop until the thread does the upkeep they leave."""


@dataclass(slots=True)
class WriterCounts:
    """What the writer did since it started."""

    groups_committed: int = 0
    groups_refused: int = 0
    """Their own content was at fault."""
    groups_failed: int = 0
    """The store could not be written, or the queue stayed full."""
    batches: int = 0
    batches_on_loop: int = 0
    """Those of them that the loop committed itself."""
    store_failures: int = 0
    """How often the store went from writable to not."""


class _Waiting:
    """A group in the queue."""

    __slots__ = ("bytes", "failure", "future", "group")

    def __init__(self, group: Group, size: int, future: asyncio.Future[None]) -> None:
        self.group = group
        self.bytes = size
        self.future = future
        self.failure: AuditUnavailable | None = None


class GroupWriter:
    """Appends groups from one event loop to a store that it owns from `start` to `close`."""

    def __init__(
        self,
        store: Store,
        *,
        on_committed: Callable[[Group], None] | None = None,
        may_use_loop: bool = False,
        clock: Callable[[], float] = time.perf_counter,
        queue_bytes_max: int = QUEUE_BYTES_MAX,
        queue_wait_seconds: float = QUEUE_WAIT_SECONDS,
        upkeep_seconds: float = UPKEEP_SECONDS,
        upkeep_wait_seconds: float = UPKEEP_WAIT_SECONDS,
    ) -> None:
        """on_committed: called on the event loop for each group that was kept, before its task
        goes on; this is where `ContentIndex.confirm` belongs.
        may_use_loop: whether the loop may commit small batches itself; not where commits sync.
        clock: seconds from some beginning."""
        self._store = store
        self._store_lock = threading.Lock()
        """Held by whoever uses the store, the thread or the loop; the loop never waits for it."""
        self._may_use_loop = may_use_loop
        self._clock = clock
        self._thread_until = clock()
        """Until when the thread commits everything."""
        self._thread_seconds = THREAD_SECONDS
        self._quick_commits = 0
        self._loop_commits = 0
        """Since the thread was last asked for upkeep."""
        self._on_committed = on_committed
        self._queue_bytes_max = queue_bytes_max
        self._queue_wait_seconds = queue_wait_seconds
        self._upkeep_seconds = upkeep_seconds
        self._upkeep_wait_seconds = upkeep_wait_seconds
        self._queue: queue.SimpleQueue[list[_Waiting] | None] = queue.SimpleQueue()
        self._taken: deque[_Waiting] = deque()
        """What the thread took from the queue and has not committed."""
        self._gathered: list[_Waiting] = []
        self._gathered_before = 0
        self._rounds = 0
        """How many groups there were at the last look at them, and how many looks there were."""
        self._upkeep_waits = 0
        self._is_loop_committing = False
        """Whether the loop has the commits now, and not the thread."""
        self._is_busy = False
        """Whether the thread has groups, or is about to get those that were gathered."""
        self._queued_bytes = 0
        self._space: deque[asyncio.Future[None]] = deque()
        self._is_closing = False
        self._runner: threading.Thread | None = None
        self._failure: StoreFailure | None = None
        self.counts = WriterCounts()

    @property
    def healthy(self) -> bool:
        """Whether the store could be written when it was last tried."""
        return self._failure is None

    @property
    def queued_bytes(self) -> int:
        """Text that waits to be written."""
        return self._queued_bytes

    def start(self) -> None:
        """Begin to write; call it on the event loop that will append."""
        assert self._runner is None, "a writer starts once"
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._runner = threading.Thread(target=self._run, name="everyturn-writer", daemon=True)
        self._runner.start()

    async def append(self, group: Group) -> None:
        """Return when the group is kept as the store's durability says.

        Raises AuditUnavailable when it is not: the store cannot be written (StoreFailure), the
        queue stayed full, or the group itself is at fault (RecordRefused). A task that is
        cancelled while it waits learns nothing: the group may be kept.
        """
        size = group_bytes(group)
        if self._queued_bytes + size > self._queue_bytes_max:
            await self._wait_for_space(size)
        self._check_open()
        waiting = _Waiting(group, size, self._loop.create_future())
        self._queued_bytes += size
        self._gathered.append(waiting)
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._hand_over)
        await waiting.future

    def _hand_over(self) -> None:
        """Commit what the tasks brought by now, or give it to the thread; meanwhile the next batch
        gathers.

        Once a round of the loop at most: a thread that woke for each group would take the
        interpreter lock from the loop each time, and commit one group at a time.
        """
        if self._is_growing():
            self._loop.call_soon(self._hand_over)
            return
        if self._is_upkeep_under_way():
            self._loop.call_later(self._upkeep_wait_seconds, self._hand_over)
            return
        gathered, self._gathered = self._gathered, []
        if not gathered:
            self._is_busy = False
            return
        self._is_loop_committing = self._may_commit_here(gathered)
        if self._is_loop_committing and self._commit_here(gathered):
            self._settle(gathered, has_ended=False)
        else:
            self._is_loop_committing = False
            self._queue.put(gathered)

    def _is_growing(self) -> bool:
        """Whether another round of the loop is worth waiting for: many tasks are at work, and each
        group more makes a commit cheaper for all. A group alone does not wait."""
        count = len(self._gathered)
        is_growing = (
            1 < count < BATCH_GROUPS_MAX // 2
            and count > self._gathered_before
            and self._queued_bytes < LOOP_BYTES_MAX // 2
        )
        if self._is_closing or not is_growing or self._rounds == GATHER_ROUNDS_MAX:
            self._gathered_before = self._rounds = 0
            return False
        self._gathered_before = count
        self._rounds += 1
        return True

    def _is_upkeep_under_way(self) -> bool:
        """Whether the loop would commit what was gathered, were the thread not at the store."""
        if (
            not self._store_lock.locked()
            or self._upkeep_waits == UPKEEP_WAITS_MAX
            or not self._may_commit_here(self._gathered)
        ):
            self._upkeep_waits = 0
            return False
        self._upkeep_waits += 1
        return True

    def _may_commit_here(self, gathered: list[_Waiting]) -> bool:
        if not self._may_use_loop or self._is_closing or self._failure is not None:
            return False
        size = 0
        for waiting in gathered:
            if len(waiting.group.records) > LOOP_GROUP_RECORDS_MAX:
                return False
            size += waiting.bytes
        return (
            size <= LOOP_BYTES_MAX
            and len(gathered) <= BATCH_GROUPS_MAX
            and self._clock() >= self._thread_until
        )

    def _commit_here(self, gathered: list[_Waiting]) -> bool:
        """Commit on the loop; False, with nothing done, where that would wait for someone."""
        if not self._store_lock.acquire(blocking=False):
            return False
        started = self._clock()
        try:
            if not self._commit(gathered, is_waiting=False):
                return False
        finally:
            self._store_lock.release()
            self._note_pace(started, self._clock())
        self.counts.batches_on_loop += 1
        self._loop_commits += 1
        if self._loop_commits >= LOOP_COMMITS_MAX or self._failure is not None:
            self._loop_commits = 0
            self._queue.put([])
        return True

    def _note_pace(self, started: float, ended: float) -> None:
        """Leave commits to the thread after a slow one: a disk that stalled once will again."""
        if ended - started <= LOOP_SECONDS_MAX:
            self._quick_commits += 1
            if self._quick_commits == LOOP_QUICK_COMMITS:
                self._thread_seconds = THREAD_SECONDS
            return
        self._quick_commits = 0
        self._thread_until = ended + self._thread_seconds
        self._thread_seconds = min(2 * self._thread_seconds, THREAD_SECONDS_MAX)

    async def close(self) -> None:
        """Write what is queued, then close the store."""
        self._is_closing = True
        if self._runner is None:
            self._store.close()
            return
        self._hand_over()
        self._queue.put(None)
        await self._ended
        self._runner.join()

    def _check_open(self) -> None:
        if self._is_closing or self._runner is None:
            self.counts.groups_failed += 1
            raise AuditUnavailable("The record writer is closed.")
        if self._failure is not None:
            self.counts.groups_failed += 1
            raise StoreFailure(self._failure.message)

    async def _wait_for_space(self, size: int) -> None:
        """Wait until the queue has room for `size` bytes; a group larger than all waits for none.

        Raises AuditUnavailable when that takes too long.
        """
        try:
            async with asyncio.timeout(self._queue_wait_seconds):
                while self._queued_bytes and self._queued_bytes + size > self._queue_bytes_max:
                    turnstile: asyncio.Future[None] = self._loop.create_future()
                    self._space.append(turnstile)
                    await turnstile
        except TimeoutError:
            self.counts.groups_failed += 1
            raise AuditUnavailable("The queue of records stayed full.") from None

    def _settle(self, batch: Sequence[_Waiting], has_ended: bool) -> None:
        """Tell the tasks of a batch how it went; on the event loop."""
        if has_ended:
            batch = [*batch, *self._never_taken()]
        for waiting in batch:
            self._queued_bytes -= waiting.bytes
            if waiting.failure is None and self._on_committed is not None:
                self._on_committed(waiting.group)
            if waiting.future.done():
                continue
            if waiting.failure is None:
                waiting.future.set_result(None)
            else:
                waiting.future.set_exception(waiting.failure)
        if self._gathered:
            self._loop.call_soon(self._hand_over)
        else:
            self._is_busy = False
        while self._space:
            turnstile = self._space.popleft()
            if not turnstile.done():
                turnstile.set_result(None)
        if has_ended and not self._ended.done():
            self._ended.set_result(None)

    def _never_taken(self) -> list[_Waiting]:
        """What the thread, which has ended, did not commit, as failed."""
        left = list(self._taken)
        try:
            while True:
                left += self._queue.get_nowait() or []
        except queue.Empty:
            pass
        left += self._gathered
        self._gathered = []
        for waiting in left:
            waiting.failure = AuditUnavailable("The record writer is closed.")
        return left

    # ---------------------------------------------------------- the writer's thread

    def _run(self) -> None:
        is_last = False
        has_upkeep = False
        try:
            while not is_last:
                batch, is_last = self._take(has_upkeep)
                if batch:
                    with self._store_lock:
                        self._commit(batch)
                    self._report(batch)
                with self._store_lock:
                    has_upkeep = self._tend()
        finally:
            self._end()

    def _take(self, has_upkeep: bool) -> tuple[list[_Waiting], bool]:
        """What is queued, up to a batch; waits for the first. True with it: nothing comes after."""
        is_last = False
        try:
            if self._taken or has_upkeep:
                given = self._queue.get_nowait()
            else:
                given = self._wait()
            while given is not None:
                self._taken += given
                given = self._queue.get_nowait()
            is_last = True
        except queue.Empty:
            pass
        batch: list[_Waiting] = []
        size = 0
        while self._taken and len(batch) < BATCH_GROUPS_MAX and size < BATCH_BYTES_MAX:
            batch.append(self._taken.popleft())
            size += batch[-1].bytes
        if is_last and self._taken:
            # The end is to be met again, after what came before it.
            self._queue.put(None)
            is_last = False
        return batch, is_last

    def _wait(self) -> list[_Waiting] | None:
        """What comes next to the queue. Raises queue.Empty when nothing does for a while."""
        try:
            return self._queue.get(timeout=self._upkeep_seconds if self.healthy else PROBE_SECONDS)
        except queue.Empty:
            self._is_loop_committing = False
            raise

    # ------------------------------------------- with the store's lock, in either thread

    def _commit(self, batch: list[_Waiting], *, is_waiting: bool = True) -> bool:
        """Commit a batch; where that fails, its groups one by one. Failures stand in the items.

        is_waiting: whether to wait for a lock on the files; if not, False means nothing was done.
        """
        if self._failure is not None:
            self._fail(batch, self._failure)
            return True
        groups = [waiting.group for waiting in batch]
        try:
            if is_waiting:
                self._store.append(groups)
            elif not self._store.try_append(groups):
                return False
        except StoreFailure as failure:
            self._fail(batch, failure)
        except Exception:  # noqa: BLE001 (whatever one group did must not cost the others)
            if not is_waiting:
                return False  # One by one is for the thread.
            self._commit_each(batch)
        else:
            self.counts.groups_committed += len(batch)
        self.counts.batches += 1
        return True

    def _commit_each(self, batch: list[_Waiting]) -> None:
        for at, waiting in enumerate(batch):
            try:
                self._store.append([waiting.group])
            except StoreFailure as failure:
                self._fail(batch[at:], failure)
                return
            except RecordRefused as refused:
                self.counts.groups_refused += 1
                waiting.failure = refused
            except Exception as fault:  # noqa: BLE001 (a defect; the task that brought it hears)
                self.counts.groups_refused += 1
                waiting.failure = RecordRefused(
                    f"A record cannot be stored: {type(fault).__name__}."
                )
                waiting.failure.__cause__ = fault
            else:
                self.counts.groups_committed += 1

    def _fail(self, batch: list[_Waiting], failure: StoreFailure) -> None:
        if self._failure is None:
            self.counts.store_failures += 1
        self._failure = failure
        self.counts.groups_failed += len(batch)
        for waiting in batch:
            # One exception each: tasks add their own tracebacks to what they raise.
            waiting.failure = StoreFailure(failure.message)

    def _report(self, batch: list[_Waiting], *, has_ended: bool = False) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, batch, has_ended)
        except RuntimeError:
            # The loop is closed: no task is left to hear it.
            return

    def _tend(self) -> bool:
        """Try a store that failed again, or do a little upkeep; whether more is left to do now."""
        try:
            if self._failure is not None:
                self._store.probe()
                self._failure = None
            return self._store.tend(is_merging=not self._is_loop_committing)
        except StoreFailure as failure:
            if self._failure is None:
                self.counts.store_failures += 1
            self._failure = failure
            return False

    def _end(self) -> None:
        self._is_closing = True
        try:
            with self._store_lock:
                self._store.close()
        finally:
            self._report([], has_ended=True)
