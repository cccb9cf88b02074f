"""A network that never answers, in the place of asyncio's transport.

For what a connection does with bytes, where a real socket would only add waiting.
"""

from __future__ import annotations

from typing import Any


class QuietSocket:
    """Takes what is sent, and remembers whether it was closed."""

    def __init__(self) -> None:
        self.is_aborted = False
        self.is_broken = False
        """The socket is closed, and the protocol has not been told yet."""

    def get_extra_info(self, name: str) -> Any:
        return self if name == "socket" else None

    def fileno(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_aborted or self.is_broken

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True
