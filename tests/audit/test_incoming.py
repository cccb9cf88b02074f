"""What is taken from a sender and what is refused, field by field."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from everyturn.audit.incoming import Incoming, id_of
from everyturn.audit.plugins import Attribute, Plugin, Plugins
from everyturn.audit.records import AccessEvent, ModelCall, ToolCall, TurnAudit
from everyturn.audit.schema import LOGS
from everyturn.errors import CallerFault
from everyturn.wire.reader import read_client
from tests.support import receiver
from tests.support.recording import a_cleaner
from tests.support.sending import START, an_item

SECRET = "sk-proj-FAKEfakeFAKEfake1234567890abcdefghij"
FAQ = Plugin(fields={"kind": Attribute("enum", ("a", "b"))}, labels=frozenset({"wrong_tone"}))
INCOMING = Incoming(a_cleaner(), Plugins({"faq": FAQ}))


def taken(item: dict[str, Any]) -> Any:
    """The row of an item that came over the wire."""
    return INCOMING.take(read_client(json.dumps(item).encode()), principal="app").record


def fault(item: Any) -> tuple[str, str | None]:
    """Code and parameter of an item that is refused."""
    with pytest.raises(CallerFault) as refused:
        INCOMING.take(read_client(json.dumps(item).encode()), principal="app")
    return refused.value.code, refused.value.param


@pytest.mark.parametrize("log", [log.name for log in LOGS])
def test_the_least_is_taken(log: str) -> None:
    """Each log takes a record with what it needs; without any of that it says what is missing."""
    item = an_item(log)
    has_no_turn = log in ("tool_calls", "retrieval_events", "access_events")
    optional = {"turn_id"} if has_no_turn else set()

    row = taken(item)

    assert row.redaction_applied
    assert (row.revision, row.redactions_json) == (1, "{}")
    for name in item.keys() - optional - {"log"}:
        left = {key: value for key, value in item.items() if key != name}
        assert fault(left) == ("missing_parameter", name)
        assert fault({**left, name: None}) == ("missing_parameter", name)


def test_all_that_the_sdk_sends_is_taken() -> None:
    """Every field that the SDK's strict receiver knows is one that is taken here."""
    for log, fields in receiver._FIELDS.items():
        for part in fields.split():
            name, kind = part.rstrip("!:#*?"), part[-1]
            value = _A_VALUE.get(name) or {"#": 1, ":": "a1"}.get(kind, "text")
            if name == "attributes_json":
                value = {}
            try:
                INCOMING.take({**an_item(log), name: value}, principal=None)
            except CallerFault as refused:
                raise AssertionError(f"{log}.{name}: {refused.message}") from refused


_A_VALUE: dict[str, Any] = {
    **{name: sorted(words)[0] for name, words in receiver.WORDS.items()},
    "turn_id": an_item("turn_audit")["turn_id"],
    "trace_id": "a" * 32,
    "span_id": "b" * 16,
    "parent_span_id": "c" * 16,
    "timestamp": START,
    "created_at": START,
    "request_id": "a/b+c=d@e",
    "label_primary_issue": "rag_miss",
}


@pytest.mark.parametrize(
    "log, name, value",
    [
        ("tool_calls", "tool_family", "magic"),
        ("tool_calls", "tool_name", 7),
        ("tool_calls", "retry_count", 1.5),
        ("tool_calls", "retry_count", -1),
        ("tool_calls", "retry_count", True),
        ("tool_calls", "retry_count", 1 << 63),
        ("tool_calls", "duration_ms", "5"),
        ("tool_calls", "duration_ms", -0.5),
        ("tool_calls", "trace_id", "0" * 32),
        ("tool_calls", "span_id", "B" * 16),
        ("tool_calls", "tool_call_id", "with space"),
        ("tool_calls", "tool_call_id", "x" * 129),
        ("tool_calls", "attributes_json", [1]),
        ("tool_calls", "turn_id", "123e4567-e89b-12d3-a456-426614174000"),
        ("tool_calls", "timestamp", 1_795_000_000),
        ("tool_calls", "timestamp", 1_795_000_000_000_000_000),
        ("tool_calls", "timestamp", True),
        ("tool_calls", "timestamp", "2026-12-01"),
        ("tool_calls", "timestamp", "2026-12-01T10:00:00"),
        ("tool_calls", "timestamp", "2026-02-30T10:00:00Z"),
        ("turn_audit", "outcome", "fine"),
        ("turn_audit", "request_id", "a b"),
        ("turn_audit", "cost_estimate", 10**400),
        ("model_calls", "transport", "direct"),
        ("model_calls", "stream", "yes"),
        ("model_calls", "stream_state", "open"),
        ("quality_reviews", "score_safety", 1.01),
        ("quality_reviews", "label_primary_issue", "odd"),
        ("access_events", "log", "accesses"),
        ("access_events", "log", ["access_events"]),
    ],
)
def test_a_wrong_value_is_refused_by_name(log: str, name: str, value: Any) -> None:
    """Another type, a word outside its set, a number outside its range."""
    assert fault({**an_item(log), name: value}) == ("invalid_value", name)


