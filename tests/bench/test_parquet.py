"""Parquet: items that are read, runs that are written, and the extra that may not be there."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from everyturn.bench import parquet_export
from everyturn.bench.exporting import jsonl
from everyturn.bench.folder import ROWS, RunRefused
from everyturn.bench.grid import Data
from everyturn.bench.items import Item, load_items
from everyturn.bench.parquet_export import write_parquet
from everyturn.bench.rows import FullRow, encoded, read_rows
from everyturn.bench.viewing import Joined
from everyturn.cli.main import main
from everyturn.errors import ConfigError
from tests.bench.test_report import half
from tests.support.bench import bench, questions, speech

GOOD = {"item_id": ["a", "b"], "question": ["q", "r"]}


def written(folder: Path, columns: dict[str, Any], **how: Any) -> Data:
    """A Parquet file of items."""
    pq.write_table(pa.table(columns), folder / "items.parquet", **how)
    return Data(path=str(folder / "items.parquet"))


def faults(data: Data) -> list[tuple[int, str]]:
    """Row and fault of each thing that is wrong with a data set."""
    with pytest.raises(ConfigError) as refused:
        load_items(data, seed=0)
    assert refused.value.path == data.path
    return [(row, what) for row, _, what, _ in refused.value.faults]


def test_rows_are_items(tmp_path: Path) -> None:
    """A list or one text is expected; other columns are attributes; a null is a missing member."""
    columns = {
        "item_id": [1, 2],
        "question": ["a?", "b?"],
        "expected": [["x", "y"], None],
        "context": ["", None],
        "category": pa.array(["rare", None]).dictionary_encode(),
        "level": [3, None],
        "attributes": [{"by": "me", "when": None}, None],
    }

    found = load_items(written(tmp_path, columns), seed=0)

    assert found.items == (
        Item(
            item_id="1",
            question="a?",
            expected=("x", "y"),
            context="",
            category="rare",
            attributes={"by": "me", "when": None, "level": 3},
        ),
        Item(item_id="2", question="b?"),
    )
    one_text = written(tmp_path, {**GOOD, "expected": ["x|y", "z"]})
    assert [item.expected for item in load_items(one_text, seed=0).items] == [("x|y",), ("z",)]


ITEMS = st.lists(
    st.builds(
        Item,
        item_id=st.text(min_size=1, max_size=8),
        question=st.text(min_size=1, max_size=8),
        expected=st.lists(st.text(max_size=5), max_size=3).map(tuple),
        context=st.none() | st.text(max_size=5),
        cluster=st.none() | st.text(max_size=5),
        attributes=st.dictionaries(st.text(max_size=4), st.none() | st.text(max_size=4)),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda item: item.item_id,
)


@settings(max_examples=50, deadline=None)
@given(ITEMS, st.integers(1, 3))
def test_items_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, items: list[Item], group: int
) -> None:
    """Whatever the texts and the row groups; a map of attributes keeps null and absent apart."""
    folder = tmp_path_factory.mktemp("items")
    rows = [msgspec.to_builtins(item) for item in items]
    text = pa.string()
    schema = pa.schema(
        [(name, text) for name in ("item_id", "question", "context", "cluster")]
        + [("expected", pa.list_(text)), ("attributes", pa.map_(text, text))]
    )
    for row in rows:
        row["expected"] = list(row["expected"])
        row["attributes"] = list(row["attributes"].items())
    table = pa.Table.from_pylist(rows, schema)
    pq.write_table(table, folder / "items.parquet", row_group_size=group)

    found = load_items(Data(path=str(folder / "items.parquet")), seed=0)

    assert list(found.items) == items


@pytest.mark.parametrize(
    "columns, row, said",
    [
        ({"item_id": ["a", "a"]}, 2, "has the `item_id` of row 1"),
        ({"item_id": ["a", None]}, 2, "item_id"),
        ({"question": ["q", ""]}, 2, "must not be empty"),
        ({"expected": [["x"], ["y", None]]}, 2, "expected"),
        ({"cluster": [None, 7]}, 2, "cluster"),
        ({"level": [1.0, float("nan")]}, 2, "`level` holds a number that is not finite"),
        ({"level": [1, 2], "attributes": [None, {"level": 1}]}, 2, "in `attributes` too"),
        ({"attributes": ["{}", None]}, 1, "attributes"),
        ({"made": pa.array([1, 2], pa.timestamp("us"))}, 0, "`made` of type timestamp[us]"),
        ({"made": pa.array([b"1", b"2"])}, 0, "`made` of type binary"),
    ],
)
def test_a_row_that_is_no_item_is_refused_with_its_number(
    tmp_path: Path, columns: dict[str, Any], row: int, said: str
) -> None:
    """The file, the row from 1, and what is wrong; a type that JSON has not is the file's fault."""
    ((at, what),) = faults(written(tmp_path, {**GOOD, **columns}))

    assert (at, said in what) == (row, True), what


