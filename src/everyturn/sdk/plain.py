"""From what an application has in its hands to strict JSON: never fails, never invents.

What JSON cannot hold stands as `{"not_recorded": TYPE}` and is counted; its `repr` is not taken,
since nobody knows what is in it. What has a usual form in JSON (models with `model_dump`, data
classes, times, paths, sets) takes it.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Mapping
from typing import Any, Final

from everyturn.sdk.counting import Counters

DEPTH_MAX: Final = 100
"""Levels of a value that are recorded; the gateway reads 128, and a record has some of its own."""

_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))

_TEXT_FORMS: Final = frozenset(
    {"date", "datetime", "time", "UUID", "Decimal", "PosixPath", "WindowsPath", "Fraction"}
)
"""Types of the standard library whose `str` is their value."""


class Payload(bytes):
    """A value that is JSON already, to be put into a record as it is."""

    __slots__ = ()


class Plain:
    """Makes JSON; counts what had to be left out."""

    __slots__ = ("_counters", "_encode")

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        encoder = json.JSONEncoder(
            ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=self._stand_in
        )
        self._encode = encoder.encode

    def encode(self, tree: Any) -> bytes:
        """The tree as JSON in UTF-8, without NaN, lone surrogates or depth beyond `DEPTH_MAX`."""
        try:
            data = self._encode(tree).encode()
            if not _is_too_deep(data):
                return data
        except (ValueError, TypeError, RecursionError):
            # NaN, a name that is no text, a cycle, a lone surrogate: rare, so found the slow way.
            pass
        return self._encode(self._mend(tree, 0)).encode()

    def payload(self, value: Any) -> Payload:
        """The value as it is now: its later changes are not seen. Raises nothing."""
        try:
            return Payload(self.encode(value))
        except Exception:  # noqa: BLE001 - an object of the application that cannot be walked
            return Payload(self.encode(self._left_out(_name_of(value))))

    def text(self, value: Any) -> str | None:
        """A value for a field of text: text as it is, a list of content parts as JSON text."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int | float):
            return str(value)
        form = value if isinstance(value, dict | list | tuple) else self._stand_in(value)
        return form if isinstance(form, str) else self.encode(form).decode()

    def _mend(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return self._characters(value)
        if value is None or isinstance(value, bool | int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else self._left_out("not a finite number")
        if depth >= DEPTH_MAX:
            return self._left_out("deeper than is recorded")
        if isinstance(value, Mapping):
            return {
                self._characters(name if isinstance(name, str) else str(name)): self._mend(
                    item, depth + 1
                )
                for name, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._mend(item, depth + 1) for item in value]
        return self._mend(self._stand_in(value), depth + 1)

    def _characters(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            self._counters.add("characters_replaced")
            # Two halves of one character become that character again.
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text

    def _left_out(self, what: str) -> dict[str, str]:
        self._counters.add("values_not_json")
        return {"not_recorded": what}

    def _stand_in(self, value: Any) -> Any:
        """What stands for a value that JSON does not know."""
        try:
            found = _usual_form(value)
        except Exception:  # noqa: BLE001 - the application's own object failed; it is left out
            found = None
        if found is not None:
            return found
        return self._left_out(_name_of(value))


def _is_too_deep(data: bytes) -> bool:
    """Whether JSON text has more than `DEPTH_MAX` levels. Quick where it has few brackets."""
    if data.count(b"[") + data.count(b"{") <= DEPTH_MAX:
        return False
    brackets = _STRING.sub(b"", data).translate(_BRACKETS, _NOT_BRACKETS)
    for _ in range(DEPTH_MAX):
        # What holds nothing goes: one level a round.
        brackets = brackets.replace(b"[]", b"")
        if not brackets:
            return False
    return True


def _name_of(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _usual_form(value: Any) -> Any:
    """The form of a value that anybody would expect in JSON; None when there is none."""
    kind = type(value)
    if kind.__name__ in _TEXT_FORMS:
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return None
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(kind, "__dataclass_fields__"):
        return {name: getattr(value, name) for name in kind.__dataclass_fields__}
    if isinstance(value, set | frozenset):
        return list(value)
    if isinstance(getattr(value, "page_content", None), str):
        # A document of LangChain or LlamaIndex in its older, unmodelled form.
        return {"page_content": value.page_content, "metadata": getattr(value, "metadata", None)}
    if hasattr(kind, "__index__"):
        return operator.index(value)
    if hasattr(kind, "__float__"):
        number = float(value)
        return number if math.isfinite(number) else None
    return None
