"""The scripted provider: an HTTP server whose answers are scripts.

    async with MockProvider() as provider:
        provider.add("mine", Script.whole(body=b"{}"))
        ... send requests for the model `mine` to provider.url ...
        assert provider.requests[-1].header("authorization") is None

It serves `POST */chat/completions`, `GET */models`, and `/__scenarios`, `/__last`, `/__stats` and
`/__script` for tests (`control.py`). Everything is deterministic: equal requests get equal bytes.
All methods but `start` and `stop` may be called from another thread.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

from everyturn.mock import control
from everyturn.mock.connection import Answer, Connection
from everyturn.mock.http import HttpRequest, Refusal
from everyturn.mock.scenario import Ask, Play, Scenario, scenario_name, split_number
from everyturn.mock.scenarios import SCENARIOS
from everyturn.mock.script import Script
from everyturn.mock.traffic import SeenRequest, Stats, Traffic

ANSWER_PATH: Final = "/chat/completions"
MODELS_PATH: Final = "/models"
NUMBERED_KEPT_MAX: Final = 8
"""Scripts of families with a number (`bench-50`) that are kept; older ones are made again."""
Fields = dict[str, Any]


class MockProvider:
    """A provider on a port of its own.

    clock: seconds since 1970; only scenarios that name a date look at it.
    tls: serve https with this context instead of http.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.time, tls: ssl.SSLContext | None = None
    ) -> None:
        self._clock = clock
        self._tls = tls
        self._traffic = Traffic()
        self._added: dict[str, Script | Play] = {}
        self._made: dict[str, Script] = {}
        self._connections: set[Connection] = set()
        self._all_gone = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._address = ("127.0.0.1", 0)

    # ------------------------------------------------------------- running

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen and return the port; port 0 takes a free one. Raises OSError where it cannot."""
        assert self._server is None, "started twice"
        self._server = await asyncio.get_running_loop().create_server(
            self._connection, host, port, ssl=self._tls, backlog=1024
        )
        self._address = (host, int(self._server.sockets[0].getsockname()[1]))
        return self.port

    async def stop(self) -> None:
        """Stop listening and drop every connection. Does nothing when it does not run."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        self._all_gone.clear()
        for connection in list(self._connections):
            connection.drop()
        if self._connections:
            await self._all_gone.wait()

    async def __aenter__(self) -> MockProvider:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The port it listens on; after `stop` the one it had."""
        return self._address[1]

    @property
    def url(self) -> str:
        """The base URL as one gives it to an OpenAI SDK."""
        host = f"[{self._address[0]}]" if ":" in self._address[0] else self._address[0]
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}/v1"

    # ------------------------------------------------------------- for tests

    def add(self, name: str, script: Script | Play) -> None:
        """Answer the model `name` with `script` from now on. A script of that name is replaced.

        A function is asked for the script of each request.
        Raises ValueError for an empty name and for that of a scenario that is built in.
        """
        plain = scenario_name(name)
        if not plain:
            raise ValueError("the name is empty")
        if _built_in(plain) is not None:
            raise ValueError(f"`{plain}` is built in")
        self._added[plain] = script

    @property
    def requests(self) -> list[SeenRequest]:
        """The newest requests, oldest first; `bench` is not kept, for it is there for load."""
        return self._traffic.kept()

    def stats(self) -> Stats:
        """The counts now."""
        return self._traffic.stats()

    def scenarios(self) -> list[Scenario]:
        """The built-in scenarios, in the order of the guide."""
        return list(SCENARIOS.values())

    def added(self) -> list[str]:
        """The names of the scripts that were added."""
        return list(self._added)

    # ------------------------------------------------------------- answering

    def _connection(self) -> Connection:
        # A TLS handshake that never ends opens no connection, so `stop` does not wait for one.
        return Connection(
            self._answer, self._traffic, on_open=self._connections.add, on_gone=self._gone
        )

    def _gone(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_gone.set()

    def _answer(self, request: HttpRequest | Refusal) -> Answer:
        if isinstance(request, Refusal):
            self._traffic.requests += 1
            return Answer(request.script().on_whole)
        path, _, query = request.target.partition("?")
        if path.startswith(control.PREFIX):
            reply = control.answer(self, request, path, query)
            return Answer(reply.on_whole, is_counted=False)
        self._traffic.requests += 1
        seen, body = _read_ask(request, path)
        script: Script | None = None
        if isinstance(body, Refusal):
            script = body.script()
        elif request.method == "GET":
            script = self._models(path)
        else:
            seen, script = self._script_for(seen, body)
        if script is None:
            script = _unknown_model().script()
        if not (seen.scenario or "").startswith("bench"):
            self._traffic.keep(seen)
        steps = script.steps(streamed=seen.streamed)
        return Answer(steps, model=seen.model, scenario=seen.scenario)

    def _script_for(self, seen: SeenRequest, body: Fields) -> tuple[SeenRequest, Script | None]:
        """The request with its scenario, and the script; the script is None for an unknown name."""
        name = scenario_name(seen.model or "")
        named = replace(seen, scenario=name)
        ready = self._added.get(name) or self._made.get(name)
        if ready is not None:
            if isinstance(ready, Script):
                return named, ready
            return named, ready(Ask(name=name, request=named, body=body, now=self._clock()))
        scenario = _built_in(name)
        if scenario is None:
            return seen, None
        number = split_number(name)[1] if scenario.number else None
        ask = Ask(name=name, number=number, request=named, body=body, now=self._clock())
        script = scenario.play(ask)
        if not scenario.varies:
            self._remember(name, script)
        return named, script

    def _remember(self, name: str, script: Script) -> None:
        """Keep a script that was made; of those with a number only the newest few."""
        self._made[name] = script
        numbered = [each for each in self._made if each not in SCENARIOS]
        for each in numbered[:-NUMBERED_KEPT_MAX]:
            del self._made[each]

    def _models(self, path: str) -> Script | None:
        names = [*SCENARIOS, *self._added]
        items = [
            {"id": f"mock-{name}", "object": "model", "created": 1_750_000_000, "owned_by": "mock"}
            for name in names
        ]
        if path.endswith(MODELS_PATH):
            return _json(200, {"object": "list", "data": items})
        wanted = scenario_name(path)
        found = next((item for item in items if item["id"] == f"mock-{wanted}"), None)
        return None if found is None else _json(200, found)


def _built_in(name: str) -> Scenario | None:
    """The scenario of that name, or the family that the name with its number belongs to."""
    exact = SCENARIOS.get(name)
    if exact is not None:
        return exact
    family = SCENARIOS.get(split_number(name)[0])
    return family if family is not None and family.number else None


def _read_ask(request: HttpRequest, path: str) -> tuple[SeenRequest, Fields | Refusal]:
    """The request as a value with its body, or with what is wrong with it."""
    seen = SeenRequest(
        method=request.method, target=request.target, headers=request.headers, body=request.body
    )
    if request.method == "GET" and (path.endswith(MODELS_PATH) or f"{MODELS_PATH}/" in path):
        return seen, {}
    if not path.endswith(ANSWER_PATH):
        return seen, Refusal(status=404, message="There is no such path.", code="unknown_url")
    if request.method != "POST":
        return seen, Refusal(status=405, message="Send a POST here.", code="method_not_allowed")
    try:
        # Numbers are not looked at; as floats they may have any length, which `int` refuses.
        body = json.loads(request.body, parse_int=float)
    except (ValueError, RecursionError):
        return seen, Refusal(status=400, message="The body is no JSON.", code="invalid_json")
    if not isinstance(body, dict):
        return seen, Refusal(status=400, message="The body is no JSON object.", code="invalid_json")
    model, stream = body.get("model"), body.get("stream")
    seen = replace(seen, model=model if isinstance(model, str) else None, streamed=stream is True)
    return seen, _fault(body) or body


def _fault(body: Fields) -> Refusal | None:
    """What is wrong with the few fields that are read."""
    messages, stream = body.get("messages"), body.get("stream")
    if not isinstance(body.get("model"), str):
        wrong = "model"
    elif stream is not None and not isinstance(stream, bool):
        wrong = "stream"
    elif not isinstance(messages, list) or not messages:
        wrong = "messages"
    else:
        return None
    code = "invalid_type" if wrong in body else "missing_required_parameter"
    message = f"`{wrong}` is missing or has the wrong type."
    return Refusal(status=400, message=message, code=code, param=wrong)


def _unknown_model() -> Refusal:
    return Refusal(
        status=404,
        message="This provider has no scenario of that name; `GET /__scenarios` lists them.",
        code="model_not_found",
        param="model",
    )


def _json(status: int, value: Any) -> Script:
    return Script.whole(status, {}, json.dumps(value).encode())
