from __future__ import annotations

import typing

import msgspec
import pytest

from everyturn import errors
from everyturn.audit import records
from everyturn.audit.records import ModelCall, TurnAudit


def test_closed_sets_are_the_types() -> None:
    """What a field may hold for the type checker is what the set says at run time."""
    assert typing.get_args(records.Outcome) == records.OUTCOMES
    assert typing.get_args(records.FailureType) == errors.FAILURE_TYPES
    assert typing.get_args(records.StreamState) == records.STREAM_STATES
    assert typing.get_args(records.Transport) == records.TRANSPORTS
    assert typing.get_args(records.HumanReviewStatus) == records.HUMAN_REVIEW_STATUSES


def test_a_record_cannot_be_changed() -> None:
    """A later revision is another record."""
    turn = TurnAudit(turn_id="t", timestamp=0)

    with pytest.raises(AttributeError):
        turn.outcome = "success"  # type: ignore[misc]  # that it cannot is the point


def test_nothing_is_reported_until_it_is() -> None:
    """Fields that nobody filled are None, never zero or empty."""
    call = ModelCall(model_call_id="c", turn_id="t", timestamp=0)
    given = {"model_call_id", "turn_id", "timestamp", "attempt", "revision", "schema_version"}
    marks = {"redaction_applied", "redactions_json"}

    filled = {name for name, value in msgspec.structs.asdict(call).items() if value is not None}

    assert filled == given | marks
