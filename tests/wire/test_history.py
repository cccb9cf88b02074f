from __future__ import annotations

from typing import Any, get_args

import pytest

from everyturn.errors import (
    HistoryReasoningMissing,
    InvalidValue,
    UnknownParameter,
)
from everyturn.wire.history import convert_history
from everyturn.wire.preset import History as Policy
from everyturn.wire.preset import HistoryCarrier, Target
from tests.support.chat_requests import a_target
from tests.support.histories import (
    CALLS,
    DEEPSEEK,
    DETAILS,
    FORBIDDEN,
    IGNORED,
    MISTRAL,
    OLLAMA,
    OPENROUTER,
    PLAIN,
    TAGS,
    THOUGHT,
    back,
    converted,
    refusal,
)

# ------------------------------------------------------------------- every policy


@pytest.mark.parametrize("policy", get_args(Policy))
@pytest.mark.parametrize("carrier", get_args(HistoryCarrier))
def test_messages_without_reasoning_are_not_touched(
    policy: Policy, carrier: HistoryCarrier
) -> None:
    """What carries no reasoning goes as the very object that was read, whatever the policy."""
    target = a_target(history=policy, history_carrier=carrier)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "a", "refusal": "r", "audio": {"id": "x"}},
        {"role": "assistant", "content": None, "tool_calls": CALLS, "annotations": [1]},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": ["odd"]}]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ]

    history = convert_history(messages, target, thinking=None)

    assert history.messages is messages
    assert (history.notes, history.reasoning_chars, history.tagged) == ((), 0, ())


@pytest.mark.parametrize("policy", get_args(Policy))
@pytest.mark.parametrize("empty", [None, ""])
@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_an_empty_text_is_always_taken_back(policy: Policy, empty: str | None, key: str) -> None:
    """An answer may have shown an empty or null carrier, so no policy refuses it."""
    carrier: HistoryCarrier = "tags" if policy == "as_tags" else "reasoning_content"
    target = a_target(history=policy, history_carrier=carrier, read=("reasoning_content",))

    sent = back(target, content="a", **{key: empty})

    goes = policy in ("optional", "required", "required_tools")
    assert sent.get("reasoning_content", "absent") == (empty if goes else "absent")
    assert "reasoning" not in sent


@pytest.mark.parametrize("policy", ["optional", "required", "required_tools"])
def test_reasoning_is_sent_in_the_providers_carrier(policy: Policy) -> None:
    """The client's alias takes the name that the provider reads, in the same place."""
    target = a_target(history=policy, history_carrier="reasoning", read=("reasoning",))

    history = converted(target, {"reasoning_content": "t", "content": "a"})

    assert list(history.messages[1].items()) == [
        ("role", "assistant"),
        ("reasoning", "t"),
        ("content", "a"),
    ]
    assert history.notes == ()


def test_reasoning_in_the_right_carrier_is_not_touched() -> None:
    """A message that is right already goes as the very object that was read."""
    messages = [{"role": "assistant", "content": "a", "reasoning_content": "t"}]

    assert convert_history(messages, PLAIN, thinking=None).messages is messages


def test_reasoning_of_turns_without_tools_is_sent_too() -> None:
    """With `required_tools` a turn without tools keeps its reasoning: the provider ignores it."""
    assert back(DEEPSEEK, content="a", reasoning_content="t")["reasoning_content"] == "t"


def test_forbidden_reasoning_is_refused() -> None:
    """Reasoning is an unknown parameter where the provider forbids it; a hint says what to do."""
    failure = refusal(FORBIDDEN, content="a", reasoning_content="secret")

    assert type(failure) is UnknownParameter
    assert failure.param == "messages[1].reasoning_content"
    assert "strip" in failure.hint


