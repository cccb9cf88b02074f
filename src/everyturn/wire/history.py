"""Reasoning that a client sends back in the history, in the form the provider asks for.

The client knows one text carrier, `reasoning_content`, and `reasoning_details` where the provider
has them (see `render`). Here an assistant message goes the other way: equal copies become one,
and by the preset's policy it is sent in the provider's own carrier, removed with a note, or
refused. Nothing is invented, and opaque parts (signatures, `extra_content`) are never touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from everyturn.errors import HistoryReasoningMissing, InvalidValue, UnknownParameter
from everyturn.wire.history_forms import (
    EMPTY,
    Message,
    as_content_list,
    as_tags,
    as_text,
    beside_details,
    details_of,
    is_detail,
    texts_of,
    thinking_text,
    without,
)
from everyturn.wire.preset import Target

_CARRIERS: Final = frozenset(
    {"reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks"}
)
_ITEMS: Final = ("thinking", "redacted_thinking", "reasoning")
"""Types of reasoning items in a content list; a provider that reads such lists has the first."""
_FORMS: Final = ("tags", "content_list", "reasoning_details")
"""Carriers in history that are no text member."""
_LISTS: Final = ("reasoning_details", "thinking_blocks")
_STRIP_HINT: Final = (
    'Remove it from the history, or let the operator set `history_reasoning = "strip"`.'
)


class History:
    """The messages to send, and what there was to say about their reasoning."""

    __slots__ = ("messages", "notes", "reasoning_chars", "tagged")

    def __init__(
        self,
        *,
        messages: list[Message],
        notes: tuple[str, ...],
        reasoning_chars: int,
        tagged: tuple[tuple[int, int], ...],
    ) -> None:
        self.messages: Final = messages
        """The very list given where nothing had to change; else new, with the unchanged members."""
        self.notes: Final = notes
        """What the client should hear of; counts only."""
        self.reasoning_chars: Final = reasoning_chars
        """Reasoning text in the history as it came, in Unicode code points; copies count once."""
        self.tagged: Final = tagged
        """Messages whose reasoning goes as tags: index, and how many code points in front of the
        content (of its first text part, where it is a list) are reasoning with its tags."""


class _Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What one target does with reasoning in the history."""

    action: Literal["send", "remove", "refuse"]
    carrier: str
    """`tags`, `content_list`, `reasoning_details`, or the name of a text member."""
    texts: tuple[str, ...]
    """Members that hold the reasoning as one string; equal ones are copies."""
    structures: frozenset[str]
    """Carriers that this provider evidences: structured ones of them go as they came."""
    carry: bool
    """Whether a carrier that the provider does not evidence goes as it came."""
    required: bool
    """Whether a message with tool calls but without reasoning is certainly refused."""
    known: frozenset[str]
    """Every member that may hold reasoning."""
    items: tuple[str, ...]
    """Types of content list items that are reasoning here."""


@dataclass(slots=True)
class _Found:
    """The reasoning of one assistant message."""

    text: str | None = None
    """The one text of all text carriers; None where none holds a string."""
    copies: list[str] = field(default_factory=list)
    """The members that hold this text, or nothing."""
    is_present: bool = False
    """Whether a carrier that the provider reads stands there, null and empty texts included."""
    foreign: str | None = None
    """Path of the first value on a carrier that the provider does not evidence."""
    first: str | None = None
    """Path of the first carrier that holds something."""
    items: tuple[Message, ...] = ()
    """Thinking items of the content list."""
    details: list[Message] = field(default_factory=list)
    """What stood beside the text of thinking items, as this gateway shows it."""
    others: list[Any] = field(default_factory=list)
    """What else stands in `reasoning_details` beside these."""
    chars: int = 0


