"""Runs against a real gateway: rows, resume, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

import everyturn
from everyturn.bench.asking import THROTTLED_MAX
from everyturn.bench.folder import ROWS, SPEND, RunFolder, RunRefused
from everyturn.bench.manifest import read_manifest
from everyturn.bench.tagging import tell_turns_to
from everyturn.mock import Script
from everyturn.mock.scenario import Ask
from everyturn.mock.speech import Speech
from everyturn.sdk.settings import URL_DEFAULT
from tests.support.bench import Bench, bench, error, questions, right, speech

DEAR = '[[models]]\nname = "m"\nmax_tokens = 1000\nprice = { input = 0, output = 20 }\n'
TWO_MODELS = '[[models]]\nname = "a"\n[[models]]\nname = "b"\n'


async def test_a_run_makes_one_row_for_each_key(tmp_path: Path) -> None:
    """Each cell, model, item and epoch has one row with answer, score, cost and a recorded turn."""
    async with bench(tmp_path) as made:
        made.items(questions(5))

        tally = await made.run(made.grid(epochs=2))

        rows = made.rows()
        assert tally.total == tally.done == 10
        assert len({row.key for row in rows}) == 10
        assert {row.outcome for row in rows} == {"ok"}
        assert all(row.scores == {"right": 1.0} for row in rows)
        assert all(row.cost == 0.0003 for row in rows)
        assert len({row.turn_id for row in rows}) == 10
        turn = (await made.running.client.get(f"/turns/{rows[0].turn_id}")).json()
        assert turn["turn"]["assistant_text"] == rows[0].model_answer
        assert turn["turn"]["trace_id"] == rows[0].trace_id


async def test_a_stopped_run_goes_on_without_asking_twice(tmp_path: Path) -> None:
    """A stop lets rows under way end; the next start asks only for what is missing."""
    async with bench(tmp_path) as made:
        made.items(questions(30))
        stop = asyncio.Event()

        def answering(question: str, ask: Ask) -> str:
            if len(made.requests["m"]) == 12:
                stop.set()
            return right(question, ask)

        made.answers("m", answering)
        grid = made.grid(concurrency=4)
        first = await made.run(grid, stop=stop)
        before = len(made.rows())
        second = await made.run(grid)

        assert first.done == before < 30
        assert (second.done_before, second.done) == (before, 30 - before)
        assert len(made.requests["m"]) == 30
        assert Counter(row.item_id for row in made.rows()) == {f"q{n}": 1 for n in range(30)}


async def test_a_torn_last_line_is_missing_not_a_row(tmp_path: Path) -> None:
    """What a kill left of a line is cut off, and its row made again."""
    async with bench(tmp_path) as made:
        made.items(questions(3))
        await made.run(made.grid(concurrency=1))
        path = tmp_path / "run" / ROWS
        whole = path.read_bytes()
        path.write_bytes(whole[:-40])

        tally = await made.run(made.grid())

        assert (tally.done_before, tally.done) == (2, 1)
        assert [row.item_id for row in made.rows()] == ["q0", "q1", "q2"]


async def test_two_processes_cannot_run_one_folder(tmp_path: Path) -> None:
    """While one holds the folder another is refused."""
    async with bench(tmp_path) as made:
        made.items(questions(1))
        await made.run(made.grid())
        with RunFolder(tmp_path / "run"), pytest.raises(RunRefused, match="another process"):
            await made.run(made.grid())


async def test_a_folder_with_other_files_is_not_taken(tmp_path: Path) -> None:
    """A run never begins among files of somebody else."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine", encoding="utf-8")
    async with bench(tmp_path) as made:
        made.items(questions(1))
        with pytest.raises(RunRefused, match="other files"):
            await made.run(made.grid())


async def test_a_first_start_that_was_killed_goes_on(tmp_path: Path) -> None:
    """Files from before the manifest are no foreign ones; those of others still are."""
    left = tmp_path / "run"
    left.mkdir()
    for name in (".gitignore", "run.lock", "items.jsonl", ".manifest.json.new"):
        (left / name).write_text("", encoding="utf-8")
    async with bench(tmp_path) as made:
        made.items(questions(2))
        await made.run(made.grid())
        assert len(made.rows()) == 2
        with pytest.raises(RunRefused, match="other files"):
            await made.run(made.grid(), out=".")


