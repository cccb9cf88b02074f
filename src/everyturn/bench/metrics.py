"""What a run found: one figure for each metric, with n, its interval, and the worst case beside it.

Rows are read once and folded, so that a report over 100,000 rows needs little memory. A figure
never stands alone: n scored of n total, and what it is if all that is missing counts as wrong.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from everyturn import stats
from everyturn.bench.money import exact
from everyturn.bench.rows import OUTCOMES, Key, Row
from everyturn.bench.votes import Vote, figure

JUDGED: Final = "judged"
"""The metric that judges give: 1 for the verdict `correct`, 0 for `incorrect`."""
REPEATS_MAX: Final = 8


class Group:
    """All rows of one cell and model, folded."""

    def __init__(
        self, cell: str, model: str, metrics: Iterable[str], *, is_control: bool, total: int
    ) -> None:
        """metrics: those that the run has; each has a figure, if only that nothing was counted."""
        self.cell, self.model, self.is_control, self.total = cell, model, is_control, total
        self.outcomes: Counter[str] = Counter()
        self.flags: Counter[str] = Counter()
        self.labels: Counter[str] = Counter()
        self.ties = 0
        self.scores = {name: _Scores() for name in metrics}
        self.latency = array("d")
        self.first_token = array("d")
        self.tokens: Counter[str] = Counter()
        self.attempts = 0
        self.cost = Decimal(0)
        self.cost_unknown = 0

    def add(self, row: Row, vote: Vote | None) -> None:
        """Fold a row in, with what judges say of it."""
        self.outcomes[row.outcome] += 1
        self.flags.update(row.flags)
        cluster = row.cluster if row.cluster is not None else f"item:{row.item_id}"
        for name, scores in self.scores.items():
            value = row.scores.get(name)
            if name == JUDGED:
                verdict = None if vote is None else vote.verdict
                value = None if verdict is None else float(verdict == "correct")
            scores.add(value, row.item_id, cluster)
        if vote is not None:
            self.ties += vote.is_tie
            if vote.label is not None:
                self.labels[vote.label] += 1
        for attempt in row.attempts:
            self.attempts += 1
            if attempt.cost is None:
                self.cost_unknown += 1
            else:
                self.cost += exact(attempt.cost)
            if attempt.outcome == "answered" and not attempt.cache_hit:
                self.latency.append(attempt.latency_ms)
                if attempt.time_to_first_token_ms is not None:
                    self.first_token.append(attempt.time_to_first_token_ms)
        for name in ("prompt_tokens", "completion_tokens", "reasoning_tokens"):
            self.tokens[name] += getattr(row, name) or 0

    def found(self, epochs: int) -> dict[str, Any]:
        """What answers were worth: nothing here depends on the clock or on retries."""
        told: dict[str, Any] = {
            "cell": self.cell,
            "model": self.model,
            "control": self.is_control,
            "n_total": self.total,
            "outcomes": {name: self.outcomes[name] for name in OUTCOMES if self.outcomes[name]},
            "metrics": {
                name: scores.found(self.total, epochs) for name, scores in self.scores.items()
            },
        }
        if self.labels or self.ties:
            told["labels"] = dict(sorted(self.labels.items()))
            told["ties"] = self.ties
        if self.flags:
            told["flags"] = dict(sorted(self.flags.items()))
        return told

    def timing(self) -> dict[str, Any]:
        """What answers took, from the attempts."""
        return {
            "cell": self.cell,
            "model": self.model,
            "attempts": self.attempts,
            "latency_ms": percentiles(self.latency),
            "time_to_first_token_ms": percentiles(self.first_token),
            "cost": float(self.cost),
            "attempts_of_unknown_cost": self.cost_unknown,
            "tokens": dict(self.tokens),
        }


class _Scores:
    """The scores of one metric in one group."""

    def __init__(self) -> None:
        self.values = array("d")
        self.items: list[str] = []
        self.clusters: list[str] = []

    def add(self, value: float | None, item_id: str, cluster: str) -> None:
        if value is not None:
            self.values.append(value)
            self.items.append(item_id)
            self.clusters.append(cluster)

    def found(self, total: int, epochs: int) -> dict[str, Any]:
        self._sort()
        n = len(self.values)
        told = {"n_scored": n, "n_total": total, **self._estimate()}
        right = sum(self.values)
        is_rate = set(self.values) <= {0.0, 1.0}
        if total:
            worst = stats.wilson(round(right), total) if is_rate else None
            told["worst_case"] = figure(worst) if worst else {"value": right / total}
        if epochs > 1:
            told["repeats"] = self._repeats(epochs)
        return told

    def _sort(self) -> None:
        """One order, whatever order rows came in: sums of floats are the same to the last bit."""
        kept = sorted(zip(self.clusters, self.items, self.values, strict=True))
        self.clusters = [cluster for cluster, _, _ in kept]
        self.items = [item_id for _, item_id, _ in kept]
        self.values = array("d", (value for _, _, value in kept))

    def _estimate(self) -> dict[str, Any]:
        values = self.values
        is_clustered = len(set(self.clusters)) < len(self.clusters)
        if not is_clustered and set(values) <= {0.0, 1.0}:
            return {**figure(stats.wilson(round(sum(values)), len(values))), "method": "Wilson"}
        if is_clustered:
            found = stats.mean(values, self.clusters)
            groups = len(set(self.clusters))
            return {**figure(found), "method": "t, by cluster", "clusters": groups}
        return {**figure(stats.mean(values)), "method": "t"}

    def _repeats(self, epochs: int) -> dict[str, Any]:
        tries: dict[str, list[float]] = defaultdict(list)
        for item_id, value in zip(self.items, self.values, strict=True):
            tries[item_id].append(value)
        tasks = [(int(sum(found)), len(found)) for found in tries.values()]
        told: dict[str, Any] = {}
        for k in range(1, min(epochs, REPEATS_MAX) + 1):
            at, hat = stats.repeats(tasks, k)
            told[f"pass@{k}"], told[f"pass^{k}"] = figure(at), figure(hat)
        return told


def percentiles(values: Iterable[float]) -> dict[str, Any]:
    """n, p50 and p95; nulls where there is nothing."""
    ordered = sorted(values)
    p50, p95 = (stats.quantile(ordered, share).value for share in (0.5, 0.95))
    return {"n": len(ordered), "p50": p50, "p95": p95}


class ReasoningLengths:
    """How long the reasoning of a model's rows is, without a word of it."""

    def __init__(self) -> None:
        self.chars: dict[str, array[int]] = defaultdict(lambda: array("q"))
        self.none: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.models: dict[str, None] = {}

    def add(self, row: Row) -> None:
        """Fold a row in."""
        self.models[row.model] = None
        if row.reasoning_content_chars is None:
            self.none[row.model] += 1
        else:
            self.chars[row.model].append(row.reasoning_content_chars)
        if row.reasoning_carrier == "unknown":
            self.unknown[row.model] += 1

    def found(self) -> dict[str, Any]:
        """By model; empty where no row has any reasoning and none was missed."""
        told = {}
        for model in sorted(self.models):
            lengths = self.chars[model]
            if not lengths and not self.unknown[model]:
                continue
            parts = percentiles(lengths)
            told[model] = {
                "sum": sum(lengths),
                "p50": parts["p50"],
                "p95": parts["p95"],
                "rows_with": len(lengths),
                "rows_without": self.none[model],
                "shape_unknown": self.unknown[model],
            }
        return told


def fold(
    rows: Iterable[Row],
    votes: Mapping[Key, Vote],
    groups: dict[tuple[str, str], Group],
) -> ReasoningLengths:
    """Fold all rows into their groups; what their reasoning amounts to."""
    lengths = ReasoningLengths()
    for row in rows:
        groups[row.cell, row.model].add(row, votes.get(row.key))
        lengths.add(row)
    return lengths
