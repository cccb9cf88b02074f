"""`everyturn find` over the record of a real gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from everyturn.audit.group import Group
from everyturn.mock.script import Script
from everyturn.store.search import SEARCH_NAME
from everyturn.store.sqlite import SqliteStore
from tests.cli.test_turns_and_show import CALL, everyturn
from tests.gateway.test_answers import DONE, FINISH, chunk
from tests.support.gateway import gateway_and_mock
from tests.support.store_records import a_tool_call, a_turn, bytes_of, closed_turn

SECRET = "sk-proj-FAKEfakeFAKEfake1234567890"
MARKER = "deliberationmarker"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A data folder with two turns, of which one reasons, and their ids."""
    data = tmp_path_factory.mktemp("record") / "data"

    async def fill() -> list[str]:
        ids = []
        async with gateway_and_mock(data, "deepseek") as (running, mock):
            answer = [chunk(reasoning_content=f"{MARKER} hm"), chunk(content="within \x1b[2J days")]
            mock.add("m", Script.sse([*answer, chunk(tool_calls=[CALL]), FINISH, DONE]))
            for text in (f"the refund policy, my key is {SECRET}", "Straße 退款政策"):
                messages = [{"role": "user", "content": text}]
                body = {"model": "m", "messages": messages, "stream": True}
                told = await running.client.post("/chat/completions", json=body)
                ids.append(told.headers["x-everyturn-turn-id"])
        return ids

    return data, asyncio.run(fill())


def found(data: Path, *arguments: str) -> list[dict[str, Any]]:
    """What the command finds."""
    told = everyturn("find", *arguments, "--json", "--data", str(data))
    assert told.exit_code == 0, told.output
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_turns_are_found_by_their_words(record: tuple[Path, list[str]]) -> None:
    """The ids, where the words stand, and what stands around them; the newest first."""
    data, ids = record
    (one,) = found(data, "refund policy")

    assert list(one) == ["turn_id", "trace_id", "timestamp", "outcome", "in", "excerpt"]
    assert (one["turn_id"], one["outcome"], one["in"]) == (ids[0], "success", ["user"])
    assert one["excerpt"].startswith("the refund policy, my key is [redacted:")
    shown = json.loads(everyturn("show", ids[0], "--data", str(data), "--json").stdout)
    assert one["trace_id"] == shown["turn"]["trace_id"]
    assert one["timestamp"] == shown["turn"]["timestamp"]
    assert [row["turn_id"] for row in found(data, "within")] == ids[::-1]
    assert [row["turn_id"] for row in found(data, "within", "--limit", "1")] == ids[:0:-1]
    assert [row["turn_id"] for row in found(data, "退款")] == ids[1:]
    assert found(data, "look_up", "--in", "tools")[0]["in"] == ["tools"]
    assert found(data, "look_up", "--in", "user,assistant") == []


def test_reasoning_and_secrets_are_not_found(record: tuple[Path, list[str]]) -> None:
    """Neither has a word in the index."""
    data, _ = record

    assert found(data, MARKER) == []
    assert found(data, SECRET) == []
    index = bytes_of(data)
    assert (data / SEARCH_NAME).exists()
    assert MARKER.encode() not in index
    assert b"FAKEfake" not in index
    assert b"fakefake" not in index


def test_found_for_a_person(record: tuple[Path, list[str]]) -> None:
    """One line a turn, safe for a terminal; nothing found is said on stderr."""
    data, ids = record
    told = everyturn("find", "within", "--data", str(data))
    nothing = everyturn("find", "nonexistent", "--data", str(data))

    lines = told.stdout.splitlines()
    assert lines[0].split() == ["time", "(UTC)", "turn", "outcome", "in", "excerpt"]
    assert ids[1] in lines[1]
    assert "within \\x1b[2J days" in lines[1]
    assert "\x1b" not in told.stdout
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "No turn has these words" in nothing.stderr


def test_a_turn_without_an_outcome_is_not_open(tmp_path: Path) -> None:
    """`open` is a turn that has not ended; what its application did not say was not said."""
    told = closed_turn(a_turn(user_text="zebra"), outcome=None, duration_ms=5.0, revision=1)
    store = SqliteStore(tmp_path)
    store.append([Group((told,)), Group((a_tool_call(a_turn(), request_json='"zebra"'),))])
    store.close()

    lines = everyturn("find", "zebra", "--data", str(tmp_path)).stdout.splitlines()

    assert len(lines) == 3
    assert all("not said" in line and "open" not in line for line in lines[1:])


@pytest.mark.parametrize(
    "query",
    ["NEAR(", "a AND", "\"'`", "user:x OR (", "^a", "-a", "a*b*", "x" * 5000, "{a b}: c", "%"],
)
def test_odd_queries_end_well(record: tuple[Path, list[str]], query: str) -> None:
    """Whatever is written is looked for, or refused with what to write instead."""
    data, _ = record
    told = everyturn("find", "--data", str(data), "--", query)

    assert told.exit_code in (0, 2), told.output
    assert told.exception is None or isinstance(told.exception, SystemExit)


@pytest.mark.parametrize(
    "arguments", [("",), ("!",), ("a", "--in", "system"), ("a", "--in", ""), ("a", "--limit", "0")]
)
def test_bad_use(record: tuple[Path, list[str]], arguments: tuple[str, ...]) -> None:
    """A query without a word, an unknown field and a limit of none end with 2."""
    data, _ = record

    assert everyturn("find", *arguments, "--data", str(data)).exit_code == 2


def test_without_a_record(tmp_path: Path) -> None:
    """It says that there is none, and makes nothing."""
    told = everyturn("find", "a", "--data", str(tmp_path))

    assert told.exit_code == 1
    assert "no records here" in told.stderr
    assert list(tmp_path.iterdir()) == []
