"""Each transport is held to its contract on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories(
    config: object, item: object
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """asyncio's own loop, and the one the gateway runs on."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
