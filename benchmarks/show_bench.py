"""How long it takes to read one turn by its id, in a record of a million turns.

One turn goes into a store as a gateway records it; then SQL copies its rows under new ids, each
with contents and prefix nodes of its own. Turns are read by ids drawn at random, as `everyturn
show` and `GET /v1/turns/{id}` do it: a reader is opened, the turn put together and written as JSON.

    python -m benchmarks.show_bench [--turns 1000000] [--reads 2000]

The folder (two kilobytes a turn) is temporary and is deleted. Mark: p99 under 20 ms.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

from benchmarks.store_load import Conversation
from everyturn import ids
from everyturn.audit import schema
from everyturn.store.document import document
from everyturn.store.lookup import indexed_to_sql, turn_hash
from everyturn.store.reader import Reader
from everyturn.store.sqlite import SqliteStore
from everyturn.wire.reader import write

MARK_MS = 20.0
_SLICE = 50_000


def fill(folder: Path, turns: int) -> list[str]:
    """Make the store; some of its turn ids."""
    store = SqliteStore(folder)
    talk = Conversation(random.Random(1), message_bytes=256)
    store.append([talk.open_turn()])
    store.append([talk.close_turn()])
    store.close()
    db = apsw.Connection(str(folder / "everyturn.db"))
    db.pragma("synchronous", "OFF")
    db.pragma("journal_mode", "OFF")
    db.pragma("cache_size", -200_000)
    drawn: list[str] = []
    statements = list(_copies(db))
    for first in range(1, turns, _SLICE):
        copies = range(first, min(first + _SLICE, turns))
        with db:
            db.executemany("INSERT INTO turn_ids VALUES (?, ?)", _new_ids(copies, drawn))
            for statement in statements:
                db.execute(statement, (copies.start, copies.stop))
    hashes = sorted(
        (turn_hash(str(turn_id)), key)
        for key, turn_id in db.execute("SELECT turn_key, turn_id FROM turn_ids")
    )
    with db:
        db.executemany("INSERT OR IGNORE INTO turn_ids_lookup VALUES (?, ?)", hashes)
        db.execute(
            "INSERT OR REPLACE INTO store_numbers VALUES ('turn_ids_indexed_to', ?)", (turns,)
        )
        assert db.execute(f"SELECT {indexed_to_sql('turn_ids')}").get == turns
    db.pragma("journal_mode", "wal")
    db.close()
    return drawn


def _new_ids(copies: range, drawn: list[str]) -> Iterator[tuple[int, str]]:
    for number in copies:
        turn_id = ids.generate_turn_id()
        drawn.append(turn_id)
        yield number + 1, turn_id


def _copies(db: apsw.Connection) -> Iterator[str]:
    """Statements that copy what belongs to the first turn, once for each number from ?1 to ?2."""
    numbers = (
        "(WITH RECURSIVE n (i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?2)"
        " SELECT i FROM n)"
    )
    contents = db.execute("SELECT max(content_key) FROM contents").get
    nodes = db.execute("SELECT max(node) FROM prefix_nodes").get
    yield (
        f"INSERT INTO contents SELECT c.content_key + i * {contents}, randomblob(16), c.text,"
        f" c.part_key + i * {contents}, c.part_at FROM {numbers} JOIN contents c"
        f" ON c.content_key BETWEEN 1 AND {contents}"
    )
    yield (
        f"INSERT INTO prefix_nodes SELECT p.node + i * {nodes}, p.parent + i * {nodes},"
        f" p.content_key + i * {contents} FROM {numbers} JOIN prefix_nodes p"
        f" ON p.node BETWEEN 1 AND {nodes}"
    )
    for log in schema.LOGS:
        values = []
        for name in schema.row_columns(log):
            if name == "turn_key":
                values.append("i + 1")
            elif name == "row_key":
                values.append(f"r.row_key + (i << {schema.TURN_ROWS_BITS})")
            elif name == log.id:
                values.append(f"substr(r.{name}, 1, 5) || printf('%031x', i)")
            elif name.endswith("_content"):
                values.append(f"r.{name} + i * {contents}")
            elif name.endswith("_node"):
                values.append(f"r.{name} + i * {nodes}")
            elif name == log.time:
                values.append(f"r.{name} + i * 1000")
            else:
                values.append(f"r.{name}")
        yield (
            f"INSERT INTO {log.rows} ({', '.join(schema.row_columns(log))})"
            f" SELECT {', '.join(values)} FROM {numbers} JOIN {log.rows} r ON r.turn_key = 1"
        )


def main() -> None:
    """Run it and print what was found."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--turns", type=int, default=1_000_000)
    options.add_argument("--reads", type=int, default=2_000)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "data"
        drawn = random.Random(2).choices(fill(folder, chosen.turns), k=chosen.reads)
        took = []
        for turn_id in drawn:
            started = time.perf_counter()
            with Reader(folder) as reader:
                found = reader.turn(turn_id)
            data = write(document(found))
            took.append((time.perf_counter() - started) * 1000)
            assert found is not None and len(found["model_calls"]) == 1 and data
        took.sort()
        p99 = took[len(took) * 99 // 100]
        print(
            json.dumps(
                {
                    "turns": chosen.turns,
                    "bytes": sum(path.stat().st_size for path in folder.iterdir()),
                    "show_ms_p50": round(took[len(took) // 2], 3),
                    "show_ms_p99": round(p99, 3),
                    "show_ms_max": round(took[-1], 3),
                    "mark_ms": MARK_MS,
                    "is_met": p99 < MARK_MS,
                }
            )
        )


if __name__ == "__main__":
    main()
