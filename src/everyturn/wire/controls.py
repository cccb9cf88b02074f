"""Reasoning controls of a request: the provider's own pass, the canonical ones are translated.

A control in the provider's own form (`preset.controls.native`, or a key the operator allowed) goes
on as it came. The canonical form is `reasoning_effort`, or `reasoning: {enabled, effort,
max_tokens, exclude}`; the preset says which members each value becomes. What it cannot express is
refused before any call, and what it clamps is told in a note. No list of values per model is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from everyturn.errors import InvalidValue, UnsupportedReasoningControl
from everyturn.wire.preset import Controls, Target
from everyturn.wire.reader import key_name

_MEMBERS: Final = ("enabled", "effort", "max_tokens", "exclude")


class Translation:
    """A body whose reasoning controls are the provider's own."""

    __slots__ = ("body", "notes", "thinking")

    def __init__(
        self,
        *,
        body: dict[str, Any],
        notes: tuple[str, ...],
        thinking: bool | None,
    ) -> None:
        self.body: Final = body
        """The tree to send; the very object given where nothing had to change."""
        self.notes: Final = notes
        """What the client should hear of; parameter names and canonical values only."""
        self.thinking: Final = thinking
        """Whether the request, or else the operator, says that the model thinks; None: neither."""


@dataclass(slots=True)
class _Asked:
    """The canonical controls of one request. None: not asked for."""

    effort: str | None = None
    effort_param: str = "reasoning.effort"
    effort_sent: bool = False
    """An effort stands in the body in the provider's own form and goes on as it is."""
    enabled: bool | None = None
    budget: int | None = None
    exclude: bool | None = None
    notes: list[str] = field(default_factory=list)


def translate_controls(body: dict[str, Any], target: Target) -> Translation:
    """The same request with reasoning controls as the target's provider takes them.

    body: the tree of a ChatRequest; it is not changed.
    Raises UnsupportedReasoningControl for what the preset cannot express, and InvalidValue for
    wrong types and for controls that contradict each other; `param` names the control.
    """
    given = body
    notes: tuple[str, ...] = ()
    thinking = _thinking(body, target)
    if "reasoning_effort" in body or "reasoning" in body:
        asked, canonical = _read(body, target)
        if canonical:
            body = _translate(body, asked, canonical, target)
            notes = tuple(asked.notes)
    preset = target.preset
    if preset.adds and (target.reasoning or _asks(given, preset.controls)):
        if not any(key in body for key in preset.adds_unless):
            body = _fill(body, preset.adds)
    return Translation(body=body, notes=notes, thinking=thinking)


def _asks(body: dict[str, Any], controls: Controls) -> bool:
    """Whether a request holds a control; null and an empty object say nothing."""
    if any(body.get(key) is not None for key in controls.native):
        return True
    if body.get("reasoning_effort") is not None:
        return True
    reasoning = body.get("reasoning")
    if type(reasoning) is dict:
        return any(value is not None for value in reasoning.values())
    return reasoning is not None


def _thinking(body: dict[str, Any], target: Target) -> bool | None:
    """What the client's controls say about thinking; one that says off outweighs the others."""
    signs: list[bool] = []
    _sign_of_effort(body.get("reasoning_effort"), signs)
    reasoning = body.get("reasoning")
    if type(reasoning) is dict:
        _sign_of_effort(reasoning.get("effort"), signs)
        if type(reasoning.get("enabled")) is bool:
            signs.append(reasoning["enabled"])
        if type(reasoning.get("max_tokens")) is int:
            signs.append(reasoning["max_tokens"] > 0)
    thinking = body.get("thinking")
    if type(thinking) is dict:
        if thinking.get("type") in ("enabled", "adaptive"):
            signs.append(True)
        elif thinking.get("type") == "disabled":
            signs.append(False)
    if type(body.get("enable_thinking")) is bool:
        signs.append(body["enable_thinking"])
    if signs:
        return all(signs)
    return True if target.thinking_on else None


def _sign_of_effort(effort: Any, signs: list[bool]) -> None:
    if type(effort) is str:
        signs.append(effort != "none")


def _read(body: dict[str, Any], target: Target) -> tuple[_Asked, list[str]]:
    """The canonical controls, and the keys of the body that held them."""
    asked = _Asked()
    canonical: list[str] = []
    own = body.get("reasoning_effort")
    reasoning = body.get("reasoning")
    inner = reasoning.get("effort") if type(reasoning) is dict else None
    if own is not None and inner is not None and own != inner:
        raise _contradiction("reasoning.effort", "`reasoning_effort`")
    asked.effort_sent = own is not None and _is_verbatim("reasoning_effort", target)
    if own is not None and not asked.effort_sent:
        if type(own) is not str:
            raise InvalidValue(
                "`reasoning_effort` must be a string or null.", param="reasoning_effort"
            )
        asked.effort, asked.effort_param = own, "reasoning_effort"
        canonical.append("reasoning_effort")
    if "reasoning" in body and not _is_verbatim("reasoning", target):
        _read_object(reasoning, asked)
        canonical.append("reasoning")
        _check_agreement(asked, own if own is not None else inner)
    return asked, canonical


def _is_verbatim(key: str, target: Target) -> bool:
    return key in target.preset.controls.native or key in target.allow


