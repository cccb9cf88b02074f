"""A tool service as a process of its own, behind the SDK's middleware for ASGI or WSGI.

    python -m tests.support.tool_service asgi|wsgi GATEWAY SPILL_FOLDER

Prints its port, serves `POST /orders` until its standard input ends, and logs to standard error
with both ids on each line. A job that a request names is done after the answer: a thread of its own
joins the turn by the envelope that came in the body.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import uvicorn

import everyturn
from everyturn.sdk.asgi import AsgiMiddleware
from everyturn.sdk.logs import IdFilter
from everyturn.sdk.wsgi import WsgiMiddleware

LOGGER = logging.getLogger("orders")
JOBS: list[threading.Thread] = []


@everyturn.tool("internal", "look_up")
def look_up(number: int) -> dict[str, Any]:
    """The order, from where the service keeps it."""
    LOGGER.info("looked up")
    return {"id": number, "state": "sent"}


def index(message: dict[str, Any]) -> None:
    """Work that outlives the request, and maybe the turn."""
    with everyturn.join(message) as job, job.tool("rag", "index") as run:
        run.request({"text": "order"})
        LOGGER.info("indexed")
        run.response({"count": 1})


def order(raw: bytes) -> bytes:
    """The answer to one request."""
    asked = json.loads(raw)
    answer = look_up(asked["id"])
    JOBS.append(threading.Thread(target=index, args=(asked["job"],)))
    JOBS[-1].start()
    return json.dumps(answer).encode()


async def asgi(scope: Any, receive: Any, send: Any) -> None:
    """The service as an ASGI application."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    answer = order(body)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """The service as a WSGI application."""
    answer = order(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
    start_response("200 OK", [("content-type", "application/json")])
    return [answer]


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing of requests."""


def serve_wsgi() -> None:
    """Serve until standard input ends."""
    app = WsgiMiddleware(wsgi, path_template=lambda environ: "/orders")
    with make_server("127.0.0.1", 0, app, handler_class=_Quiet) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        print(server.server_port, flush=True)
        sys.stdin.read()
        server.shutdown()


async def serve_asgi() -> None:
    """Serve until standard input ends."""
    app = AsgiMiddleware(asgi, path_template=lambda scope: "/orders")
    settings = uvicorn.Config(app, port=0, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(settings)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    print(server.servers[0].sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving


def main(kind: str, gateway: str, spill: str) -> None:
    """Run the service."""
    everyturn.configure(url=gateway, service="orders", spill_folder=spill)
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(IdFilter())
    handler.setFormatter(logging.Formatter("%(turn_id)s %(trace_id)s %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel("INFO")
    if kind == "wsgi":
        serve_wsgi()
    else:
        asyncio.run(serve_asgi())
    for job in JOBS:
        job.join()
    everyturn.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
