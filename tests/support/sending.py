"""Records as an application sends them to `POST /v1/records`, each with as little as it needs."""

from __future__ import annotations

import itertools
from typing import Any

import httpx

from everyturn import ids
from tests.support.gateway import Running

START = 1_795_000_000_000_000
_numbers = itertools.count(1)


def an_item(log: str, turn_id: str | None = None, **fields: Any) -> dict[str, Any]:
    """A record of a log, of a turn of its own unless one is named."""
    number = next(_numbers)
    turn_id = turn_id if turn_id is not None else ids.generate_turn_id()
    least: dict[str, dict[str, Any]] = {
        "turn_audit": {"timestamp": START + number},
        "model_calls": {"model_call_id": f"call_{number}", "timestamp": START + number},
        "tool_calls": {
            "tool_call_id": f"tool_{number}",
            "timestamp": START + number,
            "tool_family": "mcp",
            "tool_name": "look_up",
            "status": "ok",
        },
        "retrieval_events": {"retrieval_id": f"ret_{number}", "timestamp": START + number},
        "quality_reviews": {
            "review_id": f"rev_{number}",
            "created_at": START + number,
            "review_source": "human",
        },
        "access_events": {"access_id": f"acc_{number}", "timestamp": START + number},
    }
    return {"log": log, "turn_id": turn_id, **least[log], **fields}


async def send(running: Running, *items: Any, key: str | None = None) -> httpx.Response:
    """Post these items."""
    headers = {"authorization": f"Bearer {key}"} if key is not None else {}
    return await running.client.post("/records", json={"records": list(items)}, headers=headers)


async def accepted(running: Running, *items: Any) -> None:
    """Post these items, which are all accepted."""
    answer = await send(running, *items)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"accepted": len(items), "refused": []}


async def the_turn(running: Running, turn_id: str) -> dict[str, Any]:
    """The turn as the gateway gives it."""
    found = await running.client.get(f"/turns/{turn_id}")
    assert found.status_code == 200, found.text
    turn: dict[str, Any] = found.json()
    return turn
