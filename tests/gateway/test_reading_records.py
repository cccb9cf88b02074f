"""`POST /v1/records`: how bodies are read, beside all else that a gateway does."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from everyturn.audit.incoming import Incoming, Taken
from tests.gateway.test_lifecycle import until
from tests.support.gateway import gateway_and_mock
from tests.support.sending import an_item, send


async def test_a_defect_costs_one_item(tmp_path: Path) -> None:
    """A record on which the gateway itself fails is refused alone, and the log tells where."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        incoming = running.gateway.app.ingest.incoming
        assert incoming is not None
        running.gateway.app.ingest.incoming = Failing(incoming)
        answer = await send(running, an_item("tool_calls"), an_item("access_events"))
        log = running.log_lines

    told = answer.json()
    assert told["accepted"] == 1
    assert [(one["index"], one["code"]) for one in told["refused"]] == [(0, "internal_error")]
    (line,) = [line for line in log if line["event"] == "record.failed"]
    assert line["exception"] == "ZeroDivisionError"


class Failing:
    """Reads records, and fails on tool runs in a way that nobody foresaw."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming

    def take(self, item: Any, *, principal: str | None) -> Taken:
        """The row of an item."""
        if item["log"] == "tool_calls":
            raise ZeroDivisionError
        return self._incoming.take(item, principal=principal)


async def test_large_bodies_are_read_beside_the_loop_one_at_a_time(tmp_path: Path) -> None:
    """While a thread reads a large body the gateway answers; a second one waits for the first."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        incoming = running.gateway.app.ingest.incoming
        assert incoming is not None
        held = Held(incoming)
        running.gateway.app.ingest.incoming = held
        large = [an_item("tool_calls", response_json="word " * 60_000) for _ in range(2)]
        sending = [asyncio.create_task(send(running, one)) for one in large]
        try:
            await until(lambda: held.under_way == 1)
            small = await send(running, an_item("tool_calls", response_json="word"))
            during = held.under_way
        finally:
            held.may_go.set()
        answers = await asyncio.gather(*sending)

    assert small.json()["accepted"] == during == 1
    assert [answer.json()["accepted"] for answer in answers] == [1, 1]
    assert held.under_way_max == 1


class Held:
    """Reads records; what is long waits until it may go."""

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self.may_go = threading.Event()
        self.under_way = self.under_way_max = 0

    def take(self, item: Any, *, principal: str | None) -> Taken:
        """The row of an item."""
        if len(item["response_json"]) < 1000:
            return self._incoming.take(item, principal=principal)
        self.under_way += 1
        self.under_way_max = max(self.under_way, self.under_way_max)
        try:
            assert self.may_go.wait(30)
            return self._incoming.take(item, principal=principal)
        finally:
            self.under_way -= 1
