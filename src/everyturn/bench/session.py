"""One start of a run: read the grid's data, agree with the folder, do what is missing.

    outcome = await start(grid, Path("runs/first"), Options(...), stop, hooks)

The same call begins a run and goes on with one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from everyturn.bench.asking import Asker
from everyturn.bench.budget import Budget, read_spend
from everyturn.bench.cache import Cache
from everyturn.bench.cells import Deck
from everyturn.bench.cleaning import Cleaner
from everyturn.bench.client import CallFailed, Gateway, models_at, models_or_refuse
from everyturn.bench.folder import ROWS, SPEND, RunFolder, RunRefused
from everyturn.bench.grid import Grid
from everyturn.bench.items import Document, Items, load_documents, load_items
from everyturn.bench.manifest import (
    Manifest,
    check_clean,
    check_same,
    data_facts,
    new_manifest,
    read_manifest,
    write_items,
    write_manifest,
)
from everyturn.bench.pace import Pace
from everyturn.bench.plan import Plan, make_plan
from everyturn.bench.rows import Key, done_keys, lines
from everyturn.bench.runner import Runner, Tally, all_keys
from everyturn.bench.summary import read_run, summarise, write_summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a start brings beside the grid. known: keys that must stand in no file."""

    limit: int | None = None
    api_key: str | None = None
    known: tuple[str, ...] = ()
    tags_turns: bool = False
    """Whether the SDK is set up to tell the gateway which run and cell a turn belongs to."""


@dataclass(slots=True)
class Hooks:
    """What a start tells while it runs. began: the tally and the budget, which then change."""

    began: Callable[[Tally, Budget], None]
    warn: Callable[[str], None]


def dataset(grid: Grid, limit: int | None) -> tuple[Items, list[Document]]:
    """The items and documents of a grid. Raises ConfigError."""
    items = load_items(grid.data, grid.seed, limit)
    kinds = {cell.kind for cell in grid.cells}
    needs = kinds & {"retrieval", "agentic", "full-context"}
    return items, load_documents(grid.data, items.items) if needs else []


async def plan(grid: Grid, options: Options) -> Plan:
    """What a run would do, for `--dry-run`; nothing is written. Raises ConfigError."""
    items, documents = dataset(grid, options.limit)
    gateway = _gateway(grid, options)
    try:
        served = await models_at(gateway)
    except CallFailed as failed:
        made = _planned(grid, items, documents, {})
        made.refusals[:0] = [f"the gateway at {grid.gateway} does not answer: {failed.code}."]
        return made
    finally:
        await gateway.close()
    return _planned(grid, items, documents, served)


def _planned(
    grid: Grid, items: Items, documents: list[Document], served: dict[str, dict[str, Any]]
) -> Plan:
    prices = new_manifest(grid, items, documents, None, served, 1).prices
    deck = Deck(grid.cells, documents)
    return make_plan(grid, items, deck, served or None, prices, grid.budget, with_price=True)


def _gateway(grid: Grid, options: Options) -> Gateway:
    return Gateway(
        grid.gateway,
        options.api_key,
        timeout_s=grid.timeout_s,
        idle_timeout_s=grid.idle_timeout_s,
    )


async def start(
    grid: Grid, path: Path, options: Options, stop: asyncio.Event, hooks: Hooks
) -> Tally:
    """Begin or resume the run in a folder; returns when it is complete or was stopped.

    Raises ConfigError for data that cannot be used, RunRefused for what cannot be done.
    """
    with RunFolder(path) as folder:
        known = read_manifest(path) if folder.exists() else None
        limit = options.limit
        if limit is None and known is not None:
            limit = known.data.limit
        items, documents = dataset(grid, limit)
        if known is not None:
            check_same(known, grid, data_facts(grid, items, documents, limit))
        gateway = _gateway(grid, options)
        try:
            cleaner = Cleaner(options.known, os.urandom(32))
            check_clean(grid, cleaner)
            manifest = await _begin(folder, grid, items, documents, limit, known, gateway, cleaner)
            return await _go_on(
                folder,
                grid,
                manifest,
                items,
                documents,
                gateway,
                stop,
                hooks,
                cleaner,
                tags_turns=options.tags_turns,
            )
        finally:
            await gateway.close()


