"""What a scenario is, and how a model's name chooses one. Pure.

The last part of the model's name decides: `openai/mock-plain`, `mock-plain` and `plain` are the
same scenario; `_` and `-` are the same character. A family takes a number: `bench-50`, `drip-20`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from everyturn.mock.script import Script
from everyturn.mock.traffic import SeenRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a scenario may look at when it makes its script."""

    name: str
    """The scenario as it was asked for, number included: `bench-50`."""
    number: int | None = None
    """The number at the end of a family's name; None when none was given."""
    request: SeenRequest
    body: Mapping[str, Any]
    """The request's body, all its numbers floats."""
    now: float
    """Seconds since 1970, from the provider's clock."""


Play = Callable[[Ask], Script]
"""Makes the script of a scenario. Equal asks give equal scripts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One thing the scripted provider can do."""

    name: str
    title: str
    """One line that says what a client meets."""
    play: Play
    preset: str = "generic-strict"
    """A preset to put before it: what it shows is evidenced there, or is a fault there too."""
    number: str | None = None
    """What a number at the end of the name means; None for a scenario that takes none."""
    varies: bool = False
    """Whether it is made for each request: it depends on it or on the clock, or is big to keep."""


def scenario_name(model: str) -> str:
    """The scenario that a model's name asks for: last part, without `mock-`, `_` as `-`."""
    last = model.rsplit("/", 1)[-1].replace("_", "-")
    return last.removeprefix("mock-")


def split_number(name: str) -> tuple[str, int | None]:
    """A family's name and its number: `drip-20` is (`drip`, 20); (`plain`, None) without one."""
    family, dash, digits = name.rpartition("-")
    # Nine digits are a bound that no family comes near; `isdecimal` alone would let other scripts'
    # digits through.
    if dash and digits.isascii() and digits.isdecimal() and len(digits) <= 9:
        return family, int(digits)
    return name, None
