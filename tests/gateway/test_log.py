"""Log lines: ids and counts, one JSON object each."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from io import BytesIO

import pytest

from everyturn.gateway.log import Log


def test_a_line_is_one_json_object() -> None:
    """Time, event and fields stand in one line."""
    out = BytesIO()
    Log(out=out)("llm.response", turn_id="t", reasoning_chars=3)

    (line,) = out.getvalue().splitlines()
    told = json.loads(line)
    assert told.pop("timestamp").endswith("Z")
    assert told == {"event": "llm.response", "turn_id": "t", "reasoning_chars": 3}


def test_a_line_tells_its_time_in_milliseconds() -> None:
    """The time is between those before and after, in UTC, whatever the second is."""
    out = BytesIO()
    log = Log(out=out)
    before = datetime.now(UTC)
    for _ in range(50):
        log("event")
    after = datetime.now(UTC)

    told = [json.loads(line)["timestamp"] for line in out.getvalue().splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time) for time in told)
    times = [datetime.fromisoformat(time) for time in told]
    assert times == sorted(times)
    assert before - timedelta(milliseconds=1) <= times[0]
    assert times[-1] <= after


def test_only_known_fields_can_be_logged() -> None:
    """A field outside the closed set is a defect of the caller, said by its name alone."""
    with pytest.raises(ValueError, match="prompt"):
        Log(out=BytesIO())("event", prompt="a secret")


def test_an_exceptions_text_is_not_logged() -> None:
    """An exception is told by its type and the places it passed; its text may hold anything."""
    out = BytesIO()
    try:
        raise KeyError("sk-test-in-a-message")
    except KeyError as bug:
        Log(out=out).bug("call.failed", bug, request_id="r")

    told = json.loads(out.getvalue())
    assert told["exception"] == "KeyError"
    assert told["places"][-1].startswith("test_an_exceptions_text")
    assert b"sk-test" not in out.getvalue()


def test_a_log_that_is_off_or_closed() -> None:
    """Off writes nothing; lines that cannot be written are counted and harm nothing."""
    silent, closed = BytesIO(), BytesIO()
    closed.close()
    Log(is_on=False, out=silent)("event")
    log = Log(out=closed)
    log("event")

    assert silent.getvalue() == b""
    assert log.lines_lost == 1
