"""What a client sees when the provider fails, and that the failure is typed every time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from everyturn.errors import Failure, ProviderFault
from everyturn.mock.script import ABORT, CLOSE, HANG, Script
from tests.gateway.test_answers import DONE, FINISH, chunk, frames
from tests.support.gateway import Running, gateway_and_mock

WHOLE: list[tuple[str, int, str]] = [
    ("error-200", 502, "upstream_error"),
    ("error-400", 400, "upstream_rejected"),
    ("error-401", 502, "upstream_error"),
    ("error-403", 502, "upstream_error"),
    ("error-404", 404, "upstream_rejected"),
    ("error-429", 429, "upstream_rejected"),
    ("error-429-date", 429, "upstream_rejected"),
    ("error-500", 502, "upstream_error"),
    ("error-502-html", 502, "upstream_error"),
    ("error-503", 502, "upstream_error"),
    ("empty-body", 502, "translation_error"),
    ("other-shape", 502, "translation_error"),
    ("no-choices", 502, "upstream_error"),
    ("gzip", 502, "translation_error"),
    ("html", 502, "translation_error"),
    ("redirect", 502, "upstream_error"),
    ("reset-before", 502, "upstream_unreachable"),
    ("reset-head", 502, "upstream_unreachable"),
    ("reset-in", 502, "upstream_stream_incomplete"),
    ("short-length", 502, "translation_error"),
    ("bad-chunk", 502, "translation_error"),
    ("endless-head", 502, "upstream_too_large"),
    ("not-http", 502, "translation_error"),
    ("duplicate-keys", 502, "translation_error"),
    ("deep", 502, "translation_error"),
    ("conflict", 502, "reasoning_conflict"),
    ("wrong-type", 502, "translation_error"),
    ("unknown-thought", 502, "protocol_drift"),
]
"""Scenario of the scripted provider → status and code of a whole answer."""

STREAMED: list[tuple[str, str]] = [
    ("error-mid", "upstream_error"),
    ("error-mid-no-done", "upstream_error"),
    ("error-late", "upstream_rejected"),
    ("error-event", "upstream_rejected"),
    ("cut-clean", "upstream_stream_incomplete"),
    ("cut-abort", "upstream_stream_incomplete"),
    ("cut-close", "upstream_stream_incomplete"),
    ("cut-frame", "upstream_stream_incomplete"),
    ("cut-reasoning", "upstream_stream_incomplete"),
    ("cut-after-finish", "upstream_stream_incomplete"),
    ("no-finish", "upstream_stream_incomplete"),
    ("one-of-two", "upstream_stream_incomplete"),
    ("invalid-json", "translation_error"),
    ("invalid-utf8", "translation_error"),
    ("tools-orphan", "tool_fragment_orphan"),
    ("conflict-late", "reasoning_conflict"),
]
"""Scenario → code of the error frame of a stream that had begun."""


def error(answer: Any) -> dict[str, Any]:
    """The error object of a whole answer."""
    found: dict[str, Any] = answer.json()["error"]
    return found


@pytest.mark.parametrize(("scenario", "status", "code"), WHOLE)
async def test_whole_answers_that_fail(
    tmp_path: Path, scenario: str, status: int, code: str
) -> None:
    """Each way a whole answer fails has its status and code, with a hint to follow."""
    async with gateway_and_mock(tmp_path / "data", upstream_model=scenario) as (running, _):
        answer = await running.chat("m")

    assert (answer.status_code, error(answer)["code"]) == (status, code)
    assert error(answer)["hint"]


@pytest.mark.parametrize(("scenario", "code"), STREAMED)
async def test_streams_that_fail(tmp_path: Path, scenario: str, code: str) -> None:
    """Each way a stream fails ends with one typed error frame and no end marker."""
    n = 2 if scenario == "one-of-two" else 1
    async with gateway_and_mock(tmp_path / "data", upstream_model=scenario) as (running, _):
        answer = await running.chat("m", stream=True, n=n)

    assert answer.status_code == 200
    told = frames(answer.content)
    assert told[-1]["error"]["code"] == code
    assert "[DONE]" not in told
    assert sum("error" in frame for frame in told) == 1
    assert any(frame.get("choices") for frame in told[:-1])


@pytest.mark.parametrize("scenario", ["error-200", "error-200-json", "error-first"])
async def test_failure_before_the_first_event_has_a_status(tmp_path: Path, scenario: str) -> None:
    """A stream that fails before anything was shown is an HTTP error, not a stream."""
    async with gateway_and_mock(tmp_path / "data", upstream_model=scenario) as (running, _):
        answer = await running.chat("m", stream=True)

    assert answer.status_code >= 400
    assert answer.headers["content-type"] == "application/json"
    assert error(answer)["code"].startswith("upstream_")


async def test_the_provider_says_how_long_to_wait(tmp_path: Path) -> None:
    """`retry-after` in seconds and as a date, and rate-limit headers, come back as sent."""
    async with gateway_and_mock(tmp_path / "data", upstream_model="error-429") as (running, _):
        seconds = await running.chat("m")
    async with gateway_and_mock(tmp_path / "data", upstream_model="error-429-date") as (
        running,
        _,
    ):
        date = await running.chat("m", stream=True)

    assert seconds.headers["retry-after"].isdigit()
    assert date.headers["retry-after"].endswith("GMT")


async def test_the_operators_credentials_are_not_the_clients_business(tmp_path: Path) -> None:
    """A provider that refuses the gateway's key says nothing of it to the client."""
    body = b'{"error":{"message":"Incorrect API key provided: sk-FAKE-secret","code":"bad_key"}}'
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.whole(401, body=body))
        answer = await running.chat("m")

    assert (answer.status_code, error(answer)["code"]) == (502, "upstream_error")
    assert b"sk-FAKE" not in answer.content
    assert "api_key_env" in error(answer)["hint"]


