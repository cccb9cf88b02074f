"""What is measured side by side: three gateways, a bare relay and nginx, over one upstream."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.load import NUMBER_DIGITS, request_body
from benchmarks.machine import Process, clean_environment, free_port, running

CHUNKS: Final = 200
"""Text events of a stream."""
GROUP: Final = 10
"""Events that leave the upstream in one write."""
PACE_US: Final = 1_000
"""Between two writes of a stream, where streams a second are measured."""
SLOW_PACE_US: Final = 10_000
"""Between two writes where the cost of a chunk is measured: a gateway reads each write apart."""
START_S: Final = 15.0

PATH: Final = "/v1/chat/completions"
SLOW_PREFIX: Final = "/slow"

RECORD_ON: Final = "everyturn"
RECORD_OFF: Final = "everyturn, record off"
INTERPRETED: Final = "everyturn, interpreted"
BARE_RELAY: Final = "bare relay"
NGINX: Final = "nginx"
DIRECT: Final = "direct"


class CannotStart(Exception):
    """A program of the benchmark did not start, or does not answer as it should."""


@dataclass(frozen=True, slots=True)
class Row:
    """One way to reach the upstream. slow_*: where its slowly paced streams are asked for."""

    name: str
    port: int
    process: Process
    path: str = PATH
    slow_port: int = 0
    slow_path: str = PATH
    slow_model: str = "bench"


@dataclass(frozen=True, slots=True)
class Upstream:
    """The provider of the benchmark."""

    process: Process
    port: int
    slow_port: int

    @property
    def row(self) -> Row:
        """The upstream itself, with nothing in between."""
        return Row(DIRECT, self.port, self.process, slow_port=self.slow_port)


@contextmanager
def upstream(folder: Path, core: int) -> Iterator[Upstream]:
    """Compile the upstream and run it. Raises CannotStart."""
    program = folder / "upstream"
    source = Path(__file__).with_name("upstream.c")
    made = subprocess.run(
        ["cc", "-O2", "-o", str(program), str(source)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        raise CannotStart(f"cc cannot compile {source.name}: {made.stderr.strip()[:500]}")
    command = [str(program), str(CHUNKS), str(GROUP), f"0:{PACE_US}", f"0:{SLOW_PACE_US}"]
    with running(command, core=core, stdout=subprocess.PIPE) as process:
        assert process.popen.stdout is not None
        ports = process.popen.stdout.readline().split()
        if len(ports) != 2:
            raise CannotStart("the upstream did not start")
        yield Upstream(process, int(ports[0]), int(ports[1]))


@contextmanager
def all_rows(folder: Path, source: Upstream, core: int) -> Iterator[list[Row]]:
    """Start every row on one core; all run at once and only one is under load at a time."""
    with contextlib.ExitStack() as stack:
        rows = [
            stack.enter_context(everyturn(folder, source, core, is_recorded=True)),
            stack.enter_context(everyturn(folder, source, core, is_recorded=False)),
            stack.enter_context(interpreted(folder, source, core)),
            stack.enter_context(bare_relay(source, core)),
            stack.enter_context(nginx(folder, source, core)),
        ]
        for row in rows:
            check_row(row)
        yield rows


# ------------------------------------------------------------------------------- the gateway


def gateway_config(source_port: int, slow_port: int, *, is_recorded: bool, data: Path) -> str:
    """A configuration with two models over the upstream; defaults but for what is measured."""
    models = "".join(
        f"""
