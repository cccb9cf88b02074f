"""Every built-in scenario, by name, in the order of the guide."""

from __future__ import annotations

from typing import Final

from everyturn.mock.scenario import Scenario
from everyturn.mock.scenarios import (
    answers,
    carriers,
    connections,
    endings,
    failures,
    framing,
    json_faults,
    reasoning,
    special,
    tools,
    usage,
)

GROUPS: Final[dict[str, tuple[Scenario, ...]]] = {
    "Answers": answers.SCENARIOS,
    "Reasoning": reasoning.SCENARIOS,
    "Reasoning that does not fit": carriers.SCENARIOS,
    "Tool calls": tools.SCENARIOS,
    "Usage": usage.SCENARIOS,
    "Endings": endings.SCENARIOS,
    "Errors, and answers that are none": failures.SCENARIOS,
    "Framing of streams": framing.SCENARIOS,
    "JSON and text": json_faults.SCENARIOS,
    "Connection and time": connections.SCENARIOS,
    "For tests": special.SCENARIOS,
}
"""The scenarios as the guide and the command show them."""

SCENARIOS: Final[dict[str, Scenario]] = {
    scenario.name: scenario for group in GROUPS.values() for scenario in group
}
