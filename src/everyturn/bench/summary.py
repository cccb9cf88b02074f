"""The summary of a run: small, without a word of reasoning, the same for the same answers.

`found` depends on the answers alone: a run that was killed and resumed has the same as one that was
not. What depends on clocks, retries and kills stands under `timing` and `spend`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from everyturn.bench.budget import read_spend
from everyturn.bench.folder import JUDGEMENTS, ROWS, SPEND, SUMMARY, replace
from everyturn.bench.manifest import Manifest, read_manifest
from everyturn.bench.metrics import JUDGED, Group, ReasoningLengths, fold
from everyturn.bench.pairs import PAIRS, count_pairs, read_pairs
from everyturn.bench.rows import Key, read_rows
from everyturn.bench.votes import (
    Judgement,
    Vote,
    agreement,
    final_judgements,
    read_judgements,
    vote,
)

BYTES_MAX: Final = 100_000


@dataclass(slots=True)
class Reading:
    """A run, read and folded."""

    manifest: Manifest
    groups: list[Group]
    lengths: ReasoningLengths
    finals: dict[Key, dict[str, Judgement]]
    votes: dict[Key, Vote]
    judging: dict[str, Any] | None
    """The judging that was noted last; None where nobody judged."""
    pairwise: list[dict[str, Any]]
    """What each judging of pairs counted."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of its metrics."""
        names = tuple(one.name for one in self.manifest.grid.scorers)
        return names if self.judging is None else (*names, JUDGED)


def read_run(path: Path) -> Reading:
    """Read and fold a run. Raises RunRefused where there is none."""
    manifest = read_manifest(path)
    grid = manifest.grid
    judging = manifest.judges[-1] if manifest.judges else None
    finals: dict[Key, dict[str, Judgement]] = {}
    if judging is not None:
        finals = final_judgements(read_judgements(path / JUDGEMENTS), judging["tag"])
    votes = {key: vote(rulings) for key, rulings in finals.items()}
    total = manifest.data.selected * grid.epochs
    scorers = tuple(one.name for one in grid.scorers)
    metrics = scorers if judging is None else (*scorers, JUDGED)
    groups = {
        (cell.name, model.name): Group(
            cell.name, model.name, metrics, is_control=cell.control, total=total
        )
        for cell in grid.cells
        for model in grid.models
    }
    lengths = fold(read_rows(path / ROWS), votes, groups)
    pairwise = [_pairs(path, manifest, one) for one in manifest.pairwise]
    return Reading(manifest, list(groups.values()), lengths, finals, votes, judging, pairwise)


def _pairs(path: Path, manifest: Manifest, judging: dict[str, Any]) -> dict[str, Any]:
    judges = [one["model"]["name"] for one in judging["judges"]]
    total = manifest.data.selected * manifest.grid.epochs
    first, second = judging["pair"]
    counted = count_pairs(read_pairs(path / PAIRS, judging["tag"]), judges, total)
    return {"first": first, "second": second, "judges": judges, **counted}


def summarise(path: Path, reading: Reading) -> dict[str, Any]:
    """The summary of a run that was read."""
    manifest = reading.manifest
    done = sum(sum(group.outcomes.values()) for group in reading.groups)
    total = manifest.data.selected * manifest.grid.calls
    spend = read_spend(path / SPEND)
    found: dict[str, Any] = {
        "rows": done,
        "rows_total": total,
        "groups": [group.found(manifest.grid.epochs) for group in reading.groups],
        "reasoning_content_chars": reading.lengths.found(),
    }
    judging = reading.judging
    if judging is not None:
        voters = tuple(one["model"]["name"] for one in judging["judges"] if not one["tie_breaker"])
        found["judging"] = {
            "tag": judging["tag"],
            "rubric_version": judging["rubric_version"],
            "taxonomy_version": judging["taxonomy_version"],
            "ties": sum(one.is_tie for one in reading.votes.values()),
            "agreement": agreement(
                [reading.finals[key] for key in sorted(reading.finals)], voters, judging["labels"]
            ),
        }
    if reading.pairwise:
        found["pairwise"] = reading.pairwise
    return {
        "run_id": manifest.run_id,
        "name": manifest.grid.name,
        "created_at": manifest.created_at,
        "complete": done >= total,
        "data": msgspec.to_builtins(manifest.data),
        "found": found,
        "timing": [group.timing() for group in reading.groups],
        "spend": {
            "subject": float(spend.subject),
            "judges": float(spend.judges),
            "lost": float(spend.lost),
            "lost_calls": spend.lost_calls,
            "total": float(spend.total),
        },
    }


def write_summary(path: Path, summary: dict[str, Any]) -> bytes:
    """Write `summary.json`, at most `BYTES_MAX` long; what it holds.

    A grid of very many cells does not fit: groups at its end are left out then, and counted.
    """
    raw = _encoded(summary)
    while len(raw) > BYTES_MAX and summary["found"]["groups"]:
        left = len(summary["found"]["groups"])
        keep = max(0, min(left - 1, left * BYTES_MAX // len(raw)))
        found = {**summary["found"], "groups": summary["found"]["groups"][:keep]}
        found["groups_left_out"] = found.get("groups_left_out", 0) + left - keep
        summary = {**summary, "found": found, "timing": summary["timing"][:keep]}
        raw = _encoded(summary)
    replace(path / SUMMARY, raw)
    return raw


def _encoded(summary: dict[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(summary), indent=1) + b"\n"
