"""The demonstration runs to its end and shows what it promises."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path


async def test_the_demonstration_ends_with_a_benchmark(tmp_path: Path) -> None:
    """Five turns told twice, one turn shown, and a small benchmark with its report."""
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
