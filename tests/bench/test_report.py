"""Summary, report, comparison, rows, export: what a run says, and that it says no reasoning."""

from __future__ import annotations

import asyncio
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from everyturn.bench.cleaning import Cleaner
from everyturn.bench.comparing import Gate, compare_runs
from everyturn.bench.exporting import inspect_logs, jsonl
from everyturn.bench.folder import ITEMS, ROWS, SUMMARY, RunFolder, RunRefused
from everyturn.bench.items import Item
from everyturn.bench.manifest import read_manifest, write_items, write_manifest
from everyturn.bench.report import report_html
from everyturn.bench.rows import Attempt, FullRow, encoded
from everyturn.bench.summary import BYTES_MAX, read_run, summarise, write_summary
from everyturn.bench.viewing import Joined, Where
from everyturn.mock.scenario import Ask
from tests.support.bench import Bench, bench, questions, right, speech

TWO_CELLS = (
    '[[cells]]\nname = "plain"\nkind = "no-context"\n'
    '[[cells]]\nname = "wordy"\nkind = "verbose-fixed"\n'
)
HTML = "<script>alert('pear')</script> & \"quoted\""


def number_of(question: str) -> int:
    """The number in a question of `questions`."""
    return int(re.findall(r"What is (\d+)", question)[-1])


def half(question: str, ask: Ask) -> Any:
    """Right on even numbers; reasoning on all, with something to escape in the answer."""
    text = right(question, ask) if number_of(question) % 2 == 0 else f"No idea. {HTML}"
    return speech(text, reasoning="MARKER " * 10)


def summarised(path: Path) -> dict[str, Any]:
    """The summary of a run, as it is written."""
    return json.loads(write_summary(path, summarise(path, read_run(path))))  # type: ignore[no-any-return]


