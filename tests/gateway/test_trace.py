"""Trace context through a real gateway: adopted where it is valid, made where it is not, passed on.

The same facts as the W3C's own harness checks (`tests/support/trace_harness.py` runs it), and those
of the ids it does not know: request id, turn id, and the envelope.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everyturn.mock.script import Script
from everyturn.mock.server import MockProvider
from everyturn.mock.traffic import SeenRequest
from tests.gateway.test_records import recorded
from tests.support.gateway import HELLO, Running, gateway_and_mock, running_gateway
from tests.support.scripted_upstream import ScriptedUpstream, answering
from tests.support.scripted_upstream import answer as raw_answer
from tests.support.trace_harness import post

TRACE = "0123456789abcdef0123456789abcdef"
SPAN = "0123456789abcdef"
TURN = "7d5d2c80-6b1f-4c8e-9d5e-2f4d1c1b0a99"
PARENT = f"00-{TRACE}-{SPAN}-01"

ADOPTED = [
    [f"traceparent: {PARENT}"],
    [f"TraceParent: {PARENT}"],
    [f"TRACEPARENT: \t {PARENT} \t"],
    [f"traceparent: cc-{TRACE}-{SPAN}-01"],
    [f"traceparent: cc-{TRACE}-{SPAN}-01-of-a-later-version"],
    [f"traceparent: {PARENT}", "tracestate: a=1,B=2"],
]
RESTARTED = [
    [],
    ["traceparent:"],
    [f"trace-parent: {PARENT}"],
    [f"trace.parent: {PARENT}"],
    [f"traceparent: {PARENT}", f"traceparent: {PARENT}"],
    [f"traceparent: {PARENT}."],
    [f"traceparent: {PARENT}-of-a-later-version"],
    [f"traceparent: {PARENT.upper()}"],
    [f"traceparent: {PARENT[:-1]}"],
    [f"traceparent: {PARENT}1"],
    [f"traceparent: 0{PARENT}"],
    [f"traceparent: {PARENT[1:]}"],
    [f"traceparent: ff-{TRACE}-{SPAN}-01"],
    [f"traceparent: .0-{TRACE}-{SPAN}-01"],
    [f"traceparent: cc-{TRACE}-{SPAN}-01.of-a-later-version"],
    [f"traceparent: 00-{TRACE}0-{SPAN}-01"],
    [f"traceparent: 00-{TRACE[1:]}-{SPAN}-01"],
    [f"traceparent: 00-.{TRACE[1:]}-{SPAN}-01"],
    [f"traceparent: 00-{'0' * 32}-{SPAN}-01"],
    [f"traceparent: 00-{TRACE}-{SPAN}0-01"],
    [f"traceparent: 00-{TRACE}-{SPAN[1:]}-01"],
    [f"traceparent: 00-{TRACE}-{SPAN[1:]}.-01"],
    [f"traceparent: 00-{TRACE}-{'0' * 16}-01"],
    [f"traceparent: 00-{TRACE}-{SPAN}-.0"],
]
LONG = ",".join(f"k{n:02}={'v' * 60}" for n in range(20))
STATES: list[tuple[list[str], str | None]] = [
    (["a=1,b@c=2"], "a=1,b@c=2"),
    (["a=1 ,\tb=2 ,,", "", "c=3"], "a=1,b=2,c=3"),
    (["a=1", "b=2,a=3"], "a=1,b=2"),
    (["a=  1"], "a=  1"),
    (["a=1=2"], None),
    (["a=1,b="], None),
    (["a=1", "é=2"], None),
    (["z" * 256 + "=1"], "z" * 256 + "=1"),
    (["z" * 257 + "=1"], None),
    ([",".join(f"k{n}=1" for n in range(32))], ",".join(f"k{n}=1" for n in range(32))),
    ([",".join(f"k{n}=1" for n in range(33))], None),
    ([LONG], ",".join(LONG.split(",")[:7])),
]


async def sent_on(running: Running, mock: MockProvider, lines: list[str], **body: Any) -> Any:
    """What the provider was sent for a request with these header lines."""
    raw = "".join(f"\r\n{line}" for line in lines).encode()
    whole = {"model": "m", "messages": HELLO, **body}
    answer = await post(running.gateway.port, "/v1/chat/completions", raw, whole)
    assert answer.startswith(b"HTTP/1.1 200"), answer
    return mock.requests[-1]


def parent_of(seen: SeenRequest) -> tuple[str, str, int]:
    """Trace, span and flags of the one `traceparent` that the provider got."""
    (value,) = [value for name, value in seen.headers if name == "traceparent"]
    version, trace, span, flags = value.split("-")
    assert version == "00"
    return trace, span, int(flags, 16)


def plain(mock: MockProvider) -> None:
    """Let the model answer."""
    mock.add("m", Script.whole(body=b'{"choices":[{"message":{"content":"a"}}]}'))


async def test_a_valid_parent_is_adopted(tmp_path: Path) -> None:
    """The trace goes on, with a span of its own for each call."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        plain(mock)
        parents = [parent_of(await sent_on(running, mock, lines)) for lines in ADOPTED]

    assert [trace for trace, _, _ in parents] == [TRACE] * len(ADOPTED)
    spans = {span for _, span, _ in parents}
    assert len(spans) == len(ADOPTED)
    assert SPAN not in spans


