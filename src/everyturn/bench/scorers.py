"""Scorers that need no model: an answer against what was expected. Pure.

Each gives 0 or 1, or None where there is nothing to compare with. They read the answer's text with
the thoughts that a model left in it taken out.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Final

_NUMBER: Final = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_ARTICLES: Final = re.compile(r"\b(?:a|an|the)\b")


def normal(text: str) -> str:
    """Lower case, no punctuation, no articles, single spaces; letters of all scripts stay."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    kept = "".join(" " if unicodedata.category(sign)[0] in "PS" else sign for sign in folded)
    return " ".join(_ARTICLES.sub(" ", kept).split())


def _exact(answer: str, expected: str, _: float) -> bool:
    return answer.strip() == expected.strip()


def _normalised(answer: str, expected: str, _: float) -> bool:
    return normal(answer) == normal(expected)


def _contains(answer: str, expected: str, _: float) -> bool:
    wanted = normal(expected)
    return bool(wanted) and f" {wanted} " in f" {normal(answer)} "


def _numeric(answer: str, expected: str, tolerance: float) -> bool:
    said, wanted = _last_number(answer), _last_number(expected)
    if said is None or wanted is None:
        return False
    return math.isclose(said, wanted, rel_tol=1e-12, abs_tol=tolerance)


def _last_number(text: str) -> float | None:
    found = _NUMBER.findall(text)
    try:
        return float(found[-1].replace(",", "")) if found else None
    except ValueError:
        return None


def _json_match(answer: str, expected: str, _: float) -> bool:
    fence = re.search(r"```(?:json)?\s*\n(.*?)```", answer, re.DOTALL)
    try:
        said: Any = json.loads(fence[1] if fence else answer)
        return bool(said == json.loads(expected))
    except (ValueError, RecursionError):
        return False


_COMPARING: Final[dict[str, Callable[[str, str, float], bool]]] = {
    "exact": _exact,
    "normalised": _normalised,
    "contains": _contains,
    "numeric": _numeric,
    "json": _json_match,
}
SCORER_KINDS: Final = (*_COMPARING, "regex")


def score(
    kind: str,
    answer: str,
    expected: Sequence[str],
    *,
    pattern: str | None = None,
    tolerance: float = 0.0,
) -> float | None:
    """1 if the answer fits any of what is expected, else 0; None if nothing is expected.

    pattern: for `regex`, what to find in the answer; without one each expected text is a pattern.
    """
    if kind == "regex":
        patterns = [pattern] if pattern is not None else list(expected)
        if not patterns:
            return None
        try:
            return float(any(re.search(one, answer) for one in patterns))
        except re.error:
            return None
    if not expected:
        return None
    fits = _COMPARING[kind]
    return float(any(fits(answer, one, tolerance) for one in expected))
