"""Token counts out of a provider's usage object: its own numbers, wherever it puts them.

Pure. Nothing is added, subtracted or guessed; None is "not reported" and 0 is "reported as zero".
What is inside of what, the preset knows, and only prices need it. The raw object is kept beside.
Sources: the usage columns of the provider evidence table (2026-11), row numbers as P01 … P32.
"""

from __future__ import annotations

from typing import Any, Final

COUNT_MAX: Final = (1 << 63) - 1
"""What an integer column holds; a larger number is no count of tokens."""

_Places = tuple[tuple[str, str], ...]
"""(member that holds the count, empty for the usage object itself; name of the count)"""

_PROMPT: Final[_Places] = (("", "prompt_tokens"), ("", "input_tokens"))
_COMPLETION: Final[_Places] = (("", "completion_tokens"), ("", "output_tokens"))
_TOTAL: Final[_Places] = (("", "total_tokens"),)
_REASONING: Final[_Places] = (
    ("completion_tokens_details", "reasoning_tokens"),  # P01, P04, P05, P12, P13
    ("", "reasoning_tokens"),  # P03 with Foundry models, P18
    ("output_tokens_details", "reasoning_tokens"),
    ("output_tokens_details", "thinking_tokens"),  # P20
)
_CACHE_READ: Final[_Places] = (
    ("prompt_tokens_details", "cached_tokens"),  # P01, P05, P12
    ("", "prompt_cache_hit_tokens"),  # P04
    ("", "cached_tokens"),  # P08, P14
    ("", "num_cached_tokens"),  # P10
    ("prompt_token_details", "cached_tokens"),  # P10, a misspelling of theirs
    ("input_tokens_details", "cached_tokens"),
    ("", "cache_read_input_tokens"),  # P20, P31
)
_CACHE_WRITE: Final[_Places] = (
    ("prompt_tokens_details", "cache_write_tokens"),  # P01, P05
    ("", "cache_write_tokens"),  # P08
    ("prompt_tokens_details", "cache_creation_input_tokens"),  # P07
    ("prompt_tokens_details", "cache_creation_tokens"),  # P31
    ("", "cache_creation_input_tokens"),  # P20
)


class Tokens:
    """Counts as the provider reported them."""

    __slots__ = (
        "cache_read_tokens",
        "cache_write_tokens",
        "completion_tokens",
        "prompt_tokens",
        "reasoning_tokens",
        "total_tokens",
    )

    def __init__(
        self,
        prompt_tokens: int | None = None,
        completion_tokens: int | None = None,
        total_tokens: int | None = None,
        reasoning_tokens: int | None = None,
        cache_read_tokens: int | None = None,
        cache_write_tokens: int | None = None,
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = completion_tokens
        self.total_tokens = total_tokens
        self.reasoning_tokens = reasoning_tokens
        self.cache_read_tokens = cache_read_tokens
        self.cache_write_tokens = cache_write_tokens


NOT_REPORTED: Final = Tokens()


def tokens_of(usage: Any, timings: Any = None) -> Tokens:
    """The counts in a usage object; the first place that has a number wins.

    timings: llama.cpp's object of that name, which tells the cached tokens (P27).
    """
    if not isinstance(usage, dict):
        return NOT_REPORTED
    cached = _count(usage, _CACHE_READ)
    if cached is None and isinstance(timings, dict):
        cached = _number(timings.get("cache_n"))
    return Tokens(
        _count(usage, _PROMPT),
        _count(usage, _COMPLETION),
        _count(usage, _TOTAL),
        _count(usage, _REASONING),
        cached,
        _count(usage, _CACHE_WRITE),
    )


def _count(usage: dict[str, Any], places: _Places) -> int | None:
    for holder, name in places:
        details = usage.get(holder) if holder else usage
        value = details.get(name) if type(details) is dict else None
        if value is not None and (count := _number(value)) is not None:
            return count
    return None


def _number(value: Any) -> int | None:
    """A count; a whole float counts (`12.0`), a bool does not."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is int and 0 <= value <= COUNT_MAX:
        return value
    return None
