from __future__ import annotations

import json
from typing import Any, get_type_hints

import pytest
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from everyturn.errors import (
    Failure,
    InvalidJson,
    InvalidValue,
    MissingParameter,
    RequestTooLarge,
)
from everyturn.wire.reader import Num
from everyturn.wire.request import (
    BYTES_MAX,
    CHAT_PARAMETERS,
    is_number,
    parse_chat_request,
)
from tests.support.chat_requests import a_body, a_request


def refusal(raw: bytes) -> Failure:
    """The failure that a body is refused with."""
    with pytest.raises(Failure) as failure:
        parse_chat_request(raw)
    return failure.value


def body_with(member: str) -> bytes:
    """A valid body with one further member, as text."""
    return b'{"model":"m","messages":[{"role":"user","content":"q"}],' + member.encode() + b"}"


# ------------------------------------------------------------------- what is read


def test_a_request_is_read() -> None:
    """What the gateway needs is read out, and the body stays as it was sent."""
    body = a_body(stream=True, stream_options={"include_usage": True}, n=2, top_p=0.5)
    raw = json.dumps(body).encode()

    request = parse_chat_request(raw)

    assert (request.model, request.stream, request.include_usage, request.n) == ("m", True, True, 2)
    assert request.body == body
    assert request.messages == body["messages"]
    assert request.bytes_received == len(raw)


def test_what_is_not_said_is_not_said() -> None:
    """Without `stream`, `stream_options` and `n` a request is whole, with one choice."""
    request = a_request()

    assert (request.stream, request.include_usage, request.n) == (False, None, 1)


@pytest.mark.parametrize(
    "key",
    sorted(CHAT_PARAMETERS - {"model", "messages"}),
)
def test_null_is_carried_for_an_optional_parameter(key: str) -> None:
    """Null means "not said" for each optional parameter, and is kept as it was sent."""
    assert a_request(**{key: None}).body[key] is None


def test_include_usage_has_three_states() -> None:
    """`include_usage` that is false differs from one that was not said."""
    assert a_request(stream_options={"include_usage": False}).include_usage is False
    assert a_request(stream_options={}).include_usage is None


def test_the_closed_set_is_that_of_the_official_client() -> None:
    """The parameters known here are those of the installed `openai` package, no more, no fewer."""
    official = {
        *get_type_hints(CompletionCreateParamsStreaming),
        *get_type_hints(CompletionCreateParamsNonStreaming),
    }

    assert official == CHAT_PARAMETERS


@pytest.mark.parametrize(
    "number",
    ["0.10", "1E0", "1e0", "-0", "1.0", "0.1000000000000000055", "5e-324", "1" + "0" * 50],
)
def test_numbers_keep_their_text(number: str) -> None:
    """A number that Python would write otherwise is kept as its source text."""
    request = parse_chat_request(body_with(f'"temperature":{number}'))

    value = request.body["temperature"]
    assert number == (value.text if isinstance(value, Num) else json.dumps(value))


def test_nul_is_accepted() -> None:
    """A NUL in a string is a character like any other."""
    raw = b'{"model":"m","messages":[{"role":"user","content":"a\\u0000b"}]}'

    assert parse_chat_request(raw).messages[0]["content"] == "a\x00b"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
        {"role": "assistant", "content": "a", "tool_calls": None, "refusal": None},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, "b"]},
        {"role": "tool", "tool_call_id": "c"},
        {"role": "tool", "tool_call_id": "c", "content": None},
        {"role": "function", "name": "f", "content": None},
        {"role": "developer", "content": "d"},
        {"role": "system", "content": [{"type": "text", "text": "s"}]},
        {"role": "user", "content": "", "name": None, "tool_calls": None},
        {"role": "user", "content": [], "anything": {"else": [1]}},
    ],
)
def test_messages_are_taken_as_they_are(message: dict[str, Any]) -> None:
    """Only the types of what the gateway reads are checked in a message; the rest is carried."""
    assert a_request(messages=[message]).messages == [message]


