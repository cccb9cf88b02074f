"""`everyturn turns` and `everyturn show` over the record of a real gateway."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everyturn.cli.main import main
from everyturn.mock.script import Script
from tests.gateway.test_answers import DONE, FINISH, chunk
from tests.support.gateway import gateway_and_mock

CALL = {"index": 0, "id": "call_1", "function": {"name": "look_up", "arguments": '{"a":1}'}}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A data folder with three turns: a good one, one cut short, one refused; and their ids."""
    data = tmp_path_factory.mktemp("record") / "data"

    async def fill() -> list[str]:
        ids = []
        async with gateway_and_mock(data, "deepseek") as (running, mock):
            good = [chunk(reasoning_content="hm"), chunk(content="an \x1b[2Janswer")]
            good += [chunk(tool_calls=[CALL]), FINISH, DONE]
            mock.add("m", Script.sse(good))
            messages = [{"role": "user", "content": "my key is sk-proj-FAKEfakeFAKEfake1234567890"}]
            for body in (
                {"model": "m", "messages": messages, "stream": True},
                {"model": "m", "messages": messages, "stream": True, "n": 2},
                {"model": "m", "messages": messages, "colour": "blue"},
            ):
                answer = await running.client.post("/chat/completions", json=body)
                ids.append(answer.headers["x-everyturn-turn-id"])
        return ids

    return data, asyncio.run(fill())


def everyturn(*arguments: str) -> Result:
    """Run the command line."""
    return CliRunner().invoke(main, list(arguments), env={"EVERYTURN_DATA": ""})


def test_turns_are_listed_newest_first(record: tuple[Path, list[str]]) -> None:
    """One line a turn with its time, model, outcome and question."""
    data, ids = record
    listed = everyturn("turns", "--data", str(data))

    assert listed.exit_code == 0, listed.output
    lines = listed.stdout.splitlines()[1:]
    assert [line.split()[2] for line in lines] == ids[::-1]
    assert "failure unknown_parameter" in lines[0]
    assert "partial upstream_stream_incomplete" in lines[1]
    assert "success" in lines[2]
    assert "sk-proj" not in listed.output


def test_turns_as_json_and_filtered(record: tuple[Path, list[str]]) -> None:
    """Filters by outcome, model and time narrow the list; `--json` gives every field."""
    data, ids = record
    failed = everyturn("turns", "--data", str(data), "--outcome", "failure", "--json")
    nobody = everyturn("turns", "--data", str(data), "--model", "nobody")
    recent = everyturn("turns", "--data", str(data), "--since", "1h", "--limit", "1", "--json")
    future = everyturn("turns", "--data", str(data), "--since", "2999-01-01T00:00:00Z", "--json")

    (row,) = map(json.loads, failed.stdout.splitlines())
    assert row["turn_id"] == ids[2]
    assert row["timestamp"].endswith("Z")
    assert nobody.stdout == ""
    assert "No turn fits" in nobody.stderr
    assert json.loads(recent.stdout)["turn_id"] == ids[2]
    assert future.stdout == ""


@pytest.mark.parametrize("since", ["yesterday", "5", "2026-11-30T12:00:00"])
def test_a_time_that_is_none(since: str) -> None:
    """What is no time is bad use, with the forms that can be written."""
    refused = everyturn("turns", "--since", since)

    assert refused.exit_code == 2
    assert "Z" in refused.stderr


def test_show_tells_the_story(record: tuple[Path, list[str]]) -> None:
    """Request, call, messages, answer, tool call, usage, end and redactions, in order."""
    data, ids = record
    told = everyturn("show", ids[0], "--data", str(data))

    assert told.exit_code == 0, told.output
    labels = ["opened", "asked", "at", "to", "messages", "  user", "answer"]
    labels += ["reasoning", "content", "tool call", "usage", "outcome"]
    places = [told.stdout.index(f"\n  {label} ") for label in labels]
    assert places == sorted(places)
    assert "\nrequest POST /v1/chat/completions → 200\n" in told.stdout
    assert "2 characters in reasoning_content; not stored" in told.stdout
    assert 'look_up({"a":1})' in told.stdout
    assert "openai_key 1" in told.stdout
    assert "an \\x1b[2Janswer" in told.stdout
    assert "\x1b" not in told.stdout


def test_show_tells_how_a_turn_failed(record: tuple[Path, list[str]]) -> None:
    """A turn that broke off says why, and one that was refused has no call."""
    data, ids = record
    cut = everyturn("show", ids[1], "--data", str(data))
    refused = everyturn("show", ids[2], "--data", str(data))

    assert "partial, provider_error, upstream_stream_incomplete" in cut.stdout
    assert "failure, format_error, unknown_parameter" in refused.stdout
    assert "call 1" not in refused.stdout


def test_show_as_json_and_by_a_beginning(record: tuple[Path, list[str]]) -> None:
    """The first digits of a turn id are enough; `--json` has every field as one object."""
    data, ids = record
    told = everyturn("show", ids[0][:8].upper(), "--data", str(data), "--json")

    turn = json.loads(told.stdout)
    assert turn["turn"]["turn_id"] == ids[0]
    assert turn["model_calls"][0]["prompt_messages_json"][0]["role"] == "user"


def test_no_such_turn_and_no_such_record(record: tuple[Path, list[str]], tmp_path: Path) -> None:
    """An unknown turn, and a folder without a record, end with 1 and say what to do."""
    data, _ = record
    unknown = everyturn("show", "00000000-0000-4000-8000-000000000000", "--data", str(data))
    short = everyturn("show", "abc", "--data", str(data))
    nowhere = everyturn("turns", "--data", str(tmp_path / "nothing"))

    for result in (unknown, short, nowhere):
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.count("\n") >= 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "\udcff\udcfe"),
        ("turns", "--model", "m\udcff"),
        ("turns", "--plugin", "\udcff"),
        ("turns", "--label", "\udcff"),
        ("turns", "--attribute", "colour=\udcff"),
    ],
)
def test_words_without_utf_8_are_words_that_nothing_has(
    record: tuple[Path, list[str]], arguments: tuple[str, ...]
) -> None:
    """Bytes of a command line that are no UTF-8 are looked for like any others, and not found."""
    command, *words = arguments
    asked = everyturn(command, "--data", str(record[0]), *words)

    assert not isinstance(asked.exception, UnicodeError), asked.exception
    assert asked.exit_code == (1 if command == "show" else 0), asked.output
    assert record[1][0] not in asked.output
