"""`pydantic-ai` through a gateway: an agent with a tool, whole and streamed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import Agent, ModelHTTPError
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from everyturn.mock.scenarios.tools import SHARE, call, calling, opening
from everyturn.mock.speech import ANSWER, THOUGHT, Said, Speech
from tests.clients.conftest import KEY, Behind, spoken

CALL = (SHARE[0], SHARE[1], '{"people": 7}')
CALLING = calling(
    [opening(0, *CALL)], [call(*CALL)], before=(Said("reasoning_content", "Ask the scales."),)
)
ANSWERING = Speech(said=(Said("reasoning_content", THOUGHT), Said("content", ANSWER)))


@pytest.fixture
async def model(behind: Behind) -> AsyncIterator[OpenAIChatModel]:
    """A model whose answers a test scripts."""
    provider = OpenAIProvider(base_url=behind.url, api_key=KEY)
    async with provider.client.copy(max_retries=0) as connected:
        yield OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=connected))


def sharing(behind: Behind, model: OpenAIChatModel) -> Agent[None, str]:
    """An agent with a tool. The provider answers first with a call of it, then with the answer."""
    behind.mock.add("scripted", spoken(CALLING))
    agent = Agent(model, instructions="Share fairly.")

    @agent.tool_plain
    def share_out(people: int) -> int:
        """Say how many pears each gets."""
        behind.mock.add("scripted", spoken(ANSWERING))
        return 84 // people

    return agent


def thoughts(messages: list[ModelMessage]) -> list[str]:
    """The thinking parts of the responses."""
    return [
        part.content
        for message in messages
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, ThinkingPart)
    ]


async def test_agent_with_a_tool(behind: Behind, model: OpenAIChatModel) -> None:
    """The tool runs, its result and the reasoning go back, and the answer is the model's."""
    result = await sharing(behind, model).run("Share 84 pears among seven people.")

    assert result.output == ANSWER
    assert thoughts(result.all_messages()) == ["Ask the scales.", THOUGHT]
    assert result.usage.output_tokens == 46
    check_history(behind)


async def test_streamed_agent_with_a_tool(behind: Behind, model: OpenAIChatModel) -> None:
    """The same in streams: reasoning and text arrive apart, in pieces."""
    said: dict[str, str] = {"text": "", "thought": ""}
    async with sharing(behind, model).iter("Share 84 pears among seven people.") as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as events:
                    async for event in events:
                        collect(event, said)

    assert run.result is not None
    assert run.result.output == ANSWER
    assert said == {"text": ANSWER, "thought": f"Ask the scales.{THOUGHT}"}
    check_history(behind)


def collect(event: Any, said: dict[str, str]) -> None:
    """Add what an event of a stream says."""
    match event:
        case PartStartEvent(part=TextPart(content=text)):
            said["text"] += text
        case PartStartEvent(part=ThinkingPart(content=text)):
            said["thought"] += text
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            said["text"] += text
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
            said["thought"] += text


def check_history(behind: Behind) -> None:
    """The second request holds the call with its reasoning, and the tool's result."""
    assert len(behind.mock.requests) == 2
    _, _, asked, result = behind.sent()["messages"]
    assert asked["reasoning_content"] == "Ask the scales."
    assert [one["id"] for one in asked["tool_calls"]] == [SHARE[0]]
    assert (result["tool_call_id"], result["content"]) == (SHARE[0], "12")


async def test_failures(behind: Behind, model: OpenAIChatModel) -> None:
    """A refused request and a stream that broke off are its own exceptions, with our code."""
    client = model.client
    unknown = OpenAIChatModel("nobody", provider=OpenAIProvider(openai_client=client))
    cut = OpenAIChatModel("cut-clean", provider=OpenAIProvider(openai_client=client))
    with pytest.raises(ModelHTTPError) as refused:
        await Agent(unknown).run("Hello.")
    with pytest.raises(ModelAPIError, match="broke off"):
        async with Agent(cut).run_stream("Hello.") as streamed:
            await streamed.get_output()

    body: Any = refused.value.body
    assert refused.value.status_code == 404
    assert body["code"] == "model_not_found"