class Page(HTMLParser):
    """What a page refers to, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.tags: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


async def two_cells(made: Bench) -> Path:
    """A run over two cells, half of it right."""
    made.items(questions(8))
    made.answers("m", half)
    await made.run(made.grid(TWO_CELLS, epochs=2))
    return made.folder / "run"


async def test_a_summary_names_every_figure_with_its_n(tmp_path: Path) -> None:
    """n scored of n total, interval by its method, worst case, repeats, lengths of reasoning."""
    async with bench(tmp_path) as made:
        path = await two_cells(made)

    summary = json.loads((path / SUMMARY).read_text())
    plain, wordy = summary["found"]["groups"]
    figure = plain["metrics"]["right"]
    assert (plain["cell"], wordy["control"]) == ("plain", True)
    assert (figure["value"], figure["n_scored"], figure["n_total"]) == (0.5, 16, 16)
    assert figure["method"] == "t, by cluster"
    assert figure["clusters"] == 8
    assert figure["worst_case"]["value"] == 0.5
    assert figure["repeats"]["pass^2"]["value"] == 0.5
    lengths = summary["found"]["reasoning_content_chars"]["m"]
    assert (lengths["sum"], lengths["p50"], lengths["p95"]) == (32 * 70, 70, 70)
    assert summary["timing"][0]["latency_ms"]["n"] == 16
    assert summary["spend"]["total"] == pytest.approx(32 * 0.0003)
    assert summary["complete"]
    assert b"MARKER" not in (path / SUMMARY).read_bytes()


def test_a_run_without_rows_says_so(tmp_path: Path, two_cells_run: Path) -> None:
    """Every group has every metric, with a reason instead of a number; the page is made."""
    path = tmp_path / "empty"
    with RunFolder(path) as folder:
        write_manifest(folder, read_manifest(two_cells_run))
        write_items(folder, [], Cleaner((), b"k"))

    summary = summarised(path)

    for group in summary["found"]["groups"]:
        assert group["metrics"]["right"]["value"] is None
        assert group["metrics"]["right"]["reason"] == "nothing was counted"
        assert group["metrics"]["right"]["worst_case"]["value"] == 0
    assert not summary["complete"]
    assert "not complete" in report_html(path, summary)


async def test_missing_scores_count_as_wrong_in_the_worst_case(tmp_path: Path) -> None:
    """A figure is of what was scored; beside it stands what it is if the rest were wrong."""
    async with bench(tmp_path) as made:
        made.items(questions(4))
        made.answers("m", lambda question, ask: "" if "3" in question else right(question, ask))
        await made.run(made.grid())

    figure = summarised(tmp_path / "run")["found"]["groups"][0]["metrics"]["right"]
    assert (figure["value"], figure["n_scored"], figure["n_total"]) == (1, 3, 4)
    assert figure["worst_case"]["value"] == 0.75
    assert figure["method"] == "Wilson"


async def test_the_report_stands_alone_and_shows_no_reasoning(tmp_path: Path) -> None:
    """No reference outside, no script, everything escaped; tables, plots and telling rows."""
    async with bench(tmp_path) as made:
        path = await two_cells(made)

    html = report_html(path, summarised(path))
    page = Page()
    page.feed(html)
    assert page.references == []
    assert "script" not in page.tags
    assert "url(" not in html
    assert "@import" not in html
    assert page.tags.count("svg") >= 4
    text = "".join(page.text)
    assert HTML in text
    assert "MARKER" not in html
    assert "everyturn show" in text
    assert 1 <= page.tags.count("details") <= 20


async def test_export_and_rows_leave_reasoning_out(tmp_path: Path) -> None:
    """JSONL joins question, expected and verdict; a condition chooses; nothing shows reasoning."""
    async with bench(tmp_path) as made:
        path = await two_cells(made)

    joined = Joined(path)
    lines = [json.loads(line) for line in jsonl(joined)]
    wrong = [row for row in joined.rows() if Where("right<1", ("right",)).holds(row)]
    assert len(lines) == 32
    assert lines[0]["question"].startswith("What is")
    assert "reasoning_content" not in lines[0]
    assert len(wrong) == 16
    assert "MARKER" not in json.dumps([lines, wrong])
    asked = list(joined.rows(include_reasoning=True))
    assert all(row["reasoning_content"].startswith("MARKER") for row in asked)


@pytest.mark.parametrize(
    "text, count",
    [
        ("cell=wordy", 16),
        ("cell!=wordy", 16),
        ("epoch>=1", 16),
        ("outcome=ok", 32),
        ("control=true", 16),
        ("right=1", 16),
        ("judge_verdict=null", 32),
        ("reasoning_content_chars>69", 32),
        ("flags=thoughts_in_text", 0),
    ],
)
def test_conditions(two_cells_run: Path, text: str, count: int) -> None:
    """Equality, order, lists, scores, null."""
    joined = Joined(two_cells_run)
    condition = Where(text, joined.reading.metrics)

    assert sum(condition.holds(row) for row in joined.rows()) == count


@pytest.fixture(scope="module")
def two_cells_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run for the tests that only read."""

    async def make() -> Path:
        async with bench(tmp_path_factory.mktemp("bench")) as made:
            return await two_cells(made)

    return asyncio.run(make())


@pytest.mark.parametrize("text", ["outcome", "outcom=ok", "right<x"])
def test_a_condition_that_means_nothing_is_refused(text: str) -> None:
    """An unknown member, no sign, or an order without a number."""
    with pytest.raises(RunRefused):
        Where(text, ("right",))


def test_a_run_compared_with_itself_shows_nothing(two_cells_run: Path) -> None:
    """Law 13 over whole runs: no difference, no p, no evidence; gates on zero hold."""
    found = compare_runs(two_cells_run, two_cells_run)

    assert len(found["pairs"]) == 2
    for pair in found["pairs"]:
        assert pair["verdict"] == "no evidence"
        assert pair["difference"]["value"] == 0
        assert pair["p"] is None
        assert Gate.parse("difference > -0.02").holds(pair)
        assert Gate.parse("low >= 0").holds(pair)
        assert not Gate.parse("difference > 0").holds(pair)
        assert "no evidence" in pair["sentence"]


async def test_a_better_run_is_called_better(tmp_path: Path) -> None:
    """Paired by item, with McNemar on ones and zeros, Holm over the pairs, and a plain sentence."""
    async with bench(tmp_path) as made:
        made.items(questions(40))
        made.answers("m", half)
        await made.run(made.grid(), "first")
        made.answers("m", right)
        await made.run(made.grid(), "second")

    there = compare_runs(tmp_path / "first", tmp_path / "second")["pairs"][0]
    back = compare_runs(tmp_path / "second", tmp_path / "first")["pairs"][0]
    assert there["difference"]["value"] == 0.5
    assert (there["test"], there["only_second"]) == ("McNemar, exact", 20)
    assert (there["verdict"], back["verdict"]) == ("better", "worse")
    assert "is better in the second run on right: 0.500 → 1.000" in there["sentence"]
    assert not Gate.parse("difference > -0.02").holds(back)


