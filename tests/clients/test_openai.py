"""The official Python client through a gateway, blocking and asynchronous."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import Any

import pydantic
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk

from everyturn.mock.scenarios.answers import REFUSAL
from everyturn.mock.scenarios.tools import SHARE, WEIGH
from everyturn.mock.speech import ANSWER, THOUGHT, Said, Speech
from tests.clients.conftest import QUESTION, Behind, blocking, spoken

TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("weigh_fruit", "share_out")
]


def deltas(chunks: list[ChatCompletionChunk], key: str) -> str:
    """The text that a stream holds under a key of its deltas."""
    return "".join(
        getattr(choice.delta, key, None) or "" for chunk in chunks for choice in chunk.choices
    )


# ------------------------------------------------------------------------------ answers


async def test_whole_answer(behind: Behind, client: AsyncOpenAI) -> None:
    """A whole answer has its content, finish and usage, for both kinds of client."""

    def use(blocking_client: OpenAI) -> Any:
        return blocking_client.chat.completions.create(model="plain", messages=QUESTION)

    for answer in (
        await blocking(behind, use),
        await client.chat.completions.create(model="plain", messages=QUESTION),
    ):
        assert answer.choices[0].message.content == ANSWER
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        assert answer.usage.total_tokens == 42


async def test_stream(behind: Behind, client: AsyncOpenAI) -> None:
    """A stream has the same content and, where asked for, the usage, for both kinds of client."""
    more: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}

    def use(blocking_client: OpenAI) -> list[ChatCompletionChunk]:
        return list(
            blocking_client.chat.completions.create(model="plain", messages=QUESTION, **more)
        )

    stream = await client.chat.completions.create(model="plain", messages=QUESTION, **more)
    for chunks in (await blocking(behind, use), [chunk async for chunk in stream]):
        assert deltas(chunks, "content") == ANSWER
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens == 42
        assert [c.finish_reason for chunk in chunks for c in chunk.choices][-1] == "stop"


async def test_turn_id_of_an_answer(client: AsyncOpenAI) -> None:
    """The turn's id is a header of the raw response, streamed and whole."""
    raw = await client.chat.completions.with_raw_response.create(model="plain", messages=QUESTION)
    async with client.chat.completions.with_streaming_response.create(
        model="plain", messages=QUESTION, stream=True
    ) as streamed:
        ids = {raw.headers["x-everyturn-turn-id"], streamed.headers["x-everyturn-turn-id"]}

    assert len(ids) == 2
    assert raw.parse().choices[0].message.content == ANSWER


@pytest.mark.parametrize("model", ["deepseek", "vllm", "openrouter", "mistral"])
async def test_reasoning(client: AsyncOpenAI, model: str) -> None:
    """Reasoning stands at `reasoning_content`, whatever the provider calls it."""
    whole = await client.chat.completions.create(model=model, messages=QUESTION)
    stream = await client.chat.completions.create(model=model, messages=QUESTION, stream=True)
    chunks = [chunk async for chunk in stream]

    message: Any = whole.choices[0].message
    assert (message.reasoning_content, message.content) == (THOUGHT, ANSWER)
    assert (deltas(chunks, "reasoning_content"), deltas(chunks, "content")) == (THOUGHT, ANSWER)


async def test_reasoning_in_tags(client: AsyncOpenAI) -> None:
    """Where a preset splits tags, the content is free of them."""
    stream = await client.chat.completions.create(
        model="think-tags", messages=QUESTION, stream=True
    )
    chunks = [chunk async for chunk in stream]

    assert deltas(chunks, "reasoning_content") == THOUGHT
    assert deltas(chunks, "content").strip() == ANSWER


async def test_refusal(client: AsyncOpenAI) -> None:
    """A refusal is a refusal, and the helper for streams says so."""
    whole = await client.chat.completions.create(model="refusal", messages=QUESTION)
    async with client.chat.completions.stream(model="refusal", messages=QUESTION) as stream:
        events = [event.type async for event in stream]
        told = await stream.get_final_completion()

    assert whole.choices[0].message.refusal == REFUSAL
    assert told.choices[0].message.refusal == REFUSAL
    assert "refusal.done" in events


