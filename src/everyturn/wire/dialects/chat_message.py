"""Read one choice of a Chat Completions answer: its message or delta, its finish, its other keys.

Everything that is particular to reasoning output happens here: the one text alias
`reasoning_content`, mirrors, tags, Mistral's content lists and `reasoning_details`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from everyturn.errors import TranslationError, UpstreamTooLarge
from everyturn.wire import events as ev
from everyturn.wire.limits import Limits
from everyturn.wire.preset import TEXT_CARRIERS, Target
from everyturn.wire.reasoning import (
    MarkedSplitter,
    Mirror,
    TagSplitter,
    detail_text,
    is_empty,
    is_marked_thought,
)
from everyturn.wire.tool_calls import ToolCalls

ALIAS: Final = "reasoning_content"
"""The one name under which a client sees reasoning text."""

MESSAGE_VALUES: Final = frozenset({"role", "annotations", "audio", "function_call"})
"""Keys of a message or delta that the protocol names and that are carried as they are."""


class Unknowns(Protocol):
    """Who answers keys that nobody asked for."""

    def unknown(self, scope: ev.Scope, index: int, key: str, value: Any, *, path: str) -> bool: ...

    def note(self, text: str) -> None: ...

    def flag(self, name: str) -> None: ...


@dataclass(slots=True)
class Shown:
    """A choice as the client sees it. before: deltas that must go out in frames before it."""

    shown: dict[str, Any]
    is_changed: bool = False
    before: list[dict[str, Any]] = field(default_factory=list)


class ChoiceReader:
    """One choice of one call, over all its frames."""

    def __init__(self, index: int, target: Target, limits: Limits, unknowns: Unknowns) -> None:
        self.index = index
        self.mirror = Mirror()
        self.has_finish = False
        self.content_bytes = 0
        self.reasoning_bytes = 0
        self._target = target
        self._limits = limits
        self._unknowns = unknowns
        self._text_carriers = tuple(c for c in target.read if c in TEXT_CARRIERS)
        self._tools = ToolCalls(index)
        self._argument_bytes = 0
        self._details: list[str] = []
        self._splitter: TagSplitter | MarkedSplitter | None = None
        if target.tags == "split":
            self._splitter = TagSplitter(target.tag)
        elif target.tags == "marked":
            self._splitter = MarkedSplitter(target.tag)

    @property
    def splits_content(self) -> bool:
        """Whether content is looked at for tags, so that its text depends on what came before."""
        return self._splitter is not None

    def read(
        self,
        choice: dict[str, Any],
        events: list[ev.Event],
        *,
        path: str,
        beside: str | None,
        is_whole: bool,
    ) -> Shown:
        """Read one appearance of the choice; its events are appended to `events`.

        beside: reasoning text that stood at the top level of the body and belongs here.
        """
        holder = "message" if is_whole else "delta"
        message = choice.get(holder)
        if message is None and is_whole:
            raise TranslationError("the provider sent a choice without a message", param=path)
        if message is not None and not isinstance(message, dict):
            raise TranslationError(f"the provider sent a {holder} that is no object", param=path)
        result = Shown({})
        for key, value in choice.items():
            if key == holder and message is not None:
                reader = _MessageReader(self, events, result, f"{path}.{holder}", is_whole=is_whole)
                result.shown[key] = reader.read(message, beside)
            elif key == "finish_reason":
                self._finish(value, events, path)
                result.shown[key] = value
            elif key == "logprobs":
                events.append(ev.Value("choice", self.index, key, value))
                result.shown[key] = value
            elif key in ("index", holder) or self._unknowns.unknown(
                "choice", self.index, key, value, path=f"{path}.{key}"
            ):
                result.shown[key] = value
            else:
                result.is_changed = True
        if self.has_finish or is_whole:
            self._flush_into(result, events, holder)
        return result

    def _finish(self, value: Any, events: list[ev.Event], path: str) -> None:
        if value is not None and not isinstance(value, str):
            raise TranslationError(
                "the provider sent a finish reason that is no string", param=f"{path}.finish_reason"
            )
        events.append(ev.Finish(self.index, value))
        self.has_finish = self.has_finish or bool(value)

    def _flush_into(self, result: Shown, events: list[ev.Event], holder: str) -> None:
        """Text that was held back as a possible tag goes out with the finish."""
        for delta in self.flush(events):
            message = dict(result.shown.get(holder) or {})
            for key, text in delta.items():
                before = message.get(key)
                message[key] = (before if isinstance(before, str) else "") + text
            result.shown[holder] = message
            result.is_changed = True

    def flush(self, events: list[ev.Event]) -> Iterator[dict[str, Any]]:
        """Deltas for what the tag splitter still holds."""
        for is_reasoning, text in self._splitter.close() if self._splitter else ():
            if is_reasoning:
                self.say_reasoning(text, "tags", events)
                if self._target.show_reasoning:
                    yield {ALIAS: text}
            else:
                self.say_text(text, events)
                yield {"content": text}

    def end(self) -> Iterator[str]:
        """Flags that only the end can set."""
        if self._splitter is not None and self._splitter.inside:
            yield "unterminated_tag"
        if self.mirror.is_uneven:
            yield "reasoning_mirror_short"
        details = "".join(self._details)
        if details and self.mirror.parts and details != "".join(self.mirror.parts):
            yield "reasoning_details_differ"
        if self._tools.repaired:
            yield "tool_index_repaired"

    # ---------------------------------------------------------- saying

    def say_text(self, text: str | None, events: list[ev.Event]) -> None:
        """A piece of content. Raises UpstreamTooLarge past the bound."""
        if text:
            self.content_bytes = self._grow(self.content_bytes, text, "content")
        events.append(ev.TextDelta(self.index, text))

    def say_reasoning(self, text: str | None, carrier: str, events: list[ev.Event]) -> None:
        """A piece of reasoning. Raises UpstreamTooLarge past the bound."""
        if text:
            self.reasoning_bytes = self._grow(self.reasoning_bytes, text, "reasoning")
        events.append(ev.ReasoningDelta(self.index, text, carrier))

    def _grow(self, size: int, text: str, what: str) -> int:
        size += utf8_length(text)
        if size > self._limits.text_bytes_max:
            raise UpstreamTooLarge(
                f"the provider's {what} of choice {self.index} passes "
                f"{self._limits.text_bytes_max} bytes"
            )
        return size

    # ------------------------------------------------- for _MessageReader

    def mirrored(
        self, message: dict[str, Any], beside: str | None, path: str
    ) -> tuple[str | None, str]:
        """The new reasoning text of a message's text carriers, and the carrier it is told from.

        None where all of them are null. Raises TranslationError and ReasoningConflict.
        """
        new: str | None = None
        carrier = ""
        for name in (*self._text_carriers, "body.reasoning_content"):
            if name == "body.reasoning_content":
                value: Any = beside
            elif name in message:
                value = message[name]
            else:
                continue
            if value is None:
                carrier = carrier or name
                continue
            if not isinstance(value, str):
                raise TranslationError(
                    f"the provider sent `{path}.{name}` as something else than a string",
                    param=f"{path}.{name}",
                )
            if new is None:
                carrier = name
            new = (new or "") + self.mirror.add(name, value)
        return new, carrier

    def details(self, items: list[Any]) -> str:
        """The readable text of detail items, remembered to be compared at the end."""
        text = detail_text(items)
        if text:
            self._details.append(text)
        return text

    def tool_calls(
        self, calls: Any, events: list[ev.Event], path: str, *, is_whole: bool
    ) -> tuple[Any, bool]:
        """The fragments as the client gets them, and whether they changed."""
        if calls is None:
            events.append(ev.Unknown("message", self.index, "tool_calls", None))
            return None, False
        if not isinstance(calls, list):
            raise TranslationError("the provider sent tool calls that are no array", param=path)
        if not calls:
            events.append(ev.Unknown("message", self.index, "tool_calls", []))
        shown: list[Any] = []
        is_changed = False
        for position, fragment in enumerate(calls):
            event, seen, is_moved = self._tools.read(
                fragment, position=position, is_whole=is_whole, path=f"{path}[{position}]"
            )
            if event.arguments:
                self._argument_bytes = self._grow(
                    self._argument_bytes, event.arguments, "tool calls"
                )
            events.append(event)
            shown.append(seen)
            is_changed = is_changed or is_moved
        return shown, is_changed

    def split(self, text: str, message: dict[str, Any]) -> list[tuple[bool, str]] | None:
        """Segments of content text as (is reasoning, text); None where content is not split."""
        if isinstance(self._splitter, MarkedSplitter):
            return self._splitter.feed(text, is_marked=is_marked_thought(message))
        if self._splitter is not None:
            return self._splitter.feed(text)
        return None


class _MessageReader:
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
        self._target = choice._target
        self._unknowns = choice._unknowns
        self._events = events
        self._result = result
        self._path = path
        self._is_whole = is_whole
        self._shown: dict[str, Any] = {}

    def read(self, message: dict[str, Any], beside: str | None) -> dict[str, Any]:
        index = self._choice.index
        carriers = self._choice._text_carriers
        has_alias = beside is not None or any(name in message for name in carriers)
        is_told = False
        for key, value in message.items():
            if key in carriers:
                if not is_told:
                    self._tell(message, beside)
                    is_told = True
                self._result.is_changed = self._result.is_changed or key != ALIAS
            elif key == "content":
                self._content(value, message)
            elif key == "tool_calls":
                self._shown[key], is_changed = self._choice.tool_calls(
                    value, self._events, f"{self._path}.{key}", is_whole=self._is_whole
                )
                self._result.is_changed = self._result.is_changed or is_changed
            elif key == "refusal":
                self._refusal(value)
            elif key == "reasoning_details" and key in self._target.read:
                self._details(value, has_alias=has_alias)
            elif key in MESSAGE_VALUES or key in self._target.read:
                self._events.append(ev.Value("message", index, key, value))
                self._shown[key] = value
            else:
                self._other(key, value, has_alias=has_alias)
        if beside is not None and not is_told:
            self._tell(message, beside)
            self._result.is_changed = True
        return self._shown

    def _tell(self, message: dict[str, Any], beside: str | None) -> None:
        """The one text alias, from all text carriers of this message."""
        new, carrier = self._choice.mirrored(message, beside, self._path)
        told = [name for name in self._choice._text_carriers if name in message]
        if new is None:
            text, source = self._text_of_details(message)
            if text:
                self._choice.say_reasoning(text, source, self._events)
                self._show_reasoning(text)
                self._result.is_changed = True
                return
        self._choice.say_reasoning(new, carrier, self._events)
        self._show_reasoning(new)
        if told != [ALIAS] or message[ALIAS] != new:
            self._result.is_changed = True

    def _text_of_details(self, message: dict[str, Any]) -> tuple[str, str]:
        items = message.get("reasoning_details")
        if "reasoning_details" not in self._target.read or not isinstance(items, list):
            return "", ""
        return detail_text(items), "reasoning_details"

    def _show_reasoning(self, text: str | None) -> None:
        if self._target.show_reasoning:
            if text and isinstance(self._shown.get(ALIAS), str):
                text = self._shown[ALIAS] + text
            self._shown[ALIAS] = text
            return
        self._result.is_changed = True
        if text:
            self._unknowns.note("reasoning withheld")

    def _details(self, value: Any, *, has_alias: bool) -> None:
        if value is not None and not isinstance(value, list):
            raise TranslationError(
                "the provider sent reasoning_details that are no array",
                param=f"{self._path}.reasoning_details",
            )
        self._events.append(ev.ReasoningDetails(self._choice.index, value))
        text = self._choice.details(value or [])
        if text and not has_alias:
            self._choice.say_reasoning(text, "reasoning_details", self._events)
            self._show_reasoning(text)
            self._result.is_changed = True
        if self._target.show_reasoning:
            self._shown["reasoning_details"] = value
        else:
            self._result.is_changed = True

    def _refusal(self, value: Any) -> None:
        if value is not None and not isinstance(value, str):
            raise TranslationError(
                "the provider sent a refusal that is no string", param=f"{self._path}.refusal"
            )
        self._events.append(ev.RefusalDelta(self._choice.index, value))
        self._shown["refusal"] = value

    def _other(self, key: str, value: Any, *, has_alias: bool) -> None:
        path = f"{self._path}.{key}"
        if not self._unknowns.unknown("message", self._choice.index, key, value, path=path):
            self._result.is_changed = True
            return
        if key == ALIAS and has_alias and is_empty(value):
            # The alias belongs to the mapped carrier; an empty twin that the preset does not read
            # says nothing more.
            self._result.is_changed = True
            return
        self._shown[key] = value

    # ---------------------------------------------------------- content

    def _content(self, value: Any, message: dict[str, Any]) -> None:
        if value is None:
            self._choice.say_text(None, self._events)
            self._shown["content"] = None
        elif isinstance(value, str):
            segments = self._choice.split(value, message)
            if segments is None:
                self._choice.say_text(value, self._events)
                self._shown["content"] = value
            else:
                self._segments(segments, value)
        elif isinstance(value, list):
            self._content_list(value)
        else:
            raise TranslationError(
                "the provider sent content that is neither string nor list",
                param=f"{self._path}.content",
            )

    def _segments(self, segments: list[tuple[bool, str]], original: str) -> None:
        """Content split at tags: groups of reasoning then text, the last one in this frame."""
        if segments == [(False, original)]:
            self._choice.say_text(original, self._events)
            self._shown["content"] = original
            return
        self._result.is_changed = True
        groups = self._whole_group(segments) if self._is_whole else _groups(segments)
        for is_reasoning, text in segments:
            if is_reasoning:
                self._choice.say_reasoning(text, "tags", self._events)
            else:
                self._choice.say_text(text, self._events)
        if not any(not is_reasoning for is_reasoning, _ in segments):
            self._choice.say_text("", self._events)
        for group in groups[:-1]:
            self._result.before.append(self._visible(group))
        last = groups[-1] if groups else {}
        if ALIAS in last:
            self._show_reasoning(last[ALIAS])
        if "content" in last or ALIAS not in last or self._is_whole:
            self._shown["content"] = last.get("content", "")

    def _whole_group(self, segments: list[tuple[bool, str]]) -> list[dict[str, Any]]:
        group: dict[str, Any] = {}
        for is_reasoning, text in segments:
            key = ALIAS if is_reasoning else "content"
            group[key] = group.get(key, "") + text
        return [group]

    def _visible(self, group: dict[str, Any]) -> dict[str, Any]:
        if self._target.show_reasoning:
            return group
        self._unknowns.note("reasoning withheld")
        return {key: text for key, text in group.items() if key != ALIAS}

    def _content_list(self, items: list[Any]) -> None:
        """A list of text, thinking and other items (Mistral); see the HTTP reference, section 3."""
        if "content_list" not in self._target.read:
            self._plain_list(items)
            return
        texts: list[str] = []
        others: list[Any] = []
        has_other = False
        for position, item in enumerate(items):
            kind = item.get("type") if isinstance(item, dict) else None
            if kind == "thinking":
                self._thinking_item(item, f"{self._path}.content[{position}]")
                continue
            others.append(item)
            if kind == "text" and isinstance(item.get("text"), str) and len(item) == 2:
                texts.append(item["text"])
            else:
                has_other = True
        self._result.is_changed = True
        if has_other:
            self._events.append(ev.ContentItems(self._choice.index, others))
            self._shown["content"] = others
            return
        for text in texts:
            self._choice.say_text(text, self._events)
        if texts or self._is_whole or not items:
            self._shown["content"] = "".join(texts)
            if not texts:
                self._choice.say_text("", self._events)

    def _thinking_item(self, item: dict[str, Any], path: str) -> None:
        inner = item.get("thinking")
        text, rest = _thinking_text(inner, path)
        self._choice.say_reasoning(text, "content_list", self._events)
        self._show_reasoning(text)
        beside = {key: value for key, value in item.items() if key not in ("type", "thinking")}
        if not beside and not rest:
            return
        detail = {"type": "thinking", **beside, **({"thinking": rest} if rest else {})}
        self._events.append(ev.ReasoningDetails(self._choice.index, [detail]))
        if self._target.show_reasoning:
            self._shown.setdefault("reasoning_details", []).append(detail)

    def _plain_list(self, items: list[Any]) -> None:
        """A content list where the preset evidences no thinking in it: carried, or drift."""
        for item in items:
            kind = item.get("type") if isinstance(item, dict) else None
            if isinstance(kind, str) and kind in ("thinking", "redacted_thinking", "reasoning"):
                path = f"{self._path}.content"
                shown = self._unknowns.unknown(
                    "message", self._choice.index, "thinking", items, path=path
                )
                if shown:
                    self._shown["content"] = items
                else:
                    self._result.is_changed = True
                return
        self._events.append(ev.ContentItems(self._choice.index, items))
        self._shown["content"] = items


def _groups(segments: list[tuple[bool, str]]) -> list[dict[str, Any]]:
    """Deltas that keep the order of reasoning and text: each has reasoning, then text."""
    groups: list[dict[str, Any]] = []
    for is_reasoning, text in segments:
        key = ALIAS if is_reasoning else "content"
        if not groups or (is_reasoning and "content" in groups[-1]):
            groups.append({})
        groups[-1][key] = groups[-1].get(key, "") + text
    return groups


def _thinking_text(inner: Any, path: str) -> tuple[str, list[Any]]:
    """The text of a thinking item, and its inner items that are something else."""
    if isinstance(inner, str):
        return inner, []
    if not isinstance(inner, list):
        raise TranslationError("the provider sent a thinking item without thinking", param=path)
    texts: list[str] = []
    rest: list[Any] = []
    for part in inner:
        if isinstance(part, dict) and part.get("type") == "text" and len(part) == 2:
            text = part.get("text")
            if not isinstance(text, str):
                raise TranslationError("the provider sent reasoning that is no string", param=path)
            texts.append(text)
        else:
            rest.append(part)
    return "".join(texts), rest


def utf8_length(text: str) -> int:
    """Bytes of `text` in UTF-8; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
