"""A grid: data set x cells x models x epochs, read from one TOML file.

The file is strict: an unknown key, a wrong type or a contradiction is a fault with its line, and
all faults are told at once. Which models there are at the gateway is asked later (`plan`).
"""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from everyturn.bench.money import Price
from everyturn.bench.scorers import SCORER_KINDS
from everyturn.bench.table import (
    REQUIRED,
    Faults,
    Key,
    Locate,
    check_unique,
    nearest,
    read_table,
    read_tables,
)
from everyturn.errors import ConfigError

CELL_KINDS: Final = (
    "no-context",
    "oracle-context",
    "full-context",
    "retrieval",
    "agentic",
    "verbose-fixed",
    "template",
    "python",
)
PINS: Final = ("revision", "dated", "floating")
GIB: Final = 1024**3

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One model of a grid. name: in rows and reports; model: what the gateway is asked for.

    thinking: None says nothing about it. price: None for the gateway's own price list.
    body: further members of the request, as they are.
    """

    name: str
    model: str
    thinking: bool | None = None
    effort: str | None = None
    thinking_tokens: int | None = None
    max_tokens: int | None = None
    stream: bool = True
    pin: Literal["revision", "dated", "floating"] = "floating"
    revision: str | None = None
    pin_reason: str = ""
    price: Price | None = None
    body: dict[str, Any] = {}


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One way of making the prompt. control: a cell that is there to be compared with."""

    name: str
    kind: str
    control: bool = False
    system: str | None = None
    template: str | None = None
    function: str | None = None
    top_k: int = 20
    turns_max: int = 8
    seconds_max: float = 300.0


class Scorer(msgspec.Struct, frozen=True, kw_only=True):
    """One scorer that needs no model."""

    name: str
    kind: str
    pattern: str | None = None
    tolerance: float = 0.0


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """Where items come from, and which of them. Paths are absolute."""

    path: str
    version: str | None = None
    sample: int | None = None
    by: Literal["category"] | None = None
    documents: str | None = None


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """One whole grid."""

    name: str
    gateway: str
    seed: int
    epochs: int
    data: Data
    models: tuple[Model, ...]
    cells: tuple[Cell, ...]
    scorers: tuple[Scorer, ...]
    attempts_max: int
    timeout_s: float
    idle_timeout_s: float
    concurrency: int
    budget: Decimal | None
    cache: str | None
    max_bytes: int

    @property
    def calls(self) -> int:
        """Rows for each item."""
        return len(self.models) * len(self.cells) * self.epochs


