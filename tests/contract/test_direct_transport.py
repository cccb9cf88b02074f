"""The direct transport, held to the contract of all transports."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from everyturn.transport.base import Transport
from everyturn.transport.direct import DirectTransport
from tests.contract.transport_contract import TransportContract


class TestDirect(TransportContract):
    """Everything the contract says."""

    @pytest_asyncio.fixture
    async def transport(self) -> AsyncIterator[Transport]:
        """A transport without proxy, closed at the end."""
        transport = DirectTransport()
        yield transport
        await transport.close()
