"""Reasoning that a client sends back in the history, in the form the provider asks for.

The client knows one text carrier, `reasoning_content`, and `reasoning_details` where the provider
has them (see `render`). Here an assistant message goes the other way: equal copies become one,
and by the preset's policy it is sent in the provider's own carrier, removed with a note, or
refused. Nothing is invented, and opaque parts (signatures, `extra_content`) are never touched.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from everyturn.errors import HistoryReasoningMissing, InvalidValue, UnknownParameter
from everyturn.wire.preset import Target

Message = dict[str, Any]

_CARRIERS: Final = frozenset(
    {"reasoning_content", "reasoning", "thinking", "reasoning_details", "thinking_blocks"}
)
_ITEMS: Final = ("thinking", "redacted_thinking", "reasoning")
"""Types of reasoning items in a content list; a provider that reads such lists has the first."""
_LISTS: Final = ("reasoning_details", "thinking_blocks")
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})
_STRIP_HINT: Final = (
    'Remove it from the history, or let the operator set `history_reasoning = "strip"`.'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The messages to send, and what there was to say about their reasoning."""

    messages: list[Message]
    """The very list given where nothing had to change; else new, with the unchanged members."""
    notes: tuple[str, ...]
    """What the client should hear of; counts only."""
    reasoning_chars: int
    """Reasoning text in the history as it came, in Unicode code points; copies count once."""
    tagged: tuple[tuple[int, int], ...]
    """Messages whose reasoning goes as tags: index, and how many code points in front of the
    content (of its first text part, where it is a list) are reasoning with its tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Policy:
    """What one target does with reasoning in the history."""

    action: Literal["send", "remove", "refuse"]
    carrier: str
    """`tags`, `content_list`, `reasoning_details`, or the name of a text member."""
    texts: tuple[str, ...]
    """Members that hold the reasoning as one string; equal ones are copies."""
    structures: frozenset[str]
    """Structured carriers that this provider reads: they go as they came."""
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
    is_present: bool = False
    """Whether a carrier that the provider reads stands there, null and empty texts included."""
    foreign: str | None = None
    """Path of the first value on a carrier that the provider does not evidence."""
    first: str | None = None
    """Path of the first carrier that holds something."""
    items: tuple[Message, ...] = ()
    """Thinking items of the content list."""
    chars: int = 0


def convert_history(messages: list[Message], target: Target, *, thinking: bool | None) -> History:
    """The messages with reasoning as the target's provider takes it.

    messages: of a ChatRequest; neither the list nor a message is changed.
    thinking: whether thinking is certainly on (True); see `controls`.
    Raises InvalidValue (a carrier of the wrong type, or copies that differ), UnknownParameter
    (reasoning where it is refused) and HistoryReasoningMissing; `param` is the path.
    """
    policy = _policy(target, thinking)
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


def _policy(target: Target, thinking: bool | None) -> _Policy:
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
    if carrier not in texts and carrier not in ("tags", "content_list", "reasoning_details"):
        texts.append(carrier)
    structures = {carrier, *target.read, *preset.carry}
    if carrier == "content_list":
        # What stood beside the text of thinking items is shown there.
        structures.add("reasoning_details")
    return _Policy(
        action=action,
        carrier=carrier,
        texts=tuple(texts),
        structures=frozenset(structures),
        carry=carry,
        required=action == "send"
        and thinking is True
        and history in ("required", "required_tools"),
        known=_CARRIERS.union(texts),
        items=_ITEMS[:1] if "content_list" in structures else _ITEMS,
    )


def _is_item(part: Message, policy: _Policy) -> bool:
    return part.get("type") in policy.items


def _has_items(content: list[Message], policy: _Policy) -> bool:
    return any(_is_item(part, policy) for part in content)


def _find(message: Message, index: int, policy: _Policy) -> _Found:
    """Read every carrier of one message, and hold its text copies against each other."""
    found = _Found()
    for key, value in message.items():
        if key == "content":
            if type(value) is list and _has_items(value, policy):
                _find_items(value, f"messages[{index}].content", policy, found)
        elif key in policy.known:
            path = f"messages[{index}].{key}"
            if key in policy.texts:
                found.is_present = True
                _find_text(value, path, found)
            else:
                _find_structure(key, value, path, policy, found)
    if found.text:
        found.chars = len(found.text)
    return found


def _find_text(value: Any, path: str, found: _Found) -> None:
    if value is None:
        return
    if type(value) is not str:
        raise InvalidValue(f"`{path}` must be a string or null.", param=path)
    if value and found.first is None:
        found.first = path
    if found.text is not None and found.text != value:
        raise _copies_differ(path)
    found.text = value


def _find_items(content: list[Message], path: str, policy: _Policy, found: _Found) -> None:
    places = [at for at, part in enumerate(content) if _is_item(part, policy)]
    found.is_present = True
    found.items = tuple(content[at] for at in places)
    first = f"{path}[{places[0]}]"
    found.first = found.first or first
    if "content_list" not in policy.structures:
        found.foreign = found.foreign or first
        return
    text = "".join(
        _item_text(item, f"{path}[{at}].thinking")
        for at, item in zip(places, found.items, strict=True)
    )
    if found.text is not None and found.text != text:
        raise _copies_differ(first)
    found.text = text


def _item_text(item: Message, path: str) -> str:
    """The text of a thinking item; inner items of other kinds have none."""
    inner = item.get("thinking")
    if type(inner) is str:
        return inner
    if type(inner) is not list or any(type(part) is not dict for part in inner):
        raise InvalidValue(f"`{path}` must be a string or a list of objects.", param=path)
    return "".join(part["text"] for part in inner if _is_text(part))


def _is_text(part: Message) -> bool:
    """Whether an inner item is text and nothing beside; the answers are read by the same rule."""
    return len(part) == 2 and part.get("type") == "text" and type(part.get("text")) is str


def _find_structure(key: str, value: Any, path: str, policy: _Policy, found: _Found) -> None:
    if value in _EMPTY:
        return
    found.first = found.first or path
    found.is_present = True
    if key not in policy.structures:
        found.foreign = found.foreign or path
    if key not in _LISTS:
        return
    if type(value) is not list or any(type(item) is not dict for item in value):
        raise InvalidValue(f"`{path}` must be a list of objects or null.", param=path)
    if key == "reasoning_details" and policy.carrier == "content_list":
        _check_details(value, path)
    if not found.chars:
        found.chars = sum(len(text) for text in _texts(value))


def _texts(items: Iterable[Message]) -> Iterable[str]:
    """The readable texts of `reasoning_details` or `thinking_blocks`."""
    for item in items:
        for key in ("text", "summary", "thinking"):
            text = item.get(key)
            if type(text) is str:
                yield text


def _check_details(details: list[Message], path: str) -> None:
    """What stood beside the text of a content list's thinking items comes back as it was shown."""
    for at, item in enumerate(details):
        if item.get("type") != "thinking" or type(item.get("thinking", [])) is not list:
            here = f"{path}[{at}]"
            raise InvalidValue(
                f"`{here}` is not a thinking item as this gateway shows them.", param=here
            )


