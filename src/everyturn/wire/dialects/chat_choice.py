"""Read one choice of a Chat Completions answer: what has to be remembered over its frames.

Mirrors, open tags, tool calls and how much was said belong to a choice; what one message or delta
says is read by `chat_message`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Protocol

from everyturn.errors import ReasoningConflict, TranslationError, UpstreamTooLarge
from everyturn.wire import events as ev
from everyturn.wire.dialects.chat_content import ALIAS, Segment
from everyturn.wire.dialects.chat_message import Beside, MessageReader, Shown
from everyturn.wire.events import ReasoningDelta, TextDelta
from everyturn.wire.growing import Missing
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


class Surroundings(Protocol):
    """The answer that a choice is part of."""

    def unknown(self, scope: ev.Scope, index: int, key: str, value: Any, *, where: str) -> bool:
        """Answer a key that has no meaning of its own; whether the client sees it."""

    def drift(self, path: str, value: Any) -> None:
        """Answer reasoning where the preset evidences none: note it, or raise ProtocolDrift."""

    def hold(self, value: Any, place: tuple[str, int, str] | None = None) -> None:
        """Count what has to be kept of the answer beside its texts."""

    def note(self, text: str) -> None: ...

    def flag(self, name: str) -> None: ...


class _Size:
    """How much of one kind a choice has said, in bytes of UTF-8."""

    __slots__ = ("bytes", "what")

    def __init__(self, what: str) -> None:
        self.what = what
        self.bytes = 0


class ChoiceReader:
    """One choice of one call, over all its frames."""

    def __init__(self, index: int, target: Target, limits: Limits, around: Surroundings) -> None:
        self.index = index
        self.target = target
        self.around = around
        self.mirror = Mirror()
        self.has_finish = False
        self.text_carriers = text_carriers_of(target.read)
        self._limits = limits
        self._tools = ToolCalls(index)
        self._content = _Size("content")
        self._reasoning = _Size("reasoning")
        self._calls = _Size("tool calls")
        self._is_alias_drifted = False
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

    @property
    def carriers(self) -> tuple[str, ...]:
        """The carriers of a message that have said something, mirrors included."""
        return self.mirror.carriers + (("reasoning_details",) if self._details else ())

    @property
    def is_uneven(self) -> bool:
        """Whether a text carrier has said less than was told; details are compared at the end."""
        return not self.mirror.lagging <= {"reasoning_details"}

    def read(
        self,
        choice: dict[str, Any],
        events: list[ev.Event],
        *,
        path: str,
        beside: Beside,
        is_whole: bool,
    ) -> Shown:
        """Read one appearance of the choice; its events are appended to `events`.

        beside: reasoning text that stood at the top level of the body and belongs here.
        """
        holder = "message" if is_whole else "delta"
        message = _message_of(choice, holder, path)
        result = Shown({})
        for key, value in choice.items():
            if key == holder and message is not None:
                reader = MessageReader(self, events, result, f"{path}.{holder}", is_whole=is_whole)
                result.shown[key] = reader.read(message, beside)
            elif key == "finish_reason":
                self._finish(value, events, path)
                result.shown[key] = value
            elif key == "logprobs":
                self.around.hold(value)
                events.append(ev.Value("choice", self.index, key, value))
                result.shown[key] = value
            elif key in ("index", holder) or self.around.unknown(
                "choice", self.index, key, value, where=path
            ):
                result.shown[key] = value
            else:
                result.is_changed = True
        if message is None and not isinstance(beside, Missing):
            reader = MessageReader(self, events, result, f"{path}.{holder}", is_whole=is_whole)
            result.shown[holder] = reader.read({}, beside)
        if self.has_finish or is_whole:
            self._flush_into(result, events, holder)
        return result

    def _finish(self, value: Any, events: list[ev.Event], path: str) -> None:
        if value is not None and not isinstance(value, str):
            raise TranslationError(
                "the provider sent a finish reason that is no string", param=f"{path}.finish_reason"
            )
        events.append(ev.Finish(self.index, value))
        if value:
            self.has_finish = True
            if value in self.target.preset.finish_failures:
                self.around.flag("failing_finish")

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
        """Deltas for what the tag splitter still holds: less than a tag, so the bounds hold."""
        for is_reasoning, text in self._splitter.close() if self._splitter else ():
            if not is_reasoning:
                events.append(TextDelta(self.index, text))
                yield {"content": text}
                continue
            events.append(ReasoningDelta(self.index, text, "tags"))
            if self.target.show_reasoning:
                yield {ALIAS: text}

    def end(self) -> Iterator[str]:
        """Flags that only the end can set."""
        if self._splitter is not None and self._splitter.inside:
            yield "unterminated_tag"
        if self.is_uneven:
            yield "reasoning_mirror_short"
        if self._details and "".join(self._details) != "".join(self.mirror.parts):
            yield "reasoning_details_differ"
        if self._tools.is_repaired:
            yield "tool_index_repaired"

    # ---------------------------------------------------------- saying

    def say_text(self, text: str | None, events: list[ev.Event]) -> None:
        """A piece of content, as the last of `events`. Raises UpstreamTooLarge past the bound."""
        events.append(self.text_delta(text))

    def text_delta(self, text: str | None) -> TextDelta:
        """A piece of content. Raises UpstreamTooLarge past the bound."""
        if text:
            self._grow(self._content, text)
        return TextDelta(self.index, text)

    def say_reasoning(self, text: str | None, carrier: str, events: list[ev.Event]) -> None:
        """A piece of reasoning, as the last of `events`. Raises what `reasoning_delta` raises."""
        events.append(self.reasoning_delta(text, carrier))

    def reasoning_delta(self, text: str | None, carrier: str) -> ReasoningDelta:
        """A piece of reasoning. Raises UpstreamTooLarge past the bound, and ReasoningConflict."""
        if text:
            self._grow(self._reasoning, text)
            self._claim_alias()
        return ReasoningDelta(self.index, text, carrier)

    def _grow(self, size: _Size, text: str) -> None:
        said = size.bytes + utf8_length(text)
        if said > self._limits.text_bytes_max:
            raise UpstreamTooLarge(
                f"the provider's {size.what} of choice {self.index} passes "
                f"{self._limits.text_bytes_max} bytes"
            )
        size.bytes = said

    def drift_alias(self) -> None:
        """Note that the alias's own name is carried as drift. Raises ReasoningConflict."""
        self._is_alias_drifted = True
        if self._reasoning.bytes:
            self._claim_alias()

    def _claim_alias(self) -> None:
        if self._is_alias_drifted:
            raise ReasoningConflict(
                f"the provider sent `{ALIAS}`, which is not evidenced, beside another carrier that "
                "is shown under that name",
                param=f"choices[{self.index}].{ALIAS}",
                hint=f"Add `{ALIAS}` to `reasoning.read` for the model.",
            )

    # ------------------------------------------------- for _MessageReader

    def mirrored(
        self, message: dict[str, Any], beside: Beside, path: str
    ) -> tuple[str | None, str]:
        """The new reasoning text of a message's text carriers, and the carrier it is told from.

        None where all of them are null. Raises TranslationError and ReasoningConflict.
        """
        found = [(name, message[name]) for name in self.text_carriers if name in message]
        if not isinstance(beside, Missing):
            found.append(("body.reasoning_content", beside))
        new: str | None = None
        carrier = found[0][0]
        for name, value in found:
            if value is None:
                continue
            if not isinstance(value, str):
                raise TranslationError(
                    f"the provider sent `{path}.{name}` as something else than a string",
                    param=f"{path}.{name}",
                )
            if new is None or (value and not new):
                carrier = name
            new = (new or "") + self.mirror.add(name, value)
        return new, carrier

    def detailed(self, items: list[Any], *, is_told: bool) -> str:
        """The readable text of detail items, as far as no text carrier says it.

        is_told: a text carrier of the same message says something. All text of details is
        remembered, to be compared with what the text carriers said at the end.
        """
        text = detail_text(items)
        if text:
            self._details.append(text)
        if is_told or any(name != "reasoning_details" for name in self.mirror.carriers):
            return ""
        return self.mirror.add("reasoning_details", text)

    def tool_calls(
        self, calls: Any, events: list[ev.Event], path: str, *, is_whole: bool
    ) -> tuple[Any, bool]:
        """The fragments as the client gets them, and whether they changed."""
        if is_empty(calls):
            events.append(ev.Unknown("message", self.index, "tool_calls", calls))
            return calls, False
        if not isinstance(calls, list):
            raise TranslationError("the provider sent tool calls that are no array", param=path)
        shown: list[Any] = []
        is_changed = False
        for position, fragment in enumerate(calls):
            event, seen, is_moved = self._tools.read(
                fragment, position=position, is_whole=is_whole, path=f"{path}[{position}]"
            )
            self._grow(self._calls, (event.name or "") + (event.arguments or ""))
            if event.rest:
                self.around.hold(event.rest)
            events.append(event)
            shown.append(seen)
            is_changed = is_changed or is_moved
        return shown, is_changed

    def split(self, text: str, message: dict[str, Any]) -> list[Segment]:
        """Content text taken apart at tags, where the target has any."""
        if isinstance(self._splitter, MarkedSplitter):
            return self._splitter.feed(text, is_marked=is_marked_thought(message))
        if self._splitter is not None:
            return self._splitter.feed(text)
        return [(False, text)]


@lru_cache(maxsize=256)
def text_carriers_of(read: tuple[str, ...]) -> tuple[str, ...]:
    """The carriers among those a target reads that are texts of a message."""
    return tuple(name for name in read if name in TEXT_CARRIERS)


def _message_of(choice: dict[str, Any], holder: str, path: str) -> dict[str, Any] | None:
    """The message or delta of a choice; None where a chunk has none. Raises TranslationError."""
    message = choice.get(holder)
    if message is None:
        # Some chunks only say something of the choice (Azure's filters). One that has its text
        # elsewhere is the answer to another kind of request.
        if holder == "message" or choice.get("message") or choice.get("text"):
            raise TranslationError(f"the provider sent a choice without a {holder}", param=path)
        return None
    if not isinstance(message, dict):
        raise TranslationError(f"the provider sent a {holder} that is no object", param=path)
    return message


def utf8_length(text: str) -> int:
    """Bytes of `text` in UTF-8; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
