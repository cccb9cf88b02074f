"""The last part of the demonstration: a small benchmark against scripted models, judged and told.

The data set is made up for this. The scripted models answer by the question: `quick` knows half of
it by heart and reads a context badly, `careful` reasons first and reads it well.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from everyturn.bench.comparing import compare_runs
from everyturn.bench.folder import REPORT, replace
from everyturn.bench.grid import read_grid
from everyturn.bench.judge_run import judge
from everyturn.bench.judging import read_judging
from everyturn.bench.report import report_html
from everyturn.bench.session import Hooks, Options, start
from everyturn.bench.summary import read_run, summarise
from everyturn.config.lines import key_lines, line_of
from everyturn.mock import MockProvider, Script
from everyturn.mock.scenario import Ask, Play
from everyturn.mock.speech import Said, Speech

FACTS: Final = (
    ("Who keeps the bees of Quincewell?", "Old Marlow", "Old Marlow keeps the bees."),
    ("How many pear trees stand by the mill?", "84", "By the mill stand 84 pear trees."),
    ("What day is market day in Quincewell?", "Thursday", "Market day is Thursday."),
    ("What is the inn called?", "The Ladder", "The inn is called The Ladder."),
    ("Which river turns the mill?", "the Oss", "The Oss turns the mill."),
    ("Who baked the longest loaf?", "Nell Harrow", "Nell Harrow baked the longest loaf."),
    ("What is sold at the crooked stall?", "quince jelly", "The crooked stall sells quince jelly."),
    ("In which year did the bridge fall?", "1911", "The bridge fell in 1911."),
    ("What colour are the ferry's sails?", "green", "The sails of the ferry are green."),
    ("Who winds the church clock?", "the miller", "The miller winds the church clock."),
    ("How old is the oldest pear tree?", "212", "The oldest pear tree is 212 years old."),
    ("What do children get at harvest?", "a windfall", "At harvest each child gets a windfall."),
)
MODELS: Final = ("quick", "careful", "judge")
GRID: Final = """\
[run]
name = "Quincewell"
gateway = "{url}"
budget = 1.00

[data]
path = "items.jsonl"

[[models]]
name = "quick"
max_tokens = 200
price = {{ input = 0.1, output = 0.4 }}

[[models]]
name = "careful"
thinking = true
max_tokens = 2000
price = {{ input = 1.0, output = 4.0 }}

[[cells]]
name = "alone"
kind = "no-context"

[[cells]]
name = "search"
kind = "retrieval"
top_k = 2

[[scorers]]
name = "right"
kind = "contains"
"""
JUDGES: Final = """\
[[judges]]
name = "judge"
max_tokens = 300
price = { input = 1.0, output = 4.0 }
"""


def scripts() -> dict[str, Play]:
    """The scripted models, by the name that the provider knows them under."""
    plays = (_quick, _careful, _judge)
    return {f"demo-{name}": play for name, play in zip(MODELS, plays, strict=True)}


def add_scripts(mock: MockProvider) -> None:
    """Let a scripted provider play the models of the benchmark."""
    for name, play in scripts().items():
        mock.add(name, play)


def models(mock_url: str) -> str:
    """Their part of the gateway's configuration."""
    return "".join(
        f'[[models]]\nname = "{name}"\npreset = "generic-strict"\n'
        f'base_url = "{mock_url}"\nupstream_model = "demo-{name}"\n'
        for name in MODELS
    )


def bench_demo(url: str, folder: Path, say: Callable[[str], None]) -> None:
    """Run, judge and report the grid in a folder, and tell what was found."""
    folder.mkdir(parents=True, exist_ok=True)
    items = [
        {"item_id": f"q{n}", "question": question, "expected": answer, "context": context}
        for n, (question, answer, context) in enumerate(FACTS)
    ]
    text = "".join(json.dumps(item) + "\n" for item in items)
    (folder / "items.jsonl").write_text(text, encoding="utf-8")
    (folder / "judges.toml").write_text(JUDGES, encoding="utf-8")
    (folder / "grid.toml").write_text(GRID.format(url=url), encoding="utf-8")
    run = folder / "run"
    asyncio.run(_run_and_judge(folder, run, say))
    summary = summarise(run, read_run(run))
    replace(run / REPORT, report_html(run, summary).encode())
    for group in summary["found"]["groups"]:
        right = group["metrics"]["right"]
        say(
            f"{group['model']:8} {group['cell']:7} right {right['value']:.2f} "
            f"[{right['low']:.2f}, {right['high']:.2f}] of {right['n_scored']}"
        )
    pairs = compare_runs(run, run, None, (("search", "quick"), ("search", "careful")))["pairs"]
    say(pairs[0]["sentence"])
    say(f"the report: {run / REPORT}")


async def _run_and_judge(folder: Path, run: Path, say: Callable[[str], None]) -> None:
    text = (folder / "grid.toml").read_text(encoding="utf-8")
    lines = key_lines(text)
    grid = read_grid(text, str(folder / "grid.toml"), lambda key: line_of(lines, key))
    judging = read_judging(JUDGES, "judges.toml", lambda key: line_of(key_lines(JUDGES), key))
    hooks, stop = Hooks(began=lambda *_: None, warn=say), asyncio.Event()
    tally = await start(grid, run, Options(), stop, hooks)
    judged = await judge(run, judging, grid, Options(), stop, hooks)
    say(f"{tally.done} rows made, {judged.done} judged")


def _fact(ask: Ask) -> tuple[int, str, str, str]:
    text = str(ask.body["messages"][-1]["content"])
    for number, (question, answer, context) in enumerate(FACTS):
        if question in text:
            return number, answer, context, text
    return 0, "", "", text


def _said(ask: Ask, answer: str, reasoning: str = "") -> Script:
    said = [Said("reasoning_content", reasoning)] if reasoning else []
    said.append(Said("content", answer))
    tokens = len(answer) // 4 + len(reasoning) // 4 + 1
    usage: dict[str, Any] = {"prompt_tokens": 60, "completion_tokens": tokens}
    return Speech(said=tuple(said), usage={**usage, "total_tokens": 60 + tokens})(ask)


def _quick(ask: Ask) -> Script:
    number, answer, context, text = _fact(ask)
    knows = number % 2 == 0 if context not in text else number % 4 != 3
    return _said(ask, answer if knows else "I do not know.")


def _careful(ask: Ask) -> Script:
    number, answer, context, text = _fact(ask)
    thought = "The context may hold it. " * (3 + number % 5)
    knows = context in text or number % 3 == 0
    return _said(ask, f"It is {answer}." if knows else "I do not know.", thought)


def _judge(ask: Ask) -> Script:
    _, answer, _, text = _fact(ask)
    given = text.partition("<answer>")[2]
    if answer and answer in given:
        ruling = {"verdict": "correct", "label": "correct", "rationale": "Says what was expected."}
    else:
        ruling = {"verdict": "incorrect", "label": "F1", "rationale": "Says that it does not know."}
    return _said(ask, msgspec.json.encode(ruling).decode())
