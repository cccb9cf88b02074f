"""The documentation says what is so: error codes, links, versions, decision records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import everyturn
from everyturn.audit.otel.names import NAMES
from everyturn.audit.personal import PERSONAL
from everyturn.audit.rules import OPAQUE_KEYS, OWN_RULE_NAMES_TAKEN
from everyturn.audit.ruleset import RULES
from everyturn.audit.structures import STRUCTURES
from everyturn.audit.vendors import VENDORS
from everyturn.config import read_config
from everyturn.config.table import (
    KEY,
    MODEL,
    PLUGIN,
    REASONING,
    REDACTION_RULE,
    SECTIONS,
    TIMEOUTS,
    Setting,
)
from everyturn.errors import Failure

ROOT = Path(__file__).resolve().parent.parent
PAGES = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
NEVER_SENT = {"gateway_interrupted"}


def leaves(base: type[Failure]) -> Iterator[type[Failure]]:
    """The failures with a code of their own: the ends of the tree in `everyturn.errors`."""
    children = [child for child in base.__subclasses__() if child.__module__ == Failure.__module__]
    if not children:
        yield base
    for child in children:
        yield from leaves(child)


def expected_row(failure: type[Failure], status: str) -> str:
    """A failure's row in the HTTP reference; `status` is what its HTTP cell says."""
    cells = (
        f"`{failure.code}`",
        status,
        failure.blame,
        f"`{failure.failure_type}`",
        failure.default_hint,
    )
    return f"| {' | '.join(cells)} |"


def test_every_error_code_stands_in_the_http_reference() -> None:
    """Each code has one row with the status, blame, failure type and hint that the code has."""
    page = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")
    rows = {
        row.split("`")[1]: row
        for row in page.partition("\n## Errors\n")[2].splitlines()
        if re.match(r"\| `[a-z_]+` \| ", row)
    }
    failures = {failure.code: failure for failure in leaves(Failure)}

    assert set(rows) == set(failures)
    for code, failure in failures.items():
        status = rows[code].split(" | ")[1]
        assert rows[code] == expected_row(failure, status)
        assert status.startswith(
            "never sent" if code in NEVER_SENT else str(failure.default_status)
        )


def test_every_leaf_has_a_code_of_its_own() -> None:
    """No two failures that may be raised share a code."""
    codes = [failure.code for failure in leaves(Failure)]

    assert len(codes) == len(set(codes))


def setting_row(setting: Setting) -> str:
    """A setting's row in the reference."""
    default = "" if setting.default in (None, "") else f"`{json.dumps(setting.default)}`"
    words = ", ".join(f"`{word}`" for word in setting.choices)
    meaning = f"{setting.help} One of {words}." if words else setting.help
    return f"| `{setting.key}` | {setting.kind} | {default} | {meaning} |"


