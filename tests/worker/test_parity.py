"""Parity: whatever a provider does, a worker beside it changes nothing.

Every scenario of the scripted provider, whole and streamed, directly and over a real link: the
client's bytes and the stored call are equal, but for ids, times and who ran it.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from everyturn.mock.scenario import Scenario
from everyturn.mock.scenarios import GROUPS
from everyturn.mock.server import MockProvider
from tests.gateway.test_records import recorded
from tests.support.gateway import running_gateway
from tests.support.paired import TARGET, a_worker, paired
from tests.support.scripted_upstream import until

NOW = 1_750_000_000.0
LIMITS = "[limits]\nframe_bytes_max = 2097152\nbody_bytes_max = 2097152"
SHORT = {"slow": "slow-50", "drip": "drip-2", "deep": "deep-1000", "bench": "bench-20"}
"""Families whose own numbers take long."""
IMPATIENT = {"first_byte_ms": 400, "idle_ms": 400}
"""Time limits where nothing comes."""
AT_ONCE = 8
ECHOING = "echo"
"""Answers with the request's own ids, which are each call's own."""

OWN_FIELDS = {
    *("model_call_id", "turn_id", "trace_id", "span_id", "parent_span_id", "timestamp"),
    *("latency_ms", "time_to_first_token_ms", "queue_ms", "link_ms", "upstream_ms"),
    *("transport", "worker", "base_url", "model_registry_id", "route_name", "requested_model"),
}
"""What two calls differ in because they are two, and because one ran on a worker."""
OWN_HEADERS = {"x-request-id", "traceparent", "x-everyturn-turn-id", "date"}


def played(group: str) -> list[Scenario]:
    """The scenarios of a group that answer equal requests equally."""
    return [scenario for scenario in GROUPS[group] if scenario.name != ECHOING]


def entries(group: str, base_url: str) -> list[dict[str, Any]]:
    """Two models for each scenario of a group: `direct-NAME` and `worker-NAME`."""
    models = []
    for scenario in played(group):
        name = SHORT.get(scenario.name, scenario.name)
        entry = {
            "preset": scenario.preset,
            "upstream_model": name,
            "timeouts": IMPATIENT if name.startswith("hang") else {},
        }
        models.append({"name": f"direct-{name}", "base_url": base_url, **entry})
        on_worker = {"transport": "worker", "worker": "box", "target": TARGET}
        models.append({"name": f"worker-{name}", **on_worker, **entry})
    return models


def seen_by_client(answer: httpx.Response) -> tuple[Any, ...]:
    """Status, headers and body, without what each answer has of its own."""
    headers = [pair for pair in answer.headers.multi_items() if pair[0] not in OWN_HEADERS]
    return answer.status_code, sorted(headers), answer.content


def stored(turn: dict[str, Any]) -> list[dict[str, Any]]:
    """The calls and the turn as stored, without what each has of its own."""
    rows = [*turn["model_calls"], {"outcome": turn["turn"]["outcome"]}]
    return [{key: value for key, value in row.items() if key not in OWN_FIELDS} for row in rows]


@pytest.mark.parametrize("group", GROUPS)
async def test_over_a_worker_as_directly(tmp_path: Path, group: str) -> None:
    """Bytes, headers and stored rows of each scenario are the same in both ways."""
    data, gate = tmp_path / "data", asyncio.Semaphore(AT_ONCE)
    different: list[str] = []
    async with (
        MockProvider(clock=lambda: NOW) as mock,
        running_gateway(entries(group, mock.url), data, extra=LIMITS) as running,
    ):
        await paired(f"ws://127.0.0.1:{running.gateway.port}", data, tmp_path / "worker")
        async with a_worker(tmp_path / "worker", mock.url) as beside:
            await until(lambda: beside.has("worker.connected"))

            async def both(scenario: Scenario, *, is_stream: bool) -> None:
                name = SHORT.get(scenario.name, scenario.name)
                more = {"stream_options": {"include_usage": True}} if is_stream else {}
                async with gate:
                    answers = [
                        await running.chat(f"{way}-{name}", stream=is_stream, **more)
                        for way in ("direct", "worker")
                    ]
                turns = [await recorded(running, answer) for answer in answers]
                label = f"{name} {'streamed' if is_stream else 'whole'}"
                direct, worker = (seen_by_client(answer) for answer in answers)
                if direct != worker:
                    different.append(f"{label}: the client saw {direct} and {worker}")
                rows, others = (stored(turn) for turn in turns)
                if rows != others:
                    different.append(f"{label}: stored {json.dumps(rows)} {json.dumps(others)}")

            for is_stream in (False, True):
                await asyncio.gather(*(both(one, is_stream=is_stream) for one in played(group)))

    assert not different, "\n".join(one[:3000] for one in different)
