"""The story of a turn, line by line."""

from __future__ import annotations

from typing import Any

import msgspec

from everyturn.audit.records import ModelCall, TurnAudit
from everyturn.cli.story import Line, story


def told(**columns: Any) -> list[Line]:
    """The story of a turn with one call that has these columns."""
    call = ModelCall(model_call_id="c", turn_id="t", timestamp=0, **columns)
    turn = TurnAudit(turn_id="t", timestamp=0)
    return list(
        story(
            {
                "turn": msgspec.structs.asdict(turn) | {"redactions_json": {}},
                "access_events": [],
                "model_calls": [msgspec.structs.asdict(call) | {"redactions_json": {}} | columns],
            }
        )
    )


def test_notes_and_flags_are_told_apart() -> None:
    """What was done to a request is a note; what was odd about an answer is a flag."""
    lines = told(flags_json=["missing_done", "note: clamped reasoning_effort=xhigh to high"])

    assert Line("flag", "missing_done") in lines
    assert Line("note", "clamped reasoning_effort=xhigh to high") in lines


def test_an_open_turn_says_so() -> None:
    """A turn without an end is told as far as it went."""
    lines = told()

    assert Line("outcome", "open: the turn has not ended") in lines
    assert Line("usage", "not reported") in lines
