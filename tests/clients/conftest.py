"""A gateway with the scripted provider behind it, for clients that applications use."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from everyturn.mock.scenarios import SCENARIOS
from everyturn.mock.script import Script
from everyturn.mock.server import MockProvider
from everyturn.mock.speech import Speech
from tests.support.gateway import Running, running_gateway

KEY = "sk-test-FAKE"
QUESTION: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "Share 84 pears among seven people."}
]
Result = TypeVar("Result")

MODELS: dict[str, tuple[str, str]] = {
    **{name: (scenario.preset, name) for name, scenario in SCENARIOS.items()},
    "scripted": ("deepseek", "scripted"),
}
"""What a client asks for → preset, and scenario of the provider; `scripted` is for a test's own."""


class Behind:
    """The gateway as a client sees it, and the provider behind it."""

    def __init__(self, running: Running, mock: MockProvider) -> None:
        self.url = running.url
        self.port = running.gateway.port
        self.mock = mock

    def sent(self, position: int = -1) -> Any:
        """The body of a request that the provider received, the newest by default."""
        return self.mock.requests[position].json()


@pytest.fixture
async def behind(tmp_path: Path) -> AsyncIterator[Behind]:
    """A running gateway in this test's loop; a client that blocks belongs in a thread."""
    async with MockProvider() as mock:
        models = [
            {"name": name, "preset": preset, "base_url": mock.url, "upstream_model": scenario}
            for name, (preset, scenario) in MODELS.items()
        ]
        async with running_gateway(models, tmp_path / "data") as running:
            yield Behind(running, mock)


@pytest.fixture
async def client(behind: Behind) -> AsyncIterator[AsyncOpenAI]:
    """The asynchronous client, without retries of its own."""
    async with AsyncOpenAI(base_url=behind.url, api_key=KEY, max_retries=0) as connected:
        yield connected


async def blocking(behind: Behind, use: Callable[[OpenAI], Result]) -> Result:
    """What `use` returns for a blocking client, in a thread of its own."""

    def run() -> Result:
        with OpenAI(base_url=behind.url, api_key=KEY, max_retries=0) as client:
            return use(client)

    return await asyncio.to_thread(run)


def spoken(speech: Speech) -> Script:
    """The script of a speech, for a model that is scripted by the test."""
    return Script.pair(
        whole=Script.whole(body=body_of(speech)), stream=Script.sse(speech.frames("scripted"))
    )


def body_of(speech: Speech) -> bytes:
    """The whole answer of a speech."""
    return json.dumps(speech.body("scripted")).encode()
