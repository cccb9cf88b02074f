"""The cleaner: one scan for what comes together, and a memory of what was clean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from everyturn.audit.cleaning import Cleaner
from everyturn.audit.redact import Redactor

KEY = b"k" * 32
SECRET = "sk-test-FAKE1234FAKE1234FAKE"
CLEANER = Cleaner(Redactor(KEY), KEY)


@pytest.mark.parametrize("said", ["plain words", f"here it is: {SECRET}"])
@pytest.mark.parametrize("beside", ["req_0123456789", SECRET, f"a\n{SECRET}", None])
def test_what_comes_together_is_cleaned_as_if_it_came_alone(said: str, beside: str | None) -> None:
    """One scan for a tree and a text gives what two would, whichever of them holds a secret."""
    tree = {"content": said}

    cleaned, text = CLEANER.said_beside(tree, beside)

    assert cleaned == CLEANER.said(tree)
    assert text == (None if beside is None else CLEANER.text(beside))
    assert SECRET not in cleaned.value
    assert text is None or SECRET not in text.value


@pytest.mark.parametrize(
    "tree",
    [
        {"temperature": 0.2, "stop": ["\n"]},
        {"user": SECRET},
        {"metadata": {"file": "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA"}},
        {"metadata": {"note": "x" * 3000}},
    ],
)
def test_parameters_come_back_the_same_however_often_they_are_sent(tree: dict[str, Any]) -> None:
    """What is remembered of parameters is what cleaning them gave, and no secret is in it."""
    cleaner = Cleaner(Redactor(KEY), KEY)

    first = cleaner.parameters(tree)

    assert cleaner.parameters(tree) == first
    assert cleaner.parameters(json.loads(json.dumps(tree))) == first
    assert SECRET not in first.value
    assert SECRET not in repr([getattr(cleaner, name) for name in dir(cleaner)])


def test_an_address_with_line_ends_is_text() -> None:
    """What tells a key over several lines is not lost by taking an address apart."""
    key = "FAKEfake0123456789FAKEfake0123456789"

    cleaned = CLEANER.url(f"PuTTY-User-Key-File-3: rsa\nPrivate-Lines: 1\n{key}")

    assert key not in cleaned
    assert "[redacted:putty_key:" in cleaned
