"""Failed calls in groups: what fails, how often, since when, and one turn to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import apsw

from everyturn.audit.columns import unescape
from everyturn.store.base import StoreFailure
from everyturn.store.opening import open_read_only

GROUP_COLUMNS: Final = {
    "model": "requested_model",
    "route": "route_name",
    "error_code": "error_code",
}
"""What calls can be grouped by, and the field that holds it."""

_FAILED: Final = "(r.error_code IS NOT NULL OR r.stream_state IN ('cut', 'error'))"
_FIRST_OF_ALL: Final = -(1 << 63)


@dataclass(slots=True, kw_only=True)
class FailureGroup:
    """Failed calls that have the same values. Times are microseconds since 1970."""

    values: dict[str, str | None]
    """Group name → value, in the order that was asked for; None where the calls have none."""
    count: int
    first: int
    last: int
    turn_id: str | None
    """Of the last one, as is `trace_id`; None for a call that belongs to no turn."""
    trace_id: str | None


def failure_groups(
    folder: Path, *, by: Sequence[str], since: int | None = None
) -> list[FailureGroup]:
    """Groups of calls that failed, the largest first.

    by: of GROUP_COLUMNS. since: microseconds, inclusive. A call that is open, or that its client
    gave up, has not failed. Raises StoreRefused and StoreFailure.
    """
    fields = ", ".join(f"r.{GROUP_COLUMNS[name]}" for name in by)
    groups: dict[tuple[Any, ...], FailureGroup] = {}
    db = open_read_only(folder)
    try:
        for *values, at, turn_id, trace_id in db.execute(
            f"SELECT {fields}, r.timestamp, t.turn_id, r.trace_id FROM model_calls_rows r"
            " LEFT JOIN turn_ids t ON t.turn_key = r.turn_key"
            f" WHERE r.timestamp >= ? AND {_FAILED}",
            [_FIRST_OF_ALL if since is None else since],
        ):
            key = tuple(values)
            group = groups.get(key)
            if group is None:
                told = (None if value is None else unescape(value) for value in values)
                group = groups[key] = FailureGroup(
                    values=dict(zip(by, told, strict=True)),
                    count=0,
                    first=at,
                    last=at,
                    turn_id=turn_id,
                    trace_id=trace_id,
                )
            group.count += 1
            group.first = min(group.first, at)
            if at > group.last:
                group.last, group.turn_id, group.trace_id = at, turn_id, trace_id
    except apsw.Error as failure:
        raise StoreFailure(f"The store cannot be read: {type(failure).__name__}.") from failure
    finally:
        db.close()
    return sorted(groups.values(), key=attrgetter("count", "last"), reverse=True)