def _read_object(reasoning: Any, asked: _Asked) -> None:
    """Fill `asked` from the canonical object."""
    if reasoning is None:
        return
    if type(reasoning) is not dict:
        raise InvalidValue("`reasoning` must be an object or null.", param="reasoning")
    for key in reasoning:
        if key not in _MEMBERS:
            raise _unsupported(f"reasoning.{key_name(key)}")
    effort, budget = reasoning.get("effort"), reasoning.get("max_tokens")
    if effort is not None:
        if type(effort) is not str:
            raise InvalidValue(
                "`reasoning.effort` must be a string or null.", param="reasoning.effort"
            )
        if not asked.effort_sent:
            asked.effort = effort
    if budget is not None:
        if type(budget) is not int or budget < 0:
            raise InvalidValue(
                "`reasoning.max_tokens` must be an integer of at least 0, or null.",
                param="reasoning.max_tokens",
            )
        asked.budget = budget
    asked.enabled = _boolean(reasoning, "enabled")
    asked.exclude = _boolean(reasoning, "exclude")


def _check_agreement(asked: _Asked, effort: Any) -> None:
    """Refuse canonical controls that contradict each other.

    effort: the one effort of the request, native or not; None where it names none.
    """
    if effort is not None:
        if asked.budget is not None:
            # Two answers to one question. OpenRouter, whose form this is, takes one of them, and
            # Gemini refuses both together (openrouter.ai/docs/use-cases/reasoning-tokens,
            # ai.google.dev/gemini-api/docs/openai; 2026).
            raise UnsupportedReasoningControl(
                "`reasoning.max_tokens` and an effort exclude each other.",
                param="reasoning.max_tokens",
                hint="Send an effort or a budget, not both.",
            )
        if asked.enabled == (effort == "none"):
            raise _contradiction("reasoning.enabled", "the effort")
    if asked.enabled is False and asked.budget:
        raise _contradiction("reasoning.enabled", "`reasoning.max_tokens`")


def _boolean(reasoning: dict[str, Any], key: str) -> bool | None:
    value = reasoning.get(key)
    if value is None or type(value) is bool:
        return value
    path = f"reasoning.{key}"
    raise InvalidValue(f"`{path}` must be true, false or null.", param=path)


def _translate(
    body: dict[str, Any], asked: _Asked, canonical: list[str], target: Target
) -> dict[str, Any]:
    """The body with the provider's members in place of the canonical keys."""
    members: dict[str, Any] = {}
    parts = _parts(asked, target.preset.controls)
    for param, part in parts:
        _merge(members, part, param)
    sent = dict(body)
    for key in canonical:
        if key in members:
            # In the place where the client said it, so that the order of the body stands.
            sent[key] = members.pop(key)
        else:
            del sent[key]
    for param, part in parts:
        rest = {key: value for key, value in part.items() if key in members}
        _merge(sent, rest, param)
    return sent


def _parts(asked: _Asked, controls: Controls) -> list[tuple[str, dict[str, Any]]]:
    """For each canonical control: its name, and the members it becomes."""
    parts: list[tuple[str, dict[str, Any]]] = []
    if asked.effort is not None:
        parts.append((asked.effort_param, _effort(asked, asked.effort, controls)))
    if asked.budget is not None:
        if controls.budget is None:
            raise _unsupported("reasoning.max_tokens")
        parts.append(("reasoning.max_tokens", _at_path(controls.budget, asked.budget)))
    if asked.enabled is not None:
        part = controls.enabled.get("true" if asked.enabled else "false")
        if part is None and not asked.enabled:
            # Off is also an effort.
            part = controls.effort.get("none")
        if part is not None:
            parts.append(("reasoning.enabled", part))
        elif not parts and not asked.effort_sent:
            # An effort or a budget has said the same already, where there is one.
            raise _unsupported("reasoning.enabled")
    if asked.exclude is not None:
        part = controls.exclude.get("true" if asked.exclude else "false")
        if part is None:
            raise _unsupported("reasoning.exclude")
        parts.append(("reasoning.exclude", part))
    return parts


def _effort(asked: _Asked, effort: str, controls: Controls) -> dict[str, Any]:
    clamped = controls.clamps.get(effort, effort)
    part = controls.effort.get(clamped)
    if part is None and clamped == "none":
        part = controls.enabled.get("false")
    if part is None:
        raise _unsupported(asked.effort_param)
    if clamped != effort:
        asked.notes.append(f"clamped {asked.effort_param}={effort} to {clamped}")
    return part


def _at_path(path: str, value: int) -> dict[str, Any]:
    first, *rest = path.split(".")
    inner: Any = value
    for key in reversed(rest):
        inner = {key: inner}
    return {first: inner}


def _merge(into: dict[str, Any], members: dict[str, Any], param: str) -> None:
    """Put members into a body; a value that differs from one that stands there is refused.

    Inner objects are copied before they are changed: they belong to the preset or the request.
    """
    for key, value in members.items():
        old = into.get(key)
        if type(old) is dict and type(value) is dict:
            into[key] = dict(old)
            _merge(into[key], value, param)
        elif old is None:
            into[key] = value
        elif type(old) is not type(value) or old != value:
            raise InvalidValue(
                f"`{param}` contradicts another reasoning control of the request.", param=param
            )


def _fill(body: dict[str, Any], adds: dict[str, Any]) -> dict[str, Any]:
    """The body with what the preset adds, where the client said nothing of it."""
    filled = dict(body)
    for key, value in adds.items():
        if key not in filled:
            filled[key] = value
        elif type(value) is dict and type(filled[key]) is dict:
            filled[key] = _fill(filled[key], value)
    return filled


def _contradiction(param: str, other: str) -> InvalidValue:
    return InvalidValue(f"`{param}` contradicts {other}.", param=param)


def _unsupported(param: str) -> UnsupportedReasoningControl:
    return UnsupportedReasoningControl(
        f"`{param}` has a value that this model's provider cannot be asked for.", param=param
    )
