"""OpenAI's own clients, made to carry the ids of the turn they are used in."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

import everyturn
from everyturn.errors import InvalidValue
from tests.support.receiver import Receiver, Reply

MESSAGES: Any = [{"role": "user", "content": "hello"}]
ANSWER = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,'
    b'"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}]}'
)


@pytest.fixture
def provider(receiver: Receiver) -> Receiver:
    """A server that answers every chat completion."""
    receiver.always = Reply(200, headers={"content-type": "application/json"}, body=ANSWER)
    return receiver


def ids_of(provider: Receiver, number: int) -> tuple[str | None, str | None]:
    """Turn id and trace of a request."""
    headers, _ = provider.requests[number]
    return headers.get("x-everyturn-turn-id"), headers.get("traceparent")


def test_a_client_sends_the_ids_of_the_turn_it_is_used_in(provider: Receiver) -> None:
    """Each request carries the headers of its own turn and span; outside of a turn none."""
    plain = openai.OpenAI(api_key="sk-test-FAKE", base_url=f"{provider.url}/v1", max_retries=0)
    client = everyturn.with_headers(plain)
    assert isinstance(client, openai.OpenAI)

    with everyturn.capture():
        client.chat.completions.create(model="m", messages=MESSAGES)
        with everyturn.turn() as first:
            client.chat.completions.create(model="m", messages=MESSAGES)
            with first.tool("internal", "x") as run:
                client.with_options(timeout=9).chat.completions.create(model="m", messages=MESSAGES)
            plain.chat.completions.create(model="m", messages=MESSAGES)

    assert ids_of(provider, 0) == (None, None)
    assert ids_of(provider, 1) == (first.id, first.headers()["traceparent"])
    assert ids_of(provider, 2) == (first.id, run.headers()["traceparent"])
    assert ids_of(provider, 3) == (None, None)
    plain.close()


def test_headers_of_a_call_win(provider: Receiver) -> None:
    """What a call says itself is not replaced."""
    client = everyturn.with_headers(
        openai.OpenAI(api_key="sk-test-FAKE", base_url=f"{provider.url}/v1", max_retries=0)
    )
    with everyturn.capture(), everyturn.turn():
        client.chat.completions.create(
            model="m", messages=MESSAGES, extra_headers={"x-everyturn-turn-id": "own"}
        )

    assert ids_of(provider, 0)[0] == "own"
    client.close()


async def test_an_async_client_keeps_concurrent_turns_apart(provider: Receiver) -> None:
    """Requests of turns that run at the same time carry the ids of their own turn."""
    client = everyturn.with_headers(
        openai.AsyncOpenAI(api_key="sk-test-FAKE", base_url=f"{provider.url}/v1", max_retries=0)
    )
    assert isinstance(client, openai.AsyncOpenAI)

    async def ask() -> str:
        with everyturn.turn() as turn:
            await client.chat.completions.create(model=turn.id, messages=MESSAGES)
        return turn.id

    async with client:
        with everyturn.capture() as events:
            turn_ids = await asyncio.gather(*(ask() for _ in range(20)))

    assert len(events) == 20
    for headers, raw in provider.requests:
        assert headers["x-everyturn-turn-id"].encode() in raw
    assert {headers["x-everyturn-turn-id"] for headers, _ in provider.requests} == set(turn_ids)


def test_a_turn_whose_client_carried_headers_leaves_its_outcome_open(provider: Receiver) -> None:
    """The gateway saw the call, so an unfinished turn has the outcome that the gateway found."""
    client = everyturn.with_headers(
        openai.OpenAI(api_key="sk-test-FAKE", base_url=f"{provider.url}/v1", max_retries=0)
    )
    with everyturn.capture() as events, everyturn.turn():
        client.chat.completions.create(model="m", messages=MESSAGES)

    assert "outcome" not in events[0]
    client.close()


@pytest.mark.parametrize("other", [object(), {}, "client"])
def test_what_is_no_client_is_refused(other: Any) -> None:
    """Only clients that have the hook are taken."""
    with pytest.raises(InvalidValue):
        everyturn.with_headers(other)
