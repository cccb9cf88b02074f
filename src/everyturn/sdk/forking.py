"""What must be whole when a process forks: no import of the sender's thread may be half done.

A module that another thread is importing at that moment stays locked in the child for ever, since
the thread is not there any more. So whoever imports off the main path holds `IMPORTS`, and a fork
waits for it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

IMPORTS: Final = threading.Lock()
"""Held while a background thread imports."""


def at_fork(in_child: Callable[[], None]) -> None:
    """Let forks wait for imports, and call `in_child` in each child."""

    def child() -> None:
        IMPORTS.release()
        in_child()

    os.register_at_fork(
        before=IMPORTS.acquire, after_in_parent=IMPORTS.release, after_in_child=child
    )
