"""Laws of records that applications send: refused by name or taken, never with a secret."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everyturn.audit.incoming import Incoming
from everyturn.audit.plugins import Attribute, Plugin, Plugins
from everyturn.audit.schema import LOG_NAMED, LOGS
from everyturn.errors import CallerFault
from everyturn.wire.reader import Malformed, read_client
from tests.support.recording import a_cleaner
from tests.support.sending import an_item

SECRET = "sk-proj-FAKEfakeFAKEfake1234567890abcdefghij"
NOTES = Plugin(fields={"note": Attribute("str"), "list": Attribute("list")})
INCOMING = Incoming(a_cleaner(), Plugins({"p": NOTES}))

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["human", "mcp", "ok", "success", "2026-12-01T10:00:00Z", "<think>", "1c"]),
)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def items(draw: st.DrawFn) -> dict[str, Any]:
    """A record with a few of its fields replaced by anything."""
    log = draw(st.sampled_from(LOGS))
    item = an_item(log.name)
    names = [column.name for column in log.columns]
    for name in draw(st.lists(st.sampled_from([*names, "log", "more"]), max_size=4)):
        item[name] = draw(trees)
    return item


@settings(max_examples=300)
@given(item=st.one_of(items(), trees))
def test_any_item_is_taken_or_refused_by_name(item: Any) -> None:
    """Nothing but a row with what was sent, or a fault of the sender that tells the field."""
    try:
        read = read_client(json.dumps(item).encode())
    except Malformed:
        return  # A lone surrogate: the body is refused before.
    try:
        taken = INCOMING.take(read, principal="app")
    except CallerFault as refused:
        assert refused.param is not None
        return
    row = taken.words or msgspec.structs.asdict(taken.record)
    fields = {column.name: column.kind for column in LOG_NAMED[item["log"]].columns}
    for name, value in item.items():
        kind = fields.get(name)
        if kind == "json" and not (name == "attributes_json" and value is None):
            assert isinstance(row[name], str)
        elif kind in ("integer", "real") and isinstance(value, int | float):
            assert row[name] == value


PLACES = [
    (log.name, column.name)
    for log in LOGS
    for column in log.columns
    if column.kind in ("text", "json")
    and column.name not in ("turn_id", "redaction_rules_version", "principal")
]


@pytest.mark.parametrize("log, name", PLACES)
def test_a_secret_rests_in_no_field(log: str, name: str) -> None:
    """In every field that can hold a text a secret is removed, or its record is refused."""
    value: Any = f"it is {SECRET} here"
    if name.endswith("_json"):
        value = {"note": value} if name == "attributes_json" else [{"deep": [value]}]
    item = {**an_item(log), name: value}
    try:
        taken = INCOMING.take(item, principal=None)
    except CallerFault as refused:
        assert refused.param == name
        assert SECRET not in refused.message
        return

    rest = msgspec.json.encode([taken.record, taken.words]).decode()
    assert SECRET not in rest
    assert "[redacted:openai_key:" in rest
