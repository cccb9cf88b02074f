"""What is compiled can be: the list names what exists, and nothing outside leans on a class of it.

Nothing is compiled here; `make test-native` runs the tests against the compiled build.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import tomllib
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from benchmarks import profile_load
from everyturn.store.reader import Reader
from tests.support.native import NEED_THE_INTERPRETER

ROOT: Final = Path(__file__).resolve().parent.parent
SRC: Final = ROOT / "src"
NATIVE: Final[dict[str, Any]] = tomllib.loads(
    (ROOT / "pyproject.toml").read_text(encoding="utf-8")
)["tool"]["everyturn"]["native"]
LEFT_OUT: Final = [name for names in NATIVE["left-out"].values() for name in names]


def the_setup() -> ModuleType:
    """`setup.py` as a module; it does nothing when it is imported."""
    spec = importlib.util.spec_from_file_location("everyturn_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COMPILED: Final[list[Path]] = [ROOT / name for name in the_setup().compiled_modules(NATIVE)]
NAMES: Final = {".".join(path.relative_to(SRC).with_suffix("").parts) for path in COMPILED}


def test_what_the_list_names_exists() -> None:
    """Each name is a module or a package; what is left out is part of one, and stands once."""
    package = SRC / "everyturn"

    assert not [name for name in (*NATIVE["packages"], *LEFT_OUT) if not (package / name).exists()]
    assert not [name for name in LEFT_OUT if name.partition("/")[0] not in NATIVE["packages"]]
    assert not [name for name, count in Counter(LEFT_OUT).items() if count > 1]
    assert not [path for path in COMPILED if not path.is_file()]


def test_the_way_of_a_turn_is_compiled() -> None:
    """The modules that every turn goes through are in, and what is left out is not."""
    assert {
        "everyturn.gateway.chat",
        "everyturn.wire.stream",
        "everyturn.wire.dialects.openai_chat",
        "everyturn.audit.recorder",
        "everyturn.store.writer",
        "everyturn.transport.connection",
    } <= NAMES
    assert not {"everyturn.audit.otel.spans", "everyturn.audit.records"} & NAMES


def test_no_class_outside_derives_from_a_compiled_one() -> None:
    """A class that is interpreted cannot be made from one that is compiled."""
    derived = []
    for path in SRC.rglob("*.py"):
        if path in COMPILED:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        taken = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in NAMES
            for alias in node.names
        }
        derived += [
            f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            and any(isinstance(base, ast.Name) and base.id in taken for base in node.bases)
        ]

    assert not derived


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\bself\._thread\b", "`__thread` is a word of C"),
        (r"\.__cause__(?! = )", "`raise … from …` sets no cause"),
        (r"\bcopy\.copy\(", "an object cannot be made without the arguments of its class"),
        (r"\bcast\([^()]*, None\)", "None is not what the cast says"),
    ],
)
def test_compiled_source_does_without(pattern: str, why: str) -> None:
    """What would fail only when compiled, or only at run time, is not written."""
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in COMPILED
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(pattern, line)
    ]

    assert not found, why


def test_nothing_is_awaited_while_an_exception_is_handled() -> None:
    """A compiled coroutine that waits inside `except` or `finally` leaves its exception with the
    thread, where what runs meanwhile takes it for its own."""
    waits = (ast.Await, ast.AsyncFor, ast.AsyncWith)
    found = [
        f"{path.relative_to(ROOT)}:{inner.lineno}"
        for path in COMPILED
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Try)
        for part in (*node.handlers, *node.finalbody)
        for inner in ast.walk(part)
        if isinstance(inner, waits)
    ]

    assert not found


def test_what_is_made_in_a_try_is_not_looked_at_in_its_finally() -> None:
    """The compiler takes a name there for what it is where nothing was raised: no longer None, say,
    and is at fault where it is. With a handler that goes on it knows of both."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {name.id}"
        for path in COMPILED
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Try) and node.finalbody and not node.handlers
        for last in node.finalbody
        for name in ast.walk(last)
        if isinstance(name, ast.Name) and name.id in _names_stored(node.body)
    ]

    assert not found


def _names_stored(body: list[ast.stmt]) -> set[str]:
    return {
        name.id
        for part in body
        for name in ast.walk(part)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }


def test_no_literal_holds_half_a_surrogate_pair() -> None:
    """A literal of C is UTF-8, which has no lone surrogates."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in COMPILED
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search("[\ud800-\udfff]", node.value)
    ]

    assert not found


def test_tests_that_need_the_interpreter_exist() -> None:
    """Each test that a compiled build is not asked is still there."""
    for name in NEED_THE_INTERPRETER:
        file, _, test = name.partition("::")

        assert (ROOT / file).is_file(), name
        assert f"def {test}" in (ROOT / file).read_text(encoding="utf-8") or not test, name


async def test_the_load_of_the_profile_meets_every_kind_of_answer(tmp_path: Path) -> None:
    """A gateway answers all of what the compiler is to learn from, and ends by itself."""
    answered, asked_for = await profile_load.run(SRC, tmp_path, ordinary=20)

    assert answered == asked_for
    assert asked_for > 20 + 2 * len(profile_load.scenarios())
    with Reader(tmp_path / "data") as reader:
        kinds = {turn["failure_type"] for turn in reader.turns(limit=1_000)}
    assert kinds >= {"none", "adapter_error", "provider_error"}