_RUN: Final = (
    Key("name", "str", "run", "A short name for reports."),
    Key("gateway", "str", "http://127.0.0.1:8080/v1", "The gateway's base URL, with `/v1`."),
    Key("seed", "int", 0, "Draws the sample and the waits."),
    Key("epochs", "int", 1, "How often each item is asked.", minimum=1, maximum=1000),
    Key("concurrency", "int", 16, "Rows at once, at most.", minimum=1, maximum=1000),
    Key("budget", "number", None, "US dollars, at most.", minimum=0),
    Key("attempts_max", "int", 5, "Calls until an error counts.", minimum=1, maximum=100),
    Key("timeout_s", "number", 1800, "Seconds for one call.", minimum=0.05),
    Key("idle_timeout_s", "number", 600, "Seconds between two bytes.", minimum=0.05),
    Key("cache", "str", None, "A folder that keeps answers; none by default."),
    Key("max_bytes", "int", 2 * GIB, "The run stops cleanly at this size.", minimum=1),
)
_DATA: Final = (
    Key("path", "str", REQUIRED, "A JSONL or CSV file of items."),
    Key("version", "str", None, "Stands on each row."),
    Key("sample", "int", None, "How many items to draw, by the seed.", minimum=1),
    Key("by", "str", None, "Draw the same share of each category.", choices=("category",)),
    Key("documents", "str", None, "A JSONL file of documents for retrieval."),
)
MODEL_KEYS: Final = (
    Key("name", "str", REQUIRED, "The name in rows; the gateway is asked for it unless `model`."),
    Key("model", "str", None, "What the gateway is asked for."),
    Key("thinking", "bool", None, "Ask for reasoning, or ask for none."),
    Key("effort", "str", None, "How much reasoning, in the gateway's words."),
    Key("thinking_tokens", "int", None, "The most tokens of reasoning.", minimum=1),
    Key("max_tokens", "int", None, "The most tokens of an answer.", minimum=1),
    Key("stream", "bool", True, "Ask for a stream; only then is the first token timed."),
    Key("pin", "str", "floating", "How firmly the version is pinned.", choices=PINS),
    Key("revision", "str", None, "The version that is meant."),
    Key("pin_reason", "str", "", "Why it is pinned no firmer."),
    Key("price", "table", None, "`input` and `output`: US dollars for a million tokens."),
    Key("body", "table", {}, "Further members of each request."),
)
_PRICE: Final = (
    Key("input", "number", REQUIRED, "US dollars for a million tokens.", minimum=0),
    Key("output", "number", REQUIRED, "US dollars for a million tokens.", minimum=0),
    Key("cache_read", "number", None, "US dollars for a million cached tokens.", minimum=0),
)
_CELL: Final = (
    Key("name", "str", REQUIRED, "The cell's name in rows."),
    Key("kind", "str", REQUIRED, "How the prompt is made.", choices=CELL_KINDS),
    Key("control", "bool", None, "Whether it is there to be compared with."),
    Key("system", "str", None, "The system message, instead of the built-in one."),
    Key("template", "str", None, "For `template`: text with {question} and {context}."),
    Key("function", "str", None, "For `python`: `module:function`, item → messages."),
    Key("top_k", "int", 20, "For `retrieval`: how many documents.", minimum=1, maximum=1000),
    Key("turns_max", "int", 8, "For `agentic`: calls of the model.", minimum=1, maximum=1000),
    Key("seconds_max", "number", 300, "For `agentic`: seconds.", minimum=0.05),
)
_SCORER: Final = (
    Key("name", "str", REQUIRED, "The metric's name."),
    Key("kind", "str", REQUIRED, "How the answer is scored.", choices=SCORER_KINDS),
    Key("pattern", "str", None, "For `regex`: the pattern to find."),
    Key("tolerance", "number", 0.0, "For `numeric`: how far off still counts.", minimum=0),
)
_SECTIONS: Final = ("run", "data", "models", "cells", "scorers")


