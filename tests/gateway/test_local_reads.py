"""A local read of reasoning is an access record, or it does not take place."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from everyturn.cli.main import main
from everyturn.store.local_reads import FOLDER, WAITING_MAX
from tests.gateway.test_kept_reasoning import KEEP, thought, whole
from tests.gateway.test_lifecycle import until
from tests.support.gateway import Running, gateway_and_mock

ROUTE = "everyturn show --include-reasoning"


async def a_turn_with_reasoning(running: Running, mock: Any) -> str:
    """The id of a turn whose reasoning is kept."""
    mock.add("m", whole({"reasoning_content": thought(1), "content": "a"}))
    return str((await running.chat("m")).headers["x-everyturn-turn-id"])


def shown(data: Path, turn_id: str) -> Result:
    """What `show` prints of a turn and its reasoning."""
    return CliRunner().invoke(main, ["show", turn_id, "--data", str(data), "--include-reasoning"])


def waiting(data: Path) -> list[Path]:
    """The notes that wait."""
    return list((data / FOLDER).iterdir())


async def local_reads(running: Running, turn_id: str) -> list[Any]:
    """The access events of local reads that a turn has."""
    found = (await running.client.get(f"/turns/{turn_id}")).json()
    return [one for one in found["access_events"] if one["path_template"] == ROUTE]


async def test_a_read_beside_a_gateway_is_recorded_by_it(tmp_path: Path) -> None:
    """Also where the turn is named by its beginning; the note is gone when it is recorded."""
    data = tmp_path / "data"
    async with gateway_and_mock(data, "deepseek", extra=KEEP) as (running, mock):
        turn_id = await a_turn_with_reasoning(running, mock)
        result = await asyncio.to_thread(shown, data, turn_id[:13])
        await until(lambda: not waiting(data))
        (event,) = await local_reads(running, turn_id)

    assert thought(1) in result.output
    assert (event["turn_id"], event["method"]) == (turn_id, "CLI")
    assert event["principal"] == "local operator"


async def test_a_read_without_a_gateway_is_recorded_by_the_next_one(tmp_path: Path) -> None:
    """The note waits on disk, for its owner alone; what is no note is put aside and told."""
    data = tmp_path / "data"
    async with gateway_and_mock(data, "deepseek", extra=KEEP) as (running, mock):
        turn_id = await a_turn_with_reasoning(running, mock)
    result = shown(data, turn_id)
    (note,) = waiting(data)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (note.parent, note)]
    (data / FOLDER / "acc_0.json").write_text('{"turn_id": 7}', encoding="utf-8")
    async with gateway_and_mock(data, "deepseek", extra=KEEP) as (running, _):
        await until(lambda: [path.name for path in waiting(data)] == ["acc_0.refused"])
        events = await local_reads(running, turn_id)
        log = running.log_lines

    assert thought(1) in result.output
    assert modes == [0o700, 0o600]
    assert [event["access_id"] for event in events] == [note.stem]
    told = [line["reason"] for line in log if line["event"] == "record.read_refused"]
    assert told == ["acc_0.json"]


def in_the_way(folder: Path) -> None:
    """A file where the notes should be."""
    folder.write_bytes(b"")


def full(folder: Path) -> None:
    """As many notes as may wait."""
    folder.mkdir()
    for number in range(WAITING_MAX):
        (folder / f"acc_{number}.json").touch()


@pytest.mark.parametrize("fault", [in_the_way, full])
async def test_what_cannot_be_noted_is_not_read(
    tmp_path: Path, fault: Callable[[Path], None]
) -> None:
    """The command says why, and shows nothing of the turn."""
    data = tmp_path / "data"
    async with gateway_and_mock(data, "deepseek", extra=KEEP) as (running, mock):
        turn_id = await a_turn_with_reasoning(running, mock)
    fault(data / FOLDER)

    result = shown(data, turn_id)

    assert result.exit_code == 1
    assert result.stdout == ""
    assert FOLDER in result.stderr
    assert thought(1) not in result.output
