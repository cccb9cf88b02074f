"""The load of the benchmark: `wrk` with requests that differ from each other, and its figures.

wrk corrects its percentiles for requests it could not send while an answer was late (coordinated
omission), so a stall of the machine weighs in p99 as it would for a client.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SYSTEM_TEXT: Final = (
    "You are the assistant of a small weather station. Answer in at most three sentences, in plain "
    "words, without lists. Where a question is about something else than weather, light or air, "
    "say so and stop. Never name a source you have not been given, and never guess a number."
)
QUESTION: Final = (
    "Question {number}. Yesterday evening the sky over the valley was of a deep red for almost an "
    "hour, though at noon it had been as blue as ever, and a visitor asked me whether there had "
    "been a fire. I said that there was none and that the colour comes from the air alone, but I "
    "could not explain why it is blue by day and red at dusk. What should I have told him?"
)
NUMBER_DIGITS: Final = 9
"""Every request has a number of its own, so that no message is stored twice."""

CLIENT_HEADERS: Final = (
    ("accept", "application/json"),
    ("content-type", "application/json"),
    ("authorization", "Bearer unused"),
    ("user-agent", "OpenAI/Python 3.57.0"),
    ("x-stainless-lang", "python"),
    ("x-stainless-package-version", "3.57.0"),
    ("x-stainless-runtime", "CPython"),
    ("x-stainless-retry-count", "0"),
)

_SCRIPT: Final = """\
local head, before, after = {head}, {before}, {after}
local number = {first}
function request()
    number = number + 1
    return head .. before .. string.format("%0{digits}d", number) .. after
end
function done(summary, latency, requests)
    local e = summary.errors
    print(string.format(
        'figures {{"requests":%d,"duration_us":%d,"bytes":%d,' ..
        '"errors":{{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}},' ..
        '"p50_us":%d,"p99_us":%d,"max_us":%d}}',
        summary.requests, summary.duration, summary.bytes,
        e.connect, e.read, e.write, e.status, e.timeout,
        latency:percentile(50), latency:percentile(99), latency.max))
end
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run of wrk measured. Latencies are µs until the last byte of an answer."""

    requests: int
    duration_s: float
    p50_us: float
    p99_us: float
    errors: dict[str, int]

    @property
    def per_second(self) -> float:
        """Answers a second."""
        return self.requests / self.duration_s

    @property
    def errors_count(self) -> int:
        """Everything that was no good answer."""
        return sum(self.errors.values())


class LoadFailed(Exception):
    """wrk did not run, or its answers were not all good."""


def request_body(number: str, *, model: str, is_stream: bool) -> str:
    """One request's JSON text; `number` has NUMBER_DIGITS digits."""
    body: dict[str, object] = {
        "model": model,
        "messages": [
            {"role": "system", "content": SYSTEM_TEXT},
            {"role": "user", "content": QUESTION.format(number=number)},
        ],
        "temperature": 0.2,
        "max_tokens": 256,
    }
    if is_stream:
        body["stream"] = True
    return json.dumps(body, separators=(",", ":"))


def wrk_script(port: int, path: str, *, model: str, is_stream: bool, first: int) -> str:
    """The Lua script for wrk: POST requests numbered from `first`, figures as one line."""
    body = request_body("#" * NUMBER_DIGITS, model=model, is_stream=is_stream)
    before, after = body.split("#" * NUMBER_DIGITS)
    lines = [f"POST {path} HTTP/1.1", f"host: 127.0.0.1:{port}"]
    lines += [f"{name}: {value}" for name, value in CLIENT_HEADERS]
    lines += [f"content-length: {len(body)}", "", ""]
    return _SCRIPT.format(
        head=_lua("\r\n".join(lines)),
        before=_lua(before),
        after=_lua(after),
        first=first,
        digits=NUMBER_DIGITS,
    )


def _lua(text: str) -> str:
    """A Lua string literal; the texts are ASCII without control characters but line ends."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\r", "\\r").replace("\n", "\\n") + '"'


def parse_figures(output: str) -> Figures:
    """The figures in wrk's output, from the line that our script prints. Raises LoadFailed."""
    line = next((line for line in output.splitlines() if line.startswith("figures ")), None)
    if line is None:
        raise LoadFailed("wrk printed no figures")
    read = json.loads(line.removeprefix("figures "))
    if read["duration_us"] <= 0 or read["requests"] <= 0:
        raise LoadFailed("wrk got no answer")
    return Figures(
        requests=read["requests"],
        duration_s=read["duration_us"] / 1e6,
        p50_us=read["p50_us"],
        p99_us=read["p99_us"],
        errors=read["errors"],
    )


class Load:
    """Runs wrk on a core, each time with requests it has not sent before."""

    def __init__(self, folder: Path, core: int) -> None:
        self._script = folder / "load.lua"
        self._core = core
        self._sent = 0

    def run(
        self,
        port: int,
        path: str,
        *,
        model: str,
        is_stream: bool,
        connections: int,
        seconds: int,
        core: int | None = None,
    ) -> Figures:
        """One run. Raises LoadFailed unless every answer was good.

        core: where wrk runs, if not where it usually does.
        """
        script = wrk_script(port, path, model=model, is_stream=is_stream, first=self._sent)
        self._script.write_text(script, encoding="ascii")
        command = ["taskset", "-c", str(self._core if core is None else core), "wrk"]
        command += ["-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "20s"]
        command += ["-s", str(self._script), f"http://127.0.0.1:{port}{path}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=seconds + 30, check=True
            )
        except subprocess.CalledProcessError as failed:
            raise LoadFailed(
                f"wrk ended with status {failed.returncode}: {failed.stderr}"
            ) from None
        except subprocess.TimeoutExpired:
            raise LoadFailed("wrk did not end") from None
        figures = parse_figures(done.stdout)
        self._sent += figures.requests + connections
        if figures.errors_count:
            raise LoadFailed(f"not every answer was good: {figures.errors}")
        return figures
