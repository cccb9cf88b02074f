"""Facts become rows: every ending, every column, nothing that must not rest."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from everyturn.audit.facts import CallClosing
from everyturn.audit.records import AccessEvent, ModelCall, TurnAudit
from everyturn.audit.usage import Tokens
from everyturn.errors import (
    Failure,
    GatewayStopping,
    InvalidJson,
    ModelNotFound,
    ProtocolDrift,
    UpstreamError,
    UpstreamStreamIncomplete,
    UpstreamTimeout,
)
from everyturn.presets.price import NOT_PRICED, Price
from tests.support.chat_requests import a_target
from tests.support.recording import PRESET, TURN_ID, Turn, a_reply, reply_of

SECRET = "sk-test-FAKE1234FAKE1234"
THOUGHT = "MARKER of a thought that must not rest"


def test_a_call_opens_with_its_turn() -> None:
    """The first group holds both rows, open, and the new content; nothing is said of the end."""
    turn = Turn()

    group = turn.open(
        messages=[{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
        temperature=0.5,
        max_tokens=7,
        tools=[{"type": "function", "function": {"name": "f"}}],
    )

    kinds = [type(record) for record in group.records]
    assert kinds == [TurnAudit, ModelCall]
    assert (turn.turn.outcome, turn.turn.revision, turn.turn.user_text) == (None, 1, "q")
    call = turn.call
    assert (call.turn_id, call.span_id, call.parent_span_id) == (TURN_ID, "c" * 16, "s" * 16)
    assert (call.provider_id, call.provider_type, call.transport) == ("p", "openai-chat", "direct")
    assert (call.temperature, call.max_tokens, call.stream) == (0.5, 7, False)
    assert (call.stream_state, call.response_json, call.revision) == (None, None, 1)
    assert turn.listed(call.prompt_messages_json) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "q"},
    ]
    assert turn.listed(call.tools_json) == [{"type": "function", "function": {"name": "f"}}]
    assert json.loads(call.parameters_json or "") == {
        "model": "m",
        "temperature": 0.5,
        "max_tokens": 7,
    }
    assert call.redaction_applied
    assert call.redaction_rules_version == turn.cleaner.version


def test_a_call_closes_with_its_turn_and_the_access_event() -> None:
    """One group closes all three; the rows are whole and one revision higher."""
    turn = Turn()
    turn.open()
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": None}
    access = AccessEvent(access_id="acc_1", timestamp=1_000, turn_id=TURN_ID)

    group = turn.recorder.close_turn(
        duration_ms=12.3456,
        call=CallClosing(
            stream_state="whole",
            reply=a_reply("hello", usage=usage),
            status_code=200,
            upstream_status=200,
            provider_request_id="req-1",
            latency_ms=1.23456,
            time_to_first_token_ms=1.0,
            notes=("clamped",),
        ),
        access=access,
    )
    turn.keep(group)

    assert group.records == (turn.call, turn.turn, access)
    call = turn.call
    assert (call.revision, call.stream_state, call.finish_reason) == (2, "whole", "stop")
    assert (call.served_model_name, call.provider_request_id) == ("m-1", "req-1")
    assert (call.prompt_tokens, call.completion_tokens, call.total_tokens) == (3, 2, None)
    assert json.loads(call.usage_json or "") == usage
    assert (call.latency_ms, call.time_to_first_token_ms) == (1.235, 1.0)
    assert json.loads(call.flags_json or "") == ["note: clamped"]
    assert json.loads(call.response_json or "")["choices"][0]["message"]["content"] == "hello"
    assert (call.reasoning_carrier, call.reasoning_chars) == (None, 0)
    ended = turn.turn
    assert (ended.revision, ended.outcome, ended.failure_type) == (2, "success", "none")
    assert (ended.assistant_text, ended.duration_ms) == ("hello", 12.346)
    assert (ended.model_call_count, ended.tool_call_count) == (1, 0)


def ended(state: str, reply: Any = None, failure: Failure | None = None, **more: Any) -> Any:
    """Facts of an ending."""
    return {"stream_state": state, "reply": reply, "failure": failure, **more}


ENDINGS: list[tuple[dict[str, Any], tuple[str, str, str | None]]] = [
    (ended("whole", a_reply()), ("success", "none", None)),
    (ended("missing_done", a_reply()), ("success", "none", None)),
    (ended("complete", a_reply(finish="length")), ("partial", "none", None)),
    (ended("complete", a_reply(finish="model_length")), ("partial", "none", None)),
    (ended("whole", a_reply(None, refusal="no")), ("refused", "none", None)),
    (ended("whole", a_reply("a", refusal="")), ("success", "none", None)),
    (ended("whole", a_reply(finish="content_filter")), ("refused", "policy_error", None)),
    (ended("whole", a_reply(finish="broken")), ("failure", "provider_error", None)),
    (ended("complete", a_reply(), is_client_gone=True), ("success", "none", None)),
    (ended("cancelled", a_reply(), is_client_gone=True), ("abandoned", "none", None)),
    (ended("cancelled", None, is_client_gone=True), ("abandoned", "none", None)),
    (
        ended("cut", a_reply(), UpstreamStreamIncomplete("cut"), is_shown=True),
        ("partial", "provider_error", "upstream_stream_incomplete"),
    ),
    (
        ended("cut", None, UpstreamStreamIncomplete("cut")),
        ("failure", "provider_error", "upstream_stream_incomplete"),
    ),
    (ended("error", None, UpstreamTimeout("late")), ("failure", "timeout", "upstream_timeout")),
    (
        ended("error", None, UpstreamError("500")),
        ("failure", "provider_error", "upstream_error"),
    ),
    (
        ended("error", None, ProtocolDrift("drift", param="x")),
        ("failure", "adapter_error", "protocol_drift"),
    ),
    (
        ended("cancelled", a_reply(), GatewayStopping("stop"), is_shown=True),
        ("partial", "unknown", "gateway_stopping"),
    ),
]


@pytest.mark.parametrize("facts, expected", ENDINGS)
def test_every_ending_has_its_outcome(
    facts: dict[str, Any], expected: tuple[str, str, str | None]
) -> None:
    """Outcome, kind of failure and code follow the table of endings."""
    turn = Turn()
    turn.open()

    turn.close(**facts)

    row = turn.turn
    assert (row.outcome, row.failure_type, row.error_code) == expected
    assert turn.call.error_code == expected[2]
    assert turn.call.stream_state == facts["stream_state"]


def test_a_client_that_leaves_after_the_finish_is_flagged() -> None:
    """The turn counts as ended, and says that nobody waited for the end."""
    turn = Turn()
    turn.open()

    turn.close(stream_state="complete", reply=a_reply(), is_client_gone=True)

    assert json.loads(turn.call.flags_json or "") == ["client_closed_early"]


@pytest.mark.parametrize(
    "failure, body, text, kind",
    [
        (InvalidJson("no JSON"), None, None, "format_error"),
        (
            ModelNotFound("no such model"),
            {"messages": [{"role": "user", "content": "q"}]},
            "q",
            "routing",
        ),
    ],
)
def test_a_turn_without_a_call_is_one_closed_row(
    failure: Failure, body: dict[str, Any] | None, text: str | None, kind: str
) -> None:
    """A refused request leaves a turn that failed, with its question where it was read."""
    turn = Turn()

    turn.keep(turn.recorder.close_turn(duration_ms=1.0, failure=failure, body=body))

    row = turn.turn
    assert (row.revision, row.outcome, row.failure_type) == (1, "failure", kind)
    assert (row.user_text, row.error_code, row.model_call_count) == (text, failure.code, 0)
    assert row.cost_estimate is None


def test_an_attempt_that_another_follows_closes_alone() -> None:
    """Each attempt is a call of its own; the turn takes its end from the last and counts all."""
    turn = Turn()
    turn.open("call_1")
    turn.keep(
        turn.recorder.close_call(
            CallClosing(stream_state="error", failure=UpstreamError("500"), upstream_status=500)
        )
    )
    first = turn.call

    second = turn.open("call_2")
    turn.close(reply=a_reply("ok"))

    assert (first.model_call_id, first.error_code) == ("call_1", "upstream_error")
    assert [type(record) for record in second.records] == [ModelCall]
    assert (turn.turn.outcome, turn.turn.model_call_count) == ("success", 2)


REASONED: list[dict[str, Any]] = [
    {"reasoning_content": THOUGHT},
    {"reasoning_details": [{"type": "reasoning.text", "text": THOUGHT, "signature": "sig"}]},
    {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}]},
]


@pytest.mark.parametrize("message", REASONED)
def test_reasoning_of_an_answer_is_counted_and_does_not_rest(message: dict[str, Any]) -> None:
    """The row has its length and carrier and a mark; the text is in no column."""
    turn = Turn()
    turn.open()

    turn.close(reply=a_reply(message.pop("content", "answer"), **message))

    assert turn.call.reasoning_chars == len(THOUGHT)
    assert turn.call.reasoning_carrier
    assert "everyturn_reasoning" in (turn.call.response_json or "")
    assert "MARKER" not in turn.at_rest


def test_reasoning_of_the_history_does_not_rest() -> None:
    """Earlier messages keep their form with a mark, in each carrier a target can want."""
    history = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", "reasoning_content": THOUGHT},
        {"role": "user", "content": "q2"},
    ]
    for carrier in ("reasoning_content", "reasoning", "content_list", "tags"):
        turn = Turn(target=a_target(read=("reasoning_content",), history_carrier=carrier))

        turn.open(messages=history)

        messages = turn.listed(turn.call.prompt_messages_json)
        assert "MARKER" not in turn.at_rest
        assert "reasoning" in json.dumps(messages[1])
        assert turn.turn.user_text == "q2"


def test_an_error_that_repeats_reasoning_loses_it() -> None:
    """A provider that echoes the request in its error leaves no thought in the record."""
    turn = Turn(target=a_target(read=("reasoning_content",)))
    turn.open(
        messages=[
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": "a", "reasoning_content": THOUGHT},
            {"role": "user", "content": "q"},
        ]
    )
    failure = UpstreamError(
        "failed", extra={"message": f"bad: {{'reasoning_content': '{THOUGHT}'}}", "upstream": 1}
    )

    turn.close(stream_state="error", failure=failure)

    assert "MARKER" not in turn.at_rest
    error = json.loads(turn.call.error_json or "")["error"]
    assert (error["code"], error["upstream"]) == ("upstream_error", 1)
    assert f"[reasoning:{len(THOUGHT)} chars]" in error["message"]


def test_what_a_model_thought_before_it_failed_does_not_rest() -> None:
    """`failed_generation` stays, what stands in it between tags does not."""
    turn = Turn()
    turn.open()
    failure = UpstreamError("x", extra={"failed_generation": f"<think>{THOUGHT}</think>f()"})

    turn.close(stream_state="error", failure=failure)

    assert "MARKER" not in turn.at_rest
    assert "f()" in (turn.call.error_json or "")


def test_token_probabilities_of_reasoning_do_not_rest() -> None:
    """Of the listed tokens only those of the content stay."""
    tokens = [{"token": piece, "logprob": -0.1} for piece in ("MAR", "KER", "an", "swer")]
    body = {
        "choices": [
            {
                "index": 0,
                "message": {"content": "answer", "reasoning_content": "MARKER"},
                "logprobs": {"content": tokens},
                "finish_reason": "stop",
            }
        ]
    }
    turn = Turn()
    turn.open()

    turn.close(reply=reply_of(body))

    kept = json.loads(turn.call.response_json or "")["choices"][0]["logprobs"]["content"]
    assert kept[1:] == tokens[2:]
    assert "MAR" not in turn.at_rest


def test_carried_drift_is_told_by_path_and_length() -> None:
    """What an operator lets through undeclared is marked in the payload and listed beside it."""
    target = a_target(PRESET, on_drift="carry")
    turn = Turn(target=target)
    turn.open()

    turn.close(reply=a_reply("a", target=target, thinking=THOUGHT))

    assert "MARKER" not in turn.at_rest
    (entry,) = json.loads(turn.call.drift_json or "")
    assert entry["length"] == len(THOUGHT)
    assert entry["path"].endswith("thinking")


def test_refused_drift_is_told_by_its_path() -> None:
    """A failure for drift names where it was."""
    turn = Turn()
    turn.open()

    turn.close(
        stream_state="error", failure=ProtocolDrift("d", param="choices[0].message.thinking")
    )

    assert json.loads(turn.call.drift_json or "") == [{"path": "choices[0].message.thinking"}]


def test_secrets_rest_nowhere() -> None:
    """Prompt, tools, parameters, answer, error, names: each place loses the secret and counts."""
    turn = Turn()
    turn.open(
        messages=[{"role": "user", "content": f"my key {SECRET}"}],
        tools=[{"type": "function", "function": {"name": "f", "description": SECRET}}],
        user=SECRET,
    )
    opened = json.loads(turn.call.redactions_json)
    body = {
        "model": SECRET,
        "choices": [
            {
                "index": 0,
                "message": {
                    "content": f"use {SECRET}",
                    "tool_calls": [
                        {
                            "id": "t1",
                            "type": "function",
                            "function": {"name": "f", "arguments": '{"password":"FAKE-pass"}'},
                        }
                    ],
                },
                "finish_reason": "stop",
            }
        ],
    }
    turn.close(
        reply=reply_of(body),
        provider_request_id=SECRET,
        failure=UpstreamError("x", extra={"message": f"key {SECRET}"}),
    )

    assert SECRET not in turn.at_rest
    assert "FAKE-pass" not in turn.at_rest
    assert opened == {"sk_key": 3}
    closed = json.loads(turn.call.redactions_json)
    assert closed["sk_key"] >= 6
    assert closed["key_name"] == 1
    assert json.loads(turn.turn.redactions_json) == {"sk_key": 2}
    assert turn.turn.tool_call_count == 1


def test_content_that_is_known_keeps_its_counts() -> None:
    """A resent history is neither stored nor redacted again, and is counted all the same."""
    turn = Turn()
    messages = [{"role": "user", "content": f"my key {SECRET}"}]
    turn.open("call_1", messages=messages)
    turn.keep(turn.recorder.close_call(CallClosing(stream_state="whole", reply=a_reply())))

    group = turn.open("call_2", messages=messages)

    assert group.contents == ()
    assert json.loads(turn.call.redactions_json) == {"sk_key": 1}


def test_media_rest_as_their_hash() -> None:
    """Pictures in a question and in a text are marks; the question's words are the turn's text."""
    url = "data:image/png;base64," + "iVBORw0K" * 40
    turn = Turn()

    turn.open(
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what is this?"},
                    {"type": "image_url", "image_url": {"url": url}},
                    {"type": "text", "text": f"and ![this]({url})"},
                ],
            }
        ]
    )

    assert "iVBORw0K" not in turn.at_rest
    assert (turn.turn.user_text or "").startswith(
        "what is this?\nand ![this]([media:image/png:240:"
    )


def test_addresses_lose_their_credentials() -> None:
    """`base_url` stands without userinfo and without secret query values."""
    target = replace(
        a_target(PRESET), base_url="https://user:FAKEpass@h.example/v1?api-version=1&key=FAKEKEY"
    )
    turn = Turn(target=target)

    turn.open()

    url = turn.call.base_url or ""
    assert url.startswith("https://h.example/v1?api-version=1&key=[redacted:key_name:")
    assert "FAKE" not in url


def test_what_no_column_holds_is_not_reported() -> None:
    """Numbers beyond a column stand in `parameters_json` alone, digit for digit."""
    turn = Turn()

    turn.open(max_tokens=10**30, seed=12345678901234567890)

    assert turn.call.max_tokens is None
    assert str(10**30) in (turn.call.parameters_json or "")


def test_costs_add_up_or_are_unknown() -> None:
    """The turn costs what its calls cost; one that owes an unknown sum makes it unknown."""
    priced = Price(25, 2, source="list", version="1")
    asked: list[tuple[Tokens, str | None]] = []

    def pricing(tokens: Tokens, served: str | None) -> Price:
        asked.append((tokens, served))
        return priced

    for second, expected in ((priced, 0.5), (NOT_PRICED, None)):
        turn = Turn()
        turn.open("call_1")
        usage = {"prompt_tokens": 1}
        closing = CallClosing(stream_state="whole", reply=a_reply(usage=usage), pricing=pricing)
        turn.keep(turn.recorder.close_call(closing))
        turn.open("call_2")
        turn.close(reply=a_reply(), pricing=lambda *_, price=second: price)

        assert turn.turn.cost_estimate == expected
    tokens, served = asked[0]
    assert (tokens.prompt_tokens, served) == (1, "m-1")


def test_a_failed_attempt_without_usage_owes_nothing() -> None:
    """A call that never was answered does not make the turn's cost unknown."""
    turn = Turn()
    turn.open("call_1")
    turn.keep(
        turn.recorder.close_call(CallClosing(stream_state="error", failure=UpstreamError("x")))
    )
    turn.open("call_2")

    turn.close(
        reply=a_reply(),
        pricing=lambda *_: Price(1, 1, source="list", version="1"),
    )

    assert turn.turn.cost_estimate == 0.1


def test_nul_and_lone_surrogates_are_carried() -> None:
    """Odd characters pass through the recorder; how they rest is the store's business."""
    body = {
        "choices": [{"index": 0, "message": {"content": "a\ud83c\0b"}, "finish_reason": "stop"}]
    }
    turn = Turn()
    turn.open(messages=[{"role": "user", "content": "q\0"}])

    turn.close(reply=reply_of(body))

    assert turn.turn.assistant_text == "a\ud83c\0b"
    content = json.loads(turn.call.response_json or "")["choices"][0]["message"]["content"]
    assert content == "a\ud83c\0b"
