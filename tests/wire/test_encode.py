from __future__ import annotations

import json
from typing import Any

import pytest

from everyturn.errors import HistoryReasoningMissing, UnknownParameter
from everyturn.presets.load import load_preset, preset_names
from everyturn.wire.dialects.openai_chat import Encoded, encode
from everyturn.wire.preset import Controls, Preset
from everyturn.wire.request import parse_chat_request
from tests.support.chat_requests import BASE_URL, KEY, a_body, a_request, a_target, encoded, sent

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{ "a":1.0 }'}}
ASKED = {"include_usage": True}
EVIDENCED = a_target(stream_options="evidenced")
REFUSED = a_target(stream_options="refused")


# ------------------------------------------------------------------- the body


def test_nothing_changes_but_the_model() -> None:
    """A plain request reaches the provider as it was read, under the provider's model name."""
    raw = (
        b'{"messages":[{"content":"a\\u0000b","role":"user","x":1e400}],"temperature":0.10,'
        b'"model":"m","tools":[{"function":{"parameters":{"maximum":1E400}}}],"seed":-0}'
    )

    result = encode(parse_chat_request(raw), a_target(upstream_model="up"), api_key=None)

    assert result.body == raw.replace(b'"model":"m"', b'"model":"up"')
    assert (result.notes, result.stream, result.withhold_usage) == ((), False, False)


def test_the_request_is_not_changed() -> None:
    """One request can be put to several targets: encoding leaves it as it was read."""
    request = a_request(stream=True, reasoning_effort="low")
    target = a_target(
        upstream_model="up",
        stream="never",
        controls=Controls(effort={"low": {"think": 1}}),
        adds={"extra": 1},
    )

    result = encode(request, target, api_key=None)

    assert request.body == a_body(stream=True, reasoning_effort="low")
    encode(request, a_target(allow=("reasoning_effort",), stream="never"), api_key=None)
    assert request.body == a_body(stream=True, reasoning_effort="low")
    assert result.sent == a_body(model="up", stream=False, think=1, extra=1)


@pytest.mark.parametrize(
    "key, target",
    [
        ("top_k", a_target(request_keys=("top_k",))),
        ("top_k", a_target(controls=Controls(native=("top_k",)))),
        ("top_k", a_target(allow=("top_k",))),
        ("store", a_target()),
        ("functions", a_target()),
    ],
)
def test_known_keys_pass(key: str, target: Any) -> None:
    """A key is known to Chat Completions, to the preset, or by the operator's word."""
    assert sent(target, **{key: None})[key] is None


@pytest.mark.parametrize(
    "key, param", [("top_k", "top_k"), ("", ""), ("a b\n", "a b\\n"), ("Model", "Model")]
)
def test_an_unknown_key_is_refused(key: str, param: str) -> None:
    """A key that nobody knows is `unknown_parameter` that names it: nothing is ignored."""
    with pytest.raises(UnknownParameter) as failure:
        sent(a_target(), **{key: "secret"})
    assert failure.value.param == param
    assert "secret" not in failure.value.message


def test_history_and_controls_are_applied() -> None:
    """Reasoning in the history and reasoning controls reach the provider in its own form."""
    target = a_target(
        history_carrier="reasoning",
        controls=Controls(effort={"high": {"reasoning_effort": "high"}}, clamps={"max": "high"}),
    )
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", "reasoning_content": "tt"},
    ]

    result = encoded(target, messages=messages, reasoning_effort="max")

    assert result.sent["messages"][1] == {"role": "assistant", "content": "a", "reasoning": "tt"}
    assert result.sent["reasoning_effort"] == "high"
    assert result.notes == ("clamped reasoning_effort=max to high",)
    assert result.reasoning_in_history == 2


def test_reasoning_as_tags_is_told_to_the_record() -> None:
    """The record learns where in the body reasoning stands as content."""
    target = a_target(history="as_tags", history_carrier="tags")

    result = encoded(target, messages=[{"role": "assistant", "content": "a", "reasoning": "t"}])

    assert result.reasoning_tags == ((0, len("<think>t</think>")),)


def test_missing_reasoning_depends_on_what_the_request_says() -> None:
    """B08: the request that turns thinking on is refused, the same without it goes as it came."""
    target = a_target(history="required_tools", controls=Controls(native=("thinking",)))
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
    ]

    with pytest.raises(HistoryReasoningMissing):
        sent(target, messages=messages, thinking={"type": "enabled"})
    assert sent(target, messages=messages)["messages"] == messages


