from __future__ import annotations

import copy
from typing import Any

import pytest

from everyturn.errors import CallerFault, InvalidValue, UnsupportedReasoningControl
from everyturn.wire.controls import Translation, translate_controls
from everyturn.wire.preset import Controls, Target
from tests.support.chat_requests import a_body, a_target

LEVELS = Controls(
    native=("reasoning_effort",),
    effort={"low": {"reasoning_effort": "low"}, "high": {"reasoning_effort": "high"}},
    enabled={"false": {"reasoning_effort": "none"}},
)
"""A provider whose own control is `reasoning_effort`."""

SWITCH = Controls(
    native=("thinking",),
    effort={
        "none": {"thinking": {"type": "disabled"}},
        "low": {"reasoning_effort": "low"},
        "high": {"reasoning_effort": "high"},
    },
    clamps={"medium": "high", "xhigh": "high"},
    enabled={
        "true": {"thinking": {"type": "enabled"}},
        "false": {"thinking": {"type": "disabled"}},
    },
    budget="thinking.budget_tokens",
    exclude={"true": {"format": "hidden"}},
)
"""A provider with a switch, levels, clamps and a budget."""

WHOLE = Controls(
    native=("reasoning",),
    effort={"high": {"reasoning": {"effort": "high"}}},
    budget="reasoning.max_tokens",
)
"""A provider whose own control is the object itself."""


def translated(target: Target, **members: Any) -> Translation:
    """What the controls among these members become; the body given is not changed."""
    body = a_body(**members)
    before = copy.deepcopy(body)
    result = translate_controls(body, target)
    assert body == before
    return result


def controls_sent(target: Target, **members: Any) -> dict[str, Any]:
    """The members that are sent beside model and messages."""
    body = translated(target, **members).body
    return {key: value for key, value in body.items() if key not in ("model", "messages")}


def refusal(target: Target, **members: Any) -> CallerFault:
    """The failure that these members are refused with."""
    with pytest.raises(CallerFault) as failure:
        translated(target, **members)
    return failure.value


# ------------------------------------------------------------------- own forms pass


def test_a_request_without_controls_is_not_touched() -> None:
    """The very body goes on where it carries no control and nothing is added."""
    body = a_body(temperature=1)

    assert translate_controls(body, a_target(controls=SWITCH, adds={"a": 1})).body is body


@pytest.mark.parametrize("value", ["high", "none", "default", "any other word", 5, None])
def test_a_native_effort_passes_whole(value: Any) -> None:
    """`reasoning_effort` goes on as it is where it is the provider's own, whatever it says."""
    target = a_target(controls=LEVELS)

    assert controls_sent(target, reasoning_effort=value) == {"reasoning_effort": value}


def test_a_native_object_passes_whole() -> None:
    """`reasoning` goes on as it is at a provider whose own form it is."""
    own = {"max_tokens": 2000, "unknown": [1], "effort": None}

    assert controls_sent(a_target(controls=WHOLE), reasoning=own) == {"reasoning": own}


def test_an_allowed_control_passes_whole() -> None:
    """What the operator allows is a control in the provider's own form."""
    target = a_target(allow=("reasoning", "reasoning_effort"))
    members = {"reasoning": {"effort": "low", "x": 1}, "reasoning_effort": "low"}

    assert controls_sent(target, **members) == members


def test_other_native_controls_pass() -> None:
    """A switch in the provider's own form goes on as it is, beside canonical controls."""
    members = {"thinking": {"type": "enabled", "keep": "all"}, "reasoning_effort": "low"}

    assert controls_sent(a_target(controls=SWITCH), **members) == members


def test_null_effort_is_carried_and_a_null_object_is_not() -> None:
    """`reasoning_effort` is a Chat Completions parameter, `reasoning` only our canonical form."""
    target = a_target(controls=SWITCH, adds={"extra": True})

    assert controls_sent(target, reasoning_effort=None) == {"reasoning_effort": None}
    assert controls_sent(target, reasoning=None) == {}
    assert controls_sent(target, reasoning={}) == {}
    assert controls_sent(target, reasoning={"effort": None, "enabled": None}) == {}


# ------------------------------------------------------------------- the canonical form


