"""One turn over three processes: an application, a tool service and the gateway."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from everyturn.mock.thread import MockThread
from tests.support.an_application import HITS, QUESTION

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
[gateway]
port = 0
data = "{data}"
[service]
service = "gate"
[plugins.faq]
fields = {{ topic = "str" }}
[[models]]
name = "m"
preset = "deepseek"
base_url = "{url}"
upstream_model = "deepseek"
"""


@contextmanager
def a_gateway(folder: Path, url: str) -> Iterator[str]:
    """A gateway process; its address."""
    config = folder / "everyturn.toml"
    config.write_text(CONFIG.format(data=folder / "data", url=url), "utf-8")
    command = [sys.executable, "-m", "everyturn", "serve", "--config", str(config)]
    with (folder / "gateway.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            while line and b"gateway.listening" not in line:
                line = process.stderr.readline()
            yield f"http://127.0.0.1:{json.loads(line)['port']}"
        finally:
            process.send_signal(signal.SIGTERM)
            _, rest = process.communicate(timeout=30)
            log.write(rest)


@contextmanager
def a_service(folder: Path, kind: str, gateway: str) -> Iterator[str]:
    """A tool service process; its address. It has done its jobs and sent its records at the end."""
    spill = str(folder / "spill-service")
    command = [sys.executable, "-m", "tests.support.tool_service", kind, gateway, spill]
    with (folder / "service.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT
        )
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.communicate(timeout=30)
    assert process.returncode == 0


def rebuilt(gateway: str, turn_id: str) -> dict[str, Any]:
    """The turn, from its id alone."""
    with urllib.request.urlopen(f"{gateway}/v1/turns/{turn_id}", timeout=30) as answer:
        turn: dict[str, Any] = json.loads(answer.read())
        return turn


@pytest.mark.parametrize("kind", ["asgi", "wsgi"])
def test_one_turn_over_three_processes(tmp_path: Path, kind: str) -> None:
    """Everything joins by one turn id and one trace id, which the service echoes and logs; read
    back from the id alone it is what was sent and received."""
    with (
        MockThread() as mock,
        a_gateway(tmp_path, mock.url) as gateway,
    ):
        with a_service(tmp_path, kind, gateway) as service:
            ran = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "tests.support.an_application",
                    gateway,
                    service,
                    str(tmp_path / "spill-application"),
                ],
                capture_output=True,
                text=True,
                timeout=60,
                cwd=ROOT,
                check=False,
            )
            assert ran.returncode == 0, ran.stderr
            told = json.loads(ran.stdout)
        found = rebuilt(gateway, told["turn_id"])
        upstream = mock.requests[-1]

    check_ids(told, found, (tmp_path / "service.log").read_text("utf-8"))
    check_turn(told, found["turn"])
    check_tree(told, found)
    (call,) = found["model_calls"]
    assert call["prompt_messages_json"] == told["messages"]
    assert {**call["parameters_json"], "messages": told["messages"]} == upstream.json()
    assert call["response_json"]["choices"][0]["message"]["content"] == told["answer"]
    assert call["stream_state"] == "complete"


def check_ids(told: dict[str, Any], found: dict[str, Any], log: str) -> None:
    """Both ids are everywhere: in every row, in what the services echo, on the log lines."""
    turn_id, trace_id = told["turn_id"], told["trace_id"]
    assert told["is_flushed"]
    assert [name for name, count in told["counters"].items() if "refused" in name and count] == []
    for headers in (told["tool_headers"], told["gateway_headers"]):
        assert headers["x-everyturn-turn-id"] == turn_id
        assert headers["traceparent"].split("-")[1] == trace_id
    lines = sorted(line.split(maxsplit=2)[2] for line in log.splitlines())
    assert lines == ["indexed", "looked up"]
    assert all(line.startswith(f"{turn_id} {trace_id} ") for line in log.splitlines())
    for name, rows in found.items():
        for row in rows if isinstance(rows, list) else [found["turn"]] * (name == "turn"):
            assert row["turn_id"] == turn_id
            if name != "quality_reviews":
                assert row["trace_id"] == trace_id, name


def check_turn(told: dict[str, Any], turn: dict[str, Any]) -> None:
    """One row, the application's words in it, and what only the gateway knows."""
    expected = {
        "chat_id": "c1",
        "project_id": "shop",
        "plugin": "faq",
        "service": "shop",
        "environment": "test",
        "span_id": told["span_id"],
        "user_text": QUESTION,
        "user_message_id": "u-1",
        "assistant_text": told["answer"],
        "assistant_message_id": "a-1",
        "outcome": "success",
        "failure_type": "none",
        "attributes_json": {"topic": "orders"},
        "tool_call_count": 1,
        "retrieval_count": 1,
        "model_call_count": 1,
    }
    assert {name: turn[name] for name in expected} == expected
    sources = turn["sources_by_field_json"]
    assert {
        sources[name] for name in expected if name in sources and name != "model_call_count"
    } == {"application"}
    assert sources["model_call_count"] == "gateway"


def check_tree(told: dict[str, Any], found: dict[str, Any]) -> None:
    """Searches, tools, requests and reviews are as they were told, each below its parent."""
    (search,) = found["retrieval_events"]
    assert (search["query_text"], search["top_k"], search["profile"]) == (QUESTION, 2, "docs")
    assert [(one["source"], one["used"]) for one in search["sources_json"]] == [
        (HITS[0], True),
        (HITS[1], False),
    ]
    tools = {run["tool_name"]: run for run in found["tool_calls"]}
    assert set(tools) == {"get_order", "look_up", "index"}
    assert tools["get_order"]["request_json"] == told["asked"]
    assert tools["get_order"]["response_json"] == told["order"] == tools["look_up"]["response_json"]
    assert tools["index"]["response_json"] == {"count": 1}
    requests = {event["path_template"]: event for event in found["access_events"]}
    assert set(requests) == {"/orders", "/v1/chat/completions"}
    assert (requests["/orders"]["service"], requests["/orders"]["status_code"]) == ("orders", 200)
    assert search["parent_span_id"] == tools["get_order"]["parent_span_id"] == told["span_id"]
    assert requests["/orders"]["parent_span_id"] == told["tool_span_id"]
    assert tools["look_up"]["parent_span_id"] == requests["/orders"]["span_id"]
    asked = requests["/v1/chat/completions"]
    assert asked["parent_span_id"] == told["span_id"]
    assert found["model_calls"][0]["parent_span_id"] == asked["span_id"]
    assert re.fullmatch("[0-9a-f]{16}", tools["index"]["parent_span_id"] or "")
    (review,) = found["quality_reviews"]
    assert (review["review_id"], review["score_correctness"]) == (told["review_id"], 0.5)
    assert (review["label_primary_issue"], review["notes"]) == ("rag_miss", "no date")
