"""Grids and data sets are read strictly: each fault with its line and what to do."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pytest

from everyturn.bench.grid import Data
from everyturn.bench.items import Item, load_documents, load_items
from everyturn.bench.scorers import score
from everyturn.errors import ConfigError
from tests.bench.test_judging import judging
from tests.support.bench import read

GRID = """\
[run]
gateway = "http://127.0.0.1:8080/v1"
budget = 0.1
[data]
path = "items.jsonl"
[[models]]
name = "m"
price = { input = 0.1, output = 0.3 }
[[cells]]
name = "plain"
kind = "no-context"
[[cells]]
name = "wordy"
kind = "verbose-fixed"
[[scorers]]
name = "right"
kind = "contains"
"""


def test_a_grid_is_read(tmp_path: Path) -> None:
    """Defaults, exact amounts, and paths relative to the file."""
    grid = read(GRID, tmp_path / "grid.toml")

    assert grid.budget == Decimal("0.1")
    assert grid.models[0].price is not None
    assert grid.models[0].price.input == Decimal("0.1")
    assert grid.models[0].model == "m"
    assert grid.data.path == str(tmp_path / "items.jsonl")
    assert [cell.control for cell in grid.cells] == [False, True]
    assert grid.calls == 2


@pytest.mark.parametrize(
    "old, new, line, said",
    [
        ("budget = 0.1", "budgte = 0.1", 3, "Did you mean `budget`?"),
        ("budget = 0.1", "budget = -1", 3, "at least 0"),
        ("budget = 0.1", 'budget = "1"', 3, "must be a number"),
        ("budget = 0.1", "epochs = true", 3, "whole number"),
        ('gateway = "http', 'gateway = "ftp', 2, "not an HTTP base URL"),
        ('path = "items.jsonl"', "", 4, "is missing"),
        ('kind = "no-context"', 'kind = "no-contxt"', 11, "must be one of"),
        ('kind = "no-context"', 'kind = "template"', 9, "is needed by the kind"),
        ('kind = "no-context"', 'kind = "no-context"\ntemplate = "x"', 12, "only for the kind"),
        ('name = "wordy"', 'name = "plain"', 13, "is given twice"),
        ('name = "wordy"', 'name = "../x"', 13, "is no name"),
        ('kind = "contains"', 'kind = "regex"\npattern = "("', 18, "no regular expression"),
        ('name = "m"', 'name = "m"\npin = "revision"', 8, "needs `revision`"),
        ('name = "m"', 'name = "m"\nbody = { model = "x" }', 8, "set by the harness"),
        ("price = { input = 0.1, output = 0.3 }", "price = { input = 1 }", 8, "is missing"),
        ("[data]", "[date]", 4, "Did you mean `data`?"),
        ("[run]", "[run", 1, "line 1"),
    ],
)
def test_a_fault_has_its_line(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    """Unknown keys, wrong types and contradictions are refused, with what to do."""
    assert old in GRID
    with pytest.raises(ConfigError) as refused:
        read(GRID.replace(old, new, 1), tmp_path / "grid.toml")

    assert any(
        at == line and said in f"{what} {hint}" for at, _, what, hint in refused.value.faults
    )


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    """A file with three faults is refused once, with three lines."""
    text = GRID.replace("budget", "budgte").replace("name = ", "nome = ").replace("path", "pith")
    with pytest.raises(ConfigError) as refused:
        read(text, tmp_path / "grid.toml")

    assert len(refused.value.faults) >= 3


def data(tmp_path: Path, text: str, name: str = "items.jsonl", **more: object) -> Data:
    """A data set of one file."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    return Data(path=str(tmp_path / name), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line, said",
    [
        ('{"item_id": "b", "question": "q"', "no JSON"),
        ("[1]", "no JSON object"),
        ('{"item_id": "b"}', "question"),
        ('{"item_id": "", "question": "q"}', "must not be empty"),
        ('{"item_id": "a", "question": "q"}', "has the `item_id` of line 1"),
        ('{"item_id": "b", "question": "q", "anser": "x"}', "put it into `attributes`"),
        ('{"item_id": "b", "question": "q", "expected": 7}', "expected"),
    ],
)
def test_a_malformed_line_is_refused_with_its_number(tmp_path: Path, line: str, said: str) -> None:
    """Nothing is skipped: the line and what is wrong with it are told."""
    text = f'{{"item_id": "a", "question": "q"}}\n\n{line}\n'
    with pytest.raises(ConfigError) as refused:
        load_items(data(tmp_path, text), seed=0)

    assert [(at, said in what) for at, _, what, _ in refused.value.faults] == [(3, True)]


def test_csv_is_the_same_data(tmp_path: Path) -> None:
    """Columns become members, others attributes; several expected answers are cut at `|`."""
    text = 'item_id,question,expected,level\n1,"a, b?",x|y,3\n2,c,,4\n'

    found = load_items(data(tmp_path, text, "items.csv"), seed=0)

    assert found.items == (
        Item(item_id="1", question="a, b?", expected=("x", "y"), attributes={"level": "3"}),
        Item(item_id="2", question="c", attributes={"level": "4"}),
    )


