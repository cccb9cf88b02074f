"""Strategies: what a model may say, and the forms in which its provider may say it.

A `Said` is the meaning of one answer; `whole` and `stream` give the body and the chunks that say
it in the form of one provider. Numbers of unknown members have texts in every notation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from everyturn.wire.preset import Target
from everyturn.wire.reader import read_provider
from tests.support.chat_requests import a_target

ENVELOPE: dict[str, Any] = {"id": "c-1", "created": 1, "model": "m"}

characters = st.characters(exclude_categories=["Cs"])
texts = st.text(characters, max_size=12)
odd_texts = st.sampled_from(["<think>", "</think>", "<th", "\x00", '"', "\\", "\n\n", "data: x"])
pieces = st.lists(st.one_of(texts, odd_texts), min_size=1, max_size=4)
"""The pieces of a text, as deltas say them."""

numbers = st.one_of(
    st.integers(min_value=-(2**70), max_value=2**70),
    st.from_regex(r"\A-?(0|[1-9][0-9]{0,45})(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,3})?\Z").map(
        lambda text: read_provider(text.encode()).value
    ),
)
keys = st.sampled_from(["x", "node", "Zahl", "\u00e9", "a b"])
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
"""Any JSON value, of members that nobody asked for."""
bags = st.dictionaries(keys, values, max_size=2)


@dataclass(frozen=True)
class Form:
    """How one kind of provider says reasoning, and a target that reads it."""

    name: str
    target: Target

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis shows it."""
        printer.text(f"<{self.name}>")


FORMS = [
    Form("none", a_target()),
    Form("reasoning_content", a_target(read=("reasoning_content",))),
    Form("reasoning", a_target(read=("reasoning", "reasoning_content"))),
    Form("mirrors", a_target(read=("reasoning", "reasoning_content"))),
    Form("details", a_target(read=("reasoning_details",))),
    Form("details and text", a_target(read=("reasoning_details", "reasoning"))),
    Form("content list", a_target(read=("content_list",))),
    Form("tags", a_target(tags="split")),
]


@dataclass(frozen=True)
class Call:
    """A tool call in pieces of its arguments."""

    name: str
    arguments: list[str]
    rest: dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """What one choice says; None where it says nothing of a kind. Texts are in pieces."""

    content: list[str] | None
    reasoning: list[str] | None
    refusal: list[str] | None
    calls: list[Call]
    annotations: list[Any]
    logprobs: list[Any]
    bag: dict[str, Any]
    beside: dict[str, Any]
    """Unknown members of the choice."""
    finish: str


@dataclass(frozen=True)
class Said:
    """What one answer says."""

    choices: list[Choice]
    bag: dict[str, Any] = field(default_factory=dict)
    usage: dict[str, Any] | None = None

    @property
    def n(self) -> int:
        """How many choices it has."""
        return len(self.choices)


calls = st.builds(Call, name=st.sampled_from(["f", "g"]), arguments=pieces, rest=bags)
choices = st.builds(
    Choice,
    content=st.none() | pieces,
    reasoning=st.none() | pieces,
    refusal=st.none() | pieces,
    calls=st.lists(calls, max_size=2),
    annotations=st.lists(values.filter(lambda value: value is not None), max_size=2),
    logprobs=st.lists(st.fixed_dictionaries({"token": texts, "logprob": numbers}), max_size=2),
    bag=bags,
    beside=bags,
    finish=st.sampled_from(["stop", "length", "tool_calls", "odd"]),
)
said = st.builds(
    Said,
    choices=st.lists(choices, min_size=1, max_size=2),
    bag=bags,
    usage=st.none() | st.fixed_dictionaries({"total_tokens": st.integers(0, 99)}),
)
forms = st.sampled_from(FORMS)


def spoken_in(form: Form, answer: Said) -> Said:
    """The answer without what this form cannot say."""

    def fitting(choice: Choice) -> Choice:
        if form.name == "none":
            return replace(choice, reasoning=None)
        if form.name == "tags":
            # A tag in a text would be a tag.
            return replace(
                choice, content=_untagged(choice.content), reasoning=_untagged(choice.reasoning)
            )
        return choice

    return replace(answer, choices=[fitting(choice) for choice in answer.choices])


def _untagged(text: list[str] | None) -> list[str] | None:
    return None if text is None else [piece.replace("<", "") for piece in text]


# ------------------------------------------------------------------------ as a whole


def whole(form: Form, answer: Said) -> dict[str, Any]:
    """The body in which a provider of this form says all of it at once."""
    body = {**ENVELOPE, "object": "chat.completion", **answer.bag}
    body["choices"] = [_whole_choice(form, index, c) for index, c in enumerate(answer.choices)]
    body["usage"] = answer.usage
    return body


