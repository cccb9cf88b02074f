"""Normalised facts read from what a provider sent: one kind each, the same for streamed and whole.

Every key and every string of an answer is in some event; what has no kind of its own is `Value`
(a key the protocol names) or `Unknown` (a key nobody asked for, carried verbatim). `None` as text
is a key that was sent as null: absence, null and empty stay three different things.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Scope = Literal["body", "choice", "message"]


class TextDelta(msgspec.Struct, frozen=True):
    """A piece of the answer's text; None where `content` was null."""

    choice: int
    text: str | None


class ContentItems(msgspec.Struct, frozen=True):
    """Items of a content list that are neither text alone nor thinking; content stays a list."""

    choice: int
    items: list[Any]


class ReasoningDelta(msgspec.Struct, frozen=True):
    """A piece of reasoning text as the client sees it; None where the carrier was null."""

    choice: int
    text: str | None
    carrier: str
    """Where it stood: a carrier's name, or `tags`."""


class ReasoningDetails(msgspec.Struct, frozen=True):
    """Items of `reasoning_details`, verbatim."""

    choice: int
    items: list[Any] | None


class RefusalDelta(msgspec.Struct, frozen=True):
    """A piece of a refusal; None where `refusal` was null."""

    choice: int
    text: str | None


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A fragment of a tool call, already put to its call.

    call: the call's index as the client sees it. rest: other keys of the fragment; a dotted
    `function.KEY` stands for other keys of its function object.
    """

    choice: int
    call: int
    id: str | None = None
    type: str | None = None
    name: str | None = None
    arguments: str | None = None
    rest: dict[str, Any] | None = None


class Finish(msgspec.Struct, frozen=True):
    """A finish value as sent; None and "" say that there was none."""

    choice: int
    value: str | None


class Usage(msgspec.Struct, frozen=True):
    """A usage object as sent; None where it was null."""

    place: str
    value: dict[str, Any] | None


class Value(msgspec.Struct, frozen=True):
    """A key that the protocol names: role, annotations, audio, logprobs, id, model …"""

    scope: Scope
    choice: int
    key: str
    value: Any


class Unknown(msgspec.Struct, frozen=True):
    """A key nobody asked for, carried verbatim."""

    scope: Scope
    choice: int
    key: str
    value: Any


class Drift(msgspec.Struct, frozen=True):
    """Output on a carrier that the preset does not evidence, carried by the operator's word."""

    scope: Scope
    choice: int
    key: str
    value: Any


class ErrorSeen(msgspec.Struct, frozen=True):
    """An error object that the provider sent; the failure it becomes is raised beside it."""

    value: Any


class Done(msgspec.Struct, frozen=True):
    """The `[DONE]` marker."""


Event = (
    TextDelta
    | ContentItems
    | ReasoningDelta
    | ReasoningDetails
    | RefusalDelta
    | ToolCallDelta
    | Finish
    | Usage
    | Value
    | Unknown
    | Drift
    | ErrorSeen
    | Done
)
