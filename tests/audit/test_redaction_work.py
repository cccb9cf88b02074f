"""Redaction is linear in the text, counted in work and not in time: what hostile texts cost twice.

Work is the calls that are made, and the bytes that are handed to the engine, which RE2 looks at in
linear time.
"""

from __future__ import annotations

import base64
import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from everyturn.audit import encoded, scan, spans
from everyturn.audit.cleaning import Cleaner
from everyturn.audit.personal import NAMES
from everyturn.audit.redact import Redactor
from everyturn.audit.ruleset import own_rule, rules_with
from everyturn.wire.reader import write

KEY = b"k" * 32
SIZE = 2_000
GROWTH_MAX = 2.2
"""Of work, for twice the text; work that does not depend on it makes it less than two."""

OWN = [
    own_rule("nested", "(a+)+!"),
    own_rule("either", "(?:x|xx)+y"),
    own_rule("stars", ".*.*.*=.*END", keyword="END"),
    own_rule("tail", "q(?:[^z]*z)?", check="mixed"),
    own_rule("turned", "[^a-z]{3,}#"),
]
"""Patterns that take a backtracking engine, or a search that starts anew, for ever."""

JWT = "eyJhbGciOiJIUzI1NiJ9"
HOSTILE = {
    "letters": "a" * 31,
    "nested": "a" * 30 + "-",
    "either": "x" * 40,
    "tails": "q",
    "stars": "= END ",
    "no values": "password=",
    "values": "password=a1b2c3d4e5 ",
    "placeholders": "password=${KEY} ",
    "quotes": 'password="',
    "urls": "x://a:",
    "userinfo": "://a:b@",
    "keys without end": "-----BEGIN PRIVATE KEY-----",
    "headers": "Authorization: Bearer ",
    "cookies": "cookie: a=",
    "xml": "<password>a",
    "curl": "curl -u ",
    "jwt words": f"{JWT} ",
    "jwt dots": f"{JWT}.",
    "jwt halves": f" {JWT}.eyJzdWIiOiIxMjM0NTY3ODkw",
    "jwt starts": "eyJ" * 9 + " ",
    "base64": base64.b64encode(b"password=hunter2hunter2 ").decode() + " ",
    "base64 in one": base64.b64encode(b"the words of some plain text ").decode(),
    "percent": "%70%61%73%73",
    "marks": "[redacted:assigned:0123abcd] password=",
    "broken json": '{"a":[',
    "json strings": '"{\\"password\\": 1}",',
    "backslashes": "\\",
    "escapes": "\\u0070",
    "phones": "+1 (555) 010-0000 ",
    "cards": "4111 1111 1111 1112 ",
    "addresses": "a@b.c ",
    "data urls": "data:a;base64,",
    "reasoning": "<think>",
}


def redactors() -> dict[str, Callable[[str], Any]]:
    """Everything that takes a text, over all rules there can be."""
    redactor = Redactor(KEY, known=["known FAKE value"], rules=rules_with(OWN, NAMES))
    cleaner = Cleaner(redactor, KEY)
    return {
        "text": redactor.redact_text,
        "json": lambda text: redactor.redact_json(write({"a": [text, {"password": text}]})),
        "message": lambda text: cleaner.sent(write({"role": "user", "content": text})),
        "answer": lambda text: cleaner.said({"choices": [{"message": {"thinking": text}}]}),
    }


REDACTORS = redactors()
_COUNTED = (scan.__file__, encoded.__file__, spans.__file__)


def work(run: Callable[[], Any]) -> int:
    """Calls that `run` makes, and bytes that it hands to the engine.

    A generator is entered again for each of its values, and gets its text once.
    """
    total = 0
    seen: set[int] = set()
    kept: list[FrameType] = []

    def count(frame: FrameType, event: str, _: Any) -> None:
        nonlocal total
        if event not in ("call", "c_call"):
            return
        total += 1
        if event == "call" and frame.f_code.co_filename in _COUNTED and id(frame) not in seen:
            seen.add(id(frame))
            kept.append(frame)
            given = frame.f_locals.get("raw", b"")
            total += len(given) if isinstance(given, bytes) else 0

    before = sys.getprofile()
    gc.disable()  # What it clears away of other tests is no work of this text.
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
        gc.enable()
    return total


@pytest.mark.parametrize("way", REDACTORS)
@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_twice_the_text_is_twice_the_work(way: str, piece: str) -> None:
    """However a text is made, its work does not grow faster than it does."""
    redact = REDACTORS[way]
    once, twice = (piece * (size // len(piece)) for size in (SIZE, 2 * SIZE))
    work(lambda: redact(once))  # What is built at the first use is no work of a text.

    assert work(lambda: redact(twice)) <= GROWTH_MAX * work(lambda: redact(once))


def test_growth_would_be_seen() -> None:
    """A search that starts anew at each place is found out by the same count."""
    pattern = scan.Pattern("b")

    def search_everywhere(text: str) -> None:
        for start in range(len(text)):
            pattern.occurs(text[start:].encode())

    once, twice = (work(lambda n=n: search_everywhere("a" * n)) for n in (SIZE, 2 * SIZE))  # type: ignore[misc]

    assert twice > 3 * once


def test_a_pattern_we_do_not_know_gets_a_bounded_number_of_tries() -> None:
    """A rule that matches everywhere ends with one find: all of the text, whatever it checks."""
    rule = own_rule("tail", "q(?:[^z]*z)?", check="mixed")
    redactor = Redactor(KEY, rules=rules_with([rule]))

    assert redactor.redact_text("q " * 1000).value == "q " * 1000
    assert redactor.redact_text("q " * 5000).value.startswith("[redacted:tail:")
    assert redactor.redact_text("q " * 5000).counts == {"tail": 1}