def _whole_choice(form: Form, index: int, choice: Choice) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", **choice.bag}
    content = None if choice.content is None else "".join(choice.content)
    message.update(_saying(form, content, choice.reasoning and "".join(choice.reasoning)))
    if choice.refusal is not None:
        message["refusal"] = "".join(choice.refusal)
    if choice.calls:
        message["tool_calls"] = [
            _call(at, call, "".join(call.arguments)) for at, call in enumerate(choice.calls)
        ]
    if choice.annotations:
        message["annotations"] = choice.annotations
    told = {"index": index, "message": message, **choice.beside, "finish_reason": choice.finish}
    if choice.logprobs:
        told["logprobs"] = {"content": choice.logprobs}
    return told


def _call(index: int, call: Call, arguments: str) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments}
    return {"id": f"call-{index}", "type": "function", "function": function, **call.rest}


def _saying(form: Form, content: str | None, reasoning: str | None) -> dict[str, Any]:
    """The members of a message or delta that say text and reasoning, in this form."""
    if reasoning is None:
        return {"content": content}
    detail = {"type": "reasoning.text", "text": reasoning, "index": 0}
    match form.name:
        case "reasoning_content":
            return {"content": content, "reasoning_content": reasoning}
        case "reasoning":
            return {"content": content, "reasoning": reasoning}
        case "mirrors":
            return {"content": content, "reasoning": reasoning, "reasoning_content": reasoning}
        case "details":
            return {"content": content, "reasoning_details": [detail]}
        case "details and text":
            return {"content": content, "reasoning": reasoning, "reasoning_details": [detail]}
        case "content list":
            thinking = {"type": "thinking", "thinking": [{"type": "text", "text": reasoning}]}
            text = [] if content is None else [{"type": "text", "text": content}]
            return {"content": [thinking, *text]}
        case _:
            return {"content": f"<think>{reasoning}</think>{content or ''}"}


# ------------------------------------------------------------------------ as a stream


def stream(form: Form, answer: Said) -> list[dict[str, Any]]:
    """The chunks in which a provider of this form says it bit by bit: the choices take turns."""
    chunks: list[dict[str, Any]] = []
    turns = [_parts(form, index, choice) for index, choice in enumerate(answer.choices)]
    for at in range(max(map(len, turns))):
        chunks += [_chunk(parts[at]) for parts in turns if at < len(parts)]
    chunks[0].update(answer.bag)
    chunks.append({**_chunk(), "choices": [], "usage": answer.usage})
    return chunks


def _chunk(*choices: dict[str, Any]) -> dict[str, Any]:
    return {**ENVELOPE, "object": "chat.completion.chunk", "choices": list(choices)}


def _parts(form: Form, index: int, choice: Choice) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", **choice.bag}]
    deltas += _reasoning_deltas(form, choice)
    deltas += [{"refusal": piece} for piece in choice.refusal or []]
    for at, call in enumerate(choice.calls):
        first, *rest = call.arguments
        deltas.append({"tool_calls": [{"index": at, **_call(at, call, first)}]})
        deltas += [{"tool_calls": [{"index": at, "function": {"arguments": p}}]} for p in rest]
    deltas += [{"annotations": [item]} for item in choice.annotations]
    parts = [{"index": index, "delta": delta, "finish_reason": None} for delta in deltas]
    parts += [
        {"index": index, "delta": {}, "logprobs": {"content": [item]}} for item in choice.logprobs
    ]
    return [*parts, {"index": index, "delta": {}, **choice.beside, "finish_reason": choice.finish}]


def _reasoning_deltas(form: Form, choice: Choice) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = []
    if choice.reasoning is not None and form.name == "tags":
        text = f"<think>{''.join(choice.reasoning)}</think>"
        deltas += [{"content": text[:4]}, {"content": text[4:-3]}, {"content": text[-3:]}]
    elif choice.reasoning is not None:
        for piece in choice.reasoning:
            said_ = _saying(form, None, piece)
            deltas.append({key: value for key, value in said_.items() if value is not None})
    if choice.content is None:
        return [*deltas, {"content": None}]
    return deltas + [{"content": piece} for piece in choice.content]


# ------------------------------------------------------------------------ anything at all

almost_keys = st.sampled_from(
    [
        *("id", "object", "model", "choices", "usage", "error", "code", "message", "detail"),
        *("index", "delta", "finish_reason", "logprobs", "text", "role", "content", "refusal"),
        *("tool_calls", "function", "name", "arguments", "type", "thinking", "signature"),
        *("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "annotations"),
        *("thought_signature", "extra_content", "google", "thought", "x_groq", "x", "thoughts"),
    ]
)
almost = st.recursive(
    st.one_of(values, st.sampled_from(["text", "thinking", "stop", "<think>a", "a</think>", ""])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(almost_keys, inner, max_size=5),
    max_leaves=15,
)
"""JSON that has the words of an answer, in places where they may not belong."""

almost_messages = st.dictionaries(almost_keys, almost, max_size=5)
almost_bodies = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.integers(0, 2) | almost,
                    "message": almost_messages | almost,
                    "delta": almost_messages | almost,
                    "finish_reason": st.sampled_from(["stop", None, "", 1]),
                    "x": almost,
                },
            ),
            max_size=3,
        )
    },
    optional={"usage": almost, "x_groq": almost, "reasoning_content": almost, "x": almost},
)
"""Bodies and chunks that are answers as far as their frame goes."""
