"""The commands of the runbook, over a record that the scripted provider filled."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sqlite3
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from everyturn.audit import schema
from everyturn.mock.script import Script
from everyturn.store.export import export_day
from tests.cli.test_turns_and_show import CALL, everyturn
from tests.gateway.test_answers import DONE, FINISH, chunk
from tests.support.gateway import gateway_and_mock
from tests.support.store_records import bytes_of

ROOT = Path(__file__).resolve().parent.parent.parent
RUNBOOK = (ROOT / "docs" / "runbooks" / "observability.md").read_text(encoding="utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```sh\n(.*?)```", RUNBOOK, re.DOTALL)
    for line in block.splitlines()
]
MARKER = "deliberationmarker"
YESTERDAY = datetime.now(UTC).date() - timedelta(days=1)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A data folder with a good turn and one that broke off, reasoning kept; the good one's id."""
    data = tmp_path_factory.mktemp("runbook") / "everyturn-data"

    async def fill() -> str:
        extra = '[reasoning]\nstore = "keep"'
        async with gateway_and_mock(data, "deepseek", extra=extra) as (running, mock):
            thought = chunk(reasoning_content=f"{MARKER} hm")
            answer = [thought, chunk(content="within thirty days"), chunk(tool_calls=[CALL])]
            mock.add("m", Script.sse([*answer, FINISH, DONE]))
            messages = [{"role": "user", "content": "what is the refund policy?"}]
            good = await running.chat("m", messages=messages, stream=True)
            mock.add("m", Script.sse(answer))
            await running.chat("m", stream=True)
        return good.headers["x-everyturn-turn-id"]

    return data, asyncio.run(fill())


def test_the_runbook_has_commands() -> None:
    """Each command line is one of ours or SQL."""
    assert len(COMMANDS) > 15
    assert {shlex.split(line)[0] for line in COMMANDS} == {"everyturn", "sqlite3"}


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_runbook_works(
    record: tuple[Path, str], tmp_path: Path, line: str
) -> None:
    """It ends well on a real record, and shows none of the reasoning that is kept there."""
    data, turn_id = record
    filled = {"TURN_ID": turn_id, "TRACE_ID": "0" * 32, "MODEL": "m", "DAY": YESTERDAY.isoformat()}
    program, *arguments = (
        re.sub("|".join(filled), lambda name: filled[name[0]], word) for word in shlex.split(line)
    )
    if program == "sqlite3":
        with sqlite3.connect(f"file:{data}/everyturn.db?mode=ro", uri=True) as db:
            db.execute(arguments[1]).fetchall()
        db.close()
        return
    arguments = [str(tmp_path) if word == "reports/observability" else word for word in arguments]

    told = everyturn(*arguments, "--data", str(data))

    assert told.exit_code == 0, told.output
    assert MARKER not in told.output


def test_the_runbook_leads_to_the_turn(record: tuple[Path, str]) -> None:
    """By its words, and by the failure of the other one."""
    data, turn_id = record
    told = everyturn("find", "refund policy", "--json", "--data", str(data))
    failed = everyturn("failures", "--json", "--data", str(data))

    assert [json.loads(line)["turn_id"] for line in told.stdout.splitlines()] == [turn_id]
    (group,) = [json.loads(line) for line in failed.stdout.splitlines()]
    assert group["error_code"] == "upstream_stream_incomplete"
    assert group["turn_id"] != turn_id


def test_kept_reasoning_is_in_no_export_and_no_index(
    record: tuple[Path, str], tmp_path: Path
) -> None:
    """Files of a day and the index hold none of it; the record does, in its own table."""
    data, _ = record
    days: set[date] = {datetime.now(UTC).date(), YESTERDAY}
    for day in days:
        assert len(list(export_day(data, day, tmp_path / "out"))) == len(schema.LOGS)
    found = everyturn("find", MARKER, "--data", str(data))

    assert found.stdout == ""
    assert b"refund policy" in bytes_of(tmp_path / "out")
    assert MARKER.encode() not in bytes_of(tmp_path / "out")
    index = b"".join(path.read_bytes() for path in data.glob("search.db*"))
    assert index
    assert MARKER.encode() not in index
    assert MARKER.encode() in bytes_of(data)
