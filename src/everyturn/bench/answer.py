"""What a model answered, read from a whole body or from a stream, and where its reasoning stood.

Reasoning is read from `message.reasoning_content`, then `message.reasoning`, then
`reasoning_content` at the top of the body; in streams from the same keys of `delta`, folded. The
first that is present and not null wins, an empty string included. Absent, null, empty and text
stay four things.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from everyturn.audit.reasoning import TAGS
from everyturn.bench.money import Usage

ReasoningState = Literal["text", "empty", "null", "absent"]
CARRIERS: Final = ("message.reasoning_content", "message.reasoning", "reasoning_content")
UNKNOWN_CARRIER: Final = "unknown"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a tool that the model asks for; arguments as it wrote them."""

    call_id: str
    name: str
    arguments: str


class Answer(msgspec.Struct, kw_only=True):
    """One whole answer. text: None where there was none."""

    text: str | None
    refusal: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None
    served_model: str | None = None
    usage: Usage = msgspec.field(default_factory=Usage)
    reasoning: str | UnsetType | None = UNSET
    carrier: str | None = None
    has_odd_reasoning: bool = False
    """A carrier held something that is neither text nor null."""


class _Function(msgspec.Struct):
    name: Any = None
    arguments: Any = None


class _Call(msgspec.Struct):
    index: Any = None
    id: Any = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: Any = None
    refusal: Any = None
    reasoning_content: Any = UNSET
    reasoning: Any = UNSET
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Body(msgspec.Struct):
    choices: list[_Choice] | None = None
    model: Any = None
    usage: dict[str, Any] | None = None
    error: Any = None
    reasoning_content: Any = UNSET


_DECODER: Final = msgspec.json.Decoder(_Body)


class NotAnAnswer(Exception):
    """Bytes that are no answer. error: the error object of the body, where it holds one."""

    def __init__(self, error: Any = None) -> None:
        super().__init__("the body is no answer")
        self.error = error


class Fold:
    """Puts an answer together: `add` each body or frame, then `answer`."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._refusal: list[str] = []
        self._seen: list[list[str] | UnsetType | None] = [UNSET, UNSET, UNSET]
        self._calls: dict[Any, dict[str, str]] = {}
        self._finish: str | None = None
        self._model: str | None = None
        self._usage: dict[str, Any] = {}
        self._is_odd = False
        self._has_choice = False

    def add(self, raw: bytes) -> bool:
        """Take in one body or frame; whether it held content. Raises NotAnAnswer."""
        try:
            body = _DECODER.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as bad:
            raise NotAnAnswer from bad
        if body.error is not None:
            raise NotAnAnswer(body.error)
        if isinstance(body.model, str) and body.model:
            self._model = body.model
        if body.usage:
            self._usage = body.usage
        has_content = self._carrier(2, body.reasoning_content)
        for choice in body.choices or ():
            if choice.index == 0:
                self._has_choice = True
                has_content = self._choice(choice) or has_content
        return has_content

    def _choice(self, choice: _Choice) -> bool:
        if choice.finish_reason is not None:
            self._finish = choice.finish_reason
        said = choice.message or choice.delta
        if said is None:
            return False
        has_content = self._carrier(0, said.reasoning_content)
        has_content = self._carrier(1, said.reasoning) or has_content
        for part in _texts(said.content):
            self._text.append(part)
            has_content = has_content or bool(part)
        if isinstance(said.refusal, str) and said.refusal:
            self._refusal.append(said.refusal)
            has_content = True
        for place, call in enumerate(said.tool_calls or ()):
            self._call(place if call.index is None else call.index, call)
            has_content = True
        return has_content

    def _carrier(self, place: int, value: Any) -> bool:
        if value is UNSET:
            return False
        if not isinstance(value, str):
            self._is_odd = self._is_odd or value is not None
            if self._seen[place] is UNSET:
                self._seen[place] = None
            return False
        known = self._seen[place]
        if isinstance(known, list):
            known.append(value)
        else:
            self._seen[place] = [value]
        return bool(value)

    def _call(self, index: Any, call: _Call) -> None:
        known = self._calls.setdefault(str(index), {"id": "", "name": "", "arguments": ""})
        if isinstance(call.id, str) and call.id:
            known["id"] = call.id
        function = call.function or _Function()
        if isinstance(function.name, str):
            known["name"] += function.name
        if isinstance(function.arguments, str):
            known["arguments"] += function.arguments
        elif function.arguments is not None:
            known["arguments"] += msgspec.json.encode(function.arguments).decode()

    def answer(self) -> Answer:
        """The whole answer. Raises NotAnAnswer where no choice was ever seen."""
        if not self._has_choice:
            raise NotAnAnswer
        reasoning, carrier = self._reasoning()
        calls = self._calls.values()
        return Answer(
            text="".join(self._text) if self._text else None,
            refusal="".join(self._refusal) or None,
            tool_calls=tuple(
                ToolCall(call_id=call["id"], name=call["name"], arguments=call["arguments"])
                for call in calls
            ),
            finish_reason=self._finish,
            served_model=self._model,
            usage=_usage(self._usage),
            reasoning=reasoning,
            carrier=carrier,
            has_odd_reasoning=self._is_odd,
        )

    def _reasoning(self) -> tuple[str | UnsetType | None, str | None]:
        for name, seen in zip(CARRIERS, self._seen, strict=True):
            if isinstance(seen, list):
                return "".join(seen), name
        return (None if any(seen is None for seen in self._seen) else UNSET), None


def state_of(reasoning: str | UnsetType | None) -> ReasoningState:
    """Which of the four things a row's reasoning is."""
    if reasoning is UNSET:
        return "absent"
    if reasoning is None:
        return "null"
    return "text" if reasoning else "empty"


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return [part for part in parts if isinstance(part, str)]
    return []


def _usage(given: dict[str, Any]) -> Usage:
    inside = given.get("completion_tokens_details")
    prompt = given.get("prompt_tokens_details")
    return Usage(
        prompt_tokens=_count(given, "prompt_tokens"),
        completion_tokens=_count(given, "completion_tokens"),
        total_tokens=_count(given, "total_tokens"),
        reasoning_tokens=_count(inside, "reasoning_tokens") or _count(given, "reasoning_tokens"),
        cached_tokens=_count(prompt, "cached_tokens"),
    )


def _count(given: Any, name: str) -> int | None:
    value = given.get(name) if isinstance(given, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


_OPENING: Final = dict(TAGS)
_TAG: Final = re.compile("|".join(re.escape(opening) for opening in _OPENING), re.IGNORECASE)


def without_thoughts(text: str) -> tuple[str, bool]:
    """The text without thoughts that a model left in it by tags, and whether there were any.

    A tag that is never closed takes everything after it; a closing tag alone takes everything
    before it, since some servers leave the opening one in the prompt.
    """
    kept: list[str] = []
    rest, has_any = text, False
    while found := _TAG.search(rest):
        has_any = True
        kept.append(rest[: found.start()])
        closing = _OPENING[found[0].lower()]
        end = rest.lower().find(closing, found.end())
        rest = "" if end < 0 else rest[end + len(closing) :]
    whole = "".join(kept) + rest
    for closing in set(_OPENING.values()):
        at = whole.lower().rfind(closing)
        if at >= 0:
            has_any, whole = True, whole[at + len(closing) :]
    return (whole.strip() if has_any else text), has_any
