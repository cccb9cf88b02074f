"""A gateway that is killed loses no turn whose end a client saw."""

from __future__ import annotations

from pathlib import Path

from benchmarks.kill import run
from benchmarks.records_bench import Plan, lost_of
from benchmarks.records_bench import run as run_records


async def test_no_answered_turn_is_lost(tmp_path: Path) -> None:
    """After SIGKILL at random moments under load, every answered turn is whole in the store.

    `python -m benchmarks.kill --kills 200` is the long form of this.
    """
    tally, loss = await run(3, tmp_path / "data", seed=7, say=False)

    assert tally.kills == 3
    assert tally.ended
    assert loss.is_none, loss


async def test_no_accepted_record_is_lost(tmp_path: Path) -> None:
    """After SIGKILL under load, each record that `POST /v1/records` accepted is stored as sent.

    `python -m benchmarks.records_bench` is the long form of this.
    """
    tally, _, _ = await run_records(Plan(seconds=0.5, kills=2, batch=50), tmp_path / "data")

    assert tally.count > 100
    assert tally.broken
    assert tally.refused == 0
    assert lost_of(tmp_path / "data", tally) == (0, 0)
