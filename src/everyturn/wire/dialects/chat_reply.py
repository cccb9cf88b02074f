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
)
from everyturn.wire import events as ev
from everyturn.wire.dialects.chat_message import ChoiceReader
from everyturn.wire.dialects.failures import body_failure, frame_failure
from everyturn.wire.limits import Limits
from everyturn.wire.preset import Target
from everyturn.wire.reader import Malformed, read_provider, write
from everyturn.wire.reasoning import KNOWN_CARRIERS, is_empty, speaks_of_reasoning

ENVELOPE: Final = frozenset(
    {"id", "object", "created", "model", "service_tier", "system_fingerprint", "obfuscation"}
)
"""Top-level keys of an answer that the protocol names, beside `choices`, `usage` and `error`."""

CHOICES_MAX: Final = 1024
"""Bound on the index of a choice; OpenAI allows `n` up to 128."""


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
        self.notes: list[str] = []
        """What was done that the client cannot see, for the note header or a comment."""
        self.flags: list[str] = []
        self.drift: list[dict[str, Any]] = []
        """Path, type and length of each output that was carried as drift."""

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
        if not isinstance(tree, dict):
            return self._foreign(tree)
        shown, before = self._body(tree, is_whole=False)
        events, self._events = self._events, []
        payloads: list[bytes] | None = None
        if self._is_changed or before:
            payloads = [self._frame(index, delta) for index, delta in before]
            payloads.append(write(shown))
        failure = frame_failure(shown)
        if failure is not None:
            events.append(ev.ErrorSeen(tree.get("error", tree)))
            return Decoded(events, payloads, failure=failure)
        return Decoded(events, payloads, _is_usage_only(tree))

    def _foreign(self, tree: Any) -> Decoded:
        """A frame that is no object: some providers send errors as an array."""
        failure = body_failure(tree)
        if failure is None:
            raise TranslationError("the provider sent an event that is no JSON object")
        return Decoded([ev.ErrorSeen(tree)], failure=failure)

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
        events, self._events = self._events, []
        return Decoded(events, payloads)

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
        failure = body_failure(tree)
        if failure is not None:
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
            if choice.mirror.is_uneven:
                raise ReasoningConflict(
                    "the provider's reasoning carriers differ", param=f"choices[{choice.index}]"
                )
            if not choice.has_finish:
                self.flag("missing_finish")
        events, self._events = self._events, []
        return Decoded(events, [write(shown)] if self._is_changed else None), shown

    # ------------------------------------------------------------ both

    def _read(self, data: bytes) -> Any:
        self._events = []
        self._is_changed = False
        try:
            document = read_provider(data)
        except Malformed as bad:
            raise TranslationError(f"the provider sent JSON that cannot be read: {bad}") from None
        if document.has_nonfinite:
            self._is_changed = True
            self.flag("nonfinite_number")
        return document.value

    def _body(
        self, tree: dict[str, Any], *, is_whole: bool
    ) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
        shown: dict[str, Any] = {}
        before: list[tuple[int, dict[str, Any]]] = []
        beside = self._reasoning_beside_choices(tree)
        for key, value in tree.items():
            if key == "choices":
                shown[key] = self._read_choices(value, before, beside, is_whole=is_whole)
            elif key == "usage":
                self._usage("usage", value)
                shown[key] = value
            elif key in ENVELOPE:
                self._events.append(ev.Value("body", 0, key, value))
                self._envelope_member(key, value)
                shown[key] = value
            elif key == "error":
                shown[key] = value
                if is_empty(value):
                    self._events.append(ev.Unknown("body", 0, key, value))
            elif key == "reasoning_content" and beside is not None:
                self._is_changed = True
            else:
                self._other(key, value, shown)
        return shown, before

    def _envelope_member(self, key: str, value: Any) -> None:
        if key in ("id", "object", "created", "model"):
            self._envelope[key] = value

    def _other(self, key: str, value: Any, shown: dict[str, Any]) -> None:
        if key == "x_groq" and isinstance(value, dict) and "usage" in value:
            self._usage("x_groq.usage", value["usage"])
        if self.unknown("body", 0, key, value, path=key):
            shown[key] = value

    def _reasoning_beside_choices(self, tree: dict[str, Any]) -> str | None:
        """The older DashScope form: reasoning text at the top level, where the preset reads it."""
        if "body.reasoning_content" not in self._target.read:
            return None
        value = tree.get("reasoning_content")
        if value is not None and not isinstance(value, str):
            raise TranslationError(
                "the provider sent reasoning that is no string", param="reasoning_content"
            )
        if value is None or (isinstance(tree.get("choices"), list) and tree["choices"]):
            return value
        raise TranslationError(
            "the provider sent reasoning beside no choice", param="reasoning_content"
        )

    def _usage(self, place: str, value: Any) -> None:
        if value is not None and not isinstance(value, dict):
            raise TranslationError("the provider sent usage that is no object", param=place)
        if place in self._target.preset.usage_places or place == "usage":
            self._events.append(ev.Usage(place, value))

    def _read_choices(
        self,
        choices: Any,
        before: list[tuple[int, dict[str, Any]]],
        beside: str | None,
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
            index = choice.get("index", position)
            if (
                not isinstance(index, int)
                or isinstance(index, bool)
                or not 0 <= index < CHOICES_MAX
            ):
                raise TranslationError(
                    "the provider sent a choice whose index cannot be used", param=f"{path}.index"
                )
            reader = self.choice(index)
            result = reader.read(
                choice,
                self._events,
                path=path,
                beside=beside if position == 0 else None,
                is_whole=is_whole,
            )
            self._is_changed = self._is_changed or result.is_changed
            before.extend((index, delta) for delta in result.before)
            shown.append(result.shown)
            if "usage" in choice and "choice.usage" in self._target.preset.usage_places:
                self._usage("choice.usage", choice["usage"])
        return shown

    def unknown(self, scope: ev.Scope, index: int, key: str, value: Any, *, path: str) -> bool:
        """Answer a key that has no meaning of its own: carry it, or refuse it as drift.

        Returns whether the client sees it. Raises ProtocolDrift.
        """
        speaks = key in KNOWN_CARRIERS or speaks_of_reasoning(key)
        if not speaks or is_empty(value) or key in self._target.preset.carry:
            self._events.append(ev.Unknown(scope, index, key, value))
            return True
        if self._target.on_drift == "fail":
            raise ProtocolDrift(
                f"the provider sent `{path}`, which preset `{self._target.preset.name}` does not "
                "evidence",
                param=path,
            )
        self._events.append(ev.Drift(scope, index, key, value))
        self._note_drift(path, value)
        return self._target.show_reasoning

    def _note_drift(self, path: str, value: Any) -> None:
        size = len(value) if isinstance(value, str | list | dict) else 1
        for entry in self.drift:
            if entry["path"] == path:
                entry["length"] += size
                entry["times"] += 1
                return
        self.drift.append({"path": path, "type": type(value).__name__, "length": size, "times": 1})
        self.note(f"carried {path} as drift")


def _is_usage_only(tree: dict[str, Any]) -> bool:
    return (
        tree.get("choices") == []
        and isinstance(tree.get("usage"), dict)
        and all(key in ENVELOPE or key in ("choices", "usage") for key in tree)
    )
