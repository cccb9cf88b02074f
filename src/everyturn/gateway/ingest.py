"""`POST /v1/records`: what applications and services record of their turns.

Items are independent: each is accepted or refused by name, and what is accepted is durable when the
answer leaves. An item that came before is accepted and changes nothing, so a sender may send again
whatever it is not sure of. An application's `turn_audit` and the turn of the gateway are one row.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from everyturn.audit.group import Group
from everyturn.audit.incoming import Taken, id_of
from everyturn.audit.records import AccessEvent, QualityReview, Record, TurnAudit
from everyturn.audit.schema import LOG_OF
from everyturn.audit.turn_state import TurnState
from everyturn.errors import (
    AuditUnavailable,
    CallerFault,
    EndpointNotFound,
    Failure,
    InternalError,
    InvalidJson,
    InvalidValue,
    MissingParameter,
    NotPermitted,
    RateLimited,
    UnknownParameter,
)
from everyturn.gateway.auth import Principal
from everyturn.gateway.guard import check_content_type
from everyturn.gateway.http import Exchange
from everyturn.gateway.metrics import Metrics
from everyturn.gateway.records import LOOP_BYTES_MAX, Recording
from everyturn.store.base import RecordRefused
from everyturn.wire.reader import Malformed, key_name, read_client, write

ITEMS_MAX: Final = 1000
BODIES_UNDER_WAY: Final = 2
"""Bodies of the largest size that are worked on at once; many more of the usual size are."""
GROUP_RECORDS_MAX: Final = 64
"""Records of one commit's group. A group with a fault is tried again record by record."""
SLICE_S: Final = 0.002
"""How long records are read before others get their turn: answers must not wait for records."""


class Reads(Protocol):
    """Reads records (`audit.incoming.Incoming`)."""

    def take(self, item: Any, *, principal: str | None) -> Taken:
        """The row of one item. Raises CallerFault."""
        ...


@dataclass(slots=True)
class _Item:
    """One item on its way."""

    index: int
    taken: Taken
    refusal: Failure | None = None


@dataclass(slots=True)
class _Read:
    """What was read of a body."""

    taken: list[_Item]
    refused: dict[int, Failure]
    """Why items are refused, by their place."""
    bugs: list[Exception]
    """Our own failures on items."""


class Ingest:
    """Serves the endpoint."""

    def __init__(
        self, recording: Recording, incoming: Reads | None, metrics: Metrics, bytes_max: int
    ) -> None:
        """incoming: None where nothing is recorded. bytes_max: of a body."""
        self._recording = recording
        self._metrics = metrics
        self.incoming = incoming
        self._bytes_max = bytes_max
        self._bytes_under_way = 0
        self._large = asyncio.Lock()
        """Held while a thread reads a body that is too large for the loop; two would only share
        the interpreter."""

    async def answer(self, exchange: Exchange) -> None:
        """Take the records of one request."""
        permissions = exchange.principal.permissions
        if "review" not in permissions:
            exchange.principal.require("record")
        check_content_type(exchange.header(b"content-type"))
        if self.incoming is None:
            raise EndpointNotFound(
                "this gateway records nothing", hint="Set `audit.enabled = true` in its settings."
            )
        raw = await exchange.body(self._bytes_max)
        # Counted when all of it is here: a sender that stalls must not keep others out.
        if self._bytes_under_way + len(raw) > BODIES_UNDER_WAY * self._bytes_max:
            raise RateLimited("the gateway has its most records under way", retry_after_ms=1000)
        self._bytes_under_way += len(raw)
        try:
            if len(raw) > LOOP_BYTES_MAX:
                async with self._large:
                    items, read = await asyncio.to_thread(
                        _read_whole, raw, exchange.principal, self.incoming
                    )
            else:
                items = _items_of(raw)
                read = await _read_in_slices(items, exchange.principal, self.incoming)
            refused = await self._take(read, exchange.principal)
        finally:
            self._bytes_under_way -= len(raw)
        self._tell(items, refused, exchange)
        body = {
            "accepted": len(items) - len(refused),
            "refused": [
                {
                    "index": index,
                    "id": id_of(items[index]),
                    "code": refusal.code,
                    "message": refusal.message,
                    "param": refusal.param,
                }
                for index, refusal in sorted(refused.items())
            ],
        }
        await exchange.answer(200, write(body))

    def _tell(self, items: Sequence[Any], refused: dict[int, Failure], exchange: Exchange) -> None:
        """Count what was taken and refused; a line in the log where something was refused."""
        for index, item in enumerate(items):
            self._metrics.record(item, is_accepted=index not in refused)
        if refused:
            codes = sorted({refusal.code for refusal in refused.values()})
            self._recording.log(
                "records.refused",
                count=len(refused),
                error_code=",".join(codes),
                request_id=exchange.request_id,
            )

    async def _take(self, read: _Read, principal: Principal) -> dict[int, Failure]:
        """Store what was read; returns why some items were refused, by their place."""
        for bug in read.bugs:
            self._recording.log.bug("record.failed", bug)
        taken, refused = read.taken, read.refused
        await self._store_rows([one for one in taken if not _is_turn(one)])
        await self._store_turns(taken, principal)
        refused.update((one.index, one.refusal) for one in taken if one.refusal is not None)
        return refused

    async def _store_rows(self, items: Sequence[_Item]) -> None:
        """Store what does not change a row that others fill too."""
        await asyncio.gather(
            *(
                self._store_group(items[start : start + GROUP_RECORDS_MAX])
                for start in range(0, len(items), GROUP_RECORDS_MAX)
            )
        )

    async def _store_group(self, items: Sequence[_Item]) -> None:
        try:
            await self._recording.append(Group(tuple(one.taken.record for one in items)))
        except RecordRefused:
            await asyncio.gather(*(self._store_alone(one) for one in items))

    async def _store_alone(self, item: _Item) -> None:
        try:
            await self._recording.append(Group((item.taken.record,)))
        except RecordRefused:
            item.refusal = _conflict(item.taken.record)

    async def _store_turns(self, items: Sequence[_Item], principal: Principal) -> None:
        """Bring the turns up to date that these items speak of or belong to.

        The other rows are in the store by now, so counts are right; a turn that nobody told of
        gets no row for having records.
        """
        told = [one for one in items if _is_turn(one)]
        counted = (one.taken.record for one in items if one.refusal is None and _counts(one))
        turn_ids = dict.fromkeys(
            record.turn_id
            for record in (*(one.taken.record for one in told), *counted)
            if record.turn_id is not None
        )
        if not turn_ids:
            return
        states = await self._recording.states.counted(list(turn_ids))
        try:
            await self._store_said(told, states, principal)
        finally:
            for turn_id, state in states.items():
                self._recording.states.release(turn_id, state)

    async def _store_said(
        self, told: Sequence[_Item], states: Mapping[str, TurnState], principal: Principal
    ) -> None:
        """Store what these items say of turns, and what is counted otherwise than before."""
        said: dict[str, tuple[TurnAudit, dict[str, Any]]] = {}
        for one in told:
            opened = one.taken.record
            assert isinstance(opened, TurnAudit)
            if not states[opened.turn_id].claim(principal.name):
                one.refusal = NotPermitted("this turn was opened with another key", param="turn_id")
                continue
            _, words = said.setdefault(opened.turn_id, (opened, {}))
            words.update(one.taken.words)
        changed: list[tuple[TurnState, TurnAudit | None]] = []
        for turn_id, state in states.items():
            before = state.row
            if turn_id in said:
                first, words = said[turn_id]
                state.say(words, first)
            elif state.recount() is before:
                continue
            # Also where nothing changed: what was said before may still wait to be durable.
            changed.append((state, before))
        await asyncio.gather(
            *(
                self._append_turns(changed[start : start + GROUP_RECORDS_MAX])
                for start in range(0, len(changed), GROUP_RECORDS_MAX)
            )
        )

    async def _append_turns(self, changed: Sequence[tuple[TurnState, TurnAudit | None]]) -> None:
        """Store the rows of these turns; with each, the row it had before."""
        rows = tuple(state.row for state, _ in changed if state.row is not None)
        try:
            await self._recording.append(Group(rows))
        except RecordRefused:
            # What memory has of a turn is not what is stored. The sender tries again, and then
            # the store is asked.
            for row in rows:
                self._recording.states.forget(row.turn_id)
            raise
        except AuditUnavailable:
            # The rows are not stored, so they do not stand, unless a call went on from them.
            for (state, before), row in zip(changed, rows, strict=True):
                if state.row is row:
                    state.row = before
            raise


