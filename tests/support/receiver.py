"""A real HTTP server that takes `POST /v1/records` as strictly as the contract says.

It keeps what it accepted by id, refuses what a gateway refuses, and can be told to answer something
else, to take its time or to go away and come back on the same port.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from everyturn import ids
from everyturn.errors import FAILURE_TYPES

COUNT_MAX: Final = 1000
BODY_BYTES_MAX: Final = 32 * 1024 * 1024
ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")

_SPAN: Final = "turn_id? trace_id: span_id: parent_span_id: timestamp!"
_FIELDS: Final = {
    "turn_audit": (
        "turn_id! timestamp! project_id chat_id plugin service environment trace_id: span_id: "
        "parent_span_id: request_id: user_message_id assistant_message_id user_text assistant_text "
        "outcome failure_type error_code duration_ms# model_call_count# tool_call_count# "
        "retrieval_count# cost_estimate# prompt_id prompt_version variant human_review_status "
        "origin attributes_json*"
    ),
    "tool_calls": (
        f"tool_call_id! {_SPAN} provider_call_id tool_family! tool_name! target_service "
        "request_json* response_json* status! error_code duration_ms# retry_count# attributes_json*"
    ),
    "retrieval_events": (
        f"retrieval_id! {_SPAN} plugin profile index_version query_text top_k# sources_json* "
        "context_chars# retrieval_latency_ms# attributes_json*"
    ),
    "quality_reviews": (
        "review_id! turn_id! reviewer review_source! score_helpfulness# score_correctness# "
        "score_tool_use# score_safety# label_primary_issue notes rubric_version created_at!"
    ),
    "access_events": (
        f"access_id! {_SPAN} service instance environment request_id: method path_template "
        "status_code# duration_ms# request_size_bytes# response_size_bytes# client_type error_code"
    ),
}
"""Log → its fields: `!` needed, `:` an id, `#` a number, `*` any JSON, `?` a turn id, else text."""

WORDS: Final = {
    "outcome": {"success", "partial", "failure", "refused", "abandoned"},
    "failure_type": set(FAILURE_TYPES),
    "human_review_status": {"none", "queued", "in_review", "reviewed"},
    "tool_family": {"adapter", "mcp", "rag", "internal", "external-http"},
    "status": {"ok", "error", "timeout", "cancelled", "partial"},
    "review_source": {"human", "eval", "heuristic", "llm-judge"},
}
IDS: Final = {
    "turn_audit": "turn_id",
    "tool_calls": "tool_call_id",
    "retrieval_events": "retrieval_id",
    "quality_reviews": "review_id",
    "access_events": "access_id",
}


def fault_of(item: Any) -> str | None:
    """The parameter of an item that the contract refuses; None if it is right."""
    if not isinstance(item, dict) or item.get("log") not in _FIELDS:
        return "log"
    fields = {part.rstrip("!:#*?"): part[-1] for part in _FIELDS[item["log"]].split()}
    for name, value in item.items():
        if name != "log" and name not in fields:
            return name
        if not _fits(name, value, fields.get(name, "")):
            return name
    return next((name for name, kind in fields.items() if kind == "!" and name not in item), None)


def _fits(name: str, value: Any, kind: str) -> bool:
    if kind == "*":
        return True
    if kind == "#":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if name in ("timestamp", "created_at"):
        return type(value) is int and value > 1_500_000_000_000_000
    if not isinstance(value, str):
        return False
    if name in WORDS:
        return value in WORDS[name]
    if name == "turn_id":
        return ids.is_turn_id(value)
    return kind != ":" or ID.fullmatch(value) is not None


class Reply:
    """What to answer instead: a status with headers and a body, after a wait."""

    def __init__(
        self,
        status: int = 503,
        *,
        code: str = "audit_unavailable",
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        until: threading.Event | None = None,
    ) -> None:
        self.status = status
        self.headers = headers or {}
        self.body = body if body is not None else json.dumps({"error": {"code": code}}).encode()
        self.until = until


class Receiver:
    """The server. What it says of itself is safe to read from any thread."""

    def __init__(self, port: int = 0) -> None:
        self._lock = threading.Lock()
        self.port = port
        self.items: list[dict[str, Any]] = []
        """What was accepted, each id once, in order."""
        self.faults: list[str] = []
        """`log.parameter` of each item that was refused by the contract."""
        self.requests: list[tuple[dict[str, str], bytes]] = []
        """Headers and body of each request, those that were not taken included."""
        self.replies: list[Reply] = []
        """What to answer to the next requests."""
        self.always: Reply | None = None
        self.refuse: Callable[[dict[str, Any]], bool] = lambda item: False
        """Items that are refused though the contract allows them."""
        self._by_id: dict[tuple[str, str], dict[str, Any]] = {}
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def of(self, log: str) -> list[dict[str, Any]]:
        """The accepted items of one log."""
        with self._lock:
            return [item for item in self.items if item["log"] == log]

    def start(self) -> None:
        """Listen, on the port of last time if there was one."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                reply = receiver.answer(self.path, dict(self.headers), raw)
                if reply.until is not None:
                    reply.until.wait(30)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True
            block_on_close = False
            # The default backlog of 5 loses connections when many are opened at once.
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                """A client that left is no news."""

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Be away: nothing listens on the port."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, path: str, headers: dict[str, str], raw: bytes) -> Reply:
        """The answer to one request."""
        lower = {name.lower(): value for name, value in headers.items()}
        with self._lock:
            self.requests.append((lower, raw))
            if self.replies:
                return self.replies.pop(0)
            if self.always is not None:
                return self.always
            if path != "/v1/records" or lower.get("content-type") != "application/json":
                return Reply(404, code="endpoint_not_found")
            if len(raw) > BODY_BYTES_MAX:
                return Reply(413, code="request_too_large")
            try:
                body = json.loads(raw, object_pairs_hook=_once, parse_constant=_never)
                records = body["records"]
                raw.decode().encode()
            except (ValueError, KeyError, TypeError):
                return Reply(400, code="invalid_json")
            if set(body) != {"records"} or not 1 <= len(records) <= COUNT_MAX:
                return Reply(400, code="invalid_value")
            return self._take(records)

    def _take(self, records: list[Any]) -> Reply:
        refused = []
        for index, item in enumerate(records):
            fault = fault_of(item)
            if fault is not None:
                self.faults.append(f"{item.get('log')}.{fault}")
            elif self.refuse(item):
                fault = "notes"
            else:
                key = (item["log"], item[IDS[item["log"]]])
                known = self._by_id.setdefault(key, item)
                if known is item:
                    self.items.append(item)
                elif known != item and item["log"] != "turn_audit":
                    fault = IDS[item["log"]]
            if fault is not None:
                refused.append(
                    {
                        "index": index,
                        "id": None,
                        "code": "invalid_value",
                        "message": "it is refused",
                        "param": fault,
                    }
                )
        answer = {"accepted": len(records) - len(refused), "refused": refused}
        return Reply(200, body=json.dumps(answer).encode())


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _never(constant: str) -> Any:
    raise ValueError(constant)


@contextmanager
def a_receiver() -> Iterator[Receiver]:
    """A receiver that listens; at the end nothing it took was against the contract."""
    receiver = Receiver()
    receiver.start()
    try:
        yield receiver
    finally:
        receiver.stop()
    assert receiver.faults == []
