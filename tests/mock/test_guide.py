"""The guide to the scripted provider says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from everyturn.mock.scenario import Scenario
from everyturn.mock.scenarios import GROUPS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "mock.md"


def row(scenario: Scenario) -> str:
    """A scenario's row in the guide."""
    name = f"`{scenario.name}`"
    if scenario.number:
        name += f", `{scenario.name}-N` (N: {scenario.number})"
    return f"| {name} | `{scenario.preset}` | {scenario.title} |"


def test_guide_lists_the_scenarios() -> None:
    """The guide has each scenario once, in its group, with its preset and its title."""
    lines = PAGE.read_text(encoding="utf-8").partition("\n## Scenarios\n")[2].splitlines()
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("### "):
            found[line.removeprefix("### ")] = []
        elif line.startswith("| `"):
            list(found.values())[-1].append(line)

    assert found == {group: [row(each) for each in told] for group, told in GROUPS.items()}


def test_example_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The Python of the guide does what it says."""
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    exec(compile(example, str(PAGE), "exec"), {})  # noqa: S102 - it is the text of our own guide

    assert capsys.readouterr().out == "Each of the seven people gets 12 pears.\n"
