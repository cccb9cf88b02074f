"""What holds for any request: it is refused by type, or it arrives with its meaning intact."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everyturn.errors import CallerFault, Failure
from everyturn.presets.load import load_preset, preset_names
from everyturn.wire.dialects.openai_chat import encode
from everyturn.wire.preset import Target
from everyturn.wire.reader import read_client, write
from everyturn.wire.request import CHAT_PARAMETERS, ROLES, parse_chat_request
from tests.support.chat_requests import a_target

TARGETS = [a_target(load_preset(name)) for name in preset_names()]
TARGETS += [
    a_target(target.preset, **narrowed)
    for target in TARGETS
    for narrowed in (
        {"history_reasoning": "strip", "stream": "never"},
        {"history_reasoning": "reject", "thinking_on": True},
        {"on_drift": "carry", "stream": "always", "reasoning": True},
    )
]


class Text(str):
    """The source text of a JSON number."""


def numbers_as_text(raw: bytes | str) -> Any:
    """A JSON text as a tree in which each number is its own source text."""
    return json.loads(raw, parse_int=Text, parse_float=Text)


characters = st.characters(codec="utf-8")
texts = st.text(characters, max_size=12)
numbers = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?", fullmatch=True),
)
"""Texts of JSON numbers in every notation."""


def written(value: Any) -> str:
    """A tree as JSON text, in which a Text stands as the number it is."""
    if isinstance(value, Text):
        return str(value)
    if isinstance(value, dict):
        members = (f"{json.dumps(key)}: {written(item)}" for key, item in value.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value)


values = st.recursive(
    st.one_of(st.none(), st.booleans(), texts, numbers.map(Text)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)
objects = st.dictionaries(texts, values, max_size=3)


def parts(*kinds: str) -> st.SearchStrategy[dict[str, Any]]:
    """Items of a content list of these types."""
    return st.builds(lambda kind, rest: {**rest, "type": kind}, st.sampled_from(kinds), objects)


thoughts = st.one_of(st.none(), texts)
details = st.one_of(
    st.none(), st.lists(st.builds(lambda rest: {"type": "thinking", **rest}, objects), max_size=2)
)

CARRIERS: dict[str, st.SearchStrategy[Any]] = {
    "reasoning_content": thoughts,
    "reasoning": thoughts,
    "thinking": st.one_of(thoughts, values),
    "reasoning_details": details,
    "thinking_blocks": details,
}
other_members: dict[str, st.SearchStrategy[Any]] = {
    "name": texts,
    "refusal": thoughts,
    "annotations": st.lists(values, max_size=2),
    "extra_content": objects,
    "tool_calls": st.lists(objects, max_size=2),
    "tool_call_id": texts,
}


def messages(
    carriers: dict[str, st.SearchStrategy[Any]], *kinds: str
) -> st.SearchStrategy[dict[str, Any]]:
    """Messages with these carriers of reasoning and with content items of these types."""
    required: dict[str, st.SearchStrategy[Any]] = {
        "role": st.sampled_from(ROLES),
        "content": st.one_of(texts, st.lists(parts("text", "image_url", *kinds), max_size=3)),
    }
    return st.fixed_dictionaries(required, optional={**other_members, **carriers})


plain_messages = messages({})
any_messages = messages(CARRIERS, "thinking", "reference")

CARRIED = sorted(
    CHAT_PARAMETERS
    - {"model", "messages", "stream", "stream_options", "n", "reasoning_effort"}
    - {"temperature", "top_p", "frequency_penalty", "presence_penalty", "logit_bias"}
    - {"max_tokens", "max_completion_tokens", "top_logprobs", "seed", "tools", "functions"}
)
"""Parameters of which the gateway reads nothing but that they are no odd number."""

inner_values = st.one_of(st.none(), texts, st.lists(values, max_size=3), objects)
finite = st.floats(allow_nan=False, allow_infinity=False).map(lambda value: Text(repr(value)))
optional_members: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(CARRIED, inner_values),
    "temperature": finite,
    "seed": st.integers().map(lambda value: Text(value)),
    "stream": st.one_of(st.none(), st.booleans()),
    "n": st.integers(1, 128).map(lambda value: Text(value)),
    "tools": st.lists(objects, max_size=3),
}


def bodies(of: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Request bodies whose types are as they should be, with messages of one kind."""
    return st.fixed_dictionaries(
        {"model": texts.filter(bool), "messages": st.lists(of, min_size=1, max_size=3)},
        optional=optional_members,
    )


