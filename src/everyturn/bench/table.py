"""Strict tables: what a grid or a judges file may say, each fault with its line and what to do.

All faults of a file are collected, then raised together as one `ConfigError`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from everyturn.errors import ConfigError

Locate = Callable[[str], int]
"""Path of a key (`models[1].name`) → its line; 0 where it is not known."""

REQUIRED: Final = object()

_KINDS: Final[dict[str, tuple[type | tuple[type, ...], str]]] = {
    "str": (str, "must be a string."),
    "bool": (bool, "must be true or false."),
    "int": (int, "must be a whole number."),
    "number": ((int, float), "must be a number."),
    "table": (dict, "must be a table."),
    "strings": (list, "must be a list of strings."),
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table. default: REQUIRED where it must be given."""

    name: str
    kind: str
    default: Any = None
    help: str = ""
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None


class Faults:
    """Collects what is wrong in one file."""

    def __init__(self, path: str, locate: Locate) -> None:
        self.path = path
        self._locate = locate
        self._found: list[tuple[int, str, str, str]] = []

    def add(self, key: str, what: str, hint: str = "") -> None:
        """Note a fault of the key `key`."""
        self._found.append((self._locate(key), key, what, hint))

    def raise_any(self) -> None:
        """Raise ConfigError if anything was wrong."""
        if self._found:
            raise ConfigError(self.path, self._found)


def read_table(path: str, given: Any, keys: Iterable[Key], faults: Faults) -> dict[str, Any]:
    """The values of one table by its keys; defaults where it is silent or wrong."""
    known = {key.name: key for key in keys}
    values = {key.name: None if key.default is REQUIRED else key.default for key in known.values()}
    if not isinstance(given, Mapping):
        faults.add(path, "must be a table.")
        return values
    for name, value in given.items():
        at = f"{path}.{name}"
        if name not in known:
            faults.add(at, "is not a key of this table.", nearest(name, known))
            continue
        problem = _wrong(known[name], value)
        if problem is None:
            values[name] = value
        else:
            faults.add(at, problem, known[name].help)
    for key in known.values():
        if key.default is REQUIRED and key.name not in given:
            faults.add(f"{path}.{key.name}", "is missing.", key.help)
    return values


def read_tables(
    path: str, given: Any, keys: Iterable[Key], faults: Faults
) -> list[tuple[str, dict[str, Any]]]:
    """An array of tables as (path, values); no table at all is a fault."""
    if not isinstance(given, list) or not given:
        faults.add(path, "needs at least one table.", f"Write `[[{path}]]`.")
        return []
    keys = tuple(keys)
    paths = [f"{path}[{number}]" for number in range(len(given))]
    return [(at, read_table(at, one, keys, faults)) for at, one in zip(paths, given, strict=True)]


def check_unique(tables: list[tuple[str, dict[str, Any]]], name: str, faults: Faults) -> None:
    """Fault each table whose `name` another one has already."""
    seen: set[Any] = set()
    for path, values in tables:
        if values[name] in seen:
            faults.add(f"{path}.{name}", "is given twice.", "Names are unique in a file.")
        seen.add(values[name])


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or all of them."""
    words = tuple(known)
    close = difflib.get_close_matches(name, words, n=1)
    return f"Did you mean `{close[0]}`?" if close else f"Known: {_listed(words)}."


def _wrong(key: Key, given: object) -> str | None:
    expected, problem = _KINDS[key.kind]
    value: Any = given
    if not isinstance(given, expected) or (isinstance(given, bool) and key.kind != "bool"):
        return problem
    if key.kind == "strings" and not all(isinstance(item, str) for item in value):
        return problem
    if key.kind == "str" and key.choices and value not in key.choices:
        return f"must be one of {_listed(key.choices)}."
    if key.kind == "str" and key.default is REQUIRED and not value:
        return "must not be empty."
    if key.minimum is not None and value < key.minimum:
        return f"must be at least {key.minimum}."
    if key.maximum is not None and value > key.maximum:
        return f"must be at most {key.maximum}."
    return None


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)