# ------------------------------------------------------------------- address and headers


@pytest.mark.parametrize(
    "base_url, query, url",
    [
        ("https://h.test", (), "https://h.test/chat/completions"),
        ("https://h.test/", (), "https://h.test/chat/completions"),
        ("https://h.test:8443/api/v1/", (), "https://h.test:8443/api/v1/chat/completions"),
        ("https://h.test/a b%20c", (), "https://h.test/a%20b%20c/chat/completions"),
        (
            "https://h.test/openai/deployments/gpt",
            (("api-version", "2026-01-01"),),
            "https://h.test/openai/deployments/gpt/chat/completions?api-version=2026-01-01",
        ),
        (
            "https://h.test/v1?api-version=1&k=&a=x%20y",
            (("api-version", "2 3"),),
            "https://h.test/v1/chat/completions?k=&a=x%20y&api-version=2%203",
        ),
        ("http://[::1]:9/v1?a=b", (), "http://[::1]:9/v1/chat/completions?a=b"),
    ],
)
def test_the_endpoint_is_under_the_base_url(
    base_url: str, query: tuple[tuple[str, str], ...], url: str
) -> None:
    """The endpoint is appended as an OpenAI SDK does; the target's query outweighs the URL's."""
    result = encoded(a_target(base_url=base_url, query=query))

    assert result.url == url
    assert url.startswith(result.origin + result.path)


def headers(result: Encoded) -> dict[str, str]:
    """Headers by name; no name stands twice."""
    assert len(dict(result.headers)) == len(result.headers)
    return dict(result.headers)


def test_a_key_is_a_bearer_token_or_bare() -> None:
    """`authorization` gets a bearer token, any other header the key as it is."""
    bare = encoded(a_target(auth_header="api-key"))

    assert headers(encoded(a_target()))["authorization"] == f"Bearer {KEY}"
    assert headers(encoded(a_target(auth_header="Authorization")))["authorization"] == (
        f"Bearer {KEY}"
    )
    assert headers(bare)["api-key"] == KEY
    assert "authorization" not in headers(bare)
    assert KEY not in bare.url
    assert KEY.encode() not in bare.body


def test_without_a_key_there_are_no_credentials() -> None:
    """A local server needs no key and gets none."""
    result = encode(a_request(), a_target(), api_key=None)

    assert headers(result) == {"content-type": "application/json", "accept": "application/json"}


# ------------------------------------------------------------------- streaming


@pytest.mark.parametrize(
    "mode, asked, upstream",
    [
        ("as_asked", False, False),
        ("as_asked", True, True),
        ("never", False, False),
        ("never", True, False),
        ("always", False, True),
        ("always", True, True),
    ],
)
def test_the_model_entry_decides_about_streaming(mode: str, asked: bool, upstream: bool) -> None:
    """A model is streamed as asked, never or always, and a note tells where that differs."""
    result = encoded(a_target(stream=mode), stream=asked)

    assert (result.stream, result.sent["stream"]) == (upstream, upstream)
    assert headers(result)["accept"] == ("text/event-stream" if upstream else "application/json")
    assert [note.partition(":")[0] for note in result.notes] == (
        [] if asked == upstream else [f"stream={mode}"]
    )


def test_what_a_whole_request_says_of_streaming_stays() -> None:
    """`stream: null` and stream options of a whole request are the provider's to judge."""
    members = {"stream": None, "stream_options": ASKED}

    assert sent(EVIDENCED, **members) == a_body(**members)
    assert sent(EVIDENCED) == a_body()
    assert sent(REFUSED, **members) == a_body(**members)


@pytest.mark.parametrize(
    "options", [None, {}, {"include_usage": False}, {"include_usage": None, "other": 1}]
)
def test_the_gateway_asks_for_usage_on_its_own(options: Any) -> None:
    """Where the provider has stream usage and the client did not ask, it is asked for, withheld."""
    result = encoded(EVIDENCED, stream=True, stream_options=options)

    assert result.sent["stream_options"] == {**(options or {}), **ASKED}
    assert result.withhold_usage
    assert result.notes == ()


