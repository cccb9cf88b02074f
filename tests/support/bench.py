"""Runs of the benchmark harness: a gateway with a scripted provider behind it, and small grids."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everyturn.bench.folder import ROWS
from everyturn.bench.grid import Grid, read_grid
from everyturn.bench.rows import FullRow, read_rows
from everyturn.bench.runner import Tally
from everyturn.bench.session import Hooks, Options, start
from everyturn.config.lines import key_lines, line_of
from everyturn.mock import MockProvider, Script
from everyturn.mock.scenario import Ask
from everyturn.mock.speech import Said, Speech
from tests.support.gateway import Running, running_gateway

KEY = "sk-test-FAKE-bench-0123456789abcdef"
"""A key of the gateway's user; obviously fake."""
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
PRICE = {"input": 1.0, "output": 10.0}

Answering = Callable[[str, Ask], Script | str | Speech]
"""The last user message and the request → what is answered."""


def speech(text: str, *, reasoning: str | None = None, **more: Any) -> Speech:
    """An ordinary answer, with reasoning before it."""
    said = () if reasoning is None else (Said("reasoning_content", reasoning, size=4096),)
    return Speech(said=(*said, Said("content", text, size=4096)), usage=USAGE, **more)


def asked(ask: Ask) -> str:
    """The last user message of a request."""
    texts = [m["content"] for m in ask.body["messages"] if m["role"] == "user"]
    return str(texts[-1])


def error(status: int, headers: Mapping[str, str] | None = None) -> Script:
    """An error of a provider."""
    body = {"error": {"message": "no pears", "type": "server_error", "code": "no_pears"}}
    return Script.whole(status, headers or {}, json.dumps(body).encode())


@dataclass
class Bench:
    """A gateway with models that functions answer, and the requests that each model got."""

    running: Running
    mock: MockProvider
    folder: Path
    requests: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """Of commands that are started as processes."""

    def answers(self, model: str, answering: Answering) -> None:
        """Answer a model by a function."""
        kept = self.requests.setdefault(model, [])

        def play(ask: Ask) -> Script:
            kept.append(ask.request.body.decode())
            said = answering(asked(ask), ask)
            if isinstance(said, str):
                said = speech(said)
            return said(ask) if isinstance(said, Speech) else said

        self.mock.add(f"model-{model}", play)

    def items(self, rows: Iterable[Mapping[str, Any]], name: str = "items.jsonl") -> Path:
        """Write a file of items."""
        path = self.folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    def grid(self, text: str = "", **run: Any) -> Grid:
        """A grid over `items.jsonl`; models, cells and scorers have defaults."""
        return read(self.grid_text(text, **run), self.folder / "grid.toml")

    def grid_text(self, text: str = "", **run: Any) -> str:
        """The same as TOML."""
        run = {"gateway": self.running.url, "attempts_max": 3, **run}
        lines = ["[run]", *(f"{k} = {json.dumps(v)}" for k, v in run.items())]
        if "[data]" not in text:
            lines += ["[data]", 'path = "items.jsonl"']
        if "[[models]]" not in text:
            lines += ["[[models]]", 'name = "m"', "max_tokens = 100", "price.input = 1.0"]
            lines += ["price.output = 10.0"]
        if "[[cells]]" not in text:
            lines += ["[[cells]]", 'name = "plain"', 'kind = "no-context"']
        if "[[scorers]]" not in text:
            lines += ["[[scorers]]", 'name = "right"', 'kind = "contains"']
        return "\n".join([*lines, text])

    async def run(
        self, grid: Grid, out: str = "run", *, stop: asyncio.Event | None = None, **options: Any
    ) -> Tally:
        """Begin or resume a run."""
        hooks = Hooks(began=lambda tally, budget: None, warn=self.warnings.append)
        given = Options(api_key=None, known=(KEY,), **options)
        return await start(grid, self.folder / out, given, stop or asyncio.Event(), hooks)

    def rows(self, out: str = "run") -> list[FullRow]:
        """The rows of a run, reasoning included."""
        return list(read_rows(self.folder / out / ROWS, include_reasoning=True))


def read(text: str, path: Path) -> Grid:
    """A grid as the command line reads it."""
    lines = key_lines(text)
    return read_grid(text, str(path), lambda key: line_of(lines, key))


def questions(count: int, **more: Any) -> list[dict[str, Any]]:
    """Items `q0` … whose right answer stands in the question."""
    return [
        {"item_id": f"q{n}", "question": f"What is {n}?", "expected": [f"pear {n}"], **more}
        for n in range(count)
    ]


def right(question: str, ask: Ask) -> str:
    """The expected answer of `questions`."""
    number = "".join(sign for sign in question.split("What is ")[-1] if sign.isdigit())
    return f"It is pear {number}."


@asynccontextmanager
async def bench(
    folder: Path, *models: str, preset: str = "generic-strict", keys: str = "", **extra: Any
) -> AsyncIterator[Bench]:
    """A gateway with these models (`m` by default), each answered by `right`.

    keys: `[[keys]]` tables of its configuration.
    """
    names = models or ("m",)
    async with MockProvider() as mock:
        entries = [
            {
                "name": name,
                "preset": preset,
                "base_url": mock.url,
                "upstream_model": f"model-{name}",
                **extra,
            }
            for name in names
        ]
        async with running_gateway(entries, folder / "data", extra=keys) as running:
            made = Bench(running, mock, folder)
            for name in names:
                made.answers(name, right)
            yield made
