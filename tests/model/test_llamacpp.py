"""A real model behind a gateway: llama.cpp's server with a small model, asked by the official
client. What matters is that nothing of it is lost; the answers themselves are not worth reading."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from tests.support.gateway import running_gateway
from tests.support.paired import a_worker, on_worker, paired
from tests.support.scripted_upstream import until

pytestmark = pytest.mark.slow  # Loading the model takes seconds.

WAIT_S = 240.0
"""Bound on one answer, for a machine that has other things to do."""
CANCELLED_S = 20.0
PATIENCE = {"first_byte_ms": 240_000, "idle_ms": 240_000}
FIXED: dict[str, Any] = {
    "model": "small",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "temperature": 0,
    "seed": 7,
    "max_tokens": 12,
}
EXACT = {"cache_prompt": False, "timings_per_token": True}
"""Without the cache of prompts, equal requests are computed in equal steps."""


@pytest.fixture(scope="module")
def model_server(model_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a model server in a process of its own."""
    log = tmp_path_factory.mktemp("model") / "server.log"
    script = Path(__file__).with_name("serve.py")
    with log.open("wb") as told:
        process = subprocess.Popen(
            [sys.executable, str(script), str(model_file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
        )
        try:
            assert process.stdout is not None
            address = next((line for line in process.stdout if line.startswith("http")), None)
            assert address is not None, log.read_text(errors="replace")[-2000:]
            yield address.strip()
        finally:
            process.terminate()
            process.communicate(timeout=30)


@pytest.fixture
async def client(model_server: str, tmp_path: Path) -> AsyncIterator[AsyncOpenAI]:
    """The official client of a gateway before the model server."""
    entry = {
        "name": "small",
        "preset": "llamacpp",
        "base_url": f"{model_server}/v1",
        "timeouts": PATIENCE,
    }
    async with (
        running_gateway([entry], tmp_path / "data") as running,
        AsyncOpenAI(
            base_url=running.url, api_key="sk-test-FAKE", max_retries=0, timeout=WAIT_S
        ) as connected,
    ):
        yield connected


async def direct(model_server: str, **more: Any) -> dict[str, Any]:
    """The answer of the model server itself."""
    async with httpx.AsyncClient(timeout=WAIT_S, trust_env=False) as client:
        answer = await client.post(
            f"{model_server}/v1/chat/completions", json={**FIXED, **EXACT, **more}
        )
        answer.raise_for_status()
        body: dict[str, Any] = answer.json()
        return body


async def test_whole_and_streamed_answers(model_server: str, client: AsyncOpenAI) -> None:
    """Through the gateway, whole and streamed, comes what the server itself says to the same
    request, with its usage and timings."""
    expected = await direct(model_server)
    whole: Any = await client.chat.completions.create(**FIXED, extra_body=EXACT)
    stream: Any = await client.chat.completions.create(
        **FIXED, extra_body=EXACT, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]

    text = expected["choices"][0]["message"]["content"]
    assert text
    assert whole.choices[0].message.content == text
    assert "".join(c.delta.content or "" for chunk in chunks for c in chunk.choices) == text
    for usage in (whole.usage, chunks[-1].usage):
        told = usage.model_dump(exclude_unset=True)
        assert told == expected["usage"]
    assert set(whole.timings) == set(expected["timings"])
    assert sum("timings" in chunk.model_extra for chunk in chunks) > FIXED["max_tokens"] / 2
    finishes = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason]
    assert finishes == [expected["choices"][0]["finish_reason"]]


async def test_schema_reaches_the_model(client: AsyncOpenAI) -> None:
    """A schema that leaves the model no choice but two comes back as one of them."""
    schema = {"type": "string", "enum": ["yes", "no"]}
    answer = await client.chat.completions.create(
        **FIXED,
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
    )

    assert json.loads(answer.choices[0].message.content or "") in ("yes", "no")


async def test_error_of_the_server(client: AsyncOpenAI) -> None:
    """What the server refuses is refused with its status and its own words."""
    with pytest.raises(openai.BadRequestError, match="grammar") as failure:
        await client.chat.completions.create(**FIXED, extra_body={"grammar": "root ::= ("})

    body: Any = failure.value.body
    assert body["code"] == "upstream_rejected"
    assert body["upstream_code"] == 400


async def test_client_that_leaves_cancels_the_generation(
    model_server: str, client: AsyncOpenAI
) -> None:
    """A client that stops reading stops the model long before its answer would have ended."""
    long = {**FIXED, "max_tokens": 1800}
    stream = await client.chat.completions.create(
        **long, extra_body={"ignore_eos": True}, stream=True
    )
    async with httpx.AsyncClient(base_url=model_server, timeout=WAIT_S, trust_env=False) as server:
        await anext(aiter(stream))
        assert (await slot(server))["is_processing"]

        await stream.close()

        async with asyncio.timeout(CANCELLED_S):
            while (idle := await slot(server))["is_processing"]:
                await asyncio.sleep(0.1)
    # Prompt and answer so far.
    assert idle["n_prompt_tokens"] < long["max_tokens"] / 2


async def slot(server: httpx.AsyncClient) -> dict[str, Any]:
    """What the server's one slot is doing."""
    (one,) = (await server.get("/slots")).json()
    assert isinstance(one, dict)
    return one


async def test_behind_a_worker(model_server: str, tmp_path: Path) -> None:
    """The same model behind a worker answers the official client, whole and streamed, as itself."""
    expected = (await direct(model_server))["choices"][0]["message"]["content"]
    entry = on_worker("small", preset="llamacpp", timeouts=PATIENCE)
    async with running_gateway([entry], tmp_path / "data") as running:
        gateway = f"ws://127.0.0.1:{running.gateway.port}"
        await paired(gateway, tmp_path / "data", tmp_path / "worker")
        async with (
            a_worker(tmp_path / "worker", f"{model_server}/v1") as beside,
            AsyncOpenAI(
                base_url=running.url, api_key="sk-test-FAKE", max_retries=0, timeout=WAIT_S
            ) as client,
        ):
            await until(lambda: beside.has("worker.connected"))
            whole = await client.chat.completions.create(**FIXED, extra_body=EXACT)
            stream: Any = await client.chat.completions.create(
                **FIXED, extra_body=EXACT, stream=True
            )
            chunks = [chunk async for chunk in stream]

    assert whole.choices[0].message.content == expected
    assert "".join(c.delta.content or "" for chunk in chunks for c in chunk.choices) == expected