async def test_two_choices(client: AsyncOpenAI) -> None:
    """Two choices arrive apart, whole and streamed."""
    whole = await client.chat.completions.create(model="n2", messages=QUESTION, n=2)
    stream = await client.chat.completions.create(model="n2", messages=QUESTION, n=2, stream=True)
    chunks = [choice async for chunk in stream for choice in chunk.choices]

    for choice in whole.choices:
        mine = [chunk for chunk in chunks if chunk.index == choice.index]
        assert "".join(chunk.delta.content or "" for chunk in mine) == choice.message.content
        assert mine[-1].finish_reason == choice.finish_reason


async def test_log_probabilities(client: AsyncOpenAI) -> None:
    """Log probabilities keep their tokens, bytes and alternatives."""
    answer = await client.chat.completions.create(
        model="logprobs", messages=QUESTION, logprobs=True, top_logprobs=2
    )

    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    assert "".join(token.token for token in logprobs.content)
    assert all(token.top_logprobs for token in logprobs.content)


class Share(pydantic.BaseModel):
    """What a structured answer is parsed into."""

    people: int
    pears_each: int


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_structured_output(behind: Behind, client: AsyncOpenAI, is_streamed: bool) -> None:
    """A schema reaches the provider, and its JSON answer is parsed into the class."""
    speech = Speech(said=(Said("content", '{"people": 7, "pears_each": 12}', size=4),))
    behind.mock.add("scripted", spoken(speech))
    if is_streamed:
        async with client.chat.completions.stream(
            model="scripted", messages=QUESTION, response_format=Share
        ) as stream:
            answer: Any = await stream.get_final_completion()
    else:
        answer = await client.chat.completions.parse(
            model="scripted", messages=QUESTION, response_format=Share
        )

    assert answer.choices[0].message.parsed == Share(people=7, pears_each=12)
    schema = behind.sent()["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["people", "pears_each"]


async def test_models(client: AsyncOpenAI) -> None:
    """The models are those of the gateway."""
    listed = [model.id async for model in client.models.list()]
    one = await client.models.retrieve("plain")

    assert {"plain", "deepseek", "tools"} <= set(listed)
    assert one.id == "plain"


# ------------------------------------------------------------------------------ tools


def by_hand(chunks: Iterable[ChatCompletionChunk]) -> list[Any]:
    """Tool calls as applications put them together: by index, arguments joined."""
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(part.index, ["", "", ""])
                function = part.function
                call[0] = part.id or call[0]
                call[1] += (function.name if function else None) or ""
                call[2] += (function.arguments if function else None) or ""
    return [tuple(calls[index]) for index in sorted(calls)]


def called(message: Any) -> list[Any]:
    """The calls of a whole message, in the same form."""
    return [
        (call.id, call.function.name, call.function.arguments) for call in message.tool_calls or []
    ]


async def test_parallel_tool_calls(behind: Behind, client: AsyncOpenAI) -> None:
    """Two calls whose fragments were interleaved are whole: by hand, by the helper, unstreamed."""

    def use(blocking_client: OpenAI) -> Any:
        chunks = blocking_client.chat.completions.create(
            model="tools", messages=QUESTION, tools=TOOLS, stream=True
        )
        with (
            closing(chunks),
            blocking_client.chat.completions.stream(
                model="tools", messages=QUESTION, tools=TOOLS
            ) as stream,
        ):
            return by_hand(chunks), stream.get_final_completion()

    hand, told = await blocking(behind, use)
    whole = await client.chat.completions.create(model="tools", messages=QUESTION, tools=TOOLS)

    assert hand == called(told.choices[0].message) == called(whole.choices[0].message)
    assert hand == [WEIGH, SHARE]
    assert told.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("model", ["tools-no-index", "tools-same-index"])
async def test_tool_calls_of_careless_providers(client: AsyncOpenAI, model: str) -> None:
    """Calls without an index, or all with the same, stay apart for a client that merges by it."""
    whole = await client.chat.completions.create(model=model, messages=QUESTION, tools=TOOLS)
    stream = await client.chat.completions.create(
        model=model, messages=QUESTION, tools=TOOLS, stream=True
    )
    hand = by_hand([chunk async for chunk in stream])

    assert len(hand) == 2
    assert hand == called(whole.choices[0].message)
