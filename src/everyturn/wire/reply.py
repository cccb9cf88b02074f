"""The fold: a call's events become one Reply, the same for streamed and whole answers.

The fold never looks at bytes and never decides; it adds up. `MISSING` says that a key was never
sent, None that it was only ever null.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from everyturn.wire import events as ev
from everyturn.wire.growing import MISSING, Missing, grow, joined, settled

__all__ = ["MISSING", "Choice", "Fold", "Missing", "Reply", "ToolCall"]


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
    """Members of the choice that the protocol or the preset names: logprobs."""
    choice_bag: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Reply:
    """What one call said, all of it. Choices and tool calls stand in the order of their index."""

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


class _Text:
    """A text member while it grows."""

    __slots__ = ("_unsaid", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._unsaid: Missing | None = MISSING

    def add(self, text: str | None) -> None:
        if text is None:
            self._unsaid = None
        elif text or not self.pieces:
            self.pieces.append(text)

    def value(self) -> str | Missing | None:
        if not self.pieces:
            return self._unsaid
        self.pieces = [joined(self.pieces)]
        return self.pieces[0]


class _CallSum:
    """A tool call while it is added up."""

    __slots__ = ("_arguments", "_call", "_rest")

    def __init__(self, index: int) -> None:
        self._call = ToolCall(index)
        self._arguments = _Text()
        self._rest: dict[str, Any] = {}

    def add(self, delta: ev.ToolCallDelta) -> None:
        call = self._call
        if delta.id or call.id is None:
            call.id = delta.id
        if delta.type is not None:
            call.type = delta.type
        if delta.name is not None and delta.name != call.name:
            call.name = (call.name or "") + delta.name
        self._arguments.add(delta.arguments)
        for key, value in (delta.rest or {}).items():
            self._rest[key] = grow(self._rest.get(key, MISSING), value, key)

    def call(self) -> ToolCall:
        """The call so far."""
        arguments = self._arguments.value()
        return replace(
            self._call,
            arguments=None if isinstance(arguments, Missing) else arguments,
            rest=_settled(self._rest),
        )


class _Sum:
    """A choice while it is added up. bags: as in Choice, by the name of the field."""

    __slots__ = (
        "bags",
        "calls",
        "carriers",
        "content",
        "details",
        "finish",
        "items",
        "reasoning",
        "refusal",
    )

    def __init__(self) -> None:
        self.content = _Text()
        self.reasoning = _Text()
        self.refusal = _Text()
        self.items: list[Any] | None = None
        self.carriers: dict[str, None] = {}
        self.details: Any = MISSING
        self.finish: str | Missing | None = MISSING
        self.calls: dict[int, _CallSum] = {}
        self.bags: dict[str, dict[str, Any]] = {
            "values": {},
            "message_bag": {},
            "choice_values": {},
            "choice_bag": {},
        }

    def add_items(self, items: list[Any]) -> None:
        """Items of a content list. Text alone grows, so that it may come in any pieces."""
        if self.items is None:
            self.items = []
        for item in items:
            if is_plain_text(item):
                self.content.add(item["text"])
            else:
                self._settle_text(self.items)
                self.items.append(item)

    def _settle_text(self, items: list[Any]) -> None:
        """Text said since the last item goes on the item before, if that is text, or is one."""
        text = joined(self.content.pieces)
        self.content.pieces.clear()
        if not text:
            return
        if items and is_plain_text(items[-1]):
            items[-1] = {"type": "text", "text": joined([items[-1]["text"], text])}
        else:
            items.append({"type": "text", "text": text})

    def choice(self, index: int) -> Choice:
        """The choice so far."""
        if self.items is not None:
            self._settle_text(self.items)
        return Choice(
            index,
            content=self.content.value(),
            content_items=None if self.items is None else list(self.items),
            reasoning=self.reasoning.value(),
            carriers=list(self.carriers),
            reasoning_details=settled(self.details),
            refusal=self.refusal.value(),
            tool_calls=[self.calls[call].call() for call in sorted(self.calls)],
            finish_reason=self.finish,
            **{name: _settled(bag) for name, bag in self.bags.items()},
        )


class Fold:
    """Adds events up. `reply()` may be called at any time; what arrived so far is in it."""

    __slots__ = ("_bag", "_choices", "_envelope", "_incremental", "_usage")

    def __init__(self, *, usage_incremental: bool = False) -> None:
        self._choices: dict[int, _Sum] = {}
        self._usage: dict[str, Any] | Missing | None = MISSING
        self._envelope: dict[str, Any] = {}
        self._bag: dict[str, Any] = {}
        self._incremental = usage_incremental

    def _choice(self, index: int) -> _Sum:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Sum()
        return choice

    def add(self, event: ev.Event) -> None:
        """Add one event."""
        match event:
            case ev.TextDelta(index, text):
                self._choice(index).content.add(text)
            case ev.ReasoningDelta(index, text, carrier):
                choice = self._choice(index)
                choice.reasoning.add(text)
                if text is not None:
                    choice.carriers[carrier] = None
            case ev.ToolCallDelta(index, call):
                calls = self._choice(index).calls
                if call not in calls:
                    calls[call] = _CallSum(call)
                calls[call].add(event)
            case ev.Finish(index, value):
                choice = self._choice(index)
                if value or not choice.finish:
                    choice.finish = value
            case ev.RefusalDelta(index, text):
                self._choice(index).refusal.add(text)
            case ev.ReasoningDetails(index, items):
                choice = self._choice(index)
                choice.details = grow(choice.details, items)
            case ev.Usage(_, usage):
                self._add_usage(usage)
            case ev.ContentItems(index, items):
                self._choice(index).add_items(items)
            case ev.Value(scope, index, key, value):
                self._put(scope, index, key, value, is_named=True)
            case ev.Unknown(scope, index, key, value) | ev.Drift(scope, index, key, value):
                self._put(scope, index, key, value, is_named=False)
            case ev.ErrorSeen() | ev.Done():
                pass  # Endings belong to the stream's state table, not to the sum.

    def _add_usage(self, usage: dict[str, Any] | None) -> None:
        if usage is None:
            if isinstance(self._usage, Missing):
                self._usage = None
        elif self._incremental and isinstance(self._usage, dict):
            self._usage = _sum(self._usage, usage)
        else:
            self._usage = usage

    def _put(self, scope: ev.Scope, index: int, key: str, value: Any, *, is_named: bool) -> None:
        if scope == "body":
            # Said anew in each frame, not streamed: the last one stands. Some servers send an
            # empty id in their last frame.
            place = self._envelope if is_named else self._bag
            if key not in place or (value is not None and (value != "" or not is_named)):
                place[key] = value
            return
        if scope == "message":
            place = self._choice(index).bags["values" if is_named else "message_bag"]
        else:
            place = self._choice(index).bags["choice_values" if is_named else "choice_bag"]
            if not is_named and not isinstance(value, list):
                # A verdict on the choice is said anew; only lists (token ids) go on.
                if value is not None or key not in place:
                    place[key] = value
                return
        place[key] = grow(place.get(key, MISSING), value, key)

    def reply(self) -> Reply:
        """The reply so far."""
        return Reply(
            choices=[self._choices[index].choice(index) for index in sorted(self._choices)],
            usage=self._usage,
            envelope=dict(self._envelope),
            bag=dict(self._bag),
        )


def is_plain_text(item: Any) -> bool:
    """Whether an item of a content list is text and nothing beside."""
    return (
        isinstance(item, dict)
        and len(item) == 2
        and item.get("type") == "text"
        and isinstance(item.get("text"), str)
    )


def _settled(bag: dict[str, Any]) -> dict[str, Any]:
    return {key: settled(value) for key, value in bag.items()}


def _sum(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Two incremental usage objects added member by member; other members replace."""
    total = dict(old)
    for key, value in new.items():
        before = total.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            total[key] = _sum(before, value)
        elif _is_count(value) and _is_count(before):
            total[key] = before + value
        elif value is not None or key not in total:
            total[key] = value
    return total


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
