"""The commands that the pages show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from everyturn.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


def commands() -> Iterator[str]:
    """Each line of a shell block, or a span of code, that is a command of ours with arguments."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
            yield from re.findall(r"^everyturn .*$", block, re.MULTILINE)
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        yield from re.findall(r"`(everyturn [^`\n]*)`", prose)


LINES = sorted(set(commands()))


def test_the_pages_show_commands() -> None:
    """They are found, in the README and in each kind of page."""
    assert len(LINES) > 60


@pytest.mark.parametrize("line", LINES)
def test_commands_of_pages_exist(line: str) -> None:
    """Each command has the name, and each of its options the spelling, that the page gives it."""
    words = shlex.split(re.sub(r" 2>> \S+", "", line), comments=True)[1:]
    command: click.Command = main
    context = click.Context(main, info_name="everyturn")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, line
        command, words = found, words[1:]
        context = click.Context(command, parent=context)
    command.make_parser(context).parse_args(words)