@pytest.mark.parametrize(
    "message, param",
    [
        ({"reasoning": "secret"}, "messages[1].reasoning"),
        ({"thinking": "secret"}, "messages[1].thinking"),
        ({"reasoning_details": DETAILS}, "messages[1].reasoning_details"),
        ({"thinking_blocks": [{"type": "thinking"}]}, "messages[1].thinking_blocks"),
        ({"content": [{"type": "text", "text": "a"}, THOUGHT]}, "messages[1].content[1]"),
        ({"content": [{"type": "redacted_thinking", "data": "x"}]}, "messages[1].content[0]"),
        ({"content": [{"type": "reasoning"}]}, "messages[1].content[0]"),
    ],
)
def test_each_carrier_is_refused_by_its_path(message: dict[str, Any], param: str) -> None:
    """No carrier slips through where reasoning is refused, by the preset or by the operator."""
    for target in (FORBIDDEN, a_target(read=PLAIN.read, history_reasoning="reject")):
        failure = refusal(target, **message)

        assert (type(failure), failure.param) == (UnknownParameter, param)


@pytest.mark.parametrize("target", [IGNORED, a_target(history_reasoning="strip")])
def test_ignored_reasoning_is_removed_with_a_note(target: Target) -> None:
    """Each carrier is removed where the provider ignores reasoning, and a note counts messages."""
    history = converted(
        target,
        {"content": "a", "reasoning_content": "t", "reasoning": "t"},
        {"content": "b", "reasoning_details": DETAILS, "thinking_blocks": [{"thinking": "uv"}]},
        {"content": [THOUGHT, {"type": "text", "text": "c"}]},
        {"content": [THOUGHT]},
        {"content": "d", "reasoning_content": None},
        {"content": "e"},
    )

    assert [message["content"] for message in history.messages[1:]] == [
        "a",
        "b",
        [{"type": "text", "text": "c"}],
        "",
        "d",
        "e",
    ]
    assert all(set(message) == {"role", "content"} for message in history.messages[1:])
    assert history.notes == ("removed reasoning of 4 history messages",)


def test_a_content_list_without_reasoning_stays_where_reasoning_is_removed() -> None:
    """Only thinking items are taken out of a content list; an empty list stays one."""
    assert back(IGNORED, content=[], reasoning_content="t") == {"content": []}


def test_one_removed_message_is_counted_in_the_singular() -> None:
    """The note reads well for one message."""
    history = converted(IGNORED, {"content": "a", "reasoning_content": "t"})

    assert history.notes == ("removed reasoning of 1 history message",)


@pytest.mark.parametrize(
    "message, param",
    [
        ({"reasoning": "t", "reasoning_content": "t"}, "reasoning"),
        ({"reasoning_content": "t", "content": [THOUGHT]}, "reasoning_content"),
        ({"content": [THOUGHT], "thinking_blocks": [{}]}, "content[0]"),
        ({"thinking_blocks": [{}], "reasoning_details": DETAILS}, "thinking_blocks"),
    ],
)
def test_the_first_of_several_carriers_is_named(message: dict[str, Any], param: str) -> None:
    """A refusal names the first carrier of a message that holds something."""
    assert refusal(FORBIDDEN, **message).param == f"messages[1].{param}"


def test_the_first_of_several_foreign_carriers_is_named() -> None:
    """A refusal names the first carrier that the provider does not read."""
    both = {"thinking_blocks": [{}], "content": [THOUGHT]}
    lists = {"reasoning_details": DETAILS, "thinking_blocks": [{}]}

    assert refusal(PLAIN, **both).param == "messages[1].thinking_blocks"
    assert refusal(PLAIN, **lists).param == "messages[1].reasoning_details"
    assert type(refusal(MISTRAL, thinking_blocks=[{}])) is UnknownParameter


def test_strip_outweighs_forbidden_and_reject_outweighs_optional() -> None:
    """The operator's word holds over the preset's policy."""
    strip = a_target(history="forbidden", history_reasoning="strip")

    assert back(strip, content="a", reasoning_content="t") == {"content": "a"}
    assert refusal(a_target(history_reasoning="reject"), reasoning="t").code == "unknown_parameter"


# ------------------------------------------------------------------- copies


def test_equal_copies_count_as_one() -> None:
    """The same text under two names is one reasoning."""
    message = {"content": "a", "reasoning": "t", "reasoning_content": "t"}

    assert back(PLAIN, **message) == {"reasoning_content": "t", "content": "a"}
    assert back(OLLAMA, **message) == {"reasoning": "t", "content": "a"}
    assert converted(PLAIN, message).reasoning_chars == 1


