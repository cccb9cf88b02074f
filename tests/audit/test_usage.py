"""Token counts are the provider's own, from wherever it puts them."""

from __future__ import annotations

from typing import Any

import pytest

from everyturn.audit.usage import NOT_REPORTED, Tokens, tokens_of
from everyturn.wire.reader import Num


def counts(tokens: Tokens) -> list[int | None]:
    """All that a provider reported."""
    return [
        tokens.prompt_tokens,
        tokens.completion_tokens,
        tokens.total_tokens,
        tokens.reasoning_tokens,
        tokens.cache_read_tokens,
        tokens.cache_write_tokens,
    ]


PLACES: list[tuple[dict[str, Any], Tokens]] = [
    (
        {
            "prompt_tokens": 9,
            "completion_tokens": 3,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 5},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
        Tokens(9, 3, 12, 2, 4, 5),
    ),
    (
        {
            "prompt_tokens": 9,
            "prompt_cache_hit_tokens": 4,
            "prompt_cache_miss_tokens": 5,
            "prompt_tokens_details": None,
        },
        Tokens(prompt_tokens=9, cache_read_tokens=4),
    ),
    ({"cached_tokens": 4}, Tokens(cache_read_tokens=4)),
    ({"num_cached_tokens": 0}, Tokens(cache_read_tokens=0)),
    ({"prompt_token_details": {"cached_tokens": 4}}, Tokens(cache_read_tokens=4)),
    ({"reasoning_tokens": 7}, Tokens(reasoning_tokens=7)),
    (
        {"prompt_tokens_details": {"cache_creation_input_tokens": 6}},
        Tokens(cache_write_tokens=6),
    ),
    (
        {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3},
        Tokens(prompt_tokens=1, completion_tokens=2, cache_read_tokens=3),
    ),
    ({"prompt_tokens": 12.0}, Tokens(prompt_tokens=12)),
]


@pytest.mark.parametrize("usage, tokens", PLACES)
def test_counts_are_found_in_every_place(usage: dict[str, Any], tokens: Tokens) -> None:
    """Each provider's place is read; what is not reported is None, zero is zero."""
    assert counts(tokens_of(usage)) == counts(tokens)


@pytest.mark.parametrize(
    "value", [None, True, "12", 1.5, -1, 1 << 63, Num("1e400"), {"a": 1}, float("inf")]
)
def test_what_is_no_count_is_not_reported(value: Any) -> None:
    """A column holds counts or nothing; the raw object is kept elsewhere."""
    assert counts(tokens_of({"prompt_tokens": value})) == counts(NOT_REPORTED)


def test_llama_cpp_tells_cached_tokens_beside_usage() -> None:
    """`timings.cache_n` counts where usage itself says nothing."""
    assert tokens_of({"prompt_tokens": 9}, {"cache_n": 8}).cache_read_tokens == 8
    assert tokens_of({"cached_tokens": 1}, {"cache_n": 8}).cache_read_tokens == 1
    assert tokens_of(None) is NOT_REPORTED
