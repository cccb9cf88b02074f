"""The reference page of the presets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from everyturn.presets.page import page

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date() -> None:
    """docs/reference/presets.md is what the preset files say; the page says how to make it."""
    written = (ROOT / "docs/reference/presets.md").read_text("utf-8")

    assert written == page(), "run `python -m everyturn.presets.page > docs/reference/presets.md`"


def test_the_module_prints_the_page() -> None:
    """The command that the page names prints it."""
    done = subprocess.run(
        [sys.executable, "-m", "everyturn.presets.page"], capture_output=True, check=True
    )

    assert done.stdout.decode() == page()


def test_tables_are_whole() -> None:
    """Every row of a table has as many cells as its head, whatever the values hold."""
    columns = 0
    for line in page().splitlines():
        if not line.startswith("|"):
            columns = 0
            continue
        cells = line.replace("\\|", "").count("|") - 1
        columns = columns or cells
        assert cells == columns, line
