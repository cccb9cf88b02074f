"""The compiled build under test (`make test-native`), and the tests that it cannot run.

A compiled module says and does what its source does, but for what is named here: mypyc takes
annotations for promises, gives no way to look at or replace what it compiled, and lets an attribute
of a frozen dataclass be set, which the type checker refuses.
"""

from __future__ import annotations

from typing import Final

from everyturn.wire import stream

IS_COMPILED: Final = not stream.__file__.endswith(".py")

NEED_THE_INTERPRETER: Final = {
    "tests/wire/test_events.py::test_an_event_cannot_be_changed": (
        "sets attributes of frozen dataclasses, and gives members values of the wrong type"
    ),
    "tests/audit/test_redaction_work.py": "counts the lines that Python runs",
    "tests/gateway/test_large_requests.py": "derives a cleaner that holds threads up",
}
"""Tests, or files of them, with the reason."""


def needs_the_interpreter(name: str) -> bool:
    """Whether a test, by its pytest name, is none for the compiled build."""
    return any(
        name == test or name.startswith((f"{test}::", f"{test}[")) for test in NEED_THE_INTERPRETER
    )
