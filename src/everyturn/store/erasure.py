"""Remove turns from the SQLite store so that nothing of them can be read from its files.

Content is shared, so it goes only when no remaining call or turn refers to it. That is found by
walking what remains: erasing is rare and may take a while; appends wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import apsw

from everyturn.audit import schema
from everyturn.store import media
from everyturn.store.search import ERASURES

COUNT_SQL: Final = (
    f"INSERT INTO store_numbers VALUES ('{ERASURES}', 1)"
    " ON CONFLICT (name) DO UPDATE SET value = value + 1"
)
"""In the same transaction, so that what was derived from the store can tell that it must go too."""


def erase(db: apsw.Connection, turn_keys: Sequence[int]) -> None:
    """Delete these turns, their records, and content and media nobody else refers to, in one
    transaction."""
    db.execute("CREATE TEMP TABLE IF NOT EXISTS erased (turn_key INTEGER PRIMARY KEY)")
    db.execute("DELETE FROM erased")
    db.executemany("INSERT OR IGNORE INTO erased VALUES (?)", [(key,) for key in turn_keys])
    for log in schema.LOGS:
        db.execute(f"DELETE FROM {log.rows} WHERE turn_key IN (SELECT turn_key FROM erased)")
    for table in ("turn_ids", "turn_ids_lookup", "open_records", "reasoning_texts_rows"):
        db.execute(f"DELETE FROM {table} WHERE turn_key IN (SELECT turn_key FROM erased)")
    _sweep(db)
    media.sweep(db)
    db.execute(COUNT_SQL)


def _sweep(db: apsw.Connection) -> None:
    """Delete prefix nodes and contents that nothing leads to any more."""
    roots = " UNION ".join(
        f"SELECT {schema.node_column(column.name)} FROM {log.rows}"
        for log in schema.LOGS
        for column in log.listed
    )
    roots += "".join(
        f" UNION SELECT json_extract(record, '$.{column.name}.node') FROM open_records"
        f" WHERE log = '{log.name}'"
        for log in schema.LOGS
        for column in log.listed
    )
    db.execute("CREATE TEMP TABLE IF NOT EXISTS live (node INTEGER PRIMARY KEY)")
    db.execute("DELETE FROM live")
    db.execute(
        f"INSERT INTO live WITH RECURSIVE chain (node) AS ({roots}"
        " UNION SELECT p.parent FROM chain JOIN prefix_nodes p ON p.node = chain.node)"
        " SELECT node FROM chain WHERE node IS NOT NULL"
    )
    db.execute("DELETE FROM prefix_nodes WHERE node NOT IN (SELECT node FROM live)")
    named = " UNION ".join(
        f"SELECT {column} FROM {log.rows} WHERE {column} IS NOT NULL"
        for log in schema.LOGS
        for column in schema.extra_columns(log)
        if column.endswith("_content")
    )
    whole = f"SELECT content_key FROM prefix_nodes UNION {named}"
    kept = (
        f"{whole} UNION SELECT part_key FROM contents"
        f" WHERE part_key IS NOT NULL AND content_key IN ({whole})"
    )
    db.execute(f"DELETE FROM contents_lookup WHERE content_key NOT IN ({kept})")
    db.execute(f"DELETE FROM contents WHERE content_key NOT IN ({kept})")
    db.execute("DELETE FROM live")
    db.execute("DELETE FROM erased")


def wipe(db: apsw.Connection) -> None:
    """Empty the write-ahead log, which still holds what the database no longer does.

    Freed space was overwritten (`PRAGMA secure_delete`) and is used again by what comes.
    """
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