async def test_changed_data_and_a_changed_grid_are_refused(tmp_path: Path) -> None:
    """A run goes on with what it began with, or not at all."""
    async with bench(tmp_path) as made:
        made.items(questions(3))
        await made.run(made.grid(), limit=2)

        with pytest.raises(RunRefused, match="`epochs`"):
            await made.run(made.grid(epochs=2))
        with pytest.raises(RunRefused, match="`--limit`"):
            await made.run(made.grid(), limit=3)
        assert (await made.run(made.grid(concurrency=3))).done == 0
        made.items([*questions(2), {"item_id": "q2", "question": "What is 99?"}])
        with pytest.raises(RunRefused, match="data set has changed"):
            await made.run(made.grid())


async def test_items_with_equal_text_stay_two(tmp_path: Path) -> None:
    """The same question under two ids is asked twice, with the cache on too."""
    async with bench(tmp_path) as made:
        made.items([{"item_id": name, "question": "What is 7?"} for name in ("x", "y")])

        await made.run(made.grid(cache="cache"))

        assert sorted(row.item_id for row in made.rows()) == ["x", "y"]
        assert len(made.requests["m"]) == 2


async def test_every_row_of_two_models_names_its_own(tmp_path: Path) -> None:
    """Requested and served model are both on the row."""
    async with bench(tmp_path, "a", "b") as made:
        made.items(questions(2))

        await made.run(made.grid(TWO_MODELS))

        names = {(row.model, row.requested_model, row.served_model) for row in made.rows()}
        assert names == {("a", "a", "mock-model-a"), ("b", "b", "mock-model-b")}


async def test_a_model_that_the_gateway_lacks_is_refused_before_anything_is_made(
    tmp_path: Path,
) -> None:
    """The plan of a run is checked first; nothing is left of a run that was refused."""
    async with bench(tmp_path) as made:
        made.items(questions(1))
        with pytest.raises(RunRefused, match="no model `nobody`"):
            await made.run(made.grid('[[models]]\nname = "nobody"\n'))
        assert not (tmp_path / "run" / "manifest.json").exists()


async def test_the_manifest_holds_what_a_repeat_needs(tmp_path: Path) -> None:
    """Data by hash and ids, grid, seed, prices with their source, code and packages; no key."""
    async with bench(tmp_path) as made:
        made.items(questions(3))
        await made.run(made.grid(seed=11), limit=2)

        manifest = read_manifest(tmp_path / "run")

        assert len(manifest.data.sha256) == len(manifest.data.ids_sha256) == 64
        assert (manifest.data.selected, manifest.data.total, manifest.data.limit) == (2, 3, 2)
        assert manifest.grid.seed == 11
        assert manifest.price_sources == {"m": "grid"}
        assert manifest.presets == {"m": "generic-strict"}
        assert manifest.code.packages["msgspec"]
        names = {path.name for path in (tmp_path / "run").iterdir()}
        assert ".gitignore" in names
        assert (tmp_path / "run" / ".gitignore").read_text() == "*\n"
        assert all(
            path.stat().st_mode & 0o077 == 0
            for path in (tmp_path / "run").iterdir()
            if path.name != ".gitignore"
        )


async def test_a_run_stops_cleanly_at_its_size_and_goes_on_with_more(tmp_path: Path) -> None:
    """`max_bytes` ends a run between rows; a higher one finishes it."""
    async with bench(tmp_path) as made:
        made.items(questions(20))

        first = await made.run(made.grid(max_bytes=12_000, concurrency=1))
        second = await made.run(made.grid())

        assert first.stop_reason == "max_bytes"
        assert 0 < first.done < 20
        assert second.done_before + second.done == 20
        assert len({row.key for row in made.rows()}) == 20


def failing_first(made: Bench, script: Script, times: int = 2) -> None:
    """Answer each question with a failure so many times, then rightly."""
    seen: Counter[str] = Counter()

    def answering(question: str, ask: Ask) -> Script | str:
        seen[question] += 1
        return script if seen[question] <= times else right(question, ask)

    made.answers("m", answering)


