"""Judging pairs: every judge is asked about every pair in both orders, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from everyturn.bench.folder import ROWS, RunRefused
from everyturn.bench.judge_desk import Desk, each, rounds
from everyturn.bench.judging import Judge
from everyturn.bench.manifest import write_manifest
from everyturn.bench.pairs import (
    PAIRS,
    Finals,
    PairJudgement,
    choice_of,
    pair_messages,
    pair_view,
    pairs_of,
    read_pair_ruling,
    read_pairs,
)
from everyturn.bench.rows import Row, read_rows
from everyturn.bench.session import Hooks

Pair = tuple[Row, Row]


@dataclass(slots=True)
class _State:
    at: Desk
    tag: str
    finals: Finals
    write: Callable[[bytes], None]


async def judge_pairs(at: Desk, concurrency: int, hooks: Hooks) -> None:
    """Ask about every pair that is missing. Raises RunRefused for places that the run lacks."""
    assert at.judging.pair is not None
    grid = at.manifest.grid
    places = {f"{cell.name}/{model.name}" for cell in grid.cells for model in grid.models}
    for place in at.judging.pair:
        if place not in places:
            raise RunRefused(f"the run has no `{place}`.", f"It has: {', '.join(sorted(places))}.")
    lines = at.folder.appender(PAIRS)
    try:
        tag = _remember(at)
        state = _State(at, tag, read_pairs(at.folder.file(PAIRS), tag), lines.append)
        pairs = list(pairs_of(read_rows(at.folder.file(ROWS)), at.judging.pair))
        missing = [pair for pair in pairs if _missing(state, pair)]
        at.tally.total = len(pairs)
        at.tally.done_before = len(pairs) - len(missing)
        hooks.began(at.tally, at.budget)
        await each(at, missing, concurrency, lambda pair: _pair(state, pair))
    finally:
        lines.close()


def _remember(at: Desk) -> str:
    tag = at.judging.sha256[:16]
    noted = {"tag": tag, **msgspec.to_builtins(at.judging)}
    known = [one for one in at.manifest.pairwise if one["tag"] != tag]
    if at.manifest.pairwise != [*known, noted]:
        at.manifest.pairwise = [*known, noted]
        write_manifest(at.folder, at.manifest)
    return tag


def _missing(state: _State, pair: Pair) -> list[tuple[Judge, int]]:
    known = state.finals.get((pair[0].item_id, pair[0].epoch), {})
    return [
        (judge, order)
        for judge in state.at.judging.judges
        for order in (0, 1)
        if (judge.model.name, order) not in known
    ]


async def _pair(state: _State, pair: Pair) -> None:
    for judge, order in _missing(state, pair):
        if state.at.stop.is_set():
            return
        await _ask(state, pair, judge, order)
    state.at.tally.done += 1


async def _ask(state: _State, pair: Pair, judge: Judge, order: int) -> None:
    at, (first, second) = state.at, pair
    a, b = (first, second) if order == 0 else (second, first)
    view = pair_view(a, b, at.items[first.item_id], show_context=at.judging.show_context)
    asked = rounds(
        at,
        judge,
        first.item_id,
        first.epoch,
        first.trace_id,
        pair_messages(at.judging.rubric, view),
        read_pair_ruling,
    )
    async for found in asked:
        ruling = found.ruling
        one = PairJudgement(
            run_id=first.run_id,
            judging=state.tag,
            item_id=first.item_id,
            epoch=first.epoch,
            order=order,
            better=None if ruling is None else choice_of(ruling, order),
            rationale=None if ruling is None else at.cleaner.text(ruling.rationale),
            first_turn_id=first.turn_id,
            second_turn_id=second.turn_id,
            **found.facts,
        )
        state.write(msgspec.json.encode(one) + b"\n")
        if one.is_final:
            finals = state.finals.setdefault((first.item_id, first.epoch), {})
            finals[judge.model.name, order] = one