@pytest.mark.parametrize("empty", [None, "", [], {}])
def test_an_empty_copy_is_no_copy(empty: Any) -> None:
    """A carrier that says nothing does not contradict one with a text."""
    for message in (
        {"reasoning_content": "t", "reasoning": empty},
        {"reasoning_content": empty, "reasoning": "t"},
    ):
        assert back(OLLAMA, content="a", **message) == {"content": "a", "reasoning": "t"}
        assert converted(MISTRAL, {**message, "content": [THOUGHT]}).reasoning_chars == 1


@pytest.mark.parametrize(
    "target, message, param",
    [
        (PLAIN, {"reasoning": "a", "reasoning_content": "b"}, "messages[1].reasoning_content"),
        (PLAIN, {"reasoning_content": "a", "reasoning": "aa"}, "messages[1].reasoning"),
        (MISTRAL, {"reasoning": "a", "content": [THOUGHT]}, "messages[1].content[0]"),
        (MISTRAL, {"content": [THOUGHT], "reasoning_content": "x"},
         "messages[1].reasoning_content"),
        (MISTRAL, {"content": [THOUGHT], "reasoning_details": [{"type": "thinking", "x": 1}]},
         "messages[1].reasoning_details"),
    ],
)  # fmt: skip
def test_different_copies_are_refused(target: Target, message: dict[str, Any], param: str) -> None:
    """Two texts that should be one are `invalid_value`: nobody may choose between them."""
    failure = refusal(target, **message)

    assert (type(failure), failure.param) == (InvalidValue, param)


@pytest.mark.parametrize(
    "target, message, param",
    [
        (PLAIN, {"reasoning_content": 5}, "messages[1].reasoning_content"),
        (PLAIN, {"reasoning": {"text": "t"}}, "messages[1].reasoning"),
        (FORBIDDEN, {"reasoning_content": ["t"]}, "messages[1].reasoning_content"),
        (OPENROUTER, {"reasoning_details": "t"}, "messages[1].reasoning_details"),
        (OPENROUTER, {"reasoning_details": 5}, "messages[1].reasoning_details"),
        (MISTRAL, {"content": [{"type": "thinking"}]}, "messages[1].content[0].thinking"),
        (MISTRAL, {"content": ["t", {"type": "thinking", "thinking": {}}]},
         "messages[1].content[1].thinking"),
    ],
)  # fmt: skip
def test_a_carrier_of_the_wrong_type_is_refused(
    target: Target, message: dict[str, Any], param: str
) -> None:
    """A carrier of the wrong type is `invalid_value`; it is never made into a string."""
    failure = refusal(target, **message)

    assert (type(failure), failure.param) == (InvalidValue, param)


# ------------------------------------------------------------------- what a provider reads


@pytest.mark.parametrize(
    "message, param",
    [
        ({"reasoning_details": DETAILS}, "messages[1].reasoning_details"),
        ({"thinking_blocks": [{}]}, "messages[1].thinking_blocks"),
        ({"thinking": "secret"}, "messages[1].thinking"),
        ({"content": ["a", THOUGHT]}, "messages[1].content[1]"),
    ],
)
def test_a_structure_that_the_provider_does_not_read_is_refused(
    message: dict[str, Any], param: str
) -> None:
    """A structured carrier is never flattened into another one: it is refused."""
    failure = refusal(PLAIN, **message)

    assert (type(failure), failure.param) == (UnknownParameter, param)


@pytest.mark.parametrize("key", ["reasoning_details", "thinking_blocks", "thinking"])
@pytest.mark.parametrize("empty", [None, "", [], {}])
def test_an_empty_structure_that_the_provider_does_not_read_is_left_out(
    key: str, empty: Any
) -> None:
    """An answer may have shown an empty carrier of any kind; it says nothing and is not sent."""
    assert back(PLAIN, content="a", **{key: empty}) == {"content": "a"}


