"""The stream's fast path: frames that differ from a known one only in one text.

Most frames of a stream are the same bytes around one piece of text. When the strict reader has read
such a frame, its bytes before and after the text become a template; a later frame with the same
bytes around another JSON string says the same with another text. Some providers pad each frame
with random letters: these may differ, too. Nothing is guessed: a template is kept only if the
strict reader, given a marker in place of the text, finds the same tree with the marker there.
Whatever does not match goes to the strict reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from everyturn.wire import events as ev
from everyturn.wire.dialects.chat_choice import ChoiceReader
from everyturn.wire.dialects.chat_content import ALIAS
from everyturn.wire.dialects.chat_reply import ChatDecoder, Decoded
from everyturn.wire.frames import Frame
from everyturn.wire.growing import ATOMIC
from everyturn.wire.preset import TEXT_CARRIERS
from everyturn.wire.reader import read_provider, write
from everyturn.wire.reasoning import is_empty
from everyturn.wire.reply import Fold

TEMPLATES_MAX: Final = 8
"""Templates kept a stream; the oldest goes when one more is learned."""

_PLACES_MAX: Final = 4
"""Places in a frame that are tried as the one where its text stands."""

PADDINGS: Final = ("obfuscation", "p")
"""Members of a body that hide how long its text is: OpenAI's, Mistral's."""

_MARKER: Final = "everyturn-marker-5b1f"
_STRING: Final = msgspec.json.Decoder(str)
_REST_OF_STRING: Final = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class Hit:
    """A frame that a template read: its events, the client's bytes, how many events are carried."""

    __slots__ = ("carried", "events", "out")

    def __init__(self, events: list[ev.Event], out: bytes, carried: int) -> None:
        self.events = events
        self.out = out
        self.carried = carried


@dataclass(slots=True)
class _Template:
    prefix: bytes
    gap: bytes
    """What stands between the text and the padding; b"" where there is no padding."""
    suffix: bytes
    """What stands after the text and the padding."""
    out_prefix: bytes
    out_suffix: bytes
    is_untouched: bool
    is_reasoning: bool
    carrier: str
    choice: ChoiceReader
    events: list[ev.Event]
    """All of the frame it was learned from."""
    place: int
    """Which of `events` is the text."""
    padding: int
    """Which of `events` is the padding, where there is one."""
    carried: int


class Templates:
    """The templates of one stream."""

    __slots__ = ("_decoder", "_fold", "_fruitless", "_known", "_last")

    def __init__(self, decoder: ChatDecoder, fold: Fold) -> None:
        self._decoder = decoder
        self._fold = fold
        self._known: list[_Template] = []
        self._last: _Template | None = None
        self._fruitless = 0

    def match(self, raw: bytes) -> Hit | None:
        """Read `raw` by a template, folding its text; None if the strict reader must.

        Raises UpstreamTooLarge past the bound of a choice's text.
        """
        for template in self._known:
            if not raw.startswith(template.prefix) or not raw.endswith(template.suffix):
                continue
            start, end = len(template.prefix), len(raw) - len(template.suffix)
            padding = b""
            if template.gap:
                gap = raw.find(template.gap, start, end)
                padding = raw[gap + len(template.gap) : end]
                end = gap
            if end < start:
                continue
            try:
                # The quotes are part of what stands around the text.
                text = _STRING.decode(raw[start - 1 : end + 1])
            except msgspec.DecodeError:
                # Not one plain JSON string (or a lone surrogate): the strict reader answers it.
                return None
            if template.gap and not padding.isalnum():
                return None
            out = raw
            if not template.is_untouched:
                out = template.out_prefix + raw[start:end] + template.out_suffix
            return Hit(self._say(template, text, padding), out, template.carried)
        return None

    def _say(self, template: _Template, text: str, padding: bytes) -> list[ev.Event]:
        """The events of a frame that says `text`; they are folded."""
        choice = template.choice
        events = template.events.copy()
        place = template.place
        if template.is_reasoning:
            events[place] = choice.reasoning_delta(text, template.carrier)
            self._fold.say_reasoning(choice.index, text, template.carrier)
            if text:
                choice.mirror.parts.append(text)
        else:
            events[place] = choice.text_delta(text)
            self._fold.say_text(choice.index, text)
        if self._last is not template:
            # What is said anew in each frame counts from the frame that said it last.
            for event in (*events[:place], *events[place + 1 :]):
                self._fold.add(event)
            self._last = template
            self._fruitless = 0
        if padding:
            at = template.padding
            events[at] = _padded(events[at], padding.decode())
            self._fold.add(events[at])
        return events

    def learn(self, frame: Frame, data: bytes, decoded: Decoded) -> None:
        """Keep a frame that the strict reader read as a template, if it can be one.

        Any other frame may change what the known templates rest on (a mirror that appears): they
        are dropped.
        """
        self._last = None
        place = _only_text(decoded.events)
        template = None
        if place is not None and self._is_worth_it():
            template = self._template(frame, data, decoded, place)
        if template is None:
            self._known.clear()
            return
        self._known.insert(0, template)
        del self._known[TEMPLATES_MAX:]

    def _is_worth_it(self) -> bool:
        """Whether to learn: ever more seldom where no two frames are alike, since it costs."""
        self._fruitless += 1
        is_power_of_two = self._fruitless & (self._fruitless - 1) == 0
        return self._fruitless <= 2 * TEMPLATES_MAX or is_power_of_two

    def _template(
        self, frame: Frame, data: bytes, decoded: Decoded, place: int
    ) -> _Template | None:
        event = decoded.events[place]
        assert isinstance(event, ev.TextDelta | ev.ReasoningDelta)
        choice = self._decoder.choice(event.choice)
        key = "content"
        if isinstance(event, ev.ReasoningDelta):
            key = event.carrier
            if choice.mirror.is_shared or key not in TEXT_CARRIERS:
                return None
        elif choice.splits_content:
            return None
        if frame.unknown_fields or frame.shown != frame.raw or frame.raw.count(data) != 1:
            return None
        text = event.text or ""
        tree = read_provider(data).value
        around = _around(data, key, _with_marker(tree, key, text))
        shown = _shown(frame, decoded, text)
        if around is None or shown is None:
            return None
        start = frame.raw.index(data)
        gap, rest, padding = b"", around[1], 0
        if decoded.payloads is None:
            gap, rest, padding = _split_padding(data, tree, decoded.events, place, rest)
        return _Template(
            frame.raw[:start] + around[0],
            gap,
            rest + frame.raw[start + len(data) :],
            *shown,
            is_untouched=decoded.payloads is None,
            is_reasoning=isinstance(event, ev.ReasoningDelta),
            carrier=key,
            choice=choice,
            events=decoded.events,
            place=place,
            padding=padding,
            carried=sum(1 for other in decoded.events if type(other) is ev.Unknown),
        )


