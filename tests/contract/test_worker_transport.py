"""The worker transport, held to the contract of all transports, over a real link."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from everyturn.transport.base import Transport, UpstreamRequest
from tests.contract.transport_contract import TransportContract
from tests.support.scripted_upstream import ScriptedUpstream, a_request
from tests.support.workers import a_hub


class TestWorker(TransportContract):
    """Everything the contract says."""

    @pytest_asyncio.fixture
    async def transport(self) -> AsyncIterator[Transport]:
        """A transport over one worker, whose targets `request_to` sets."""
        self.targets = {f"t{number}": "http://127.0.0.1:1/v1" for number in range(8)}
        self.seen: list[int] = []
        async with a_hub() as hub:
            await hub.start(self.targets)
            transport = hub.transport()
            yield transport
            await transport.close()

    def request_to(
        self, upstream: ScriptedUpstream, *, query: str = "", **more: Any
    ) -> UpstreamRequest:
        """A request that reaches `upstream` by way of the worker."""
        if upstream.port not in self.seen:
            self.seen.append(upstream.port)
        name = f"t{self.seen.index(upstream.port)}"
        self.targets[name] = upstream.url.removesuffix("/chat/completions")
        return a_request(f"worker://{name}/chat/completions{query}", **more)
