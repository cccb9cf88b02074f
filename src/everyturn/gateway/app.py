"""The gateway as an ASGI application: routes, guards, headers, and one access record a request.

`build` is the entry point that takes a Config; everything below it gets plain values.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from everyturn import ids
from everyturn.audit.incoming import Incoming
from everyturn.audit.plugins import Plugins
from everyturn.audit.trace import RANDOM, SAMPLED, TraceContext, parse_trace
from everyturn.config import Config
from everyturn.errors import (
    EndpointNotFound,
    Failure,
    InternalError,
    InvalidValue,
    UnknownParameter,
)
from everyturn.gateway.auth import Key, Keys
from everyturn.gateway.chat import ChatService
from everyturn.gateway.guard import check_host, check_origin
from everyturn.gateway.http import (
    ClientGone,
    Exchange,
    Receive,
    Scope,
    Send,
    failure_body,
    failure_headers,
    refuse_link,
)
from everyturn.gateway.ingest import Ingest
from everyturn.gateway.log import Log
from everyturn.gateway.metrics import CONTENT_TYPE
from everyturn.gateway.models import Model, Models
from everyturn.gateway.records import Recording
from everyturn.transport.base import Timeouts, Transport
from everyturn.transport.direct import DirectTransport
from everyturn.wire.reader import write

if TYPE_CHECKING:
    from everyturn.gateway.workers import WorkerDoor

Handler = Callable[[Exchange], Awaitable[None]]
Gauges = Callable[[], Mapping[str, tuple[str, float]]]
"""Name → help and value, for `/metrics`."""

_PROBES: Final = ("/healthz", "/readyz")
"""Paths that need no key; they and `/metrics` are counted and not recorded."""
_LINK: Final = "/v1/workers/link"
_PAIR: Final = "/v1/workers/pair"
_KEYLESS: Final = (*_PROBES, _PAIR)
"""Where no key is asked for: probes, and pairing, whose code is what one must have."""


class App:
    """The ASGI application."""

    def __init__(
        self,
        models: Models,
        chat: ChatService,
        ingest: Ingest,
        recording: Recording,
        log: Log,
        keys: Keys,
        door: WorkerDoor | None,
    ) -> None:
        """door: where workers come in; None where no model runs on one."""
        self._keys = keys
        self.door = door
        self._models = models
        self._recording = recording
        self._log = log
        self.chat = chat
        self.ingest = ingest
        self.metrics = chat.metrics
        self.gauges: list[Gauges] = []
        """What works beside the turns and has something to tell."""
        self.probes = 0
        """Probes and readings of the metrics; they are counted and not recorded."""
        self._routes: dict[tuple[str, str], Handler] = {
            ("POST", "/v1/chat/completions"): chat.answer,
            ("POST", "/v1/records"): ingest.answer,
            ("GET", "/v1/models"): self._list_models,
            ("GET", "/healthz"): self._alive,
            ("GET", "/readyz"): self._ready,
            ("GET", "/metrics"): self._tell_metrics,
        }
        if door is not None:
            self._routes["POST", _PAIR] = door.pair
            self.gauges.append(door.gauges)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Other ASGI scopes than HTTP are not served."""
        if scope["type"] == "websocket":
            await self._link(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        exchange = Exchange(scope)
        _identify(exchange, self._recording)
        failure: Failure | None = None
        ended: BaseException | None = None
        try:
            await self._handler(exchange)(exchange)
        except ClientGone:
            pass  # Nobody is left to answer; the access record has no status.
        except Failure as refused:
            failure = refused
        except Exception as bug:  # noqa: BLE001 - the client gets a typed answer, the log the places
            self._log.bug("request.failed", bug, request_id=exchange.request_id)
            if not exchange.is_started:
                failure = InternalError("the gateway failed in this request")
        except BaseException as thrown:  # noqa: BLE001 - raised again below, when it is recorded
            ended = thrown
        if failure is not None:
            try:
                await _refuse(exchange, failure)
            except BaseException as thrown:  # noqa: BLE001 - as above
                ended = thrown
        if self._counted(exchange):
            await self._recording.access(exchange)
        if ended is not None:
            raise ended

    async def _link(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a worker's WebSocket, or refuse it in HTTP. Its access record is of the opening."""
        exchange = Exchange(scope)
        _identify(exchange, self._recording)
        name = None
        failure: Failure | None = None
        await receive()  # The server's word that somebody wants to connect.
        try:
            host = _host(exchange)
            if not self._keys.are_needed:
                check_host(host)
            check_origin(exchange.header(b"origin"), host)
            if self.door is None or exchange.path != _LINK:
                raise EndpointNotFound("this gateway does not serve that path and method")
            exchange.route = _LINK
            name = await self.door.admit(exchange)
            exchange.status = 101
            await send({"type": "websocket.accept"})
        except Failure as refused:
            failure = refused
        except OSError:
            name = None  # It left again; the access record tells how far it came.
        except Exception as bug:  # noqa: BLE001 - as of every request
            self._log.bug("request.failed", bug, request_id=exchange.request_id)
            failure = InternalError("the gateway failed in this request")
        if failure is not None:
            await refuse_link(exchange, failure, send)
        if self._counted(exchange):
            await self._recording.access(exchange)
        if name is not None:
            assert self.door is not None
            await self.door.serve(name, receive, send)

    def _handler(self, exchange: Exchange) -> Handler:
        """Who answers, once it is known who asks. Raises what they may not."""
        host = _host(exchange)
        handler = self._route(exchange)
        exchange.check_readable()
        are_keys_needed = self._keys.are_needed
        if not are_keys_needed:
            check_host(host)
        check_origin(exchange.header(b"origin"), host)
        if are_keys_needed and exchange.route not in _KEYLESS:
            exchange.principal = self._keys.principal(exchange.header(b"authorization"))
        if handler is None:
            raise EndpointNotFound("this gateway does not serve that path and method")
        return handler

    def _route(self, exchange: Exchange) -> Handler | None:
        handler = self._routes.get((exchange.method, exchange.path))
        if handler is not None:
            exchange.route = exchange.path
            return handler
        if exchange.method == "GET":
            for prefix, template, prefixed in (
                ("/v1/models/", "/v1/models/{id}", self._one_model),
                ("/v1/turns/", "/v1/turns/{turn_id}", self._one_turn),
            ):
                if exchange.path.startswith(prefix):
                    exchange.route = template
                    return prefixed
        return None

    def _counted(self, exchange: Exchange) -> bool:
        """Count a request; whether its access has yet to be recorded, by no turn's own commit."""
        self.metrics.request(route=exchange.route, method=exchange.method, status=exchange.status)
        if exchange.route in _PROBES or exchange.route == "/metrics":
            self.probes += 1
            return False
        return not exchange.has_record

    async def _list_models(self, exchange: Exchange) -> None:
        await exchange.answer(200, write(self._models.listing()))

    async def _one_model(self, exchange: Exchange) -> None:
        name = exchange.path.removeprefix("/v1/models/")
        await exchange.answer(200, write(self._models.item(name)))

    async def _one_turn(self, exchange: Exchange) -> None:
        exchange.principal.require("read")
        turn_id = exchange.path.removeprefix("/v1/turns/")
        include_reasoning = _asks_for_reasoning(exchange.query)
        if include_reasoning:
            # A route of its own, so that access records and metrics tell who reads reasoning.
            exchange.route = "/v1/turns/{turn_id}?include_reasoning=true"
            exchange.principal.require("reasoning")
        found = await asyncio.to_thread(
            self._recording.read_turn,
            turn_id,
            include_reasoning=include_reasoning,
            permissions=exchange.principal.permissions,
        )
        if found is not None:
            exchange.turn_id = turn_id
            # Whose reasoning was read has to be told; other readings leave the turn as it was.
            exchange.has_turn = include_reasoning
        if found is None:
            raise EndpointNotFound(
                "no such turn is recorded here",
                param="turn_id",
                hint="Check the turn id; `everyturn turns` lists the recent ones.",
            )
        await exchange.answer(200, write(found))

    async def _alive(self, exchange: Exchange) -> None:
        await exchange.answer(200, b'{"status":"alive"}')

    async def _tell_metrics(self, exchange: Exchange) -> None:
        exchange.principal.require("admin")
        recording = self._recording
        gauges: dict[str, tuple[str, float]] = {
            "everyturn_open_turns": ("Turns under way.", self.chat.open_turns),
            "everyturn_store_writable": (
                "1 while records can be written.",
                int(recording.is_healthy),
            ),
            "everyturn_record_queue_bytes": (
                "Records that wait for the store.",
                recording.queued_bytes,
            ),
            "everyturn_sync_failures_total": (
                "Syncs of the record to the disk that failed; each is tried again.",
                recording.sync_failures,
            ),
            "everyturn_unrecorded_turns_total": (
                "Turns served without a record, by the operator's choice.",
                recording.unrecorded_turns,
            ),
            "everyturn_access_events_lost_total": (
                "Access rows of requests without a turn that could not be written.",
                recording.access_events_lost,
            ),
            "everyturn_log_lines_lost_total": (
                "Log lines that could not be written.",
                self._log.lines_lost,
            ),
        }
        for more in self.gauges:
            gauges |= more()
        await exchange.answer(200, self.metrics.text(gauges), content_type=CONTENT_TYPE)

    @property
    def is_ready(self) -> bool:
        """Whether a new turn would be taken: not stopping, and the store can be written."""
        return not self.chat.is_stopping and self._recording.is_healthy

    async def _ready(self, exchange: Exchange) -> None:
        is_stopping = self.chat.is_stopping
        state = "ready" if self.is_ready else "stopping" if is_stopping else "store_unwritable"
        body = {
            "status": state,
            "open_turns": self.chat.open_turns,
            "unrecorded_turns": self._recording.unrecorded_turns,
        }
        await exchange.answer(200 if state == "ready" else 503, write(body))


def _host(exchange: Exchange) -> str | None:
    """The host that the request names. Raises InvalidValue where it names two (RFC 9112, 3.2)."""
    hosts = exchange.all(b"host")
    if len(hosts) > 1:
        raise InvalidValue("the `Host` header stands more than once", param="host")
    return hosts[0] if hosts else None


def _identify(exchange: Exchange, recording: Recording) -> None:
    """Adopt the client's trace and request id where they are valid, else make them.

    Every answer has a turn id to quote, also one that no turn came of.
    """
    trace_id, span_id, call_span_id, request_id = ids.of_request(os.urandom(ids.REQUEST_BYTES))
    exchange.turn_id = ids.generate_turn_id()
    exchange.call_span_id = call_span_id
    headers = exchange.headers
    parent = None
    if b"traceparent" in headers:
        parent = parse_trace(exchange.all(b"traceparent"), exchange.all(b"tracestate"))
    if parent is not None:
        exchange.parent_span_id = parent.span_id
        exchange.trace = parent.child(span_id)
    else:
        exchange.trace = TraceContext(trace_id=trace_id, span_id=span_id, flags=SAMPLED | RANDOM)
    if b"x-request-id" in headers:
        wanted = exchange.all(b"x-request-id")
        if len(wanted) == 1 and ids.is_request_id(wanted[0]) and recording.may_rest(wanted[0]):
            request_id = wanted[0]
            exchange.has_request_id = True
    exchange.request_id = request_id


def _asks_for_reasoning(query: bytes) -> bool:
    """What the query of a reading says. Raises InvalidValue and UnknownParameter."""
    wanted = False
    for name, value in parse_qsl(query.decode("ascii", "replace"), keep_blank_values=True):
        if name != "include_reasoning":
            raise UnknownParameter(
                "a turn is read with `include_reasoning` or nothing",
                param="query",
                hint="Leave other query parameters out.",
            )
        if value not in ("true", "false"):
            raise InvalidValue(
                "`include_reasoning` is `true` or `false`",
                param=name,
                hint="Write `?include_reasoning=true`, or leave it out.",
            )
        wanted = value == "true"
    return wanted


async def _refuse(exchange: Exchange, failure: Failure) -> None:
    exchange.error_code = failure.code
    await exchange.answer(failure.status, failure_body(failure), extra=failure_headers(failure))


def _ways(
    config: Config, direct: Transport, log: Log
) -> tuple[Callable[[tuple[str, ...]], Transport], WorkerDoor | None]:
    """The transport of a model by the names of its workers, and where workers come in."""

    def way(names: tuple[str, ...]) -> Transport:
        return WorkerTransport(workers, names) if names else direct

    if not any(model.workers for model in config.models):
        return lambda _: direct, None
    # Imported here: a gateway without workers starts without them.
    from everyturn.gateway.worker_registry import Registry
    from everyturn.gateway.workers import WorkerDoor
    from everyturn.transport.worker import Workers, WorkerTransport

    workers = Workers()
    return way, WorkerDoor(workers, Registry(config.data), log)


def build(
    config: Config, environment: Mapping[str, str], recording: Recording, log: Log
) -> tuple[App, Transport]:
    """The application of a configuration, and the transport it must be closed with."""
    transport = DirectTransport(proxy_env=environment)
    way, door = _ways(config, transport, log)
    models = Models(
        {
            model.target.name: Model(
                target=model.target,
                api_key=model.api_key,
                timeouts=Timeouts(**model.timeouts),
                transport=way(model.workers),
                is_on_worker=bool(model.workers),
            )
            for model in config.models
        },
        since=datetime.now(UTC),
    )
    chat = ChatService(
        models,
        recording,
        config.limits,
        log,
        request_bytes_max=config.request_bytes_max,
        open_turns_max=config.open_turns_max,
    )
    keys = Keys(
        Key(name=key.name, secret_sha256=key.sha256, permissions=key.permissions)
        for key in config.keys
    )
    incoming = Incoming(recording.cleaner, Plugins(config.plugins)) if config.records else None
    ingest = Ingest(recording, incoming, chat.metrics, config.request_bytes_max)
    return App(models, chat, ingest, recording, log, keys, door), transport
