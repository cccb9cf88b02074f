"""Two ends of a worker link in one process, without a network: for tests of the protocol."""

from __future__ import annotations

from collections import deque

from everyturn.link.messages import Call, Operation
from everyturn.link.session import Event, Session
from everyturn.link.versions import VERSIONS, Version

OLD = Version(number=0, operations=("chat.completions",), has_query=False)
"""An older version, kept here: it carries neither query parameters nor the list of models."""


class Linked:
    """A gateway's and a worker's session, and what is on its way between them."""

    def __init__(
        self,
        *,
        gateway_versions: tuple[Version, ...] = VERSIONS,
        worker_versions: tuple[Version, ...] = VERSIONS,
        window: int = 1000,
        calls_max: int = 100,
        is_greeted: bool = True,
    ) -> None:
        self.gateway = Session("gateway", versions=gateway_versions, window=window)
        self.worker = Session("worker", versions=worker_versions, window=window)
        self.to_gateway: deque[bytes] = deque()
        self.to_worker: deque[bytes] = deque()
        self.worker.greet(software="test/1", targets=("llama",), calls_max=calls_max)
        if is_greeted:
            self.settle()

    def collect(self) -> None:
        """Put what both ends want to say on its way."""
        self.to_gateway.extend(self.worker.take())
        self.to_worker.extend(self.gateway.take())

    def deliver_to_gateway(self) -> Event | None:
        """Deliver the oldest message to the gateway."""
        return self.gateway.receive(self.to_gateway.popleft(), 0.0)

    def deliver_to_worker(self) -> Event | None:
        """Deliver the oldest message to the worker."""
        return self.worker.receive(self.to_worker.popleft(), 0.0)

    def settle(self) -> tuple[list[Event], list[Event]]:
        """Deliver until nothing is on its way; returns the gateway's and the worker's events."""
        at_gateway: list[Event] = []
        at_worker: list[Event] = []
        self.collect()
        while self.to_gateway or self.to_worker:
            if self.to_gateway and (event := self.deliver_to_gateway()) is not None:
                at_gateway.append(event)
            if self.to_worker and (event := self.deliver_to_worker()) is not None:
                at_worker.append(event)
            self.collect()
        return at_gateway, at_worker

    def call(self, *, operation: Operation = "chat.completions", query: str = "") -> int:
        """Open a call at the gateway; returns its id."""
        call = a_call(self.gateway.next_call, operation=operation, query=query)
        self.gateway.call(call)
        return call.call


def a_call(
    number: int,
    *,
    operation: Operation = "chat.completions",
    query: str = "",
    target: str = "llama",
) -> Call:
    """A call message."""
    return Call(
        call=number,
        operation=operation,
        target=target,
        query=query,
        headers=(("content-type", "application/json"),),
        connect_ms=1000,
        first_byte_ms=1000,
        total_ms=1000,
    )
