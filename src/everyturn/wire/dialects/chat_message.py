"""Read one message or delta of a Chat Completions answer.

Everything that is particular to reasoning output happens here: the one text alias
`reasoning_content`, tags, content lists and `reasoning_details`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from everyturn.errors import TranslationError
from everyturn.wire import events as ev
from everyturn.wire.dialects.chat_content import (
    ALIAS,
    Segment,
    groups_of,
    is_thinking,
    read_content_list,
)
from everyturn.wire.growing import Missing
from everyturn.wire.reasoning import is_empty, is_withheld

if TYPE_CHECKING:
    from everyturn.wire.dialects.chat_choice import ChoiceReader

MESSAGE_VALUES: Final = frozenset({"role", "annotations", "audio", "function_call"})
"""Keys of a message or delta that the protocol names and that are carried as they are."""

WITHHELD_NOTE: Final = "reasoning withheld"

Beside = str | Missing | None
"""Reasoning text at the top level of a body; MISSING where there is no such key."""


class Shown:
    """A choice as the client sees it. before: deltas that must go out in frames before it."""

    __slots__ = ("before", "is_changed", "shown")

    def __init__(self, shown: dict[str, Any]) -> None:
        self.shown = shown
        self.is_changed = False
        self.before: list[dict[str, Any]] = []


class MessageReader:
    """Reads one message or delta of a choice, key by key, in the provider's order."""

    def __init__(
        self,
        choice: ChoiceReader,
        events: list[ev.Event],
        result: Shown,
        path: str,
        *,
        is_whole: bool,
    ) -> None:
        self._choice = choice
        self._target = choice.target
        self._around = choice.around
        self._events = events
        self._result = result
        self._path = path
        self._is_whole = is_whole
        self._shown: dict[str, Any] = {}

    def read(self, message: dict[str, Any], beside: Beside) -> dict[str, Any]:
        index = self._choice.index
        carriers = [name for name in self._choice.text_carriers if name in message]
        has_alias = bool(carriers) or not isinstance(beside, Missing)
        is_said = any(message[name] for name in carriers) or bool(beside)
        is_told = False
        for key, value in message.items():
            if key in carriers:
                if not is_told:
                    self._tell(message, beside)
                    is_told = True
            elif key == "content":
                self._content(value, message)
            elif key == "tool_calls":
                self._shown[key], is_changed = self._choice.tool_calls(
                    value, self._events, f"{self._path}.{key}", is_whole=self._is_whole
                )
                self._result.is_changed |= is_changed
            elif key == "refusal":
                self._refusal(value)
            elif key == "reasoning_details" and key in self._target.read:
                self._details(value, is_told=is_said)
            elif key in MESSAGE_VALUES or key in self._target.read:
                self._around.hold(value)
                self._events.append(ev.Value("message", index, key, value))
                self._show(key, value)
            else:
                self._other(key, value, has_alias=has_alias)
        if has_alias and not is_told:
            self._tell(message, beside)
        return self._shown

    def _show(self, key: str, value: Any) -> None:
        """Show a member as it came, if the client may see it."""
        if self._target.show_reasoning or not is_withheld(key, value):
            self._shown[key] = value
        else:
            self._withhold()

    # --------------------------------------------------------- reasoning

    def _tell(self, message: dict[str, Any], beside: Beside) -> None:
        """The one text alias, from all text carriers of this message."""
        new, carrier = self._choice.mirrored(message, beside, self._path)
        self._say_reasoning(new, carrier)
        told = [name for name in self._choice.text_carriers if name in message]
        if told != [ALIAS] or message[ALIAS] != new or not isinstance(beside, Missing):
            self._result.is_changed = True

    def _say_reasoning(self, text: str | None, carrier: str) -> None:
        self._choice.say_reasoning(text, carrier, self._events)
        self._show_reasoning(text)

    def _show_reasoning(self, text: str | None) -> None:
        if not self._is_reasoning_shown(text):
            return
        said = self._shown.get(ALIAS)
        self._shown[ALIAS] = said + (text or "") if isinstance(said, str) else text

    def _is_reasoning_shown(self, text: str | None) -> bool:
        if self._target.show_reasoning or not text:
            return True
        self._withhold()
        return False

    def _withhold(self) -> None:
        self._result.is_changed = True
        self._around.note(WITHHELD_NOTE)

    def _details(self, value: Any, *, is_told: bool) -> None:
        if value is not None and not isinstance(value, list):
            raise TranslationError(
                "the provider sent reasoning_details that are no array",
                param=f"{self._path}.reasoning_details",
            )
        self._around.hold(value)
        self._events.append(ev.ReasoningDetails(self._choice.index, value))
        text = self._choice.detailed(value or [], is_told=is_told)
        if text:
            self._say_reasoning(text, "reasoning_details")
            self._result.is_changed = True
        self._show("reasoning_details", value)

    # ------------------------------------------------------------ others

    def _refusal(self, value: Any) -> None:
        if value is not None and not isinstance(value, str):
            raise TranslationError(
                "the provider sent a refusal that is no string", param=f"{self._path}.refusal"
            )
        self._around.hold(value)
        self._events.append(ev.RefusalDelta(self._choice.index, value))
        self._shown["refusal"] = value

    def _other(self, key: str, value: Any, *, has_alias: bool) -> None:
        index = self._choice.index
        is_shown = self._around.unknown("message", index, key, value, where=self._path)
        if key == ALIAS and is_empty(value):
            # Where another carrier is shown under this name, an empty twin says nothing more.
            is_shown = not has_alias and ALIAS not in self._shown
        elif key == ALIAS:
            self._choice.drift_alias()
        if is_shown:
            self._shown[key] = value
        else:
            self._result.is_changed = True

    # ---------------------------------------------------------- content

    def _content(self, value: Any, message: dict[str, Any]) -> None:
        if value is None:
            self._choice.say_text(None, self._events)
            self._shown["content"] = None
        elif isinstance(value, str):
            segments = self._choice.split(value, message)
            if not value or segments == [(False, value)]:
                self._choice.say_text(value, self._events)
                self._shown["content"] = value
            else:
                self._segments(segments, "tags")
        elif not isinstance(value, list):
            raise TranslationError(
                "the provider sent content that is neither string nor list",
                param=f"{self._path}.content",
            )
        elif "content_list" in self._target.read:
            self._content_list(value)
        else:
            self._plain_list(value)

    def _segments(self, segments: list[Segment], carrier: str) -> None:
        """Text and reasoning in their order: what does not fit this delta goes out before it."""
        for is_reasoning, text in segments:
            if is_reasoning:
                self._choice.say_reasoning(text, carrier, self._events)
            else:
                self._choice.say_text(text, self._events)
        if all(is_reasoning for is_reasoning, _ in segments):
            self._choice.say_text("", self._events)
        self._result.is_changed = True
        *before, last = groups_of(segments, is_whole=self._is_whole)
        for group in before:
            self._result.before.append(
                {
                    key: text
                    for key, text in group.items()
                    if key != ALIAS or self._is_reasoning_shown(text)
                }
            )
        if ALIAS in last:
            self._show_reasoning(last[ALIAS])
        if "content" in last or not segments or self._is_whole:
            self._shown["content"] = last.get("content", "")

    def _content_list(self, items: list[Any]) -> None:
        """A list of text, thinking and other items (Mistral); see the HTTP reference, section 3."""
        read = read_content_list(items, f"{self._path}.content")
        if read.has_other:
            for is_reasoning, text in read.segments:
                if is_reasoning:
                    self._say_reasoning(text, "content_list")
            self._items(read.others)
            self._result.is_changed |= len(read.others) < len(items)
        else:
            self._segments(read.segments, "content_list")
        if read.details:
            self._around.hold(read.details)
            self._events.append(ev.ReasoningDetails(self._choice.index, read.details))
            self._show("reasoning_details", read.details)

    def _plain_list(self, items: list[Any]) -> None:
        """A content list where the preset evidences no thinking in it: carried, or drift."""
        thinking = [item for item in items if is_thinking(item)]
        if thinking:
            self._around.drift(f"{self._path}.content", thinking)
        self._items(items)
        if thinking and not self._target.show_reasoning:
            self._shown["content"] = [item for item in items if not is_thinking(item)]
            self._withhold()

    def _items(self, items: list[Any]) -> None:
        self._around.hold(items)
        self._events.append(ev.ContentItems(self._choice.index, items))
        self._shown["content"] = items