def _padded(event: ev.Event, padding: str) -> ev.Event:
    assert isinstance(event, ev.Value | ev.Unknown)
    return type(event)(event.scope, event.choice, event.key, padding)


def _only_text(events: list[ev.Event]) -> int | None:
    """Where the one text event stands, if all others may be said again without adding anything."""
    place: int | None = None
    for index, event in enumerate(events):
        if _is_idempotent(event):
            continue
        if place is not None or not isinstance(event, ev.TextDelta | ev.ReasoningDelta):
            return None
        place = index
    return place


def _is_idempotent(event: ev.Event) -> bool:
    is_said_anew = _IDEMPOTENT.get(type(event))
    return is_said_anew is not None and is_said_anew(event)


def _says_nothing(event: ev.TextDelta | ev.ReasoningDelta | ev.RefusalDelta) -> bool:
    return not event.text


def _finishes_nothing(event: ev.Finish) -> bool:
    return not event.value


def _counts_nothing(event: ev.Usage) -> bool:
    return event.value is None


def _replaces(event: ev.Value | ev.Unknown) -> bool:
    value = event.value
    if event.scope == "body" or is_empty(value):
        return True
    if isinstance(value, str):
        return event.scope == "choice" or event.key in ATOMIC
    return not isinstance(value, list | dict)


# Looked up by type: a chain of tests would cost more, since each frame has many events.
_IDEMPOTENT: Final[dict[type[Any], Callable[[Any], bool]]] = {
    ev.TextDelta: _says_nothing,
    ev.ReasoningDelta: _says_nothing,
    ev.RefusalDelta: _says_nothing,
    ev.Finish: _finishes_nothing,
    ev.Usage: _counts_nothing,
    ev.Value: _replaces,
    ev.Unknown: _replaces,
}
"""Events that may say nothing new, and what tells whether one does."""


def _around(data: bytes, key: str, expected: Any) -> tuple[bytes, bytes] | None:
    """The bytes of `data` before and after the one JSON string under `key` that gives `expected`
    when the marker stands in its place; None where there is none, or nothing is expected."""
    openings = re.finditer(rb'"' + key.encode() + rb'"\s*:\s*"', data)
    for opening in islice(openings, _PLACES_MAX if expected is not None else 0):
        end = _REST_OF_STRING.match(data, opening.end())
        assert end is not None  # The pattern matches the empty string.
        before, after = data[: opening.end()], data[end.end() :]
        candidate = before + _MARKER.encode() + after
        if read_provider(candidate).value == expected:
            return before, after
    return None


def _split_padding(
    data: bytes, tree: Any, events: list[ev.Event], place: int, rest: bytes
) -> tuple[bytes, bytes, int]:
    """What of `rest` stands before and after the padding, and which of `events` it is.

    place: which of `events` is the text. rest: the bytes of `data` after the text. The gap is empty
    where there is no padding.
    """
    for position, event in enumerate(events[place + 1 :], place + 1):
        if not isinstance(event, ev.Value | ev.Unknown) or event.scope != "body":
            continue
        if event.key in PADDINGS and isinstance(event.value, str) and event.value.isalnum():
            around = _around(data, event.key, {**tree, event.key: _MARKER})
            if around is not None:
                gap = around[0][len(data) - len(rest) :]
                return gap, around[1], position
    return b"", rest, 0


def _with_marker(tree: Any, key: str, text: str) -> Any:
    """`tree` with the marker in place of `text` at its one choice's delta `key`; None if absent."""
    choices = tree["choices"]
    if len(choices) != 1 or choices[0]["delta"].get(key) != text:
        return None
    marked = {**choices[0], "delta": {**choices[0]["delta"], key: _MARKER}}
    return {**tree, "choices": [marked]}


def _shown(frame: Frame, decoded: Decoded, text: str) -> tuple[bytes, bytes] | None:
    """The client's bytes before and after the text; None where it is not shown, or not alone."""
    if decoded.payloads is None:
        return b"", b""
    *before, last = decoded.payloads
    tree = read_provider(last).value
    for key in (ALIAS, "content"):
        marked = _with_marker(tree, key, text)
        if marked is not None and not before:
            parts = frame.with_data(write(marked)).split(_MARKER.encode())
            return (parts[0], parts[1]) if len(parts) == 2 else None
    return None
