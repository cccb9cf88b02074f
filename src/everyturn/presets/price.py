"""What a call cost, from the price list of `genai-prices`, or that nobody knows.

Amounts are US dollars, exact, from the prices in force when the call was made. An unknown model,
unknown usage or counts that contradict each other have no cost; none of them costs zero.
The list is the one inside the installed package: nothing here reads the network, and an update
that the same process may have loaded elsewhere is not looked at, so `version` says it all.

The package takes about 0.4 s and 27 MB to import (it brings an HTTP client for its updates), so it
is imported at the first call. A server calls `warm_prices` in a thread before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from everyturn.wire.preset import Preset

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

SOURCE: Final = "genai-prices"
_MINUTE_US: Final = 60_000_000
_MODELS_MAX: Final = 4096
"""Model names whose look-up is kept; beyond it the least used is looked up again."""
_LISTED: Final = (
    ("input", "input_mtok"),
    ("output", "output_mtok"),
    ("cache_read", "cache_read_mtok"),
    ("cache_write", "cache_write_mtok"),
    ("reasoning", "output_reasoning_mtok"),
    ("request", "requests_kcount"),
)
"""What a text call is charged for, and what the list has it under."""
_EXACT_UNITS_MAX: Final = 1 << 53
_POWERS: Final = [float(10**places) for places in range(23)]
"""Those that a double holds exactly."""


class Price:
    """The cost of one call."""

    __slots__ = ("_places", "_units", "source", "version")

    def __init__(
        self, units: int | None, places: int, source: str | None, version: str | None
    ) -> None:
        """units: the cost as a whole number of `10**-places` dollars; None: not known."""
        self._units = units
        self._places = places
        self.source = source
        """The price list that was asked; None: none was."""
        self.version = version
        """Its version; None: none was asked."""

    @property
    def cost(self) -> Decimal | None:
        """US dollars; None: not known."""
        return None if self._units is None else Decimal(self._units).scaleb(-self._places)

    @property
    def dollars(self) -> float | None:
        """The cost as the double nearest to it."""
        units = self._units
        if units is None:
            return None
        if units < _EXACT_UNITS_MAX and self._places < len(_POWERS):
            return float(units) / _POWERS[self._places]  # Of two that are exact.
        return float(Decimal(units).scaleb(-self._places))


NOT_PRICED: Final = Price(None, 0, source=None, version=None)


_Tokens = tuple[int, int, int, int, int]
"""The counts of a call by what each is charged as: all input, cached tokens included; of it read
from and written to the cache; all output, reasoning included; of it reasoning, or 0 where that was
not reported."""


class _Rate:
    """What the tokens of one count cost, in units each."""

    __slots__ = ("_base", "_tiers")

    def __init__(self, rate: Decimal | TieredPrices, places: int) -> None:
        base = rate if isinstance(rate, Decimal) else rate.base
        self._base = _units(base, places)
        self._tiers: list[tuple[int, int]] = []
        """Where a tier starts, and its rate; the highest first."""
        if not isinstance(rate, Decimal):
            self._tiers = [(t.start, _units(t.price, places)) for t in reversed(rate.tiers)]

    def of(self, prompt: int) -> int:
        """For a prompt of this length; passing a tier's start changes it for all tokens."""
        for start, units in self._tiers:
            if prompt > start:
                return units
        return self._base


class _Rates:
    """The rates of a model. None: that count has no rate of its own and has its parent's."""

    __slots__ = (
        "cache_read",
        "cache_write",
        "input",
        "listed",
        "output",
        "places",
        "reasoning",
        "request",
    )

    def __init__(self, listed: dict[str, Decimal | TieredPrices]) -> None:
        """listed: dollars per million tokens, and `request` per thousand calls."""
        self.listed = listed
        self.places = max(_places(name, rate) for name, rate in listed.items())
        """A unit is `10**-places` dollars, so that all are whole numbers of it."""
        self.input = self._rate("input")
        self.output = self._rate("output")
        self.cache_read = self._rate("cache_read")
        self.cache_write = self._rate("cache_write")
        self.reasoning = self._rate("reasoning")
        request = listed.get("request")
        self.request = _units(request, self.places - 3) if isinstance(request, Decimal) else 0
        """Units a call."""

    def _rate(self, name: str) -> _Rate | None:
        rate = self.listed.get(name)
        return None if rate is None else _Rate(rate, self.places - 6)


def _places(name: str, rate: Decimal | TieredPrices) -> int:
    """Decimal places of what one token, or one call, costs at most."""
    amounts = [rate] if isinstance(rate, Decimal) else [rate.base, *(t.price for t in rate.tiers)]
    digits = [-int(amount.as_tuple().exponent) for amount in amounts]
    return max(0, *digits) + (3 if name == "request" else 6)


def _units(amount: Decimal, places: int) -> int:
    return int(amount.scaleb(places))


def warm_prices() -> None:
    """Import the price list, so that the first call does not wait for it. Idempotent."""
    _snapshot()