def test_usage_that_the_client_asked_for_is_its_own() -> None:
    """Nothing is changed and nothing withheld where the client asked itself."""
    result = encoded(EVIDENCED, stream=True, stream_options={**ASKED, "other": 1})

    assert result.sent["stream_options"] == {**ASKED, "other": 1}
    assert not result.withhold_usage


def test_usage_is_not_asked_for_where_nobody_knows() -> None:
    """Without evidence that the provider takes `stream_options` none are added."""
    result = encoded(a_target(stream_options="unknown"), stream=True)

    assert "stream_options" not in result.sent
    assert not result.withhold_usage


def test_refused_stream_options_are_removed_with_a_note() -> None:
    """The client's own `stream_options` do not reach a provider that refuses them."""
    result = encoded(REFUSED, stream=True, stream_options=ASKED)

    assert "stream_options" not in result.sent
    assert result.notes == ("removed stream_options: this provider refuses it",)
    assert not result.withhold_usage
    assert encoded(REFUSED, stream=True, stream_options=None).notes == ()
    assert encoded(REFUSED, stream=True).notes == ()


def test_a_stream_that_is_never_one_has_no_stream_options() -> None:
    """A whole call to the provider carries no stream options of the client's stream."""
    result = encoded(
        a_target(stream="never", stream_options="evidenced"), stream=True, stream_options=ASKED
    )

    assert result.sent == a_body(stream=False)


def test_a_whole_answer_from_a_stream_has_its_usage() -> None:
    """Usage is asked for when a stream is folded, and belongs to the whole answer."""
    result = encoded(a_target(stream="always", stream_options="evidenced"))

    assert result.sent == a_body(stream=True, stream_options=ASKED)
    assert not result.withhold_usage


# ------------------------------------------------------------------- packaged presets


PRESETS = [load_preset(name) for name in preset_names()]


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_each_preset_encodes_a_plain_request(preset: Preset) -> None:
    """Under each packaged preset a plain streamed request goes out unchanged but for the usage."""
    result = encoded(a_target(preset), stream=True)

    options = {"stream_options": ASKED} if result.withhold_usage else {}
    assert result.sent == a_body(stream=True, **options)
    assert result.withhold_usage == (preset.stream_options == "evidenced")
    assert result.url == BASE_URL + "/chat/completions" + (
        "?" + "&".join(f"{name}={value}" for name, value in preset.query) if preset.query else ""
    )
    assert ("authorization" in headers(result)) == (preset.auth_header == "authorization")


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_each_preset_takes_reasoning_back_by_its_policy(preset: Preset) -> None:
    """Under each packaged preset the alias comes back as its history policy says."""
    message = {"role": "assistant", "content": "a", "reasoning_content": "t", "tool_calls": [CALL]}
    if preset.history == "forbidden":
        with pytest.raises(UnknownParameter):
            encoded(a_target(preset), messages=[message])
        return

    result = encoded(a_target(preset), messages=[message])

    [got] = result.sent["messages"]
    rest = {"role": "assistant", "content": "a", "tool_calls": [CALL]}
    opening, closing = preset.tag
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}
    expected: dict[str, dict[str, Any]] = {
        "reasoning_content": {**rest, "reasoning_content": "t"},
        "reasoning": {**rest, "reasoning": "t"},
        "reasoning_details": {**rest, "reasoning": "t"},
        "content_list": {**rest, "content": [thinking, {"type": "text", "text": "a"}]},
        "tags": {**rest, "content": f"{opening}t{closing}a"},
    }
    assert got == (rest if preset.history == "ignored" else expected[preset.history_carrier])
    assert bool(result.notes) == (preset.history == "ignored")
    assert result.reasoning_in_history == 1


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_each_control_of_a_preset_can_be_sent(preset: Preset) -> None:
    """Every canonical control that a packaged preset expresses is translated without a fault."""
    controls = preset.controls
    asked: list[dict[str, Any]] = [{"effort": effort} for effort in controls.effort]
    asked += [{"effort": effort} for effort in controls.clamps]
    asked += [{"enabled": flag == "true"} for flag in controls.enabled]
    asked += [{"exclude": flag == "true"} for flag in controls.exclude]
    asked += [{"max_tokens": 100}] if controls.budget else []

    for reasoning in asked:
        result = encoded(a_target(preset), reasoning=reasoning)
        assert json.loads(result.body) != a_body()
    for key in controls.native:
        assert sent(a_target(preset), **{key: "own"})[key] == "own"
