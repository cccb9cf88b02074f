"""What a client must see of a provider's answer, said once more and independently of the gateway.

The documented mapping and nothing else: reasoning carriers become `reasoning_content`, thinking
items of a content list and tags in content likewise, calls without a good index get one. All other
values stand as the provider sent them. Two streams are compared by their ledgers: every value of
every key in order, text and arguments joined, so that it does not matter where a delta was cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from everyturn.wire.preset import Preset

DONE: Final = "[DONE]"
ALIAS: Final = "reasoning_content"
TEXT_CARRIERS: Final = ("reasoning_content", "reasoning", "thinking")
JOINED: Final = ("content", "refusal", ALIAS)
USAGE_FRAME_KEYS: Final = {
    *("id", "object", "created", "model", "service_tier", "system_fingerprint", "obfuscation"),
    *("choices", "usage"),
}
"""A frame with no other key and no choice says nothing but its usage."""

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


# ------------------------------------------------------------------------------- mapping


class Mapping:
    """The provider's answer as a client must see it, frame by frame or as a body.

    read, tags, tag: what the preset (or the operator) says about reasoning. One for each answer,
    since mirrors and tags go over frames.
    """

    def __init__(self, preset: Preset, *, tags: str | None = None) -> None:
        self._read = preset.read
        self._tags = tags or preset.tags
        self._tag = preset.tag
        self._carriers = [name for name in preset.read if name in TEXT_CARRIERS]
        self._said: dict[int, dict[str, str]] = {}
        self._spoken: dict[int, str] = {}

    def body(self, tree: Tree) -> Tree:
        """A whole answer."""
        beside = self._beside(tree)
        shown = dict(tree)
        shown["choices"] = []
        for position, choice in enumerate(tree["choices"]):
            index = _index(choice, position)
            message = {**choice["message"], **beside}
            told = self._joined(self._message(index, message, is_whole=True), message)
            shown["choices"].append({**choice, "message": told})
        return {key: value for key, value in shown.items() if key != ALIAS or not beside}

    def frame(self, tree: Tree) -> list[Tree]:
        """One frame of a stream; several where it holds more than one delta can say in order."""
        beside = self._beside(tree)
        frames = [{key: value for key, value in tree.items() if key != ALIAS or not beside}]
        if not tree.get("choices"):
            return frames
        frames[0]["choices"] = []
        for position, choice in enumerate(tree["choices"]):
            if not isinstance(choice.get("delta"), dict):
                frames[0]["choices"].append(choice)
                continue
            index = _index(choice, position)
            deltas = self._message(index, {**choice["delta"], **beside}, is_whole=False)
            frames[0]["choices"].append({**choice, "delta": deltas[0]})
            # Only the order of deltas counts here: what stands around them is said once.
            frames += [{"choices": [{"index": index, "delta": more}]} for more in deltas[1:]]
        return frames

    def _beside(self, tree: Tree) -> Tree:
        """Reasoning at the top of a body, where the preset reads it there."""
        has_it = "body.reasoning_content" in self._read and ALIAS in tree
        return {ALIAS: tree[ALIAS]} if has_it else {}

    def _message(self, index: int, message: Tree, *, is_whole: bool) -> list[Tree]:
        """A message or delta in the client's form: one or more deltas in their order.

        Tags are taken apart in whole messages only: in a stream they lie across deltas.
        """
        present = [name for name in self._carriers if name in message]
        kept = {key: value for key, value in message.items() if key not in present}
        if present or self._has_details(kept):
            kept.update(self._reasoning(index, message, present))
        content = message.get("content")
        if isinstance(content, list) and "content_list" in self._read:
            return self._content_list(kept, content)
        if isinstance(content, str) and self._tags != "off" and is_whole:
            return [self._tagged(kept, content, message)]
        return [kept]

    def _has_details(self, message: Tree) -> bool:
        return "reasoning_details" in self._read and bool(message.get("reasoning_details"))

    def _reasoning(self, index: int, message: Tree, present: list[str]) -> Tree:
        """The one alias: what the carriers say beyond what any of them has said before."""
        said = self._said.setdefault(index, {})
        new, is_text = "", False
        for name in present:
            if isinstance(message[name], str):
                is_text = True
                said[name] = said.get(name, "") + message[name]
        if not is_text and self._has_details(message):
            text = _detail_text(message["reasoning_details"])
            said["details"] = said.get("details", "") + text
            is_text = bool(text)
        spoken = self._spoken.get(index, "")
        for text in said.values():
            if len(text) > len(spoken + new):
                new = text[len(spoken) :]
        self._spoken[index] = spoken + new
        if is_text:
            return {ALIAS: new}
        return {ALIAS: None} if present else {}

    def _content_list(self, kept: Tree, items: list[Any]) -> list[Tree]:
        """A content list of thinking and text: the text as string, what stood beside it as details;
        with other items in it, content stays a list without the thinking."""
        deltas: list[Tree] = [{}]
        others: list[Any] = []
        details: list[Any] = []
        for item in items:
            if item.get("type") != "thinking":
                others.append(item)
                if set(item) == {"type", "text"}:
                    deltas[-1]["content"] = deltas[-1].get("content", "") + item["text"]
                continue
            inner = item["thinking"]
            parts = [{"type": "text", "text": inner}] if isinstance(inner, str) else inner
            text = "".join(part["text"] for part in parts if set(part) == {"type", "text"})
            rest = [part for part in parts if set(part) != {"type", "text"}]
            beside = {key: value for key, value in item.items() if key != "thinking"}
            if rest or len(beside) > 1:
                details.append({**beside, "thinking": rest} if rest else beside)
            if "content" in deltas[-1]:
                deltas.append({})
            deltas[-1][ALIAS] = deltas[-1].get(ALIAS, "") + text
        if any(set(item) != {"type", "text"} for item in others):
            deltas = [{"content": others}]
            thought = [item for item in items if item.get("type") == "thinking"]
            if thought:
                deltas[0][ALIAS] = "".join(_thinking_text(item) for item in thought)
        rest_of = {key: value for key, value in kept.items() if key != "content"}
        if details:
            rest_of["reasoning_details"] = details
        return [{**rest_of, **deltas[0]}, *deltas[1:]]

    def _tagged(self, kept: Tree, content: str, message: Tree) -> Tree:
        """Text with tags around its reasoning."""
        opening, closing = map(re.escape, self._tag)
        if self._tags == "marked":
            marks = (message.get("extra_content") or {}).get("google") or {}
            opening = f"^{opening}" if marks.get("thought") else "(?!)"
        pattern = re.compile(f"{opening}(.*?)(?:{closing}|$)", re.DOTALL)
        thoughts = pattern.findall(content)
        if not thoughts:
            return kept
        return {**kept, "content": pattern.sub("", content), ALIAS: "".join(thoughts)}

    def _joined(self, deltas: list[Tree], message: Tree) -> Tree:
        """The deltas of a whole message as one message."""
        first, *more = deltas
        for delta in more:
            for key, value in delta.items():
                first[key] = first.get(key, "") + value
        if isinstance(message.get("content"), list):
            first.setdefault("content", "")
        return first


def _index(choice: Tree, position: int) -> Any:
    return choice.get("index", Number(position))


def _thinking_text(item: Tree) -> str:
    inner = item["thinking"]
    if isinstance(inner, str):
        return inner
    return "".join(part["text"] for part in inner if set(part) == {"type", "text"})


def _detail_text(details: list[Tree]) -> str:
    return "".join(
        item[key]
        for item in details
        for key in ("text", "summary")
        if isinstance(item.get(key), str)
    )


# ------------------------------------------------------------------------------- ledgers


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
            index = _index(choice, position)
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
                _order(found.setdefault(f"{index}.order", []), key, value)
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


def _order(order: list[list[str]], kind: str, text: str) -> None:
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


def call_indexes(frames: list[Tree]) -> dict[Any, list[Any]]:
    """For each choice the index of every tool call fragment, as a client merges them."""
    found: dict[Any, list[Any]] = {}
    for frame in frames:
        for position, choice in enumerate(frame.get("choices") or []):
            for fragment in (choice.get("delta") or {}).get("tool_calls") or []:
                found.setdefault(_index(choice, position), []).append(fragment.get("index"))
    return found


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