@pytest.mark.parametrize("log", [log.name for log in LOGS])
@pytest.mark.parametrize(
    "name", ["principal", "revision", "redactions_json", "redaction_applied", "schema_version", "x"]
)
def test_what_is_not_a_senders_is_refused(log: str, name: str) -> None:
    """Unknown fields, and those that only the gateway can know, are refused by name."""
    assert fault({**an_item(log), name: 1}) == ("unknown_parameter", name)
    assert fault({**an_item("turn_audit"), "sources_by_field_json": {}})[1] == (
        "sources_by_field_json"
    )


def test_an_item_that_is_no_record() -> None:
    """What is no object, or names no log, is refused as such."""
    assert fault(7) == ("invalid_value", "log")
    assert fault({}) == ("missing_parameter", "log")
    assert [id_of(item) for item in (7, {}, an_item("tool_calls", tool_call_id="t-1"))] == [
        None,
        None,
        "t-1",
    ]
    assert id_of(an_item("tool_calls", tool_call_id="a b")) is None


@pytest.mark.parametrize(
    "told, microseconds",
    [
        ("2026-12-01T10:00:00Z", 1_796_119_200_000_000),
        ("2026-12-01T10:00:00.123Z", 1_796_119_200_123_000),
        ("2026-12-01t12:00:00.123456789+02:00", 1_796_119_200_123_456),
        (1_796_119_200_000_001, 1_796_119_200_000_001),
    ],
)
def test_times_are_rfc_3339_or_microseconds(told: Any, microseconds: int) -> None:
    """Both forms give the same instant; digits below a microsecond are let go."""
    assert taken(an_item("tool_calls", timestamp=told)).timestamp == microseconds


def test_any_json_is_a_payload_and_keeps_its_numbers() -> None:
    """Null, large numbers and long decimals are values; null elsewhere says nothing."""
    raw = (
        b'{"log":"tool_calls","tool_call_id":"t","timestamp":1795000000000000,"tool_name":"n",'
        b'"tool_family":"internal","status":"ok","error_code":null,"request_json":'
        b'{"a":[0.10,1e400,12345678901234567890123]},"response_json":null}'
    )

    row = INCOMING.take(read_client(raw), principal=None).record

    assert isinstance(row, ToolCall)
    assert row.request_json == '{"a":[0.10,1e400,12345678901234567890123]}'
    assert (row.response_json, row.error_code) == ("null", None)


def test_secrets_and_reasoning_are_removed_from_every_field() -> None:
    """Texts and payloads rest redacted and counted; an id that looks like a secret is refused."""
    places = ("tool_name", "target_service", "error_code", "provider_call_id")
    row = taken(
        an_item(
            "tool_calls",
            **dict.fromkeys(places, f"a {SECRET}"),
            request_json={"password": "Hunter2Hunter2", "q": json.dumps({"k": SECRET})},
            response_json={"reasoning_content": "a private thought", "t": "<think>hm</think>yes"},
        )
    )
    review = taken(an_item("quality_reviews", notes=f"see {SECRET} <think>mine</think>"))
    turn = INCOMING.take(
        an_item("turn_audit", assistant_text="<think>mine</think>ok", user_text=SECRET),
        principal=None,
    )

    rest = msgspec.json.encode([row, review, turn.words]).decode()
    assert "FAKEfake" not in rest
    assert "Hunter2" not in rest
    assert "thought" not in rest.replace("reasoning_content", "")
    assert "mine" not in rest
    assert "hm" not in row.response_json
    counts = json.loads(row.redactions_json)
    assert counts["openai_key"] == len(places) + 1
    assert turn.words["assistant_text"] == "<think>[reasoning:4 chars]</think>ok"
    assert fault(an_item("tool_calls", tool_call_id=SECRET)) == ("invalid_value", "tool_call_id")


def test_reasoning_in_tags_leaves_what_models_wrote() -> None:
    """Earlier answers in a prompt, and errors, rest without it; what a user wrote stays whole."""
    asked = "what does <think>asked</think> mean?"
    row = taken(
        an_item(
            "model_calls",
            prompt_messages_json=[
                {"role": "user", "content": asked},
                {"role": "assistant", "content": "<think>first</think>A tag."},
                {"role": "assistant", "content": [{"type": "text", "text": "<think>second"}]},
                {"role": "assistant", "content": None},
                "no message",
            ],
            error_json={"message": "bad: <think>third</think>"},
        )
    )

    messages = json.loads(row.prompt_messages_json)
    assert messages[0]["content"] == asked
    assert messages[1]["content"] == "<think>[reasoning:5 chars]</think>A tag."
    assert messages[2]["content"][0]["text"] == "<think>[reasoning:6 chars]"
    assert messages[3:] == [{"role": "assistant", "content": None}, "no message"]
    assert json.loads(row.error_json)["message"] == "bad: <think>[reasoning:5 chars]</think>"


