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
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from everyturn.wire import events as ev
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


class Hit(msgspec.Struct):
    """A frame that a template read: its events, the client's bytes, how many events are carried."""

    events: list[ev.Event]
    out: bytes
    carried: int


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
    choice: int
    before: list[ev.Event]
    after: list[ev.Event]
    padding: int
    """Which event of `after` is the padding, where there is one."""
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
            middle = raw[start:end]
            try:
                text = _STRING.decode(b'"' + middle + b'"')
            except msgspec.DecodeError:
                # Not one plain JSON string (or a lone surrogate): the strict reader answers it.
                return None
            if template.gap and not padding.isalnum():
                return None
            return self._say(template, raw, middle, text, padding)
        return None

    def _say(
        self, template: _Template, raw: bytes, middle: bytes, text: str, padding: bytes
    ) -> Hit:
        choice = self._decoder.choice(template.choice)
        events = list(template.before)
        if template.is_reasoning:
            choice.say_reasoning(text, template.carrier, events)
            if text:
                choice.mirror.parts.append(text)
        else:
            choice.say_text(text, events)
        self._fold.add(events[-1])
        if self._last is not template:
            # What is said anew in each frame counts from the frame that said it last.
            for event in (*template.before, *template.after):
                self._fold.add(event)
            self._last = template
            self._fruitless = 0
        events += template.after
        if padding:
            at = template.padding - len(template.after)
            events[at] = _padded(events[at], padding.decode())
            self._fold.add(events[at])
        if template.is_untouched:
            return Hit(events, raw, template.carried)
        return Hit(events, template.out_prefix + middle + template.out_suffix, template.carried)

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
        before, after = decoded.events[:place], decoded.events[place + 1 :]
        start = frame.raw.index(data)
        gap, rest, padding = b"", around[1], 0
        if decoded.payloads is None:
            gap, rest, padding = _split_padding(data, tree, after, rest)
        return _Template(
            frame.raw[:start] + around[0],
            gap,
            rest + frame.raw[start + len(data) :],
            *shown,
            is_untouched=decoded.payloads is None,
            is_reasoning=isinstance(event, ev.ReasoningDelta),
            carrier=key,
            choice=event.choice,
            before=before,
            after=after,
            padding=padding,
            carried=sum(1 for other in (*before, *after) if isinstance(other, ev.Unknown)),
        )


def _padded(event: ev.Event, padding: str) -> ev.Event:
    assert isinstance(event, ev.Value | ev.Unknown)
    return type(event)(event.scope, event.choice, event.key, padding)


def _only_text(events: list[ev.Event]) -> int | None:
    """Where the one text event stands, if all others may be said again without adding anything."""
    place: int | None = None
    for index, event in enumerate(events):
        if isinstance(event, ev.TextDelta | ev.ReasoningDelta) and event.text:
            if place is not None:
                return None
            place = index
        elif not _is_idempotent(event):
            return None
    return place


def _is_idempotent(event: ev.Event) -> bool:
    match event:
        case ev.TextDelta() | ev.ReasoningDelta():
            return True  # Null or empty: says only that there is nothing.
        case ev.RefusalDelta(_, value) | ev.Finish(_, value):
            return not value
        case ev.Usage(_, value):
            return value is None
        case ev.Value(scope, _, key, value) | ev.Unknown(scope, _, key, value):
            if scope == "body" or is_empty(value):
                return True
            if isinstance(value, str):
                return scope == "choice" or key in ATOMIC
            return not isinstance(value, list | dict)
        case _:
            return False


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
    data: bytes, tree: Any, after: list[ev.Event], rest: bytes
) -> tuple[bytes, bytes, int]:
    """What of `rest` stands before and after the padding, and which event of `after` it is.

    rest: the bytes of `data` after the text. The gap is empty where there is no padding.
    """
    for position, event in enumerate(after):
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
