"""A process of a low priority that works beside the gateway and ends with it.

For work that takes more than moments: a thread would share the interpreter with the turns. Under
Linux's idle policy a process gets what others leave over, and gives way the moment one of them
wakes; a low priority alone would let it finish its slice, three milliseconds of somebody's answer.
Source: sched(7), "SCHED_IDLE".
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence


class Child:
    """Runs one program of ours, again and again if need be, until it is stopped."""

    def __init__(self, arguments: Sequence[str]) -> None:
        """arguments: what comes after `python -m`."""
        self._command = [sys.executable, "-m", *arguments]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False

    def run(self, hear: Callable[[str], None] = lambda _: None) -> int:
        """Run it to its end; its exit status. Raises OSError when it cannot be started.

        hear: called with each line of its stdout. Its stdin ends when this process does, however
        that comes, so it can tell.
        """
        with self._lock:
            if self._is_stopped:
                return 0
            process = self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Ctrl-C reaches a whole group. The gateway ends this one; it has not failed then.
                process_group=0,
            )
        try:
            with process:
                _give_way(process.pid)
                assert process.stdout is not None
                for line in process.stdout:
                    hear(line.decode("utf-8", "replace").rstrip("\n"))
                return process.wait()
        finally:
            with self._lock:
                self._process = None

    def stop(self) -> None:
        """End it where it is, and start it no more."""
        with self._lock:
            self._is_stopped = True
            if self._process is not None:
                self._process.terminate()


def _give_way(pid: int) -> None:
    try:
        os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    except OSError:
        # Some containers refuse to change the policy; the lowest priority is nearly as good.
        os.setpriority(os.PRIO_PROCESS, pid, 19)