def convert_history(messages: list[Message], target: Target, *, thinking: bool | None) -> History:
    """The messages with reasoning as the target's provider takes it.

    messages: of a ChatRequest; neither the list nor a message is changed.
    thinking: whether thinking is certainly on (True); see `controls`.
    Raises InvalidValue (a carrier of the wrong type, or copies that differ), UnknownParameter
    (reasoning where it is refused) and HistoryReasoningMissing; `param` is the path.
    """
    policy = _policy_of(target, thinking)
    omit = target.preset.history_omit
    changed: dict[int, Message] = {}
    tagged: list[tuple[int, int]] = []
    removed = chars = 0
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        content = message.get("content")
        sent, found = message, None
        if not policy.known.isdisjoint(message) or (
            type(content) is list and _has_items(content, policy)
        ):
            found = _find(message, index, policy)
            chars += found.chars
            sent, tag_chars = _apply(message, found, index, policy, target)
            if policy.action == "remove" and found.first is not None:
                removed += 1
            if tag_chars:
                tagged.append((index, tag_chars))
        if policy.required and message.get("tool_calls") and not (found and found.is_present):
            raise HistoryReasoningMissing(
                "The provider refuses a message with tool calls without its reasoning, "
                "while thinking is on.",
                param=f"messages[{index}].reasoning_content",
            )
        if omit:
            sent = _omit(sent, index, omit)
        if sent is not message:
            changed[index] = sent
    if changed:
        messages = [changed.get(index, message) for index, message in enumerate(messages)]
    return History(
        messages=messages,
        notes=(_removed_note(removed),) if removed else (),
        reasoning_chars=chars,
        tagged=tuple(tagged),
    )


def _removed_note(count: int) -> str:
    return f"removed reasoning of {count} history message{'' if count == 1 else 's'}"


def _policy_of(target: Target, thinking: bool | None) -> _Policy:
    """The target's policy, worked out once for each answer to whether it thinks."""
    name = "history, thinking" if thinking is True else "history"
    policy: _Policy | None = target.derived.get(name)
    if policy is None:
        policy = target.derived[name] = _policy(target, is_thinking=thinking is True)
    return policy


def _policy(target: Target, *, is_thinking: bool) -> _Policy:
    preset = target.preset
    history = preset.history
    carry = target.on_drift == "carry"
    action: Literal["send", "remove", "refuse"] = "send"
    if target.history_reasoning == "reject":
        action = "refuse"
    elif target.history_reasoning == "strip" or history == "ignored":
        action = "remove"
    elif history == "forbidden":
        # What this gateway itself showed as drift has to be taken back.
        action = "remove" if carry else "refuse"
    carrier: str = preset.history_carrier
    if history == "as_tags":
        carrier = "tags"
    elif carrier == "reasoning_content":
        carrier = target.history_key
    texts = ["reasoning_content"]
    # `reasoning` is a plain alias too, but for a model whose drift was shown under that name.
    texts += [key for key in ("reasoning", "thinking") if key in target.read]
    if not carry and "reasoning" not in texts:
        texts.append("reasoning")
    structures = {*target.read, *preset.carry}
    if carrier in _FORMS:
        structures.add(carrier)
    elif carrier not in texts:
        texts.append(carrier)
    return _Policy(
        action=action,
        carrier=carrier,
        texts=tuple(texts),
        structures=frozenset(structures),
        carry=carry,
        required=action == "send" and is_thinking and history in ("required", "required_tools"),
        known=_CARRIERS.union(texts),
        items=_ITEMS[:1] if "content_list" in structures else _ITEMS,
    )


def _is_item(part: Any, policy: _Policy) -> bool:
    return type(part) is dict and part.get("type") in policy.items


def _has_items(content: list[Any], policy: _Policy) -> bool:
    return any(_is_item(part, policy) for part in content)


def _find(message: Message, index: int, policy: _Policy) -> _Found:
    """Read every carrier of one message, and hold its text copies against each other."""
    found = _Found()
    for key, value in message.items():
        path = f"messages[{index}].{key}"
        if key == "content":
            if type(value) is list and _has_items(value, policy):
                _find_items(value, path, policy, found)
        elif key in policy.texts:
            _find_text(key, value, path, policy, found)
        elif key in policy.known and value not in EMPTY:
            _find_structure(key, value, path, policy, found)
    if found.text:
        found.chars = len(found.text)
    return found


def _find_text(key: str, value: Any, path: str, policy: _Policy, found: _Found) -> None:
    found.is_present = True
    if value and found.first is None:
        found.first = path
    if type(value) is str:
        # An empty copy contradicts nothing: answers may show one beside the text.
        if found.text and value and found.text != value:
            raise _copies_differ(path)
        found.text = found.text or value
    elif value not in EMPTY:
        if policy.carry and key not in policy.structures:
            return
        raise InvalidValue(f"`{path}` must be a string or null.", param=path)
    found.copies.append(key)


