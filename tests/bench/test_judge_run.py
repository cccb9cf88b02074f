"""Judging a run against a real gateway: ensembles, reminders, ties, gates, budget, resume."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import everyturn
from everyturn.bench.budget import read_spend
from everyturn.bench.folder import JUDGEMENTS, SPEND, SUMMARY, RunRefused
from everyturn.bench.judge_run import judge
from everyturn.bench.manifest import read_manifest
from everyturn.bench.runner import Tally
from everyturn.bench.session import Hooks, Options
from everyturn.bench.tagging import tell_turns_to
from everyturn.bench.votes import Judgement, read_judgements
from everyturn.mock.scenario import Ask
from everyturn.sdk.settings import URL_DEFAULT
from tests.bench.test_judging import judging
from tests.support.bench import KEY, Bench, bench, error, questions, right

TWO = "".join(
    f'[[judges]]\nname = "{name}"\nmax_tokens = 100\nprice = {{ input = 1, output = 10 }}\n'
    for name in ("a", "b")
)
BREAKER = '[[judges]]\nname = "t"\ntie_breaker = true\n'


def ruling(label: str) -> str:
    """A judge's answer in the form that is asked for."""
    verdict = "correct" if label == "correct" else "incorrect"
    return json.dumps({"verdict": verdict, "label": label, "rationale": f"because {label}"})


def always(label: str) -> Any:
    """A judge that always says the same."""
    return lambda question, ask: ruling(label)


async def judged(made: Bench, text: str = TWO, *, tags_turns: bool = False, **more: Any) -> Tally:
    """Judge the run `run`."""
    import msgspec

    grid = read_manifest(made.folder / "run").grid
    grid = msgspec.structs.replace(grid, gateway=made.running.url, **more)
    hooks = Hooks(began=lambda tally, budget: None, warn=made.warnings.append)
    options = Options(known=(KEY,), tags_turns=tags_turns)
    stop = asyncio.Event()
    return await judge(made.folder / "run", judging(text), grid, options, stop, hooks)


def judgements(made: Bench) -> list[Judgement]:
    """Every attempt of every judge."""
    return list(read_judgements(made.folder / "run" / JUDGEMENTS))


def summary(made: Bench) -> dict[str, Any]:
    """What a run found."""
    found: dict[str, Any] = json.loads((made.folder / "run" / SUMMARY).read_text())["found"]
    return found


async def test_every_answer_is_judged_once_by_every_judge(tmp_path: Path) -> None:
    """Only answers are judged; each judgement names its row, its own turn, and what was shown."""
    async with bench(tmp_path, "m", "a", "b") as made:
        made.items(questions(6))
        made.answers("m", lambda question, ask: "" if "3" in question else right(question, ask))
        made.answers("a", always("correct"))
        made.answers("b", always("F2"))
        await made.run(made.grid())

        first = await judged(made)
        again = await judged(made)

        found = judgements(made)
        assert (first.total, first.done, again.done) == (5, 5, 0)
        assert Counter(one.judge for one in found) == {"a": 5, "b": 5}
        rows = {row.turn_id: row for row in made.rows()}
        for one in found:
            assert rows[one.turn_id].key == one.key
            assert one.cost == 0.0003
            assert one.rationale == f"because {one.label}"
        turn = (await made.running.client.get(f"/turns/{found[0].judge_turn_id}")).json()
        assert turn["turn"]["trace_id"] == found[0].trace_id
        assert turn["turn"]["turn_id"] != found[0].turn_id
        assert summary(made)["judging"]["ties"] == 5
        assert summary(made)["judging"]["agreement"]["verdict"]["raw"]["value"] == 0


async def test_a_tie_goes_to_the_tie_breaker_alone(tmp_path: Path) -> None:
    """It is asked only where the others tie, and decides there."""

    def differing(question: str, ask: Ask) -> str:
        return ruling("correct" if "What is 0" in question else "F3")

    async with bench(tmp_path, "m", "a", "b", "t") as made:
        made.items(questions(4))
        made.answers("a", always("correct"))
        made.answers("b", differing)
        made.answers("t", always("F3"))
        await made.run(made.grid())

        await judged(made, TWO + BREAKER)

        assert Counter(one.judge for one in judgements(made)) == {"a": 4, "b": 4, "t": 3}
        (group,) = summary(made)["groups"]
        assert group["metrics"]["judged"]["value"] == 0.25
        assert group["labels"] == {"F3": 3, "correct": 1}
        assert group["ties"] == 0


