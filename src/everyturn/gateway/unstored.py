"""Turns whose end the store did not take: what is recorded of them as soon as it takes rows again.

Their clients were told that the answer is not on record; the rows say the same, without the answer,
so that no such turn stays open, or counts as cut by the end of a gateway, when it was not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from everyturn.audit.group import Group
from everyturn.audit.records import ModelCall, Record, TurnAudit
from everyturn.audit.turn_state import words_of
from everyturn.errors import AuditUnavailable, Failure
from everyturn.store.base import StoreFailure
from everyturn.store.writer import GroupWriter

WAITING_MAX: Final = 10_000
"""Turns that wait, some 3 KB each; further ones are told to `on_lost`."""
LOOK_S: Final = 0.25
"""How often it is looked whether the store can be written again."""


class Unstored:
    """Closed rows that wait. For the gateway's event loop alone."""

    def __init__(self, writer: GroupWriter, on_lost: Callable[[], None]) -> None:
        """on_lost: called for a turn that stays open, because too many waited or its rows were
        refused."""
        self._writer = writer
        self._on_lost = on_lost
        self._waiting: deque[Group] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, group: Group) -> None:
        """Write a group when that can be done."""
        if len(self._waiting) >= WAITING_MAX:
            self._on_lost()
            return
        self._waiting.append(group)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write())

    def stop(self) -> None:
        """Wait no more. What is left is closed as interrupted when a gateway starts again."""
        if self._task is not None:
            self._task.cancel()

    async def _write(self) -> None:
        while self._waiting:
            if not self._writer.healthy:
                await asyncio.sleep(LOOK_S)
                continue
            try:
                await self._writer.append(self._waiting[0])
            except StoreFailure:
                continue  # Not healthy by now.
            except AuditUnavailable:
                self._on_lost()
            self._waiting.popleft()


def without_answer(group: Group, failure: Failure, *, is_shown: bool) -> Group:
    """The closed rows of a turn and its call, as they are where the answer cannot be recorded.

    An application's words, and that a client had left, stay true.
    """
    records: list[Record] = []
    for row in group.records:
        if isinstance(row, ModelCall):
            records.append(_without_response(row, failure))
        elif isinstance(row, TurnAudit):
            records.append(_without_text(row, failure, is_shown=is_shown))
    return Group(tuple(records))


def _without_response(row: ModelCall, failure: Failure) -> ModelCall:
    row = msgspec.structs.replace(row, response_json=None)
    if row.stream_state == "cancelled":
        return row
    return msgspec.structs.replace(row, stream_state="error", error_code=failure.code)


def _without_text(row: TurnAudit, failure: Failure, *, is_shown: bool) -> TurnAudit:
    if words_of(row):
        return row
    row = msgspec.structs.replace(row, assistant_text=None)
    if row.outcome == "abandoned":
        return row
    return msgspec.structs.replace(
        row,
        outcome="partial" if is_shown else "failure",
        failure_type=failure.failure_type,
        error_code=failure.code,
    )