async def test_anything_else_restarts_the_trace(tmp_path: Path) -> None:
    """What is not valid is never repaired; the new trace is sampled, random, and without state."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        plain(mock)
        seen = [await sent_on(running, mock, [*lines, "tracestate: a=1"]) for lines in RESTARTED]

    parents = [parent_of(request) for request in seen]
    traces = [trace for trace, _, _ in parents]
    assert len(set(traces)) == len(RESTARTED)
    assert not [trace for trace in traces if trace[1:-1] in TRACE or not trace.strip("0")]
    assert {flags for _, _, flags in parents} == {3}
    assert not [request for request in seen if request.header("tracestate") is not None]


async def test_flags_go_on_as_they_came(tmp_path: Path) -> None:
    """Sampled and random are kept, set or not; what no version defines is cleared."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        plain(mock)
        flags = [
            parent_of(await sent_on(running, mock, [f"traceparent: {PARENT[:-2]}{given}"]))[2]
            for given in ("00", "01", "02", "03", "fc", "ff")
        ]

    assert flags == [0, 1, 2, 3, 0, 3]


async def test_state_goes_on_as_one_header(tmp_path: Path) -> None:
    """In order, once each, at most 512 characters; a malformed list is left out whole."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        plain(mock)
        found = []
        for values, _ in STATES:
            lines = [f"traceparent: {PARENT}", *(f"tracestate: {value}" for value in values)]
            seen = await sent_on(running, mock, lines)
            found.append([value for name, value in seen.headers if name == "tracestate"])
            assert parent_of(seen)[0] == TRACE

    assert found == [[] if state is None else [state] for _, state in STATES]


async def test_the_request_id_is_adopted_or_made(tmp_path: Path) -> None:
    """One valid id is echoed and passed on; anything else gets a new one."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        plain(mock)
        kept = await sent_on(running, mock, ["X-Request-ID: order:7/a"])
        made = [
            (await sent_on(running, mock, lines)).header("x-request-id")
            for lines in (
                [],
                ["x-request-id: a b"],
                ["x-request-id: " + "a" * 129],
                ["x-request-id: one", "x-request-id: two"],
            )
        ]

    assert kept.header("x-request-id") == "order:7/a"
    assert len(set(made)) == 4
    assert all(found is not None and found.startswith("req_") for found in made)


async def test_record_and_answer_name_the_same_spans(tmp_path: Path) -> None:
    """The turn is a child of the client's span, the call a child of the turn; the answer names
    the turn's span, the provider got the call's."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        plain(mock)
        headers = {"traceparent": PARENT, "x-request-id": "r1"}
        body = {"model": "m", "messages": HELLO}
        answer = await running.client.post("/chat/completions", json=body, headers=headers)
        turn = await recorded(running, answer)
        seen = mock.requests[-1]

    (call,), (access,) = turn["model_calls"], turn["access_events"]
    row = turn["turn"]
    assert (row["trace_id"], row["parent_span_id"], row["request_id"]) == (TRACE, SPAN, "r1")
    assert answer.headers["traceparent"] == f"00-{TRACE}-{row['span_id']}-01"
    assert (call["trace_id"], call["parent_span_id"]) == (TRACE, row["span_id"])
    assert parent_of(seen) == (TRACE, call["span_id"], 1)
    assert (access["trace_id"], access["span_id"]) == (TRACE, row["span_id"])
    assert access["parent_span_id"] == SPAN


@pytest.mark.parametrize("path", ["/models", "/nowhere", "/turns/none"])
async def test_every_answer_echoes_the_ids(tmp_path: Path, path: str) -> None:
    """Refusals and answers that no turn came of name the client's trace and request."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        headers = {"traceparent": PARENT, "x-request-id": "r1"}
        answer = await running.client.get(path, headers=headers)

    assert answer.headers["x-request-id"] == "r1"
    assert answer.headers["traceparent"].startswith(f"00-{TRACE}-")
    assert answer.headers["traceparent"] != PARENT