@given(body=bodies(plain_messages))
@example(body={"model": "\x00", "messages": [{"role": "user", "content": "\u2028 \U0010ffff"}]})
@example(
    body={"model": "m", "messages": [{"role": "user", "content": "", "x": [Text("1e400")]}]},
)
def test_a_valid_request_arrives_with_its_meaning(body: dict[str, Any]) -> None:
    """Any valid request is sent with equal JSON meaning, number texts and member order included."""
    raw = written(body).encode()

    result = encode(parse_chat_request(raw), a_target(upstream_model="up"), api_key=None)

    got = numbers_as_text(result.body)
    expected = numbers_as_text(raw)
    assert got == {**expected, "model": "up"}
    assert written(got) == written({**expected, "model": "up"})


@given(
    body=bodies(any_messages),
    target=st.sampled_from(TARGETS),
    controls=st.fixed_dictionaries(
        {},
        optional={
            "reasoning_effort": st.one_of(values, st.sampled_from(["none", "low", "max"])),
            "reasoning": st.one_of(
                values,
                st.fixed_dictionaries(
                    {},
                    optional={
                        "enabled": st.booleans(),
                        "effort": st.sampled_from(["none", "minimal", "high"]),
                        "max_tokens": st.integers(-1, 9).map(lambda value: Text(value)),
                        "exclude": st.booleans(),
                    },
                ),
            ),
            "thinking": st.one_of(values, st.just({"type": "enabled"})),
            "stream_options": st.one_of(st.none(), objects),
        },
    ),
)
def test_any_request_is_sent_or_refused_by_type(
    body: dict[str, Any], target: Target, controls: dict[str, Any]
) -> None:
    """Under every preset a request is encoded, or refused as the caller's fault; nothing else."""
    raw = written({**body, **controls}).encode()
    request = outcome(lambda: parse_chat_request(raw))
    if isinstance(request, CallerFault):
        assert request.param is not None
        return
    result = outcome(lambda: encode(request, target, api_key=None))
    if isinstance(result, CallerFault):
        assert result.param is not None
        return

    assert numbers_as_text(write(request.body)) == numbers_as_text(raw)
    got = numbers_as_text(result.body)["messages"]
    assert [message["role"] for message in got] == [message["role"] for message in body["messages"]]
    for sent, message in zip(got, body["messages"], strict=True):
        if message["role"] != "assistant":
            assert sent == message


@given(body=bodies(any_messages), target=st.sampled_from(TARGETS), is_turned=st.booleans())
@example(
    body={"model": "m", "messages": [{"role": "user", "content": 'q"model":"m"'}]},
    target=a_target(upstream_model='u"p'),
    is_turned=True,
)
@example(
    body={"model": "m", "messages": [{"role": "user", "content": "q", "x": {"model": "m"}}]},
    target=a_target(upstream_model="up"),
    is_turned=True,
)
def test_the_body_that_is_sent_is_what_is_written_for_its_tree(
    body: dict[str, Any], target: Target, is_turned: bool
) -> None:
    """Also where the client's own bytes are taken for it, wherever the model is named in them."""
    members = dict(reversed(body.items())) if is_turned else body
    request = outcome(lambda: parse_chat_request(write(read_client(written(members).encode()))))
    if isinstance(request, CallerFault):
        return

    result = outcome(lambda: encode(request, target, api_key=None))

    if not isinstance(result, CallerFault):
        assert result.body == write(result.sent)


def outcome(act: Callable[[], Any]) -> Any:
    """What `act` returns, or the caller's fault that it raises."""
    try:
        return act()
    except CallerFault as fault:
        return fault


@given(raw=st.binary(max_size=200))
@example(raw=b"")
@example(raw=b"\xff")
@example(raw=b"[" * 100_000)
@example(raw=b'{"a":' * 100_000)
@example(raw=b"1" * 5_000)
@example(raw=b'"\\ud800"')
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    """Arbitrary bytes raise a typed failure and nothing else."""
    with pytest.raises(Failure):
        parse_chat_request(raw)


@given(value=values, key=st.sampled_from([*sorted(CHAT_PARAMETERS), "other"]))
def test_any_value_of_any_parameter_is_read_or_refused(value: Any, key: str) -> None:
    """Any JSON value at any parameter is carried, or refused with the parameter's name."""
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], key: value}
    result = outcome(lambda: parse_chat_request(written(body).encode()))

    if isinstance(result, CallerFault):
        assert result.param is not None
        assert result.param.startswith(key)
    else:
        assert numbers_as_text(write(result.body)) == numbers_as_text(written(body))


@given(value=values)
def test_any_json_is_read_or_refused(value: Any) -> None:
    """Arbitrary JSON that is no request raises a typed failure and nothing else."""
    with pytest.raises(Failure):
        parse_chat_request(written(value).encode())