[[models]]
name = "{name}"
preset = "openai-chat"
base_url = "http://127.0.0.1:{port}/v1"
upstream_model = "gpt-4o-mini"
api_key_env = "BENCH_API_KEY"
"""
        for name, port in (("bench", source_port), ("bench-slow", slow_port))
    )
    enabled = "true" if is_recorded else "false"
    return f'[gateway]\ndata = "{data}"\n\n[audit]\nenabled = {enabled}\n{models}'


def gateway_command(config: Path, port: int) -> list[str]:
    """How the gateway is started."""
    return [
        sys.executable,
        "-m",
        "everyturn",
        "serve",
        "--config",
        str(config),
        "--port",
        str(port),
    ]


GATEWAY_ENVIRONMENT: Final = clean_environment(BENCH_API_KEY="sk-test-FAKE")
"""Of what is measured: the compiled build, where PYTHONPATH says so."""
INTERPRETED_ENVIRONMENT: Final = {
    name: value for name, value in GATEWAY_ENVIRONMENT.items() if name != "PYTHONPATH"
}


@contextmanager
def everyturn(folder: Path, source: Upstream, core: int, *, is_recorded: bool) -> Iterator[Row]:
    """The gateway, with the record on or off, logging to a file as it does by default."""
    name = RECORD_ON if is_recorded else RECORD_OFF
    place = folder / ("record-on" if is_recorded else "record-off")
    with _gateway(name, place, source, core, GATEWAY_ENVIRONMENT, is_recorded=is_recorded) as row:
        yield row


@contextmanager
def interpreted(folder: Path, source: Upstream, core: int) -> Iterator[Row]:
    """The gateway as a plain install has it, with the record on."""
    place = folder / "interpreted"
    with _gateway(INTERPRETED, place, source, core, INTERPRETED_ENVIRONMENT) as row:
        yield row


@contextmanager
def _gateway(
    name: str,
    place: Path,
    source: Upstream,
    core: int,
    environment: Mapping[str, str],
    *,
    is_recorded: bool = True,
) -> Iterator[Row]:
    place.mkdir()
    config = place / "everyturn.toml"
    config.write_text(
        gateway_config(
            source.port, source.slow_port, is_recorded=is_recorded, data=place / "everyturn-data"
        )
    )
    port = free_port()
    with (
        (place / "log").open("wb") as log,
        running(
            gateway_command(config, port), core=core, environment=environment, stderr=log
        ) as process,
    ):
        row = Row(name, port, process, slow_port=port, slow_model="bench-slow")
        try:
            wait_for_answer(row)
        except CannotStart as fault:
            said = (place / "log").read_text(errors="replace")[-2000:]
            raise CannotStart(f"{fault}: {said}") from None
        yield row


# ------------------------------------------------------------------------------- the references


@contextmanager
def bare_relay(source: Upstream, core: int) -> Iterator[Row]:
    """The bare relay of `benchmarks.bare_relay`."""
    program = str(Path(__file__).with_name("bare_relay.py"))
    command = [sys.executable, program, f"http://127.0.0.1:{source.port}"]
    command.append(f"{SLOW_PREFIX}=http://127.0.0.1:{source.slow_port}")
    with running(
        command, core=core, environment=INTERPRETED_ENVIRONMENT, stdout=subprocess.PIPE
    ) as process:
        assert process.popen.stdout is not None
        line = process.popen.stdout.readline()
        if not line:
            raise CannotStart("the bare relay did not start")
        port = int(line)
        yield Row(BARE_RELAY, port, process, slow_port=port, slow_path=SLOW_PREFIX + PATH)


NGINX_CONFIG: Final = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 2048; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_body_buffer_size 64k;
    keepalive_requests 1000000000;
    upstream quick {{ server 127.0.0.1:{port}; keepalive 256; keepalive_requests 1000000000; }}
    upstream slow {{ server 127.0.0.1:{slow_port}; keepalive 256; keepalive_requests 1000000000; }}
    proxy_http_version 1.1;
    proxy_set_header connection "";
    proxy_buffering off;
    server {{
        listen 127.0.0.1:{own_port} backlog=2048;
        location / {{ proxy_pass http://quick; }}
        location {prefix}/ {{ proxy_pass http://slow/; }}
    }}
}}
"""


@contextmanager
def nginx(folder: Path, source: Upstream, core: int) -> Iterator[Row]:
    """nginx as a bare reverse proxy: one process, keep-alive on both sides, nothing held back."""
    place = folder / "nginx"
    place.mkdir()
    port = free_port()
    text = NGINX_CONFIG.format(
        folder=place,
        port=source.port,
        slow_port=source.slow_port,
        own_port=port,
        prefix=SLOW_PREFIX,
    )
    (place / "nginx.conf").write_text(text)
    command = ["nginx", "-p", str(place), "-c", str(place / "nginx.conf")]
    with running(command, core=core) as process:
        row = Row(NGINX, port, process, slow_port=port, slow_path=SLOW_PREFIX + PATH)
        wait_for_answer(row)
        yield row


# ------------------------------------------------------------------------------- right answers


def ask(port: int, path: str, *, model: str, is_stream: bool) -> tuple[int, str]:
    """One request: the status and the body. Raises OSError and http.client.HTTPException."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(
            "POST",
            path,
            request_body("0" * NUMBER_DIGITS, model=model, is_stream=is_stream),
            {"content-type": "application/json"},
        )
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def wait_for_answer(row: Row, *, pause_s: float = 0.02) -> None:
    """Wait until the row answers a request well. Raises CannotStart."""
    until = time.perf_counter() + START_S
    while time.perf_counter() < until and row.process.is_running():
        with contextlib.suppress(OSError, http.client.HTTPException):
            if ask(row.port, row.path, model="bench", is_stream=False)[0] == 200:
                return
        time.sleep(pause_s)
    raise CannotStart(f"{row.name} did not answer")


def check_row(row: Row) -> None:
    """Raises CannotStart unless whole answers and both kinds of stream come through complete."""
    status, body = ask(row.port, row.path, model="bench", is_stream=False)
    if status != 200 or "The sky looks blue" not in json.dumps(json.loads(body)):
        raise CannotStart(f"{row.name} does not answer as the upstream does")
    for port, path, model in (
        (row.port, row.path, "bench"),
        (row.slow_port, row.slow_path, row.slow_model),
    ):
        status, body = ask(port, path, model=model, is_stream=True)
        if status != 200 or body.count('" word') != CHUNKS or "data: [DONE]" not in body:
            raise CannotStart(f"{row.name} does not stream as the upstream does")


def settle(process: Process, *, within_s: float = 5.0, idle: Callable[[float], bool]) -> None:
    """Wait, at most `within_s`, until `idle` says so of the CPU seconds used in 0.2 seconds.

    What a row still does for its last run (writing, closing) must not weigh on the next row.
    """
    until = time.perf_counter() + within_s
    while time.perf_counter() < until:
        before = process.cpu_s()
        time.sleep(0.2)
        if idle(process.cpu_s() - before):
            return
