"""Cells: how the prompt is made, and the tool loop with its limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everyturn.bench.budget import read_spend
from everyturn.bench.cells import Deck
from everyturn.bench.folder import SPEND, RunRefused
from everyturn.bench.grid import Cell
from everyturn.bench.items import Document, Item
from everyturn.mock import HANG, Script
from everyturn.mock.scenario import Ask
from everyturn.mock.speech import Shown, Speech
from tests.support.bench import USAGE, bench, questions, speech

DOCUMENTS = [
    Document(doc_id="pears", text="A pear tree bears after four years."),
    Document(doc_id="plums", text="Plums ripen in August."),
    Document(doc_id="quinces", title="Quinces", text="They are hard when raw."),
]
ITEM = Item(item_id="i", question="When do plums ripen?", context="Plums ripen in August.")


def prompt(kind: str, **more: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The messages and the documents of a cell."""
    cell = Cell(name="c", kind=kind, **more)
    messages, found = Deck([cell], DOCUMENTS).prompt(cell, ITEM)
    return messages, [one.doc_id for one in found]


def test_prompts() -> None:
    """Each kind shows what its name says, and nothing of the other kinds."""
    assert prompt("no-context")[0][-1]["content"] == ITEM.question
    assert "five paragraphs" in prompt("verbose-fixed")[0][0]["content"]
    oracle = prompt("oracle-context")[0][-1]["content"]
    assert "August" in oracle
    assert "pear" not in oracle
    whole = prompt("full-context")[0][-1]["content"]
    assert all(f"[{one.doc_id}]" in whole for one in DOCUMENTS)
    template = prompt("template", template='{"q": "{question}"}')[0]
    assert template == [{"role": "user", "content": '{"q": "When do plums ripen?"}'}]
    assert prompt("no-context", system="Be brief.")[0][0]["content"] == "Be brief."


def test_retrieval_finds_by_words_best_first_at_most_k() -> None:
    """Full text search over the documents; a query without a known word finds nothing."""
    messages, found = prompt("retrieval", top_k=1)

    assert found == ["plums"]
    assert "[plums]" in messages[-1]["content"]
    cell = Cell(name="c", kind="retrieval")
    odd = Item(item_id="i", question='"quinces" OR NEAR( *', context=None)
    assert [d.doc_id for d in Deck([cell], DOCUMENTS).prompt(cell, odd)[1]] == ["quinces"]


def a_call(query: Any, number: int = 0) -> Speech:
    """A model that wants to search."""
    arguments = query if isinstance(query, str) else json.dumps(query)
    call = {
        "index": 0,
        "id": f"call-{number}",
        "type": "function",
        "function": {"name": "search", "arguments": arguments},
    }
    return Speech(said=(Shown({"tool_calls": [call]}),), finish="tool_calls", usage=USAGE)


AGENTIC = '[[cells]]\nname = "agent"\nkind = "agentic"\nturns_max = 3\n'


async def test_an_agent_searches_and_answers(tmp_path: Path) -> None:
    """The loop runs the model's searches, and all its calls are one row and one turn."""

    def answering(question: str, ask: Ask) -> Speech:
        results = [m["content"] for m in ask.body["messages"] if m["role"] == "tool"]
        if not results:
            return a_call({"query": "ripe plums"})
        return speech("It is pear 0." if "August" in results[-1] else "no")

    async with bench(tmp_path) as made:
        made.items(questions(1, context="Plums ripen in August.", cluster="plums"))
        made.answers("m", answering)
        await made.run(made.grid(AGENTIC))

        (row,) = made.rows()
        assert (row.outcome, row.retrieved) == ("ok", ("plums",))
        assert row.scores == {"right": 1.0}
        assert [attempt.step for attempt in row.attempts] == [0, 1]
        assert (row.prompt_tokens, row.cost) == (200, 0.0006)
        turn = (await made.running.client.get(f"/turns/{row.turn_id}")).json()
        assert len(turn["model_calls"]) == 2


@pytest.mark.parametrize("arguments", ['{"query": "plums"}', "{", '{"query": 7}'])
async def test_an_agent_that_never_answers_meets_its_limit(tmp_path: Path, arguments: str) -> None:
    """After `turns_max` calls the row is `limit_reached`; wrong arguments are told to the model."""
    async with bench(tmp_path) as made:
        made.items(questions(1, context="Plums ripen in August."))
        made.answers("m", lambda question, ask: a_call(arguments))
        await made.run(made.grid(AGENTIC))

        (row,) = made.rows()
        assert (row.outcome, len(row.attempts)) == ("limit_reached", 3)
        assert row.scores == {"right": None}
        told = json.loads(made.requests["m"][-1])["messages"][-1]["content"]
        assert ("August" in told) == (arguments == '{"query": "plums"}')


async def test_an_agent_that_takes_too_long_meets_its_limit(tmp_path: Path) -> None:
    """A call under way is given up when the cell's time is over; what it may cost is counted."""
    cells = '[[cells]]\nname = "agent"\nkind = "agentic"\nseconds_max = 0.4\n'
    models = '[[models]]\nname = "m"\nmax_tokens = 10\nprice = { input = 0, output = 1 }\n'
    async with bench(tmp_path) as made:
        made.items(questions(1, context="Plums ripen in August."))
        made.answers("m", lambda question, ask: Script.raw([HANG]))
        await made.run(made.grid(models + cells, budget=1.0))

        (row,) = made.rows()
        assert (row.outcome, row.cost) == ("limit_reached", None)
        (attempt,) = row.attempts
        assert (attempt.outcome, attempt.error_code) == ("timeout", "cell_time_limit")
        assert attempt.cost_bound == 0.00001
        spend = read_spend(tmp_path / "run" / SPEND)
        assert (float(spend.total), spend.lost_calls) == (0.00001, 0)


async def test_a_cell_without_what_it_needs_is_refused(tmp_path: Path) -> None:
    """Items without context for `oracle-context`, no documents for `retrieval`: before any call."""
    cells = "".join(
        f'[[cells]]\nname = "{kind}"\nkind = "{kind}"\n' for kind in ("oracle-context", "retrieval")
    )
    async with bench(tmp_path) as made:
        made.items(questions(2))
        with pytest.raises(RunRefused, match=r"2 items have no `context`(.|\n)*needs documents"):
            await made.run(made.grid(cells))
        assert made.requests["m"] == []


async def test_a_function_makes_the_prompt_and_its_failure_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callable gets the item and gives messages; when it fails, it is named with the item."""
    (tmp_path / "my_cells.py").write_text(
        "def ask(item):\n"
        "    if item['item_id'] == 'q2':\n"
        "        raise KeyError('a text that must not be shown')\n"
        "    return [{'role': 'user', 'content': item['question'].upper()}]\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    cells = '[[cells]]\nname = "mine"\nkind = "python"\nfunction = "my_cells:ask"\n'
    async with bench(tmp_path) as made:
        made.items(questions(2))
        await made.run(made.grid(cells))
        assert [row.outcome for row in made.rows()] == ["ok", "ok"]
        assert any("WHAT IS 0?" in request for request in made.requests["m"])

        made.items(questions(3))
        with pytest.raises(RunRefused, match=r"cell `mine` failed for item `q2`: KeyError") as bad:
            await made.run(made.grid(cells, concurrency=1), "other")
        assert "must not be shown" not in str(bad.value)