def test_gates_are_read_strictly() -> None:
    """What is no gate is refused; a figure that is undefined does not pass."""
    pair = {
        "difference": {"value": None, "low": None, "high": None},
        "worst_case_difference": 0.0,
        "identical": False,
    }
    assert not Gate.parse("difference > -1").holds(pair)
    assert Gate.parse("worst >= 0").holds(pair)
    for text in ("difference", "diff > 0", "difference > x", "difference == 0"):
        with pytest.raises(RunRefused):
            Gate.parse(text)


async def test_two_models_of_one_run_can_be_compared(tmp_path: Path) -> None:
    """Cells and models are named; an unknown one, or runs that share none, are refused."""
    async with bench(tmp_path, "a", "b") as made:
        made.items(questions(12))
        made.answers("a", half)
        text = '[[models]]\nname = "a"\n[[models]]\nname = "b"\n'
        await made.run(made.grid(text))

    path = tmp_path / "run"
    found = compare_runs(path, path, None, (("plain", "a"), ("plain", "b")))
    assert found["pairs"][0]["sentence"].startswith("b in plain (against a in plain) is better")
    with pytest.raises(RunRefused, match="no rows of cell"):
        compare_runs(path, path, None, (("plain", "a"), ("plain", "c")))
    with pytest.raises(RunRefused, match="no metric"):
        compare_runs(path, path, "wrong")


def test_inspect_logs_have_one_file_a_cell_and_model(two_cells_run: Path) -> None:
    """Samples with epochs from 1, targets, scores and the turn they come from; no reasoning."""
    files = inspect_logs(Joined(two_cells_run), two_cells_run.parent / "inspect")

    logs = [json.loads(path.read_text()) for path in files]
    assert len(files) == 2
    for log in logs:
        assert (log["version"], log["status"]) == (2, "success")
        assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 0.5
        assert {sample["epoch"] for sample in log["samples"]} == {1, 2}
        assert all(sample["metadata"]["turn_id"] for sample in log["samples"])
        assert "MARKER" not in json.dumps(log)


def test_a_summary_of_100_000_rows_stays_small(tmp_path: Path, two_cells_run: Path) -> None:
    """Under 100 KB whatever the run holds."""
    path = tmp_path / "big"
    manifest = read_manifest(two_cells_run)
    manifest.data.selected = 25_000
    attempt = Attempt(
        step=0,
        started_at="2026-01-01T00:00:00.000Z",
        latency_ms=12.5,
        outcome="answered",
        cost=0.0003,
    )
    row = FullRow(
        run_id=manifest.run_id,
        cell="plain",
        model="m",
        item_id="q0",
        epoch=0,
        control=False,
        turn_id="t",
        trace_id="t",
        outcome="ok",
        model_answer="It is pear 0.",
        requested_model="m",
        attempts=(attempt,),
        reasoning_content="so",
        reasoning_content_chars=2,
        scores={"right": 1.0},
        started_at="2026-01-01T00:00:00.000Z",
    )
    with RunFolder(path) as folder:
        write_manifest(folder, manifest)
        write_items(folder, [Item(item_id="q0", question="q")], Cleaner((), b"k"))
        assert (path / ITEMS).exists()
    lines = encoded(row)
    other = encoded(msgspec.structs.replace(row, cell="wordy"))
    (path / ROWS).write_bytes((lines + other) * 50_000)

    raw = write_summary(path, summarise(path, read_run(path)))

    assert json.loads(raw)["found"]["rows"] == 100_000
    assert len(raw) == (path / SUMMARY).stat().st_size < BYTES_MAX


def test_groups_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    """A grid of very many cells is cut, and the cut is told."""
    groups = [{"cell": f"c{n}", "text": "x" * 500} for n in range(1000)]
    summary = {"found": {"groups": groups}, "timing": [{}] * 1000}

    raw = write_summary(tmp_path, summary)

    found = json.loads(raw)["found"]
    assert len(raw) <= BYTES_MAX
    assert len(found["groups"]) + found["groups_left_out"] == 1000
