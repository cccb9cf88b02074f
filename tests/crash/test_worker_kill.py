"""Worker, gateway and model server are killed: nobody is left waiting, and nothing runs twice."""

from __future__ import annotations

from pathlib import Path

from benchmarks.worker_kill import KILLED, run


async def test_each_of_the_three_may_die(tmp_path: Path) -> None:
    """After SIGKILL of each in the middle of streams the record says what every client saw.

    `python -m benchmarks.worker_kill` is the long form of this.
    """
    tally = await run(3, 60, tmp_path, seed=7)

    assert set(tally.kills) == set(KILLED)
    assert tally.endings["done"] >= 10
    assert tally.endings["worker_lost"]
    assert tally.endings["upstream_stream_incomplete"]
    assert not tally.faults, tally.faults
