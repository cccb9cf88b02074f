"""Turns chosen by plugin, attributes and labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from everyturn.audit.group import Group
from everyturn.cli.main import main
from everyturn.store.reader import open_reader
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import (
    a_retrieval,
    a_review,
    a_tool_call,
    a_turn,
    closed_turn,
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A store with a closed turn, an open one, and one that has nothing to be chosen by."""
    store = SqliteStore(tmp_path / "data")
    closed = a_turn(
        plugin="1c",
        user_text="closed",
        attributes_json='{"base_id":"b1","n":7,"ratio":0.5,"truncated":true,"layer_hints":["x","y"]}',
    )
    is_open = a_turn(plugin="1c", user_text="open", attributes_json='{"base_id":"b2","n":70}')
    other = a_turn(plugin="faq\u241b", user_text="other")
    rows = (
        a_tool_call(closed, attributes_json='{"of_tool":"t"}'),
        a_retrieval(is_open, attributes_json='{"of_search":[1,2]}'),
        a_review(is_open, label_primary_issue="rag_miss"),
        a_review(closed, label_primary_issue="timeout"),
    )
    store.append([Group((closed, is_open, other)), Group(rows)])
    store.append([Group((closed_turn(closed), closed_turn(other)))])
    yield store.folder
    store.close()


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["--plugin", "1c"], {"closed", "open"}),
        (["--plugin", "1c", "--outcome", "open"], {"open"}),
        (["--plugin", "nobody"], set()),
        (["--plugin", "faq\u241b"], {"other"}),
        (["--label", "rag_miss"], {"open"}),
        (["--label", "timeout"], {"closed"}),
        (["--attribute", "base_id=b1"], {"closed"}),
        (["--attribute", "base_id=b2"], {"open"}),
        (["--attribute", "base_id=b"], set()),
        (["--attribute", "n=7"], {"closed"}),
        (["--attribute", "n=7.0"], {"closed"}),
        (["--attribute", "n=70"], {"open"}),
        (["--attribute", "ratio=0.50"], {"closed"}),
        (["--attribute", "truncated=true"], {"closed"}),
        (["--attribute", "truncated=1"], set()),
        (["--attribute", "layer_hints=y"], {"closed"}),
        (["--attribute", "layer_hints=y", "--attribute", "n=7"], {"closed"}),
        (["--attribute", "layer_hints=y", "--attribute", "n=8"], set()),
        (["--attribute", "of_tool=t"], {"closed"}),
        (["--attribute", "of_search=2"], {"open"}),
        (["--attribute", "missing="], set()),
        (["--label", "rag_miss", "--attribute", "base_id=b2", "--plugin", "1c"], {"open"}),
    ],
)
def test_turns_are_chosen_by_what_plugins_declare(
    folder: Path, arguments: list[str], expected: set[str]
) -> None:
    """Open and closed turns are found by the same words; several conditions all have to hold."""
    listed = CliRunner().invoke(main, ["turns", "--data", str(folder), *arguments, "--json"])

    assert listed.exit_code == 0, listed.output
    rows = [line for line in listed.stdout.splitlines() if line]
    assert {
        word for word in ("closed", "open", "other") if any(f'"{word}"' in r for r in rows)
    } == (expected)
    assert len(rows) == len(expected)


def test_a_model_narrows_them_further(folder: Path) -> None:
    """Attributes and models are asked for together."""
    with open_reader(folder) as reader:
        assert reader.turns(attributes=(("base_id", "b1"),), model="m") == []


@pytest.mark.parametrize("text", ["base_id", "=x", "a b=x", 'a"=x'])
def test_what_is_no_attribute_is_bad_use(folder: Path, text: str) -> None:
    """An attribute is a name, an equals sign and a value."""
    refused = CliRunner().invoke(main, ["turns", "--data", str(folder), "--attribute", text])

    assert refused.exit_code == 2
    assert "NAME=VALUE" in refused.stderr