def test_a_text_that_is_no_text_is_refused_with_its_row(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 in a column of texts; the rows beside it are not blamed."""
    broken = pa.array([b"q", b"\xff", b"s"]).view(pa.string())
    data = written(tmp_path, {"item_id": ["a", "b", "c"], "question": broken})

    ((at, what),) = faults(data)

    assert (at, "`question` cannot be read" in what) == (2, True), what


def test_columns_that_are_missing_or_twice_are_told(tmp_path: Path) -> None:
    """Two columns of one name would be one in an item."""
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["item_id", "item_id"])
    pq.write_table(table, tmp_path / "items.parquet")

    found = faults(Data(path=str(tmp_path / "items.parquet")))

    assert found == [(0, "has two columns `item_id`."), (0, "has no column `question`.")]


@pytest.mark.parametrize("raw", [b"", b"PAR1", b"PAR1" + b"\0" * 64 + b"PAR1", b'{"item_id": "a"}'])
def test_what_is_no_parquet_is_refused(tmp_path: Path, raw: bytes) -> None:
    """Whatever the name says."""
    (tmp_path / "items.parquet").write_bytes(raw)

    ((at, what),) = faults(Data(path=str(tmp_path / "items.parquet")))

    assert (at, what.startswith("is no Parquet file")) == (0, True), what


def test_a_page_that_was_damaged_is_refused_with_the_row_it_begins_at(tmp_path: Path) -> None:
    """What stands before it is not taken for the whole."""
    ids = [f"item-{number}" for number in range(4000)]
    data = written(tmp_path, {"item_id": ids, "question": ids}, row_group_size=2048)
    path = Path(data.path)
    raw = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(0).dictionary_page_offset
    raw[start : start + 400] = b"\xff" * 400
    path.write_bytes(raw)

    ((at, what),) = faults(data)

    assert (at, what.startswith("is no Parquet file")) == (2049, True), what


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without pyarrow."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)


async def test_a_run_goes_to_parquet_and_back(tmp_path: Path) -> None:
    """Each row is what JSONL has of it, types and nulls included; no reasoning; the same bytes."""
    async with bench(tmp_path) as made:
        made.items(questions(6, context="plums"))
        made.answers("m", lambda q, ask: speech("<think>MARKER</think>no", reasoning="MARKER"))
        await made.run(made.grid(epochs=2))
    joined = Joined(tmp_path / "run")

    arguments = ["bench", "export", "run", "--format", "parquet", "--out"]
    done = [
        CliRunner().invoke(main, [*arguments[:2], str(tmp_path / "run"), *arguments[3:], str(out)])
        for out in (tmp_path / "one.parquet", tmp_path / "two.parquet")
    ]

    assert [(one.exit_code, one.output) for one in done] == [(0, "")] * 2
    raw = (tmp_path / "one.parquet").read_bytes()
    assert raw == (tmp_path / "two.parquet").read_bytes()
    table = pq.read_table(tmp_path / "one.parquet")
    assert table.to_pylist(maps_as_pydicts="strict") == [json.loads(x) for x in jsonl(joined)]
    assert len(table) == 12
    assert "reasoning_content" not in table.column_names
    assert "MARKER" not in str(table.to_pylist())
    kinds = {field.name: (str(field.type), field.nullable) for field in table.schema}
    assert kinds["cost"] == ("double", True)
    assert kinds["epoch"] == ("int64", False)
    assert kinds["control"] == ("bool", False)
    assert kinds["judge_verdict"] == ("string", True)
    assert kinds["scores"][0].startswith("map<string, double")
    assert (tmp_path / "one.parquet").stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".*.new"))


@pytest.fixture
async def run(tmp_path: Path) -> Path:
    """A run of four rows."""
    async with bench(tmp_path) as made:
        made.items(questions(4))
        made.answers("m", half)
        await made.run(made.grid())
    return tmp_path / "run"


def put(path: Path, *rows: FullRow) -> Joined:
    """The run with other rows."""
    (path / ROWS).write_bytes(b"".join(map(encoded, rows)))
    return Joined(path)


async def test_null_absent_and_empty_stay_three_things(run: Path) -> None:
    """A score that is null, one that is absent, an empty text, none; a zero, none."""
    row = next(read_rows(run / ROWS, include_reasoning=True))
    changed = [
        msgspec.structs.replace(row, scores={"right": None}, model_answer="", cost=0.0),
        msgspec.structs.replace(row, epoch=1, scores={}, model_answer=None, cost=None),
    ]

    write_parquet(put(run, *changed), run.parent / "x.parquet")

    found = pq.read_table(run.parent / "x.parquet")
    assert found["scores"].to_pylist() == [[("right", None)], []]
    assert found["model_answer"].to_pylist() == ["", None]
    assert found["cost"].to_pylist() == [0.0, None]


async def test_row_groups_are_bounded_by_rows_and_by_bytes(run: Path) -> None:
    """A run is never whole in memory."""
    row = next(read_rows(run / ROWS, include_reasoning=True))
    short = [msgspec.structs.replace(row, epoch=number) for number in range(10_001)]
    write_parquet(put(run, *short), run.parent / "rows.parquet")
    long = [
        msgspec.structs.replace(row, epoch=number, model_answer="x" * 12_000_000)
        for number in range(4)
    ]
    write_parquet(put(run, *long), run.parent / "bytes.parquet")

    def groups(name: str) -> list[int]:
        found = pq.read_metadata(run.parent / name)
        return [found.row_group(at).num_rows for at in range(found.num_row_groups)]

    assert groups("rows.parquet") == [10_000, 1]
    assert groups("bytes.parquet") == [3, 1]


async def test_a_run_without_rows_has_its_columns(run: Path) -> None:
    """An empty table with every column."""
    write_parquet(put(run), run.parent / "none.parquet")

    assert pq.read_table(run.parent / "none.parquet").num_rows == 0
    assert "judge_rationale" in pq.read_schema(run.parent / "none.parquet").names


async def test_a_value_that_fits_no_column_leaves_the_file_as_it_was(run: Path) -> None:
    """The row is named; nothing half-written stays, and what was there before does."""
    row = next(read_rows(run / ROWS, include_reasoning=True))
    out = run.parent / "x.parquet"
    out.write_bytes(b"before")
    rows = [row, msgspec.structs.replace(row, epoch=1, prompt_tokens=2**63)]

    with pytest.raises(RunRefused, match=r"x.parquet .* plain/m, item q0, epoch 1 fits no column"):
        write_parquet(put(run, *rows), out)

    assert out.read_bytes() == b"before"
    assert not list(out.parent.glob(".*.new"))


@pytest.mark.usefixtures("absent")
async def test_without_pyarrow_the_extra_is_named(run: Path, tmp_path: Path) -> None:
    """Reading and writing say what to install; the other formats do not need it."""
    (tmp_path / "items.parquet").write_bytes(b"PAR1")

    with pytest.raises(ConfigError, match=r"pip install everyturn\[parquet\]"):
        load_items(Data(path=str(tmp_path / "items.parquet")), seed=0)
    out = ["--out", str(tmp_path / "x")]
    wanted = CliRunner().invoke(main, ["bench", "export", str(run), "--format", "parquet", *out])
    other = CliRunner().invoke(main, ["bench", "export", str(run), "--format", "jsonl", *out])

    assert wanted.exit_code == 1
    assert "pip install everyturn[parquet]" in wanted.stderr
    assert other.exit_code == 0
    assert len((tmp_path / "x").read_text().splitlines()) == 4


async def test_bad_use_of_export_is_told(run: Path) -> None:
    """Parquet needs a file; nothing takes the place of a pipe or a folder."""
    os.mkfifo(run.parent / "pipe")
    begin = ["bench", "export", str(run), "--format", "parquet"]
    for arguments, said in (
        (begin, "Name a file"),
        ([*begin, "--out", str(run.parent / "pipe")], "is no file"),
        ([*begin, "--out", str(run)], "is no file"),
    ):
        done = CliRunner().invoke(main, arguments)
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr


def test_each_member_of_a_row_has_a_column() -> None:
    """The schema is made from the type of a row, without the text of reasoning."""
    names = set(parquet_export._schema(pa).names)

    assert names >= set(FullRow.__struct_fields__) - {"reasoning_content"}
    assert "reasoning_content" not in names
