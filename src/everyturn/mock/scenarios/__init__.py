"""Every built-in scenario, by name, in the order of the guide."""

from __future__ import annotations

from typing import Final

from everyturn.mock.scenario import Scenario
from everyturn.mock.scenarios import answers

GROUPS: Final[dict[str, tuple[Scenario, ...]]] = {
    "Answers": answers.SCENARIOS,
}
"""The scenarios as the guide and the command show them."""

SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.name: scenario for group in GROUPS.values() for scenario in group
}
