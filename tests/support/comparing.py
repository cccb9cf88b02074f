"""Answers taken apart and compared, value by value, independently of the gateway's own readers.

JSON keeps the text of its numbers. Two streams are compared by their ledgers: every value of every
key in order, text and arguments joined, so that it does not matter where a delta was cut. A stream
is also folded, as clients do it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

DONE: Final = "[DONE]"
ALIAS: Final = "reasoning_content"
JOINED: Final = ("content", "refusal", ALIAS)
USAGE_FRAME_KEYS: Final = {
    *("id", "object", "created", "model", "service_tier", "system_fingerprint", "obfuscation"),
    *("choices", "usage"),
}
"""A frame with no other key and no choice says nothing but its usage."""

SAID: Final = ("role", "id", "type", "name", "format", "channel")
"""Strings that a delta says anew instead of going on with them."""

Tree = dict[str, Any]
Ledger = dict[str, Any]


# --------------------------------------------------------------------------------- JSON


class Number(str):
    """A number by its text: `1.0`, `1.00` and `1` are three values."""

    __slots__ = ()


def read_json(text: bytes | str) -> Any:
    """The tree of a JSON text, every number as its text; `NaN` and its like as null."""
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=lambda _: None)


def write_json(value: Any, *, is_sorted: bool = False) -> str:
    """The JSON text of a tree, in ASCII, every number by its text."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        keys = sorted(value) if is_sorted else value
        members = (
            f"{json.dumps(key)}:{write_json(value[key], is_sorted=is_sorted)}" for key in keys
        )
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(write_json(item, is_sorted=is_sorted) for item in value) + "]"
    return json.dumps(value)


# ------------------------------------------------------------------------------- frames


def data_events(text: bytes) -> list[Any]:
    """The data of each event of a stream: a tree, or DONE. Comments and other lines are left out.

    An event whose data is no JSON raises, as it would in a client.
    """
    return [data for _, data in named_events(text)]


def named_events(text: bytes) -> Iterator[tuple[str | None, Any]]:
    """Each event with data: the name its `event:` line gives, and the data as a tree or DONE."""
    lines = text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for block in re.split(rb"\n\n+", lines):
        name, data = None, []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value.decode()
        told = b"\n".join(data).strip()
        if told:
            yield name, DONE if told == b"[DONE]" else read_json(told)


def is_usage_frame(event: Tree) -> bool:
    """Whether a frame is withheld from a client that did not ask for the usage of a stream."""
    return event.get("choices") == [] and "usage" in event and set(event) <= USAGE_FRAME_KEYS


# ------------------------------------------------------------------------------- ledgers


def index_of(choice: Tree, position: int) -> Any:
    """The index of a choice; its place where the provider gave none."""
    return choice.get("index", Number(position))


def ledger(frames: list[Tree]) -> Ledger:
    """Every value of a stream by its place: lists of values in order, text and arguments joined.

    Null and the empty string are values of their own: `[None, "text", None]`. Members that stand in
    each frame (id, index, an unfinished finish) are listed without repetition.
    """
    found: Ledger = {}
    calls: dict[Any, _Calls] = {}
    for frame in frames:
        for key, value in frame.items():
            if key != "choices":
                _list(found, key, value, is_run=True)
        choices = frame.get("choices")
        if choices == [] or choices is None:
            _list(found, "choices", choices if "choices" in frame else "absent", is_run=True)
        for position, choice in enumerate(choices or []):
            index = index_of(choice, position)
            for key, value in choice.items():
                if key != "delta" or not isinstance(value, dict):
                    _list(found, f"{index}.{key}", value, is_run=True)
            if isinstance(choice.get("delta"), dict):
                _deltas(found, index, choice["delta"], calls.setdefault(index, _Calls()))
    for index, known in calls.items():
        known.write(found, index)
    return found


def _deltas(found: Ledger, index: Any, delta: Tree, calls: _Calls) -> None:
    for key in sorted(delta, key=lambda key: key == "content"):
        value = delta[key]
        place = f"{index}.delta.{key}"
        if key == "tool_calls" and isinstance(value, list):
            for fragment in value:
                calls.add(fragment)
        elif key in JOINED and (value is None or isinstance(value, str)):
            _join(found.setdefault(place, []), value)
            if value and key != "refusal":
                add_order(found.setdefault(f"{index}.order", []), key, value)
        elif key == "content":
            for item in value:
                _list(found, place, item)
        else:
            _list(found, place, value, is_run=key == "role")


def _list(found: Ledger, place: str, value: Any, *, is_run: bool = False) -> None:
    values = found.setdefault(place, [])
    if not (is_run and values and same(values[-1], value)):
        values.append(value)


def _join(runs: list[Any], value: str | None) -> None:
    """Add a text to the last one, unless null stands between them."""
    if runs and isinstance(value, str) and isinstance(runs[-1], str):
        runs[-1] += value
    elif not runs or value is not None or runs[-1] is not None:
        runs.append(value)


def add_order(order: list[list[str]], kind: str, text: str) -> None:
    """Add text to the sequence of reasoning and text; neighbours of one kind are one."""
    if order and order[-1][0] == kind:
        order[-1][1] += text
    else:
        order.append([kind, text])


