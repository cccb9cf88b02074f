"""Judging a run: every judge is asked once about every answer, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from everyturn.bench.folder import JUDGEMENTS, ROWS, RunRefused
from everyturn.bench.grid import Grid
from everyturn.bench.judge_desk import Desk, desk, each, rounds
from everyturn.bench.judging import Judge, Judging, judge_messages, read_ruling, view_of
from everyturn.bench.manifest import write_manifest
from everyturn.bench.pair_run import judge_pairs
from everyturn.bench.rows import Key, Row, read_rows
from everyturn.bench.runner import Tally
from everyturn.bench.session import Hooks, Options
from everyturn.bench.summary import read_run, summarise, write_summary
from everyturn.bench.tagging import tell_review
from everyturn.bench.votes import (
    Judgement,
    final_judgements,
    is_tied,
    read_judgements,
    verdict_kappa,
)


@dataclass(slots=True)
class _State:
    """What the rows under way share."""

    at: Desk
    tag: str
    finals: dict[Key, dict[str, Judgement]]
    write: Callable[[bytes], None]


async def judge(
    path: Path, judging: Judging, grid: Grid, options: Options, stop: asyncio.Event, hooks: Hooks
) -> Tally:
    """Judge the answers of a run; what is judged already stays. `grid`: gateway, budget, limits.

    A judging of pairs compares answers instead. Raises RunRefused for what ends it: among that,
    judges that agree less than their gate.
    """
    async with desk(path, judging, grid, options, stop) as at:
        if judging.pair is not None:
            await judge_pairs(at, grid.concurrency, hooks)
        else:
            await _judge_rows(at, grid.concurrency, hooks)
        write_summary(path, summarise(path, read_run(path)))
        return at.tally


async def _judge_rows(at: Desk, concurrency: int, hooks: Hooks) -> None:
    lines = at.folder.appender(JUDGEMENTS)
    try:
        tag = _remember(at)
        finals = final_judgements(read_judgements(at.folder.file(JUDGEMENTS)), tag)
        state = _State(at, tag, finals, lines.append)
        rows = [row for row in read_rows(at.folder.file(ROWS)) if row.outcome == "ok"]
        missing = [row for row in rows if _missing(state, row.key)]
        at.tally.total = len(rows)
        at.tally.done_before = len(rows) - len(missing)
        hooks.began(at.tally, at.budget)
        _check_gate(state)
        await each(at, missing, concurrency, lambda row: _row(state, row))
    finally:
        lines.close()


def _remember(at: Desk) -> str:
    """Note the judging in the manifest; its tag. The last one noted is what reports show."""
    manifest, judging = at.manifest, at.judging
    tag = judging.sha256[:16]
    noted = {"tag": tag, **msgspec.to_builtins(judging)}
    known = [one for one in manifest.judges if one["tag"] != tag]
    if manifest.judges != [*known, noted]:
        manifest.judges = [*known, noted]
        write_manifest(at.folder, manifest)
    return tag


def _missing(state: _State, key: Key) -> list[Judge]:
    """The judges that still have to be asked about a row."""
    rulings = state.finals.get(key, {})
    asked = [one for one in state.at.judging.judges if one.model.name not in rulings]
    voters = [one for one in asked if not one.tie_breaker]
    if voters:
        return voters
    return [one for one in asked if one.tie_breaker] if is_tied(rulings) else []


async def _row(state: _State, row: Row) -> None:
    """Ask every judge that is missing; a tie-breaker only where the others tie."""
    while asked := _missing(state, row.key):
        for one in asked:
            if state.at.stop.is_set():
                return
            await _ask(state, row, one)
    tally = state.at.tally
    tally.done += 1
    if tally.done % state.at.judging.gate_after == 0:
        _check_gate(state)


def _check_gate(state: _State) -> None:
    judging = state.at.judging
    if judging.gate_kappa is None:
        return
    kappa, rows = verdict_kappa(state.finals, judging.voters)
    if kappa is not None and rows >= judging.gate_after and kappa < judging.gate_kappa:
        raise RunRefused(
            f"the judges agree less than their gate: Fleiss kappa {kappa:.3f} over {rows} rows, "
            f"and `judging.gate_kappa` is {judging.gate_kappa}.",
            "Look at rows they differ on, then change the rubric or the judges.",
        )


async def _ask(state: _State, row: Row, judge: Judge) -> None:
    """Ask one judge about one row."""
    at = state.at
    view, had_thoughts = view_of(row, at.items[row.item_id], show_context=at.judging.show_context)
    asked = rounds(
        at,
        judge,
        row.item_id,
        row.epoch,
        row.trace_id,
        judge_messages(at.judging, view),
        lambda text: read_ruling(text, at.judging.labels),
    )
    async for found in asked:
        ruling = found.ruling
        one = Judgement(
            run_id=row.run_id,
            judging=state.tag,
            turn_id=row.turn_id,
            trace_id=row.trace_id,
            cell=row.cell,
            model=row.model,
            item_id=row.item_id,
            epoch=row.epoch,
            tie_breaker=judge.tie_breaker,
            thoughts_split_off=had_thoughts,
            verdict=None if ruling is None else ruling.verdict,
            label=None if ruling is None else ruling.label,
            rationale=None if ruling is None else at.cleaner.text(ruling.rationale),
            **found.facts,
        )
        state.write(msgspec.json.encode(one) + b"\n")
        if one.is_final:
            state.finals.setdefault(row.key, {})[judge.model.name] = one
            if at.tells_reviews:
                tell_review(one, at.judging.rubric_version)
