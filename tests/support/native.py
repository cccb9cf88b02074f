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
    "tests/gateway/test_records.py::test_only_an_id_that_was_made_here_is_new": (
        "listens to a method of the writer"
    ),
    "tests/store/test_lookup.py::test_what_only_the_index_holds_is_not_stored_again": (
        "changes a constant, which compiled code holds a copy of"
    ),
    "tests/store/test_lookup.py::test_merges_keep_up_with_commits": (
        "changes a constant, which compiled code holds a copy of"
    ),
    "tests/store/test_lookup.py::test_a_large_index_is_asked_each_time": (
        "changes a constant, which compiled code holds a copy of"
    ),
    "tests/store/test_lookup.py::test_a_merge_that_cannot_be_takes_nothing_from_its_commit": (
        "has a method fail"
    ),
    "tests/store/test_lookup.py::test_a_turn_whose_id_was_just_made_is_not_looked_for": (
        "changes a constant, and listens to a method"
    ),
}
"""Tests, or files of them, with the reason."""


def needs_the_interpreter(name: str) -> bool:
    """Whether a test, by its pytest name, is none for the compiled build."""
    return any(
        name == test or name.startswith((f"{test}::", f"{test}[")) for test in NEED_THE_INTERPRETER
    )