async def test_the_providers_words_stand_as_sent(tmp_path: Path) -> None:
    """Message and every other member of the provider's error reach the client; the code is ours."""
    sent = {"message": "no", "code": "tool_use_failed", "failed_generation": '{"name":"f"}'}
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.whole(400, body=msgspec.json.encode({"error": sent})))
        answer = await running.chat("m")

    assert error(answer)["message"] == "no"
    assert error(answer)["failed_generation"] == '{"name":"f"}'
    assert error(answer)["upstream_code"] == "tool_use_failed"
    assert error(answer)["code"] == "upstream_rejected"


async def test_no_connection(tmp_path: Path) -> None:
    """A provider that is not there is `upstream_unreachable`."""
    async with gateway_and_mock(tmp_path / "data", base_url="http://127.0.0.1:9/v1") as (
        running,
        _,
    ):
        answer = await running.chat("m")

    assert (answer.status_code, error(answer)["code"]) == (502, "upstream_unreachable")


@pytest.mark.parametrize("steps", [[HANG], [chunk(content="a"), HANG]])
async def test_silence_is_a_timeout(tmp_path: Path, steps: list[Any]) -> None:
    """No byte for the idle time ends a stream with `upstream_timeout`, shown or not."""
    async with gateway_and_mock(tmp_path / "data", timeouts={"idle_ms": 150}) as (running, mock):
        mock.add("m", Script.sse(steps))
        answer = await running.chat("m", stream=True)

    last = frames(answer.content)[-1] if len(steps) > 1 else answer.json()
    assert last["error"]["code"] == "upstream_timeout"
    assert answer.status_code == (200 if len(steps) > 1 else 504)


async def test_limits_of_the_answer(tmp_path: Path) -> None:
    """A frame, a body and a text past their bounds are `upstream_too_large`, never cut."""
    extra = "[limits]\nframe_bytes_max = 4096\nbody_bytes_max = 4096\ntext_bytes_max = 2048"
    async with gateway_and_mock(tmp_path / "data", extra=extra) as (running, mock):
        mock.add("m", Script.sse([b"data: " + b"x" * 9000, CLOSE]))
        long_frame = await running.chat("m", stream=True)
        mock.add("m", Script.whole(body=b'{"a":"' + b"x" * 9000 + b'"}'))
        long_body = await running.chat("m")
        mock.add("m", Script.sse([chunk(content="y" * 1500), chunk(content="y" * 1500), FINISH]))
        long_text = await running.chat("m", stream=True)

    assert error(long_frame)["code"] == "upstream_too_large"
    assert error(long_body)["code"] == "upstream_too_large"
    assert frames(long_text.content)[-1]["error"]["code"] == "upstream_too_large"


