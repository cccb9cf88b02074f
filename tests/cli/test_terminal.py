"""What models wrote cannot do anything to a terminal."""

from __future__ import annotations

import json

import pytest

from everyturn.cli.terminal import json_line, safe, safe_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\nhere", "plain\ttext\nhere"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("a\rb\bc\x7f\x9b", "a\\x0db\\x08c\\x7f\\x9b"),
        ("user\u202etxt.exe", "user\\u202etxt.exe"),
        ("a\u2028b\ufeffc\ud800", "a\\u2028b\\ufeffc\\ud800"),
        ("[bold]not markup[/bold]", "[bold]not markup[/bold]"),
        ("नमस्ते 👩‍👧 你好", "नमस्ते 👩‍👧 你好"),
        ("nul\0", "nul\\x00"),
    ],
)
def test_controls_are_shown_and_not_done(text: str, shown: str) -> None:
    """Escape sequences, carriage returns and bidirectional controls become visible escapes."""
    assert safe(text) == shown


def test_one_line() -> None:
    """A text on one line has its white space folded and its end marked when it is cut."""
    assert safe_line("a\n  b\tc", 10) == "a b c"
    assert safe_line("abcdef", 4) == "abc…"


def test_json_is_safe_too_and_says_the_same() -> None:
    """Controls that JSON lets through are escaped; whoever parses the line gets them back."""
    value = {"\x9b31m": "\x7f\u202e\u2028\ufeff\x1b[2J\nnaïve 你好"}

    line = json_line(value)

    assert json.loads(line) == value
    assert line.endswith(b"\n")
    assert line[:-1].decode().isprintable()
    assert "naïve 你好" in line.decode()
