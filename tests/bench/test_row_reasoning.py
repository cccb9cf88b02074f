"""Reasoning on the row: where it stood, how long it is, and the four ways of having none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from everyturn.bench.answer import Fold, without_thoughts
from everyturn.bench.folder import ROWS
from everyturn.bench.rows import Row, read_rows
from everyturn.mock.speech import Said
from tests.support.bench import Bench, bench, questions, speech

THINKING = '[[models]]\nname = "m"\nthinking = true\nmax_tokens = 64000\nstream = {}\n'
MARK = "MARKER-OF-REASONING"


async def one_row(made: Bench, answer: Any, *, stream: bool = True) -> Any:
    """The row that one answer gives."""
    made.items(questions(1))
    made.answers("m", lambda question, ask: answer)
    await made.run(made.grid(THINKING.format(str(stream).lower())))
    (row,) = made.rows()
    return row


@pytest.mark.parametrize("stream", [True, False])
async def test_reasoning_is_on_the_row_with_its_length(tmp_path: Path, stream: bool) -> None:
    """The text, its length in code points, and the carrier it was read from."""
    async with bench(tmp_path) as made:
        row = await one_row(made, speech("It is pear 0.", reasoning=MARK + "🍐"), stream=stream)

    assert row.reasoning_content == MARK + "🍐"
    assert row.reasoning_content_chars == len(MARK) + 1
    assert row.reasoning_carrier == "message.reasoning_content"
    assert (row.time_to_first_token_ms is not None) == stream


async def test_five_megabytes_of_reasoning_are_kept(tmp_path: Path) -> None:
    """A long thought is one row like any other."""
    text = "pears and plums " * 327_680
    said = (Said("reasoning_content", text, size=65_536), Said("content", "It is pear 0."))
    async with bench(tmp_path) as made:
        row = await one_row(made, speech("").but(said=said))

    assert row.outcome == "ok"
    assert row.reasoning_content_chars == len(text) == 5 * 2**20
    assert row.reasoning_content == text


async def test_null_absent_empty_and_text_stay_apart(tmp_path: Path) -> None:
    """Whole answers with each of the four; asked for and not found is `unknown`."""
    bodies: dict[str, dict[str, Any]] = {
        "null": {"reasoning_content": None},
        "absent": {},
        "empty": {"reasoning_content": ""},
        "text": {"reasoning_content": "so"},
    }
    found = {}
    for name, message in bodies.items():
        async with bench(tmp_path / name) as made:
            answer = speech("It is pear 0.").but(message=message)
            row = await one_row(made, answer, stream=False)
            found[name] = (row.reasoning_state, row.reasoning_carrier, row.reasoning_content_chars)
            assert row.flags == (
                ("reasoning_content_shape_unknown",) if name in ("null", "absent") else ()
            )
            assert len(made.warnings) == (name in ("null", "absent"))
            held = row.reasoning_content
            assert held is UNSET if name == "absent" else held == message["reasoning_content"]

    assert found == {
        "null": ("null", "unknown", None),
        "absent": ("absent", "unknown", None),
        "empty": ("empty", "message.reasoning_content", 0),
        "text": ("text", "message.reasoning_content", 2),
    }


async def test_reasoning_alone_is_an_empty_answer_and_a_cut_one_is_length(tmp_path: Path) -> None:
    """Reasoning is never taken for the answer, and an end inside of it is not an answer either."""
    for name, finish, outcome in (("stop", "stop", "empty"), ("cut", "length", "length")):
        async with bench(tmp_path / name) as made:
            only = speech("").but(said=(Said("reasoning_content", MARK),), finish=finish)
            row = await one_row(made, only)
            assert (row.outcome, row.model_answer or "") == (outcome, "")
            assert row.reasoning_content == MARK
            assert row.scores == {"right": None}


async def test_the_reader_leaves_reasoning_out(tmp_path: Path) -> None:
    """`read_rows` gives rows whose type has no place for it, unless it is asked to include it."""
    async with bench(tmp_path) as made:
        await one_row(made, speech("It is pear 0.", reasoning=MARK))

    path = tmp_path / "run" / ROWS
    assert MARK.encode() in path.read_bytes()
    (row,) = read_rows(path)
    assert type(row) is Row
    assert "reasoning_content" not in Row.__struct_fields__
    assert MARK not in repr(row)
    assert row.reasoning_content_chars == len(MARK)


@pytest.mark.parametrize(
    "message, top, carrier, text",
    [
        ({"reasoning_content": "a", "reasoning": "b"}, {}, "message.reasoning_content", "a"),
        ({"reasoning_content": None, "reasoning": "b"}, {}, "message.reasoning", "b"),
        ({"reasoning_content": "", "reasoning": "b"}, {}, "message.reasoning_content", ""),
        ({}, {"reasoning_content": "c"}, "reasoning_content", "c"),
        ({"reasoning": None}, {"reasoning_content": "c"}, "reasoning_content", "c"),
        ({"reasoning_content": None}, {}, None, None),
        ({"reasoning_content": 7}, {}, None, None),
    ],
)
def test_the_first_carrier_that_is_not_null_wins(
    message: dict[str, Any], top: dict[str, Any], carrier: str | None, text: str | None
) -> None:
    """In the order that was promised, in whole answers and folded from streams."""
    import json

    whole_fold, streamed = Fold(), Fold()
    said = {"content": "x", **message}
    whole_fold.add(json.dumps({"choices": [{"message": said}], **top}).encode())
    streamed.add(json.dumps({"choices": [{"delta": said}], **top}).encode())

    for answer in (whole_fold.answer(), streamed.answer()):
        assert (answer.carrier, answer.reasoning) == (carrier, text)
        assert answer.has_odd_reasoning == (message.get("reasoning_content") == 7)


@pytest.mark.parametrize(
    "text, said",
    [
        ("plain", "plain"),
        ("<think>so</think>12", "12"),
        ("<think>so</think>\n\n12", "12"),
        ("a <THINK>so</THINK> b", "a  b"),
        ("so it is</think>12", "12"),
        ("12 <think>never closed", "12"),
        ("<think>one</think>a<thought>two</thought>b", "ab"),
        ("1 < 2 and think > 3", "1 < 2 and think > 3"),
    ],
)
def test_thoughts_are_split_off_the_text(text: str, said: str) -> None:
    """Thoughts that a model left in its text by tags are neither scored nor shown to a judge."""
    assert without_thoughts(text) == (said, text != said)


async def test_an_unknown_shape_is_told_once_a_model(tmp_path: Path) -> None:
    """Every such row is counted; the log has one line for each model and run."""
    async with bench(tmp_path) as made:
        made.items(questions(6))
        await made.run(made.grid(THINKING.format("true")))

        assert [row.reasoning_carrier for row in made.rows()] == ["unknown"] * 6
        assert made.warnings == ["reasoning_content_shape_unknown: model `m`"]


def test_tool_calls_are_folded() -> None:
    """Fragments of parallel calls come together by their index."""
    shown = [
        {"index": 0, "id": "a", "function": {"name": "search", "arguments": '{"que'}},
        {"index": 1, "id": "b", "function": {"name": "search", "arguments": "{}"}},
        {"index": 0, "function": {"arguments": 'ry": "pears"}'}},
    ]
    fold = Fold()
    for call in shown:
        fold.add(b'{"choices":[{"delta":{"tool_calls":[' + _json(call) + b"]}}]}")

    calls = fold.answer().tool_calls
    assert [(call.call_id, call.arguments) for call in calls] == [
        ("a", '{"query": "pears"}'),
        ("b", "{}"),
    ]


def _json(value: Any) -> bytes:
    import json

    return json.dumps(value).encode()
