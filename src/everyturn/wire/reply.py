"""The fold: a call's events become one Reply, the same for streamed and whole answers.

The fold never looks at bytes and never decides; it adds up. `MISSING` says that a key was never
sent, None that it was only ever null.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from everyturn.wire import events as ev


class Missing:
    """The type of MISSING: a key that was never sent."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = Missing()

_ATOMIC: Final = frozenset(
    [
        "id",
        "type",
        "role",
        "name",
        "format",
        "object",
        "url",
        "index",
        "channel",
        "signature",
        "model",
        "native_finish_reason",
    ]
)
"""String members that are said, not streamed: a later value replaces the earlier one."""


def merge(old: Any, new: Any, key: str = "") -> Any:
    """`old` with the delta `new` of the member `key`: strings and lists grow, the rest replaces.

    Null never erases. List items with the same `index` (and `type`, where both have one) are
    merged, since providers stream items piece by piece (faults: signature in the last delta).
    """
    if new is None:
        return None if isinstance(old, Missing) else old
    if old is None or isinstance(old, Missing):
        return _copy(new)
    if isinstance(old, str) and isinstance(new, str):
        if key in _ATOMIC:
            return new or old
        return old + new
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in new.items():
            old[name] = merge(old.get(name, MISSING), value, name)
        return old
    if isinstance(old, list) and isinstance(new, list):
        for item in new:
            _merge_item(old, item)
        return old
    return _copy(new)


def _merge_item(items: list[Any], new: Any) -> None:
    if isinstance(new, dict) and isinstance(new.get("index"), int):
        for old in items:
            if (
                isinstance(old, dict)
                and old.get("index") == new["index"]
                and old.get("type") == new.get("type")
                and not _starts_anew(old, new)
            ):
                merge(old, new)
                return
    items.append(_copy(new))