@pytest.mark.parametrize(
    "asked, members",
    [
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
        ({"reasoning": {"effort": "low"}}, {"reasoning_effort": "low"}),
        ({"reasoning": {"effort": "low", "enabled": True}},
         {"reasoning_effort": "low", "thinking": {"type": "enabled"}}),
        ({"reasoning": {"enabled": True}}, {"thinking": {"type": "enabled"}}),
        ({"reasoning": {"enabled": False}}, {"thinking": {"type": "disabled"}}),
        ({"reasoning": {"enabled": False, "effort": "none"}}, {"thinking": {"type": "disabled"}}),
        ({"reasoning": {"enabled": False, "max_tokens": 0}},
         {"thinking": {"type": "disabled", "budget_tokens": 0}}),
        ({"reasoning": {"max_tokens": 100}}, {"thinking": {"budget_tokens": 100}}),
        ({"reasoning": {"max_tokens": 100, "enabled": True}},
         {"thinking": {"type": "enabled", "budget_tokens": 100}}),
        ({"reasoning": {"exclude": True}}, {"format": "hidden"}),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"reasoning": {"effort": "low"}, "reasoning_effort": None}, {"reasoning_effort": "low"}),
        ({"thinking": {"keep": "all"}, "reasoning_effort": "none"},
         {"thinking": {"keep": "all", "type": "disabled"}}),
        ({"thinking": {"type": "disabled"}, "reasoning_effort": "none"},
         {"thinking": {"type": "disabled"}}),
        ({"thinking": None, "reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
    ],
)  # fmt: skip
def test_the_canonical_form_is_translated(asked: dict[str, Any], members: dict[str, Any]) -> None:
    """Each canonical control becomes the members of the preset, merged with the client's own."""
    assert controls_sent(a_target(controls=SWITCH), **asked) == members


def test_a_translated_effort_stays_in_its_place() -> None:
    """A canonical key that only changes its value keeps its place in the body."""
    body = a_body(reasoning_effort="xhigh", seed=1)

    result = translate_controls(body, a_target(controls=SWITCH))

    assert list(result.body) == list(body)


def test_a_clamp_is_told() -> None:
    """A documented clamp is made, and a note says what became of the value."""
    target = a_target(controls=SWITCH)

    assert translated(target, reasoning_effort="xhigh").notes == (
        "clamped reasoning_effort=xhigh to high",
    )
    assert translated(target, reasoning={"effort": "medium"}).notes == (
        "clamped reasoning.effort=medium to high",
    )
    assert translated(target, reasoning_effort="high").notes == ()


def test_off_is_an_effort_and_an_effort_may_be_off() -> None:
    """Where only one of `enabled: false` and `effort: none` can be said, the other is it too."""
    effort_only = a_target(controls=Controls(effort={"none": {"off": True}}))
    switch_only = a_target(controls=Controls(enabled={"false": {"off": True}}))

    assert controls_sent(effort_only, reasoning={"enabled": False}) == {"off": True}
    assert controls_sent(switch_only, reasoning_effort="none") == {"off": True}
    assert refusal(effort_only, reasoning={"enabled": True}).param == "reasoning.enabled"


def test_each_way_to_say_off_has_its_own_members() -> None:
    """Where both can be said, each is sent by its own members."""
    target = a_target(controls=Controls(effort={"none": {"a": 1}}, enabled={"false": {"b": 1}}))

    assert controls_sent(target, reasoning={"enabled": False}) == {"b": 1}
    assert controls_sent(target, reasoning={"effort": "none"}) == {"a": 1}


def test_on_needs_no_switch_beside_an_effort() -> None:
    """`enabled: true` says nothing more where an effort or a budget goes along."""
    target = a_target(controls=LEVELS)

    assert controls_sent(target, reasoning={"enabled": True, "effort": "low"}) == {
        "reasoning_effort": "low"
    }
    assert controls_sent(target, reasoning={"enabled": True}, reasoning_effort="any") == {
        "reasoning_effort": "any"
    }


def test_an_equal_effort_beside_a_native_one_is_a_copy() -> None:
    """The canonical object may repeat a native `reasoning_effort`; it stays as it is."""
    target = a_target(controls=LEVELS)

    assert controls_sent(target, reasoning={"effort": "odd"}, reasoning_effort="odd") == {
        "reasoning_effort": "odd"
    }