@pytest.mark.parametrize(
    "member",
    [
        '"max_tokens":1e3',
        '"max_tokens":-1',
        '"seed":123456789012345678901234567890123456789012345',
        '"logit_bias":{"1":0.50,"2":-1e2}',
        '"logit_bias":[[1,0.50],["a",false]]',
        '"logprobs":5',
        '"n":1',
        '"n":128',
        '"stop":["a"]',
        '"tools":[],"functions":[]',
        '"tools":[{"function":{"parameters":{"maximum":1e400,"default":-0}}}]',
        '"metadata":{"a":1e400}',
    ],
)
def test_values_that_are_not_ours_to_judge_are_carried(member: str) -> None:
    """Numbers in odd notations and shapes that some servers have are carried."""
    parse_chat_request(body_with(member))


# ------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"not json",
        b"[]",
        b'"text"',
        b"null",
        b"\xff\xfe{}",
        b"\xef\xbb\xbf{}",
        body_with('"temperature":NaN'),
        body_with('"temperature":-Infinity'),
        b'{"model":"m"} {}',
        b"[" * 10_000 + b"]" * 10_000,
        body_with(
            '"metadata":' + '{"a":' * 127 + "1" + "}" * 127 + ',"x":' + "[" * 129 + "]" * 129
        ),
    ],
)
def test_what_is_not_one_strict_json_object_is_refused(raw: bytes) -> None:
    """Text that is not one strict JSON object of bounded depth is `invalid_json`."""
    assert isinstance(refusal(raw), InvalidJson)


def test_a_duplicate_key_is_refused_by_name() -> None:
    """Two members of the same name are `invalid_json` that names it: parsers disagree on them."""
    failure = refusal(b'{"model":"cheap","model":"expensive","messages":[]}')

    assert (type(failure), failure.param) == (InvalidJson, "model")
    assert "expensive" not in failure.message


def test_a_lone_surrogate_is_refused_with_its_path() -> None:
    """A lone surrogate cannot be sent on in UTF-8, so a client may not send one."""
    failure = refusal(b'{"model":"m","messages":[{"role":"user","content":"a\\ud83c"}]}')

    assert (type(failure), failure.param) == (InvalidJson, "messages[0].content")


def test_a_body_over_the_limit_is_refused() -> None:
    """A body of more bytes than the limit is 413, and one of exactly the limit is read."""
    raw = json.dumps(a_body()).encode()

    assert parse_chat_request(raw, bytes_max=len(raw)).model == "m"
    with pytest.raises(RequestTooLarge) as failure:
        parse_chat_request(raw, bytes_max=len(raw) - 1)
    assert failure.value.status == 413


def test_33_mib_are_too_many() -> None:
    """The default limit is 32 MiB."""
    raw = b'{"model":"' + b"m" * (33 * 1024 * 1024) + b'"}'

    assert BYTES_MAX == 32 * 1024 * 1024
    assert isinstance(refusal(raw), RequestTooLarge)


