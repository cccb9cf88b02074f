"""A real gateway on a free loopback port, in the test's own event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import msgspec

from everyturn.config import read_config
from everyturn.gateway.log import Log
from everyturn.gateway.server import Gateway, start
from everyturn.mock.server import MockProvider

HELLO = [{"role": "user", "content": "hello"}]


class Running:
    """A gateway under test, a client for it, and what it logged."""

    def __init__(self, gateway: Gateway, client: httpx.AsyncClient, log: BytesIO) -> None:
        self.gateway = gateway
        self.client = client
        self._log = log

    @property
    def url(self) -> str:
        """The base URL as one gives it to an OpenAI SDK."""
        return f"http://127.0.0.1:{self.gateway.port}/v1"

    @property
    def log_lines(self) -> list[dict[str, Any]]:
        """Every log line so far."""
        return [msgspec.json.decode(line) for line in self._log.getvalue().splitlines()]

    async def chat(self, model: str, **body: Any) -> httpx.Response:
        """Post a chat completion and read the whole answer."""
        whole = {"model": model, "messages": HELLO, **body}
        return await self.client.post("/chat/completions", json=whole)


def config_text(models: list[Mapping[str, Any]], data: Path, extra: str = "") -> str:
    """A configuration with these models; values are written as TOML by way of JSON."""
    lines = ["[gateway]", "port = 0", f'data = "{data}"', extra]
    for model in models:
        lines.append("[[models]]")
        lines += [f"{key} = {_toml(value)}" for key, value in model.items()]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {_toml(item)}' for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return msgspec.json.encode(value).decode()


@asynccontextmanager
async def running_gateway(
    models: list[Mapping[str, Any]],
    data: Path,
    *,
    extra: str = "",
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Running]:
    """Start a gateway with these models, and stop it at the end."""
    log = BytesIO()
    environment = environment or {}
    config = read_config(config_text(models, data, extra), "test.toml", environment)
    gateway = await start(config, environment, Log(out=log))
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{gateway.port}/v1", timeout=30, trust_env=False
    ) as client:
        try:
            yield Running(gateway, client, log)
        finally:
            await gateway.stop()


@asynccontextmanager
async def gateway_and_mock(
    data: Path, preset: str = "generic-strict", *, extra: str = "", **model: Any
) -> AsyncIterator[tuple[Running, MockProvider]]:
    """A gateway with one model `m` that the scripted provider answers; `**model` are its keys."""
    async with MockProvider() as mock:
        entry = {"name": "m", "preset": preset, "base_url": mock.url, **model}
        async with running_gateway([entry], data, extra=extra) as running:
            yield running, mock
