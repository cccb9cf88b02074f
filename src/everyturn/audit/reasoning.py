"""Count reasoning and put a mark where its text stood.

Pure. Known carriers are looked for in the structure of a JSON tree, wherever they stand: members of
messages, items of content lists, `thinking_blocks`, `reasoning_details`, items of other APIs. What
an application put there itself (tool arguments, schemas) is left alone. A string that is JSON, as
results of tools often are, is looked into; the words of a message are not. Null, empty and numbers
stay, so absence stays absence. Signatures stay whole: they are opaque and say nothing. Encrypted
reasoning is reasoning and is marked, its length apart from the count.

The mark is `{"everyturn_reasoning": {"chars": N, "carrier": NAME}}`; chars are code points. Where a
deployment keeps the texts (see `kept`), `"ref"` in it names the row of `reasoning_texts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from everyturn.wire.reader import Malformed, read_provider, write_text

MARK: Final = "everyturn_reasoning"

Keep = Callable[[str, str, bool], str]
"""(text, carrier, whether it is encrypted) → what names the text where it is kept, apart."""

_GAP: Final = r"(?:\s|\\+[nrt])*:(?:\s|\\+[nrt])*"
"""A colon and the blanks about it, in JSON inside a string."""
HINT: Final = (
    r'(?i)(?:reasoning|think|thought)(?:[^"\\]|\\.)*"\s*:\s*["\[{]'
    r'|"type"\s*:\s*"(?:reasoning|(?:redacted_)?thinking"|thought")'
    # The same in JSON that is a string of JSON, at any depth.
    r'|(?:reasoning|think|thought)(?:[^"\\]|\\+[^\\])*\\+"' + _GAP + r'(?:\\+"|[\[{])'
    r'|\\"type\\+"' + _GAP + r'\\+"(?:reasoning|(?:redacted_)?thinking|thought)'
)
"""Matches the serialised text of every tree that `mark_tree` changes.

A name that speaks of reasoning counts with text or a structure behind it: nearly every usage object
has a number of reasoning tokens, and numbers stay.
"""

TAGS: Final = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("◁think▷", "◁/think▷"),
)
"""Tags that models put around reasoning in plain text."""

_CARRIERS: Final = frozenset(
    {
        "reasoning_content",
        "reasoning",
        "reasoning_details",
        "reasoning_text",
        "reasoning_summary",
        "reasoningContent",
        "reasoningText",
        "thinking",
        "thinking_blocks",
        "thinking_content",
        "thought",
        "thoughts",
    }
)
_ITEM_LISTS: Final = frozenset(
    {"reasoning_details", "thinking_blocks", "reasoning_content", "reasoning", "thinking"}
)
"""Carriers whose list items keep their form; any other list becomes one mark."""

_ITEM_TYPES: Final = frozenset({"thinking", "redacted_thinking", "thought"})
"""Values of `type` that make an item of a content list reasoning, beside `reasoning…`."""

_ITEM_TEXTS: Final = frozenset(
    {
        "text",
        "summary",
        "content",
        "thinking",
        "reasoning",
        "reasoningText",
        "data",
        "encrypted_content",
        "redactedContent",
    }
)
_ENCRYPTED: Final = frozenset({"data", "encrypted_content", "redactedContent"})
_ITEM_FACTS: Final = frozenset(
    {
        "type",
        "id",
        "index",
        "format",
        "signature",
        "status",
        "role",
        "name",
        "effort",
        "closed",
        "thought_signature",
    }
)
"""Members of a reasoning item that are no text of it."""

_APPLICATION: Final = frozenset(
    {"arguments", "input", "parameters", "schema", "input_schema", "json_schema", "properties"}
)
"""Members whose content belongs to the application, whatever its names are."""

_MESSAGES: Final = ("message", "delta")
"""Members that hold a message, also where it does not name its role."""
_TOOLS: Final = ("tool", "function")
"""Roles whose words are results: JSON in them is looked into. In others' it is what they say."""
DEPTH_MAX: Final = 5
"""Levels of JSON in strings that are looked into; a deeper string with reasoning is one mark."""

_SPEAKING: Final = ("reasoning", "think", "thought")
_CONTROL_ENDS: Final = (
    "effort",
    "tokens",
    "budget",
    "format",
    "signature",
    "signatures",
    "split",
    "mode",
    "history",
    "chars",
    "enabled",
    "config",
    "level",
)
_CONTROL_STARTS: Final = ("enable_", "disable_", "include_", "exclude_", "separate_", "clear_")
REF_CHARS: Final = 32
"""Length of what names a kept text."""
_ECHO_LENGTH_MIN: Final = 16
_ECHO_PROBE: Final = 40


class Marked(NamedTuple):
    """A tree without reasoning text."""

    value: Any
    """The same object as was given when there was none."""
    chars: int
    """Code points of plain reasoning that was marked."""
    carriers: tuple[str, ...]
    """Where it stood, in order of first appearance; encrypted ones included."""