def _starts_anew(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether two items that share an index are different things, known by their ids."""
    return bool(old.get("id") and new.get("id") and old["id"] != new["id"])


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


@dataclass(slots=True)
class ToolCall:
    """One tool call of the assistant."""

    index: int
    id: str | None = None
    type: str | None = None
    name: str | None = None
    arguments: str | None = None
    """As sent; None when no fragment had arguments. "" and None are different."""
    rest: dict[str, Any] = field(default_factory=dict)
    """Other members; `function.KEY` for those of the function object."""


@dataclass(slots=True)
class Choice:
    """One assistant answer. Text members: MISSING never sent, None only null, else the text."""

    index: int
    content: str | Missing | None = MISSING
    content_items: list[Any] | None = None
    """Set when the content is a list with items beside text; then it is the whole content."""
    reasoning: str | Missing | None = MISSING
    carriers: list[str] = field(default_factory=list)
    """Where reasoning stood, in order of first appearance."""
    reasoning_details: list[Any] | Missing | None = MISSING
    refusal: str | Missing | None = MISSING
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish_reason: str | Missing | None = MISSING
    values: dict[str, Any] = field(default_factory=dict)
    """Members of the message that the protocol names: role, annotations, audio, function_call."""
    message_bag: dict[str, Any] = field(default_factory=dict)
    choice_values: dict[str, Any] = field(default_factory=dict)
    """Members of the choice that the protocol names: logprobs."""
    choice_bag: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Reply:
    """What one call said, all of it."""

    choices: list[Choice] = field(default_factory=list)
    usage: dict[str, Any] | Missing | None = MISSING
    envelope: dict[str, Any] = field(default_factory=dict)
    """id, object, created, model, service_tier, system_fingerprint, as sent."""
    bag: dict[str, Any] = field(default_factory=dict)
    drift: list[dict[str, Any]] = field(default_factory=list)
    """Paths, types and lengths of what was carried as drift; never text."""
    flags: list[str] = field(default_factory=list)

    @property
    def reasoning_chars(self) -> int:
        """Length of all reasoning text in Unicode code points."""
        return sum(len(c.reasoning) for c in self.choices if isinstance(c.reasoning, str))

    @property
    def carriers(self) -> list[str]:
        """All carriers seen, in order of first appearance."""
        return list(dict.fromkeys(name for c in self.choices for name in c.carriers))

    @property
    def is_refused(self) -> bool:
        """Whether the model refused: a non-empty refusal, or a content filter ended a choice."""
        return any(c.refusal or c.finish_reason == "content_filter" for c in self.choices)

    def flag(self, name: str) -> None:
        """Note a repair or an oddity, once."""
        if name not in self.flags:
            self.flags.append(name)


class _Texts:
    """Pieces of the growing texts of one choice; joined once at the end."""

    __slots__ = ("content", "reasoning", "refusal")

    def __init__(self) -> None:
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []


class Fold:
    """Adds events up. `reply()` may be called at any time; what arrived so far is in it."""

    __slots__ = ("_arguments", "_choices", "_incremental", "_reply", "_texts")

    def __init__(self, *, usage_incremental: bool = False) -> None:
        self._reply = Reply()
        self._choices: dict[int, Choice] = {}
        self._texts: dict[int, _Texts] = {}
        self._arguments: dict[tuple[int, int], list[str]] = {}
        self._incremental = usage_incremental

    def choice(self, index: int) -> Choice:
        """The choice `index`, opened when it is new."""
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = Choice(index)
            self._texts[index] = _Texts()
            self._reply.choices.append(choice)
        return choice

    def text_parts(self, index: int) -> list[str]:
        """The growing list of content pieces of a choice, for the stream's fast path."""
        choice = self.choice(index)
        if not isinstance(choice.content, str):
            choice.content = ""
        return self._texts[index].content

    def reasoning_parts(self, index: int, carrier: str) -> list[str]:
        """The growing list of reasoning pieces of a choice, for the stream's fast path."""
        choice = self.choice(index)
        if carrier not in choice.carriers:
            choice.carriers.append(carrier)
        if not isinstance(choice.reasoning, str):
            choice.reasoning = ""
        return self._texts[index].reasoning

    def add(self, event: ev.Event) -> None:
        """Add one event."""
        match event:
            case ev.TextDelta(index, text):
                self._text(index, text)
            case ev.ReasoningDelta(index, text, carrier):
                self._reasoning(index, text, carrier)
            case ev.ToolCallDelta():
                self._tool_call(event)
            case ev.Finish(index, value):
                choice = self.choice(index)
                if value or not choice.finish_reason:
                    choice.finish_reason = value
            case ev.RefusalDelta(index, text):
                self._refusal(index, text)
            case ev.ReasoningDetails(index, items):
                choice = self.choice(index)
                choice.reasoning_details = merge(choice.reasoning_details, items)
            case ev.Usage(_, usage):
                self._usage(usage)
            case ev.ContentItems(index, items):
                self._content_items(index, items)
            case ev.Value(scope, index, key, value):
                self._put(scope, index, key, value, named=True)
            case ev.Unknown(scope, index, key, value) | ev.Drift(scope, index, key, value):
                self._put(scope, index, key, value, named=False)
            case ev.ErrorSeen() | ev.Done():
                pass  # Endings belong to the stream's state table, not to the sum.

    def _text(self, index: int, text: str | None) -> None:
        choice = self.choice(index)
        if text is None:
            if isinstance(choice.content, Missing):
                choice.content = None
            return
        if choice.content_items is not None:
            if text:
                choice.content_items.append({"type": "text", "text": text})
            return
        self.text_parts(index).append(text)

    def _content_items(self, index: int, items: list[Any]) -> None:
        choice = self.choice(index)
        if choice.content_items is None:
            before = "".join(self._texts[index].content)
            choice.content_items = [{"type": "text", "text": before}] if before else []
        choice.content_items.extend(_copy(items))

    def _reasoning(self, index: int, text: str | None, carrier: str) -> None:
        choice = self.choice(index)
        if text is None:
            if isinstance(choice.reasoning, Missing):
                choice.reasoning = None
            return
        self.reasoning_parts(index, carrier).append(text)

    def _refusal(self, index: int, text: str | None) -> None:
        choice = self.choice(index)
        if text is None:
            if isinstance(choice.refusal, Missing):
                choice.refusal = None
            return
        choice.refusal = ""
        self._texts[index].refusal.append(text)

    def _tool_call(self, event: ev.ToolCallDelta) -> None:
        choice = self.choice(event.choice)
        call = next((c for c in choice.tool_calls if c.index == event.call), None)
        if call is None:
            call = ToolCall(event.call)
            choice.tool_calls.append(call)
        if event.id or call.id is None:
            call.id = event.id
        if event.type is not None:
            call.type = event.type
        if event.name is not None and event.name != call.name:
            call.name = (call.name or "") + event.name
        if event.arguments is not None:
            self._arguments.setdefault((event.choice, event.call), []).append(event.arguments)
        for key, value in (event.rest or {}).items():
            call.rest[key] = merge(call.rest.get(key, MISSING), value, key)

    def _usage(self, usage: dict[str, Any] | None) -> None:
        reply = self._reply
        if usage is None:
            if isinstance(reply.usage, Missing):
                reply.usage = None
            return
        if self._incremental and isinstance(reply.usage, dict):
            reply.usage = _sum(reply.usage, usage)
        else:
            reply.usage = usage

    def _put(self, scope: ev.Scope, index: int, key: str, value: Any, *, named: bool) -> None:
        if scope == "body":
            place = self._reply.envelope if named else self._reply.bag
            if value is not None or key not in place:
                place[key] = value  # Said anew in each frame, not streamed: the last one stands.
            return
        choice = self.choice(index)
        if scope == "message":
            place = choice.values if named else choice.message_bag
            place[key] = merge(place.get(key, MISSING), value, key)
            return
        place = choice.choice_values if named else choice.choice_bag
        if named:
            place[key] = merge(place.get(key, MISSING), value, key)
        elif value is not None or key not in place:
            place[key] = value

    def flag(self, name: str) -> None:
        """Note a repair or an oddity on the reply, once."""
        self._reply.flag(name)

    def drifted(self, entry: dict[str, Any]) -> None:
        """Note carried drift: path, type and length."""
        self._reply.drift.append(entry)

    def reply(self) -> Reply:
        """The reply so far."""
        for index, texts in self._texts.items():
            choice = self._choices[index]
            if texts.content:
                choice.content = _joined(texts.content)
            if texts.reasoning:
                choice.reasoning = _joined(texts.reasoning)
            if texts.refusal:
                choice.refusal = _joined(texts.refusal)
        for (choice_index, call_index), parts in self._arguments.items():
            for call in self._choices[choice_index].tool_calls:
                if call.index == call_index:
                    call.arguments = _joined(parts)
        return self._reply


_HIGH_SURROGATE: Final = re.compile("[\ud800-\udbff]")


def _joined(parts: list[str]) -> str:
    """The pieces as one text; a surrogate pair split over two of them becomes one character."""
    text = "".join(parts)
    if _HIGH_SURROGATE.search(text):
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _sum(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Two incremental usage objects added member by member; other members replace."""
    total = dict(old)
    for key, value in new.items():
        before = total.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            total[key] = _sum(before, value)
        elif _is_count(value) and _is_count(before):
            total[key] = before + value
        elif value is not None:
            total[key] = value
    return total


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