class _Calls:
    """The tool calls of one choice, put together by the documented rules.

    A fragment belongs to the call of its id; a new id opens a call. Without an id it belongs to the
    newest call of its index, or without an index to the newest of all; a name opens a call there.
    """

    def __init__(self) -> None:
        self._calls: list[Ledger] = []
        self._by_id: dict[str, int] = {}
        self._by_index: dict[Any, int] = {}

    def add(self, fragment: Tree) -> None:
        function = fragment.get("function") or {}
        number = self._number(fragment, function)
        call = self._calls[number]
        for key, value in fragment.items():
            if key not in ("index", "function"):
                _list(call, key, value, is_run=True)
        for key, value in function.items():
            text = value if value is None or isinstance(value, str) else write_json(value)
            if key == "arguments":
                _join(call.setdefault("function.arguments", []), text)
            else:
                _list(call, f"function.{key}", value, is_run=True)

    def _number(self, fragment: Tree, function: Tree) -> int:
        index, name = fragment.get("index"), fragment.get("id") or None
        if name is not None and name in self._by_id:
            number = self._by_id[name]
        elif name is not None or not self._calls:
            number = self._open()
        elif index is None:
            number = self._open() if function.get("name") else len(self._calls) - 1
        elif index in self._by_index:
            number = self._by_index[index]
        else:
            number = self._open() if function.get("name") else self._lone()
        if name is not None:
            self._by_id[name] = number
        if index is not None:
            self._by_index.setdefault(index, number)
            if name is not None:
                self._by_index[index] = number
        return number

    def _open(self) -> int:
        self._calls.append({})
        return len(self._calls) - 1

    def _lone(self) -> int:
        """The one call without arguments, for a fragment whose index nobody opened."""
        silent = [
            number
            for number, call in enumerate(self._calls)
            if not any(call.get("function.arguments", []))
        ]
        return silent[0] if len(silent) == 1 else self._open()

    def write(self, found: Ledger, index: Any) -> None:
        for number, call in enumerate(self._calls):
            found.update({f"{index}.tool_calls[{number}].{key}": call[key] for key in call})


def unclear_calls(frames: list[Tree]) -> list[str]:
    """What would mislead a client that merges the fragments of tool calls by their index."""
    faults: list[str] = []
    names: dict[Any, set[str]] = {}
    for frame in frames:
        for position, choice in enumerate(frame.get("choices") or []):
            for fragment in (choice.get("delta") or {}).get("tool_calls") or []:
                if not isinstance(fragment.get("index"), Number):
                    faults.append("a fragment of a tool call has no index")
                place = (index_of(choice, position), fragment.get("index"))
                names.setdefault(place, set()).update(
                    {fragment["id"]} if fragment.get("id") else ()
                )
    if any(len(ids) > 1 for ids in names.values()):
        faults.append("two tool calls have one index")
    return faults


# ------------------------------------------------------------------------------- folding


def fold(frames: list[Tree]) -> Tree:
    """A stream put together as clients do it: texts joined, calls by index, lists extended."""
    body: Tree = {}
    choices: dict[Any, Tree] = {}
    for frame in frames:
        for key, value in frame.items():
            if key != "choices" and (value is not None or key not in body):
                body[key] = value
        for position, choice in enumerate(frame.get("choices") or []):
            index = index_of(choice, position)
            kept = choices.setdefault(index, {"index": index, "message": {}})
            for key, value in choice.items():
                if key == "delta":
                    _add(kept["message"], value)
                elif key == "logprobs" and isinstance(value, dict):
                    if not isinstance(kept.get(key), dict):
                        kept[key] = {}
                    _add(kept[key], value)
                elif value is not None or key not in kept:
                    kept[key] = value
    return {**body, "choices": [choices[index] for index in sorted(choices)]}


def _add(kept: Tree, delta: Tree) -> None:
    """Add a delta to what there is of a message, a call or a function."""
    for key, value in delta.items():
        old = kept.get(key)
        if value is None:
            kept.setdefault(key, None)
        elif key == "tool_calls":
            kept[key] = old or []
            for fragment in value:
                _add_call(kept[key], fragment)
        elif old is None:
            kept[key] = {} if isinstance(value, dict) else value
            if isinstance(value, dict):
                _add(kept[key], value)
        elif isinstance(value, Number) or key in SAID:
            kept[key] = value if value else old
        elif key == "executed_tools":
            kept[key] = value  # Said whole each time.
        elif isinstance(value, str | list) and isinstance(old, type(value)):
            kept[key] = old + value
        elif isinstance(value, dict) and isinstance(old, dict):
            _add(old, value)
        else:
            kept[key] = value


def _add_call(calls: list[Any], fragment: Tree) -> None:
    for call in calls:
        if call["index"] == fragment["index"]:
            _add(call, fragment)
            return
    calls.append({})
    _add(calls[-1], fragment)


# ------------------------------------------------------------------------------- comparing


def same(one: Any, other: Any) -> bool:
    """Whether two trees hold the same values, numbers by their text; the order of keys is free."""
    return write_json(one, is_sorted=True) == write_json(other, is_sorted=True)


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Where two trees differ: what was expected and what was found, a line each, cut short."""
    if isinstance(expected, dict) and isinstance(found, dict):
        lines = []
        for key in [*expected, *(key for key in found if key not in expected)]:
            here = f"{path}.{key}" if path else key
            if key not in found:
                lines.append(f"{here}: missing, expected {_short(expected[key])}")
            elif key not in expected:
                lines.append(f"{here}: not expected: {_short(found[key])}")
            else:
                lines += differences(expected[key], found[key], here)
        return lines
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [
            line
            for position, (one, other) in enumerate(zip(expected, found, strict=True))
            for line in differences(one, other, f"{path}[{position}]")
        ]
    if same(expected, found):
        return []
    return [f"{path}: expected {_short(expected)}, found {_short(found)}"]


def _short(value: Any) -> str:
    text = write_json(value)
    return text if len(text) <= 160 else f"{text[:120]} … {text[-30:]}"
