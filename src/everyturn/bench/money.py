"""What a call may cost and what it did, in US dollars as Decimal."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

_MILLION: Final = Decimal(1_000_000)


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens as the provider reported them; None: not reported."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars for a million tokens. None: costs like the rest."""

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    reasoning: Decimal | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Price:
        """From a table with `input` and `output`; further members may be missing."""
        names = ("input", "output", "cache_read", "reasoning")
        known = {name: given.get(name) for name in names}
        return cls(**{name: Decimal(str(v)) for name, v in known.items() if v is not None})

    def worst(self, request_bytes: int, max_tokens: int, thinking_tokens: int = 0) -> Decimal:
        """The most that a call can cost: a token is at least one byte of the request."""
        output = max(self.output, self.reasoning or self.output)
        return (request_bytes * self.input + (max_tokens + thinking_tokens) * output) / _MILLION

    def cost(self, usage: Usage) -> Decimal | None:
        """What a call cost; None where its tokens were not reported."""
        if usage.prompt_tokens is None or usage.completion_tokens is None:
            return None
        cached = min(usage.cached_tokens or 0, usage.prompt_tokens)
        read = self.input if self.cache_read is None else self.cache_read
        reasoning = usage.reasoning_tokens or 0
        known = usage.prompt_tokens + usage.completion_tokens
        # Some providers count reasoning beside the completion; then the total says so.
        outside = reasoning if usage.total_tokens == known + reasoning else 0
        plain = max(0, usage.completion_tokens + outside - reasoning)
        thought = self.output if self.reasoning is None else self.reasoning
        total = (usage.prompt_tokens - cached) * self.input + cached * read
        total += plain * self.output + min(reasoning, usage.completion_tokens + outside) * thought
        return total / _MILLION


def dollars(amount: Decimal | None) -> float | None:
    """An amount as rows and summaries hold it."""
    return None if amount is None else float(amount)


def exact(amount: float | None) -> Decimal:
    """The amount that a row holds, exactly as it was written; none is zero."""
    return Decimal(0) if amount is None else Decimal(repr(amount))
