"""Failures as the official Python client raises them: its own types, with what is needed to act."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from tests.clients.conftest import KEY, QUESTION, Behind, blocking
from tests.support.scripted_upstream import until

STATUS: list[tuple[str, type[openai.APIStatusError], str]] = [
    ("error-400", openai.BadRequestError, "upstream_rejected"),
    ("error-404", openai.NotFoundError, "upstream_rejected"),
    ("error-429", openai.RateLimitError, "upstream_rejected"),
    ("error-429-date", openai.RateLimitError, "upstream_rejected"),
    # A key that the provider refuses is the operator's business, not that of the client's key.
    ("error-401", openai.InternalServerError, "upstream_error"),
    ("error-500", openai.InternalServerError, "upstream_error"),
    ("error-502-html", openai.InternalServerError, "upstream_error"),
    ("error-200", openai.InternalServerError, "upstream_error"),
    ("error-first", openai.InternalServerError, "upstream_error"),
    ("no-choices", openai.InternalServerError, "upstream_error"),
    ("reset-before", openai.InternalServerError, "upstream_unreachable"),
    ("nobody", openai.NotFoundError, "model_not_found"),
]
"""Model → what the client raises before it has seen anything, and the code."""

IN_STREAM: list[tuple[str, str]] = [
    ("error-mid", "upstream_error"),
    ("cut-clean", "upstream_stream_incomplete"),
    ("cut-abort", "upstream_stream_incomplete"),
    ("cut-close", "upstream_stream_incomplete"),
]
"""Model → the code with which a stream ends that had begun."""


@pytest.mark.parametrize(("model", "kind", "code"), STATUS)
async def test_status_errors(
    behind: Behind, model: str, kind: type[openai.APIStatusError], code: str
) -> None:
    """A failure is raised as the type that its status stands for, with our code and a hint."""

    def use(client: OpenAI) -> openai.APIStatusError:
        with pytest.raises(kind) as failure:
            client.chat.completions.create(model=model, messages=QUESTION)
        return failure.value

    error: Any = await blocking(behind, use)

    assert error.code == code
    assert error.body["hint"]
    assert error.response.headers["x-request-id"]


async def test_rate_limit_says_how_long_to_wait(client: AsyncOpenAI) -> None:
    """`retry-after` and the provider's own words and code are on the exception."""
    with pytest.raises(openai.RateLimitError, match="pears") as failure:
        await client.chat.completions.create(model="error-429", messages=QUESTION, stream=True)

    error: Any = failure.value
    assert int(error.response.headers["retry-after"]) > 0
    assert "x-ratelimit-remaining-requests" in error.response.headers
    assert error.body["upstream_code"]


async def test_unknown_parameter_is_named(client: AsyncOpenAI) -> None:
    """A parameter that nobody knows is refused by its name, and nothing is sent on."""
    with pytest.raises(openai.BadRequestError) as failure:
        await client.chat.completions.create(
            model="plain", messages=QUESTION, extra_body={"top_k": 3}
        )

    assert (failure.value.code, failure.value.param) == ("unknown_parameter", "top_k")


@pytest.mark.parametrize(("model", "code"), IN_STREAM)
async def test_stream_that_fails(
    behind: Behind, client: AsyncOpenAI, model: str, code: str
) -> None:
    """A stream that breaks off raises after what came before it, for both kinds of client."""
    stream = await client.chat.completions.create(model=model, messages=QUESTION, stream=True)
    said: list[str] = []
    with pytest.raises(openai.APIError) as failure:
        async for chunk in stream:
            said += [choice.delta.content or "" for choice in chunk.choices]

    def use(blocking_client: OpenAI) -> openai.APIError:
        chunks = blocking_client.chat.completions.create(
            model=model, messages=QUESTION, stream=True
        )
        with pytest.raises(openai.APIError) as raised:
            list(chunks)
        return raised.value

    assert "".join(said)
    for error in (failure.value, await blocking(behind, use)):
        assert error.code == code
        assert error.message


async def test_stream_helper_does_not_take_half_an_answer(client: AsyncOpenAI) -> None:
    """The helper for streams raises too, so half an answer is never taken for one."""
    with pytest.raises(openai.APIError) as failure:
        async with client.chat.completions.stream(model="cut-clean", messages=QUESTION) as stream:
            await stream.get_final_completion()

    assert failure.value.code == "upstream_stream_incomplete"


async def test_whole_answer_that_breaks_off(client: AsyncOpenAI) -> None:
    """A whole answer that was cut is an error, not a connection that the client must guess at."""
    with pytest.raises(openai.InternalServerError) as failure:
        await client.chat.completions.create(model="cut-abort", messages=QUESTION)

    assert failure.value.code == "upstream_stream_incomplete"


async def test_retries_of_the_client_are_turns_of_their_own(behind: Behind) -> None:
    """A client that tries again after a failure asks the provider again."""
    async with AsyncOpenAI(base_url=behind.url, api_key=KEY, max_retries=1) as client:
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="error-500", messages=QUESTION)

    assert [seen.scenario for seen in behind.mock.requests] == ["error-500"] * 2


async def test_closing_a_stream_ends_the_call(behind: Behind, client: AsyncOpenAI) -> None:
    """A client that stops reading makes the gateway leave the provider, within a second."""
    stream = await client.chat.completions.create(model="hang-mid", messages=QUESTION, stream=True)
    first = await anext(aiter(stream))
    await stream.close()

    async with asyncio.timeout(1.5):
        await until(lambda: behind.mock.stats().aborts_of("hang-mid") == 1)
    assert first.choices
