"""Canaries: planted keys and a marker in the reasoning, and where they must never be found."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from everyturn.bench.closing import CLOSED, close
from everyturn.bench.exporting import inspect_logs, jsonl
from everyturn.bench.folder import ROWS, RunRefused, replace
from everyturn.bench.judge_run import judge
from everyturn.bench.manifest import read_manifest
from everyturn.bench.parquet_export import write_parquet
from everyturn.bench.report import report_html
from everyturn.bench.session import Hooks, Options
from everyturn.bench.summary import read_run, summarise, write_summary
from everyturn.bench.viewing import Joined, find_row, story
from everyturn.mock.scenario import Ask
from everyturn.mock.speech import Speech
from tests.bench.test_cells import a_call
from tests.bench.test_judging import JUDGES, judging
from tests.support.bench import KEY, Bench, bench, questions, speech

MARKER = "MARKER-OF-REASONING"
VENDOR = "sk-proj-" + "FAKE0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH"
"""Obviously fake, in a provider's form, and known to nobody beforehand."""
CELLS = (
    '[[cells]]\nname = "plain"\nkind = "no-context"\n'
    '[[cells]]\nname = "agent"\nkind = "agentic"\nturns_max = 2\n'
)


def leaking(question: str, ask: Ask) -> Speech:
    """An answer with keys in it, reasoning in its carrier, and thoughts in its text."""
    if ask.body.get("tools") and ask.body["messages"][-1]["role"] != "tool":
        call = a_call({"query": f"plums {KEY}"})
        return call.but(said=(*speech("", reasoning=MARKER).said[:1], *call.said))
    return speech(f"<think>{MARKER}</think>pear 0, {KEY} {VENDOR}", reasoning=f"{MARKER} {KEY}")


def ruling(question: str, ask: Ask) -> Speech:
    """A judge that reasons, and repeats a key."""
    said = {"verdict": "correct", "label": "correct", "rationale": f"it says {KEY} {VENDOR}"}
    return speech(f"<think>{MARKER}</think>{json.dumps(said)}", reasoning=MARKER)


async def leaked(made: Bench) -> Path:
    """A judged run in which everything leaks that can."""
    context = {"context": f"Plums ripen in August. {KEY}", "attributes": {"password": VENDOR}}
    made.items(questions(2, **context))
    made.answers("m", leaking)
    for name in ("a", "b"):
        made.answers(name, ruling)
    await made.run(made.grid(CELLS, cache="cache"))
    import msgspec

    path = made.folder / "run"
    grid = msgspec.structs.replace(read_manifest(path).grid, gateway=made.running.url)
    hooks = Hooks(began=lambda tally, budget: None, warn=made.warnings.append)
    options = Options(known=(KEY,))
    text = "[judging]\nshow_context = true\n" + JUDGES
    await judge(path, judging(text), grid, options, asyncio.Event(), hooks)
    return path


def found_in(path: Path, word: str) -> set[str]:
    """The files below a folder that hold a word."""
    return {
        file.relative_to(path).as_posix()
        for file in path.rglob("*")
        if file.is_file() and word.encode() in file.read_bytes()
    }


async def test_keys_and_reasoning_are_nowhere_but_where_they_may_be(tmp_path: Path) -> None:
    """The marker is in `rows.jsonl`, in no request of a judge; the keys are in no file at all."""
    async with bench(tmp_path, "m", "a", "b") as made:
        path = await leaked(made)
        requests = [json.loads(text) for name in ("a", "b") for text in made.requests[name]]

    summary = summarise(path, read_run(path))
    write_summary(path, summary)
    replace(path / "report.html", report_html(path, summary).encode())
    joined = Joined(path)
    out = tmp_path / "out"
    out.mkdir()
    (out / "rows.jsonl").write_bytes(b"".join(jsonl(joined)))
    inspect_logs(joined, out)
    write_parquet(joined, tmp_path / "rows.parquet")
    # Unpacked, for nothing can be found in compressed pages.
    unpacked = parquet.read_table(tmp_path / "rows.parquet").to_pylist()
    assert len(unpacked) == 4
    (out / "parquet.txt").write_text(repr(unpacked), encoding="utf-8")
    row = next(row for row in made.rows() if row.cell == "plain")
    assert row.turn_id is not None
    told = story(joined, find_row(path, row.turn_id, include_reasoning=False))
    (out / "story.json").write_text(json.dumps(told), encoding="utf-8")

    assert len(requests) == 8
    assert all(request["messages"][0]["role"] == "system" for request in requests)
    assert MARKER not in json.dumps(requests)
    assert "pear 0" in json.dumps(requests)
    assert found_in(path, MARKER) == {ROWS}
    assert found_in(out, MARKER) == set()
    assert found_in(tmp_path / "cache", MARKER) == set()
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 6
    for key in (KEY, VENDOR):
        assert found_in(path, key) == set()
        assert found_in(out, key) == set()
        assert found_in(tmp_path / "cache", key) == set()
    assert found_in(path, "[redacted:") >= {ROWS, "judgements.jsonl", "items.jsonl"}
    assert "thoughts_in_text" in row.flags


