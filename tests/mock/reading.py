"""Reads answers of the scripted provider independently of the code that wrote them."""

from __future__ import annotations

import json
import re
from typing import Any

from everyturn.mock import Script
from everyturn.mock.scenario import Ask, scenario_name, split_number
from everyturn.mock.scenarios import SCENARIOS
from everyturn.mock.traffic import SeenRequest

NOW = 1_750_000_000.0
REQUEST_BODY = b'{"model":"mock","messages":[{"role":"user","content":"12?"}]}'


def script_of(
    model: str,
    *,
    body: bytes = REQUEST_BODY,
    headers: tuple[tuple[str, str], ...] = (),
    now: float = NOW,
) -> Script:
    """The script of a scenario, made for this request body."""
    name = scenario_name(model)
    scenario = SCENARIOS.get(name) or SCENARIOS[split_number(name)[0]]
    seen = SeenRequest(method="POST", target="/v1/chat/completions", headers=headers, body=body)
    ask = Ask(name=name, number=split_number(name)[1], request=seen, body=json.loads(body), now=now)
    return scenario.play(ask)


def written(script: Script, *, streamed: bool) -> bytes:
    """Everything a script writes, without pauses and endings."""
    return b"".join(step for step in script.steps(streamed=streamed) if isinstance(step, bytes))


def split_answer(wire: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers (lower-case names) and body of an answer, chunks taken apart."""
    head, _, rest = wire.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}
    if headers.get("transfer-encoding") != "chunked":
        return int(first.split()[1]), headers, rest
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return int(first.split()[1]), headers, body


def whole_body(model: str) -> Any:
    """The JSON of a scenario's whole answer."""
    return json.loads(split_answer(written(script_of(model), streamed=False))[2])


def stream_text(model: str) -> bytes:
    """The body of a scenario's stream."""
    return split_answer(written(script_of(model), streamed=True))[2]


def payloads(stream: bytes) -> list[str]:
    """The data of each event, by the rules of the standard."""
    text = stream.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    events = []
    for block in re.split(r"\n\n+", text):
        lines = [line.partition(":") for line in block.split("\n")]
        data = [value.removeprefix(" ") for name, _, value in lines if name == "data"]
        if data:
            events.append("\n".join(data))
    return events


def folded(stream: bytes) -> dict[str, Any]:
    """The chunks of a stream put together to a whole answer."""
    whole: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for payload in payloads(stream):
        if payload == "[DONE]":
            continue
        chunk = json.loads(payload)
        for choice in chunk.get("choices", []):
            kept = choices.setdefault(choice["index"], {"message": {}, "finish_reason": None})
            join(kept["message"], choice.get("delta", {}))
            kept.update(
                {
                    k: v
                    for k, v in choice.items()
                    if k not in ("delta", "logprobs") and v is not None
                }
            )
            if choice.get("logprobs"):
                join(kept.setdefault("logprobs", {}), choice["logprobs"])
        whole.update({k: v for k, v in chunk.items() if k != "choices" and v is not None})
    whole["choices"] = [choices[index] for index in sorted(choices)]
    return whole


def join(kept: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta: strings grow, lists grow or are merged by index, the rest is replaced."""
    for key, value in delta.items():
        old = kept.get(key)
        if value is None:
            kept.setdefault(key, None)
        elif isinstance(value, str) and isinstance(old, str) and key not in ("role", "type", "id"):
            kept[key] = old + value
        elif isinstance(value, list):
            kept[key] = old if isinstance(old, list) else []
            for item in value:
                add_item(kept[key], item)
        elif isinstance(value, dict) and isinstance(old, dict):
            join(old, value)
        elif value != "" or key not in kept:
            kept[key] = json.loads(json.dumps(value))


def add_item(kept: list[Any], item: Any) -> None:
    """Add an item of a list, or merge it into the one with its index."""
    if isinstance(item, dict) and "index" in item:
        for old in kept:
            if isinstance(old, dict) and old.get("index") == item["index"]:
                join(old, {k: v for k, v in item.items() if k not in ("format",)})
                return
    kept.append(json.loads(json.dumps(item)))
