"""The guide to recording from an application says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from everyturn.sdk.counting import COUNTERS
from everyturn.sdk.settings import ENVIRONMENT
from tests.support.receiver import Receiver

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "sdk.md"
EXAMPLES = [
    example
    for page in (PAGE, ROOT / "README.md")
    for example in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    if "import everyturn" in example
]


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_of_the_guide_run(example: str, gateway: Receiver) -> None:
    """Each example, the README's too, runs by itself, and the gateway takes all that it records."""
    import everyturn

    exec(compile(example, str(PAGE), "exec"), {})  # noqa: S102 - it is the text of our own guide

    assert everyturn.flush(30)
    assert gateway.faults == []


def test_guide_lists_the_counters() -> None:
    """The guide has each counter once, in order, with its meaning."""
    rows = PAGE.read_text(encoding="utf-8").partition("| counter |")[2].splitlines()[2:]

    assert rows == [f"| `{name}` | {meaning} |" for name, meaning in COUNTERS.items()]


def test_guide_names_every_variable() -> None:
    """Each variable that a setting can come from stands in the guide."""
    text = PAGE.read_text(encoding="utf-8")

    assert [name for name in ENVIRONMENT.values() if f"`{name}" not in text] == []
