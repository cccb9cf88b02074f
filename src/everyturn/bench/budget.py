"""A budget that is not passed: the worst price of a call is reserved before it is made.

Every reservation and what became of it is a line of `spend.jsonl`, written before the call and
after it. A call that a kill cut off has no second line, and counts at its worst price from then on:
what it cost nobody here can know.
"""

from __future__ import annotations

import asyncio
from collections import deque
from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec

from everyturn.bench.folder import Appender
from everyturn.bench.rows import lines


class BudgetSpent(Exception):
    """No call of this price fits any more."""


class _Line(msgspec.Struct, omit_defaults=True):
    call: int
    worst: Decimal | None = None
    cost: Decimal | None = None
    is_judge: bool = False


_DECODER: Final = msgspec.json.Decoder(_Line)
_ENCODER: Final = msgspec.json.Encoder()


class Spend(msgspec.Struct, kw_only=True):
    """What a run has cost so far. lost: at worst, of calls that a kill cut off."""

    subject: Decimal = Decimal(0)
    judges: Decimal = Decimal(0)
    lost: Decimal = Decimal(0)
    lost_calls: int = 0
    calls: int = 0

    @property
    def total(self) -> Decimal:
        """All that counts against a budget."""
        return self.subject + self.judges + self.lost


def read_spend(path: Path) -> Spend:
    """The spend that a ledger tells."""
    spend = Spend()
    waiting: dict[int, Decimal] = {}
    for raw in lines(path):
        line = _DECODER.decode(raw)
        if line.worst is not None:
            waiting[line.call] = line.worst
            spend.calls = max(spend.calls, line.call + 1)
        if line.cost is not None:
            waiting.pop(line.call, None)
            if line.is_judge:
                spend.judges += line.cost
            else:
                spend.subject += line.cost
    spend.lost = sum(waiting.values(), Decimal(0))
    spend.lost_calls = len(waiting)
    return spend


class Budget:
    """Reserves, settles and counts. For one event loop."""

    def __init__(self, cap: Decimal | None, ledger: Appender, spend: Spend) -> None:
        """cap: None for no bound; then it only counts."""
        self.cap = cap
        self.spend = spend
        self.is_broken = False
        """An answer was dearer than its reservation: no further call is made."""
        self._ledger = ledger
        self._reserved = Decimal(0)
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def reserve(self, worst: Decimal | None, *, is_judge: bool = False) -> Hold:
        """Set the worst price of a call aside; waits for others to settle while it may fit then.

        worst: None where there is no price, which only a run without a budget has.
        Raises BudgetSpent where it cannot fit any more.
        """
        if worst is None:
            assert self.cap is None, "a budget needs prices; the plan refuses it without"
            return Hold(self, -1, Decimal(0), is_judge)
        while True:
            if self.is_broken:
                raise BudgetSpent
            if self.cap is None or self.spend.total + self._reserved + worst <= self.cap:
                break
            if self.spend.total + worst > self.cap or not self._reserved:
                raise BudgetSpent
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        number = self.spend.calls
        self.spend.calls += 1
        self._ledger.append(_ENCODER.encode(_Line(number, worst=worst)) + b"\n")
        self._reserved += worst
        return Hold(self, number, worst, is_judge)

    def settle(self, hold: Hold, cost: Decimal) -> bool:
        """Count what a call did cost; whether it was dearer than its reservation."""
        if hold.number < 0:
            return False
        self._ledger.append(
            _ENCODER.encode(_Line(hold.number, cost=cost, is_judge=hold.is_judge)) + b"\n"
        )
        self._reserved -= hold.worst
        if hold.is_judge:
            self.spend.judges += cost
        else:
            self.spend.subject += cost
        is_dearer = cost > hold.worst
        if is_dearer and self.cap is not None:
            self.is_broken = True
        self._wake()
        return is_dearer

    def _wake(self) -> None:
        # All look again: who comes first may not fit where a later, cheaper one does.
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class Hold:
    """One reservation."""

    __slots__ = ("_budget", "is_judge", "number", "worst")

    def __init__(self, budget: Budget, number: int, worst: Decimal, is_judge: bool) -> None:
        self._budget = budget
        self.number = number
        self.worst = worst
        self.is_judge = is_judge

    def settle(self, cost: Decimal | None) -> bool:
        """Count the cost; None for one that is not known, which counts at its worst.

        Whether the call was dearer than its reservation.
        """
        return self._budget.settle(self, self.worst if cost is None else cost)
