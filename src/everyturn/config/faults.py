"""What is wrong with a configuration: collected, each fault with its line and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from everyturn.config.lines import key_lines, line_of
from everyturn.config.table import Setting


class Faults:
    """Collects what is wrong, with the line of each."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.found: list[tuple[int, str, str, str]] = []
        self.warnings: list[str] = []
        self._lines = key_lines(text)

    def add(self, key: str, what: str, hint: str) -> None:
        """Note a fault of the key `key`."""
        self.found.append((line_of(self._lines, key), key, what, hint))

    def warn(self, key: str, what: str) -> None:
        """Note something that will likely disappoint."""
        line = line_of(self._lines, key)
        self.warnings.append(f"{self.path}:{line}: `{key}`: {what}")


def read_table(
    path: str, given: Mapping[str, Any], settings: tuple[Setting, ...], faults: Faults
) -> dict[str, Any]:
    """The values of one table by its settings; faults for unknown keys and wrong values."""
    known = {setting.key: setting for setting in settings}
    values = {setting.key: setting.default for setting in settings}
    for key, value in given.items():
        if key not in known:
            faults.add(f"{path}.{key}", "is not a setting.", nearest(key, known))
            continue
        problem = wrong(known[key], value)
        if problem is None:
            values[key] = value
        else:
            faults.add(f"{path}.{key}", problem, known[key].help)
    return values


def wrong(setting: Setting, value: Any) -> str | None:
    """What is wrong with a value for a setting; None if nothing."""
    match setting.kind:
        case "bool":
            return None if isinstance(value, bool) else "must be true or false."
        case "int":
            if not isinstance(value, int) or isinstance(value, bool):
                return "must be a whole number."
            if not setting.minimum <= value <= setting.maximum:
                return f"must lie between {setting.minimum} and {setting.maximum}."
            return None
        case "strings":
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                return "must be a list of strings."
            bad = [item for item in value if setting.choices and item not in setting.choices]
            return f"has `{bad[0]}`, but knows only {_listed(setting.choices)}." if bad else None
        case "names":
            if isinstance(value, str):
                return None
            is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
            return None if is_list else "must be a string or a list of strings."
        case "table":
            is_table = isinstance(value, dict) and all(isinstance(v, str) for v in value.values())
            return None if is_table else "must be a table of strings."
        case "str":
            if not isinstance(value, str):
                return "must be a string."
            if setting.choices and value not in setting.choices:
                return f"must be one of {_listed(setting.choices)}."
            return None
        case _:
            return None  # `timeouts` and `reasoning` are tables of their own: see `models`.


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or all of them."""
    words = tuple(known)
    close = difflib.get_close_matches(name, words, n=1)
    return f"Did you mean `{close[0]}`?" if close else f"Known: {_listed(words)}."


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)
