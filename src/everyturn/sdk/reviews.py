"""Reviews: what a person, an eval, a heuristic or a model judge thinks of a turn."""

from __future__ import annotations

import math
import time
from typing import Any

from everyturn import ids
from everyturn.errors import InvalidValue
from everyturn.sdk.process import this_process
from everyturn.sdk.spans import emit, new_id
from everyturn.sdk.words import REVIEW_SOURCES, ReviewSource, check_word


def review(
    turn_id: str,
    *,
    source: ReviewSource,
    correctness: float | None = None,
    helpfulness: float | None = None,
    tool_use: float | None = None,
    safety: float | None = None,
    label: str | None = None,
    notes: str | None = None,
    rubric_version: str | None = None,
    reviewer: str | None = None,
) -> str:
    """Record a review of a turn and return its id. A turn may have many; none is overwritten.

    source: `human`, `eval`, `heuristic` or `llm-judge`. Scores are 0 to 1; None: not judged.
    label: the main issue, a failure type or a label of the plugin. Raises InvalidValue.
    """
    check_word("source", source, REVIEW_SOURCES)
    if not ids.is_turn_id(turn_id):
        raise InvalidValue("`turn_id` is not a UUID version 4 in lower case", param="turn_id")
    scores = {
        "correctness": correctness,
        "helpfulness": helpfulness,
        "tool_use": tool_use,
        "safety": safety,
    }
    for name, score in scores.items():
        if score is not None and not _is_score(score):
            raise InvalidValue(f"`{name}` is not between 0 and 1", param=name)
    review_id = new_id("rev")
    emit(
        "quality_reviews",
        {
            "review_id": review_id,
            "turn_id": turn_id,
            "reviewer": reviewer,
            "review_source": source,
            **{f"score_{name}": score for name, score in scores.items()},
            "label_primary_issue": label,
            "notes": this_process().plain.text(notes),
            "rubric_version": rubric_version,
            "created_at": time.time_ns() // 1000,
        },
    )
    return review_id


def _is_score(value: Any) -> bool:
    try:
        return math.isfinite(value) and bool(0 <= value <= 1)
    except TypeError:
        return False
