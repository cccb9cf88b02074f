"""Turns for the tests of the search, and what is found of them."""

from __future__ import annotations

import json
from typing import Any

from everyturn.audit.content import ContentIndex
from everyturn.audit.group import Group
from everyturn.audit.records import TurnAudit
from everyturn.store.finding import find, read_query
from everyturn.store.said import FIELDS
from everyturn.store.search import SearchIndex
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import a_turn, closed_call, closed_turn, group_of


def compact(value: Any) -> bytes:
    """JSON as records hold it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def message(role: str, content: Any, **more: Any) -> bytes:
    """One message of a prompt."""
    return compact({"role": role, "content": content, **more})


def tell(
    store: SqliteStore,
    contents: ContentIndex,
    prompt: list[bytes],
    answer: str,
    *,
    asked: str | None = None,
    **answered: Any,
) -> TurnAudit:
    """One whole turn; its row. answered: further members of the answer's message."""
    turn = a_turn(user_text=json.loads(prompt[-1])["content"] if asked is None else asked)
    opening, call = group_of(turn, contents, prompt)
    store.append([opening])
    contents.confirm(opening)
    reply = {"role": "assistant", "content": answer, **answered}
    response = compact({"choices": [{"index": 0, "message": reply}]}).decode()
    closed = closed_turn(turn, assistant_text=answer)
    store.append([Group((closed_call(call, response_json=response), closed))])
    return closed


def search(index: SearchIndex, query: str, *fields: str, limit: int = 50) -> list[str]:
    """The ids of the turns that are found after the index caught up."""
    assert index.catch_up()
    wanted = fields or FIELDS
    found = find(index, read_query(query, wanted), fields=wanted, limit=limit)
    return [one.turn_id for one in found]
