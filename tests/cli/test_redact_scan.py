"""`everyturn redact-scan`: where the rules find something in files, and never what."""

from __future__ import annotations

import json
import os
from io import BytesIO
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from everyturn.audit.finding import findings
from everyturn.audit.redact import Redactor
from everyturn.cli.main import main
from everyturn.cli.redact_scan import Scan

SECRET = "ghp_" + "FAKE" * 9
CONFIG = """\
[redaction]
rules = [{name = "ticket", pattern = "TCK-[0-9]{6}"}]
known_env = ["OURS"]

[[models]]
name = "m"
preset = "generic-strict"
base_url = "http://127.0.0.1:1/v1"
"""


def scan(*arguments: str, text: str | None = None, env: dict[str, str] | None = None) -> Result:
    """The command's result, which never shows a secret."""
    result = CliRunner().invoke(main, ["redact-scan", *arguments], input=text, env=env)
    assert "FAKE" not in result.output
    return result


def test_each_find_has_its_place(tmp_path: Path) -> None:
    """Rule, line, column and length stand on a line each; the exit status is 1."""
    path = tmp_path / "notes.txt"
    path.write_text(f"a\nключ {SECRET} b\npassword = 'FAKE1'\n", encoding="utf-8")

    result = scan(str(path))

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{path}:2:6: github_token ({len(SECRET)} characters)",
        f"{path}:3:13: assigned (5 characters)",
    ]
    assert result.stderr == "2 found in 1 of 1 files\n"


def test_nothing_found_is_zero(tmp_path: Path) -> None:
    """A clean file and an empty folder give no line and status 0."""
    (tmp_path / "a.txt").write_text("clean\n")

    assert (scan(str(tmp_path)).exit_code, scan(str(tmp_path)).stdout) == (0, "")


def test_standard_input_and_json() -> None:
    """`-` reads the standard input; `--json` gives one object a line."""
    result = scan("-", "--json", text=f"x {SECRET}")

    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "path": "-",
        "line": 1,
        "column": 3,
        "length": len(SECRET),
        "rule": "github_token",
    }


def test_a_folder_is_walked_without_its_links(tmp_path: Path) -> None:
    """Files below a folder are read in order; links, fifos and binary files are counted."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "one.txt").write_text(SECRET)
    (tmp_path / "a.bin").write_bytes(b"\0\xff " + SECRET.encode() + b"\0")
    (tmp_path / "link.txt").symlink_to(tmp_path / "b" / "one.txt")
    (tmp_path / "again").symlink_to(tmp_path / "b")
    os.mkfifo(tmp_path / "fifo")

    result = scan(str(tmp_path))

    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == [
        str(tmp_path / "a.bin"),
        str(tmp_path / "b" / "one.txt"),
    ]
    assert "2 of 2 files; 1 are no text; 3 links" in result.stderr


def test_a_configuration_adds_its_rules(tmp_path: Path) -> None:
    """With `--config`, own rules and known values are found too; a wrong one is status 2."""
    config = tmp_path / "everyturn.toml"
    config.write_text(CONFIG)
    text = "TCK-123456 and house FAKE value"

    assert scan("-", text=text).exit_code == 0
    result = scan("-", "--config", str(config), text=text, env={"OURS": "house FAKE value"})
    assert [line.split(" ")[1] for line in result.stdout.splitlines()] == ["ticket", "known"]

    config.write_text("[redaction]\nrules = 1\n")
    assert scan("-", "--config", str(config), text="x").exit_code == 2
    assert scan(str(tmp_path / "none")).exit_code == 2


@pytest.mark.parametrize("separator", ["\n", " "])
def test_big_files_are_read_in_pieces(capsys: pytest.CaptureFixture[str], separator: str) -> None:
    """Each find of a big file is told once with its place, wherever the pieces end."""
    places = [0, 470, 937, 990, 1500, 2777, 3950]
    text = ["wörd"[at % 4] if at % 40 else separator for at in range(4100)]
    for place in places:
        text[place : place + len(SECRET) + 2] = f" {SECRET} "
    whole = "".join(text)

    redact_scan = Scan(Redactor(b""), as_json=True, piece_bytes=1000, overlap_bytes=200)
    redact_scan.stream("big.txt", BytesIO(whole.encode()))

    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    lines = whole.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    assert [starts[find["line"] - 1] + find["column"] - 1 for find in found] == [
        place + 1 for place in places if whole[place + 1 :].startswith(SECRET)
    ]


def test_finds_in_json_have_the_place_in_the_text() -> None:
    """In JSON in JSON, a find spans exactly the characters that hold it, escapes included."""
    redactor = Redactor(b"")
    inner = json.dumps({"é\n": f'say "{SECRET}"', "password": "x"})
    text = "first\n" + json.dumps({"a": ["\U0001f600", inner]}) + "\nlast password='FAKE1'\n"

    found = findings(text, redactor)

    assert [find.rule for find in found] == ["github_token", "key_name", "assigned"]
    assert text[found[0].start : found[0].end] == SECRET
    assert text[found[1].start : found[1].end] == '\\"x\\"'
    assert text[found[2].start : found[2].end] == "FAKE1"