@pytest.mark.parametrize(
    "controls, asked, param",
    [
        (Controls(), {"reasoning_effort": "low"}, "reasoning_effort"),
        (SWITCH, {"reasoning_effort": "max"}, "reasoning_effort"),
        (SWITCH, {"reasoning_effort": "odd"}, "reasoning_effort"),
        (LEVELS, {"reasoning": {"effort": "medium"}}, "reasoning.effort"),
        (LEVELS, {"reasoning": {"max_tokens": 5}}, "reasoning.max_tokens"),
        (LEVELS, {"reasoning": {"enabled": True}}, "reasoning.enabled"),
        (Controls(), {"reasoning": {"enabled": False}}, "reasoning.enabled"),
        (SWITCH, {"reasoning": {"exclude": False}}, "reasoning.exclude"),
        (LEVELS, {"reasoning": {"exclude": True}}, "reasoning.exclude"),
        (SWITCH, {"reasoning": {"summary": "auto"}}, "reasoning.summary"),
    ],
)
def test_what_cannot_be_expressed_is_refused(
    controls: Controls, asked: dict[str, Any], param: str
) -> None:
    """A canonical control that the preset has no members for is refused, and named."""
    failure = refusal(a_target(controls=controls), **asked)

    assert (type(failure), failure.param) == (UnsupportedReasoningControl, param)


@pytest.mark.parametrize(
    "asked",
    [
        {"reasoning": {"max_tokens": 5, "effort": "low"}},
        {"reasoning": {"max_tokens": 5}, "reasoning_effort": "low"},
        {"reasoning": {"max_tokens": 5}, "reasoning_effort": "none"},
    ],
)
def test_effort_and_budget_exclude_each_other(asked: dict[str, Any]) -> None:
    """How much to think is asked for by an effort or by a budget, also where one is native."""
    for native in ((), ("reasoning_effort",)):
        controls = Controls(native=native, effort=SWITCH.effort, budget="b")
        failure = refusal(a_target(controls=controls), **asked)

        assert type(failure) is UnsupportedReasoningControl
        assert failure.param == "reasoning.max_tokens"


@pytest.mark.parametrize(
    "asked, param",
    [
        ({"reasoning_effort": 3}, "reasoning_effort"),
        ({"reasoning_effort": {}}, "reasoning_effort"),
        ({"reasoning": "high"}, "reasoning"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"reasoning": {"max_tokens": "9"}}, "reasoning.max_tokens"),
        ({"reasoning": {"max_tokens": True}}, "reasoning.max_tokens"),
        ({"reasoning": {"max_tokens": -1}}, "reasoning.max_tokens"),
        ({"reasoning": {"enabled": "yes"}}, "reasoning.enabled"),
        ({"reasoning": {"exclude": 1}}, "reasoning.exclude"),
    ],
)
def test_a_wrong_type_is_refused(asked: dict[str, Any], param: str) -> None:
    """A canonical control of the wrong type is `invalid_value`, and named."""
    failure = refusal(a_target(controls=SWITCH), **asked)

    assert (type(failure), failure.param) == (InvalidValue, param)


