"""The scripted provider's own endpoints, for tests that cannot reach it in Python.

    GET  /__scenarios       every scenario with its title and preset, and the names of added scripts
    GET  /__last?n=K        the last K requests, oldest first (default 1)
    GET  /__stats           requests, open connections, clients that went away
    POST /__script          adds a script under a name

Anyone who reaches the port can read the requests, keys included: it belongs on loopback.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

from everyturn.errors import Failure, InvalidJson, InvalidValue, UnknownParameter
from everyturn.mock.http import HttpRequest, Refusal
from everyturn.mock.scenario import Scenario, scenario_name
from everyturn.mock.script import Ending, Pause, Script, Step
from everyturn.mock.traffic import SeenRequest, Stats

PREFIX: Final = "/__"
PAUSE_MS_MAX: Final = 600_000
FRAMINGS: Final = ("length", "chunked", "close", "raw")
"""How the steps are framed: with `content-length`, in chunks, until the end of the connection, or
not at all: then the steps hold the status line and the headers too."""
_ANSWER_KEYS: Final = {"status", "headers", "framing", "steps", "body"}
_HINT: Final = "The guide to the scripted provider shows the form of a script."


class Controlled(Protocol):
    """What the endpoints show and change."""

    @property
    def requests(self) -> list[SeenRequest]: ...

    def stats(self) -> Stats: ...

    def scenarios(self) -> list[Scenario]: ...

    def added(self) -> list[str]: ...

    def add(self, name: str, script: Script) -> None: ...


def answer(provider: Controlled, request: HttpRequest, path: str, query: str) -> Script:
    """The answer to one request to an endpoint that begins with `/__`."""
    try:
        match (request.method, path):
            case ("GET", "/__scenarios"):
                return _json(200, _scenario_list(provider))
            case ("GET", "/__last"):
                count = _count(query)
                return _json(200, [seen.as_shown() for seen in provider.requests[-count:]])
            case ("GET", "/__stats"):
                return _json(200, provider.stats().as_shown())
            case ("POST", "/__script"):
                return _json(200, {"added": _add(provider, request.body)})
            case _:
                message = "There is no such endpoint here."
                return Refusal(status=404, message=message, code="unknown_url").script()
    except Failure as failure:
        return _json(failure.status, failure.envelope())


def read_script(value: Any) -> tuple[str, Script]:
    """A script and its name from the JSON of `POST /__script`.

    value: `{"name": …, "whole": ANSWER, "stream": ANSWER}`; one of the answers may be absent, then
    the other serves both kinds of request. Raises InvalidValue or UnknownParameter with the path.
    """
    if not isinstance(value, dict):
        raise InvalidValue("A script is a JSON object.", hint=_HINT)
    _only(value, {"name", "whole", "stream"}, "")
    name = value.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidValue("`name` must be a string.", param="name", hint=_HINT)
    whole = _answer(value["whole"], "whole", "length") if "whole" in value else None
    stream = _answer(value["stream"], "stream", "chunked") if "stream" in value else None
    first = whole or stream
    if first is None:
        raise InvalidValue("A script needs `whole` or `stream`.", param="whole", hint=_HINT)
    return name, Script.pair(whole=whole or first, stream=stream or first)


def _add(provider: Controlled, body: bytes) -> str:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidJson("The body is no JSON.") from None
    name, script = read_script(value)
    try:
        provider.add(name, script)
    except ValueError:
        raise InvalidValue(
            "The name is empty or that of a built-in scenario.",
            param="name",
            hint="Choose another name.",
        ) from None
    return scenario_name(name)


def _answer(value: Any, path: str, framing_default: str) -> Script:
    if not isinstance(value, dict):
        raise InvalidValue(f"`{path}` must be an object.", param=path, hint=_HINT)
    _only(value, _ANSWER_KEYS, path)
    status = value.get("status", 200)
    if type(status) is not int or not 100 <= status <= 999:
        raise InvalidValue(f"`{path}.status` must be a status code.", param=f"{path}.status")
    framing = value.get("framing", framing_default)
    if framing not in FRAMINGS:
        allowed = ", ".join(FRAMINGS)
        raise InvalidValue(f"`{path}.framing` must be one of: {allowed}", param=f"{path}.framing")
    headers = _headers(value.get("headers", {}), f"{path}.headers")
    steps = _steps(value, path)
    if framing == "raw":
        return Script.raw(steps)
    if framing != "length":
        return Script.sse(steps, chunked=framing == "chunked", status=status, headers=headers)
    if all(isinstance(step, bytes) for step in steps):
        return Script.whole(status, headers, b"".join(s for s in steps if isinstance(s, bytes)))
    raise InvalidValue(
        f"`{path}` has a length, so its steps can only be bytes.",
        param=f"{path}.framing",
        hint="Take another `framing`: `raw` plays any steps.",
    )


def _steps(value: dict[str, Any], path: str) -> list[Step]:
    if "body" in value:
        return [_base64(value["body"], f"{path}.body")]
    steps = value.get("steps", [])
    if not isinstance(steps, list):
        raise InvalidValue(f"`{path}.steps` must be a list.", param=f"{path}.steps", hint=_HINT)
    return [_step(step, f"{path}.steps[{index}]") for index, step in enumerate(steps)]


def _step(value: Any, path: str) -> Step:
    match value:
        case {"bytes": str() as text, **rest} if not rest:
            return _base64(text, path)
        case {"text": str() as text, **rest} if not rest:
            return text.encode("utf-8", "surrogatepass")
        case {"sleep_ms": int() as ms, **rest} if not rest and _is_pause(ms):
            return Pause(ms)
        case "abort" | "close" | "hang":
            return Ending(value)
        case _:
            raise InvalidValue(
                f"`{path}` must be bytes, text, sleep_ms (at most {PAUSE_MS_MAX}), "
                "`abort`, `close` or `hang`.",
                param=path,
                hint=_HINT,
            )


def _is_pause(ms: int) -> bool:
    return type(ms) is int and 0 <= ms <= PAUSE_MS_MAX


def _headers(value: Any, path: str) -> list[tuple[str, str]]:
    pairs = list(value.items()) if isinstance(value, dict) else value
    if isinstance(pairs, list):
        found = [
            (pair[0], pair[1])
            for pair in pairs
            if isinstance(pair, (list, tuple))
            and len(pair) == 2
            and all(isinstance(text, str) and text.isascii() for text in pair)
        ]
        if len(found) == len(pairs):
            return found
    raise InvalidValue(f"`{path}` must be names and values.", param=path, hint=_HINT)


def _base64(value: Any, path: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise InvalidValue(f"`{path}` must be base64.", param=path, hint=_HINT) from None


def _only(value: dict[str, Any], allowed: set[str], path: str) -> None:
    for key in value:
        if key not in allowed:
            param = f"{path}.{key}".lstrip(".")
            raise UnknownParameter("A script has no such key.", param=param, hint=_HINT)


def _count(query: str) -> int:
    text = parse_qs(query).get("n", ["1"])[-1]
    if not text.isascii() or not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise InvalidValue("`n` must be a number from 1.", param="n")
    return int(text)


def _scenario_list(provider: Controlled) -> dict[str, Any]:
    listed: dict[str, Any] = {
        scenario.name: {"title": scenario.title, "preset": scenario.preset}
        for scenario in provider.scenarios()
    }
    return {**listed, **{name: {"title": "added", "preset": None} for name in provider.added()}}


def _json(status: int, value: Any) -> Script:
    # ASCII escapes: a captured body may hold what is no UTF-8.
    return Script.whole(status, {}, json.dumps(value).encode())