def test_a_call_made_elsewhere_is_closed() -> None:
    """It says `external` and how it ended, whatever the sender says of that."""
    states = [
        taken(an_item("model_calls", **fields)).stream_state
        for fields in ({}, {"stream": True}, {"error_code": "e"}, {"stream_state": "cut"})
    ]
    row = taken(
        an_item(
            "model_calls",
            base_url="https://user:pass@models.example/v1?key=abc",
            prompt_messages_json=[{"role": "user", "content": "q"}],
            parameters_json={"reasoning": {"effort": "low"}},
            response_json={"choices": [{"message": {"reasoning": "a private thought"}}]},
        )
    )

    assert states == ["whole", "complete", "error", "cut"]
    assert isinstance(row, ModelCall)
    assert row.transport == "external"
    assert row.base_url is not None
    assert "pass" not in row.base_url
    assert json.loads(row.parameters_json or "") == {"reasoning": {"effort": "low"}}
    assert "private" not in (row.response_json or "")


def test_the_sender_is_the_principal() -> None:
    """Rows that have one carry who sent them; a turn's words hold what was said and no more."""
    access = taken(an_item("access_events", status_code=204))
    turn = INCOMING.take(an_item("turn_audit", chat_id="c", error_code=None), principal="app")

    assert isinstance(access, AccessEvent)
    assert (access.principal, access.status_code) == ("app", 204)
    assert isinstance(turn.record, TurnAudit)
    assert turn.record.principal == "app"
    assert set(turn.words) == {"timestamp", "chat_id"}


@pytest.mark.parametrize(
    "plugin, attributes, code, name",
    [
        ("faq", {"kind": "c"}, "invalid_value", "kind"),
        ("faq", {"base_id": "b"}, "unknown_parameter", "base_id"),
        ("nobody", {"base_id": "b"}, "unknown_parameter", "base_id"),
        (None, {"anything": 1}, "unknown_parameter", "anything"),
        ("1c", {"truncated": "yes"}, "invalid_value", "truncated"),
        ("1c", {"truncated": 1}, "invalid_value", "truncated"),
        ("1c", {"state_mode": "draft"}, "invalid_value", "state_mode"),
        ("1c", {"layer_hints": [{}]}, "invalid_value", "layer_hints"),
        ("1c", {"layer_hints": "a"}, "invalid_value", "layer_hints"),
    ],
)
def test_attributes_are_those_that_the_plugin_declares(
    plugin: str | None, attributes: dict[str, Any], code: str, name: str
) -> None:
    """An attribute that is not declared, or of another type, is refused by name."""
    item = an_item("retrieval_events", plugin=plugin, attributes_json=attributes)

    assert fault(item) == (code, f"attributes_json.{name}")


def test_declared_attributes_and_labels_are_taken() -> None:
    """Those of the plugin, those of any plugin where none is named, and labels of reviews."""
    whole = {
        "base_id": "b",
        "adapter_methods": ["read", 1, True],
        "state_mode": "active",
        "resolved_selectors": [],
        "truncated": False,
        "partial": None,
        "layer_hints": ["a"],
    }
    row = taken(an_item("retrieval_events", plugin="1c", attributes_json=whole))
    tool = taken(an_item("tool_calls", attributes_json={"kind": "a", "base_id": "b"}))
    labels = [
        taken(an_item("quality_reviews", label_primary_issue=label)).label_primary_issue
        for label in ("rag_miss", "wrong_tone")
    ]

    assert json.loads(row.attributes_json) == whole
    assert json.loads(tool.attributes_json) == {"kind": "a", "base_id": "b"}
    assert labels == ["rag_miss", "wrong_tone"]


@pytest.mark.parametrize(
    "kind, good, bad",
    [
        ("str", "a", 1),
        ("int", 3, 3.5),
        ("int", 3, True),
        ("float", 3, "3"),
        ("float", 3.5, False),
        ("bool", True, 1),
        ("list", [1, "a", 0.5], [None]),
    ],
)
def test_types_of_attributes(kind: str, good: Any, bad: Any) -> None:
    """Each type takes its values and no others; null is no value."""
    attribute = Attribute(kind)

    assert attribute.fits(good)
    assert attribute.fits(None)
    assert not attribute.fits(bad)
