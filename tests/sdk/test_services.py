"""Services: the middleware, MCP, the logging filter, and one trace through all of them."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import httpx
import pytest
import uvicorn

import everyturn
from everyturn import ids
from everyturn.audit.trace import parse_trace
from everyturn.sdk import mcp
from everyturn.sdk.asgi import AsgiMiddleware
from everyturn.sdk.logs import IdFilter
from everyturn.sdk.wsgi import WsgiMiddleware
from tests.sdk.conftest import since, until
from tests.support.receiver import Receiver

TURN_ID = "7c0f9a52-3b1f-4c58-9a5e-8f3f5d1d2c11"
PARENT = f"00-{'1' * 32}-{'2' * 16}-01"
HEADERS = {
    "x-everyturn-turn-id": TURN_ID,
    "x-request-id": "req-7",
    "traceparent": PARENT,
    "tracestate": "vendor=1",
}


class Route:
    """What a router leaves in the scope."""

    path = "/orders/{id}"


async def asgi_app(scope: Any, receive: Any, send: Any) -> None:
    """A service with one route, which uses a tool, and one that fails."""
    scope["route"] = Route()
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    if scope["path"] == "/fails":
        raise ValueError("secret words")
    with everyturn.tool("internal", "lookup"):
        pass
    if scope["path"] == "/turn":
        with everyturn.turn(chat_id="c"):
            pass
        with everyturn.turn(chat_id="d"):
            pass
    await send({"type": "http.response.start", "status": 201, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": b"ab", "more_body": True})
    await send({"type": "http.response.body", "body": b"cd"})


def wsgi_app(environ: Any, start_response: Any) -> Iterator[bytes]:
    """The same service."""
    environ["everyturn.path_template"] = "/orders/{id}"
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    if environ["PATH_INFO"] == "/fails":
        raise ValueError("secret words")
    if environ["PATH_INFO"] == "/turn":
        with everyturn.turn(chat_id="c"):
            pass
        with everyturn.turn(chat_id="d"):
            pass
    start_response("201 Created", [("x-own", "1")])
    yield b"ab"
    with everyturn.tool("internal", "lookup"):  # The body is made in the request's context.
        pass
    yield b"cd"


@contextmanager
def asgi_service(app: Any) -> Iterator[str]:
    """The application behind uvicorn."""
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=asyncio.run, args=(server.serve(),), daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def wsgi_service(app: Any) -> Iterator[str]:
    """The application behind the server of the standard library."""

    class Quiet(WSGIRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def get_stderr(self) -> Any:
            return io.StringIO()

    server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(params=["asgi", "wsgi"])
def service(request: pytest.FixtureRequest, gateway: Receiver) -> Iterator[str]:
    """A service with the middleware, once of each kind."""
    serve: Any = {"asgi": asgi_service, "wsgi": wsgi_service}[request.param]
    app: Any = {
        "asgi": AsgiMiddleware(asgi_app),
        "wsgi": WsgiMiddleware(wsgi_app),
    }[request.param]
    with serve(app) as url:
        yield url


def recorded(gateway: Receiver, count: int) -> list[dict[str, Any]]:
    """All records, when there are `count`."""
    until(lambda: len(gateway.items) >= count, f"{count} records")
    assert everyturn.flush(30)
    assert len(gateway.items) == count
    return gateway.items


def test_a_service_adopts_the_ids_and_echoes_them(service: str, gateway: Receiver) -> None:
    """A request that names a turn has one access record, its tools join the turn, ids come back."""
    answer = httpx.post(f"{service}/orders/5?secret=1", headers=HEADERS, content=b"12345")

    access = next(item for item in recorded(gateway, 2) if item["log"] == "access_events")
    (tool,) = gateway.of("tool_calls")
    assert (answer.status_code, answer.content, answer.headers["x-own"]) == (201, b"abcd", "1")
    assert answer.headers["x-everyturn-turn-id"] == TURN_ID
    assert answer.headers["x-request-id"] == "req-7"
    echoed = parse_trace([answer.headers["traceparent"]])
    assert echoed is not None
    assert (echoed.trace_id, echoed.span_id) == ("1" * 32, access["span_id"])
    assert (access["turn_id"], access["request_id"]) == (TURN_ID, "req-7")
    assert (access["trace_id"], access["parent_span_id"]) == ("1" * 32, "2" * 16)
    assert (access["method"], access["path_template"]) == ("POST", "/orders/{id}")
    assert (access["status_code"], access["duration_ms"] >= 0) == (201, True)
    assert (access["request_size_bytes"], access["response_size_bytes"]) == (5, 4)
    assert (tool["turn_id"], tool["parent_span_id"]) == (TURN_ID, access["span_id"])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-everyturn-turn-id": "nonsense", "traceparent": "00-zz", "x-request-id": "a b"},
        {"x-everyturn-turn-id": TURN_ID.upper(), "x-request-id": "x" * 200},
    ],
)
def test_a_service_makes_ids_where_none_are_valid(
    headers: dict[str, str], service: str, gateway: Receiver
) -> None:
    """Without valid ids a request gets its own; its tools are of no turn, which is counted."""
    before = everyturn.counters()
    answer = httpx.get(f"{service}/orders/5", headers=headers)

    (access,) = recorded(gateway, 1)
    assert ids.is_turn_id(answer.headers["x-everyturn-turn-id"])
    assert answer.headers["x-everyturn-turn-id"] != TURN_ID
    assert answer.headers["x-request-id"] == access["request_id"]
    assert "turn_id" not in access
    assert "parent_span_id" not in access
    assert since(before)["outside_turn"] == 1


def test_a_turn_in_a_service_takes_the_id_of_its_request(service: str, gateway: Receiver) -> None:
    """The first turn of a request has the id that is echoed; another one has an id of its own."""
    answer = httpx.get(f"{service}/turn")

    until(lambda: len(gateway.of("access_events")) == 1)
    first, second = gateway.of("turn_audit")
    (access,) = gateway.of("access_events")
    assert first["turn_id"] == access["turn_id"] == answer.headers["x-everyturn-turn-id"]
    assert second["turn_id"] != first["turn_id"]
    assert first["parent_span_id"] == second["parent_span_id"] == access["span_id"]
    assert first["trace_id"] == second["trace_id"] == access["trace_id"]


def test_a_request_that_fails_has_a_record(service: str, gateway: Receiver) -> None:
    """An exception is recorded as the 500 that the server answers, by its class."""
    answer = httpx.get(f"{service}/fails")

    (access,) = recorded(gateway, 1)
    assert answer.status_code == 500
    assert (access["status_code"], access["error_code"]) == (500, "ValueError")


def test_probes_are_counted_and_not_recorded(service: str, gateway: Receiver) -> None:
    """A health check passes through without a record."""
    before = everyturn.counters()
    answer = httpx.get(f"{service}/healthz")

    assert answer.status_code == 201
    assert "x-everyturn-turn-id" not in answer.headers
    assert since(before)["probes"] == 1
    assert everyturn.flush(30)
    assert gateway.items == []


async def test_headers_that_the_application_sets_stay() -> None:
    """An application that answers for another passes that one's ids on, once."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"X-Everyturn-Turn-Id", TURN_ID.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "BREW", "path": "/", "headers": []}
    with everyturn.capture() as events:
        await AsgiMiddleware(app)(scope, nothing, send)

    names = [name.lower() for name, _ in sent[0]["headers"]]
    assert names.count(b"x-everyturn-turn-id") == 1
    assert events[0]["method"] == "OTHER"
    assert "path_template" not in events[0]