@pytest.mark.parametrize(
    "heading, settings",
    [
        *((f"[{section}]", settings) for section, settings in SECTIONS.items()),
        ("[[models]]", MODEL),
        ("timeouts", TIMEOUTS),
        ("reasoning", REASONING),
        ("[[keys]]", KEY),
        ("[[redaction.rules]]", REDACTION_RULE),
        ("[plugins.NAME]", PLUGIN),
    ],
)
def test_every_setting_stands_in_the_reference(heading: str, settings: tuple[Setting, ...]) -> None:
    """Each table of the configuration has its section, and in it each setting its row, in order."""
    page = (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## `{heading}`\n")[2].partition("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| `")]

    assert rows == [setting_row(setting) for setting in settings]


def test_every_name_of_a_span_stands_in_the_guide() -> None:
    """Each field that a convention names has its row in the guide, in order."""
    page = (ROOT / "docs/guide/opentelemetry.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `[a-z_]+` \| `[a-z_]+` \|.*$", page, re.MULTILINE)

    assert rows == [
        f"| `{log}` | `{name.field}` | {quoted(name.written)} | {quoted(name.read)} |"
        for log, fields in NAMES.items()
        for name in fields
    ]


def quoted(names: tuple[str, ...]) -> str:
    """Names as a cell of a table."""
    return ", ".join(f"`{name}`" for name in names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configurations_in_pages_are_right(page: Path) -> None:
    """A whole configuration that a page shows is one the gateway would start with."""
    for text in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        if "[[models]]" in text and "[gateway]" in text:
            assert read_config(text, page.name, {}).models


@pytest.mark.parametrize(
    ("package", "heading"), [("gateway", "The gateway"), ("worker", "A worker")]
)
def test_every_log_line_stands_in_the_reference(package: str, heading: str) -> None:
    """Each event that the code logs has a place in its table, and each in the table is logged."""
    log_call = re.compile(r"\b(?:log|_log|bug|_tell)\(\s*\"([a-z]+\.[a-z_]+)\"")
    logged = {
        event
        for file in (ROOT / "src" / "everyturn" / package).rglob("*.py")
        for event in log_call.findall(file.read_text(encoding="utf-8"))
    }
    page = (ROOT / "docs/reference/log.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    told = {
        event
        for row in section.splitlines()
        if row.startswith("| `")
        for event in re.findall(r"`([a-z]+\.[a-z_]+)`", row.split("|")[1])
    }

    assert logged
    assert told == logged


def test_links_lead_somewhere() -> None:
    """A relative link in a page names a file that exists, and a heading that the file has."""
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            if not path.exists() or (anchor and anchor not in anchors(path)):
                broken.append(f"{page.relative_to(ROOT)}: {target}")

    assert PAGES
    assert not broken


def anchors(page: Path) -> set[str]:
    """The names by which a page's headings can be linked."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_decision_is_listed() -> None:
    """Decision records have a number of their own and the four parts, and stand in the list."""
    folder = ROOT / "docs" / "decisions"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    records = sorted(folder.glob("[0-9]*.md"))

    assert records
    assert len({record.name[:4] for record in records}) == len(records)
    for record in records:
        text = record.read_text(encoding="utf-8")
        assert f"]({record.name})" in listed
        for part in ("Context", "Decision", "What it costs", "What would change our mind"):
            assert f"\n## {part}\n" in text, f"{record.name} lacks: {part}"


def test_the_changelog_has_this_version() -> None:
    """The newest entry of the changelog is about the version that the package has."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", text, flags=re.MULTILINE)

    assert newest is not None
    assert newest.group(1) == everyturn.__version__


def test_the_architecture_names_what_exists() -> None:
    """A file or folder of the package that ARCHITECTURE.md names is there."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]*)*(?:/|\.py))`", text))
    roots = (ROOT / "src" / "everyturn", ROOT)

    assert named
    assert not [name for name in named if not any((root / name).exists() for root in roots)]


def test_the_architecture_names_every_package() -> None:
    """The picture of the layers in ARCHITECTURE.md holds each package of the top level."""
    picture = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").split("```")[1]
    words = set(re.findall(r"[a-z]+", picture))
    entries = (ROOT / "src" / "everyturn").glob("[a-z]*")
    packages = {
        entry.stem for entry in entries if (entry / "__init__.py").exists() or entry.suffix == ".py"
    }

    assert packages <= words


def test_every_rule_stands_in_the_redaction_reference() -> None:
    """Each rule that can stand in a mark is named in the page, and each structure has its row."""
    page = (ROOT / "docs/reference/redaction.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_]+)` \|", page, flags=re.MULTILINE)

    assert [rule.name for rule in STRUCTURES] == rows
    named = set(re.findall(r"`([A-Za-z0-9_]+)`", page))
    assert {rule.name for rule in (*RULES, *PERSONAL)} | OWN_RULE_NAMES_TAKEN <= named
    assert named >= OPAQUE_KEYS
    assert f"Formats of {len(VENDORS)} vendors" in page


def test_the_rules_in_the_redaction_reference_are_taken() -> None:
    """The page's example of rules is one that a gateway starts with."""
    page = (ROOT / "docs/reference/redaction.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    model = '[[models]]\nname = "m"\npreset = "openai-chat"\n'

    config = read_config(example + model, "redaction.md", {"BILLING_TOKEN": "FAKE-value-1"})

    assert config.redaction.known == ("FAKE-value-1",)
    assert len(config.redaction.rules) == len(RULES) + 4
