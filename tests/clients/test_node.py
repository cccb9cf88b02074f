"""The Node clients `openai` and `ai` through a gateway, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from everyturn.mock.scenarios.tools import SHARE, WEIGH
from everyturn.mock.speech import ANSWER, THOUGHT
from tests.clients.conftest import Behind

WAIT_S = 60
CALLS = [(name, tool, json.loads(arguments)) for name, tool, arguments in (WEIGH, SHARE)]


async def run(node_folder: Path, script: str, behind: Behind) -> Any:
    """What a script saw of the gateway. Fails with what it wrote to stderr."""
    process = await asyncio.create_subprocess_exec(
        *("node", str(node_folder / script), behind.url),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            out, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, complaint.decode()
    return json.loads(out)


def doubles(value: Any) -> Any:
    """The value with the numbers of JavaScript, which has no integers beyond 2**53."""
    return json.loads(json.dumps(value), parse_int=float)


def check_history(behind: Behind) -> None:
    """The provider got the calls with their reasoning and the results, and answered."""
    histories = [
        seen.json()["messages"] for seen in behind.mock.requests if seen.model == "deepseek"
    ]
    asked, *results = next(messages for messages in histories if len(messages) > 1)[1:]
    assert asked["reasoning_content"] == THOUGHT
    assert [call["id"] for call in asked["tool_calls"]] == [WEIGH[0], SHARE[0]]
    assert [result["tool_call_id"] for result in results] == [WEIGH[0], SHARE[0]]


async def test_openai(node_folder: Path, behind: Behind) -> None:
    """The official Node client sees answers, reasoning and tool calls, and sends them back."""
    seen = await run(node_folder, "openai.mjs", behind)

    assert (seen["whole"]["content"], seen["whole"]["reasoning_content"]) == (ANSWER, THOUGHT)
    assert seen["streamed"] == {
        "content": ANSWER,
        "reasoning": THOUGHT,
        "usage": seen["usage"],
        "finish": "stop",
    }
    for calls in (seen["calls"], seen["assembled"]):
        assert [
            (call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in calls
        ] == CALLS
    assert seen["after"] == ANSWER
    assert seen["turnId"]
    assert "deepseek" in seen["models"]
    check_history(behind)


async def test_openai_failures(node_folder: Path, behind: Behind) -> None:
    """Its failures are typed: a rate limit, an unknown model, streams that end ill."""
    seen = await run(node_folder, "openai.mjs", behind)

    assert seen["limited"]["kind"] == "RateLimitError"
    assert int(seen["limited"]["retryAfter"]) > 0
    assert (seen["unknown"]["kind"], seen["unknown"]["code"]) == (
        "NotFoundError",
        "model_not_found",
    )
    assert seen["cut"]["isApiError"]
    assert seen["cut"]["code"] == "upstream_stream_incomplete"
    assert seen["broken"]["isApiError"]
    assert seen["broken"]["code"] == "upstream_error"


async def test_ai(node_folder: Path, behind: Behind) -> None:
    """The `ai` package sees text, reasoning and tool calls, whole and streamed, and failures."""
    seen = await run(node_folder, "ai.mjs", behind)

    assert seen["whole"] == {"text": ANSWER, "reasoning": THOUGHT, "tokens": 42}
    streamed = seen["streamed"]
    assert (streamed["text"], streamed["reasoning"]) == (ANSWER, THOUGHT)
    assert (streamed["finish"], streamed["tokens"]) == ("stop", 42)
    for calls in (seen["calls"], seen["streamedCalls"]["calls"]):
        assert [(call["id"], call["name"], doubles(call["input"])) for call in calls] == [
            (name, tool, doubles(arguments)) for name, tool, arguments in CALLS
        ]
    assert seen["streamedCalls"]["finish"] == "tool-calls"
    assert seen["after"] == ANSWER
    check_history(behind)

    assert (seen["limited"]["kind"], seen["limited"]["status"]) == ("AI_APICallError", 429)
    assert int(seen["limited"]["retryAfter"]) > 0
    assert seen["unknown"]["code"] == "model_not_found"
    for ended in (seen["cut"], seen["broken"]):
        assert ended["text"]
        assert ended["error"]
