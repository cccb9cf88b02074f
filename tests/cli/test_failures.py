"""`everyturn failures` over the record of a real gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from everyturn.mock.script import Script
from everyturn.mock.server import MockProvider
from tests.cli.test_turns_and_show import everyturn
from tests.gateway.test_answers import DONE, FINISH, chunk
from tests.support.gateway import running_gateway


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A data folder: two good calls, two errors of one kind, one of another; the failed turns."""
    data = tmp_path_factory.mktemp("record") / "data"
    refusal = Script.whole(429, body=b'{"error":{"message":"no"}}')

    async def fill() -> list[str]:
        async with MockProvider() as mock:
            models = [
                {"name": name, "preset": "generic-strict", "base_url": mock.url}
                for name in ("good", "limited", "cut")
            ]
            mock.add("good", Script.sse([chunk(content="a"), FINISH, DONE]))
            mock.add("limited", refusal)
            mock.add("cut", Script.sse([chunk(content="a")]))
            async with running_gateway(models, data) as running:
                ids = []
                for name in ("good", "limited", "cut", "limited", "good"):
                    answer = await running.chat(name, stream=True)
                    if name != "good":
                        ids.append(answer.headers["x-everyturn-turn-id"])
                return ids

    return data, asyncio.run(fill())


def groups(*arguments: str) -> list[dict[str, Any]]:
    """The groups that the command lists."""
    told = everyturn("failures", "--json", *arguments)
    assert told.exit_code == 0, told.output
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_failed_calls_are_grouped(record: tuple[Path, list[str]]) -> None:
    """The largest group first, each with its first and last time and the last one's ids."""
    data, ids = record
    found = groups("--data", str(data))

    assert [(g["model"], g["route"], g["count"]) for g in found] == [
        ("limited", "limited", 2),
        ("cut", "cut", 1),
    ]
    assert [g["error_code"] for g in found] == [
        "upstream_rejected",
        "upstream_stream_incomplete",
    ]
    assert [g["turn_id"] for g in found] == [ids[2], ids[1]]
    assert found[0]["first"] < found[0]["last"]
    assert found[1]["first"] == found[1]["last"]
    shown = json.loads(everyturn("show", ids[2], "--data", str(data), "--json").stdout)
    assert found[0]["trace_id"] == shown["turn"]["trace_id"]


def test_a_group_is_what_was_asked_for(record: tuple[Path, list[str]]) -> None:
    """`--by` names the members of a group; `--since` leaves older calls out."""
    data, _ = record

    by_code = groups("--data", str(data), "--by", "error_code")
    all_of_it = groups("--data", str(data), "--by", "error_code,model", "--since", "1h")
    later = groups("--data", str(data), "--since", "2999-01-01T00:00:00Z")

    assert [list(g)[:2] for g in by_code] == [["error_code", "count"]] * 2
    assert [list(g)[:2] for g in all_of_it] == [["error_code", "model"]] * 2
    assert later == []


def test_failures_for_a_person(record: tuple[Path, list[str]]) -> None:
    """One line a group, the whole turn id on it."""
    data, ids = record
    told = everyturn("failures", "--data", str(data))

    lines = told.stdout.splitlines()
    assert lines[0].split()[:4] == ["count", "model", "route", "error_code"]
    assert lines[1].split()[:4] == ["2", "limited", "limited", "upstream_rejected"]
    assert ids[2] in lines[1]


@pytest.mark.parametrize("by", ["", ",", "colour", "model,colour"])
def test_what_cannot_be_grouped_by_is_bad_use(by: str) -> None:
    """The message names what can be."""
    refused = everyturn("failures", "--by", by)

    assert refused.exit_code == 2
    assert "model,route,error_code" in refused.stderr


def test_no_failures_and_no_record(tmp_path: Path) -> None:
    """Without a record the command says so and ends with 1."""
    nowhere = everyturn("failures", "--data", str(tmp_path))

    assert nowhere.exit_code == 1
    assert "no records here" in nowhere.stderr