@pytest.mark.parametrize(
    "script",
    [
        error(429, {"retry-after": "0"}),
        error(429, {"retry-after": "Thu, 01 Jan 2026 00:00:00 GMT"}),
        error(503, {"retry-after": "0"}),
    ],
    ids=["seconds", "date", "503"],
)
async def test_a_storm_is_waited_out(tmp_path: Path, script: Script) -> None:
    """Refused calls are made again; every attempt is on the row, and free of charge."""
    async with bench(tmp_path) as made:
        made.items(questions(12))
        failing_first(made, script)

        await made.run(made.grid())

        for row in made.rows():
            assert row.outcome == "ok"
            assert [attempt.outcome for attempt in row.attempts] == [
                "provider_error",
                "provider_error",
                "answered",
            ]
            assert [attempt.cost for attempt in row.attempts] == [0.0, 0.0, 0.0003]
            assert row.cost == 0.0003


async def test_a_long_storm_is_not_a_row_of_failures(tmp_path: Path) -> None:
    """429 does not use up the attempts; a storm without end is terminal after a bound."""
    async with bench(tmp_path) as made:
        made.items(questions(2))
        failing_first(made, error(429, {"retry-after": "0"}), times=12)
        await made.run(made.grid(attempts_max=2), "long")
        failing_first(made, error(429, {"retry-after": "0"}), times=1000)
        await made.run(made.grid(attempts_max=2), "endless")

        assert [(row.outcome, len(row.attempts)) for row in made.rows("long")] == [("ok", 13)] * 2
        for row in made.rows("endless"):
            assert (row.outcome, row.error_code) == ("provider_error", "upstream_rejected")
            assert len(row.attempts) == THROTTLED_MAX


async def test_an_error_becomes_terminal_when_attempts_run_out(tmp_path: Path) -> None:
    """Then the row says so with a code, has no score, and all calls are in one turn."""
    async with bench(tmp_path) as made:
        made.items(questions(1))
        made.answers("m", lambda question, ask: error(503, {"retry-after": "0"}))

        await made.run(made.grid())

        (row,) = made.rows()
        assert (row.outcome, row.error_code) == ("provider_error", "upstream_error")
        assert row.model_answer is None
        assert row.scores == {}
        turn = (await made.running.client.get(f"/turns/{row.turn_id}")).json()
        assert len(turn["model_calls"]) == len(row.attempts) == 3


async def test_a_refused_request_is_not_repeated(tmp_path: Path) -> None:
    """A 4xx of the provider is terminal at once."""
    async with bench(tmp_path) as made:
        made.items(questions(1))
        made.answers("m", lambda question, ask: error(400))

        await made.run(made.grid())

        (row,) = made.rows()
        assert (row.outcome, row.error_code) == ("provider_error", "upstream_rejected")
        assert len(row.attempts) == 1


async def test_a_parameter_that_the_gateway_does_not_know_ends_the_run(tmp_path: Path) -> None:
    """What every row would meet is refused once, with the gateway's hint, and makes no rows."""
    async with bench(tmp_path) as made:
        made.items(questions(3))
        text = '[[models]]\nname = "m"\nbody = { top_pears = 3 }\n'
        with pytest.raises(RunRefused, match=r"unknown_parameter.*`allow`"):
            await made.run(made.grid(text))
        assert made.rows() == []


@pytest.mark.parametrize("kind", ["hang", "cut", "length", "refusal", "empty"])
async def test_endings(tmp_path: Path, kind: str) -> None:
    """A call that hangs, an answer that is cut, one that its limit ended, a refusal, nothing."""
    expected = {
        "hang": ("timeout", "gateway_timeout", None),
        "cut": ("provider_error", "upstream_stream_incomplete", None),
        "length": ("length", None, "It is"),
        "refusal": ("refused", None, "I cannot."),
        "empty": ("empty", None, None),
    }[kind]
    async with bench(tmp_path) as made:
        made.items(questions(1))
        made.answers("m", lambda question, ask: ending(kind, ask))
        grid = made.grid(attempts_max=1, timeout_s=1.0 if kind == "hang" else 30.0)

        await made.run(grid)

        (row,) = made.rows()
        assert (row.outcome, row.error_code, row.model_answer or None) == expected
        assert all(value is None for value in row.scores.values())
        if kind in ("hang", "cut"):
            assert row.cost is None
            # What it may have cost counts at its worst.
            assert row.attempts[0].cost_bound is not None


