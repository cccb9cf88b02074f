"""Two runs against each other, paired by item: what the difference is, and what it is worth."""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from everyturn import stats
from everyturn.bench.folder import JUDGEMENTS, ROWS, RunRefused
from everyturn.bench.manifest import Manifest, read_manifest
from everyturn.bench.metrics import JUDGED
from everyturn.bench.rows import read_rows
from everyturn.bench.votes import figure, final_judgements, read_judgements, vote

LEVEL: Final = 0.95
_GATE: Final = re.compile(r"\s*(difference|low|high|worst)\s*(>=|<=|>|<)\s*([-+]?\d*\.?\d+)\s*")
_SIGNS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

Place = tuple[str, str]
"""A cell and a model."""


@dataclass(frozen=True, slots=True)
class Gate:
    """What a difference must be for a run to pass."""

    figure: str
    sign: str
    bound: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Gate:
        """From `difference > -0.02`; also `low`, `high` (of the interval) and `worst`."""
        found = _GATE.fullmatch(text)
        if found is None:
            raise RunRefused(
                f"`{text}` is no gate.", "Write such as `difference > -0.02` or `low >= 0`."
            )
        return cls(found[1], found[2], float(found[3]), text.strip())

    def holds(self, pair: dict[str, Any]) -> bool:
        """Whether a comparison passes; a figure that is undefined does not."""
        values = {
            "difference": pair["difference"]["value"],
            "low": pair["difference"]["low"],
            "high": pair["difference"]["high"],
            "worst": pair["worst_case_difference"],
        }
        value = values[self.figure]
        if value is None and self.figure in ("low", "high") and pair["identical"]:
            value = 0.0  # The interval of runs that never differ is a point.
        return value is not None and _SIGNS[self.sign](value, self.bound)


@dataclass(slots=True)
class _Scored:
    """The scores of one run by place and item: (values, how many rows were not scored)."""

    manifest: Manifest
    values: dict[Place, dict[str, list[float | None]]]
    clusters: dict[str, str]


def compare_runs(
    first: Path,
    second: Path,
    metric: str | None = None,
    places: tuple[Place, Place] | None = None,
) -> dict[str, Any]:
    """Compare the cells and models that two runs share, on one metric.

    places: compare these two instead, of the first and the second run. metric: the first scorer by
    default, else what judges say. Raises RunRefused where there is nothing to compare.
    """
    metric = metric or default_metric(read_manifest(first))
    one, other = _read(first, metric), _read(second, metric)
    pairs = [_pair(one, other, a, b) for a, b in ([places] if places else _shared(one, other))]
    adjusted = iter(stats.holm([pair["p"] for pair in pairs if pair["p"] is not None]))
    for pair in pairs:
        pair["p_holm"] = None if pair["p"] is None else next(adjusted)
        pair["verdict"] = _verdict(pair)
        pair["sentence"] = _sentence(pair, metric)
    return {
        "metric": metric,
        "first": one.manifest.run_id,
        "second": other.manifest.run_id,
        "same_data": one.manifest.data.sha256 == other.manifest.data.sha256,
        "level": LEVEL,
        "pairs": pairs,
    }


def default_metric(manifest: Manifest) -> str:
    """The metric that is meant where none is named."""
    return manifest.grid.scorers[0].name


def _read(path: Path, metric: str) -> _Scored:
    manifest = read_manifest(path)
    known = [one.name for one in manifest.grid.scorers]
    if manifest.judges:
        known.append(JUDGED)
    if metric not in known:
        raise RunRefused(f"{path} has no metric `{metric}`.", f"It has: {', '.join(known)}.")
    votes = {}
    if metric == JUDGED:
        finals = final_judgements(read_judgements(path / JUDGEMENTS), manifest.judges[-1]["tag"])
        votes = {key: vote(rulings) for key, rulings in finals.items()}
    values: dict[Place, dict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))
    clusters: dict[str, str] = {}
    for row in read_rows(path / ROWS):
        value = row.scores.get(metric)
        if metric == JUDGED:
            found = votes.get(row.key)
            value = float(found.verdict == "correct") if found and found.verdict else None
        values[row.cell, row.model][row.item_id].append(value)
        clusters[row.item_id] = row.cluster if row.cluster is not None else f"item:{row.item_id}"
    return _Scored(manifest, values, clusters)