def _apply(
    message: Message, found: _Found, index: int, policy: _Policy, target: Target
) -> tuple[Message, int]:
    """One message by its policy, and how many code points of reasoning its content got as tags."""
    if policy.action == "refuse":
        if found.first is not None:
            raise _not_accepted(found.first)
        return _without(message, policy.known), 0
    if policy.action == "remove":
        return _without_reasoning(message, policy), 0
    if found.foreign is not None and not policy.carry:
        raise _not_accepted(found.foreign)
    message = _without(message, _unread(message, policy))
    if policy.carrier == "content_list":
        return _as_content_list(message, found, policy, index), 0
    if found.items and "content_list" in policy.structures:
        # The provider reads content lists as they are, so the items say it all.
        return _without(message, policy.texts), 0
    if policy.carrier == "tags":
        return _as_tags(message, found, policy, target)
    if policy.carrier == "reasoning_details":
        return _beside_details(message, found, policy, target), 0
    return _as_text(message, policy.carrier, found.text, policy.texts), 0


def _unread(message: Message, policy: _Policy) -> list[str]:
    """Carriers without a value that the provider does not know: an answer may have had them."""
    return [
        key
        for key in _CARRIERS
        if key in message
        and key not in policy.texts
        and key not in policy.structures
        and message[key] in _EMPTY
    ]


