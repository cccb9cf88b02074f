"""What one process shares: its settings, counters and sender, and how it begins, forks and ends.

The only module-wide state of the package. Everything else is handed in.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Any

from everyturn.errors import InvalidValue
from everyturn.sdk.counting import Counters
from everyturn.sdk.forking import at_fork
from everyturn.sdk.plain import Plain
from everyturn.sdk.sender import Sender
from everyturn.sdk.settings import Settings, from_environment


class Process:
    """One process's part in recording."""

    def __init__(self, given: dict[str, Any]) -> None:
        """given: what `configure` was told; the environment and defaults give the rest."""
        self.given = given
        self.counters = Counters()
        self.plain = Plain(self.counters)
        self._settings: Settings | None = None
        self._sender: Sender | None = None
        self._lock = threading.Lock()

    @property
    def settings(self) -> Settings:
        """The settings, read from the environment when they are first needed."""
        if self._settings is None:
            try:
                self._settings = Settings(**{**from_environment(os.environ), **self.given})
            except InvalidValue:
                # Nobody asked us to stop the application; its records go to the spill.
                self.counters.add("settings_invalid")
                self._settings = Settings()
                self._settings.host = ""
        return self._settings

    def put(self, record: bytes) -> None:
        """Hand a record to the sender, which is made with the first one."""
        sender = self._sender
        if sender is None:
            with self._lock:
                if self._sender is None:
                    self._sender = Sender(self.settings, self.counters)
                sender = self._sender
        sender.put(record)

    def configure(self, given: dict[str, Any]) -> None:
        """Other settings from now on. What waits is still sent to where it was meant to go."""
        merged = {**self.given, **given}
        settings = Settings(**{**from_environment(os.environ), **merged})
        with self._lock:
            self.given = merged
            old, self._sender = self._sender, None
            self._settings = settings
        if old is not None:
            old.close(settings.exit_seconds_max)

    def sizes(self) -> tuple[int, int]:
        """(records, bytes) that wait in memory."""
        return self._sender.sizes() if self._sender is not None else (0, 0)

    def flush(self, seconds: float) -> bool:
        """Whether nothing waits in memory any more within `seconds`."""
        return self._sender.flush(seconds) if self._sender is not None else True

    def close(self) -> None:
        """The end of the process."""
        if self._sender is not None:
            self._sender.close(self.settings.exit_seconds_max)

    def child(self) -> Process:
        """The same settings in a forked child, with nothing waiting and nothing counted."""
        if self._sender is not None:
            self._sender.forget()
        return Process(self.given)


_PROCESS = Process({})


def this_process() -> Process:
    """The process this code runs in."""
    return _PROCESS


def _after_fork() -> None:
    global _PROCESS
    _PROCESS = _PROCESS.child()


def _at_exit() -> None:
    _PROCESS.close()


atexit.register(_at_exit)
at_fork(_after_fork)


def configure(
    *,
    url: str | None = None,
    api_key: str | None = None,
    spill_folder: str | os.PathLike[str] | None = None,
    queue_bytes_max: int | None = None,
    spill_bytes_max: int | None = None,
    exit_seconds_max: float | None = None,
    timeout_seconds: float | None = None,
    insecure_http: bool | None = None,
    service: str | None = None,
    instance: str | None = None,
    environment: str | None = None,
) -> None:
    """Say where records go. What is not given stays; the environment and defaults stand behind.

    url: the gateway (`EVERYTURN_URL`, default http://127.0.0.1:8080).
    api_key: a key with the permission `record` (`EVERYTURN_API_KEY`).
    spill_folder: where records rest while the gateway is away (`EVERYTURN_SPILL_FOLDER`).
    queue_bytes_max, spill_bytes_max: 16 MiB in memory and 256 MiB of files unless said otherwise.
    exit_seconds_max: how long the end of the process may wait for the gateway; 2 s.
    timeout_seconds: for connecting and each read; 10 s.
    insecure_http: allow plain HTTP to another host (`EVERYTURN_INSECURE_HTTP`).
    service, instance, environment: stand in each record (`EVERYTURN_SERVICE_NAME` and so on).
    Raises InvalidValue; then nothing was changed.
    """
    given = {
        "url": url,
        "api_key": api_key,
        "spill_folder": spill_folder,
        "queue_bytes_max": queue_bytes_max,
        "spill_bytes_max": spill_bytes_max,
        "exit_seconds_max": exit_seconds_max,
        "timeout_seconds": timeout_seconds,
        "insecure_http": insecure_http,
        "service": service,
        "instance": instance,
        "environment": environment,
    }
    _PROCESS.configure({name: value for name, value in given.items() if value is not None})


def counters() -> dict[str, int]:
    """What was recorded, what left and what did not, since this process began.

    `queued` and `queued_bytes` are what waits in memory now; the rest is in `COUNTERS`.
    """
    queued, queued_bytes = _PROCESS.sizes()
    return {**_PROCESS.counters.snapshot(), "queued": queued, "queued_bytes": queued_bytes}


def flush(seconds: float = 5.0) -> bool:
    """Wait until all records so far were sent or spilled; whether that was so within `seconds`."""
    return _PROCESS.flush(seconds)