async def test_the_envelope_stands_where_headers_cannot_go(tmp_path: Path) -> None:
    """Ids in the body join turn and trace, are echoed and recorded, and stay here."""
    envelope = {"turn_id": TURN, "trace_id": TRACE, "request_id": "r1"}
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        plain(mock)
        for _ in range(2):
            answer = await running.chat("m", everyturn=envelope)
        turn = await recorded(running, answer)
        seen = mock.requests[-1]

    assert answer.headers["x-everyturn-turn-id"] == TURN
    assert answer.headers["x-request-id"] == "r1"
    assert answer.headers["traceparent"].split("-")[1] == TRACE
    assert parent_of(seen)[0] == TRACE
    assert "everyturn" not in seen.json()
    assert [call["trace_id"] for call in turn["model_calls"]] == [TRACE] * 2
    assert "everyturn" not in json.dumps(turn["model_calls"])
    assert turn["turn"]["parent_span_id"] is None


async def test_headers_outweigh_the_envelope(tmp_path: Path) -> None:
    """A trace and a request id in headers are nearer; two different turns are refused, recorded."""
    envelope = {"turn_id": TURN, "trace_id": "f" * 32, "request_id": "far"}
    headers = {"traceparent": PARENT, "x-request-id": "near"}
    body = {"model": "m", "messages": HELLO, "everyturn": envelope}
    other = TURN.replace("7", "8")
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        plain(mock)
        answer = await running.client.post("/chat/completions", json=body, headers=headers)
        headers["x-everyturn-turn-id"] = other
        refused = await running.client.post("/chat/completions", json=body, headers=headers)
        turn = await recorded(running, refused)
        asked = len(mock.requests)

    assert answer.headers["x-everyturn-turn-id"] == TURN
    assert answer.headers["x-request-id"] == "near"
    assert answer.headers["traceparent"].split("-")[1] == TRACE
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "everyturn.turn_id"
    assert refused.headers["x-everyturn-turn-id"] == other
    assert (turn["turn"]["outcome"], turn["turn"]["user_text"]) == ("failure", "hello")
    assert asked == 1


async def test_a_turn_id_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """Which of two turns a call is part of is not guessed."""
    async with gateway_and_mock(tmp_path / "data") as (running, _):
        answer = await running.client.post(
            "/chat/completions",
            json={"model": "m", "messages": HELLO},
            headers=[("x-everyturn-turn-id", TURN), ("x-everyturn-turn-id", TURN)],
        )

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "x-everyturn-turn-id"


IDS = ("traceparent", "tracestate", "x-request-id")


@pytest.mark.parametrize("forward", [[], list(IDS)])
async def test_a_server_on_this_machine_is_told_once(tmp_path: Path, forward: list[str]) -> None:
    """Trace headers go out as the gateway has them and once each, listed or not."""
    lines = [f"traceparent: {PARENT}", "tracestate: a=1,", "x-request-id: r1"]
    async with gateway_and_mock(tmp_path / "data", forward_headers=forward) as (running, mock):
        plain(mock)
        seen = await sent_on(running, mock, lines)

    assert sorted(name for name, _ in seen.headers if name in IDS) == list(IDS)
    assert seen.header("tracestate") == "a=1"


@pytest.mark.parametrize(
    ("forward", "told"),
    [([], []), (["x-request-id"], ["x-request-id"]), (["traceparent"], list(IDS))],
)
async def test_a_hosted_provider_is_told_what_the_operator_lists(
    tmp_path: Path, forward: list[str], told: list[str]
) -> None:
    """Nothing by default. It is reached by way of a proxy here, so that no test leaves loopback."""
    body = b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}'
    script = answering(raw_answer(body, headers=("content-type: application/json",)))
    entry = {
        "name": "m",
        "preset": "generic-strict",
        "base_url": "http://provider.test/v1",
        "insecure_http": True,
        "forward_headers": forward,
    }
    async with ScriptedUpstream(script) as proxy:
        environment = {"http_proxy": f"http://127.0.0.1:{proxy.port}"}
        async with running_gateway([entry], tmp_path / "data", environment=environment) as running:
            headers = {"traceparent": PARENT, "tracestate": "a=1", "x-request-id": "a bad one"}
            chat = {"model": "m", "messages": HELLO}
            answer = await running.client.post("/chat/completions", json=chat, headers=headers)
        (seen,) = proxy.requests

    sent = {name: value for name, value in seen.headers if name in IDS}
    assert sorted(sent) == told
    assert sent.get("x-request-id", answer.headers["x-request-id"]).startswith("req_")
    assert sent.get("x-request-id") in (None, answer.headers["x-request-id"])
