"""Run the W3C trace-context harness against a gateway: `python -m tests.support.trace_harness`.

The harness is not ours and not in this repository: give the path of a checkout of
`w3c/trace-context`, and a Python that has `aiohttp`, which it needs.

It sends requests with all kinds of trace headers to a service, each with instructions "call this
address", and looks at the headers of those calls. The service here answers each instruction with
one chat completion through a real gateway; what stands behind the gateway passes the trace headers
it was sent to the address of the instruction, byte for byte, and answers the chat completion.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.gateway import running_gateway
from tests.support.scripted_upstream import Peer, ScriptedUpstream, SeenRequest, answer

_TRACE_LINE = re.compile(rb"\r\n(?i:trace[a-z._-]*):[^\r]*")
"""Also names that are nearly right: the harness sends those too."""

_REPLY = {
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "called"},
            "finish_reason": "stop",
        }
    ],
}


async def post(port: int, path: str, lines: bytes, body: object) -> bytes:
    """Post JSON to loopback with these raw header lines, each after its line break."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(data)}"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode() + lines + b"\r\n\r\n" + data)
        return await reader.read()
    finally:
        writer.close()


def _trace_lines(seen: SeenRequest) -> bytes:
    return b"".join(_TRACE_LINE.findall(b"\r\n" + seen.head.partition(b"\r\n")[2]))


async def _provide(peer: Peer) -> None:
    """Behind the gateway: call the address that the message names, then answer."""
    while True:
        seen = await peer.receive()
        wanted = json.loads(json.loads(seen.body)["messages"][0]["content"])
        url = urlsplit(wanted["url"])
        assert url.port is not None  # The harness gives the address it listens on.
        await post(url.port, url.path, _trace_lines(seen), wanted["arguments"])
        peer.send(answer(json.dumps(_REPLY).encode(), headers=("content-type: application/json",)))


class _Service:
    """In front of the gateway: one chat completion for each instruction, with the same headers."""

    def __init__(self, gateway_port: int) -> None:
        self._gateway_port = gateway_port

    async def __call__(self, peer: Peer) -> None:
        while True:
            seen = await peer.receive()
            lines = _trace_lines(seen)
            for instruction in json.loads(seen.body):
                message = {"role": "user", "content": json.dumps(instruction)}
                body = {"model": "m", "messages": [message]}
                await post(self._gateway_port, "/v1/chat/completions", lines, body)
            peer.send(answer(b"[]", headers=("content-type: application/json",)))


async def run(checkout: Path, python: str, patterns: list[str]) -> int:
    """Run the harness at its strictest, levels 1 and 2; returns how many of its tests failed."""
    with tempfile.TemporaryDirectory() as folder:
        async with ScriptedUpstream(_provide) as provider:
            base_url = f"http://127.0.0.1:{provider.port}/v1"
            entry = {"name": "m", "preset": "generic-strict", "base_url": base_url}
            async with (
                running_gateway([entry], Path(folder) / "data") as running,
                ScriptedUpstream(_Service(running.gateway.port)) as service,
            ):
                harness = await asyncio.create_subprocess_exec(
                    python,
                    "test.py",
                    f"http://127.0.0.1:{service.port}/test",
                    *patterns,
                    cwd=checkout / "test",
                    env={**os.environ, "SPEC_LEVEL": "2", "STRICT_LEVEL": "2"},
                )
                return await harness.wait()


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.trace_harness")
    parser.add_argument("checkout", type=Path, help="a checkout of w3c/trace-context")
    parser.add_argument("patterns", nargs="*", help="of the harness's tests; all by default")
    parser.add_argument("--python", default=sys.executable, help="a Python that has aiohttp")
    given = parser.parse_args()
    if not (given.checkout / "test" / "test.py").is_file():
        parser.error("the checkout has no test/test.py")
    sys.exit(asyncio.run(run(given.checkout.resolve(), given.python, given.patterns)))


if __name__ == "__main__":
    main()
