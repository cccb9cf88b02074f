"""The scripted provider in a thread, for code that is not asynchronous."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType

from everyturn.mock.scenario import Play
from everyturn.mock.script import Script
from everyturn.mock.server import MockProvider
from everyturn.mock.traffic import SeenRequest, Stats


class MockThread:
    """A `MockProvider` with an event loop and a thread of its own.

    with MockThread() as provider:
        client = OpenAI(base_url=provider.url, api_key="sk-test-FAKE")
    """

    def __init__(self, provider: MockProvider | None = None) -> None:
        self.provider = provider or MockProvider()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._thread: threading.Thread | None = None

    def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen and return the port. Raises OSError where it cannot listen."""
        assert self._thread is None, "started twice"
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run(host, port)), name="everyturn-mock", daemon=True
        )
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            self._thread = None
            raise self._failure
        return self.provider.port

    def stop(self) -> None:
        """Drop every connection and end the thread. Does nothing when it does not run."""
        thread, self._thread = self._thread, None
        if thread is None or self._loop is None or self._stopping is None:
            return
        self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join()

    def __enter__(self) -> MockThread:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The base URL as one gives it to an OpenAI SDK."""
        return self.provider.url

    @property
    def requests(self) -> list[SeenRequest]:
        """The newest requests, oldest first."""
        return self.provider.requests

    def add(self, name: str, script: Script | Play) -> None:
        """Answer the model `name` with `script` from now on."""
        self.provider.add(name, script)

    def stats(self) -> Stats:
        """The counts now."""
        return self.provider.stats()

    async def _run(self, host: str, port: int) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            await self.provider.start(host, port)
        except OSError as failure:
            self._failure = failure
            return
        finally:
            self._started.set()
        await self._stopping.wait()
        await self.provider.stop()
