"""The SQLite store: one file in WAL mode, one writing connection, commits in batches.

Readers open connections of their own (`store.reader`) and never wait for the writer. What a commit
promises depends on `durability`: "process", that it outlives this process (the pages are with the
kernel); "disk", that it is on the disk. Syncing and checkpoints are the work of `store.keeper`.
Source: SQLite documentation, "Write-Ahead Logging" and "PRAGMA synchronous".
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

import apsw
import msgspec

from everyturn.audit import schema
from everyturn.audit.group import Group
from everyturn.audit.records import ModelCall, Record, TurnAudit
from everyturn.audit.turn_state import Tally, counted_again, counted_as, interrupted
from everyturn.errors import GatewayInterrupted
from everyturn.store import careful, erasure
from everyturn.store.base import RecordRefused, StoreFailure, StoreRefused
from everyturn.store.batch import SET_NUMBER_SQL, Batch
from everyturn.store.folder import FolderLock, prepare
from everyturn.store.keeper import LOG_PAGES_MAX, Keeper
from everyturn.store.kept import Expiry
from everyturn.store.rows import CODECS
from everyturn.store.search import forget_erased
from everyturn.store.standing import tally_of
from everyturn.store.state import Memory, is_open
from everyturn.store.uncounted import Uncounted

R = TypeVar("R", bound=Record)
Durability = Literal["process", "disk"]

PAGE_BYTES: Final = 4096
_CACHE_KIB: Final = 512
"""Few pages, which stay in the processor's own cache: most are written once and not read again."""
_SPILL_PAGES: Final = 1_000
"""Pages that one transaction may hold before some of them are written early."""
_STATEMENTS: Final = 64
"""Places for prepared statements: each use of one takes the next place, and looking one up passes
by all before it."""
LOCK_WAIT_MS: Final = 2_000
"""How long a commit waits for a lock that a person's tool may hold."""

_CONTENT_FAULTS: Final = (
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.TooBigError,
    apsw.RangeError,
    UnicodeEncodeError,
    OverflowError,
    TypeError,
    ValueError,
)
"""What a value can do to a statement; everything else SQLite raises is the store's own state."""


class _Locked(StoreFailure):
    """Somebody else holds the lock on the files."""


