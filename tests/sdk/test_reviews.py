"""Reviews."""

from __future__ import annotations

from typing import Any

import pytest

import everyturn
from everyturn.errors import InvalidValue
from tests.support.receiver import fault_of

TURN_ID = "7c0f9a52-3b1f-4c58-9a5e-8f3f5d1d2c11"


def test_a_review_is_recorded_with_its_scores() -> None:
    """Scores, label, notes and rubric stand in the record, whose id comes back."""
    with everyturn.capture() as events:
        review_id = everyturn.review(
            TURN_ID,
            source="human",
            correctness=0.5,
            helpfulness=1,
            tool_use=0,
            safety=None,
            label="rag_miss",
            notes="cited the wrong page",
            rubric_version="2",
            reviewer="ana",
        )

    (event,) = events
    assert fault_of(event) is None
    created = event.pop("created_at")
    assert created > 0
    assert event == {
        "log": "quality_reviews",
        "review_id": review_id,
        "turn_id": TURN_ID,
        "review_source": "human",
        "reviewer": "ana",
        "score_correctness": 0.5,
        "score_helpfulness": 1,
        "score_tool_use": 0,
        "label_primary_issue": "rag_miss",
        "notes": "cited the wrong page",
        "rubric_version": "2",
    }


def test_two_reviews_of_a_turn_have_ids_of_their_own() -> None:
    """A turn may have many reviews."""
    with everyturn.capture() as events:
        first = everyturn.review(TURN_ID, source="eval")
        second = everyturn.review(TURN_ID, source="eval")

    assert first != second
    assert len(events) == 2


@pytest.mark.parametrize(
    "given",
    [
        {"turn_id": "x", "source": "human"},
        {"source": "me"},
        {"source": "human", "correctness": 1.1},
        {"source": "human", "correctness": "0.5"},
        {"source": "human", "safety": -0.1},
        {"source": "human", "helpfulness": float("nan")},
    ],
)
def test_wrong_reviews_are_refused(given: dict[str, Any]) -> None:
    """A score outside of 0 to 1, a wrong source or id is refused and nothing is recorded."""
    with everyturn.capture() as events, pytest.raises(InvalidValue):
        everyturn.review(**{"turn_id": TURN_ID, **given})

    assert events == []
