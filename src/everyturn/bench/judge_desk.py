"""What judging needs, whatever is judged: budget, judges, and the asking with one reminder."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from everyturn import ids
from everyturn.bench.answer import without_thoughts
from everyturn.bench.asking import Asker, Conversation, GaveUp, Interrupted
from everyturn.bench.budget import Budget, read_spend
from everyturn.bench.cleaning import Cleaner
from everyturn.bench.client import Gateway, Span, models_or_refuse
from everyturn.bench.folder import SPEND, RunFolder, RunRefused
from everyturn.bench.grid import Grid
from everyturn.bench.items import Item
from everyturn.bench.judging import REMINDER, Judge, Judging, RoundOutcome
from everyturn.bench.manifest import Manifest, check_clean, now, read_items, read_manifest
from everyturn.bench.money import Price, dollars
from everyturn.bench.pace import Pace
from everyturn.bench.runner import Tally
from everyturn.bench.session import Options

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True)
class Desk:
    """What all that is judged shares."""

    folder: RunFolder
    manifest: Manifest
    judging: Judging
    items: dict[str, Item]
    askers: dict[str, Asker]
    budget: Budget
    cleaner: Cleaner
    stop: asyncio.Event
    tally: Tally
    tells_reviews: bool
    """Whether the SDK is set up to tell the gateway what judges say."""


@dataclass(slots=True)
class Round(Generic[R]):
    """One request to a judge, and what came of it. ruling: None where none could be read."""

    ruling: R | None
    facts: dict[str, Any]
    """The members that every kind of judgement has: number, outcome, cost, raw text …"""


@asynccontextmanager
async def desk(
    path: Path, judging: Judging, grid: Grid, options: Options, stop: asyncio.Event
) -> AsyncIterator[Desk]:
    """Sit down at a run. `grid`: gateway, budget and limits. Raises RunRefused."""
    with RunFolder(path) as folder:
        manifest = read_manifest(path)
        cleaner = Cleaner(options.known, os.urandom(32))
        check_clean(judging, cleaner)
        gateway = Gateway(
            grid.gateway,
            options.api_key,
            timeout_s=grid.timeout_s,
            idle_timeout_s=grid.idle_timeout_s,
        )
        ledger = folder.appender(SPEND)
        try:
            prices = await _prices(gateway, judging, grid)
            budget = Budget(grid.budget, ledger, read_spend(folder.file(SPEND)))
            yield Desk(
                folder=folder,
                manifest=manifest,
                judging=judging,
                items=read_items(path),
                askers=_askers(judging, prices, grid, gateway, budget, stop, cleaner),
                budget=budget,
                cleaner=cleaner,
                stop=stop,
                tally=Tally(total=0),
                tells_reviews=options.tags_turns,
            )
        finally:
            ledger.close()
            await gateway.close()


async def each(
    at: Desk, todo: Iterable[T], concurrency: int, work: Callable[[T], Awaitable[None]]
) -> None:
    """Do `work` for each, so many at once. Raises RunRefused for what ends it.

    What does not fit the budget is counted and left, to be judged with more.
    """
    waiting = iter(todo)

    async def worker() -> None:
        for one in waiting:
            if at.stop.is_set():
                return
            try:
                await work(one)
            except Interrupted:
                return
            except GaveUp:
                at.tally.outcomes["not judged, budget"] += 1

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(worker())
    except BaseExceptionGroup as failures:
        found: BaseException | None = failures.subgroup(RunRefused)
        if found is None:
            raise
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        assert found is not None
        raise found from None


async def rounds(
    at: Desk,
    judge: Judge,
    item_id: str,
    epoch: int,
    trace_id: str | None,
    messages: list[dict[str, Any]],
    read: Callable[[str | None], R | None],
) -> AsyncIterator[Round[R]]:
    """Ask a judge, and once more where its answer cannot be read. The last one is final.

    All of it is one turn of its own, under the trace of what is judged. Raises GaveUp for the
    budget alone.
    """
    span = Span(ids.generate_turn_id(), trace_id or ids.trace_id(int.from_bytes(os.urandom(16))))
    for number in (1, 2):
        talk = Conversation(span, item_id, epoch, is_judge=True)
        started = now()
        ruling, said = await _one(at, judge, talk, messages, read)
        is_final = number == 2 or said["outcome"] != "unreadable"
        facts = {
            "number": number,
            "is_final": is_final,
            "judge": judge.model.name,
            "judge_turn_id": span.turn_id,
            "input_sha256": hashlib.sha256(msgspec.json.encode(messages)).hexdigest(),
            "attempts": tuple(talk.attempts),
            "cost": dollars(talk.cost),
            "latency_ms": round(sum(attempt.latency_ms for attempt in talk.attempts), 3),
            "started_at": started,
            **said,
        }
        if is_final and ruling is None:
            at.tally.outcomes[f"judge {said['outcome']}"] += 1
        yield Round(ruling, facts)
        if is_final:
            return
        # What the judge said stands in its own turn; its reasoning does not come back.
        messages = [
            *messages,
            {"role": "assistant", "content": talk.answers[-1].text or "(nothing)"},
            {"role": "user", "content": REMINDER},
        ]


async def _one(
    at: Desk,
    judge: Judge,
    talk: Conversation,
    messages: list[dict[str, Any]],
    read: Callable[[str | None], R | None],
) -> tuple[R | None, dict[str, Any]]:
    try:
        answer = await at.askers[judge.model.name].ask(talk, messages, None)
    except GaveUp as failed:
        if failed.outcome == "skipped_budget":
            raise
        outcome: RoundOutcome = "timeout" if failed.outcome == "timeout" else "provider_error"
        return None, {"outcome": outcome, "error_code": failed.code}
    ruling = read(answer.text)
    raw = None if answer.text is None else at.cleaner.text(without_thoughts(answer.text)[0])
    return ruling, {"outcome": "unreadable" if ruling is None else "verdict", "raw_text": raw}


async def _prices(gateway: Gateway, judging: Judging, grid: Grid) -> dict[str, Price | None]:
    served = await models_or_refuse(gateway)
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
