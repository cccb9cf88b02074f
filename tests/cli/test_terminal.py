"""What models wrote cannot do anything to a terminal."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from rich.table import Table

from everyturn.cli.main import main
from everyturn.cli.terminal import counted, json_line, print_table, safe, safe_line


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


def test_a_table_ends_where_its_words_end(capsys: pytest.CaptureFixture[str]) -> None:
    """In a file or a pipe no line of a table ends with blanks."""
    table = Table("one", "two", box=None, pad_edge=False)
    table.add_row("a", "longer than its head")
    table.add_row("b", "")

    print_table(table, width=200)

    lines = capsys.readouterr().out.split("\n")
    assert lines == ["one  two", "a    longer than its head", "b", ""]


def test_one_is_not_counted_as_many() -> None:
    """The word follows the number."""
    assert [counted(number, "model") for number in (0, 1, 2)] == ["0 models", "1 model", "2 models"]


@pytest.mark.parametrize("group", [[], ["bench"], ["worker"], ["key"]])
def test_help_cuts_no_sentence(group: list[str]) -> None:
    """The list of commands says the whole first sentence of each."""
    told = CliRunner().invoke(main, [*group, "--help"])

    assert told.exit_code == 0
    assert "Commands:" in told.output
    assert "..." not in told.output.partition("\nCommands:\n")[2]


def test_a_worker_that_may_call_nothing_does_not_start() -> None:
    """Without a model server to call, `worker run` is bad use and says what is missing."""
    refused = CliRunner().invoke(main, ["worker", "run"])

    assert refused.exit_code == 2
    assert "--allow" in refused.stderr
