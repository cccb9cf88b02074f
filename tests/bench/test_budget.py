"""A budget is not passed by a cent, and says what it left undone."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from everyturn.bench.budget import read_spend
from everyturn.bench.folder import SPEND, RunRefused
from everyturn.bench.money import Price, Usage
from everyturn.mock.scenario import Ask
from everyturn.mock.speech import Speech
from tests.support.bench import bench, questions, right, speech

DEAR = '[[models]]\nname = "m"\nmax_tokens = 1000\nprice = { input = 0, output = 20 }\n'
"""A call costs two cents at worst."""


def at_worst(question: str, ask: Ask) -> Speech:
    """An answer that uses every token it may."""
    usage = {"prompt_tokens": 50, "completion_tokens": 1000, "total_tokens": 1050}
    return speech(right(question, ask)).but(usage=usage)


async def test_the_cap_is_not_passed_at_concurrency_64(tmp_path: Path) -> None:
    """Of 200 calls at two cents, a budget of 1.00 makes 50 and skips the others."""
    async with bench(tmp_path) as made:
        made.items(questions(200))
        made.answers("m", at_worst)

        await made.run(made.grid(DEAR, budget=1.0, concurrency=64))

        assert Counter(row.outcome for row in made.rows()) == {"ok": 50, "skipped_budget": 150}
        assert len(made.requests["m"]) == 50
        assert read_spend(tmp_path / "run" / SPEND).total == Decimal("1.00")


async def test_what_was_reserved_and_not_used_is_used_by_others(tmp_path: Path) -> None:
    """Calls wait for others to settle while they may fit then; cheap answers make room."""
    async with bench(tmp_path) as made:
        made.items(questions(40))  # each costs 20 tokens: 0.0004

        await made.run(made.grid(DEAR, budget=0.05, concurrency=64))

        assert Counter(row.outcome for row in made.rows()) == {"ok": 40}


async def test_skipped_rows_are_made_when_there_is_more_to_spend(tmp_path: Path) -> None:
    """A higher budget goes on with them, and each key has one row in the end."""
    async with bench(tmp_path) as made:
        made.items(questions(10))
        made.answers("m", at_worst)
        await made.run(made.grid(DEAR, budget=0.1))
        skipped = [row for row in made.rows() if row.outcome == "skipped_budget"]

        tally = await made.run(made.grid(DEAR, budget=0.2))

        assert len(skipped) == 5
        assert all(row.turn_id is None for row in skipped)
        assert (tally.done_before, tally.done) == (5, 5)
        assert Counter(row.outcome for row in made.rows()) == {"ok": 10}
        assert read_spend(tmp_path / "run" / SPEND).total == Decimal("0.20")


async def test_an_answer_dearer_than_its_bound_stops_the_spending(tmp_path: Path) -> None:
    """A provider that counts more than was asked for is noted, and no further call is made."""
    async with bench(tmp_path) as made:
        made.items(questions(5))
        usage = {"prompt_tokens": 50, "completion_tokens": 1500, "total_tokens": 1550}
        made.answers("m", lambda question, ask: speech("x").but(usage=usage))

        await made.run(made.grid(DEAR, budget=1.0, concurrency=1))

        rows = made.rows()
        assert rows[0].flags == ("budget_bound_exceeded",)
        assert [row.outcome for row in rows] == ["ok", *["skipped_budget"] * 4]


async def test_a_budget_needs_prices_and_bounds(tmp_path: Path) -> None:
    """Without them the worst price is not known, and the run is refused with what to add."""
    async with bench(tmp_path) as made:
        made.items(questions(1))
        with pytest.raises(RunRefused, match=r"needs the price of `m`(.|\n)*needs `max_tokens`"):
            await made.run(made.grid('[[models]]\nname = "m"\n', budget=1.0))


async def test_calls_that_a_kill_cut_off_count_at_their_worst(tmp_path: Path) -> None:
    """A reservation without its settlement is spent, as far as a budget is concerned."""
    async with bench(tmp_path) as made:
        made.items(questions(3))
        made.answers("m", at_worst)
        await made.run(made.grid(DEAR, budget=0.02))
        path = tmp_path / "run" / SPEND
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if '"cost"' not in line))

        spend = read_spend(path)
        tally = await made.run(made.grid(DEAR, budget=0.02))

        assert (spend.lost, spend.lost_calls) == (Decimal("0.02"), 1)
        assert tally.done == 0


@pytest.mark.parametrize(
    "usage, cost",
    [
        (Usage(prompt_tokens=1000, completion_tokens=100), "0.002"),
        (Usage(prompt_tokens=1000, completion_tokens=100, cached_tokens=1000), "0.0011"),
        (Usage(prompt_tokens=1000, completion_tokens=100, reasoning_tokens=50), "0.00225"),
        (
            Usage(
                prompt_tokens=1000, completion_tokens=100, reasoning_tokens=50, total_tokens=1150
            ),
            "0.00275",
        ),
        (Usage(prompt_tokens=1000), None),
        (Usage(), None),
    ],
)
def test_costs(usage: Usage, cost: str | None) -> None:
    """Cached and reasoning tokens at their own price; unreported tokens have no cost."""
    price = Price.of({"input": 1, "output": 10, "cache_read": 0.1, "reasoning": 15})

    assert price.cost(usage) == (None if cost is None else Decimal(cost))
    assert price.worst(1000, 100, 50) == Decimal("0.00325")
