"""What calls cost, and what is not known."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everyturn.presets.load import load_preset
from everyturn.presets.price import (
    NOT_PRICED,
    Price,
    list_prices,
    price_list_version,
    price_of,
    warm_prices,
)
from everyturn.wire.preset import Preset

TIME = datetime(2026, 11, 30, 12, tzinfo=UTC)


def microseconds(time: datetime) -> int:
    """A moment as records have it."""
    return int(time.timestamp()) * 1_000_000


AT = microseconds(TIME)
OPENAI = load_preset("openai-chat")
GEMINI = load_preset("gemini-openai")
ANTHROPIC = replace(
    OPENAI, name="a-messages-api", price_provider="anthropic", cached_in_prompt=False
)
"""Counts as Anthropic's own API has them: cached tokens stand beside the prompt's."""


def cost_of(preset: Preset, model: str, prompt: int, completion: int, **more: Any) -> Any:
    """The cost alone."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "at_us": AT, **more}
    return price_of(preset, model, **counts).cost


def test_cached_tokens_are_charged_as_cached() -> None:
    """Cached tokens inside the prompt are taken out of it and charged at their own price."""
    cost = cost_of(OPENAI, "gpt-4o", 262_960, 0, cache_read_tokens=257_955)

    assert cost == (5_005 * Decimal("2.5") + 257_955 * Decimal("1.25")) / 1_000_000
    assert cost != 262_960 * Decimal("2.5") / 1_000_000


def test_cached_tokens_beside_the_prompt_are_added() -> None:
    """Where cached tokens are not part of the prompt, reads and writes are charged once each."""
    cost = cost_of(
        ANTHROPIC, "claude-haiku-4-5", 1_000, 100, cache_read_tokens=3_000, cache_write_tokens=2_000
    )

    million = Decimal(1_000_000)
    assert cost == (1_000 + 3_000 * Decimal("0.1") + 2_000 * Decimal("1.25") + 100 * 5) / million


def test_reasoning_outside_the_completion_is_added() -> None:
    """Gemini's 9, 22 and 21 tokens cost 0.0001102 dollars, not 0.0000577."""
    assert cost_of(GEMINI, "gemini-2.5-flash", 9, 22, reasoning_tokens=21) == Decimal("0.0001102")


def test_reasoning_inside_the_completion_is_not_counted_twice() -> None:
    """At OpenAI reasoning is part of the completion: it adds nothing."""
    assert cost_of(OPENAI, "gpt-5-mini", 9, 43, reasoning_tokens=21) == cost_of(
        OPENAI, "gpt-5-mini", 9, 43
    )


def test_thoughts_that_only_the_total_counts_are_charged() -> None:
    """Gemini's endpoint reports thoughts in no count but the total; they are charged as output."""
    with_thoughts = cost_of(GEMINI, "gemini-2.5-flash", 35, 12, total_tokens=109)

    assert with_thoughts == cost_of(GEMINI, "gemini-2.5-flash", 35, 12, reasoning_tokens=62)


@pytest.mark.parametrize("total, output", [(334, 322), (14, 2), (None, None), (20, None)], ids=str)
def test_the_total_decides_where_the_preset_does_not_know(
    total: int | None, output: int | None
) -> None:
    """At xAI the total says whether reasoning is inside; where it does not, nothing is known."""
    cost = cost_of(
        load_preset("xai"), "grok-3-mini", 12, 2, reasoning_tokens=320, total_tokens=total
    )

    if output is None:
        assert cost is None
    elif total == 14:
        # 320 tokens cannot be inside 2.
        assert cost is None
    else:
        assert cost == cost_of(load_preset("xai"), "grok-3-mini", 12, output)


def test_reasoning_inside_by_the_total() -> None:
    """Where the total is prompt and completion, reasoning is part of the completion."""
    xai = load_preset("xai")

    assert cost_of(xai, "grok-3-mini", 12, 322, reasoning_tokens=320, total_tokens=334) == cost_of(
        xai, "grok-3-mini", 12, 322
    )