async def test_bytes_before_a_failure_in_the_same_read_are_shown(tmp_path: Path) -> None:
    """What was whole before the failure reaches the client, also when all came in one read."""
    wire = chunk(content="a") + b"data: {broken\n\n" + chunk(content="never")
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse([wire, ABORT]))
        answer = await running.chat("m", stream=True)

    told = frames(answer.content)
    assert told[0]["choices"][0]["delta"] == {"content": "a"}
    assert told[1]["error"]["code"] == "translation_error"
    assert b"never" not in answer.content


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{", "invalid_json", None),
        (b"[]", "invalid_json", None),
        (b'{"model":"m","model":"m","messages":[]}', "invalid_json", "model"),
        (b'{"model":"m","messages":[{"role":"user","content":NaN}]}', "invalid_json", None),
        (b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}', "invalid_json", None),
        (b'{"model":"m"}', "missing_parameter", "messages"),
        (b'{"model":"m","messages":[]}', "invalid_value", "messages"),
        (b'{"model":"m","messages":[{"role":"user","content":1}]}', "invalid_value", None),
        (
            b'{"model":"m","messages":[{"role":"user","content":"a"}],"temperature":1e400}',
            "invalid_value",
            "temperature",
        ),
        (
            b'{"model":"m","messages":[{"role":"user","content":"a"}],"colour":1}',
            "unknown_parameter",
            "colour",
        ),
        (b"[" * 10_000, "invalid_json", None),
    ],
)
async def test_requests_that_are_refused(
    tmp_path: Path, body: bytes, code: str, param: str | None
) -> None:
    """A request that is at fault is refused with its code and parameter, before any call."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        answer = await post(running, body)
        calls = mock.stats().requests

    assert (answer.status_code, error(answer)["code"]) == (400, code)
    assert param is None or error(answer)["param"] == param
    assert calls == 0


async def post(running: Running, body: bytes) -> Any:
    """Post raw bytes as a chat completion."""
    headers = {"content-type": "application/json"}
    return await running.client.post("/chat/completions", content=body, headers=headers)


async def test_a_body_over_the_limit(tmp_path: Path) -> None:
    """A body over the limit is 413, declared and undeclared."""

    async def pieces() -> Any:
        for _ in range(9):
            yield b"x" * 1024

    extra = "[limits]\nrequest_bytes_max = 4096"
    async with gateway_and_mock(tmp_path / "data", extra=extra) as (running, _):
        declared = await post(running, b"x" * 9000)
        headers = {"content-type": "application/json"}
        streamed = await running.client.post("/chat/completions", content=pieces(), headers=headers)

    for answer in (declared, streamed):
        assert (answer.status_code, error(answer)["code"]) == (413, "request_too_large")


async def test_a_cut_right_after_the_end_marker(tmp_path: Path) -> None:
    """An end marker without its blank line is still the end, also where the connection is cut."""
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.sse([chunk(content="a"), FINISH, b"data: [DONE]\n", ABORT]))
        answer = await running.chat("m", stream=True)

    assert frames(answer.content)[-1] == "[DONE]"


async def test_numbers_and_nul_are_carried_to_the_provider(tmp_path: Path) -> None:
    """`1e400` in a tool schema, a long integer, `0.10` and NUL arrive as they were sent."""
    body = (
        b'{"model":"m","temperature":0.10,"seed":12345678901234567890123,'
        b'"messages":[{"role":"user","content":"a\\u0000b"}],'
        b'"tools":[{"type":"function","function":{"name":"f","parameters":{"maximum":1e400}}}]}'
    )
    async with gateway_and_mock(tmp_path / "data") as (running, mock):
        mock.add("m", Script.whole(body=b'{"choices":[{"message":{"content":"a"}}]}'))
        answer = await post(running, body)
        seen = mock.requests[-1].body

    assert answer.status_code == 200, answer.text
    for text in (b"0.10", b"12345678901234567890123", b"a\\u0000b", b"1e400"):
        assert text in seen


def test_every_provider_fault_is_a_failure() -> None:
    """The tests above speak of codes that exist."""
    codes = {leaf.code for leaf in _leaves(Failure)}
    used = {code for *_, code in WHOLE} | {code for _, code in STREAMED}
    assert used <= codes
    assert issubclass(ProviderFault, Failure)
    assert DONE


def _leaves(kind: type[Failure]) -> list[type[Failure]]:
    below = kind.__subclasses__()
    return [kind] if not below else [leaf for child in below for leaf in _leaves(child)]
