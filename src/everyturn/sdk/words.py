"""The closed sets of words that records take from an application, and how they are checked.

The same words as in the record types of `everyturn.audit.records`, which need more than the
standard library; a test compares them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from everyturn.errors import FAILURE_TYPES, InvalidValue

Outcome = Literal["success", "partial", "failure", "refused", "abandoned"]
OUTCOMES: Final = ("success", "partial", "failure", "refused", "abandoned")

FailureType = Literal[
    "none",
    "routing",
    "tool_misuse",
    "hallucination",
    "format_error",
    "timeout",
    "provider_error",
    "adapter_error",
    "rag_miss",
    "policy_error",
    "unknown",
]

ToolFamily = Literal["adapter", "mcp", "rag", "internal", "external-http"]
TOOL_FAMILIES: Final = ("adapter", "mcp", "rag", "internal", "external-http")

ToolStatus = Literal["ok", "error", "timeout", "cancelled", "partial"]
TOOL_STATUSES: Final = ("ok", "error", "timeout", "cancelled", "partial")

ReviewSource = Literal["human", "eval", "heuristic", "llm-judge"]
REVIEW_SOURCES: Final = ("human", "eval", "heuristic", "llm-judge")

HumanReviewStatus = Literal["none", "queued", "in_review", "reviewed"]
HUMAN_REVIEW_STATUSES: Final = ("none", "queued", "in_review", "reviewed")

__all__ = [
    "FAILURE_TYPES",
    "HUMAN_REVIEW_STATUSES",
    "OUTCOMES",
    "REVIEW_SOURCES",
    "TOOL_FAMILIES",
    "TOOL_STATUSES",
    "FailureType",
    "HumanReviewStatus",
    "Outcome",
    "ReviewSource",
    "ToolFamily",
    "ToolStatus",
    "check_word",
    "is_cancellation",
]


def check_word(name: str, value: object, words: Sequence[str]) -> None:
    """Refuse a value that is not one of the words; None is no value. Raises InvalidValue."""
    if value is not None and value not in words:
        raise InvalidValue(
            f"`{name}` is not one of its words", param=name, hint=f"Use one of: {', '.join(words)}."
        )


def is_cancellation(failure: BaseException) -> bool:
    """Whether the work was given up and did not go wrong: a cancelled task, a closed generator.

    Known by name, since importing asyncio for it would cost more than this package does.
    """
    return isinstance(failure, GeneratorExit | KeyboardInterrupt) or any(
        kind.__name__ in ("CancelledError", "Cancelled") for kind in type(failure).__mro__
    )
