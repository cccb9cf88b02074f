"""What a recorded call cost: its tokens at the list price of the model that served it."""

from __future__ import annotations

from everyturn.audit.usage import Tokens
from everyturn.presets.price import Price, price_of
from everyturn.wire.preset import Target


def price_as_served(target: Target, tokens: Tokens, served: str | None, *, at_us: int) -> Price:
    """The price of a call under the name the provider served, else the one that was asked for.

    at_us: when the call was made, in microseconds since 1970.
    """
    asked = target.upstream_model
    price = _price_as(served or asked, target, tokens, at_us)
    if price.dollars is None and served is not None and served != asked:
        price = _price_as(asked, target, tokens, at_us)
    return price


def _price_as(model: str, target: Target, tokens: Tokens, at_us: int) -> Price:
    return price_of(
        target.preset,
        model,
        prompt_tokens=tokens.prompt_tokens,
        completion_tokens=tokens.completion_tokens,
        total_tokens=tokens.total_tokens,
        reasoning_tokens=tokens.reasoning_tokens,
        cache_read_tokens=tokens.cache_read_tokens,
        cache_write_tokens=tokens.cache_write_tokens,
        at_us=at_us,
    )