async def _begin(
    folder: RunFolder,
    grid: Grid,
    items: Items,
    documents: list[Document],
    limit: int | None,
    known: Manifest | None,
    gateway: Gateway,
    cleaner: Cleaner,
) -> Manifest:
    """The manifest to go by; of a new run it is written, with its items."""
    served = await models_or_refuse(gateway)
    fresh = new_manifest(grid, items, documents, limit, served, int.from_bytes(os.urandom(16)))
    manifest = known or fresh
    # A resumed run keeps its price table, so that its rows can be added up.
    deck = Deck(grid.cells, documents)
    planned = make_plan(grid, items, deck, served, manifest.prices, grid.budget, with_price=False)
    if planned.refusals:
        raise RunRefused("\n".join(planned.refusals))
    if known is None:
        write_items(folder, items.items, cleaner)
        write_manifest(folder, manifest)
    return manifest


async def _go_on(
    folder: RunFolder,
    grid: Grid,
    manifest: Manifest,
    items: Items,
    documents: list[Document],
    gateway: Gateway,
    stop: asyncio.Event,
    hooks: Hooks,
    cleaner: Cleaner,
    *,
    tags_turns: bool,
) -> Tally:
    ledger = folder.appender(SPEND)
    try:
        budget = Budget(grid.budget, ledger, read_spend(folder.file(SPEND)))
        done = _done(folder, budget)
        total = len(items.items) * grid.calls
        tally = Tally(total=total, done_before=len(done))
        hooks.began(tally, budget)
        cache = Cache(Path(grid.cache)) if grid.cache is not None else None
        askers = {
            model.name: Asker(
                model,
                manifest.prices[model.name],
                gateway=gateway,
                url=grid.gateway,
                budget=budget,
                pace=Pace(grid.concurrency),
                stop=stop,
                attempts_max=grid.attempts_max,
                cleaner=cleaner,
                cache=cache,
                seed=grid.seed,
            )
            for model in grid.models
        }
        runner = Runner(
            manifest,
            {item.item_id: item for item in items.items},
            Deck(grid.cells, documents),
            askers,
            folder,
            cleaner,
            stop,
            tally,
            hooks.warn,
            grid=grid,
            tags_turns=tags_turns,
        )
        await runner.run(key for key in all_keys(grid, items.items) if key not in done)
        write_summary(folder.path, summarise(folder.path, read_run(folder.path)))
        return tally
    finally:
        ledger.close()


class _Outcome(msgspec.Struct):
    outcome: str


def _done(folder: RunFolder, budget: Budget) -> set[Key]:
    """The keys that need no call any more.

    Rows that a budget skipped are dropped, to be tried anew, where there is room again.
    """
    path = folder.file(ROWS)
    if not path.exists():
        return set()
    folder.appender(ROWS).close()  # cuts off what a kill has torn
    found = done_keys(path)
    skipped = {key for key, outcome in found.items() if outcome == "skipped_budget"}
    has_room = budget.cap is None or budget.spend.total < budget.cap
    if skipped and has_room:
        decoder = msgspec.json.Decoder(_Outcome)
        folder.rewrite(ROWS, lambda line: decoder.decode(line).outcome != "skipped_budget")
        return set(found) - skipped
    return set(found)


def is_complete(path: Path) -> bool:
    """Whether every key of a run has its row."""
    manifest = read_manifest(path)
    wanted = manifest.data.selected * manifest.grid.calls
    return sum(1 for _ in lines(path / ROWS)) >= wanted


def spent(path: Path) -> Decimal:
    """What a run has cost so far."""
    return read_spend(path / SPEND).total
