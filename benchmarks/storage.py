"""What a conversation takes on disk: each turn sends the whole history again.

100 turns of one user message and one answer, 1 KB of text each, through a gateway over real
sockets. The files are measured after the gateway has ended and the log of SQLite is written back.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import apsw

from benchmarks.machine import free_port, running
from benchmarks.results import Conversation
from benchmarks.rows import (
    GATEWAY_ENVIRONMENT,
    CannotStart,
    Row,
    gateway_command,
    gateway_config,
    wait_for_answer,
)

TURNS: Final = 100
MESSAGE_BYTES: Final = 1024
_SYLLABLES: Final = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er")]


def made_up_text(draw: random.Random, size: int) -> str:
    """`size` ASCII characters of words that nobody has stored before."""
    words: list[str] = []
    length = 0
    while length <= size:
        word = "".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4)))
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:size]


class _Provider(BaseHTTPRequestHandler):
    """Answers with the server's next text."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        text = self.server.text  # type: ignore[attr-defined]
        body = json.dumps(
            {
                "id": f"chatcmpl-{random.getrandbits(96):024x}",
                "object": "chat.completion",
                "created": 1764547200,
                "model": "gpt-4o-mini-2024-07-18",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": text, "refusal": None},
                        "logprobs": None,
                        "finish_reason": "stop",
                    }
                ],
                "usage": {"prompt_tokens": 400, "completion_tokens": 200, "total_tokens": 600},
            }
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def _provider() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Provider)
    server.text = "ready"  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def measure(folder: Path, core: int, *, turns: int = TURNS) -> Conversation:
    """Hold the conversation and measure its record. Raises CannotStart for a wrong answer."""
    place = folder / "conversation"
    place.mkdir()
    data, config = place / "everyturn-data", place / "everyturn.toml"
    with _provider() as provider:
        port = provider.server_address[1]
        config.write_text(gateway_config(port, port, is_recorded=True, data=data))
        with _gateway(config, core):
            pass
        empty = stored_bytes(data)
        with _gateway(config, core) as own_port:
            last_request = _talk(own_port, provider, turns)
    return Conversation(
        turns=turns, stored=stored_bytes(data), empty=empty, last_request=last_request
    )


@contextmanager
def _gateway(config: Path, core: int) -> Iterator[int]:
    port = free_port()
    command = gateway_command(config, port)
    with running(command, core=core, environment=GATEWAY_ENVIRONMENT) as process:
        wait_for_answer(Row("everyturn", port, process))
        yield port


def _talk(port: int, provider: ThreadingHTTPServer, turns: int) -> int:
    """All turns; returns the bytes of the last request."""
    draw = random.Random(1)
    messages: list[dict[str, object]] = []
    body = b""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    for _ in range(turns):
        messages.append({"role": "user", "content": made_up_text(draw, MESSAGE_BYTES)})
        answer = made_up_text(draw, MESSAGE_BYTES)
        provider.text = answer  # type: ignore[attr-defined]
        body = json.dumps({"model": "bench", "messages": messages}).encode()
        connection.request(
            "POST", "/v1/chat/completions", body, {"content-type": "application/json"}
        )
        response = connection.getresponse()
        read = response.read()
        if response.status != 200:
            raise CannotStart(f"a turn of the conversation was answered with {response.status}")
        message = json.loads(read)["choices"][0]["message"]
        if message["content"] != answer:
            raise CannotStart("a turn of the conversation was answered wrongly")
        messages.append({"role": "assistant", "content": answer})
    connection.close()
    return len(body)


def stored_bytes(data: Path) -> int:
    """The bytes of all files in a record that nobody has open, its logs written back first."""
    for path in data.rglob("*"):
        if path.is_file() and path.read_bytes()[:15] == b"SQLite format 3":
            connection = apsw.Connection(str(path))
            connection.pragma("wal_checkpoint(TRUNCATE)")
            connection.close()
    return sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
