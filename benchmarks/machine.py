"""The machine under the benchmark: cores, load, and processes with what they used.

Linux only: figures come from /proc, cores are given with `taskset`.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that this program started and will end."""

    popen: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Its process id; `taskset` replaces itself, so it is the program's own."""
        return self.popen.pid

    def cpu_s(self) -> float:
        """Seconds of CPU time that all its threads used so far. Raises if it has ended."""
        return cpu_seconds(Path(f"/proc/{self.pid}/stat").read_text())

    def resident_bytes(self) -> int:
        """Its resident memory now."""
        return resident_bytes(Path(f"/proc/{self.pid}/status").read_text())

    def is_running(self) -> bool:
        """Whether it is still there."""
        return self.popen.poll() is None


def cpu_seconds(stat: str) -> float:
    """User and system time in the text of /proc/PID/stat, in seconds.

    Source: proc(5): fields 14 (utime) and 15 (stime); the name in field 2 may hold anything.
    """
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def resident_bytes(status: str) -> int:
    """VmRSS in the text of /proc/PID/status, in bytes."""
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ValueError("no VmRSS: the process has no memory of its own")


def load_average() -> float:
    """Processes that ran or waited to run in the last minute, on average."""
    return os.getloadavg()[0]


def cores() -> list[int]:
    """The cores this process may use."""
    return sorted(os.sched_getaffinity(0))


def processor() -> str:
    """The name of the processor, as far as it is known."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return os.uname().machine


def free_port() -> int:
    """A loopback port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def clean_environment(**more: str) -> dict[str, str]:
    """An environment without the proxies, keys and settings of whoever runs the benchmark.

    With PYTHONPATH, by which `make bench` says that the compiled build is to be measured.
    """
    names = ("PATH", "HOME", "LANG", "PYTHONPATH")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, **more}


@contextmanager
def running(
    command: Sequence[str],
    *,
    core: int,
    environment: Mapping[str, str] | None = None,
    stdout: IO[Any] | int = subprocess.DEVNULL,
    stderr: IO[Any] | int = subprocess.DEVNULL,
    end_within_s: float = 15.0,
) -> Iterator[Process]:
    """Run a program on one core, and end it, by its id, whatever happens inside."""
    popen = subprocess.Popen(
        ["taskset", "-c", str(core), *command],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=dict(environment) if environment is not None else clean_environment(),
    )
    try:
        yield Process(popen)
    finally:
        popen.terminate()
        try:
            popen.wait(end_within_s)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()
        if popen.stdout is not None:
            popen.stdout.close()