def read_toml(text: str, path: str) -> dict[str, Any]:
    """A TOML text as a tree. Raises ConfigError with the line of a fault in its syntax."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as bad:
        line = re.search(r"line (\d+)", str(bad))
        fault = (int(line[1]) if line else 0, "TOML", f"{bad}.", "")
        raise ConfigError(path, [fault]) from bad


def read_grid(text: str, path: str, locate: Locate) -> Grid:
    """The grid of a TOML text. path: of the file; relative paths in it are relative to its folder.

    locate: finds the line of a key. Raises ConfigError with everything that is wrong.
    """
    tree = read_toml(text, path)
    faults = Faults(path, locate)
    for section in tree:
        if section not in _SECTIONS:
            faults.add(section, "is not a table of a grid.", nearest(section, _SECTIONS))
    run = read_table("run", tree.get("run", {}), _RUN, faults)
    data = read_table("data", tree.get("data", {}), _DATA, faults)
    models = read_tables("models", tree.get("models"), MODEL_KEYS, faults)
    cells = read_tables("cells", tree.get("cells"), _CELL, faults)
    scorers = read_tables("scorers", tree.get("scorers"), _SCORER, faults)
    for tables in (models, cells, scorers):
        check_unique(tables, "name", faults)
        _check_names(tables, faults)
    if not re.fullmatch(r"https?://[^\s/?#@]+(/[^\s?#@]*)?", run["gateway"] or ""):
        faults.add("run.gateway", "is not an HTTP base URL.", "Such as http://127.0.0.1:8080/v1.")
    if data["by"] and not data["sample"]:
        faults.add("data.by", "says how to draw a sample, and there is no `sample`.")
    folder = Path(path).resolve().parent
    found = _models(models, faults), _cells(cells, faults), _scorers(scorers, faults)
    faults.raise_any()
    return Grid(
        name=run["name"],
        gateway=run["gateway"].rstrip("/"),
        seed=run["seed"],
        epochs=run["epochs"],
        attempts_max=run["attempts_max"],
        timeout_s=float(run["timeout_s"]),
        idle_timeout_s=float(run["idle_timeout_s"]),
        concurrency=run["concurrency"],
        max_bytes=run["max_bytes"],
        budget=None if run["budget"] is None else Decimal(str(run["budget"])),
        cache=None if run["cache"] is None else str(folder / run["cache"]),
        data=Data(
            path=str(folder / data["path"]),
            version=data["version"],
            sample=data["sample"],
            by=data["by"],
            documents=None if data["documents"] is None else str(folder / data["documents"]),
        ),
        models=found[0],
        cells=found[1],
        scorers=found[2],
    )


def _check_names(tables: list[tuple[str, dict[str, Any]]], faults: Faults) -> None:
    for path, values in tables:
        name = values["name"]
        if name and not _NAME.fullmatch(name):
            hint = "Letters, digits and `._:/@+-`, beginning with a letter or digit."
            faults.add(f"{path}.name", "is no name.", hint)


def read_price(path: str, given: dict[str, Any] | None, faults: Faults) -> Price | None:
    """A `price` table; None where there is none."""
    if given is None:
        return None
    values = read_table(path, given, _PRICE, faults)
    if values["input"] is None or values["output"] is None:
        return None
    return Price.of(values)


_OURS: Final = ("model", "messages", "stream", "stream_options", "tools", "max_tokens", "n")
"""Members of a request that the harness sets itself."""


def _models(tables: list[tuple[str, dict[str, Any]]], faults: Faults) -> tuple[Model, ...]:
    models = []
    for path, values in tables:
        for name in values["body"]:
            if name in _OURS:
                faults.add(f"{path}.body.{name}", "is set by the harness.", "Remove it here.")
        if values["pin"] == "revision" and not values["revision"]:
            faults.add(f"{path}.pin", "needs `revision`.", "Name the revision that is meant.")
        if values["pin"] == "floating" and values["revision"]:
            faults.add(f"{path}.revision", "contradicts a floating pin.", "Set `pin`.")
        price = read_price(f"{path}.price", values.pop("price"), faults)
        asked = values["model"] or values["name"]
        models.append(Model(**{**values, "model": asked or "", "price": price}))
    return tuple(models)


def _cells(tables: list[tuple[str, dict[str, Any]]], faults: Faults) -> tuple[Cell, ...]:
    for path, values in tables:
        for kind, key in (("template", "template"), ("python", "function")):
            if values["kind"] == kind and not values[key]:
                faults.add(f"{path}.{key}", f"is needed by the kind `{kind}`.")
            if values["kind"] != kind and values[key] is not None:
                faults.add(f"{path}.{key}", f"is only for the kind `{kind}`.")
        if values["control"] is None:
            values["control"] = values["kind"] == "verbose-fixed"
        values["seconds_max"] = float(values["seconds_max"])
    return tuple(Cell(**values) for _, values in tables)


def _scorers(tables: list[tuple[str, dict[str, Any]]], faults: Faults) -> tuple[Scorer, ...]:
    for path, values in tables:
        if values["kind"] == "regex":
            try:
                re.compile(values["pattern"] or "")
            except re.error as bad:
                faults.add(f"{path}.pattern", f"is no regular expression: {bad.msg}.")
        elif values["pattern"] is not None:
            faults.add(f"{path}.pattern", "is only for the kind `regex`.")
        values["tolerance"] = float(values["tolerance"])
    return tuple(Scorer(**values) for _, values in tables)
