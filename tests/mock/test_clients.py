"""An official client sees in the scripted provider what it sees in a real one."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI

from everyturn.mock import MockThread
from everyturn.mock.speech import ANSWER, THOUGHT

QUESTION: list[openai.types.chat.ChatCompletionMessageParam] = [
    {"role": "user", "content": "Share 84 pears among seven people."}
]


@pytest.fixture(scope="module")
def client() -> Iterator[OpenAI]:
    """The official client, without retries."""
    with (
        MockThread() as provider,
        OpenAI(base_url=provider.url, api_key="sk-test-FAKE", max_retries=0) as connected,
    ):
        yield connected


def test_whole_answer(client: OpenAI) -> None:
    """A whole answer has its content, finish and usage."""
    answer = client.chat.completions.create(model="mock-plain", messages=QUESTION)

    assert answer.choices[0].message.content == ANSWER
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 42


def test_streamed_reasoning(client: OpenAI) -> None:
    """A stream has its reasoning and its content, apart."""
    stream = client.chat.completions.create(model="deepseek", messages=QUESTION, stream=True)
    deltas = [choice.delta for chunk in stream for choice in chunk.choices]

    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == THOUGHT
    assert "".join(d.content or "" for d in deltas) == ANSWER


def test_parallel_tool_calls(client: OpenAI) -> None:
    """Both calls arrive whole, streamed as well."""
    whole = client.chat.completions.create(model="tools", messages=QUESTION)
    with client.chat.completions.stream(model="tools", messages=QUESTION) as stream:
        told = stream.get_final_completion()

    assert whole.choices[0].message.tool_calls is not None
    assert told.choices[0].message.tool_calls is not None
    assert [
        call.model_dump()["function"]["arguments"] for call in whole.choices[0].message.tool_calls
    ] == [call.function.arguments for call in told.choices[0].message.tool_calls]


def test_refusal(client: OpenAI) -> None:
    """A refusal is a refusal, streamed as well."""
    whole = client.chat.completions.create(model="refusal", messages=QUESTION)
    with client.chat.completions.stream(model="refusal", messages=QUESTION) as stream:
        told = stream.get_final_completion()

    assert whole.choices[0].message.refusal
    assert told.choices[0].message.refusal == whole.choices[0].message.refusal


@pytest.mark.parametrize(
    "model, kind",
    [
        ("error-400", openai.BadRequestError),
        ("error-401", openai.AuthenticationError),
        ("error-403", openai.PermissionDeniedError),
        ("error-404", openai.NotFoundError),
        ("nobody", openai.NotFoundError),
        ("error-429", openai.RateLimitError),
        ("error-500", openai.InternalServerError),
        ("error-502-html", openai.InternalServerError),
        ("reset-before", openai.APIConnectionError),
        ("close-before", openai.APIConnectionError),
        ("cut-close", openai.APIConnectionError),
    ],
)
def test_errors_are_typed(client: OpenAI, model: str, kind: type[openai.OpenAIError]) -> None:
    """The client raises the error that the scenario stands for."""
    with pytest.raises(kind):
        client.chat.completions.create(model=model, messages=QUESTION)


def test_error_in_a_stream(client: OpenAI) -> None:
    """An error object in a stream raises after what came before it."""
    stream = client.chat.completions.create(model="error-mid", messages=QUESTION, stream=True)

    said = next(iter(stream)).choices[0].delta
    with pytest.raises(openai.APIError, match="orchard caught fire"):
        list(stream)
    assert said.role == "assistant"


def test_models(client: OpenAI) -> None:
    """The models are the scenarios."""
    assert {"mock-plain", "mock-tools"} <= {model.id for model in client.models.list()}