@pytest.mark.parametrize("item", [{"type": "other"}, {"type": "thinking", "thinking": 1}, "text"])
def test_details_that_this_gateway_does_not_show_are_refused(item: Any) -> None:
    """Beside a content list only what was shown of its thinking items is known."""
    failure = refusal(MISTRAL, reasoning_details=[{"type": "thinking"}, item])

    assert type(failure) is UnknownParameter
    assert failure.param == "messages[1].reasoning_details[1]"


def test_an_empty_structure_that_the_provider_reads_stays() -> None:
    """An empty carrier goes back where the provider knows it."""
    message = {"content": "a", "reasoning_details": []}

    assert back(OPENROUTER, **message) == message


def test_evidenced_structures_go_as_they_came() -> None:
    """What the preset reads or carries passes whole, beside the text."""
    generic = a_target(read=("reasoning_content", "reasoning", "reasoning_details"))
    blocks = a_target(read=("reasoning_content", "thinking_blocks"), carry=("reasoning_details",))
    message = {"content": "a", "reasoning_details": DETAILS, "reasoning_content": "other words"}
    both = {"thinking_blocks": [{"type": "thinking", "thinking": "tt", "signature": "s"}]}

    assert back(generic, **message) == message
    assert back(blocks, **message, **both) == {**message, **both}
    assert converted(blocks, both).reasoning_chars == 2


def test_thinking_is_a_text_carrier_where_it_is_read() -> None:
    """`thinking` mirrors the alias at a provider that evidences it."""
    target = a_target(read=("thinking",))

    assert back(target, thinking="t", reasoning_content="t") == {"reasoning_content": "t"}


def test_a_content_list_goes_as_it_came_where_it_is_read() -> None:
    """A native content list says it all, so copies of its text are left out."""
    target = a_target(read=("reasoning_content", "content_list"))

    assert back(target, content=[THOUGHT], reasoning_content="t") == {"content": [THOUGHT]}
    assert back(target, content=[], reasoning="t") == {"content": [], "reasoning_content": "t"}


def test_opaque_parts_are_never_touched() -> None:
    """Signatures and tool arguments pass verbatim beside reasoning, whatever the policy does."""
    calls = [{**CALLS[0], "extra_content": {"google": {"thought_signature": "s"}}, "index": 0}]
    message = {
        "tool_calls": calls,
        "extra_content": {"google": {"thought": True}},
        "thought_signature": "s",
        "my_thoughts": "m",
    }

    for target in (PLAIN, IGNORED, TAGS, a_target(history_reasoning="strip")):
        sent = back(target, reasoning_content="", **message)
        assert {key: sent[key] for key in message} == message
        assert sent["tool_calls"] is calls


# ------------------------------------------------------------------- the operator's words


def test_history_key_names_the_carrier() -> None:
    """The operator may name the carrier where the preset has the default one."""
    named = a_target(read=("reasoning_content",), history_key="thoughts")
    details = a_target(read=("reasoning_details",), history_key="reasoning_details")
    fixed = a_target(history_carrier="reasoning", history_key="thoughts")

    assert back(named, reasoning_content="t") == {"thoughts": "t"}
    assert back(named, thoughts="t", reasoning="t") == {"thoughts": "t"}
    assert refusal(named, thoughts="t", reasoning="u").param == "messages[1].reasoning"
    assert back(details, reasoning_details=DETAILS) == {"reasoning_details": DETAILS}
    assert back(fixed, reasoning_content="t") == {"reasoning": "t"}


def test_carried_drift_is_taken_back() -> None:
    """What was shown under its own key because the operator carries drift goes back as it came."""
    carry = a_target(read=("reasoning_content",), on_drift="carry")
    message = {
        "content": [THOUGHT],
        "reasoning_content": "a",
        "reasoning": "other",
        "reasoning_details": "odd",
        "thinking_blocks": [5],
    }

    assert back(carry, **message, thinking=None) == message


