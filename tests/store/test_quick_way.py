"""What goes the quick way into the store, however long the store has run."""

from __future__ import annotations

from pathlib import Path

import pytest

from everyturn.audit.content import ContentIndex
from everyturn.audit.records import Group
from everyturn.audit.redact import NONE_FOUND, Redacted
from everyturn.store import careful, state
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import a_call, a_turn

SYSTEM = b'{"role":"system","content":"You are helpful."}'


def test_a_prompt_that_all_turns_begin_with_stays_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prefix that memory dropped is looked up; the turns that have it need no care."""

    def refuse(*_: object) -> None:
        raise AssertionError("a plain turn went the careful way")

    monkeypatch.setattr(state, "_NODES_MAX", 8)
    monkeypatch.setattr(careful, "add", refuse)
    store = SqliteStore(tmp_path / "data")
    index = ContentIndex("v")

    for number in range(40):
        items = [SYSTEM, b'{"role":"user","content":"%d"}' % number]
        listed = index.refer(items, lambda raw: Redacted(raw.decode(), NONE_FOUND))
        turn = a_turn()
        call = a_call(turn, prompt_messages_json=listed.ref)
        group = Group((turn, call), listed.contents, listed.nodes, listed.known)
        store.append([group])
        index.confirm(group)

    store.close()
