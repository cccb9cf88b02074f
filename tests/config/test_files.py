"""Files that are read whole have a bound, whoever reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from everyturn.cli.main import main
from everyturn.config.files import FILE_BYTES_MAX, read_file

ENDLESS = "/dev/zero"


def test_line_ends_are_one_kind(tmp_path: Path) -> None:
    """A file of another system reads as one of this."""
    file = tmp_path / "a.toml"
    file.write_bytes(b"a\r\nb\rc\nd")

    assert read_file(file) == "a\nb\nc\nd"


def test_the_largest_file_is_read_and_a_larger_one_refused(tmp_path: Path) -> None:
    """The bound is on bytes, and what passes it is named."""
    file = tmp_path / "a.toml"
    file.write_bytes(b"#" * FILE_BYTES_MAX)
    assert len(read_file(file)) == FILE_BYTES_MAX
    file.write_bytes(b"#" * (FILE_BYTES_MAX + 1))

    with pytest.raises(OSError, match="large"):
        read_file(file)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["check", ENDLESS], 1),
        (["check", "preset.toml"], 1),
        (["serve", "--config", ENDLESS], 1),
        (["bench", "run", ENDLESS, "--dry-run"], 2),
        (["presets", "endless.toml"], 2),
    ],
)
def test_a_file_without_end_ends_a_command(
    arguments: list[str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that leads to a device is refused in words, by every command that takes a file."""
    monkeypatch.chdir(tmp_path)
    Path("preset.toml").write_text(f'[[models]]\nname = "m"\npreset = "{ENDLESS}"\n')
    Path("endless.toml").symlink_to(ENDLESS)

    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == status, result.output
    assert "too large" in result.output.lower()
    assert "Traceback" not in result.output