def ending(kind: str, ask: Ask) -> Script | Speech:
    """An answer that ends in a way of its own."""
    if kind == "hang":
        from everyturn.mock import HANG

        return Script.raw([HANG])
    if kind == "cut":
        from everyturn.mock import ABORT

        frames = speech("It is pear 0.").frames("m")[:2]
        return Script.sse([*frames, ABORT])
    if kind == "length":
        return speech("It is", finish="length")
    if kind == "refusal":
        return speech("", message={}).but(said=(), last={"refusal": "I cannot."})
    return speech("")


async def test_what_is_spent_adds_up_over_the_parts_of_a_run(tmp_path: Path) -> None:
    """The ledger of a run that was stopped and resumed has each call once."""
    async with bench(tmp_path) as made:
        made.items(questions(10))
        await made.run(made.grid(max_bytes=9_000, concurrency=1))
        await made.run(made.grid())

        ledger = [json.loads(line) for line in (tmp_path / "run" / SPEND).read_text().splitlines()]
        calls = [line["call"] for line in ledger if "cost" in line]
        assert sorted(calls) == list(range(10))
        assert sum(float(line.get("cost", 0)) for line in ledger) == pytest.approx(0.003)


async def test_turns_are_tagged_with_their_run_and_cell(tmp_path: Path) -> None:
    """The record says which run and cell a turn is of; its outcome is what the gateway found."""
    async with bench(tmp_path) as made:
        made.items(questions(3))
        assert tell_turns_to(made.running.url, None)
        grid = made.grid(DEAR, budget=0.0205, name="pears", concurrency=1)
        await made.run(grid, tags_turns=True)
        assert await asyncio.to_thread(everyturn.flush, 10.0)
        everyturn.configure(url=URL_DEFAULT)

        rows = made.rows()
        assert [row.outcome for row in rows] == ["ok", "ok", "skipped_budget"]
        for row in rows[:2]:
            turn = (await made.running.client.get(f"/turns/{row.turn_id}")).json()["turn"]
            assert (turn["chat_id"], turn["variant"], turn["origin"]) == (
                row.run_id,
                "plain",
                "bench",
            )
            assert (turn["project_id"], turn["outcome"]) == ("pears", "success")
            assert turn["trace_id"] == row.trace_id
            assert turn["assistant_text"] == row.model_answer


async def test_a_gateway_that_goes_away_stops_the_run_and_spoils_no_row(tmp_path: Path) -> None:
    """Its absence says nothing about any row: they stay missing, cost nothing, and come later."""
    async with bench(tmp_path) as made:
        made.items(questions(8))
        grid = made.grid(DEAR, budget=5.0, concurrency=2, attempts_max=2)

        def answering(question: str, ask: Ask) -> str:
            if len(made.requests["m"]) == 3:
                asyncio.get_running_loop().create_task(made.running.gateway.stop())
            return right(question, ask)

        made.answers("m", answering)
        with pytest.raises(RunRefused, match="does not answer any more"):
            await made.run(grid)
        rows = made.rows()
        assert 2 <= len(rows) < 8
        assert {row.outcome for row in rows} == {"ok"}

    async with bench(tmp_path) as made:
        import msgspec

        await made.run(msgspec.structs.replace(grid, gateway=made.running.url))
        assert sorted(row.item_id for row in made.rows()) == [f"q{n}" for n in range(8)]
        assert {row.outcome for row in made.rows()} == {"ok"}


async def test_another_revision_than_the_one_meant_is_flagged(tmp_path: Path) -> None:
    """A pinned model whose provider names another version says so on each row."""
    text = '[[models]]\nname = "m"\npin = "revision"\nrevision = "{}"\n'
    async with bench(tmp_path) as made:
        made.items(questions(1))
        await made.run(made.grid(text.format("mock-model-m")), "same")
        await made.run(made.grid(text.format("pear-7")), "other")

        assert made.rows("same")[0].flags == ()
        assert made.rows("other")[0].flags == ("served_other_revision",)
