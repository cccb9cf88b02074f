"""How turns stand in the store: each one's row, and the sums of what belongs to it.

For whoever adds to turns that exist: several at once, from one moment of the store, with one look
at the ids that the index does not hold yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

import apsw

from everyturn.audit import schema
from everyturn.audit.records import TurnAudit
from everyturn.audit.turn_state import NOTHING, Tally
from everyturn.store.lookup import indexed_to_sql, turn_hash
from everyturn.store.opening import Moment, fetch, open_read_only
from everyturn.store.rows import CODECS

_IDS_MAX: Final = 500
_IN_TURN: Final = schema.turn_range_sql("?1")


class Standing(NamedTuple):
    """A turn in the store."""

    row: TurnAudit | None
    """None where only other records name it."""
    tally: Tally


UNKNOWN: Final = Standing(None, NOTHING)
"""A turn of which the store has nothing."""


def standing_of(folder: Path, turn_ids: Sequence[str]) -> dict[str, Standing]:
    """How these turns stand, those that are in the store. Blocks: use a thread.

    Raises StoreRefused and StoreFailure when the store cannot be read.
    """
    db = open_read_only(folder)
    try:
        with Moment(db):
            keys: dict[str, int] = {}
            for start in range(0, len(turn_ids), _IDS_MAX):
                keys.update(_keys(db, turn_ids[start : start + _IDS_MAX]))
            return {
                turn_id: Standing(_row(db, key), tally_of(db, key)) for turn_id, key in keys.items()
            }
    finally:
        db.close()


def _keys(db: apsw.Connection, turn_ids: Sequence[str]) -> dict[str, int]:
    marks = ",".join("?" * len(turn_ids))
    found = fetch(
        db,
        "SELECT t.turn_id, t.turn_key FROM turn_ids_lookup l JOIN turn_ids t"
        f" ON t.turn_key = l.turn_key WHERE l.hash IN ({marks}) AND t.turn_id IN ({marks})"
        # Rows that the index does not hold yet come last and are few.
        " UNION SELECT turn_id, turn_key FROM turn_ids"
        f" WHERE turn_key > {indexed_to_sql('turn_ids')} AND turn_id IN ({marks})",
        [*map(turn_hash, turn_ids), *turn_ids, *turn_ids],
    )
    return {str(turn_id): int(key) for turn_id, key in found}


def _row(db: apsw.Connection, key: int) -> TurnAudit | None:
    codec = CODECS[TurnAudit]
    for row in fetch(db, f"{codec.select_sql} WHERE r.turn_key = ?", (key,)):
        return cast(TurnAudit, codec.decode(row))
    for (text,) in fetch(
        db,
        f"SELECT o.record FROM open_records o WHERE {schema.open_range_sql('?1')} AND o.log = ?2",
        (key, codec.log.name),
    ):
        return cast(TurnAudit, codec.decode_open(text))
    return None


def tally_of(db: apsw.Connection, key: int) -> Tally:
    """The sums of a turn's closed calls, and of its tool runs, retrievals and reviews.

    key: of the turn.
    """
    ours: tuple[int, float | None] = (0, 0.0)
    elsewhere: tuple[int, float | None] = (0, 0.0)
    # A cost is owed by a call that reported usage or went well; one that is owed and not known
    # makes the sum unknown.
    for is_external, count, cost, unknown in fetch(
        db,
        "SELECT r.transport IS 'external', count(*), total(r.cost_estimate),"
        " total(r.cost_estimate IS NULL AND (r.error_code IS NULL OR r.usage_json IS NOT NULL"
        f" OR r.usage_offset IS NOT NULL)) FROM model_calls_rows r WHERE {_IN_TURN} GROUP BY 1",
        (key,),
    ):
        sums = int(count), None if unknown else float(cost)
        if is_external:
            elsewhere = sums
        else:
            ours = sums
    ((tools, retrievals, reviews),) = fetch(
        db,
        f"SELECT (SELECT count(*) FROM tool_calls_rows r WHERE {_IN_TURN}),"
        f" (SELECT count(*) FROM retrieval_events_rows r WHERE {_IN_TURN}),"
        f" (SELECT count(*) FROM quality_reviews_rows r WHERE {_IN_TURN}"
        " AND r.review_source = 'human')",
        (key,),
    )
    tally = Tally(*ours, *elsewhere, int(tools), int(retrievals), int(reviews))
    return NOTHING if tally == NOTHING else tally