def speaks_of_reasoning(name: str) -> bool:
    """Whether an unknown member's name says that it may hold reasoning.

    Controls and counts (`reasoning_effort`, `reasoning_tokens`) do not.
    """
    low = name.lower()
    if not any(word in low for word in _SPEAKING):
        return False
    return not low.endswith(_CONTROL_ENDS) and not low.startswith(_CONTROL_STARTS)


def mark_tree(
    tree: Any, *, is_answer: bool = False, has_controls: bool = False, keep: Keep | None = None
) -> Marked:
    """The tree with each reasoning text replaced by its mark.

    is_answer: the tree is what a provider said, so that members whose names only speak of
    reasoning count as well; in a request such names are parameters.
    has_controls: the tree is a request's parameters, where an object under a carrier's name asks
    for reasoning (`"reasoning": {"effort": …}`) and holds none.
    keep: takes each text, for a deployment that stores them; None: they are counted only.
    """
    walk = _Walk(is_answer, has_controls, keep)
    value = walk.any(tree)
    return Marked(value, walk.chars, tuple(walk.carriers))


def mark_tags(text: str, tags: Iterable[tuple[str, str]] = TAGS) -> tuple[str, int]:
    """The text with what stands between reasoning tags replaced by `[reasoning:N chars]`.

    Returns the text and how many characters were taken. A tag that never closes reaches to the
    end; one that only closes reaches back to the start, as with templates that open it.
    """
    taken = 0
    for opening, closing in tags:
        if opening in text or closing in text:
            text, count = _mark_tag(text, opening, closing)
            taken += count
    return text, taken


def _mark_tag(text: str, opening: str, closing: str) -> tuple[str, int]:
    pieces: list[str] = []
    taken = 0
    done = 0
    first_close = text.find(closing)
    first_open = text.find(opening)
    if first_close >= 0 and (first_open < 0 or first_close < first_open):
        pieces.append(_tag_mark(text[:first_close]))
        taken += first_close
        done = first_close
    while (at := text.find(opening, done)) >= 0:
        start = at + len(opening)
        end = text.find(closing, start)
        end = len(text) if end < 0 else end
        pieces += [text[done:start], _tag_mark(text[start:end])]
        taken += end - start
        done = end
    pieces.append(text[done:])
    return "".join(pieces), taken


def tag_mark(text: str, keep: Keep | None = None) -> str:
    """What stands for a reasoning text inside plain text."""
    ref = "" if keep is None else f":{keep(text, 'tags', False)}"
    return f"[reasoning:{len(text)} chars{ref}]"


def _tag_mark(text: str) -> str:
    return text if _is_tag_mark(text) else tag_mark(text)


def _is_tag_mark(text: str) -> bool:
    if text == "":
        return True
    count, _, ref = text.removeprefix("[reasoning:").removesuffix("]").partition(" chars")
    has_form = text.startswith("[reasoning:") and text.endswith("]") and " chars" in text
    return has_form and count.isdigit() and (ref == "" or _is_ref(ref.removeprefix(":")))


def _is_ref(text: str) -> bool:
    return len(text) == REF_CHARS and not text.strip("0123456789abcdef")


def texts_in(tree: Any) -> Iterator[str]:
    """Every reasoning text that `mark_tree` would mark, to find it again where it was echoed."""
    walk = _Walk(is_answer=True, has_controls=False, keep=None)
    walk.any(tree)
    yield from walk.texts


def without_reasoning(value: Any, said: list[str]) -> Any:
    """An error's tree without reasoning that its texts repeat or hold in tags."""
    if isinstance(value, str):
        return without_echo(mark_tags(value)[0], said)
    if isinstance(value, dict):
        return {name: without_reasoning(item, said) for name, item in value.items()}
    if isinstance(value, list):
        return [without_reasoning(item, said) for item in value]
    return value


def without_echo(text: str, reasoning: Iterable[str]) -> str:
    """A text (an error message) without the reasoning that it repeats.

    A repeat that was cut short is known by its beginning and takes the rest of the text with it.
    """
    for said in reasoning:
        if len(said) < _ECHO_LENGTH_MIN:
            continue
        for form in _forms(said):
            if form in text:
                text = text.replace(form, f"[reasoning:{len(said)} chars]")
            elif (at := text.find(form[:_ECHO_PROBE])) >= 0:
                text = f"{text[:at]}[reasoning:{len(said)} chars]"
    return text


def _forms(text: str) -> list[str]:
    """A text as it may stand in a message: plain, as Python's repr, as JSON."""
    shown = repr(text)[1:-1]
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return list(dict.fromkeys((text, shown, escaped)))