def _read_whole(raw: bytes, principal: Principal, incoming: Reads) -> tuple[list[Any], _Read]:
    """The items of a large body, and what is read of them. Raises CallerFault; for a thread."""
    items = _items_of(raw)
    read = _Read([], {}, [])
    for index, item in enumerate(items):
        _read_item(read, index, item, principal, incoming)
    return items, read


async def _read_in_slices(items: Sequence[Any], principal: Principal, incoming: Reads) -> _Read:
    """Read items on the event loop, which serves others in between."""
    read = _Read([], {}, [])
    until = time.perf_counter() + SLICE_S
    for index, item in enumerate(items):
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S
        _read_item(read, index, item, principal, incoming)
    return read


def _read_item(read: _Read, index: int, item: Any, principal: Principal, incoming: Reads) -> None:
    try:
        one = _Item(index, incoming.take(item, principal=principal.name))
        _check_permission(one.taken.record, principal)
    except CallerFault as fault:
        read.refused[index] = fault
    except Exception as bug:  # noqa: BLE001 - one item must not cost all others for ever
        read.bugs.append(bug)
        read.refused[index] = InternalError("the gateway failed on this record")
    else:
        read.taken.append(one)


def _items_of(raw: bytes) -> list[Any]:
    """The items of a body. Raises CallerFault where it is not of the contract's form."""
    try:
        body = read_client(raw)
    except Malformed as bad:
        raise InvalidJson(bad.reason, param=bad.path) from None
    if not isinstance(body, dict):
        raise InvalidJson("the body must be one JSON object")
    for name in body:
        if name != "records":
            raise UnknownParameter(
                "the body has `records` and nothing else",
                param=key_name(name),
                hint="Remove the member.",
            )
    records = body.get("records")
    if records is None:
        raise MissingParameter("`records` is missing", param="records")
    if not isinstance(records, list) or not 1 <= len(records) <= ITEMS_MAX:
        raise InvalidValue(f"`records` must be a list of 1 to {ITEMS_MAX} items", param="records")
    return records


def _check_permission(record: Record, principal: Principal) -> None:
    """Reviewers may send reviews and nothing else. Raises NotPermitted."""
    if "record" not in principal.permissions and not isinstance(record, QualityReview):
        raise NotPermitted("this key has no permission `record`", param="log")


def _conflict(record: Record) -> InvalidValue:
    # The store compares the id and all else of a row; that is all it can say.
    return InvalidValue("this id is stored with other content", param=LOG_OF[type(record)].id)


def _is_turn(item: _Item) -> bool:
    return isinstance(item.taken.record, TurnAudit)


def _counts(item: _Item) -> bool:
    """Whether the row of the item's turn tells of it."""
    record = item.taken.record
    if isinstance(record, QualityReview):
        return record.review_source == "human"
    return not isinstance(record, AccessEvent | TurnAudit)
