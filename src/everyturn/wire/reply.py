"""The fold: a call's events become one Reply, the same for streamed and whole answers.

The fold never looks at bytes and never decides; it adds up. `MISSING` says that a key was never
sent, None that it was only ever null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from everyturn.wire import events as ev
from everyturn.wire.growing import MISSING, Missing, grow, joined, settled

__all__ = ["MISSING", "Choice", "Fold", "Missing", "Reply", "ToolCall"]


class ToolCall:
    """One tool call of the assistant."""

    __slots__ = ("arguments", "id", "index", "name", "rest", "type")

    def __init__(
        self,
        index: int,
        id: str | None = None,
        type: str | None = None,
        name: str | None = None,
        arguments: str | None = None,
        rest: dict[str, Any] | None = None,
    ) -> None:
        self.index = index
        self.id = id
        self.type = type
        self.name = name
        self.arguments = arguments
        """As sent; None when no fragment had arguments. "" and None are different."""
        self.rest: dict[str, Any] = {} if rest is None else rest
        """Other members; `function.KEY` for those of the function object."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolCall) and self._members() == other._members()

    def __repr__(self) -> str:
        return f"ToolCall{self._members()}"

    def _members(self) -> tuple[Any, ...]:
        return (self.index, self.id, self.type, self.name, self.arguments, self.rest)


class Choice:
    """One assistant answer. Text members: MISSING never sent, None only null, else the text."""

    __slots__ = (
        "carriers",
        "choice_bag",
        "choice_values",
        "content",
        "content_items",
        "finish_reason",
        "index",
        "message_bag",
        "reasoning",
        "reasoning_details",
        "refusal",
        "tool_calls",
        "values",
    )

    def __init__(
        self,
        index: int,
        *,
        content: str | Missing | None = MISSING,
        content_items: list[Any] | None = None,
        reasoning: str | Missing | None = MISSING,
        carriers: list[str] | None = None,
        reasoning_details: list[Any] | Missing | None = MISSING,
        refusal: str | Missing | None = MISSING,
        tool_calls: list[ToolCall] | None = None,
        finish_reason: str | Missing | None = MISSING,
        values: dict[str, Any] | None = None,
        message_bag: dict[str, Any] | None = None,
        choice_values: dict[str, Any] | None = None,
        choice_bag: dict[str, Any] | None = None,
    ) -> None:
        self.index = index
        self.content = content
        self.content_items = content_items
        """Set when the content is a list with items beside text; then it is the whole content."""
        self.reasoning = reasoning
        self.carriers: list[str] = [] if carriers is None else carriers
        """Where reasoning stood, in order of first appearance."""
        self.reasoning_details = reasoning_details
        self.refusal = refusal
        self.tool_calls: list[ToolCall] = [] if tool_calls is None else tool_calls
        self.finish_reason = finish_reason
        self.values: dict[str, Any] = {} if values is None else values
        """Members of the message that the protocol names: role, annotations, audio,
        function_call."""
        self.message_bag: dict[str, Any] = {} if message_bag is None else message_bag
        self.choice_values: dict[str, Any] = {} if choice_values is None else choice_values
        """Members of the choice that the protocol or the preset names: logprobs."""
        self.choice_bag: dict[str, Any] = {} if choice_bag is None else choice_bag

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Choice) and self._members() == other._members()

    def __repr__(self) -> str:
        return f"Choice{self._members()}"

    def _members(self) -> tuple[Any, ...]:
        return (
            self.index,
            self.content,
            self.content_items,
            self.reasoning,
            self.carriers,
            self.reasoning_details,
            self.refusal,
            self.tool_calls,
            self.finish_reason,
            self.values,
            self.message_bag,
            self.choice_values,
            self.choice_bag,
        )


class Reply:
    """What one call said, all of it. Choices and tool calls stand in the order of their index."""

    __slots__ = ("bag", "choices", "drift", "envelope", "flags", "usage")

    def __init__(
        self,
        choices: list[Choice] | None = None,
        usage: dict[str, Any] | Missing | None = MISSING,
        envelope: dict[str, Any] | None = None,
        bag: dict[str, Any] | None = None,
    ) -> None:
        self.choices: list[Choice] = [] if choices is None else choices
        self.usage = usage
        self.envelope: dict[str, Any] = {} if envelope is None else envelope
        """id, object, created, model, service_tier, system_fingerprint, as sent."""
        self.bag: dict[str, Any] = {} if bag is None else bag
        self.drift: list[dict[str, Any]] = []
        """Paths, types and lengths of what was carried as drift; never text."""
        self.flags: list[str] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reply) and self._members() == other._members()

    def __repr__(self) -> str:
        return f"Reply{self._members()}"

    def _members(self) -> tuple[Any, ...]:
        return (self.choices, self.usage, self.envelope, self.bag, self.drift, self.flags)

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
        call, arguments = self._call, self._arguments.value()
        return ToolCall(
            call.index,
            call.id,
            call.type,
            call.name,
            None if isinstance(arguments, Missing) else arguments,
            _settled(self._rest),
        )


