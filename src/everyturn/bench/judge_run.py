"""Judging a run: every judge is asked once about every answer, whatever happens in between."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from everyturn import ids
from everyturn.bench.answer import without_thoughts
from everyturn.bench.asking import Asker, Conversation, GaveUp, Interrupted
from everyturn.bench.budget import Budget, read_spend
from everyturn.bench.cleaning import Cleaner
from everyturn.bench.client import CallFailed, Gateway, Span, models_at
from everyturn.bench.folder import JUDGEMENTS, ROWS, SPEND, RunFolder, RunRefused
from everyturn.bench.grid import Grid
from everyturn.bench.items import Item
from everyturn.bench.judging import (
    REMINDER,
    Judge,
    Judging,
    judge_messages,
    read_ruling,
    view_of,
)
from everyturn.bench.manifest import Manifest, now, read_items, read_manifest, write_manifest
from everyturn.bench.money import Price, dollars
from everyturn.bench.pace import Pace
from everyturn.bench.rows import Key, Row, read_rows
from everyturn.bench.runner import Tally
from everyturn.bench.session import Hooks, Options
from everyturn.bench.summary import read_run, summarise, write_summary
from everyturn.bench.tagging import new_trace_id
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

    manifest: Manifest
    judging: Judging
    tag: str
    items: dict[str, Item]
    askers: dict[str, Asker]
    finals: dict[Key, dict[str, Judgement]]
    cleaner: Cleaner
    write: Callable[[bytes], None]
    tally: Tally
    stop: asyncio.Event


async def judge(
    path: Path, judging: Judging, grid: Grid, options: Options, stop: asyncio.Event, hooks: Hooks
) -> Tally:
    """Judge the answers of a run; what is judged already stays. `grid`: gateway, budget, limits.

    Raises RunRefused for what ends it: among that, judges that agree less than their gate.
    """
    with RunFolder(path) as folder:
        manifest = read_manifest(path)
        gateway = Gateway(
            grid.gateway,
            options.api_key,
            timeout_s=grid.timeout_s,
            idle_timeout_s=grid.idle_timeout_s,
        )
        ledger, lines = folder.appender(SPEND), folder.appender(JUDGEMENTS)
        try:
            prices = await _prices(gateway, judging, grid)
            tag = _remember(folder, manifest, judging)
            budget = Budget(grid.budget, ledger, read_spend(folder.file(SPEND)))
            cleaner = Cleaner(options.known, os.urandom(32))
            state = _State(
                manifest=manifest,
                judging=judging,
                tag=tag,
                items=read_items(path),
                askers=_askers(judging, prices, grid, gateway, budget, stop, cleaner),
                finals=final_judgements(read_judgements(folder.file(JUDGEMENTS)), tag),
                cleaner=cleaner,
                write=lines.append,
                tally=Tally(total=0),
                stop=stop,
            )
            rows = [row for row in read_rows(folder.file(ROWS)) if row.outcome == "ok"]
            missing = [row for row in rows if _missing(state, row.key)]
            state.tally.total = len(rows)
            state.tally.done_before = len(rows) - len(missing)
            hooks.began(state.tally, budget)
            _check_gate(state)
            await _all(state, missing, grid.concurrency)
            write_summary(path, summarise(path, read_run(path)))
            return state.tally
        finally:
            lines.close()
            ledger.close()
            await gateway.close()


def _remember(folder: RunFolder, manifest: Manifest, judging: Judging) -> str:
    """Note the judging in the manifest; its tag. The last one noted is what reports show."""
    tag = judging.sha256[:16]
    noted = {"tag": tag, **msgspec.to_builtins(judging)}
    known = [one for one in manifest.judges if one["tag"] != tag]
    if manifest.judges != [*known, noted]:
        manifest.judges = [*known, noted]
        write_manifest(folder, manifest)
    return tag


async def _prices(gateway: Gateway, judging: Judging, grid: Grid) -> dict[str, Price | None]:
    try:
        served = await models_at(gateway)
    except CallFailed as failed:
        hint = failed.hint or "Start the gateway, or correct `run.gateway`."
        raise RunRefused(f"the gateway does not answer: {failed.code}.", hint) from failed
    prices: dict[str, Price | None] = {}
    for one in judging.judges:
        model = one.model
        if model.model not in served:
            raise RunRefused(f"the gateway has no model `{model.model}`.")
        listed = served[model.model].get("price")
        prices[model.name] = model.price or (Price.of(listed) if listed else None)
        if grid.budget is not None and (prices[model.name] is None or model.max_tokens is None):
            raise RunRefused(
                f"a budget needs the price and `max_tokens` of judge `{model.name}`.",
                "Give it `price = { input = 1.0, output = 2.0 }` and `max_tokens`.",
            )
    return prices


def _askers(
    judging: Judging,
    prices: dict[str, Price | None],
    grid: Grid,
    gateway: Gateway,
    budget: Budget,
    stop: asyncio.Event,
    cleaner: Cleaner,
) -> dict[str, Asker]:
    return {
        one.model.name: Asker(
            one.model,
            prices[one.model.name],
            gateway=gateway,
            url=grid.gateway,
            budget=budget,
            pace=Pace(grid.concurrency),
            stop=stop,
            attempts_max=grid.attempts_max,
            cleaner=cleaner,
            seed=grid.seed,
        )
        for one in judging.judges
    }


def _missing(state: _State, key: Key) -> list[Judge]:
    """The judges that still have to be asked about a row."""
    rulings = state.finals.get(key, {})
    asked = [one for one in state.judging.judges if one.model.name not in rulings]
    voters = [one for one in asked if not one.tie_breaker]
    if voters:
        return voters
    return [one for one in asked if one.tie_breaker] if is_tied(rulings) else []


async def _all(state: _State, rows: list[Row], concurrency: int) -> None:
    todo = iter(rows)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(rows))):
                group.create_task(_work(state, todo))
    except BaseExceptionGroup as failures:
        refused = failures.subgroup(RunRefused)
        if refused is None:
            raise
        found: BaseException = refused
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        raise found from None


async def _work(state: _State, todo: Iterator[Row]) -> None:
    for row in todo:
        try:
            while asked := _missing(state, row.key):
                for one in asked:
                    if state.stop.is_set():
                        return
                    await _ask(state, row, one)
        except Interrupted:
            return
        except GaveUp:
            # No room in the budget: the row stays unjudged, and may be judged with more.
            state.tally.outcomes["not judged, budget"] += 1
            continue
        state.tally.done += 1
        if state.tally.done % state.judging.gate_after == 0:
            _check_gate(state)


def _check_gate(state: _State) -> None:
    judging = state.judging
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
    """Ask one judge about one row; at most one reminder. Raises GaveUp for the budget alone."""
    name = judge.model.name
    item = state.items[row.item_id]
    view, had_thoughts = view_of(row, item, show_context=state.judging.show_context)
    messages = judge_messages(state.judging, view)
    span = Span(ids.generate_turn_id(), row.trace_id or new_trace_id())
    common: dict[str, Any] = {
        "run_id": row.run_id,
        "judging": state.tag,
        "turn_id": row.turn_id,
        "trace_id": row.trace_id,
        "cell": row.cell,
        "model": row.model,
        "item_id": row.item_id,
        "epoch": row.epoch,
        "judge": name,
        "tie_breaker": judge.tie_breaker,
        "thoughts_split_off": had_thoughts,
        "judge_turn_id": span.turn_id,
    }
    for number in (1, 2):
        talk = Conversation(span, row.item_id, row.epoch, is_judge=True)
        started = now()
        said = await _one(state, judge, talk, messages)
        one = Judgement(
            **common,
            number=number,
            is_final=number == 2 or said.get("outcome") != "unreadable",
            input_sha256=hashlib.sha256(msgspec.json.encode(messages)).hexdigest(),
            attempts=tuple(talk.attempts),
            cost=dollars(talk.cost),
            latency_ms=round(sum(attempt.latency_ms for attempt in talk.attempts), 3),
            started_at=started,
            **said,
        )
        state.write(msgspec.json.encode(one) + b"\n")
        if one.is_final:
            state.finals.setdefault(row.key, {})[name] = one
            if one.verdict is None:
                state.tally.outcomes[f"judge {one.outcome}"] += 1
            return
        # What the judge said stands in its own turn; its reasoning does not come back.
        messages = [
            *messages,
            {"role": "assistant", "content": talk.answers[-1].text or "(nothing)"},
            {"role": "user", "content": REMINDER},
        ]


async def _one(
    state: _State, judge: Judge, talk: Conversation, messages: list[dict[str, Any]]
) -> dict[str, Any]:
    """What came of one request to a judge, as members of a judgement."""
    try:
        answer = await state.askers[judge.model.name].ask(talk, messages, None)
    except GaveUp as failed:
        if failed.outcome == "skipped_budget":
            raise
        outcome = "timeout" if failed.outcome == "timeout" else "provider_error"
        return {"outcome": outcome, "error_code": failed.code}
    ruling = read_ruling(answer.text, state.judging.labels)
    raw = None if answer.text is None else state.cleaner.text(without_thoughts(answer.text)[0])
    if ruling is None:
        return {"outcome": "unreadable", "raw_text": raw}
    return {
        "outcome": "verdict",
        "verdict": ruling.verdict,
        "label": ruling.label,
        "rationale": state.cleaner.text(ruling.rationale),
        "raw_text": raw,
    }
