"""A gateway that is killed loses no turn whose end a client saw."""

from __future__ import annotations

from pathlib import Path

from benchmarks.kill import run


async def test_no_answered_turn_is_lost(tmp_path: Path) -> None:
    """After SIGKILL at random moments under load, every answered turn is whole in the store.

    `python -m benchmarks.kill --kills 200` is the long form of this.
    """
    tally, loss = await run(3, tmp_path / "data", seed=7, say=False)

    assert tally.kills == 3
    assert tally.ended
    assert loss.is_none, loss
