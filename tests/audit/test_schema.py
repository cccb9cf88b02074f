from __future__ import annotations

import apsw

from everyturn.audit import schema
from everyturn.audit.records import SCHEMA_VERSION

CONTRACT = {
    "access_events": """access_id timestamp service instance environment request_id trace_id span_id
        parent_span_id turn_id principal method path_template status_code duration_ms
        request_size_bytes response_size_bytes client_type error_code""",
    "turn_audit": """turn_id timestamp project_id chat_id plugin service environment trace_id
        span_id parent_span_id request_id principal user_message_id assistant_message_id user_text
        assistant_text outcome failure_type error_code duration_ms model_call_count tool_call_count
        retrieval_count cost_estimate prompt_id prompt_version variant human_review_status origin
        attributes_json""",
    "tool_calls": """tool_call_id turn_id trace_id span_id parent_span_id timestamp provider_call_id
        tool_family tool_name target_service request_json response_json status error_code
        duration_ms retry_count attributes_json""",
    "retrieval_events": """retrieval_id turn_id trace_id span_id parent_span_id timestamp plugin
        profile index_version query_text top_k sources_json context_chars retrieval_latency_ms
        attributes_json""",
    "quality_reviews": """review_id turn_id reviewer review_source score_helpfulness
        score_correctness score_tool_use score_safety label_primary_issue notes rubric_version
        created_at""",
    "model_calls": """model_call_id turn_id trace_id span_id parent_span_id attempt fallback_of
        timestamp provider_id provider_type base_url model_registry_id requested_model
        served_model_name route_name transport stream temperature max_tokens prompt_messages_json
        tools_json parameters_json response_json prompt_tokens completion_tokens total_tokens
        reasoning_tokens cache_read_tokens cache_write_tokens usage_json cost_estimate price_source
        price_version latency_ms time_to_first_token_ms finish_reason stream_state cache_hit
        status_code upstream_status provider_request_id error_code error_json flags_json
        reasoning_carrier reasoning_chars drift_json worker queue_ms link_ms upstream_ms""",
}
EVERY_ROW = "revision schema_version redaction_applied redaction_rules_version redactions_json"


def migrated(last: int) -> apsw.Connection:
    """An empty database after the first migrations."""
    db = apsw.Connection(":memory:")
    for number in range(1, last + 1):
        for statement in schema.sqlite_migration(number):
            db.execute(statement)
    for statement in schema.sqlite_views():
        db.execute(statement)
    return db


def columns_of(db: apsw.Connection, table: str) -> list[str]:
    """The names of the columns of a table or view, in order."""
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]


def test_each_log_has_the_columns_of_the_contract_in_order() -> None:
    """Views are named and ordered as the contract says, then the columns of every row."""
    db = migrated(schema.MIGRATION_LAST)

    for name, columns in CONTRACT.items():
        own = ["sources_by_field_json"] if name == "turn_audit" else []
        assert columns_of(db, name) == [*columns.split(), *EVERY_ROW.split(), *own]


def test_migrations_make_every_column_that_is_written() -> None:
    """The tables that the migrations leave take the rows that a store writes, value by value."""
    db = migrated(schema.MIGRATION_LAST)

    for log in schema.LOGS:
        assert columns_of(db, log.rows) == list(schema.row_columns(log))


def test_the_newest_migration_is_the_version_of_the_types() -> None:
    """Rows say they were written under the schema that the files have."""
    assert schema.MIGRATION_LAST == SCHEMA_VERSION


def test_every_migration_does_something() -> None:
    """Numbers have no gap, and the next one is not there yet."""
    counts = [
        len(schema.sqlite_migration(number)) for number in range(1, schema.MIGRATION_LAST + 2)
    ]

    assert all(counts[:-1])
    assert counts[-1] == 0


def test_a_column_has_the_kind_of_its_type() -> None:
    """JSON is told by its name; a closed set is text; what may be missing is nullable."""
    call = {column.name: column for column in schema.LOG_NAMED["model_calls"].columns}

    kinds = [call[name].kind for name in ("usage_json", "stream_state", "stream", "latency_ms")]
    assert kinds == ["json", "text", "boolean", "real"]
    assert [column.name for column in schema.LOG_NAMED["model_calls"].listed] == [
        "prompt_messages_json",
        "tools_json",
    ]
    assert (call["turn_id"].is_nullable, call["stream"].is_nullable) == (False, True)


def test_a_list_of_which_something_is_missing_is_null() -> None:
    """A lost message or prefix is never a shorter list."""
    db = migrated(schema.MIGRATION_LAST)
    db.execute("INSERT INTO contents VALUES (1, x'01', '\"a\"', NULL, NULL)")
    db.execute("INSERT INTO prefix_nodes VALUES (1, NULL, 1), (2, 1, 1), (4, 3, 1), (5, 1, 9)")
    db.execute("INSERT INTO turn_ids VALUES (1, 't')")
    db.execute(
        "INSERT INTO model_calls_rows (model_call_id, turn_key, row_key, prompt_messages_node)"
        " VALUES ('whole', 1, 1, 2), ('no parent', 1, 2, 4), ('no content', 1, 3, 5)"
    )

    found = dict(db.execute("SELECT model_call_id, prompt_messages_json FROM model_calls"))

    assert found == {"whole": '["a","a"]', "no parent": None, "no content": None}