def test_an_unknown_model_has_no_cost() -> None:
    """A model that the list does not have costs nothing known, not zero, and the list is named."""
    price = price_of(OPENAI, "no-such-model", prompt_tokens=1, completion_tokens=1, at_us=AT)

    assert price.cost is None
    assert price.source == "genai-prices"
    assert price.version == price_list_version()


def test_a_model_that_is_listed_without_prices_has_no_cost() -> None:
    """A listed model without any price is not free."""
    azure = load_preset("azure-openai")

    assert list_prices(azure, "mai-ds-r1:free", AT) is None
    assert cost_of(azure, "mai-ds-r1:free", 10, 10) is None


def test_a_local_server_is_not_priced() -> None:
    """A preset without a place in the price list asks no list."""
    assert (
        price_of(load_preset("vllm"), "gpt-4o", prompt_tokens=1, completion_tokens=1, at_us=AT)
        == NOT_PRICED
    )
    assert list_prices(load_preset("vllm"), "gpt-4o", AT) is None


@pytest.mark.parametrize(
    "counts",
    [
        {"prompt_tokens": None, "completion_tokens": 1},
        {"prompt_tokens": 1, "completion_tokens": None},
        {"prompt_tokens": -1, "completion_tokens": 1},
        {"prompt_tokens": 198, "completion_tokens": 18, "cache_read_tokens": 314},
        {"prompt_tokens": 9, "completion_tokens": 10, "reasoning_tokens": 11},
    ],
)
def test_missing_or_contradicting_counts_have_no_cost(counts: dict[str, Any]) -> None:
    """Usage that was not reported, or cannot be, gives no cost."""
    assert price_of(OPENAI, "gpt-4o", **counts, at_us=AT).cost is None


def test_cached_tokens_of_an_unknown_kind_have_no_cost() -> None:
    """Where nobody knows whether cached tokens are inside the prompt, none are guessed."""
    unknown = replace(OPENAI, cached_in_prompt=None)

    assert cost_of(unknown, "gpt-4o", 10, 1, cache_read_tokens=5) is None
    assert cost_of(unknown, "gpt-4o", 10, 1, cache_read_tokens=0) is not None


def test_zero_tokens_cost_zero() -> None:
    """Usage that was reported as zero has a cost, and it is zero."""
    assert cost_of(OPENAI, "gpt-4o", 0, 0) == 0


def test_an_output_without_a_price_has_no_cost() -> None:
    """A model with a price for its input only is priced only without output."""
    model = "text-embedding-3-small"

    assert cost_of(OPENAI, model, 10, 0) is not None
    assert cost_of(OPENAI, model, 10, 1) is None


def test_prices_are_those_of_the_time() -> None:
    """A price that changed is the one in force at the time of the call."""
    deepseek = load_preset("deepseek")
    by_hour = {
        cost_of(deepseek, "deepseek-chat", 1_000_000, 0, at_us=microseconds(time))
        for time in (datetime(2025, 6, 1, hour, tzinfo=UTC) for hour in (12, 20))
    }

    assert len(by_hour) == 2


def test_prices_change_at_full_minutes() -> None:
    """No model of the list has a price that begins or ends within a minute."""
    from genai_prices.data import providers
    from genai_prices.types import TimeOfDateConstraint

    models = [model for provider in providers for model in provider.models]
    limits = [
        limit
        for model in models
        if isinstance(model.prices, list)
        for price in model.prices
        if isinstance(limit := price.constraint, TimeOfDateConstraint)
    ]

    assert limits
    for limit in limits:
        for time in (limit.start_time, limit.end_time):
            assert (time.second, time.microsecond) == (0, 0)


def test_a_long_prompt_changes_the_price_of_every_token() -> None:
    """Past the start of a tier all tokens have its price; at the start they have the lower one."""
    at_start = cost_of(GEMINI, "gemini-2.5-pro", 200_000, 0)
    past_it = cost_of(GEMINI, "gemini-2.5-pro", 200_001, 0)

    assert at_start == 200_000 * Decimal("1.25") / 1_000_000
    assert past_it == 200_001 * Decimal("2.5") / 1_000_000
    assert (list_prices(GEMINI, "gemini-2.5-pro", AT) or {})["input"] == Decimal("1.25")