def price_of(
    preset: Preset,
    model: str,
    *,
    prompt_tokens: int | None,
    completion_tokens: int | None,
    total_tokens: int | None = None,
    reasoning_tokens: int | None = None,
    cache_read_tokens: int | None = None,
    cache_write_tokens: int | None = None,
    at_us: int,
) -> Price:
    """The cost of one call, from the counts as the provider reported them (None: not reported).

    model: the name the provider served, or the one that was asked for.
    total_tokens: decides whether reasoning is inside `completion_tokens` where the preset does not
        know, and how much there was where it was left out of it and not reported.
    at_us: when the call was made, in microseconds since 1970.
    Raises nothing: what cannot be priced has no cost.
    """
    if preset.price_provider is None:
        return NOT_PRICED
    tokens = _tokens(
        preset,
        prompt_tokens,
        completion_tokens,
        total_tokens,
        reasoning_tokens,
        cache_read_tokens or 0,
        cache_write_tokens or 0,
    )
    version = price_list_version()
    rates = None if tokens is None else _rates_at(preset.price_provider, model, at_us)
    if tokens is None or rates is None:
        return Price(None, 0, SOURCE, version)
    return Price(_cost(rates, tokens), rates.places, SOURCE, version)


def list_prices(preset: Preset, model: str, at_us: int) -> Mapping[str, Decimal] | None:
    """The prices of a model at a time, in US dollars; None: not known.

    Keys: `input`, `output`, `cache_read`, `cache_write`, `reasoning` per million tokens and
    `request` per thousand calls, as far as the list has them. Of a price that rises with the length
    of the prompt, the lowest.
    """
    if preset.price_provider is None:
        return None
    rates = _rates_at(preset.price_provider, model, at_us)
    if rates is None:
        return None
    return {
        name: rate if isinstance(rate, Decimal) else rate.base
        for name, rate in rates.listed.items()
    }


@cache
def price_list_version() -> str:
    """The version of the price list, without importing it."""
    from importlib.metadata import version  # takes 30 ms, and only prices need it

    return version(SOURCE)


def _tokens(
    preset: Preset,
    prompt: int | None,
    completion: int | None,
    total: int | None,
    reasoning: int | None,
    read: int,
    write: int,
) -> _Tokens | None:
    """The counts as they are charged; None where they are missing or contradict each other."""
    if prompt is None or completion is None:
        return None
    if prompt < 0 or completion < 0 or read < 0 or write < 0:
        return None
    if read or write:
        if preset.cached_in_prompt is None:
            return None
        if not preset.cached_in_prompt:
            prompt += read + write
        elif read + write > prompt:
            return None
    inside = preset.reasoning_in_completion
    if inside is None:
        inside = _is_inside(prompt, completion, total, reasoning)
        if inside is None:
            return None
    if not inside:
        if reasoning is None:
            # Gemini's endpoint leaves thoughts out of every count but the total.
            reasoning = 0 if total is None else max(0, total - prompt - completion)
        completion += reasoning
    if reasoning is not None and not 0 <= reasoning <= completion:
        return None
    return prompt, read, write, completion, reasoning or 0


def _is_inside(
    prompt: int, completion: int, total: int | None, reasoning: int | None
) -> bool | None:
    """Whether `completion` has the reasoning in it, by the total; None where that does not say."""
    if not reasoning:
        return True
    if total == prompt + completion:
        return True
    if total == prompt + completion + reasoning:
        return False
    return None


def _cost(rates: _Rates, tokens: _Tokens) -> int | None:
    """Units for these counts; None where a count has no rate at all."""
    prompt, read, write, output, reasoning = tokens
    plain = prompt
    cost = rates.request
    if read and rates.cache_read is not None:
        cost += rates.cache_read.of(prompt) * read
        plain -= read
    if write and rates.cache_write is not None:
        cost += rates.cache_write.of(prompt) * write
        plain -= write
    if reasoning and rates.reasoning is not None:
        cost += rates.reasoning.of(prompt) * reasoning
        output -= reasoning
    if rates.input is not None:
        cost += rates.input.of(prompt) * plain
    elif plain:
        return None
    if rates.output is not None:
        cost += rates.output.of(prompt) * output
    elif output:
        return None
    return cost


def _rates_at(provider: str, model: str, at_us: int) -> _Rates | None:
    """The rates in force at a time; None where the list has none for that model."""
    info, rates = _listed(provider, model)
    return rates if info is None else _rates_within(provider, model, at_us // _MINUTE_US)


@lru_cache(maxsize=_MODELS_MAX)
def _rates_within(provider: str, model: str, minute: int) -> _Rates | None:
    """The rates of a model in one minute since 1970. Those with hours change at full minutes."""
    info, rates = _listed(provider, model)
    if info is None:
        return rates
    return _rates(info.get_prices(datetime.fromtimestamp(minute * 60, UTC)))


@lru_cache(maxsize=_MODELS_MAX)
def _listed(provider: str, model: str) -> tuple[ModelInfo | None, _Rates | None]:
    """The entry of a model whose prices depend on time, or else its rates; (None, None): neither.

    Kept, because a look-up takes some milliseconds: it tries the patterns of every model.
    """
    try:
        info = _snapshot().find_provider_model(model, None, provider, None)[1]
    except LookupError:
        return None, None
    if isinstance(info.prices, list):
        return info, None
    return None, _rates(info.prices)


def _rates(price: ModelPrice) -> _Rates | None:
    """The rates that a text call has; None where the list has the model without any."""
    found = price.__dict__
    listed = {name: rate for name, key in _LISTED if (rate := found.get(key)) is not None}
    return _Rates(listed) if "input" in listed or "output" in listed else None


@cache
def _snapshot() -> DataSnapshot:
    """The price list inside the package, whatever snapshot the process may have set."""
    from genai_prices.data import providers
    from genai_prices.data_snapshot import DataSnapshot

    return DataSnapshot(providers=providers, from_auto_update=False)
