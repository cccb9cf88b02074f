"""Real servers for sync tests: they run in an event loop of a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")

WAIT_SECONDS = 60


@contextmanager
def in_background(served: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter `served` in a thread's event loop, and leave it there at the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="served", daemon=True)
    thread.start()
    try:
        value = asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result(WAIT_SECONDS)
        try:
            yield value
        finally:
            leaving = served.__aexit__(None, None, None)
            asyncio.run_coroutine_threadsafe(leaving, loop).result(WAIT_SECONDS)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(WAIT_SECONDS)
        loop.close()
