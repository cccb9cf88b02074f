"""Read Chat Completions answers: frames and bodies become events, rewritten only where needed.

`ChatDecoder` keeps what has to be remembered between the frames of one call (mirrors, open tags,
tool calls). Each frame gives its events and, where the client must see something else than the
provider's bytes, the JSON texts to show instead. No key is dropped: what has no event of its own
is `Value` or `Unknown`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from everyturn.errors import (
    Failure,
    ProtocolDrift,
    ReasoningConflict,
    TranslationError,
    UpstreamError,
    UpstreamTooLarge,
)
from everyturn.wire import events as ev
from everyturn.wire.dialects.chat_choice import ChoiceReader
from everyturn.wire.dialects.chat_message import WITHHELD_NOTE, Beside
from everyturn.wire.dialects.failures import reported_failure
from everyturn.wire.growing import MISSING, Missing
from everyturn.wire.limits import Limits
from everyturn.wire.preset import Target
from everyturn.wire.reader import Malformed, key_name, read_provider, write
from everyturn.wire.reasoning import is_empty, is_withheld, speaks_of_reasoning

ENVELOPE: Final = frozenset(
    {"id", "object", "created", "model", "service_tier", "system_fingerprint", "obfuscation"}
)
"""Top-level keys of an answer that the protocol names, beside `choices`, `usage` and `error`."""

CHOICES_MAX: Final = 1024
"""Bound on the index of a choice; OpenAI allows `n` up to 128."""

DRIFT_NOTES_MAX: Final = 8
"""Notes on carried drift; all of it is in the record."""


class Decoded(msgspec.Struct):
    """What one frame or body said.

    payloads: JSON texts to show instead of the frame's own bytes; None where those are good.
    is_usage_only: nothing but usage and envelope keys, with empty `choices`.
    failure: an error that the provider sent in it; the events stand all the same.
    """

    events: list[ev.Event]
    payloads: list[bytes] | None = None
    is_usage_only: bool = False
    failure: Failure | None = None


class ChatDecoder:
    """The reading half of the Chat Completions dialect for one call."""

    def __init__(self, target: Target, limits: Limits) -> None:
        self._target = target
        self._limits = limits
        self._choices: dict[int, ChoiceReader] = {}
        self._envelope: dict[str, Any] = {}
        self._events: list[ev.Event] = []
        self._is_changed = False
        self._is_counted = True
        self._held = 0
        self._held_at: dict[tuple[str, int, str], int] = {}
        self._drift: dict[str, dict[str, Any]] = {}
        self.notes: list[str] = []
        """What was done that the client cannot see, for the note header or a comment."""
        self.flags: list[str] = []

    @property
    def drifted(self) -> list[dict[str, Any]]:
        """Path, type and length of each output that was carried as drift."""
        return list(self._drift.values())

    @property
    def finished(self) -> set[int]:
        """Choices that have a finish."""
        return {index for index, choice in self._choices.items() if choice.has_finish}

    @property
    def seen(self) -> set[int]:
        """Choices that appeared."""
        return set(self._choices)

    @property
    def pending_events(self) -> int:
        """How many events the frame being read gave before it failed."""
        return len(self._events)

    def choice(self, index: int) -> ChoiceReader:
        """The reader of choice `index`, made when it is new."""
        reader = self._choices.get(index)
        if reader is None:
            reader = self._choices[index] = ChoiceReader(index, self._target, self._limits, self)
        return reader

    def flag(self, name: str) -> None:
        """Note an oddity once."""
        if name not in self.flags:
            self.flags.append(name)

    def note(self, text: str) -> None:
        """Note something done, once."""
        if text not in self.notes:
            self.notes.append(text)

    # ------------------------------------------------------------ frames

    def chunk(self, data: bytes) -> Decoded:
        """Read one frame's data. Raises the failures of section 3 of the HTTP reference."""
        tree = self._read(data)
        failure = reported_failure(tree)
        if failure is not None:
            self._read_beside(failure, tree, is_whole=False)
            error = tree.get("error", tree) if isinstance(tree, dict) else tree
            self._events.append(ev.ErrorSeen(error))
            return Decoded(self._taken(), failure=failure)
        if not isinstance(tree, dict):
            raise TranslationError("the provider sent an event that is no JSON object")
        shown, before = self._body(tree, is_whole=False)
        payloads: list[bytes] | None = None
        if self._is_changed or before:
            payloads = [self._frame(index, delta) for index, delta in before]
            payloads.append(write(shown))
        return Decoded(self._taken(), payloads, _is_usage_only(tree))

    def _read_beside(self, failure: Failure, tree: Any, *, is_whole: bool) -> None:
        """What stands beside an error, as far as it can be read; its members as a client sees them.

        The error is told whatever else is wrong with them.
        """
        if not isinstance(tree, dict) or is_empty(tree.get("error")):
            return
        try:
            shown, _ = self._body(tree, is_whole=is_whole)
        except Failure:
            shown = {}
        failure.frame_extra = {key: shown[key] for key in failure.frame_extra if key in shown}

    def _taken(self) -> list[ev.Event]:
        events, self._events = self._events, []
        return events

    def _frame(self, index: int, delta: dict[str, Any]) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": None}
        return write({**self._envelope, "choices": [choice]})

    def close(self) -> Decoded:
        """What was held back at the end of a stream, and the flags that only the end can set."""
        payloads: list[bytes] = []
        for index, choice in self._choices.items():
            for delta in choice.flush(self._events):
                payloads.append(self._frame(index, delta))
        self._end()
        return Decoded(self._taken(), payloads)

    def _end(self) -> None:
        for choice in self._choices.values():
            for name in choice.end():
                self.flag(name)

    # ------------------------------------------------------------ bodies

    def body(self, data: bytes) -> tuple[Decoded, dict[str, Any]]:
        """Read a whole body: its events, and the tree as the client sees it.

        `payloads` is None where the body's own bytes are good. Raises a typed failure for an error
        body, for JSON that is no answer, and for what section 3 of the HTTP reference refuses.
        """
        tree = self._read(data)
        # A whole answer is read once: a small one cannot hold too much, so nothing is counted.
        self._is_counted = len(data) * SIZE_RATIO_MAX > self._limits.carried_bytes_max
        failure = reported_failure(tree)
        if failure is not None:
            self._read_beside(failure, tree, is_whole=True)
            raise failure
        if not isinstance(tree, dict) or not isinstance(tree.get("choices"), list):
            raise TranslationError(
                "the provider's answer is not a chat completion", param="choices"
            )
        if not tree["choices"]:
            raise UpstreamError("the provider answered without a choice", param="choices")
        shown, _ = self._body(tree, is_whole=True)
        self._end()
        for choice in self._choices.values():
            if choice.is_uneven:
                raise ReasoningConflict(
                    "the provider's reasoning carriers differ", param=f"choices[{choice.index}]"
                )
            if not choice.has_finish:
                self.flag("missing_finish")
        return Decoded(self._taken(), [write(shown)] if self._is_changed else None), shown

    # ------------------------------------------------------------ both

    def _read(self, data: bytes) -> Any:
        self._events = []
        self._is_changed = False
        try:
            document = read_provider(data)
        except Malformed as bad:
            # Without the path: a key may be content.
            raise TranslationError(
                f"the provider sent JSON that cannot be read: {bad.reason}"
            ) from None
        if document.has_nonfinite:
            self._is_changed = True
            self.flag("nonfinite_number")
        return document.value

    def _body(
        self, tree: dict[str, Any], *, is_whole: bool
    ) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
        shown: dict[str, Any] = {}
        before: list[tuple[int, dict[str, Any]]] = []
        beside = self._beside_choices(tree)
        for key, value in tree.items():
            if key == "choices":
                shown[key] = self._read_choices(value, before, beside, is_whole=is_whole)
            elif key == "usage":
                self._usage(key, value)
                shown[key] = value
            elif key in ENVELOPE:
                self._envelope_member(key, value)
                shown[key] = value
            elif key == "error" and not is_empty(value):
                shown[key] = value  # Told as a failure.
            elif key == "reasoning_content" and not isinstance(beside, Missing):
                self._is_changed = True
            else:
                self._other(key, value, shown)
        return shown, before

    def _envelope_member(self, key: str, value: Any) -> None:
        self.hold(value, ("body", 0, key))
        self._events.append(ev.Value("body", 0, key, value))
        if key in ("id", "object", "created", "model"):
            self._envelope[key] = value

    def _other(self, key: str, value: Any, shown: dict[str, Any]) -> None:
        if key == "x_groq" and isinstance(value, dict) and "usage" in value:
            self._usage("x_groq.usage", value["usage"])
        if self.unknown("body", 0, key, value, where=""):
            shown[key] = value
        else:
            self._is_changed = True

    def _beside_choices(self, tree: dict[str, Any]) -> Beside:
        """The older DashScope form: reasoning text at the top level, where the preset reads it."""
        if "body.reasoning_content" not in self._target.read or "reasoning_content" not in tree:
            return MISSING
        value = tree["reasoning_content"]
        if value is not None and not isinstance(value, str):
            raise TranslationError(
                "the provider sent reasoning that is no string", param="reasoning_content"
            )
        if tree.get("choices"):
            return value
        if value:
            raise TranslationError(
                "the provider sent reasoning beside no choice", param="reasoning_content"
            )
        return MISSING

    def _usage(self, place: str, value: Any) -> None:
        if place not in self._target.preset.usage_places and place != "usage":
            return
        if value is not None and not isinstance(value, dict):
            raise TranslationError("the provider sent usage that is no object", param=place)
        self.hold(value, None if self._target.preset.usage_incremental else ("body", 0, place))
        self._events.append(ev.Usage(place, value))

    def _read_choices(
        self,
        choices: Any,
        before: list[tuple[int, dict[str, Any]]],
        beside: Beside,
        *,
        is_whole: bool,
    ) -> Any:
        if choices is None:
            self._events.append(ev.Unknown("body", 0, "choices", None))
            return None
        if not isinstance(choices, list):
            raise TranslationError("the provider sent choices that are no array", param="choices")
        shown: list[Any] = []
        for position, choice in enumerate(choices):
            path = f"choices[{position}]"
            if not isinstance(choice, dict):
                raise TranslationError("the provider sent a choice that is no object", param=path)
            index = _checked_index(choice.get("index", position), path)
            if is_whole and index in self._choices:
                # Two answers must not become one; clients tell them apart by this index too.
                index = _checked_index(max(self._choices) + 1, path)
                choice = {**choice, "index": index}
                self._is_changed = True
                self.flag("choice_index_repaired")
            result = self.choice(index).read(
                choice,
                self._events,
                path=path,
                beside=beside if position == 0 else MISSING,
                is_whole=is_whole,
            )
            self._is_changed |= result.is_changed
            before.extend((index, delta) for delta in result.before)
            shown.append(result.shown)
            if "usage" in choice:
                self._usage("choice.usage", choice["usage"])
        return shown

    def unknown(self, scope: ev.Scope, index: int, key: str, value: Any, *, where: str) -> bool:
        """Answer a key that has no meaning of its own: carry it, or refuse it as drift.

        where: the path of the object it stands in; "" for the body.
        Returns whether the client sees it. Raises ProtocolDrift and UpstreamTooLarge.
        """
        is_evidenced = key in self._target.preset.carry
        is_said_anew = scope == "body" or (
            scope == "choice" and not is_evidenced and not isinstance(value, list)
        )
        if is_said_anew:
            self.hold(value, (scope, index, key))
        else:
            self.hold([key, value])
        if is_empty(value) or not speaks_of_reasoning(key):
            self._events.append(ev.Unknown(scope, index, key, value))
            return True
        if is_evidenced:
            self._events.append(ev.Value(scope, index, key, value))
        else:
            name = key_name(key)
            self.drift(f"{where}.{name}" if where else name, value)
            self._events.append(ev.Drift(scope, index, key, value))
        if self._target.show_reasoning or not is_withheld(key, value):
            return True
        self.note(WITHHELD_NOTE)
        return False

    def drift(self, path: str, value: Any) -> None:
        """Answer reasoning where the preset evidences none: note it, or raise ProtocolDrift."""
        if self._target.on_drift == "fail":
            raise ProtocolDrift(
                f"the provider sent `{path}`, which preset `{self._target.preset.name}` does not "
                "evidence",
                param=path,
            )
        size = len(value) if isinstance(value, str | list | dict) else 1
        entry = self._drift.get(path)
        if entry is None:
            kind = type(value).__name__
            self._drift[path] = {"path": path, "type": kind, "length": size, "times": 1}
            if len(self._drift) <= DRIFT_NOTES_MAX:
                self.note(f"carried {path} as drift")
            return
        entry["length"] += size
        entry["times"] += 1

    def hold(self, value: Any, place: tuple[str, int, str] | None = None) -> None:
        """Count what has to be kept of the answer beside its texts. Raises UpstreamTooLarge.

        place: where a later value replaces it; None where values add up.
        """
        if not self._is_counted:
            return
        size = _size(value)
        if place is not None:
            size += len(place[2])
            self._held -= self._held_at.get(place, 0)
            self._held_at[place] = size
        self._held += size
        if self._held > self._limits.carried_bytes_max:
            raise UpstreamTooLarge(
                "what the provider sent beside its texts passes "
                f"{self._limits.carried_bytes_max} bytes"
            )


def _checked_index(index: Any, path: str) -> int:
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < CHOICES_MAX:
        raise TranslationError(
            "the provider sent a choice whose index cannot be used", param=f"{path}.index"
        )
    return index


def _is_usage_only(tree: dict[str, Any]) -> bool:
    return (
        tree.get("choices") == []
        and isinstance(tree.get("usage"), dict)
        and all(key in ENVELOPE or key in ("choices", "usage") for key in tree)
    )


SIZE_RATIO_MAX: Final = 9
"""`_size` of a value is at most so many times its bytes in JSON: a digit in a list counts 9."""


def _size(value: Any) -> int:
    """About the bytes of a value in JSON."""
    kind = type(value)
    if kind is str:
        return len(value) + 2
    if kind is not dict and kind is not list:
        return 8
    size = 2
    if kind is dict:
        for key, item in value.items():
            size += len(key) + 4 + _size(item)
    else:
        for item in value:
            size += 1 + _size(item)
    return size