def _shared(one: _Scored, other: _Scored) -> list[tuple[Place, Place]]:
    shared = [(place, place) for place in one.values if place in other.values]
    if not shared and len(one.values) == len(other.values) == 1:
        shared = [(next(iter(one.values)), next(iter(other.values)))]
    if not shared:
        raise RunRefused(
            "the runs share no cell and model.",
            "Name what to compare: `--from CELL/MODEL --to CELL/MODEL`.",
        )
    return shared


def _pair(one: _Scored, other: _Scored, a: Place, b: Place) -> dict[str, Any]:
    for scored, place in ((one, a), (other, b)):
        if place not in scored.values:
            raise RunRefused(f"a run has no rows of cell `{place[0]}` and model `{place[1]}`.")
    shared = sorted(set(one.values[a]) & set(other.values[b]))
    if not shared:
        raise RunRefused("the runs share no item.", "They are paired by `item_id`.")
    both = [
        (item_id, _mean(one.values[a][item_id]), _mean(other.values[b][item_id]))
        for item_id in shared
    ]
    paired = [(i, x, y) for i, x, y in both if x is not None and y is not None]
    first, second = [x for _, x, _ in paired], [y for _, _, y in paired]
    clusters = [one.clusters[item_id] for item_id, _, _ in paired]
    found = stats.compare(
        first, second, clusters if len(set(clusters)) < len(clusters) else None, LEVEL
    )
    worst = [(x or 0.0, y or 0.0) for _, x, y in both]
    return {
        "first": {"cell": a[0], "model": a[1], "value": found.first},
        "second": {"cell": b[0], "model": b[1], "value": found.second},
        "n_paired": len(paired),
        "n_shared": len(shared),
        "identical": first == second and len(paired) == len(shared),
        "difference": figure(found.difference),
        "worst_case_difference": sum(y - x for x, y in worst) / len(worst),
        "only_first": None if found.mcnemar is None else found.mcnemar.only_first,
        "only_second": None if found.mcnemar is None else found.mcnemar.only_second,
        "test": found.test,
        "p": found.p,
    }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _verdict(pair: dict[str, Any]) -> str:
    p, value = pair["p_holm"], pair["difference"]["value"]
    if p is None or p >= 1 - LEVEL or not value:
        return "no evidence"
    return "better" if value > 0 else "worse"


def _sentence(pair: dict[str, Any], metric: str) -> str:
    names = [f"{pair[which]['model']} in {pair[which]['cell']}" for which in ("first", "second")]
    same = names[0] == names[1]
    subject = names[1] if same else f"{names[1]} (against {names[0]})"
    words = {
        "better": "is better in the second run" if same else "is better",
        "worse": "is worse in the second run" if same else "is worse",
        "no evidence": "shows no evidence of a difference",
    }
    difference = pair["difference"]
    if difference["value"] is None:
        return f"{subject}: no item was scored in both runs."
    said = (
        f"{subject} {words[pair['verdict']]} on {metric}: {pair['first']['value']:.3f} → "
        f"{pair['second']['value']:.3f}, difference {difference['value']:+.3f}"
    )
    if difference["low"] is not None:
        said += f" [{difference['low']:+.3f}, {difference['high']:+.3f}]"
    if pair["p"] is not None:
        said += f", {pair['test']}: p = {pair['p']:.4f}"
        if pair["p_holm"] != pair["p"]:
            said += f" (Holm {pair['p_holm']:.4f})"
    return f"{said}, {pair['n_paired']} of {pair['n_shared']} pairs."