@pytest.mark.parametrize(
    "asked, param",
    [
        ({"reasoning_effort": "low", "reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"reasoning": {"effort": "low", "enabled": False}}, "reasoning.enabled"),
        ({"reasoning": {"effort": "none", "enabled": True}}, "reasoning.enabled"),
        ({"reasoning": {"enabled": False}, "reasoning_effort": "low"}, "reasoning.enabled"),
        ({"reasoning": {"enabled": False, "max_tokens": 5}}, "reasoning.enabled"),
        ({"reasoning_effort": "none", "thinking": {"type": "enabled"}}, "reasoning_effort"),
        ({"reasoning": {"enabled": True}, "thinking": {"type": "disabled"}}, "reasoning.enabled"),
        ({"reasoning": {"max_tokens": 1}, "thinking": {"budget_tokens": True}},
         "reasoning.max_tokens"),
        ({"reasoning": {"max_tokens": 1}, "thinking": "on"}, "reasoning.max_tokens"),
    ],
)  # fmt: skip
def test_a_contradiction_is_refused(asked: dict[str, Any], param: str) -> None:
    """Two controls of a client that cannot both hold are `invalid_value` that names one."""
    failure = refusal(a_target(controls=SWITCH), **asked)

    assert (type(failure), failure.param) == (InvalidValue, param)


def test_an_object_contradicts_a_plain_member() -> None:
    """A member that the client sent as an object is never replaced by a plain value."""
    target = a_target(controls=Controls(native=("think",), enabled={"true": {"think": True}}))

    failure = refusal(target, reasoning={"enabled": True}, think={"deep": True})

    assert (type(failure), failure.param) == (InvalidValue, "reasoning.enabled")


def test_a_contradiction_of_native_controls_is_refused() -> None:
    """A native `reasoning_effort` and the object may not differ either."""
    both = Controls(native=("reasoning", "reasoning_effort"))

    failure = refusal(a_target(controls=both), reasoning_effort="low", reasoning={"effort": "high"})

    assert failure.param == "reasoning.effort"


# ------------------------------------------------------------------- additions


ADDS = {"format": "parsed", "options": {"split": True, "deep": {"a": 1}}}


@pytest.mark.parametrize(
    "asked",
    [
        {"thinking": {"type": "enabled"}},
        {"reasoning_effort": "low"},
        {"reasoning": {"effort": "low"}},
        {"thinking": {"type": "enabled"}, "reasoning": {}},
    ],
)
def test_additions_go_with_a_control(asked: dict[str, Any]) -> None:
    """What the preset adds is added where the request carries a reasoning control."""
    target = a_target(controls=SWITCH, adds=ADDS)

    assert ADDS.items() <= controls_sent(target, **asked).items()
    assert controls_sent(target) == {}
    assert controls_sent(target, thinking=None) == {"thinking": None}
    assert controls_sent(target, reasoning_effort=None) == {"reasoning_effort": None}


def test_additions_go_with_a_model_that_reasons() -> None:
    """What the preset adds is added to each request of a model marked `reasoning`."""
    assert controls_sent(a_target(adds=ADDS, reasoning=True)) == ADDS


def test_an_object_that_is_not_one_counts_as_a_control() -> None:
    """A native `reasoning` of any type is a control of the client."""
    target = a_target(controls=WHOLE, adds={"x": 1})

    assert controls_sent(target, reasoning="on") == {"reasoning": "on", "x": 1}


def test_additions_never_replace_what_a_client_sent() -> None:
    """A value of the client stands, null included; only what it did not say is added."""
    target = a_target(adds=ADDS, reasoning=True)

    assert controls_sent(target, format=None, options={"split": False, "deep": 5}) == {
        "format": None,
        "options": {"split": False, "deep": 5},
    }
    assert controls_sent(target, format={"a": 1})["format"] == {"a": 1}
    assert controls_sent(target, options={"deep": {"b": 2}}) == {
        "format": "parsed",
        "options": {"split": True, "deep": {"a": 1, "b": 2}},
    }
    assert ADDS == {"format": "parsed", "options": {"split": True, "deep": {"a": 1}}}


def test_additions_stay_away_from_what_excludes_them() -> None:
    """Nothing is added where the request has a key that excludes it at the provider."""
    target = a_target(adds=ADDS, adds_unless=("include_reasoning",), reasoning=True)

    assert controls_sent(target, include_reasoning=False) == {"include_reasoning": False}
    assert controls_sent(target) == ADDS


# ------------------------------------------------------------------- is thinking on


@pytest.mark.parametrize(
    "asked, operator, thinking",
    [
        ({}, False, None),
        ({}, True, True),
        ({"reasoning_effort": None}, False, None),
        ({"reasoning_effort": "low"}, False, True),
        ({"reasoning_effort": "none"}, True, False),
        ({"reasoning": {"effort": "low"}}, False, True),
        ({"reasoning": {"effort": "none"}}, True, False),
        ({"reasoning": {"enabled": True}}, False, True),
        ({"reasoning": {"enabled": False}}, True, False),
        ({"reasoning": {"max_tokens": 5}}, False, True),
        ({"reasoning": {"max_tokens": 0}}, True, False),
        ({"thinking": {"type": "enabled"}}, False, True),
        ({"thinking": {"type": "adaptive"}}, False, True),
        ({"thinking": {"type": "disabled"}}, True, False),
        ({"thinking": {"keep": "all"}}, False, None),
        ({"thinking": "on"}, False, None),
        ({"thinking": {"type": "disabled"}, "reasoning_effort": "low"}, True, False),
        ({"enable_thinking": True}, False, True),
        ({"enable_thinking": False}, True, False),
        ({"enable_thinking": "x"}, False, None),
    ],
)
def test_thinking_is_known_only_where_somebody_says_so(
    asked: dict[str, Any], operator: bool, thinking: bool | None
) -> None:
    """The request says whether thinking is on, off outweighing on; else the operator may."""
    target = a_target(allow=("reasoning", "reasoning_effort"), thinking_on=operator)

    assert translated(target, **asked).thinking is thinking
