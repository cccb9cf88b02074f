"""Bytes on disk of one long conversation, measured after a checkpoint.

A client resends its whole history with every turn. Here 100 turns of two messages of 1 KB each go
through the content index into a SQLite store, with answers, usage and access events as a gateway
would record them; then the files are measured.

    python benchmarks/bytes_bench.py [--turns 100] [--message-bytes 1024]
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path

import apsw

from benchmarks.store_load import Conversation
from everyturn.store.sqlite import SqliteStore


def main() -> None:
    """Run it and print what was found."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--turns", type=int, default=100)
    options.add_argument("--message-bytes", type=int, default=1024)
    options.add_argument("--tables", action="store_true", help="bytes of each table and index")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "data"
        store = SqliteStore(folder)
        talk = Conversation(random.Random(1), message_bytes=chosen.message_bytes)
        for _ in range(chosen.turns):
            opening = talk.open_turn()
            store.append([opening])
            talk.index.confirm(opening)
            store.append([talk.close_turn()])
        request = len(talk.request_body())
        store.close()
        files = {path.name: path.stat().st_size for path in folder.iterdir()}
        total = sum(files.values())
        print(
            json.dumps(
                {
                    "turns": chosen.turns,
                    "bytes_last_request": request,
                    "bytes_on_disk": total,
                    "ratio": round(total / request, 3),
                    "bytes_per_turn": total // chosen.turns,
                    "files": files,
                }
            )
        )
        if chosen.tables:
            for row in apsw.Connection(str(folder / "everyturn.db")).execute(
                "SELECT name, sum(pgsize), sum(unused) FROM dbstat GROUP BY name ORDER BY 2 DESC"
            ):
                print("{:40} {:>9} bytes, {:>8} unused".format(*row))


if __name__ == "__main__":
    main()