def test_list_prices_are_decimals() -> None:
    """The prices of a model are Decimals per million tokens."""
    prices = list_prices(OPENAI, "gpt-4o", AT)

    assert prices == {
        "input": Decimal("2.5"),
        "output": Decimal("10"),
        "cache_read": Decimal("1.25"),
    }
    assert list_prices(OPENAI, "no-such-model", AT) is None


@given(units=st.integers(0, 1 << 80), places=st.integers(0, 30))
def test_a_cost_in_floats_is_the_nearest_to_the_exact_one(units: int, places: int) -> None:
    """The double is the one that the exact amount rounds to, however many digits that has."""
    price = Price(units, places, source=None, version=None)

    assert price.cost is not None
    assert price.cost * 10**places == units
    assert price.dollars == units / 10**places == float(price.cost)


def test_importing_does_not_load_the_list() -> None:
    """The price list, which brings an HTTP client, is imported by the first price only."""
    code = (
        "import sys, everyturn.presets.price as price\n"
        "assert 'genai_prices' not in sys.modules\n"
        "price.warm_prices()\n"
        "assert 'genai_prices.data' in sys.modules\n"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_list_inside_the_package_is_the_one_used() -> None:
    """An update that the process loaded elsewhere changes nothing, since `version` names ours."""
    from genai_prices import data_snapshot

    before = cost_of(OPENAI, "gpt-4o", 1_000, 1_000)
    data_snapshot.set_custom_snapshot(
        data_snapshot.DataSnapshot(providers=[], from_auto_update=True)
    )
    try:
        warm_prices()
        assert cost_of(OPENAI, "gpt-4o", 1_000, 1_000) == before
        assert cost_of(OPENAI, "gpt-4o-mini", 1_000, 1_000) is not None
    finally:
        data_snapshot.set_custom_snapshot(None)


@given(
    prompt=st.integers(0, 2_000_000),
    output=st.integers(0, 100_000),
    read=st.integers(0, 1_000_000),
    write=st.integers(0, 1_000_000),
    reasoning=st.integers(0, 100_000),
    seed=st.integers(0),
)
def test_our_arithmetic_is_that_of_the_list(
    prompt: int, output: int, read: int, write: int, reasoning: int, seed: int
) -> None:
    """For any model and counts the cost is the one that the package itself works out."""
    from genai_prices import Usage, calc_price
    from genai_prices.data import providers

    models = [(provider.id, model.id) for provider in providers for model in provider.models]
    provider, model = models[seed % len(models)]
    read, reasoning = min(read, prompt), min(reasoning, output)
    write = min(write, prompt - read)
    ours = price_of(
        replace(OPENAI, price_provider=provider),
        model,
        prompt_tokens=prompt,
        completion_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=reasoning,
        at_us=AT,
    ).cost

    if ours is None:
        return
    usage = Usage(
        input_tokens=prompt,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=write,
        output_reasoning_tokens=reasoning,
    )
    theirs = calc_price(
        usage, model, provider_id=provider, genai_request_timestamp=TIME
    ).total_price
    # They divide each product, we divide the sum: the last of 28 digits may differ.
    assert abs(ours - theirs) <= Decimal("1e-20")


def test_every_model_of_the_presets_is_priced_like_the_list() -> None:
    """Each model with a price for its text has a cost here too."""
    from genai_prices import Usage, calc_price
    from genai_prices.data import providers

    usage = Usage(input_tokens=1_000, output_tokens=100, cache_read_tokens=10)
    wrong = []
    for provider in providers:
        preset = replace(OPENAI, price_provider=provider.id)
        for model in provider.models:
            if list_prices(preset, model.id, AT) is None:
                continue
            ours = cost_of(preset, model.id, 1_000, 100, cache_read_tokens=10)
            theirs = calc_price(
                usage, model.id, provider_id=provider.id, genai_request_timestamp=TIME
            ).total_price
            if ours is not None and abs(ours - theirs) > Decimal("1e-20"):
                wrong.append((provider.id, model.id, ours, theirs))
    assert not wrong