@pytest.mark.parametrize("kind", ["prose", "nothing", "wrong label", "mended", "down"])
async def test_a_verdict_that_cannot_be_read_is_missing(tmp_path: Path, kind: str) -> None:
    """One reminder; then it is missing: not wrong, and not a tie. So is a judge that fails."""

    def answering(question: str, ask: Ask) -> Any:
        if kind == "down":
            return error(400)
        if kind == "mended" and len(ask.body["messages"]) == 4:
            return ruling("F3")
        return {"nothing": "", "wrong label": ruling("F9")}.get(kind, "I think it is fine.")

    async with bench(tmp_path, "m", "a", "b") as made:
        made.items(questions(1))
        made.answers("a", always("correct"))
        made.answers("b", answering)
        await made.run(made.grid())

        await judged(made)

        of_b = [one for one in judgements(made) if one.judge == "b"]
        assert [one.number for one in of_b] == ([1] if kind == "down" else [1, 2])
        assert [one.is_final for one in of_b][-1]
        last = of_b[-1]
        expected = {"mended": ("verdict", "F3"), "down": ("provider_error", None)}
        assert (last.outcome, last.label) == expected.get(kind, ("unreadable", None))
        (group,) = summary(made)["groups"]
        assert group["metrics"]["judged"]["value"] == (None if kind == "mended" else 1)
        assert group["ties"] == (kind == "mended")


async def test_judges_spend_from_the_same_budget(tmp_path: Path) -> None:
    """What the run has spent counts; what does not fit stays unjudged, and is judged with more."""
    from decimal import Decimal

    async with bench(tmp_path, "m", "a", "b") as made:
        made.items(questions(4))
        for name in ("a", "b"):
            made.answers(name, always("correct"))
        await made.run(made.grid())  # four times 0.0003
        cap = Decimal("0.004")

        first = await judged(made, budget=cap)
        spent = read_spend(tmp_path / "run" / SPEND)
        second = await judged(made, budget=Decimal(1))

        assert first.done < 4
        assert spent.subject == Decimal("0.0012")
        assert spent.total <= cap
        assert second.done_before + second.done == 4
        finals = Counter((one.key, one.judge) for one in judgements(made) if one.is_final)
        assert set(finals.values()) == {1}
        assert len(finals) == 8


async def test_a_gate_stops_judges_that_do_not_agree(tmp_path: Path) -> None:
    """Below the stated kappa the judging is refused, at once when it is started again."""

    def differing(question: str, ask: Ask) -> str:
        number = int("".join(sign for sign in question.split("What is ")[1][:2] if sign.isdigit()))
        return ruling("correct" if number % 2 else "F3")

    gate = "[judging]\ngate_kappa = 0.4\ngate_after = 5\n"
    async with bench(tmp_path, "m", "a", "b") as made:
        made.items(questions(30))
        made.answers("a", always("correct"))
        made.answers("b", differing)
        await made.run(made.grid(concurrency=2))

        with pytest.raises(RunRefused, match="agree less than their gate"):
            await judged(made, gate + TWO)
        found = len(judgements(made))
        with pytest.raises(RunRefused, match="agree less than their gate"):
            await judged(made, gate + TWO)

        assert found == len(judgements(made)) < 60


async def test_another_rubric_judges_anew_and_the_last_one_counts(tmp_path: Path) -> None:
    """Judgements of two rubrics stay apart; the manifest has both."""
    async with bench(tmp_path, "m", "a", "b") as made:
        made.items(questions(2))
        await made.run(made.grid())
        for label, version in (("correct", "1"), ("F3", "2")):
            for name in ("a", "b"):
                made.answers(name, always(label))
            await judged(made, f'[judging]\nrubric_version = "{version}"\n' + TWO)

        assert len(read_manifest(tmp_path / "run").judges) == 2
        (group,) = summary(made)["groups"]
        assert group["metrics"]["judged"]["value"] == 0
        assert len(judgements(made)) == 8


async def test_what_judges_say_is_a_review_of_the_turn(tmp_path: Path) -> None:
    """The record of a judged turn holds one review a judge, with score, rubric and rationale."""
    async with bench(tmp_path, "m", "a", "b") as made:
        made.items(questions(1))
        made.answers("a", always("correct"))
        made.answers("b", always("F2"))
        await made.run(made.grid())
        assert tell_turns_to(made.running.url, None)

        await judged(made, tags_turns=True)
        assert await asyncio.to_thread(everyturn.flush, 10.0)
        everyturn.configure(url=URL_DEFAULT)

        turn = (await made.running.client.get(f"/turns/{made.rows()[0].turn_id}")).json()
        reviews = {one["reviewer"]: one for one in turn["quality_reviews"]}
        assert {name: one["score_correctness"] for name, one in reviews.items()} == {"a": 1, "b": 0}
        assert reviews["b"]["notes"] == "F2: because F2"
        assert reviews["b"]["rubric_version"] == "1"
        assert reviews["b"]["review_source"] == "llm-judge"
