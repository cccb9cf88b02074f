"""What the gateway showed it accepts back, and gives to the provider in the provider's own form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from everyturn.presets.load import load_preset, preset_names
from everyturn.wire.dialects.openai_chat import encode
from everyturn.wire.preset import Preset
from everyturn.wire.reader import write
from everyturn.wire.render import body_of_reply
from everyturn.wire.request import parse_chat_request
from tests.support.answers import Form, Said, said, spoken_in, stream, whole
from tests.support.chat_replies import a_target, read_body, read_stream


def form_of(preset: Preset) -> Form:
    """How a provider of this preset says reasoning."""
    target = a_target(preset)
    if preset.tags == "split":
        return Form("tags", target)
    if "content_list" in preset.read:
        return Form("content list", target)
    if "reasoning_details" in preset.read:
        return Form("details and text", target)
    for name in ("reasoning", "reasoning_content"):
        if name in preset.read:
            return Form(name, target)
    return Form("none", target)


def sayable(preset: Preset, answer: Said) -> Said:
    """The answer without members that this provider does not have."""
    if not preset.history_omit:
        return answer
    return replace(
        answer, choices=[replace(c, refusal=None, annotations=[]) for c in answer.choices]
    )


def sent_back(form: Form, message: dict[str, Any]) -> dict[str, Any]:
    """What the provider gets of an assistant message that a client sends back."""
    history = [{"role": "user", "content": "q"}, message]
    history += [
        {"role": "tool", "tool_call_id": call["id"], "content": "r"}
        for call in message.get("tool_calls") or []
    ]
    body = {"model": "m", "messages": [*history, {"role": "user", "content": "go on"}]}
    sent = encode(parse_chat_request(write(body)), form.target, api_key=None).sent
    back: dict[str, Any] = sent["messages"][1]
    return back


@pytest.mark.parametrize("name", preset_names())
@settings(max_examples=30)
@given(answer=said)
def test_what_was_shown_is_accepted_back(name: str, answer: Said) -> None:
    """A rendered message is accepted in a later request, and goes in the provider's own form."""
    preset = load_preset(name)
    form = form_of(preset)
    answer = spoken_in(form, sayable(preset, answer))
    asked = len(answer.choices)
    told = whole(form, answer)
    seen = read_body(form.target, write(told), choices=asked)
    streamed = read_stream(
        form.target, *[write_frame(c) for c in stream(form, answer)], choices=asked
    )

    for at in range(asked):
        provided = told["choices"][at]["message"]
        for body in (seen.body, body_of_reply(seen.reply), body_of_reply(streamed.reply)):
            message = body["choices"][at]["message"]
            back = sent_back(form, message)
            check(preset, provided, back)
            rest = ("content", "reasoning_content", "reasoning", "reasoning_details")
            assert {k: v for k, v in back.items() if k not in rest and v is not None} == {
                k: v for k, v in provided.items() if k not in rest and v is not None
            }


def write_frame(chunk: dict[str, Any]) -> bytes:
    """A chunk as the bytes of an event."""
    return b"data: " + write(chunk) + b"\n\n"


def check(preset: Preset, provided: dict[str, Any], back: dict[str, Any]) -> None:
    """Whether reasoning went back as the preset's history policy says."""
    if preset.history in ("ignored", "forbidden"):
        assert not {"reasoning_content", "reasoning", "reasoning_details"} & set(back)
        return
    carrier = preset.history_carrier
    if carrier == "content_list":
        if isinstance(provided["content"], list) and all(map(_is_said, provided["content"])):
            assert back["content"] == provided["content"]
    elif carrier == "reasoning_details":
        details = [d for d in provided.get("reasoning_details", []) if d["text"]]
        if details:
            assert back["reasoning_details"] == details
    elif carrier != "tags":
        told = next(
            (provided[n] for n in ("reasoning", "reasoning_content") if n in provided), None
        )
        assert back.get(carrier) == told


def _is_said(item: dict[str, Any]) -> bool:
    return bool(item.get("text") or any(part["text"] for part in item.get("thinking", [])))
