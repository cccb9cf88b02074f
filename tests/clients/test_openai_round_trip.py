"""A conversation that goes on: what the client got goes back, and the provider knows it again."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from everyturn.mock.scenarios import GROUPS, SCENARIOS
from everyturn.mock.scenarios.tools import SHARE, WEIGH
from everyturn.mock.speech import ANSWER, THOUGHT, Speech
from everyturn.presets.load import load_preset
from tests.clients.conftest import QUESTION, Behind, spoken
from tests.mock.reading import script_of, split_answer, written
from tests.support.comparing import differences, read_json
from tests.support.mapping import Mapping

THANKS: Any = {"role": "user", "content": "Thank you. And eighty-five?"}
TEXTS = ("reasoning_content", "reasoning")


def known_again(body: dict[str, Any], preset_name: str) -> dict[str, Any]:
    """The message of an answer as its provider must get it back, by the preset's documented policy.

    What the policy ignores is removed from what the client saw. Else the provider's own form comes
    back, but for what it is known to refuse and for arguments, which are always a text.
    """
    preset = load_preset(preset_name)
    seen = Mapping(preset).body(body)["choices"][0]["message"]
    if preset.history == "ignored":
        return {key: value for key, value in seen.items() if key not in TEXTS}
    message = body["choices"][0]["message"]
    kept = {key: value for key, value in message.items() if key not in preset.history_omit}
    if "tool_calls" in kept:
        kept["tool_calls"] = seen["tool_calls"]
    text = next((kept[key] for key in TEXTS if kept.get(key)), None)
    if kept.get("reasoning_details"):
        # The details say it all.
        return {key: value for key, value in kept.items() if key not in TEXTS}
    if text is not None:
        kept = {key: value for key, value in kept.items() if key not in TEXTS}
        kept[preset.history_carrier] = text
    return kept


def told(model: str) -> dict[str, Any]:
    """The provider's whole answer."""
    body: dict[str, Any] = read_json(split_answer(written(script_of(model), streamed=False))[2])
    return body


def sent(behind: Behind) -> dict[str, Any]:
    """The assistant's message in the newest request that the provider got."""
    message: dict[str, Any] = read_json(behind.mock.requests[-1].body)["messages"][1]
    return message


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # Of content that is a list.
@pytest.mark.parametrize("group", ["Answers", "Reasoning", "Tool calls"])
async def test_whole_answers_go_back(behind: Behind, client: AsyncOpenAI, group: str) -> None:
    """A message of a whole answer, sent back as it is, reaches the provider as it was said."""
    faults: list[str] = []
    for scenario in GROUPS[group]:
        model = scenario.name
        answer = await client.chat.completions.create(model=model, messages=QUESTION)
        message: Any = answer.choices[0].message
        await client.chat.completions.create(model=model, messages=[*QUESTION, message, THANKS])
        expected = known_again(told(model), scenario.preset)
        faults += [f"{model} {fault}" for fault in differences(expected, sent(behind))]

    assert not faults, "\n".join(faults)


STREAMED = (
    *("deepseek", "vllm", "cerebras", "mistral", "openrouter-encrypted", "openrouter-summary"),
    *("tools", "tools-reasoning-between", "tools-no-index", "tools-same-index", "tool-single"),
)
"""Left out is what the helper itself spells wrong: it joins strings that are said in each delta."""


def without_additions(message: dict[str, Any]) -> dict[str, Any]:
    """The message without what the helper adds to it: nulls, and the place of a call."""
    kept = {key: value for key, value in message.items() if value is not None}
    for call in kept.get("tool_calls") or []:
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    return kept


async def test_streamed_answers_go_back(behind: Behind, client: AsyncOpenAI) -> None:
    """A message that the helper put together from a stream reaches the provider as it was said."""
    faults: list[str] = []
    for model in STREAMED:
        async with client.chat.completions.stream(model=model, messages=QUESTION) as stream:
            message: Any = (await stream.get_final_completion()).choices[0].message
        history = [*QUESTION, message, THANKS]
        await client.chat.completions.create(model=model, messages=history)
        expected = without_additions(known_again(told(model), SCENARIOS[model].preset))
        found = without_additions(sent(behind))
        faults += [f"{model} {fault}" for fault in differences(expected, found)]

    assert not faults, "\n".join(faults)


async def test_tool_loop(behind: Behind, client: AsyncOpenAI) -> None:
    """A model reasons and calls tools, gets their results with its reasoning, and answers."""
    first = await client.chat.completions.create(model="tools", messages=QUESTION)
    message = first.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "12"}
        for call in message.tool_calls or []
    ]
    behind.mock.add("scripted", spoken(Speech()))
    history: Any = [*QUESTION, message, *results]
    second = await client.chat.completions.create(
        model="scripted", messages=history, reasoning_effort="high"
    )

    messages = behind.sent()["messages"]
    assert messages[1]["reasoning_content"] == THOUGHT
    assert [call["id"] for call in messages[1]["tool_calls"]] == [WEIGH[0], SHARE[0]]
    assert messages[2:] == results
    assert second.choices[0].message.content == ANSWER


async def test_lost_reasoning_is_named(behind: Behind, client: AsyncOpenAI) -> None:
    """A history that lost the reasoning which the provider certainly wants is refused, and why."""
    first = await client.chat.completions.create(model="tools", messages=QUESTION)
    message = first.choices[0].message.model_dump(exclude={"reasoning_content"})
    history: Any = [*QUESTION, message]
    with pytest.raises(openai.BadRequestError) as failure:
        await client.chat.completions.create(
            model="tools", messages=history, reasoning_effort="high"
        )

    assert failure.value.code == "history_reasoning_missing"
    assert failure.value.param == "messages[1].reasoning_content"


async def test_clamp_is_told(client: AsyncOpenAI) -> None:
    """What a documented clamp made of a control is said in the note header."""
    raw = await client.chat.completions.with_raw_response.create(
        model="deepseek", messages=QUESTION, reasoning_effort="xhigh"
    )

    assert raw.headers["x-everyturn-note"] == "clamped reasoning_effort=xhigh to high"
