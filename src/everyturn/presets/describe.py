"""A preset as facts that a person or a program can read: each with its value and where it is from.

The command line and the reference page are made from this, so both say the same.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from everyturn.presets.check import FACTS
from everyturn.wire.preset import Evidence, Preset

KINDS: Final = {
    "D": "documentation",
    "R": "recording",
    "C": "source code",
    "I": "issue",
    "P": "a choice of this product",
}
"""What the letters of `Evidence.kind` mean."""

MEANINGS: Final[dict[str, str]] = {
    "base_url": "as one gives it to an OpenAI SDK; without one, each model says its own",
    "api_key_env": "the environment variable that holds the key, if the model names no other",
    "auth_header": "`authorization` sends `Bearer KEY`; any other header gets the bare key",
    "query": "query parameters of each call",
    "read": "where in an answer reasoning stands; text in several places has to be the same",
    "tags": "what is done about tags in the content: `off`, `split`, or `marked` (Gemini)",
    "tag": "the opening and the closing tag",
    "carry": "names that speak of reasoning and hold none; they go on as they are",
    "history": "what happens to reasoning that a client sends back",
    "history_carrier": "where it stands in the request to the provider",
    "history_exact": "whether its order and bytes are the provider's business and are kept",
    "history_omit": "members of answers that this provider refuses in a request",
    "terminal": "what ends a good stream: a `finish` for each choice, or `done` alone",
    "finish_failures": "finish values that mean the call failed",
    "stream_options": "whether `stream_options` is `evidenced`, `refused` or `unknown`",
    "usage_places": "where usage stands",
    "usage_incremental": "whether usage objects of a stream add up instead of replacing each other",
    "cached_in_prompt": "whether cached tokens are part of `prompt_tokens`",
    "reasoning_in_completion": "whether reasoning tokens are part of `completion_tokens`",
    "request_keys": "top-level request keys beyond Chat Completions",
    "controls.native": "the provider's own reasoning controls; they pass verbatim",
    "controls.effort": "what each effort becomes; one that is absent is refused",
    "controls.clamps": "efforts that become another one, as the vendor documents; told in a note",
    "controls.enabled": "what `reasoning.enabled` becomes",
    "controls.budget": "where `reasoning.max_tokens` goes",
    "controls.exclude": "what `reasoning.exclude` becomes",
    "adds": "members added where the request asks for reasoning or the model is marked so",
    "adds_unless": "request keys that exclude these; nothing is added beside them",
    "error_shapes": "how errors look; all shapes are read from every provider",
    "signatures": "where opaque signatures travel",
    "price_provider": "the provider in the price list; without one, costs are not known",
}
"""One phrase a fact, in the order of `FACTS`."""


WORDS: Final[dict[str, dict[str, str]]] = {
    "read": {
        "reasoning_content": "a string in the message or delta",
        "reasoning": "the same under this name",
        "reasoning_details": "a list of items with text, summary, encrypted data or signature",
        "content_list": "thinking items in a content that is a list",
        "thinking": "a string under this name",
        "thinking_blocks": "a list of blocks with text and signature",
        "thought_signature": "an opaque signature; carried",
        "body.reasoning_content": "a string beside `choices`",
    },
    "tags": {
        "off": "content is never touched",
        "split": "what stands between the tags becomes reasoning, byte for byte",
        "marked": "the same, only where the provider marks the text as a thought",
    },
    "history": {
        "forbidden": "refused with 400, unless the operator set `history_reasoning`",
        "ignored": "removed, with a note",
        "optional": "sent in the provider's carrier",
        "required_tools": "sent; where thinking is on, a message with tool calls has to have it",
        "required": "sent; each message that had some has to have it",
        "as_tags": "sent as tags in front of the content",
    },
    "history_carrier": {
        "reasoning_content": "a string; for `generic-strict` under the `history_key` of the model",
        "reasoning": "the same under this name",
        "reasoning_details": "the list as it came",
        "content_list": "thinking items in front of the content",
        "tags": "text in the content; goes with `as_tags`",
    },
    "terminal": {
        "finish": "a finish for each choice",
        "done": "`[DONE]`, even without a finish",
    },
    "stream_options": {
        "evidenced": "taken; where a client does not ask for usage, the gateway does",
        "refused": "taken out of a request, with a note",
        "unknown": "passed on if the client sends it, never added",
    },
    "usage_places": {
        "usage": "beside `choices`",
        "choice.usage": "inside a choice",
        "x_groq.usage": "inside `x_groq`",
    },
    "error_shapes": {
        "object": '`{"error": {"message": ...}}`',
        "string": '`{"error": "text"}`',
        "top_level": '`{"message": ...}`',
        "array": '`[{"error": {...}}]`',
    },
}
"""The closed sets that facts choose from, and what each word of theirs means."""


class Fact(NamedTuple):
    """One fact of a preset."""

    key: str
    value: Any
    """As JSON has it: lists and objects, no tuples; None: not known."""
    evidence: Evidence
    is_known: bool
    """Whether the file says it; else the value is the default."""


def facts_of(preset: Preset) -> list[Fact]:
    """Every fact that a preset can have, in the order of `FACTS`."""
    facts = []
    for key in FACTS:
        group, _, inner = key.partition(".")
        value = getattr(preset, group)
        if inner:
            value = getattr(value, inner)
        evidence = preset.evidence[key]
        facts.append(Fact(key, _plain(value), evidence, bool(evidence.date)))
    return facts


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def as_json(preset: Preset) -> dict[str, Any]:
    """The preset with every fact, for programs."""
    return {
        "name": preset.name,
        "title": preset.title,
        "facts": {
            fact.key: {
                "value": fact.value,
                "known": fact.is_known,
                "source": fact.evidence.source,
                "date": fact.evidence.date or None,
                "kind": fact.evidence.kind,
                "note": fact.evidence.note or None,
            }
            for fact in facts_of(preset)
        },
    }


def value_text(value: Any) -> str:
    """A fact's value in one line."""
    if value is None or value in ([], {}):
        return "none" if value is not None else "not known"
    if value is True:
        return "yes"
    if value is False:
        return "no"
    if isinstance(value, list):
        return ", ".join(_item_text(item) for item in value)
    if isinstance(value, dict):
        return "; ".join(f"{key} → {_item_text(item)}" for key, item in value.items())
    return str(value)


def _item_text(value: Any) -> str:
    """A value inside another, as JSON without its outermost quotes."""
    if isinstance(value, dict):
        inner = ", ".join(f"{key}: {_item_text(item)}" for key, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def kind_text(kind: str) -> str:
    """The letters of a kind in words."""
    return ", ".join(KINDS[letter] for letter in kind.split("+"))


def summary_of(preset: Preset) -> dict[str, str]:
    """What a list of presets says of each, one short phrase a column."""
    places = [*preset.read] + ([f"tags {preset.tag[0]}"] if preset.tags != "off" else [])
    history: str = preset.history
    if history not in ("forbidden", "ignored", "as_tags"):
        history = f"{history}, as {preset.history_carrier}"
    return {
        "name": preset.name,
        "provider": preset.title,
        "reasoning in answers": ", ".join(places) or "none",
        "reasoning in history": history,
        "stream_options": preset.stream_options,
        "base_url": preset.base_url or "said by each model",
    }
