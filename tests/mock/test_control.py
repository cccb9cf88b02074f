"""The endpoints for tests, and the thread, as a user meets them."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from everyturn.errors import InvalidValue, UnknownParameter
from everyturn.mock import ABORT, CLOSE, HANG, MockProvider, MockThread, Pause, Script
from everyturn.mock.control import read_script


@pytest.fixture(scope="module")
def provider() -> Iterator[MockThread]:
    """A provider in a thread."""
    with MockThread() as running:
        yield running


def ask(provider: MockThread, path: str, value: Any = None) -> tuple[int, Any]:
    """Status and JSON of an answer; a POST where there is something to send."""
    url = provider.url.removesuffix("/v1") + path
    data = None if value is None else json.dumps(value).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data)) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as failure:
        return failure.code, json.loads(failure.read())


def chat(provider: MockThread, model: str) -> tuple[int, Any]:
    """A whole answer."""
    return ask(provider, "/v1/chat/completions", {"model": model, "messages": [{"content": "é"}]})


def b64(data: bytes) -> str:
    """Base64 as text."""
    return base64.b64encode(data).decode()


def test_scenarios_are_listed(provider: MockThread) -> None:
    """`/__scenarios` has every scenario with title and preset, and the added scripts."""
    provider.add("listed", Script.raw([CLOSE]))

    status, listed = ask(provider, "/__scenarios")

    assert status == 200
    assert listed["deepseek"]["preset"] == "deepseek"
    assert len(listed["plain"]["title"]) > 10
    assert listed["listed"] == {"title": "added", "preset": None}


def test_last_requests_are_shown(provider: MockThread) -> None:
    """`/__last` shows the newest requests, oldest first, with headers and body as text."""
    chat(provider, "mock-plain")
    chat(provider, "mock-refusal")

    status, seen = ask(provider, "/__last?n=2")

    assert status == 200
    assert [each["model"] for each in seen] == ["mock-plain", "mock-refusal"]
    assert json.loads(seen[0]["body"])["messages"] == [{"content": "é"}]
    assert ["Host", provider.url.split("/")[2]] in seen[0]["headers"]
    assert len(ask(provider, "/__last")[1]) == 1


@pytest.mark.parametrize("count", ["0", "-1", "x", "²", "9" * 5000])
def test_wrong_count_is_refused(provider: MockThread, count: str) -> None:
    """A count that is no number from 1 is a 400 that names the parameter."""
    status, answer = ask(provider, f"/__last?n={urllib.parse.quote(count)}")

    assert status == 400
    assert answer["error"]["param"] == "n"


def test_stats_count_requests_only(provider: MockThread) -> None:
    """`/__stats` counts requests; its own endpoints are none."""
    before = ask(provider, "/__stats")[1]

    chat(provider, "plain")
    ask(provider, "/__scenarios")

    after = ask(provider, "/__stats")[1]
    assert after["requests"] == before["requests"] + 1
    assert after["connections"] >= before["connections"] + 3
    assert after["client_aborts"] == 0
    assert after["answers_open"] == 0


def test_script_is_added_over_http(provider: MockThread) -> None:
    """A script that is posted answers the next request for its name, to the byte."""
    status, answer = ask(
        provider,
        "/__script",
        {"name": "mock-posted_one", "whole": {"status": 418, "body": b64(b'{"short":"stout"}')}},
    )

    assert (status, answer) == (200, {"added": "posted-one"})
    assert chat(provider, "posted-one") == (418, {"short": "stout"})


def test_unknown_endpoint_is_a_404(provider: MockThread) -> None:
    """What is not served below `/__` is a 404, also with the wrong method."""
    assert ask(provider, "/__nothing")[0] == 404
    assert ask(provider, "/__script")[0] == 404


@pytest.mark.parametrize(
    "body, code, param",
    [
        (b"{", "invalid_json", None),
        (b"[]", "invalid_value", None),
        (b'{"name":"plain","whole":{}}', "invalid_value", "name"),
        (b'{"name":"mock-","whole":{}}', "invalid_value", "name"),
        (b'{"name":"x","whole":{"steps":[{"sleep_ms":-1}]}}', "invalid_value", "whole.steps[0]"),
    ],
)
def test_wrong_script_is_refused(
    provider: MockThread, body: bytes, code: str, param: str | None
) -> None:
    """A script that cannot be played is a 400 that says where it is wrong."""
    request = urllib.request.Request(provider.url.removesuffix("/v1") + "/__script", body)

    with pytest.raises(urllib.error.HTTPError) as failure:
        urllib.request.urlopen(request)

    with failure.value as answer:
        error = json.loads(answer.read())["error"]
    assert failure.value.code == 400
    assert (error["code"], error["param"]) == (code, param)


def test_read_script_knows_every_step_and_framing() -> None:
    """The JSON form has the steps and framings of the Python one."""
    name, script = read_script(
        {
            "name": "all",
            "whole": {
                "framing": "raw",
                "steps": [{"text": "HTTP/1.1 200 OK\r\n\r\n"}, {"bytes": "/w=="}, "close"],
            },
            "stream": {
                "status": 202,
                "headers": [["x-a", "1"], ["x-a", "2"]],
                "steps": [{"text": "data: 1\n\n"}, {"sleep_ms": 5}, "abort"],
            },
        }
    )

    assert name == "all"
    assert script.on_whole == (b"HTTP/1.1 200 OK\r\n\r\n", b"\xff", CLOSE)
    assert script == Script.pair(
        whole=script,
        stream=Script.sse(
            [b"data: 1\n\n", Pause(5), ABORT], status=202, headers=[("x-a", "1"), ("x-a", "2")]
        ),
    )


def test_read_script_uses_one_answer_for_both() -> None:
    """A script with one answer gives it to whole and streamed requests alike."""
    _, until_close = read_script(
        {"name": "a", "stream": {"framing": "close", "steps": [{"text": "x"}, "hang"]}}
    )
    _, with_length = read_script(
        {"name": "b", "whole": {"headers": {"x": "y"}, "steps": [{"text": "{"}, {"text": "}"}]}}
    )

    assert until_close == Script.sse([b"x", HANG], chunked=False)
    assert with_length == Script.whole(200, {"x": "y"}, b"{}")


@pytest.mark.parametrize(
    "value, param",
    [
        ({"name": 1, "whole": {}}, "name"),
        ({"name": "a"}, "whole"),
        ({"name": "a", "whole": []}, "whole"),
        ({"name": "a", "whole": {"status": "200"}}, "whole.status"),
        ({"name": "a", "whole": {"status": True}}, "whole.status"),
        ({"name": "a", "whole": {"framing": "odd"}}, "whole.framing"),
        ({"name": "a", "whole": {"steps": ["abort"]}}, "whole.framing"),
        ({"name": "a", "whole": {"steps": {}}}, "whole.steps"),
        ({"name": "a", "whole": {"body": "%"}}, "whole.body"),
        ({"name": "a", "whole": {"body": 1}}, "whole.body"),
        ({"name": "a", "whole": {"headers": [["a"]]}}, "whole.headers"),
        ({"name": "a", "whole": {"headers": {"a": "é"}}}, "whole.headers"),
        ({"name": "a", "whole": {"headers": "a"}}, "whole.headers"),
        ({"name": "a", "stream": {"steps": ["stop"]}}, "stream.steps[0]"),
        ({"name": "a", "stream": {"steps": [{"sleep_ms": True}]}}, "stream.steps[0]"),
        ({"name": "a", "stream": {"steps": [{"text": "a", "bytes": ""}]}}, "stream.steps[0]"),
    ],
)
def test_read_script_says_what_is_wrong(value: Any, param: str) -> None:
    """Each fault of a script is named by its path."""
    with pytest.raises(InvalidValue) as failure:
        read_script(value)

    assert failure.value.param == param


@pytest.mark.parametrize(
    "value, param",
    [({"name": "a", "hole": {}}, "hole"), ({"name": "a", "whole": {"code": 1}}, "whole.code")],
)
def test_read_script_refuses_unknown_keys(value: Any, param: str) -> None:
    """A key that a script does not have is refused, not ignored."""
    with pytest.raises(UnknownParameter) as failure:
        read_script(value)

    assert failure.value.param == param


def test_thread_reports_that_it_cannot_listen(provider: MockThread) -> None:
    """A port that is taken raises in the thread that asked for it."""
    second = MockThread(MockProvider())

    with pytest.raises(OSError):
        second.start(port=provider.provider.port)

    second.stop()


def test_thread_shows_what_arrived() -> None:
    """The thread has the requests and counts of its provider, and can be stopped twice."""
    thread = MockThread()
    port = thread.start()
    chat(thread, "plain")

    assert thread.url == f"http://127.0.0.1:{port}/v1"
    assert [seen.scenario for seen in thread.requests] == ["plain"]
    assert thread.stats().requests == 1
    thread.stop()
    thread.stop()
    with pytest.raises(urllib.error.URLError):
        ask(thread, "/__stats")
