"""What a run would do, before it does it: calls, price at worst, and what would be refused."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec

from everyturn.bench.asking import request_body
from everyturn.bench.cells import SEARCH_TOOL, Deck
from everyturn.bench.grid import Cell, Grid, Model
from everyturn.bench.items import Item, Items
from everyturn.bench.money import Price


class Plan(msgspec.Struct, kw_only=True):
    """What a run would do. worst: None where a price or `max_tokens` is missing."""

    rows: int
    calls: int
    """Calls at most, without those that are made again after a failure."""
    worst: Decimal | None
    refusals: list[str] = []
    notes: list[str] = []


def make_plan(
    grid: Grid,
    items: Items,
    deck: Deck,
    served: Mapping[str, Mapping[str, Any]] | None,
    prices: Mapping[str, Price | None],
    budget: Decimal | None,
    *,
    with_price: bool,
) -> Plan:
    """The plan of a whole run. served: the gateway's models; None where it cannot be reached.

    with_price: whether to work out the price at worst, for which every prompt has to be made.
    """
    plan = Plan(
        rows=len(items.items) * grid.calls,
        calls=sum(_calls(cell) for cell in grid.cells)
        * len(grid.models)
        * grid.epochs
        * len(items.items),
        worst=Decimal(0),
    )
    _models(plan, grid, served, prices, budget)
    for cell in grid.cells:
        _cell(plan, cell, items, deck)
    if plan.refusals or not with_price:
        plan.worst = None
        return plan
    for model in grid.models:
        price = prices[model.name]
        if price is None or model.max_tokens is None:
            plan.worst = None
            return plan
        for cell in grid.cells:
            for item in items.items:
                assert plan.worst is not None
                plan.worst += grid.epochs * _worst(deck, cell, item, model, price)
    if any(cell.kind == "agentic" for cell in grid.cells):
        plan.notes.append("the price of `agentic` cells leaves out what their searches will find")
    if grid.attempts_max > 1:
        plan.notes.append("calls that are made again after a failure come on top")
    return plan


def _calls(cell: Cell) -> int:
    return cell.turns_max if cell.kind == "agentic" else 1


def _models(
    plan: Plan,
    grid: Grid,
    served: Mapping[str, Mapping[str, Any]] | None,
    prices: Mapping[str, Price | None],
    budget: Decimal | None,
) -> None:
    for model in grid.models:
        if served is not None and model.model not in served:
            plan.refusals.append(
                f"the gateway has no model `{model.model}`. `GET /v1/models` lists what it has."
            )
        if budget is None:
            continue
        if prices[model.name] is None:
            plan.refusals.append(
                f"a budget needs the price of `{model.name}`. Give it `price = {{ input = 1.0, "
                "output = 2.0 }` (US dollars for a million tokens)."
            )
        if model.max_tokens is None:
            plan.refusals.append(f"a budget needs `max_tokens` for `{model.name}`.")


def _cell(plan: Plan, cell: Cell, items: Items, deck: Deck) -> None:
    if cell.kind == "oracle-context":
        without = sum(not item.context for item in items.items)
        if without:
            plan.refusals.append(f"cell `{cell.name}`: {without} items have no `context`.")
    if cell.kind in ("retrieval", "agentic", "full-context") and not deck.has_documents:
        plan.refusals.append(
            f"cell `{cell.name}` needs documents. Name a file as `data.documents`, or give items "
            "a `context`."
        )


def _worst(deck: Deck, cell: Cell, item: Item, model: Model, price: Price) -> Decimal:
    if cell.kind == "python":
        # Callables are not run for a plan: they may be slow, or mean something.
        messages: list[dict[str, Any]] = [{"role": "user", "content": item.question}]
    else:
        messages, _ = deck.prompt(cell, item)
    tools = [SEARCH_TOOL] if cell.kind == "agentic" else None
    size = len(request_body(model, messages, tools))
    assert model.max_tokens is not None
    return _calls(cell) * price.worst(size, model.max_tokens, model.thinking_tokens or 0)
