"""`everyturn presets`."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everyturn.cli.presets import presets_command
from everyturn.presets.load import preset_names

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> Result:
    """The command with its output apart from its errors."""
    return CliRunner().invoke(presets_command, arguments, prog_name="everyturn presets")


def own_file(folder: Path) -> Path:
    """The example of the guide as a file."""
    guide = (ROOT / "docs/guide/own-preset.md").read_text("utf-8")
    path = folder / "house-server.toml"
    path.write_text(guide.partition("```toml\n")[2].partition("```")[0], "utf-8")
    return path


def on_a_terminal(*arguments: str) -> str:
    """What the command shows on a terminal of 100 columns."""
    code = "from everyturn.cli.presets import presets_command; presets_command()"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=theirs,
        stderr=subprocess.STDOUT,
        env={**os.environ, "COLUMNS": "100", "TERM": "xterm"},
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break  # Linux ends a terminal without its other side like this.
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait(timeout=30) == 0
    return shown.decode()


def test_the_list_has_one_line_a_preset() -> None:
    """Without a name there is a head and one line for each packaged preset."""
    result = run()

    head, *lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert head.split() == [
        *["name", "provider", "reasoning", "in", "answers", "reasoning", "in", "history"],
        "stream_options",
        "base_url",
    ]
    assert [line.split()[0] for line in lines] == list(preset_names())


def test_the_list_as_json() -> None:
    """The list as JSON has the same rows."""
    rows = json.loads(run("--json").stdout)

    assert [row["name"] for row in rows] == list(preset_names())
    assert rows[3]["reasoning_in_answers"] == "reasoning_content"


def test_one_preset_says_all_it_knows() -> None:
    """A name shows each known fact with value, note and origin, and the defaults of the rest."""
    result = run("deepseek")

    assert result.exit_code == 0
    assert result.stdout.startswith("deepseek: DeepSeek\n")
    assert "history: required_tools\n" in result.stdout
    assert "Once a turn used tools" in result.stdout
    assert "    known from documentation, issue, 2026-11:\n" in result.stdout
    assert "      github.com/anomalyco/opencode/issues/24722\n" in result.stdout
    assert "the strict default holds: auth_header: authorization;" in result.stdout


def test_one_preset_as_json() -> None:
    """A name with --json gives every fact with its evidence."""
    facts = json.loads(run("groq", "--json").stdout)["facts"]

    assert facts["usage_places"]["value"] == ["usage", "x_groq.usage"]
    assert facts["usage_places"]["kind"] == "R"
    assert facts["controls.effort"]["value"]["none"] == {"reasoning_effort": "none"}


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_be_shown(name: str) -> None:
    """Each packaged preset has a text and a JSON form."""
    assert run(name).exit_code == 0
    assert run(name, "--json").exit_code == 0


def test_an_unknown_name_ends_with_2() -> None:
    """An unknown name is refused with the nearest one, on stderr, with exit status 2."""
    result = run("depseek")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert "There is no preset `depseek`. Did you mean `deepseek`?" in result.stderr


def test_a_name_like_none_gets_the_whole_list() -> None:
    """A name that is near to none is answered with all of them."""
    assert "`azure-openai`, `cerebras`" in run("qqq").stderr


def test_a_file_of_ones_own_is_shown(tmp_path: Path) -> None:
    """The path of a file shows what the gateway reads from it."""
    result = run(str(own_file(tmp_path)))

    assert result.exit_code == 0
    assert result.stdout.startswith("house-server: Our inference cluster\n")


def test_a_file_with_faults_ends_with_1(tmp_path: Path) -> None:
    """Each fault of a file is named with its line, with exit status 1."""
    path = own_file(tmp_path)
    path.write_text(path.read_text("utf-8").replace('"off"', '"of"'), "utf-8")
    result = run(str(path))

    assert result.exit_code == 1
    assert "house-server.toml:16: `tags` has a word that is not known here." in result.stderr


def test_a_file_that_is_not_text_ends_with_1(tmp_path: Path) -> None:
    """A file that is not UTF-8 is refused."""
    path = tmp_path / "own.toml"
    path.write_bytes(b"\xff")

    assert run(str(path)).exit_code == 1


def test_a_missing_file_ends_with_2(tmp_path: Path) -> None:
    """A path that cannot be read is refused as a usage error."""
    result = run(str(tmp_path / "none.toml"))

    assert result.exit_code == 2
    assert "No such file" in result.stderr


def test_a_terminal_gets_tables() -> None:
    """On a terminal the list and one preset are tables, and no source is cut off."""
    listed, shown = on_a_terminal(), on_a_terminal("moonshot")

    assert "deepseek" in listed
    assert "┃" in shown
    assert "…" not in shown
    assert "Moonshot AI (Kimi)" in shown


def test_help_says_all() -> None:
    """The help names arguments, options, kinds of evidence and exit status."""
    text = run("--help").stdout

    for part in ("NAME", "--json", "D  documentation", "P  a choice", "Exit status"):
        assert part in text