def test_carried_drift_of_any_type_is_taken_back() -> None:
    """Drift of the wrong type was shown as it came, and goes back so, beside the rest."""
    carry = a_target(read=("reasoning",), history_carrier="reasoning", on_drift="carry")
    lists = a_target(read=("content_list",), history_carrier="content_list", on_drift="carry")
    own = {"type": "thinking", "closed": True}

    assert back(carry, reasoning_content=5, reasoning="t") == {
        "reasoning_content": 5,
        "reasoning": "t",
    }
    assert refusal(carry, reasoning=5).param == "messages[1].reasoning"
    assert back(lists, content="a", reasoning_details=[own, "odd"]) == {
        "content": [{**own, "thinking": []}, {"type": "text", "text": "a"}],
        "reasoning_details": ["odd"],
    }
    carried = a_target(carry=("thinking",), on_drift="carry")
    assert back(carried, thinking={"a": 1}) == {"thinking": {"a": 1}}
    assert back(lists, content="a", reasoning_details=["odd"]) == {
        "content": "a",
        "reasoning_details": ["odd"],
    }


def test_carried_drift_is_removed_where_reasoning_is_forbidden() -> None:
    """A provider that forbids reasoning never gets it, and its own drift is no error either."""
    carry = a_target(history="forbidden", on_drift="carry")
    reject = a_target(history_reasoning="reject", on_drift="carry")

    assert back(carry, content="a", reasoning="t", reasoning_content="u") == {"content": "a"}
    assert refusal(reject, reasoning="t").param == "messages[1].reasoning"


# ------------------------------------------------------------------- what is missing


@pytest.mark.parametrize("policy", ["required", "required_tools"])
def test_missing_reasoning_is_refused_where_the_provider_certainly_refuses(policy: Policy) -> None:
    """With thinking on, a turn with tool calls and without its reasoning is refused at once."""
    target = a_target(read=("reasoning_content",), history=policy)
    for message in ({"content": None}, {"reasoning_details": None}):
        failure = refusal(target, tool_calls=CALLS, **message)

        assert type(failure) is HistoryReasoningMissing
        assert failure.param == "messages[1].reasoning_content"


@pytest.mark.parametrize("thinking", [None, False])
def test_missing_reasoning_goes_as_it_came_where_nothing_is_certain(thinking: bool | None) -> None:
    """Unless somebody says that thinking is on, the provider decides."""
    history = converted(DEEPSEEK, {"content": None, "tool_calls": CALLS}, thinking=thinking)

    assert history.messages[1]["tool_calls"] is CALLS


@pytest.mark.parametrize(
    "target, message",
    [
        (DEEPSEEK, {"tool_calls": CALLS, "reasoning_content": ""}),
        (DEEPSEEK, {"tool_calls": CALLS, "reasoning_content": None}),
        (DEEPSEEK, {"tool_calls": CALLS, "reasoning": "t"}),
        (OPENROUTER, {"tool_calls": CALLS, "reasoning_details": DETAILS}),
        (DEEPSEEK, {"tool_calls": []}),
        (DEEPSEEK, {"content": "a"}),
        (a_target(history="optional"), {"tool_calls": CALLS}),
        (a_target(history="required", history_reasoning="strip"), {"tool_calls": CALLS}),
    ],
)
def test_present_reasoning_and_turns_without_tools_are_not_missing(
    target: Target, message: dict[str, Any]
) -> None:
    """Empty and null count as present; turns without tools may never have had any."""
    converted(target, message, thinking=True)


# ------------------------------------------------------------------- output-only keys


def test_output_only_keys_are_left_out_where_they_say_nothing() -> None:
    """A key that only answers have is removed when empty, and refused when it says something."""
    target = a_target(history_omit=("refusal", "annotations"))
    empty: dict[str, Any] = {"content": "a", "refusal": None, "annotations": []}

    assert back(target, **empty) == {"content": "a"}
    assert back(PLAIN, **empty) == empty
    failure = refusal(target, content="a", annotations=[{"secret": 1}])
    assert (type(failure), failure.param) == (UnknownParameter, "messages[1].annotations")
    assert back(target, content="a", refusal="", reasoning="t") == {
        "content": "a",
        "reasoning_content": "t",
    }