async def nothing() -> Any:
    """Receive nothing."""
    return {"type": "http.disconnect"}


async def test_what_is_not_http_passes_through() -> None:
    """Lifespan and websocket scopes reach the application untouched."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope, receive, send))

    async def send(message: Any) -> None:
        raise AssertionError(message)

    scope = {"type": "lifespan"}
    await AsgiMiddleware(app)(scope, nothing, send)

    assert seen == [(scope, nothing, send)]


def test_ids_travel_in_mcp_and_come_back() -> None:
    """A client's ids reach the server in `params._meta`, and the result carries both back."""

    @mcp.handler
    def call_tool(params: dict[str, Any]) -> dict[str, Any]:
        with everyturn.tool("mcp", params["name"]):
            return {"content": [], "_meta": {"own": 1}}

    given = {"name": "get_order", "_meta": {"progressToken": 7}}
    with (
        everyturn.capture() as events,
        everyturn.turn() as turn,
        turn.tool("mcp", "get_order", target_service="orders") as run,
    ):
        params = mcp.with_meta(given)
    with everyturn.capture() as served:
        result = call_tool(params)

    (inside,) = served
    assert given == {"name": "get_order", "_meta": {"progressToken": 7}}
    assert params["_meta"]["progressToken"] == 7
    assert params["_meta"]["everyturn"] == turn.envelope()["everyturn"]
    assert params["_meta"]["traceparent"] == run.headers()["traceparent"]
    assert (inside["turn_id"], inside["trace_id"]) == (turn.id, turn.trace_id)
    assert result["_meta"]["everyturn"] == turn.envelope()["everyturn"]
    assert result["_meta"]["own"] == 1
    assert parse_trace([result["_meta"]["traceparent"]]) is not None
    assert len(events) == 2


