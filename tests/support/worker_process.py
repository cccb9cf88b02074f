"""`everyturn` as processes of their own: one command that ends, and a worker that runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

EVENT_WAIT_S = 20
"""How long a test waits for a log line; only a failing test waits that long."""


async def run_command(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    """Status, stdout and stderr of one `everyturn` command."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everyturn", *arguments),
        cwd=cwd,
        env=dict(os.environ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def a_process(*arguments: str, cwd: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """An `everyturn` command that runs on, killed at the end if it still does."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everyturn", *arguments),
        cwd=cwd,
        env=dict(os.environ),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def worker_process(
    cwd: Path, targets: Mapping[str, str], *more: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`everyturn worker run` with these targets."""
    allowed = [word for name, url in targets.items() for word in ("--allow", f"{name}={url}")]
    async with a_process("worker", "run", *allowed, *more, cwd=cwd) as process:
        yield process


async def event(process: asyncio.subprocess.Process, name: str) -> dict[str, Any]:
    """Wait for the next log line of this event."""
    assert process.stderr is not None
    async with asyncio.timeout(EVENT_WAIT_S):
        while True:
            line = await process.stderr.readline()
            assert line, f"the process ended before it told: {name}"
            told: dict[str, Any] = json.loads(line)
            if told["event"] == name:
                return told


async def unread(process: asyncio.subprocess.Process) -> None:
    """Read the rest of a process's log, so that it never waits for its reader."""
    assert process.stderr is not None
    while await process.stderr.read(65_536):
        pass
