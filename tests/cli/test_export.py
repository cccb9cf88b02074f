"""`everyturn export` over a small store."""

from __future__ import annotations

import fcntl
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from everyturn.audit import schema
from everyturn.store.export import last_whole_day
from everyturn.store.sqlite import SqliteStore
from tests.cli.test_turns_and_show import everyturn
from tests.store.test_export import fill


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a turn on each of two days."""
    store = SqliteStore(tmp_path / "data")
    fill(store, days=2)
    store.close()
    return store.folder


def test_paths_go_to_stdout(data: Path, tmp_path: Path) -> None:
    """One path a line, counts beside; `--table` narrows it."""
    out = tmp_path / "out"
    all_of_it = everyturn("export", "--day", "2026-03-01", "--data", str(data), "--out", str(out))
    one = everyturn(
        "export", "--day", "2026-03-02", "--table", "turn_audit",
        "--data", str(data), "--out", str(out),
    )  # fmt: skip

    assert all_of_it.exit_code == 0, all_of_it.output
    paths = [Path(line) for line in all_of_it.stdout.splitlines()]
    assert [path.name for path in paths] == [f"{log.name}-2026-03-01.jsonl" for log in schema.LOGS]
    assert all(path.is_file() for path in paths)
    assert one.stdout == f"{out}/turn_audit-2026-03-02.jsonl\n"
    assert "1 row\n" in one.stderr


def test_a_day_as_spans(data: Path, tmp_path: Path) -> None:
    """`--format otlp` writes one file of a day, and `show --otlp` the same of one turn."""
    out = tmp_path / "out"
    written = everyturn(
        "export", "--format", "otlp", "--day", "2026-03-01", "--data", str(data), "--out", str(out)
    )
    (line,) = (out / "spans-2026-03-01.jsonl").read_text("utf-8").splitlines()
    turn_id = re.search(r'"everyturn.turn_id","value":{"stringValue":"([^"]+)"', line)
    assert turn_id is not None
    shown = everyturn("show", "--otlp", turn_id[1], "--data", str(data))

    assert written.exit_code == 0, written.output
    assert written.stdout == f"{out}/spans-2026-03-01.jsonl\n"
    assert "1 line\n" in written.stderr
    assert json.loads(shown.stdout) == json.loads(line)


def test_missed_days(tmp_path: Path) -> None:
    """Every day since the oldest turn, then none."""
    last = last_whole_day(datetime.now(UTC))
    store = SqliteStore(tmp_path / "data")
    fill(store, days=2, first=last - timedelta(days=1))
    store.close()
    arguments = ("export", "--missed", "--data", str(store.folder), "--out", str(tmp_path / "out"))
    first, again = everyturn(*arguments), everyturn(*arguments)

    assert f"turn_audit-{last - timedelta(days=1)}.jsonl" in first.stdout
    assert f"turn_audit-{last}.jsonl" in first.stdout
    assert len(first.stdout.splitlines()) == 2 * len(schema.LOGS)
    assert (again.exit_code, again.stdout) == (0, "")
    assert again.stderr == "No day is missing.\n"


@pytest.mark.parametrize("days", [0, 1])
def test_a_day_that_is_not_over_is_refused(data: Path, tmp_path: Path, days: int) -> None:
    """Today and what comes after are no whole days, and nothing is written."""
    day = (datetime.now(UTC) + timedelta(days=days)).date().isoformat()
    out = tmp_path / "out"
    refused = everyturn("export", "--day", day, "--data", str(data), "--out", str(out))

    assert refused.exit_code == 2
    assert "is not over: only whole days of UTC" in refused.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--day", "yesterday"),
        ("--day", "20260301"),
        ("--day", "2026-02-30"),
        ("--day", "2026-03-01", "--missed"),
        ("--day", "2026-03-01", "--table", "reasoning_texts"),
        ("--missed", "--table", "turn_audit"),
        ("--missed", "--format", "otlp"),
        ("--day", "2026-03-01", "--format", "otlp", "--table", "turn_audit"),
    ],
)
def test_bad_use(data: Path, arguments: tuple[str, ...]) -> None:
    """What is no day, no table or both ways at once is said before anything is read."""
    refused = everyturn("export", *arguments, "--data", str(data))

    assert refused.exit_code == 2
    assert refused.stderr


def test_where_nothing_can_be_written(data: Path, tmp_path: Path) -> None:
    """A folder that cannot be made, and a file that another export writes, end with 1."""
    (tmp_path / "file").write_bytes(b"")
    arguments = ("export", "--day", "2026-03-01", "--table", "turn_audit", "--data", str(data))
    no_folder = everyturn(*arguments, "--out", str(tmp_path / "file" / "out"))
    (tmp_path / "out").mkdir()
    with open(tmp_path / "out" / ".turn_audit-2026-03-01.jsonl.part", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        busy = everyturn(*arguments, "--out", str(tmp_path / "out"))
    nowhere = everyturn("export", "--missed", "--data", str(tmp_path / "none"))

    assert (no_folder.exit_code, busy.exit_code, nowhere.exit_code) == (1, 1, 1)
    assert "cannot be written" in no_folder.stderr
    assert "Another export writes this file" in busy.stderr
    assert "no records here" in nowhere.stderr