async def test_an_async_mcp_handler_joins_its_turn() -> None:
    """A coroutine function may be a handler; the span it joins is a child of the caller's."""

    @mcp.handler
    async def call_tool(params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        current = everyturn.current()
        assert current is not None
        return {"parent": current.parent_span_id}

    with everyturn.capture(), everyturn.turn() as turn:
        params = mcp.with_meta()
    result = await call_tool(params)

    assert result["parent"] == turn.span_id


@pytest.mark.parametrize("params", [None, {}, {"_meta": 5}, {"_meta": {"everyturn": {}}}])
def test_mcp_without_ids_is_served_without_a_record(params: Any) -> None:
    """A request of a client that knows nothing of turns is served and answered as it would be."""

    @mcp.handler
    def call_tool(given: Any) -> dict[str, Any]:
        assert given is params
        with everyturn.tool("mcp", "x"):
            return {"content": []}

    before = everyturn.counters()
    with everyturn.capture() as events:
        assert call_tool(params) == {"content": []}
        assert mcp.with_meta({"a": 1}) == {"a": 1}

    assert events == []
    assert since(before) == {"envelope_invalid": 1, "outside_turn": 1}


@pytest.fixture
def log_lines() -> Iterator[Callable[[], list[str]]]:
    """A logger whose handler shows both ids."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(IdFilter())
    handler.setFormatter(logging.Formatter("%(turn_id)s %(trace_id)s %(message)s"))
    logger = logging.getLogger("tests.sdk.lines")
    logger.addHandler(handler)
    logger.propagate = False
    yield lambda: stream.getvalue().splitlines()
    logger.removeHandler(handler)


def test_log_lines_carry_both_ids(log_lines: Callable[[], list[str]]) -> None:
    """Lines written inside of a turn or a joined job name both; others say that there are none."""
    logger = logging.getLogger("tests.sdk.lines")
    with everyturn.capture():
        logger.warning("before")
        with everyturn.turn() as turn, turn.tool("internal", "x"):
            logger.warning("inside")
        with everyturn.join(turn.envelope()):
            logger.warning("job")

    assert log_lines() == [
        "- - before",
        f"{turn.id} {turn.trace_id} inside",
        f"{turn.id} {turn.trace_id} job",
    ]


def test_one_turn_over_two_services_has_one_trace(service: str, gateway: Receiver) -> None:
    """A turn, a service that it calls and a job behind it have one turn id and one trace."""
    with everyturn.turn() as turn, turn.tool("external-http", "orders") as run:
        httpx.get(f"{service}/orders/5", headers=run.headers())
    with everyturn.join(turn.envelope()) as job, job.tool("internal", "index"):
        pass

    items = recorded(gateway, 5)
    (access,) = gateway.of("access_events")
    assert {item["turn_id"] for item in items} == {turn.id}
    assert {item["trace_id"] for item in items} == {turn.trace_id}
    assert access["parent_span_id"] == run.span_id
