"""The store on a disk that fails it: full, locked, and cut off by the death of the process."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from everyturn.audit.group import Group
from everyturn.audit.records import AccessEvent, ModelCall, TurnAudit
from everyturn.store.base import StoreFailure
from everyturn.store.sqlite import SqliteStore
from everyturn.store.writer import GroupWriter
from tests.support.store_records import a_turn

ROOT = Path(__file__).resolve().parents[2]
BOUND_SECONDS = 60

FULL_DISK = """
import asyncio, json, resource, sys
from everyturn.audit.group import Group
from everyturn.audit.records import TurnAudit
from everyturn.errors import AuditUnavailable
from everyturn.store.sqlite import SqliteStore
from everyturn.store.writer import GroupWriter
from tests.support.store_records import a_turn

async def main():
    store = SqliteStore(sys.argv[1])
    writer = GroupWriter(store)
    writer.start()
    kept, refused = [], 0
    # No file may grow beyond this: the kernel answers as a full disk does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    while writer.healthy:
        turn = a_turn(user_text="x" * 20_000)
        try:
            await writer.append(Group((turn,)))
            kept.append(turn.turn_id)
        except AuditUnavailable:
            refused += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    async with asyncio.timeout(30):
        while not writer.healthy:
            await asyncio.sleep(0.01)
    turn = a_turn(user_text="after")
    await writer.append(Group((turn,)))
    kept.append(turn.turn_id)
    stored = [turn.turn_id for turn in store.scan(TurnAudit)]
    await writer.close()
    print(json.dumps({"is_same": stored == kept, "kept": len(kept), "refused": refused}))

asyncio.run(main())
"""

LOCKER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.read()
db.execute("ROLLBACK")
"""

BUSY_WRITER = """
import asyncio, os, sys
from everyturn.audit.group import Group
from everyturn.store.sqlite import SqliteStore
from everyturn.store.writer import GroupWriter
from tests.support.store_records import (
    a_turn, an_access, an_index, closed_call, closed_turn, group_of, start_numbers_at,
)

async def client(writer, index, name):
    history = []
    for number in range(100_000):
        history.append(b'{"role":"user","content":"%d of %d"}' % (number, name))
        turn = a_turn()
        opening, call = group_of(turn, index, history[-20:])
        await writer.append(opening)
        answer = f"answer {number} to {name} " * 10
        response = '{"choices":[{"message":{"role":"assistant","content":"%s"}}]}' % answer
        closing = closed_turn(turn, assistant_text=answer)
        await writer.append(
            Group((closed_call(call, response_json=response), closing, an_access(turn)))
        )
        print(turn.turn_id, flush=True)

async def main():
    start_numbers_at(os.getpid() * 1_000_000)
    store = SqliteStore(sys.argv[1])
    index = an_index(node_first=store.node_last + 1)
    writer = GroupWriter(store, on_committed=index.confirm)
    writer.start()
    await asyncio.gather(*(client(writer, index, name) for name in range(8)))

asyncio.run(main())
"""


def start(script: str, folder: Path) -> subprocess.Popen[str]:
    """A child that runs a script about a data folder."""
    return subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_full_disk_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    """What does not fit is refused and reported, what was kept stays, and space brings it back."""
    child = start(FULL_DISK, tmp_path / "data")

    output, _ = child.communicate(timeout=BOUND_SECONDS)

    told = json.loads(output)
    assert told["is_same"]
    assert told["kept"] > 1
    assert told["refused"] > 0


async def test_a_locked_store_refuses_and_recovers(tmp_path: Path) -> None:
    """While another program holds the write lock appends fail; then they work again."""
    store = SqliteStore(tmp_path / "data", lock_wait_ms=50)
    writer = GroupWriter(store)
    writer.start()
    child = start(LOCKER, store.path)
    assert child.stdout is not None
    assert child.stdout.readline() == "locked\n"

    with pytest.raises(StoreFailure):
        await writer.append(Group((a_turn(),)))
    assert not writer.healthy

    child.communicate("", timeout=BOUND_SECONDS)
    async with asyncio.timeout(BOUND_SECONDS):
        while not writer.healthy:
            await asyncio.sleep(0.01)
    turn = a_turn()
    await writer.append(Group((turn,)))
    assert list(store.scan(TurnAudit)) == [turn]
    await writer.close()


def test_a_killed_writer_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    """After `kill -9` at any moment the store opens, and every turn that was reported is whole."""
    folder = tmp_path / "data"
    reported: list[str] = []
    for round_ in range(4):
        with start(BUSY_WRITER, folder) as child:
            assert child.stdout is not None
            for _ in range(40 + 37 * round_):
                reported.append(child.stdout.readline().strip())
            child.send_signal(signal.SIGKILL)
            # The last line may have been cut; a turn id has 36 characters.
            lines = child.stdout.read().split("\n")
            reported += [line for line in lines if len(line) == 36]

        store = SqliteStore(folder)
        assert apsw.Connection(str(store.path)).pragma("integrity_check") == "ok"
        left_open = store.close_interrupted(now=1)
        turns = {turn.turn_id: turn for turn in store.scan(TurnAudit)}
        calls = {call.turn_id: call for call in store.scan(ModelCall)}
        events = {event.turn_id for event in store.scan(AccessEvent)}
        store.close()

        assert left_open <= 8
        for turn_id in reported:
            answer = turns[turn_id].assistant_text
            assert answer is not None
            assert turns[turn_id].outcome == "success"
            assert answer in (calls[turn_id].response_json or "")
            assert turn_id in events
        for turn_id, turn in turns.items():
            prompt = calls[turn_id].prompt_messages_json
            assert isinstance(prompt, str)
            assert json.loads(prompt)
            assert (turn.outcome == "success") == (turn_id in events)
