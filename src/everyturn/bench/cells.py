"""Cells: how the prompt of an item is made. Pure but for a callable of one's own.

A cell gets an item and gives messages; it learns no turn id and logs nothing. `agentic` is a loop
over a search tool, and what it needs from outside (asking the model) comes in as an argument.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from everyturn.bench.answer import Answer
from everyturn.bench.grid import Cell
from everyturn.bench.items import Document, Item
from everyturn.bench.search import Index
from everyturn.errors import ConfigError

Messages = list[dict[str, Any]]
Ask = Callable[[Messages, list[dict[str, Any]] | None], Awaitable[Answer]]
"""Ask the model: messages and tools → its answer."""

SYSTEM: Final = "Answer the question. Give the answer alone, without explanation."
SYSTEM_CONTEXT: Final = (
    "Answer the question from the context. Give the answer alone, without explanation. "
    "If the context does not hold the answer, say that you do not know."
)
SYSTEM_VERBOSE: Final = (
    "Answer the question in at least five paragraphs. Restate the question, describe its "
    "background, consider other answers, and only then give yours."
)
SYSTEM_AGENTIC: Final = (
    "Answer the question. Use the tool `search` to find what you need, as often as you need it. "
    "Then give the answer alone, without explanation."
)
SEARCH_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Find documents that hold the words of a query.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
        },
    },
}
_SYSTEMS: Final = {
    "no-context": SYSTEM,
    "verbose-fixed": SYSTEM_VERBOSE,
    "template": None,
    "agentic": SYSTEM_AGENTIC,
}


@dataclass(slots=True)
class Played:
    """What came of a cell: the last answer, and whether a limit of the cell ended it."""

    answer: Answer
    is_limited: bool = False
    retrieved: tuple[str, ...] = ()


class Deck:
    """The cells of a grid, ready to be played."""

    def __init__(self, cells: Sequence[Cell], documents: Sequence[Document]) -> None:
        """Raises ConfigError for a callable that cannot be imported."""
        self._documents = documents
        kinds = {cell.kind for cell in cells}
        self._index = Index(documents) if kinds & {"retrieval", "agentic"} else None
        self._whole = _joined(documents) if "full-context" in kinds else ""
        self._functions = {cell.name: _function(cell) for cell in cells if cell.kind == "python"}

    @property
    def has_documents(self) -> bool:
        """Whether there is anything to search or to show whole."""
        return bool(self._documents)

    async def play(self, cell: Cell, item: Item, ask: Ask) -> Played:
        """Ask about an item in the manner of a cell; what `ask` raises goes through."""
        if cell.kind == "agentic":
            return await self._loop(cell, item, ask)
        messages, found = self.prompt(cell, item)
        return Played(await ask(messages, None), retrieved=tuple(one.doc_id for one in found))

    def prompt(self, cell: Cell, item: Item) -> tuple[Messages, list[Document]]:
        """The messages of an item, and the documents that were retrieved for it."""
        found: list[Document] = []
        if cell.kind == "python":
            given = msgspec.to_builtins(item)
            return list(self._functions[cell.name](given)), found
        if cell.kind == "retrieval":
            assert self._index is not None
            found = self._index.find(item.question, cell.top_k)
        system = cell.system or _SYSTEMS.get(cell.kind, SYSTEM_CONTEXT)
        messages: Messages = [] if system is None else [{"role": "system", "content": system}]
        messages.append({"role": "user", "content": self._question(cell, item, found)})
        return messages, found

    def _question(self, cell: Cell, item: Item, found: list[Document]) -> str:
        if cell.kind == "template":
            # Not `format`: braces in a template (JSON, code) are text.
            text = (cell.template or "").replace("{context}", item.context or "")
            return text.replace("{question}", item.question)
        if cell.kind in ("no-context", "verbose-fixed", "agentic"):
            return item.question
        context = {
            "oracle-context": item.context or "",
            "full-context": self._whole,
            "retrieval": _joined(found),
        }[cell.kind]
        return f"Context:\n{context}\n\nQuestion: {item.question}"

    async def _loop(self, cell: Cell, item: Item, ask: Ask) -> Played:
        """Let the model search until it answers, within the limits of the cell."""
        assert self._index is not None
        messages, _ = self.prompt(cell, item)
        ends_at = time.monotonic() + cell.seconds_max
        found: dict[str, None] = {}
        answer = Answer(text=None)
        for _ in range(cell.turns_max):
            try:
                async with asyncio.timeout(ends_at - time.monotonic()):
                    answer = await ask(messages, [SEARCH_TOOL])
            except TimeoutError:
                break
            if not answer.tool_calls:
                return Played(answer, retrieved=tuple(found))
            messages.append(_asked(answer))
            for call in answer.tool_calls:
                result, doc_ids = _searched(self._index, call.name, call.arguments, cell.top_k)
                found.update(dict.fromkeys(doc_ids))
                messages.append({"role": "tool", "tool_call_id": call.call_id, "content": result})
        return Played(answer, is_limited=True, retrieved=tuple(found))


def _asked(answer: Answer) -> dict[str, Any]:
    """The model's turn as history; its reasoning goes back in the form the gateway gave it."""
    calls = [
        {
            "id": call.call_id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in answer.tool_calls
    ]
    message = {"role": "assistant", "content": answer.text, "tool_calls": calls}
    if isinstance(answer.reasoning, str):
        message["reasoning_content"] = answer.reasoning
    return message


def _searched(index: Index, name: str, arguments: str, top_k: int) -> tuple[str, list[str]]:
    """The result of a tool call as text; a call that cannot be run says why to the model."""
    if name != "search":
        return f"There is no tool `{name}`.", []
    try:
        query = json.loads(arguments)["query"]
    except (ValueError, LookupError, TypeError, RecursionError):
        query = None
    if not isinstance(query, str):
        return 'The arguments must be {"query": TEXT}.', []
    found = index.find(query, top_k)
    return (_joined(found) or "Nothing was found."), [one.doc_id for one in found]


def _joined(documents: Sequence[Document]) -> str:
    return "\n\n".join(
        f"[{one.doc_id}] {one.title}\n{one.text}" if one.title else f"[{one.doc_id}] {one.text}"
        for one in documents
    )


def _function(cell: Cell) -> Callable[[dict[str, Any]], Messages]:
    module, _, name = (cell.function or "").partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as bad:
        what = "cannot be imported."
        hint = "Write `module:function`; the module must be on PYTHONPATH."
        raise ConfigError("grid", [(0, f"cells.{cell.name}.function", what, hint)]) from bad
    called: Callable[[dict[str, Any]], Messages] = found
    return called