def _without(message: Message, keys: Iterable[str]) -> Message:
    """The message without these members; the same object where it has none of them."""
    gone = [key for key in keys if key in message]
    if not gone:
        return message
    return {key: value for key, value in message.items() if key not in gone}


def _without_reasoning(message: Message, policy: _Policy) -> Message:
    kept = _without(message, policy.known)
    content = kept.get("content")
    if type(content) is list and _has_items(content, policy):
        rest = [part for part in content if not _is_item(part, policy)]
        return {**kept, "content": rest or ""}
    return kept


def _as_text(message: Message, key: str, text: str | None, texts: tuple[str, ...]) -> Message:
    """The message with one text member `key`, standing where the first copy stood."""
    present = [name for name in message if name in texts]
    if not present or (present == [key]):
        return message
    sent: Message = {}
    for name, value in message.items():
        if name not in texts:
            sent[name] = value
        elif name == present[0]:
            sent[key] = text
    return sent


def _beside_details(message: Message, found: _Found, policy: _Policy, target: Target) -> Message:
    """`reasoning_details` as they came; the text beside them only where it says more."""
    details = message.get("reasoning_details")
    if details:
        if found.text is None or found.text == "".join(_texts(details)):
            return _without(message, policy.texts)
    key = "reasoning" if "reasoning" in target.preset.read else "reasoning_content"
    return _as_text(message, key, found.text, policy.texts)


def _as_tags(
    message: Message, found: _Found, policy: _Policy, target: Target
) -> tuple[Message, int]:
    sent = _without(message, policy.texts)
    if found.text is None:
        return sent, 0
    opening, closing = target.tag
    tags = f"{opening}{found.text}{closing}"
    content = sent.get("content")
    if type(content) is list:
        return {**sent, "content": [{"type": "text", "text": tags}, *content]}, len(tags)
    if content is not None and content.startswith(tags):
        # The content still has the same thought: a copy.
        return sent, len(tags)
    return {**sent, "content": tags + (content or "")}, len(tags)


def _as_content_list(message: Message, found: _Found, policy: _Policy, index: int) -> Message:
    """Rebuild a content list of thinking and text items; the inverse of how it is shown."""
    details = message.get("reasoning_details") or []
    sent = _without(message, (*policy.texts, "reasoning_details"))
    if found.items:
        if details and details != _details_of(found.items):
            raise _copies_differ(f"messages[{index}].reasoning_details")
        return sent
    if found.text is None and not details:
        return sent
    content = sent.get("content")
    if type(content) is list:
        rest = content
    else:
        rest = [{"type": "text", "text": content}] if content else []
    return {**sent, "content": [*_thinking_items(found.text or "", details), *rest]}


def _thinking_items(text: str, details: list[Message]) -> list[Message]:
    """One thinking item for each of `details`, or one plain item; the text stands in the first.

    Where the text was divided between several items is not shown to clients and not known here.
    """
    inner: list[Any] = [{"type": "text", "text": text}] if text else []
    if not details:
        return [{"type": "thinking", "thinking": inner}]
    items: list[Message] = []
    for item in details:
        others = item.get("thinking", [])
        items.append({**item, "thinking": [*inner, *others]})
        inner = []
    return items


def _details_of(items: Iterable[Message]) -> list[Message]:
    """What `reasoning_details` show of thinking items: all that stands beside their text."""
    details: list[Message] = []
    for item in items:
        detail = {key: value for key, value in item.items() if key != "thinking"}
        inner = item["thinking"]
        others = [part for part in inner if not _is_text(part)] if type(inner) is list else []
        if others:
            detail["thinking"] = others
        if len(detail) > 1:
            details.append(detail)
    return details


def _omit(message: Message, index: int, omit: tuple[str, ...]) -> Message:
    """Leave out output-only members that say nothing; the provider would refuse them."""
    for key in omit:
        if key in message and message[key] not in _EMPTY:
            path = f"messages[{index}].{key}"
            raise UnknownParameter(
                f"`{path}` belongs to answers; this model's provider refuses it in a request.",
                param=path,
                hint="Remove it from the history.",
            )
    return _without(message, omit)


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
