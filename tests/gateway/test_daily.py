"""The daily export beside a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

import msgspec

from everyturn.audit import schema
from everyturn.gateway.daily import DailyExport
from everyturn.gateway.log import Log
from everyturn.store.export import MARKER_NAME, exported_through, last_whole_day
from everyturn.store.sqlite import SqliteStore
from tests.store.test_export import fill
from tests.support.gateway import gateway_and_mock

LAST = last_whole_day(datetime.now(UTC))


async def until(is_so: Callable[[], bool]) -> None:
    """Poll until something is so."""
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.02)


def a_record(folder: Path, *, days: int) -> Path:
    """A data folder with a turn on each of the last days that are over."""
    store = SqliteStore(folder)
    fill(store, days=days, first=LAST - timedelta(days=days - 1))
    store.close()
    return folder


async def test_serve_writes_the_days_it_missed(tmp_path: Path) -> None:
    """With `daily`, files of all days since the oldest turn appear, and the metrics count it."""
    data, out = a_record(tmp_path / "data", days=2), tmp_path / "out"
    extra = f'[export]\ndaily = true\nfolder = "{out}"'

    async with gateway_and_mock(data, extra=extra) as (running, _):
        await until(lambda: "export.written" in {line["event"] for line in running.log_lines})
        metrics = (
            await running.client.get(f"http://127.0.0.1:{running.gateway.port}/metrics")
        ).text

    days = {path.name.removeprefix("turn_audit-") for path in out.glob("turn_audit-*")}
    assert {f"{LAST}.jsonl", f"{LAST - timedelta(days=1)}.jsonl"} == days
    assert len(list(out.glob(f"*-{LAST}.jsonl"))) == len(schema.LOGS)
    assert exported_through(out) == LAST
    assert f"\neveryturn_export_files_total {2 * len(schema.LOGS)}\n" in metrics
    assert "\neveryturn_export_failures_total 0\n" in metrics


async def test_without_daily_nothing_is_written(tmp_path: Path) -> None:
    """A gateway exports nothing unless it is told to."""
    data = a_record(tmp_path / "data", days=1)

    async with gateway_and_mock(data) as (running, _):
        await running.chat("m")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "data.key"]


async def test_a_failure_is_counted_logged_and_tried_again(tmp_path: Path) -> None:
    """Where the folder cannot be made, each try says so; once it can, the days are there."""
    data = a_record(tmp_path / "data", days=1)
    (tmp_path / "file").write_bytes(b"")
    log = BytesIO()
    export = DailyExport(data, tmp_path / "file" / "out", Log(out=log), retry_seconds=0.01)

    export.start()
    try:
        await until(lambda: export.failures >= 2)
        (tmp_path / "file").unlink()
        await until(lambda: export.files == len(schema.LOGS))
    finally:
        export.stop()

    lines = [msgspec.json.decode(line) for line in log.getvalue().splitlines()]
    assert [lines[0][name] for name in ("event", "reason", "count")] == [
        "export.failed",
        "exit status 1",
        1,
    ]
    assert lines[-1]["event"] == "export.written"
    assert exported_through(tmp_path / "file" / "out") == LAST


async def test_a_new_day_is_written_when_it_is_over(tmp_path: Path) -> None:
    """The thread looks at the clock by itself, and exports once a day."""
    data, out = a_record(tmp_path / "data", days=1), tmp_path / "out"
    now = datetime.now(UTC) - timedelta(days=1)
    looks = 0

    def clock() -> datetime:
        nonlocal looks
        looks += 1
        return now

    export = DailyExport(data, out, Log(is_on=False), clock=clock, check_seconds=0.01)
    export.start()
    try:
        await until(lambda: export.files == len(schema.LOGS) and looks > 5)
        assert export.files == len(schema.LOGS)
        (out / MARKER_NAME).unlink()  # So that there is something to write again.
        now += timedelta(days=1)
        await until(lambda: export.files == 2 * len(schema.LOGS))
    finally:
        export.stop()

    assert export.failures == 0
