"""Which turns are asked for: what a turn's row, its calls, its records and its reviews have to say.

Each condition is SQL over one turn, so that closed turns are chosen by the query that lists them,
and open ones, which rest as JSON, by the same words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from everyturn.audit import schema
from everyturn.audit.columns import escape
from everyturn.audit.records import TurnAudit

ATTRIBUTE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""Names that plugins can declare."""

Fetch = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]

_IN_TURN: Final = schema.turn_range_sql("{turn}", "m.row_key")
_MODEL: Final = (
    f"EXISTS (SELECT 1 FROM model_calls_rows m WHERE {_IN_TURN.format(turn='r.turn_key')}"
    " AND ? IN (m.requested_model, m.model_registry_id, m.served_model_name))"
)
_LABEL: Final = (
    f"EXISTS (SELECT 1 FROM quality_reviews_rows m WHERE {_IN_TURN} AND m.label_primary_issue = ?)"
)
# A list has the value when one of its items is it; a number is found however it is written.
_HAS: Final = (
    "EXISTS (SELECT 1 FROM json_each({json}, ?) e WHERE ? = CASE e.type WHEN 'true' THEN 'true'"
    " WHEN 'false' THEN 'false' ELSE CAST(e.value AS TEXT) END"
    " OR (e.type IN ('integer', 'real') AND e.value = ?))"
)
_ATTRIBUTE: Final = " OR ".join(
    [
        _HAS.replace("{json}", "{own}"),
        *(
            f"EXISTS (SELECT 1 FROM {name}_rows m WHERE {_IN_TURN} AND "
            + _HAS.replace("{json}", "m.attributes_json")
            + ")"
            for name in ("tool_calls", "retrieval_events")
        ),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which turns are asked for; what is None or empty asks nothing."""

    since: int | None = None
    """Microseconds, inclusive."""
    model: str | None = None
    """As asked for, configured or served in one of the calls."""
    outcome: str | None = None
    """One of the contract's, or `open` for turns that have not ended."""
    plugin: str | None = None
    label: str | None = None
    """Of one of its reviews."""
    attributes: tuple[tuple[str, str], ...] = ()
    """Name and value as text, of the turn, one of its tool runs or one of its retrievals."""

    def condition(self) -> tuple[str, list[Any]]:
        """The condition for rows `r` of closed turns, as SQL and its values."""
        where: list[str] = []
        values: list[Any] = []
        for column, sign, value in (
            ("timestamp", ">=", self.since),
            ("outcome", "=", self.outcome),
            ("plugin", "=", self.plugin),
        ):
            if value is not None:
                where.append(f"r.{column} {sign} ?")
                values.append(escape(value) if isinstance(value, str) else value)
        if self.model is not None:
            where.append(_MODEL)
            values.append(escape(self.model))
        more, theirs = self._records("r.turn_key", "r.attributes_json")
        return " AND ".join([*where, *more]) or "1", values + theirs

    def fits(self, key: int, turn: TurnAudit, fetch: Fetch) -> bool:
        """Whether an open turn is wanted, but for its model. fetch: asks the store."""
        if self.since is not None and turn.timestamp < self.since:
            return False
        if self.outcome not in (None, "open") or self.plugin not in (None, turn.plugin):
            return False
        more, values = self._records(str(key), "(SELECT own FROM turn)")
        if not more:
            return True
        sql = f"WITH turn (own) AS (VALUES (?)) SELECT 1 WHERE {' AND '.join(more)}"
        return bool(fetch(sql, [turn.attributes_json, *values]))

    def _records(self, turn: str, own: str) -> tuple[list[str], list[Any]]:
        """The conditions on what belongs to a turn; `turn` and `own` are SQL for its key and its
        attributes."""
        where: list[str] = []
        values: list[Any] = []
        if self.label is not None:
            where.append(_LABEL.format(turn=turn))
            values.append(escape(self.label))
        for name, text in self.attributes:
            where.append(f"({_ATTRIBUTE.format(turn=turn, own=own)})")
            values += [f'$."{name}"', text, _number(text)] * 3
        return where, values


def _number(text: str) -> float | None:
    """The number that a text is; None where it is none."""
    try:
        return float(text)
    except ValueError:
        return None
