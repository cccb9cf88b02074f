"""One call of a row, through to an answer: cache, pace, budget, attempts, waits.

Each attempt is kept with what it took and cost. A row gives up when its attempts run out, when the
provider refuses it for good, or when the budget has no room; what every further row would meet as
well ends the run.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import msgspec
from msgspec import UNSET

from everyturn.bench.answer import Answer, without_thoughts
from everyturn.bench.budget import Budget, BudgetSpent, Hold
from everyturn.bench.cache import Cache, Entry
from everyturn.bench.cleaning import Cleaner
from everyturn.bench.client import CallFailed, Gateway, Span, Timed
from everyturn.bench.folder import RunRefused
from everyturn.bench.grid import Model
from everyturn.bench.manifest import now
from everyturn.bench.money import Price, Usage, dollars
from everyturn.bench.pace import Pace
from everyturn.bench.rows import Attempt
from everyturn.sdk.turns import Turn

BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MAX_S: Final = 60.0
THROTTLED_MAX: Final = 40
"""Answers of 429 that a call waits out; a bound apart from that of failures."""
_AWAY: Final = frozenset(
    {"gateway_unreachable", "stream_incomplete", "gateway_stopping", "audit_unavailable"}
)
"""Codes that a gateway which is going away gives."""


class GaveUp(Exception):
    """A row has no answer: its outcome, and the code of the last failure."""

    def __init__(self, outcome: str, code: str | None) -> None:
        super().__init__(outcome)
        self.outcome = outcome
        self.code = code


class Interrupted(Exception):
    """The run is to stop, and this row is left for the next start."""


@dataclass(slots=True)
class Conversation:
    """One row (or judgement) while its calls are made."""

    span: Span
    item_id: str
    epoch: int
    is_judge: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    cached_from: str | None = None
    turn: Turn | None = None
    """What the gateway is told of this turn beside its calls; None to tell it nothing."""
    has_called: bool = False

    def begin(self) -> None:
        """A call is about to be made: there will be a turn."""
        if not self.has_called and self.turn is not None:
            self.turn.__enter__()
            # Calls carry the turn, so how it ended is for the gateway to say.
            self.turn.headers()
        self.has_called = True

    def end(self) -> None:
        """No further call will be made."""
        if self.has_called and self.turn is not None:
            self.turn.__exit__(None, None, None)

    @property
    def cost(self) -> Decimal | None:
        """What its calls cost together; None if one of them is not known."""
        costs = [attempt.cost for attempt in self.attempts]
        if any(cost is None for cost in costs):
            return None
        return sum((Decimal(repr(cost)) for cost in costs), Decimal(0))


class Asker:
    """Asks one model for all the rows of a run."""

    def __init__(
        self,
        model: Model,
        price: Price | None,
        *,
        gateway: Gateway,
        url: str,
        budget: Budget,
        pace: Pace,
        stop: asyncio.Event,
        attempts_max: int,
        cleaner: Cleaner,
        cache: Cache | None = None,
        seed: int = 0,
    ) -> None:
        self.model = model
        self._price = price
        self._gateway = gateway
        self._url = url
        self._budget = budget
        self._pace = pace
        self._stop = stop
        self._attempts_max = attempts_max
        self._cleaner = cleaner
        self._cache = cache
        self._draw = random.Random(f"{seed}:{model.name}")  # noqa: S311 - waits, not secrets

    async def ask(
        self,
        talk: Conversation,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
    ) -> Answer:
        """The answer to messages. Raises GaveUp, Interrupted, and RunRefused to end the run."""
        body = request_body(self.model, messages, tools)
        key = None
        if self._cache is not None:
            model = self.model
            key = Cache.key(body, model.model, model.revision, self._url, talk.item_id, talk.epoch)
            entry = self._cache.get(key)
            if entry is not None:
                return self._from_cache(talk, entry)
        answer = await self._through(talk, body)
        if self._cache is not None and key is not None:
            said, had_thoughts = without_thoughts(answer.text or "")
            bare = msgspec.structs.replace(
                answer,
                text=said if had_thoughts else answer.text,
                reasoning=UNSET,
                carrier=None,
            )
            entry = Entry(
                answer=clean_answer(bare, self._cleaner),
                turn_id=talk.span.turn_id,
                had_reasoning=had_thoughts or isinstance(answer.reasoning, str),
            )
            self._cache.put(key, entry)
        return answer

    def _from_cache(self, talk: Conversation, entry: Entry) -> Answer:
        talk.cached_from = entry.turn_id
        if entry.had_reasoning:
            talk.flags.add("reasoning_not_cached")
        answer = entry.answer
        usage = answer.usage
        talk.attempts.append(
            Attempt(
                step=len(talk.answers),
                started_at=now(),
                latency_ms=0.0,
                outcome="answered",
                finish_reason=answer.finish_reason,
                served_model=answer.served_model,
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                reasoning_tokens=usage.reasoning_tokens,
                cost=0.0,
                cache_hit=True,
            )
        )
        talk.answers.append(answer)
        return answer

    async def _through(self, talk: Conversation, body: bytes) -> Answer:
        failures, waits = 0, 0
        while True:
            try:
                timed = await self._once(talk, body)
            except CallFailed as failed:
                if failed.is_fatal:
                    raise RunRefused(
                        f"the gateway refused a call of `{self.model.name}`: {failed.code}.",
                        self._cleaner.text(failed.hint),
                    ) from failed
                # Being told to wait is no failure of the call; it has a bound of its own.
                waits += failed.is_throttled
                failures += not failed.is_throttled
                if not failed.may_retry or failures >= self._attempts_max or waits >= THROTTLED_MAX:
                    await self._check_gateway(failed)
                    raise GaveUp(failed.kind, failed.code) from failed
                await self._wait(failures + waits, failed.retry_after_s)
                continue
            talk.answers.append(timed.answer)
            return timed.answer

    async def _check_gateway(self, failed: CallFailed) -> None:
        """End the run where the gateway itself is away: that says nothing about any row."""
        if failed.code not in _AWAY:
            return
        try:
            await self._gateway.get("/models")
        except CallFailed as away:
            raise RunRefused(
                f"the gateway does not answer any more: {away.code}.",
                "Start it; the same command goes on.",
            ) from failed

    async def _once(self, talk: Conversation, body: bytes) -> Timed:
        """One call, paced, reserved, measured and settled. Raises CallFailed."""
        await self._pace.enter()
        failed: CallFailed | None = None
        is_answered = False
        try:
            if self._stop.is_set():
                raise Interrupted
            worst = self.worst(len(body))
            try:
                hold = await self._budget.reserve(worst, is_judge=talk.is_judge)
            except BudgetSpent as spent:
                raise GaveUp("skipped_budget", None) from spent
            if self._stop.is_set():
                hold.settle(Decimal(0))
                raise Interrupted
            talk.begin()
            timed = await self._call(talk, body, hold, worst)
            is_answered = True
            return timed
        except CallFailed as bad:
            failed = bad
            raise
        finally:
            is_throttled = failed is not None and failed.is_throttled
            wait_s = (failed.retry_after_s or 0.0) if failed is not None else 0.0
            self._pace.leave(
                is_answered=is_answered,
                is_throttled=is_throttled,
                wait_s=wait_s if is_throttled else 0.0,
            )

    async def _call(
        self, talk: Conversation, body: bytes, hold: Hold, worst: Decimal | None
    ) -> Timed:
        """One call that was reserved: it is settled and on the row, however it ends."""
        started, began = now(), asyncio.get_running_loop().time()

        def note(failed: CallFailed) -> None:
            took = (asyncio.get_running_loop().time() - began) * 1000
            hold.settle(Decimal(0) if failed.is_free else None)
            talk.attempts.append(_failed_attempt(talk, failed, started, took, worst))

        try:
            timed = await self._gateway.ask(body, talk.span, int.from_bytes(os.urandom(8)))
        except CallFailed as failed:
            note(failed)
            raise
        except asyncio.CancelledError:
            note(CallFailed("timeout", "cell_time_limit"))
            raise
        # Words of the provider that stand on rows and attempts as they are.
        timed.answer.served_model = self._cleaner.maybe(timed.answer.served_model)
        timed.answer.finish_reason = self._cleaner.maybe(timed.answer.finish_reason)
        cost = self._price.cost(timed.answer.usage) if self._price is not None else None
        if hold.settle(cost):
            talk.flags.add("budget_bound_exceeded")
        talk.attempts.append(_answered(talk, timed, started, cost, worst))
        return timed

    def worst(self, request_bytes: int) -> Decimal | None:
        """The most that one call can cost; None where no price or no bound is known."""
        if self._price is None or self.model.max_tokens is None:
            return None
        thinking = self.model.thinking_tokens or 0
        return self._price.worst(request_bytes, self.model.max_tokens, thinking)

    async def _wait(self, number: int, asked_s: float | None) -> None:
        """Wait before the next attempt: as long as was asked, else longer each time."""
        backoff = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(number - 1, 16))
        seconds = asked_s if asked_s is not None else backoff * self._draw.uniform(0.5, 1.0)
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            return
        raise Interrupted


def request_body(
    model: Model, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
) -> bytes:
    """The whole request for a model."""
    body: dict[str, Any] = {"model": model.model, "messages": messages}
    if model.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    if model.max_tokens is not None:
        body["max_tokens"] = model.max_tokens
    if tools:
        body["tools"] = tools
    reasoning: dict[str, Any] = {}
    if model.thinking is not None:
        reasoning["enabled"] = model.thinking
    if model.effort is not None:
        reasoning["effort"] = model.effort
    if model.thinking_tokens is not None:
        reasoning["max_tokens"] = model.thinking_tokens
    if reasoning:
        body["reasoning"] = reasoning
    return msgspec.json.encode({**body, **model.body})


def clean_answer(answer: Answer, cleaner: Cleaner) -> Answer:
    """The answer as it may rest."""
    reasoning = answer.reasoning
    return msgspec.structs.replace(
        answer,
        text=cleaner.maybe(answer.text),
        refusal=cleaner.maybe(answer.refusal),
        reasoning=cleaner.text(reasoning) if isinstance(reasoning, str) else reasoning,
        tool_calls=tuple(
            msgspec.structs.replace(call, arguments=cleaner.text(call.arguments))
            for call in answer.tool_calls
        ),
    )


def _answered(
    talk: Conversation, timed: Timed, started: str, cost: Decimal | None, worst: Decimal | None
) -> Attempt:
    answer = timed.answer
    usage: Usage = answer.usage
    return Attempt(
        step=len(talk.answers),
        started_at=started,
        latency_ms=timed.latency_ms,
        time_to_first_token_ms=timed.time_to_first_token_ms,
        status=200,
        outcome="answered",
        finish_reason=answer.finish_reason,
        served_model=answer.served_model,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost=dollars(cost),
        cost_bound=dollars(worst) if cost is None else None,
    )


def _failed_attempt(
    talk: Conversation, failed: CallFailed, started: str, took_ms: float, worst: Decimal | None
) -> Attempt:
    return Attempt(
        step=len(talk.answers),
        started_at=started,
        latency_ms=round(took_ms, 3),
        status=failed.status,
        outcome="timeout" if failed.kind == "timeout" else "provider_error",
        error_code=failed.code,
        cost=0.0 if failed.is_free else None,
        cost_bound=None if failed.is_free else dollars(worst),
    )