class _Walk:
    """One pass over one tree; copies what it changes and nothing else."""

    def __init__(self, is_answer: bool, has_controls: bool, keep: Keep | None) -> None:
        self._is_answer = is_answer
        self._has_controls = has_controls
        self._keep = keep
        self.chars = 0
        self.carriers: dict[str, None] = {}
        self.texts: list[str] = []
        self._depth = 0
        self._is_said = has_controls
        """Whether strings here are somebody's words, or a parameter, which nothing looks into."""

    def any(self, value: Any) -> Any:
        """A value that is not known to be reasoning."""
        if isinstance(value, dict):
            kind = value.get("type")
            if isinstance(kind, str) and (kind in _ITEM_TYPES or kind.startswith("reasoning")):
                return self._item(value, kind)
            role = value.get("role")
            if isinstance(role, str) and role not in _TOOLS:
                return self._as_said(self._members, value)
            return self._members(value)
        if isinstance(value, list):
            return self._items(value)
        if isinstance(value, str) and not self._is_said:
            return self._opened(value)
        return value

    def _as_said(self, walk: Callable[[Any], Any], message: Any) -> Any:
        """A message: who wrote it may speak in JSON, and that is what was said."""
        was_said, self._is_said = self._is_said, True
        try:
            return walk(message)
        finally:
            self._is_said = was_said

    def _opened(self, text: str) -> Any:
        """A string, with the JSON in it marked where it is JSON; any other is left as it is."""
        if text.strip(" \t\r\n")[:1] not in ("{", "[", '"'):
            return text
        low = text.lower()
        if not any(word in low for word in _SPEAKING):
            return text
        if self._depth == DEPTH_MAX:
            return self._whole(text, "nested") if re.search(HINT, text) else text
        try:
            tree = read_provider(text.encode("utf-8", "surrogatepass")).value
        except Malformed:
            return text
        self._depth += 1
        new = self.any(tree)
        self._depth -= 1
        return text if new is tree else write_text(new)

    def _members(self, value: dict[str, Any]) -> dict[str, Any]:
        changed: dict[str, Any] | None = None
        for name, item in value.items():
            if item is None or isinstance(item, bool | int | float):
                continue
            if name in _CARRIERS:
                new = self._carrier(item, name)
            elif name in _APPLICATION or name == MARK:
                continue
            elif self._is_answer and speaks_of_reasoning(name):
                new = self._whole(item, name)
            elif name in _MESSAGES and isinstance(item, dict):
                new = self._as_said(self.any, item)
            else:
                new = self.any(item)
            if new is not item:
                changed = dict(value) if changed is None else changed
                changed[name] = new
        return value if changed is None else changed

    def _items(self, value: list[Any]) -> list[Any]:
        new = [self.any(item) for item in value]
        return new if any(a is not b for a, b in zip(new, value, strict=True)) else value

    def _carrier(self, item: Any, name: str) -> Any:
        """The value of a known carrier."""
        if isinstance(item, str):
            return self._text(item, name)
        if isinstance(item, list):
            if name in _ITEM_LISTS and all(isinstance(one, dict) for one in item):
                new = [self._item(one, name) for one in item]
                return new if any(a is not b for a, b in zip(new, item, strict=True)) else item
            return self._whole(item, name)
        if isinstance(item, dict) and MARK not in item and not self._has_controls:
            if any(isinstance(item.get(key), str | list | dict) for key in _ITEM_TEXTS):
                return self._item(item, name)
            return self.any(item)
        return item

    def _item(self, item: dict[str, Any], carrier: str) -> dict[str, Any]:
        """An object that is reasoning: its texts are marked, its facts stay."""
        changed: dict[str, Any] | None = None
        for name, value in item.items():
            if name in _ITEM_FACTS or name == MARK:
                continue
            if isinstance(value, str):
                new = self._text(value, carrier, is_encrypted=name in _ENCRYPTED)
            elif isinstance(value, dict):
                new = value if MARK in value else self._item(value, carrier)
            elif isinstance(value, list) and all(isinstance(one, dict) for one in value):
                new = [self._item(one, carrier) for one in value]
                if all(a is b for a, b in zip(new, value, strict=True)):
                    new = value
            else:
                new = self._whole(value, carrier)
            if new is not value:
                changed = dict(item) if changed is None else changed
                changed[name] = new
        return item if changed is None else changed

    def _text(self, text: str, carrier: str, *, is_encrypted: bool = False) -> Any:
        if not text:
            return text
        self.carriers[carrier] = None
        self.texts.append(text)
        if is_encrypted:
            more = {"encrypted": True, **self._ref(text, carrier, is_encrypted=True)}
            return {MARK: {"chars": len(text), "carrier": carrier, **more}}
        self.chars += len(text)
        return {MARK: {"chars": len(text), "carrier": carrier, **self._ref(text, carrier)}}

    def _ref(self, value: Any, carrier: str, *, is_encrypted: bool = False) -> dict[str, str]:
        if self._keep is None:
            return {}
        text = value if isinstance(value, str) else write_text(value)
        return {"ref": self._keep(text, carrier, is_encrypted)}

    def _whole(self, value: Any, carrier: str) -> Any:
        """Any value under a reasoning name, as one mark; what holds no text stays."""
        if isinstance(value, dict) and MARK in value:
            return value
        texts = list(_strings(value))
        if not any(texts):
            return value
        self.carriers[carrier] = None
        self.texts += texts
        count = sum(map(len, texts))
        self.chars += count
        return {MARK: {"chars": count, "carrier": carrier, **self._ref(value, carrier)}}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