@pytest.mark.parametrize("text", ["item_id,question\n1,a,b\n", "item_id,question\n1\n"])
def test_a_csv_line_of_another_width_is_refused(tmp_path: Path, text: str) -> None:
    """A line with too many or too few fields is a fault, not a guess."""
    with pytest.raises(ConfigError, match=":2:"):
        load_items(data(tmp_path, text, "items.csv"), seed=0)


def test_a_csv_column_of_attributes_is_refused(tmp_path: Path) -> None:
    """There each column of another name is an attribute; one for all of them would be lost."""
    with pytest.raises(ConfigError, match=r":2: .*`attributes` is no column"):
        load_items(data(tmp_path, "item_id,question,attributes\n1,a,b\n", "items.csv"), seed=0)


@pytest.mark.parametrize("name", ["items.xlsx", "absent.jsonl"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    """Another format or no file at all."""
    if name == "items.xlsx":
        (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(ConfigError):
        load_items(Data(path=str(tmp_path / name)), seed=0)


def test_a_sample_is_seeded_and_keeps_the_shares_of_categories(tmp_path: Path) -> None:
    """The same seed draws the same; by category each gets its share, in the order of the file."""
    lines = [
        f'{{"item_id": "{n}", "question": "q", "category": "{"rare" if n % 10 == 0 else "usual"}"}}'
        for n in range(100)
    ]
    chosen = data(tmp_path, "\n".join(lines), sample=20, by="category")

    first, again, other = (load_items(chosen, seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert first.ids_sha256 != other.ids_sha256
    assert sum(item.category == "rare" for item in first.items) == 2
    places = [int(item.item_id) for item in first.items]
    assert places == sorted(places)
    assert (len(places), first.total) == (20, 100)


def test_documents_of_a_file_or_of_the_contexts(tmp_path: Path) -> None:
    """Without a file of documents the contexts are searched, each once."""
    items = [
        Item(item_id="a", question="q", context="one", cluster="doc"),
        Item(item_id="b", question="q", context="one", cluster="doc"),
        Item(item_id="c", question="q", context="two"),
    ]
    (tmp_path / "docs.jsonl").write_text('{"doc_id": "d", "text": "t"}\n', encoding="utf-8")

    of_contexts = load_documents(Data(path="x"), items)
    of_file = load_documents(Data(path="x", documents=str(tmp_path / "docs.jsonl")), items)

    assert [(one.doc_id, one.text) for one in of_contexts] == [("doc", "one"), ("c", "two")]
    assert [one.doc_id for one in of_file] == ["d"]
    (tmp_path / "docs.jsonl").write_text('{"doc_id": "d"}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=":1:"):
        load_documents(Data(path="x", documents=str(tmp_path / "docs.jsonl")), items)


@pytest.mark.parametrize(
    "kind, answer, expected, points",
    [
        ("exact", " 12 pears ", ["12 pears"], 1.0),
        ("exact", "12 Pears", ["12 pears"], 0.0),
        ("normalised", "The  Pears!", ["pears"], 1.0),
        ("normalised", "ＰＥＡＲＳ", ["pears"], 1.0),
        ("contains", "There are twelve pears.", ["Twelve"], 1.0),
        ("contains", "There are twelvefold pears.", ["twelve"], 0.0),
        ("contains", "anything", [""], 0.0),
        ("numeric", "It is 1,234.5 in all.", ["1234.5"], 1.0),
        ("numeric", "7 people, so 12.", ["12"], 1.0),
        ("numeric", "none", ["12"], 0.0),
        ("json", '```json\n{"b": 1, "a": [2]}\n```', ['{"a": [2], "b": 1}'], 1.0),
        ("json", "not json", ["{}"], 0.0),
        ("regex", "abc-12", [r"\w+-\d+"], 1.0),
        ("exact", "x", [], None),
        ("regex", "x", [], None),
        ("regex", "x", ["("], None),
    ],
)
def test_scorers(kind: str, answer: str, expected: list[str], points: float | None) -> None:
    """Each scorer, its limits, and None where there is nothing to compare with."""
    assert score(kind, answer, expected) == points


def test_a_tolerance_and_a_pattern_of_the_scorer() -> None:
    """Numbers may be off by the tolerance; a pattern of the scorer stands for all items."""
    assert score("numeric", "about 12.4", ["12"], tolerance=0.5) == 1.0
    assert score("numeric", "about 12.6", ["12"], tolerance=0.5) == 0.0
    assert score("regex", "yes, indeed", [], pattern="^yes") == 1.0


def test_the_examples_of_the_guide_are_right(tmp_path: Path) -> None:
    """The grid and the judges that the guide shows are read without a fault."""
    page = Path(__file__).parents[2] / "docs" / "guide" / "bench.md"
    found = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    grids = [text for text in found if "[[cells]]" in text]
    judges = [text for text in found if "[[judges]]" in text]
    pairs = [text for text in found if "[pairwise]" in text]

    assert read(grids[0], tmp_path / "grid.toml").models[0].thinking is True
    assert judging(judges[0]).breaker == "judge-c"
    assert judging(pairs[0] + '[[judges]]\nname = "j"\n').pair == ("alone/small", "alone/large")
