"""`langchain-openai` through a gateway: invoke, stream, tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from everyturn.mock.scenarios.tools import SHARE, WEIGH
from everyturn.mock.speech import ANSWER, Speech
from tests.clients.conftest import KEY, Behind, spoken

QUESTION = "Share 84 pears among seven people."


@tool
def share_out(people: int) -> int:
    """Say how many pears each gets."""
    return 84 // people


@pytest.fixture
async def connected() -> AsyncIterator[httpx.AsyncClient]:
    """Connections that are closed with the test."""
    async with httpx.AsyncClient(trust_env=False) as client:
        yield client


def chat(behind: Behind, connected: httpx.AsyncClient, model: str) -> Any:
    """A chat model as an application configures it."""
    return ChatOpenAI(
        base_url=behind.url,
        api_key=KEY,  # type: ignore[arg-type]
        model=model,
        max_retries=0,
        stream_usage=True,
        http_async_client=connected,
    )


async def joined(stream: AsyncIterator[Any]) -> AIMessageChunk:
    """The chunks of a stream, added up."""
    total: Any = None
    async for chunk in stream:
        total = chunk if total is None else total + chunk
    assert isinstance(total, AIMessageChunk)
    return total


async def test_invoke_and_stream(behind: Behind, connected: httpx.AsyncClient) -> None:
    """Whole and streamed, an answer has its content, finish and usage."""
    model = chat(behind, connected, "plain")
    whole = await model.ainvoke(QUESTION)
    told = await joined(model.astream(QUESTION))

    for answer in (whole, told):
        assert answer.content == ANSWER
        assert answer.response_metadata["finish_reason"] == "stop"
        assert answer.usage_metadata["total_tokens"] == 42


async def test_tools(behind: Behind, connected: httpx.AsyncClient) -> None:
    """Parallel calls arrive whole, streamed as well, and their results go back."""
    model = chat(behind, connected, "tools").bind_tools([share_out])
    whole = await model.ainvoke(QUESTION)
    told = await joined(model.astream(QUESTION))

    assert [(call["id"], call["name"]) for call in whole.tool_calls] == [WEIGH[:2], SHARE[:2]]
    assert told.tool_calls == whole.tool_calls

    result = ToolMessage(content="12", tool_call_id=SHARE[0])
    behind.mock.add("scripted", spoken(Speech()))
    answer = await chat(behind, connected, "scripted").ainvoke(
        [HumanMessage(QUESTION), whole, result]
    )
    sent = behind.sent()["messages"]
    assert answer.content == ANSWER
    assert [call["function"]["name"] for call in sent[1]["tool_calls"]] == [WEIGH[1], SHARE[1]]
    assert sent[2]["content"] == "12"


async def test_failures(behind: Behind, connected: httpx.AsyncClient) -> None:
    """A rate limit and a stream that broke off raise what the SDK underneath raises."""
    with pytest.raises(openai.RateLimitError):
        await chat(behind, connected, "error-429").ainvoke(QUESTION)
    with pytest.raises(openai.APIError) as failure:
        await joined(chat(behind, connected, "cut-clean").astream(QUESTION))

    assert failure.value.code == "upstream_stream_incomplete"
