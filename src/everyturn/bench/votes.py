"""Judgements of a run, the vote over them, and how far judges agree.

Each attempt of a judge is a line of `judgements.jsonl`; the final one of a judge for a row counts.
The vote is on the verdict first, then on the label among those who won. A tie is broken by the
judge that is named for it, else the row waits for a person.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from everyturn import stats
from everyturn.bench.judging import VERDICTS, RoundOutcome, Verdict
from everyturn.bench.rows import Attempt, Key, lines


class Judgement(msgspec.Struct, kw_only=True):
    """One attempt of one judge at one row. verdict: None where none could be read."""

    run_id: str
    judging: str
    """The judging it belongs to, by the first digits of its sha256."""
    turn_id: str | None
    """Of the judged row."""
    trace_id: str | None
    cell: str
    model: str
    item_id: str
    epoch: int
    judge: str
    tie_breaker: bool
    number: int
    """1, or 2 after a reminder."""
    is_final: bool
    outcome: RoundOutcome
    verdict: Verdict | None = None
    label: str | None = None
    rationale: str | None = None
    raw_text: str | None = None
    error_code: str | None = None
    input_sha256: str
    thoughts_split_off: bool = False
    judge_turn_id: str
    cost: float | None = None
    latency_ms: float | None = None
    attempts: tuple[Attempt, ...] = ()
    started_at: str

    @property
    def key(self) -> Key:
        """The row that was judged."""
        return Key(self.cell, self.model, self.item_id, self.epoch)


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """What the judges of a row say together. verdict: None where none spoke, or none won."""

    verdict: Verdict | None
    label: str | None
    rationale: str | None
    judges: int
    """Judges whose verdict could be read."""
    is_tie: bool = False
    """Nobody won and nobody broke the tie: a person should look."""


_DECODER: Final = msgspec.json.Decoder(Judgement)


def read_judgements(path: Path) -> Iterator[Judgement]:
    """The attempts of all judges, in order."""
    for line in lines(path):
        yield _DECODER.decode(line)


def final_judgements(
    judgements: Iterable[Judgement], judging: str | None
) -> dict[Key, dict[str, Judgement]]:
    """Row → judge → its final judgement, of one judging."""
    found: dict[Key, dict[str, Judgement]] = defaultdict(dict)
    for one in judgements:
        if one.is_final and one.judging == judging:
            found[one.key][one.judge] = one
    return dict(found)


def vote(rulings: Mapping[str, Judgement]) -> Vote:
    """The vote over the final judgements of a row."""
    spoken = [one for one in rulings.values() if one.verdict is not None]
    voters = [one for one in spoken if not one.tie_breaker]
    counts = Counter(one.verdict for one in voters)
    ranked = counts.most_common()
    if not ranked:
        return Vote(verdict=None, label=None, rationale=None, judges=0)
    verdict = ranked[0][0]
    if len(ranked) > 1 and ranked[0][1] == ranked[1][1]:
        breaker = next((one for one in spoken if one.tie_breaker), None)
        if breaker is None:
            return Vote(verdict=None, label=None, rationale=None, judges=len(voters), is_tie=True)
        verdict = breaker.verdict
        voters.append(breaker)
    winners = [one for one in voters if one.verdict == verdict]
    labels = Counter(one.label for one in winners)
    # Equal labels: the one of the judge that is named first, as the file has them.
    label = max(labels, key=lambda name: labels[name])
    first = next(one for one in winners if one.label == label)
    return Vote(verdict=verdict, label=label, rationale=first.rationale, judges=len(voters))


def is_tied(rulings: Mapping[str, Judgement]) -> bool:
    """Whether the judges that were asked tie, and nobody broke it yet."""
    return vote(rulings).is_tie


def agreement(
    finals: Iterable[Mapping[str, Judgement]], voters: tuple[str, ...], labels: Iterable[str]
) -> dict[str, Any]:
    """How far an ensemble agrees, on verdicts and on labels; undefined is null with the reason."""
    units = [
        [one for name in voters if (one := rulings.get(name)) is not None and one.verdict]
        for rulings in finals
    ]
    return {
        "judges": list(voters),
        "rows": sum(len(unit) > 1 for unit in units),
        "verdict": _coefficients([[one.verdict for one in unit] for unit in units], VERDICTS),
        "label": _coefficients([[one.label for one in unit] for unit in units], tuple(labels)),
    }


def _coefficients(units: list[list[Any]], categories: tuple[str, ...]) -> dict[str, Any]:
    counts = [[unit.count(name) for name in categories] for unit in units]
    return {
        "fleiss_kappa": figure(stats.fleiss(counts)),
        "krippendorff_alpha": figure(stats.krippendorff(units)),
        "gwet_ac1": figure(stats.ac1(counts)),
        "raw": figure(stats.raw_agreement(counts)),
    }


def figure(found: stats.Figure | stats.Estimate) -> dict[str, Any]:
    """A figure as JSON; a number that is not there has its reason."""
    if isinstance(found, stats.Figure):
        told: dict[str, Any] = {"value": found.value}
    else:
        told = {"value": found.value, "low": found.low, "high": found.high}
        if found.standard_error is not None:
            told["standard_error"] = found.standard_error
    if found.reason is not None:
        told["reason"] = found.reason
    return told


def verdict_kappa(
    finals: Mapping[Key, Mapping[str, Judgement]], voters: tuple[str, ...]
) -> tuple[float | None, int]:
    """Fleiss' kappa on verdicts so far, and over how many rows."""
    units = [
        [one.verdict for name in voters if (one := rulings.get(name)) and one.verdict]
        for rulings in finals.values()
    ]
    paired = [unit for unit in units if len(unit) > 1]
    counts = [[unit.count(name) for name in VERDICTS] for unit in paired]
    return stats.fleiss(counts).value, len(paired)