class SqliteStore:
    """Keeps records in `everyturn.db` of a data folder (see `base.Store`)."""

    def __init__(
        self,
        folder: Path | str,
        *,
        durability: Durability = "process",
        lock_wait_ms: int = LOCK_WAIT_MS,
    ) -> None:
        """Open the folder, making and migrating what is needed.

        Raises StoreRefused when another gateway holds it, when others may read it, when its
        files are of a newer everyturn, or are no database.
        """
        self.folder = Path(folder)
        self.path = prepare(self.folder)
        self._is_closed = False
        self._is_merge_in_the_way = False
        """Whether something was in the way of a merge when it was last tried beside a commit."""
        self._lock_wait_ms = lock_wait_ms
        with ExitStack() as undo:
            self._lock = FolderLock(self.folder)
            undo.callback(self._lock.release)
            self._db = _open(self.path, durability, lock_wait_ms)
            undo.callback(self._db.close)
            self._cursor = self._db.cursor()
            """For what commits execute: one each time would cost as much as a small statement."""
            try:
                migrate(self._db, self.folder)
                self._memory = Memory(self._db)
                self._expiry = Expiry(self._db)
                self._uncounted = Uncounted(self._db)
            except apsw.Error as failure:
                raise _not_opened(self.path, failure) from failure
            self._keeper = Keeper(self.path, syncs=durability == "process")
            self._db.set_wal_hook(self._note_commit)
            undo.pop_all()

    @property
    def sync_failures(self) -> int:
        """How often the log could not be synced or moved to the database; each is tried again."""
        return self._keeper.failures

    def _note_commit(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._keeper.committed(pages)
        return apsw.SQLITE_OK

    # ----------------------------------------------------------------- appending

    def append(self, groups: Sequence[Group]) -> None:
        """Commit all of these groups or nothing of them (see `base.Store`)."""
        self._append_somehow(groups, is_row_by_row=False)

    def _append_somehow(self, groups: Sequence[Group], *, is_row_by_row: bool) -> None:
        try:
            self._append(groups, is_row_by_row=is_row_by_row, is_careful=False)
        except _CONTENT_FAULTS:
            # Some value or key is not as the quick way needs it; the careful way can tell.
            try:
                self._append(groups, is_row_by_row=is_row_by_row, is_careful=True)
            except _CONTENT_FAULTS as fault:
                raise RecordRefused(f"A record cannot be stored: {_kind(fault)}.") from fault

    def try_append(self, groups: Sequence[Group]) -> bool:
        """As `append`, but without waiting for a lock (see `base.Store`)."""
        self._db.set_busy_timeout(0)
        try:
            # Its caller is alone with the store, and has the interpreter's lock at hand.
            self._append_somehow(groups, is_row_by_row=True)
            self._merge_beside()
        except _Locked:
            return False
        finally:
            self._db.set_busy_timeout(self._lock_wait_ms)
        return True

    def _merge_beside(self) -> None:
        """Merge a little right after a commit, by whoever is at it: that holds up nobody else."""
        try:
            self._memory.turns.merge_owed()
            self._memory.contents.merge_owed()
        except apsw.Error:
            # The commit stands. What is in the way is met again by `tend`, which tells of it.
            self._is_merge_in_the_way = True

    def _append(self, groups: Sequence[Group], *, is_row_by_row: bool, is_careful: bool) -> None:
        batch = Batch(self._db, self._memory, self._cursor, is_row_by_row=is_row_by_row)
        try:
            # Before any question: each has its own transaction where it finds none.
            self._cursor.execute("BEGIN IMMEDIATE")
            self._bring_keys(groups, is_one_by_one=is_row_by_row)
            for group in groups:
                if is_careful or not batch.add(group):
                    careful.add(self._db, batch, group)
            batch.write()
            self._uncounted.note(groups, batch)
            self._cursor.execute("COMMIT")
        except apsw.ConstraintError:
            self._roll_back()
            raise
        except apsw.Error as failure:
            self._roll_back()
            if isinstance(failure, _CONTENT_FAULTS):
                raise
            kind = _Locked if isinstance(failure, apsw.BusyError) else StoreFailure
            raise kind(f"The record cannot be written: {_kind(failure)}.") from failure
        except BaseException:
            self._roll_back()
            raise
        batch.committed()
        self._uncounted.committed()
        self._memory.trim()

    def _bring_keys(self, groups: Sequence[Group], *, is_one_by_one: bool) -> None:
        turns, contents = self._memory.turns, self._memory.contents
        if turns.is_indexed:
            turn_ids: set[str] = set()
            for group in groups:
                if group.is_turn_new:
                    continue
                last: str | None = None
                for record in group.records:
                    turn_id = record.turn_id
                    if turn_id is not None and turn_id != last:
                        last = turn_id
                        if turns.find(turn_id) is None:
                            turn_ids.add(turn_id)
            turns.ask(turn_ids, is_one_by_one=is_one_by_one)
        if contents.is_indexed:
            addresses: set[bytes] = set()
            for group in groups:
                for content in group.contents:
                    if contents.find(content.address) is None:
                        addresses.add(content.address)
                for node in group.nodes:
                    address = node.address
                    if address not in addresses and contents.find(address) is None:
                        addresses.add(address)
            contents.ask(addresses, is_one_by_one=is_one_by_one)

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except apsw.Error:
                # The failure that brought us here is the one to report; a transaction that
                # cannot be rolled back is rolled back by SQLite when it next can.
                return

    def probe(self) -> None:
        """Write a number, as an append would. Raises StoreFailure."""
        try:
            self._roll_back()
            self._db.execute(
                "INSERT INTO store_numbers VALUES ('probes', 1)"
                " ON CONFLICT (name) DO UPDATE SET value = value + 1"
            )
        except apsw.Error as failure:
            raise StoreFailure(f"The store cannot be written: {_kind(failure)}.") from failure

    def tend(self, *, is_merging: bool = True) -> bool:
        """Finish a checkpoint, delete a slice of what expired, merge a slice of keys into an index;
        whether more is due.

        is_merging: False where commits merge; what they cannot, or do not keep up with, is merged
        all the same. Raises StoreFailure.
        """
        try:
            if self._keeper.finish_due or self._keeper.pages > LOG_PAGES_MAX:
                self._finish_checkpoint()
            more = self._expiry.run()
            for keys in (self._memory.turns, self._memory.contents):
                if is_merging or keys.is_behind or self._is_merge_in_the_way:
                    more = keys.merge_slice() or more
            self._is_merge_in_the_way = False
            return more
        except apsw.Error as failure:
            raise StoreFailure(f"Upkeep cannot be written: {_kind(failure)}.") from failure

    def _finish_checkpoint(self) -> None:
        self._keeper.finish_due = False
        try:
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            # The keeper is at it again; it will ask once more.
            return

    @property
    def node_last(self) -> int:
        """The greatest prefix node in the store; 0 when there is none."""
        return _number(self._db, "SELECT coalesce(max(node), 0) FROM prefix_nodes")

    # ------------------------------------------------------------------- reading

    def scan(self, record: type[R]) -> Iterator[R]:
        """Each record of one log, highest revision: by turn, in the order turns first came."""
        codec = CODECS[record]
        key = codec.key_column
        closed = (
            (row[-1], codec.decode(row[:-1]))
            for row in self._db.execute(f"{codec.select_keyed_sql} ORDER BY r.{key}")
        )
        still_open: list[tuple[int, R]] = self._open_records(record)
        for _, one in heapq.merge(closed, still_open, key=itemgetter(0)):
            yield cast(R, careful.with_texts(self._db, one))

    def _open_records(self, kind: type[R]) -> list[tuple[int, R]]:
        """Key and record of what is open in a log; lists are references."""
        codec = CODECS[kind]
        return [
            (codec.row_key_of(int(key)), cast(R, codec.decode_open(text)))
            for key, text in self._db.execute(
                "SELECT open_key, record FROM open_records WHERE log = ? ORDER BY open_key",
                (codec.log.name,),
            )
        ]

    # ----------------------------------------------------------- after the facts

    def close_interrupted(self, *, now: int) -> int:
        """Close the turns and calls that a process left open when it died; how many turns.

        now: microseconds. Each gets a further revision; what was not known stays unknown. A turn
        that has ended with a later call keeps that ending: what is left open is a call whose end
        could not be stored, and only its turn's counts may change with it.
        """
        left = self._open_records(ModelCall)
        calls = [call for _, call in left]
        key_last = {call.turn_id: key for key, call in left}
        turns = {turn.turn_id: turn for _, turn in self._open_records(TurnAudit)}
        for call in calls:
            if call.turn_id not in turns:
                turns.update((one.turn_id, one) for one in self._turn_rows(call.turn_id))
        groups: dict[str, list[Record]] = {}
        for call in calls:
            groups.setdefault(call.turn_id, []).append(_interrupted_call(call))
        for turn in turns.values():
            tally, key = self._tally(turn.turn_id), key_last.get(turn.turn_id)
            has_ended = not is_open(turn) and key is not None and self._has_later_call(key)
            ended = counted_again(turn, tally) if has_ended else interrupted(turn, tally)
            groups.setdefault(turn.turn_id, []).append(ended)
        for records in groups.values():
            self.append([Group(records=tuple(records))])
        self._count_again()
        self._set_number("interrupted_at", now)
        return len(turns)

    def _count_again(self) -> None:
        """Bring the counts up to date of turns whose records came before a crash, and no row since.

        Nothing is under way when this is called.
        """
        for key, turn_id in self._uncounted.left():
            for row in self._turn_rows(turn_id):
                counted = counted_as(row, tally_of(self._db, key))
                if counted is not row:
                    self.append([Group((counted,))])
        self._uncounted.clear()

    def _has_later_call(self, row_key: int) -> bool:
        """Whether a call of the gateway that was opened after this one, in its turn, has ended."""
        turn_key = row_key >> schema.TURN_ROWS_BITS
        return bool(
            self._db.execute(
                f"SELECT 1 FROM model_calls_rows r WHERE {schema.turn_range_sql('?1')}"
                " AND r.row_key > ?2 AND r.transport IS NOT 'external'",
                (turn_key, row_key),
            ).get
        )

    def _turn_rows(self, turn_id: str) -> list[TurnAudit]:
        self._memory.turns.ask([turn_id])
        codec = CODECS[TurnAudit]
        key = self._memory.turns.find(turn_id)
        found = self._db.execute(f"{codec.select_sql} WHERE r.turn_key = ?", (key,))
        return [cast(TurnAudit, codec.decode(row)) for row in found]

    def _tally(self, turn_id: str) -> Tally:
        """How many calls, those that are open too, tool runs and retrievals a turn has."""
        self._memory.turns.ask([turn_id])
        key = self._memory.turns.find(turn_id)
        in_turn, are_open = schema.turn_range_sql("?1"), schema.open_range_sql("?1")
        row = self._db.execute(
            f"SELECT (SELECT count(*) FROM model_calls_rows r WHERE {in_turn}) + (SELECT count(*)"
            f" FROM open_records o WHERE {are_open} AND o.log = 'model_calls'),"
            f" (SELECT count(*) FROM tool_calls_rows r WHERE {in_turn}),"
            f" (SELECT count(*) FROM retrieval_events_rows r WHERE {in_turn})",
            (key,),
        ).fetchone()
        assert row is not None
        calls, tools, retrievals = map(int, row)
        return Tally(calls=calls, tools=tools, retrievals=retrievals)

    def _set_number(self, name: str, value: int) -> None:
        self._db.execute(SET_NUMBER_SQL, (name, value))

    def erase(self, turn_ids: Sequence[str]) -> int:
        """Remove turns and all that belongs to them (see `base.Store`)."""
        self._memory.turns.ask(turn_ids)
        keys = [k for k in map(self._memory.turns.find, turn_ids) if k is not None]
        try:
            with self._db:
                erasure.erase(self._db, keys)
            erasure.wipe(self._db)
            forget_erased(self.folder)
        except apsw.Error as failure:
            raise StoreFailure(f"Turns cannot be erased: {_kind(failure)}.") from failure
        finally:
            self._memory.forget()
        return len(keys)

    def close(self) -> None:
        """Checkpoint, close the files and let go of the folder. Again is no change."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._keeper.stop()
            self._roll_back()
            self._db.close()
        finally:
            self._lock.release()


def _open(path: Path, durability: Durability, lock_wait_ms: int) -> apsw.Connection:
    try:
        # Whoever uses the store sees to it that nobody else does (see `base.Store`); SQLite's own
        # lock, taken for each value that is bound, would say it again.
        db = apsw.Connection(
            str(path),
            flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOMUTEX,
            statementcachesize=_STATEMENTS,
        )
        db.set_busy_timeout(lock_wait_ms)
        db.pragma("page_size", PAGE_BYTES)
        # What is deleted is overwritten, so an erased text is not left in a free page.
        db.pragma("secure_delete", True)
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", "FULL" if durability == "disk" else "NORMAL")
        db.pragma("cache_size", -_CACHE_KIB)
        db.pragma("cache_spill", _SPILL_PAGES)
        db.pragma("temp_store", "MEMORY")
        db.wal_autocheckpoint(0)
    except apsw.Error as failure:
        raise _not_opened(path, failure) from failure
    return db


def _not_opened(path: Path, failure: apsw.Error) -> StoreRefused:
    return StoreRefused(
        str(path.parent),
        f"`{path.name}` cannot be opened as a database: {_kind(failure)}.",
        "Choose another folder, or put back a copy of this one.",
    )


def migrate(db: apsw.Connection, folder: Path) -> None:
    """Bring the tables to the newest migration, each in one transaction with its own record.

    Raises StoreRefused when the files are of a newer everyturn.
    """
    db.execute(
        "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY, applied_at INTEGER)"
    )
    done = _number(db, "SELECT coalesce(max(number), 0) FROM migrations")
    if done > schema.MIGRATION_LAST:
        raise StoreRefused(
            str(folder),
            f"It was written by a newer everyturn (schema {done}, this one knows"
            f" {schema.MIGRATION_LAST}).",
            "Install that version or a later one, or choose another folder.",
        )
    for number in range(done + 1, schema.MIGRATION_LAST + 1):
        is_last = number == schema.MIGRATION_LAST
        with db:
            for statement in schema.sqlite_migration(number):
                db.execute(statement)
            # They name every column there is, so not before the last one has been made.
            for statement in schema.sqlite_views() if is_last else ():
                db.execute(statement)
            applied_at = time.time_ns() // 1_000
            db.execute("INSERT INTO migrations VALUES (?, ?)", (number, applied_at))


def _number(db: apsw.Connection, sql: str, *values: Any) -> int:
    row = db.execute(sql, values).fetchone()
    assert row is not None
    return int(row[0])


def _kind(failure: BaseException) -> str:
    """What went wrong, without the values that SQLite may have put in its message."""
    if isinstance(failure, apsw.Error):
        code = getattr(failure, "extendedresult", None)
        name = apsw.mapping_extended_result_codes.get(code) if code is not None else None
        return str(name or type(failure).__name__)
    return type(failure).__name__


def _interrupted_call(call: ModelCall) -> ModelCall:
    return msgspec.structs.replace(
        call,
        # The answer, if one had begun, broke off with the process; nothing says how far it was.
        stream_state="cut",
        error_code=GatewayInterrupted.code,
        revision=call.revision + 1,
    )
