"""Rows as people and programs look at them: joined with item, vote and judgements.

Everything here starts from the one reader of rows, so it has no reasoning unless that was asked to
include it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from everyturn.bench.folder import ROWS, RunRefused
from everyturn.bench.items import Item
from everyturn.bench.manifest import read_items
from everyturn.bench.metrics import JUDGED
from everyturn.bench.rows import Key, Row, read_rows
from everyturn.bench.summary import Reading, read_run
from everyturn.bench.votes import Judgement, Vote

_WHERE: Final = re.compile(r"([A-Za-z_][\w.-]*)\s*(!=|>=|<=|=|>|<)\s*(.*)")
_ORDERS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

JOINED: Final[dict[str, Any]] = {
    "question": str,
    "expected": list[str],
    "judge_verdict": str | None,
    "judge_label": str | None,
    "judge_rationale": str | None,
}
"""What is joined to a row, with its type, in the order of `Joined.joined`."""


class Joined:
    """A run whose rows can be looked at one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reading: Reading = read_run(path)
        self.items: dict[str, Item] = read_items(path)

    def rows(self, *, include_reasoning: bool = False) -> Iterator[dict[str, Any]]:
        """Every row as JSON, joined; see `joined`."""
        path = self.path / ROWS
        # Two calls, so that the type says which kind of row each gives.
        source: Iterator[Row] = (
            read_rows(path, include_reasoning=True) if include_reasoning else read_rows(path)
        )
        for row in source:
            yield self.joined(row)

    def joined(self, row: Row) -> dict[str, Any]:
        """A row with its question, what was expected, the verdict and its rationale."""
        item = self.items[row.item_id]
        vote = self.reading.votes.get(row.key)
        told: dict[str, Any] = msgspec.to_builtins(row)
        told["question"] = item.question
        told["expected"] = list(item.expected)
        told["judge_verdict"] = None if vote is None else vote.verdict
        told["judge_label"] = None if vote is None else vote.label
        told["judge_rationale"] = None if vote is None else vote.rationale
        return told

    def vote(self, key: Key) -> Vote | None:
        """The vote over a row."""
        return self.reading.votes.get(key)

    def judgements(self, key: Key) -> list[Judgement]:
        """The final judgements of a row."""
        return list(self.reading.finals.get(key, {}).values())


class Where:
    """A condition on rows: `outcome=length`, `model!=m`, `right<1`, `flags=thoughts_in_text`."""

    def __init__(self, text: str, metrics: tuple[str, ...]) -> None:
        """Raises RunRefused for what is no condition, or names no member of a row."""
        found = _WHERE.fullmatch(text.strip())
        known = (
            *Row.__struct_fields__,
            *(name for name in metrics if name != JUDGED),
            "judge_verdict",
            "judge_label",
        )
        if found is None:
            raise RunRefused(f"`{text}` is no condition.", "Write such as `outcome=length`.")
        self.name, self._sign, self._value = found[1], found[2], found[3].strip().strip("\"'")
        if self.name not in known:
            raise RunRefused(
                f"`{self.name}` is no member of a row.", f"Known: {', '.join(sorted(known))}."
            )
        if self._sign in _ORDERS:
            try:
                float(self._value)
            except ValueError:
                raise RunRefused(f"`{text}` compares with what is no number.") from None

    def holds(self, row: dict[str, Any]) -> bool:
        """Whether a joined row fits."""
        value = row["scores"].get(self.name) if self.name in row["scores"] else row.get(self.name)
        if self._sign in _ORDERS:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return is_number and _ORDERS[self._sign](float(value or 0), float(self._value))
        if isinstance(value, list):
            fits = self._value in value
        else:
            fits = self._fits(value)
        return fits == (self._sign == "=")

    def _fits(self, value: Any) -> bool:
        if value is None:
            return self._value in ("", "null")
        if isinstance(value, bool):
            return self._value.lower() == str(value).lower()
        if isinstance(value, int | float):
            try:
                return float(self._value) == float(value)
            except ValueError:
                return False
        return str(value) == self._value


def story(joined: Joined, row: Row) -> dict[str, Any]:
    """A row with all that is known of it here: attempts, and every judge's final word."""
    told = joined.joined(row)
    told["judgements"] = [msgspec.to_builtins(one) for one in joined.judgements(row.key)]
    return told


def find_row(path: Path, turn_id: str, *, include_reasoning: bool) -> Row:
    """The row of a turn. Raises RunRefused where the run has none."""
    rows: Iterator[Row] = (
        read_rows(path / ROWS, include_reasoning=True)
        if include_reasoning
        else read_rows(path / ROWS)
    )
    for row in rows:
        if row.turn_id == turn_id or (row.turn_id is None and row.cached_from == turn_id):
            return row
    raise RunRefused(f"the run has no row of turn {turn_id}.", "`everyturn bench rows RUN` lists.")