@pytest.mark.parametrize(
    "member, param",
    [
        ('"temperature":1e400', "temperature"),
        ('"temperature":"hot"', "temperature"),
        ('"temperature":true', "temperature"),
        ('"top_p":[]', "top_p"),
        ('"presence_penalty":-1e999', "presence_penalty"),
        ('"frequency_penalty":"0"', "frequency_penalty"),
        ('"max_tokens":1.5', "max_tokens"),
        ('"max_tokens":"10"', "max_tokens"),
        ('"max_completion_tokens":1e400', "max_completion_tokens"),
        ('"seed":false', "seed"),
        ('"top_logprobs":0.5', "top_logprobs"),
        ('"logit_bias":"x"', "logit_bias"),
        ('"logit_bias":{"50":1e400}', "logit_bias.50"),
        ('"logit_bias":[[1,1],[2,1e400]]', "logit_bias[1]"),
        ('"logit_bias":[1e400]', "logit_bias[0]"),
        ('"top_k":1e400', "top_k"),
        ('"a\\nb":1e400', "a\\nb"),
        ('"stream":"yes"', "stream"),
        ('"stream":1', "stream"),
        ('"stream_options":[]', "stream_options"),
        ('"stream_options":{"include_usage":1}', "stream_options.include_usage"),
        ('"n":0', "n"),
        ('"n":129', "n"),
        ('"n":1.0', "n"),
        ('"n":true', "n"),
        ('"tools":{}', "tools"),
        ('"tools":[{},"x"]', "tools[1]"),
        ('"functions":"f"', "functions"),
    ],
)
def test_a_wrong_type_is_refused_by_name(member: str, param: str) -> None:
    """A parameter of the wrong type is `invalid_value` that names it and not its value."""
    failure = refusal(body_with(member))

    assert (type(failure), failure.param) == (InvalidValue, param)
    assert f"`{param}`" in failure.message
    assert "1e400" not in failure.message


@pytest.mark.parametrize(
    "raw, kind, param",
    [
        (b"{}", MissingParameter, "model"),
        (b'{"model":null,"messages":[]}', InvalidValue, "model"),
        (b'{"model":"","messages":[]}', InvalidValue, "model"),
        (b'{"model":7,"messages":[]}', InvalidValue, "model"),
        (b'{"model":"m"}', MissingParameter, "messages"),
        (b'{"model":"m","messages":[]}', InvalidValue, "messages"),
        (b'{"model":"m","messages":{}}', InvalidValue, "messages"),
        (b'{"model":"m","messages":null}', InvalidValue, "messages"),
        (b'{"model":"m","messages":{"role":"user"}}', InvalidValue, "messages"),
        (b'{"model":"m","messages":"text"}', InvalidValue, "messages"),
    ],
)
def test_model_and_messages_are_required(raw: bytes, kind: type[Failure], param: str) -> None:
    """A request without a model or without messages is refused, and says which."""
    failure = refusal(raw)

    assert (type(failure), failure.param) == (kind, param)


@pytest.mark.parametrize(
    "message, kind, path",
    [
        ("q", InvalidValue, ""),
        ({}, MissingParameter, ".role"),
        ({"role": None}, InvalidValue, ".role"),
        ({"role": ["user"]}, InvalidValue, ".role"),
        ({"role": "robot", "content": "x"}, InvalidValue, ".role"),
        ({"role": "user"}, MissingParameter, ".content"),
        ({"role": "system", "content": None}, InvalidValue, ".content"),
        ({"role": "user", "content": 5}, InvalidValue, ".content"),
        ({"role": "assistant", "content": {}}, InvalidValue, ".content"),
        ({"role": "user", "content": [{}, "x"]}, InvalidValue, ".content[1]"),
        ({"role": "assistant", "tool_calls": {}}, InvalidValue, ".tool_calls"),
        ({"role": "assistant", "tool_calls": ["c"]}, InvalidValue, ".tool_calls[0]"),
    ],
)
def test_a_wrong_message_is_refused_with_its_path(
    message: Any, kind: type[Failure], path: str
) -> None:
    """A message of the wrong shape is refused with the path of what is wrong in it."""
    messages = [{"role": "user", "content": "q"}, message]

    failure = refusal(json.dumps(a_body(messages=messages)).encode())

    assert (type(failure), failure.param) == (kind, f"messages[1]{path}")


def test_a_long_key_is_named_shortly() -> None:
    """A key without bounds does not become a message without bounds."""
    failure = refusal(body_with('"' + "k" * 5000 + '":1e400'))

    assert failure.param is not None
    assert len(failure.param) == 64


def test_numbers_are_finite() -> None:
    """Only a finite JSON number is a number."""
    assert is_number(1)
    assert is_number(0.5)
    assert is_number(Num("0.10"))
    assert not is_number(Num("1e400"))
    assert not is_number(True)
    assert not is_number("1")
