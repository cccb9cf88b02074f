"""Log lines: ids and counts, one JSON object each."""

from __future__ import annotations

import asyncio
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


class Writes(BytesIO):
    """A file that counts how often it was written to."""

    times = 0

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        self.times += 1
        return super().write(data)


async def test_lines_of_one_round_are_written_together() -> None:
    """In the order they came, in the next round of the loop; another thread's line at once, and the
    last ones before gathering ends."""
    out = Writes()
    log = Log(out=out)
    log.gather(asyncio.get_running_loop())

    for number in range(3):
        log("event", count=number)
    await asyncio.to_thread(log, "event", count=3)
    together = out.times
    log("event", count=4)
    log.gather(None)
    log("event", count=5)
    await asyncio.sleep(0)

    told = [json.loads(line)["count"] for line in out.getvalue().splitlines()]
    assert sorted(told) == list(range(6))
    assert [number for number in told if number != 3] == [0, 1, 2, 4, 5]
    assert (together, out.times) == (2, 4)


async def test_lines_that_cannot_be_written_together_are_all_counted() -> None:
    """A closed file costs each of its lines."""
    closed = BytesIO()
    closed.close()
    log = Log(out=closed)
    log.gather(asyncio.get_running_loop())
    log("one")
    log("two")
    await asyncio.sleep(0)

    assert log.lines_lost == 2


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
