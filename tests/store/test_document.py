"""Rows as JSON documents."""

from __future__ import annotations

from everyturn.store.document import document, rfc3339
from everyturn.wire.reader import write


def test_a_time_is_rfc_3339_with_milliseconds() -> None:
    """Microseconds become a UTC time with three decimals."""
    assert rfc3339(1_764_547_200_123_456) == "2025-12-01T00:00:00.123Z"


def test_json_columns_are_values_and_keep_their_numbers() -> None:
    """The text of a JSON column stands in the document as JSON, digits as they were."""
    row = {"timestamp": 0, "usage_json": '{"cost":0.10}', "outcome": None}

    shown = write(document({"turn": row, "model_calls": [row]}))

    inner = b'{"timestamp":"1970-01-01T00:00:00.000Z","usage_json":{"cost":0.10},"outcome":null}'
    assert shown == b'{"turn":' + inner + b',"model_calls":[' + inner + b"]}"


def test_what_is_no_json_is_shown_as_text() -> None:
    """A JSON column with something else in it is not hidden."""
    assert document({"error_json": "{"}) == {"error_json": "{"}
