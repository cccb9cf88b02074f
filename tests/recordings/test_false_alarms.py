"""Redaction leaves what providers and clients really sent as it was."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.false_alarms import count, count_files, table
from everyturn.audit.personal import NAMES
from everyturn.audit.redact import Redactor
from everyturn.audit.ruleset import rules_with


def test_the_rules_that_always_run_take_nothing(recordings_folder: Path) -> None:
    """No request and no answer changes: code, ids, signatures and encrypted reasoning are whole."""
    counted = count(recordings_folder, Redactor(b"k" * 32))

    assert counted.texts > 5000
    assert counted.opaque > 5000
    assert counted.places == []
    assert (counted.texts_changed, counted.opaque_changed) == (0, 0)


def test_personal_data_rules_take_addresses_only(recordings_folder: Path) -> None:
    """With every personal-data rule on, two public e-mail addresses go, and nothing opaque does."""
    counted = count(recordings_folder, Redactor(b"k" * 32, rules=rules_with((), NAMES)))

    assert dict(counted.by_rule) == {"email": 2}
    assert counted.opaque_changed == 0


def test_the_published_table_is_so(recordings_folder: Path) -> None:
    """The redaction reference has the table as the benchmark prints it."""
    page = Path(__file__).parents[2] / "docs/reference/redaction.md"
    printed = table(count_files(recordings_folder, Redactor(b"k" * 32)))

    assert "\n".join(printed) in page.read_text(encoding="utf-8")


def test_what_was_found_is_counted(tmp_path: Path) -> None:
    """A planted secret appears under its rule and its place: the count is not blind."""
    secret = "ghp_" + "FAKE" * 9
    line = {"id": "x", "request": {"messages": [{"role": "user", "content": secret}]}}
    event = json.dumps({"choices": [{"delta": {"content": secret[:9]}}]})
    rest = json.dumps({"choices": [{"delta": {"content": secret[9:]}}]})
    line["sse"] = f"data: {event}\n\ndata: {rest}\n\ndata: [DONE]\n\n"  # type: ignore[assignment]
    (tmp_path / "a.jsonl").write_text(json.dumps(line))

    counted = count(tmp_path, Redactor(b"k" * 32))

    assert dict(counted.by_rule) == {"github_token": 2}
    assert counted.places == ["a.jsonl x: github_token x1"] * 2