async def test_what_close_leaves_holds_neither(tmp_path: Path) -> None:
    """Summary, manifest and rows move out without reasoning but with its lengths; the rest goes."""
    async with bench(tmp_path, "m", "a", "b") as made:
        path = await leaked(made)

    done = close(path, tmp_path / "published", rows=3, archive=None)

    assert not path.exists()
    assert {file.name for file in done.curated.iterdir()} == {
        "summary.json",
        "manifest.json",
        ROWS,
    }
    for word in (MARKER, KEY, VENDOR):
        assert found_in(tmp_path / "published", word) == set()
    rows = [json.loads(line) for line in (done.curated / ROWS).read_text().splitlines()]
    assert len(rows) == 3
    assert all(row["reasoning_content_chars"] for row in rows)
    lengths = json.loads((done.curated / "summary.json").read_text())["found"]
    assert lengths["reasoning_content_chars"]["m"]["p95"] > len(MARKER)


async def test_an_archive_holds_the_raw_rows(tmp_path: Path) -> None:
    """Where one is named, every raw file is packed, and reads back; reasoning is only there."""
    import gzip

    async with bench(tmp_path) as made:
        made.items(questions(3))
        made.answers("m", lambda question, ask: speech("pear", reasoning=MARKER))
        await made.run(made.grid())
        path = tmp_path / "run"
        raw = (path / ROWS).read_bytes()

    done = close(path, tmp_path / "published", rows=1, archive=tmp_path / "archive")

    assert done.archived is not None
    packed = done.archived / f"{ROWS}.gz"
    assert gzip.decompress(packed.read_bytes()) == raw
    assert packed.stat().st_mode & 0o077 == 0
    assert found_in(tmp_path / "published", MARKER) == set()


async def test_close_is_refused_while_rows_are_missing_and_may_be_killed(tmp_path: Path) -> None:
    """An incomplete run stays unless that is meant; a close that was cut off is done again."""
    async with bench(tmp_path) as made:
        made.items(questions(20))
        await made.run(made.grid(max_bytes=12_000, concurrency=1))
        path = tmp_path / "run"
        with pytest.raises(RunRefused, match="not complete"):
            close(path, tmp_path / "published", rows=1, archive=None)
        assert (path / ROWS).exists()
        await made.run(made.grid())

    curated = tmp_path / "published" / "x"
    mark = {"curated": str(curated), "archived": None}
    (path / CLOSED).write_text(json.dumps(mark), encoding="utf-8")
    os.unlink(path / ROWS)
    assert close(path, tmp_path / "published", rows=1, archive=None).curated == curated
    assert not path.exists()


async def test_a_grid_that_holds_a_key_is_refused(tmp_path: Path) -> None:
    """A manifest is there to be shown, so nothing secret may come into it."""
    async with bench(tmp_path) as made:
        made.items(questions(1))
        text = f'[[cells]]\nname = "plain"\nkind = "no-context"\nsystem = "Use {KEY}."\n'
        with pytest.raises(RunRefused, match="holds a key"):
            await made.run(made.grid(text))
        assert found_in(tmp_path / "run", KEY) == set()


async def test_one_id_gives_everything_of_a_row(tmp_path: Path) -> None:
    """From the turn id: cell, model, item, answer, verdicts, attempts, and the exact prompt."""
    async with bench(tmp_path, "m", "a", "b") as made:
        path = await leaked(made)
        row = next(row for row in made.rows() if row.cell == "plain")
        turn: Any = (await made.running.client.get(f"/turns/{row.turn_id}")).json()

        assert row.turn_id is not None
        told = story(Joined(path), find_row(path, row.turn_id, include_reasoning=False))

        assert (told["cell"], told["model"], told["judge_verdict"]) == ("plain", "m", "correct")
        assert [one["judge"] for one in told["judgements"]] == ["a", "b"]
        assert told["attempts"][0]["latency_ms"] > 0
        assert "reasoning_content" not in told
        sent = turn["model_calls"][0]["prompt_messages_json"]
        assert sent[-1]["content"] == told["question"]
        full = story(Joined(path), find_row(path, row.turn_id, include_reasoning=True))
        assert MARKER in full["reasoning_content"]
        with pytest.raises(RunRefused, match="no row of turn"):
            find_row(path, "nobody", include_reasoning=False)
