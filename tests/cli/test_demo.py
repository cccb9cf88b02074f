"""The demonstration runs to its end and shows what it promises."""

from __future__ import annotations

import asyncio
import shlex
import sys
from asyncio.subprocess import PIPE
from pathlib import Path


async def test_the_demonstration_ends_with_a_benchmark(tmp_path: Path) -> None:
    """Five turns, one of them shown, a benchmark; the last line is a command that reads on."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "everyturn.cli.demo", "--data", str(tmp_path / "data")),
        stdout=PIPE,
        stderr=PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), timeout=60)

    said = out.decode()
    assert process.returncode == 0, err.decode()
    assert err == b""
    assert said.count("the record holds") == 5
    assert "$ everyturn show" in said
    assert "48 rows made, 48 judged" in said
    assert "careful  search  right 1.00" in said
    assert (tmp_path / "data" / "bench" / "run" / "report.html").exists()
    listed = await asyncio.create_subprocess_exec(*shlex.split(said.splitlines()[-1]), stdout=PIPE)
    lines, _ = await listed.communicate()
    assert listed.returncode == 0
    assert lines.count(b"Seven people share 84 pears.") == 5