def _find_items(content: list[Any], path: str, policy: _Policy, found: _Found) -> None:
    places = [at for at, part in enumerate(content) if _is_item(part, policy)]
    found.is_present = True
    found.items = tuple(content[at] for at in places)
    first = f"{path}[{places[0]}]"
    found.first = found.first or first
    if "content_list" not in policy.structures:
        found.foreign = found.foreign or first
        return
    text = ""
    for at in places:
        part = thinking_text(content[at])
        if part is None:
            here = f"{path}[{at}].thinking"
            raise InvalidValue(f"`{here}` must be a string or a list.", param=here)
        text += part
    if found.text and found.text != text:
        raise _copies_differ(first)
    found.text = text


def _find_structure(key: str, value: Any, path: str, policy: _Policy, found: _Found) -> None:
    found.first = found.first or path
    found.is_present = True
    if type(value) is not list:
        if key in _LISTS and not policy.carry:
            raise InvalidValue(f"`{path}` must be a list or null.", param=path)
        if key not in policy.structures:
            found.foreign = found.foreign or path
        return
    if not found.chars:
        found.chars = sum(len(text) for text in texts_of(value))
    if key in policy.structures:
        return
    if key == "reasoning_details" and "content_list" in policy.structures:
        found.details = [item for item in value if is_detail(item)]
        found.others = [item for item in value if not is_detail(item)]
        if found.others:
            found.foreign = found.foreign or f"{path}[{value.index(found.others[0])}]"
    else:
        found.foreign = found.foreign or path


def _apply(
    message: Message, found: _Found, index: int, policy: _Policy, target: Target
) -> tuple[Message, int]:
    """One message by its policy, and how many code points of reasoning its content got as tags."""
    if policy.action == "refuse":
        if found.first is not None:
            raise _not_accepted(found.first)
        return without(message, policy.known), 0
    if policy.action == "remove":
        return _without_reasoning(message, policy), 0
    if found.foreign is not None and not policy.carry:
        raise _not_accepted(found.foreign)
    message = without(message, _unread(message, policy))
    if policy.carrier == "content_list" or found.details:
        return _as_content_list(message, found, index), 0
    if found.items and "content_list" in policy.structures:
        # The provider reads content lists as they are, so the items say it all.
        return without(message, found.copies), 0
    if policy.carrier == "tags":
        return as_tags(message, target.tag, found.text, found.copies)
    if policy.carrier == "reasoning_details":
        key = "reasoning" if "reasoning" in target.preset.read else "reasoning_content"
        return beside_details(message, key, found.text, found.copies), 0
    return as_text(message, policy.carrier, found.text, found.copies), 0


def _unread(message: Message, policy: _Policy) -> list[str]:
    """Carriers without a value that the provider does not know: an answer may have had them."""
    return [
        key
        for key in _CARRIERS
        if key in message
        and key not in policy.texts
        and key not in policy.structures
        and message[key] in EMPTY
    ]


def _without_reasoning(message: Message, policy: _Policy) -> Message:
    kept = without(message, policy.known)
    content = kept.get("content")
    if type(content) is list and _has_items(content, policy):
        rest = [part for part in content if not _is_item(part, policy)]
        return {**kept, "content": rest or ""}
    return kept


def _as_content_list(message: Message, found: _Found, index: int) -> Message:
    """The message with a content list of thinking and other items, as the provider sent it."""
    sent = without(message, found.copies)
    if found.details:
        sent = without(sent, ("reasoning_details",))
        if found.others:
            sent = {**sent, "reasoning_details": found.others}
    if not found.items:
        return as_content_list(sent, found.text, found.details)
    if found.details and found.details != details_of(found.items):
        raise _copies_differ(f"messages[{index}].reasoning_details")
    return sent


def _omit(message: Message, index: int, omit: tuple[str, ...]) -> Message:
    """Leave out output-only members that say nothing; the provider would refuse them."""
    for key in omit:
        if key in message and message[key] not in EMPTY:
            path = f"messages[{index}].{key}"
            raise UnknownParameter(
                f"`{path}` belongs to answers; this model's provider refuses it in a request.",
                param=path,
                hint="Remove it from the history.",
            )
    return without(message, omit)


def _copies_differ(path: str) -> InvalidValue:
    return InvalidValue(
        f"`{path}` differs from another copy of the same reasoning.",
        param=path,
        hint="Send the reasoning once, as `reasoning_content`.",
    )


def _not_accepted(path: str) -> UnknownParameter:
    return UnknownParameter(
        f"`{path}` holds reasoning, which is not accepted there for this model.",
        param=path,
        hint=_STRIP_HINT,
    )