class _Sum:
    """A choice while it is added up; members as in Choice."""

    __slots__ = (
        "calls",
        "carriers",
        "choice_bag",
        "choice_values",
        "content",
        "details",
        "finish",
        "items",
        "message_bag",
        "reasoning",
        "refusal",
        "values",
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
        self.values: dict[str, Any] = {}
        self.message_bag: dict[str, Any] = {}
        self.choice_values: dict[str, Any] = {}
        self.choice_bag: dict[str, Any] = {}

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
            values=_settled(self.values),
            message_bag=_settled(self.message_bag),
            choice_values=_settled(self.choice_values),
            choice_bag=_settled(self.choice_bag),
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

    def open(self, index: int) -> None:
        """Note that there is a choice, even if it says nothing."""
        self._choice(index)

    def _choice(self, index: int) -> _Sum:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Sum()
        return choice

    def add(self, event: ev.Event) -> None:
        """Add one event."""
        _ADD[type(event)](self, event)

    def _add_text(self, event: ev.TextDelta) -> None:
        self.say_text(event.choice, event.text)

    def say_text(self, index: int, text: str | None) -> None:
        """Add a piece of content, as its event would."""
        self._choice(index).content.add(text)

    def _add_reasoning(self, event: ev.ReasoningDelta) -> None:
        self.say_reasoning(event.choice, event.text, event.carrier)

    def say_reasoning(self, index: int, text: str | None, carrier: str) -> None:
        """Add a piece of reasoning, as its event would."""
        choice = self._choice(index)
        choice.reasoning.add(text)
        if text is not None:
            choice.carriers[carrier] = None

    def _add_call(self, event: ev.ToolCallDelta) -> None:
        calls = self._choice(event.choice).calls
        if event.call not in calls:
            calls[event.call] = _CallSum(event.call)
        calls[event.call].add(event)

    def _add_finish(self, event: ev.Finish) -> None:
        choice = self._choice(event.choice)
        if event.value or not choice.finish:
            choice.finish = event.value

    def _add_refusal(self, event: ev.RefusalDelta) -> None:
        self._choice(event.choice).refusal.add(event.text)

    def _add_details(self, event: ev.ReasoningDetails) -> None:
        choice = self._choice(event.choice)
        choice.details = grow(choice.details, event.items)

    def _add_items(self, event: ev.ContentItems) -> None:
        self._choice(event.choice).add_items(event.items)

    def _add_named(self, event: ev.Value) -> None:
        self._put(event.scope, event.choice, event.key, event.value, is_named=True)

    def _add_unnamed(self, event: ev.Unknown | ev.Drift) -> None:
        self._put(event.scope, event.choice, event.key, event.value, is_named=False)

    def _add_nothing(self, event: ev.ErrorSeen | ev.Done) -> None:
        """Endings belong to the stream's state table, not to the sum."""

    def _add_usage(self, event: ev.Usage) -> None:
        usage = event.value
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
            choice = self._choice(index)
            place = choice.values if is_named else choice.message_bag
        else:
            choice = self._choice(index)
            place = choice.choice_values if is_named else choice.choice_bag
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


# Looked up by type: a chain of tests would cost more than the sum, above all in streams.
_ADD: Final[dict[type[Any], Callable[[Fold, Any], None]]] = {
    ev.TextDelta: Fold._add_text,
    ev.ReasoningDelta: Fold._add_reasoning,
    ev.ToolCallDelta: Fold._add_call,
    ev.Finish: Fold._add_finish,
    ev.RefusalDelta: Fold._add_refusal,
    ev.ReasoningDetails: Fold._add_details,
    ev.Usage: Fold._add_usage,
    ev.ContentItems: Fold._add_items,
    ev.Value: Fold._add_named,
    ev.Unknown: Fold._add_unnamed,
    ev.Drift: Fold._add_unnamed,
    ev.ErrorSeen: Fold._add_nothing,
    ev.Done: Fold._add_nothing,
}


def is_plain_text(item: Any) -> bool:
    """Whether an item of a content list is text and nothing beside."""
    return (
        isinstance(item, dict)
        and len(item) == 2
        and item.get("type") == "text"
        and isinstance(item.get("text"), str)
    )


def _settled(bag: dict[str, Any]) -> dict[str, Any]:
    return {key: settled(value) for key, value in bag.items()} if bag else {}


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
