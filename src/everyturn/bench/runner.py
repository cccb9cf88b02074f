"""A run: every missing row is asked for and written once, whatever happens in between.

Resuming is nothing but doing what is missing. A row is written when it is terminal, by one append;
until then it is missing, and a kill costs at most the calls that were under way.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from everyturn.bench.answer import UNKNOWN_CARRIER, Answer, state_of, without_thoughts
from everyturn.bench.asking import Asker, Conversation, GaveUp, Interrupted, clean_answer
from everyturn.bench.cells import Deck, Played
from everyturn.bench.cleaning import Cleaner
from everyturn.bench.folder import ROWS, WARN_BYTES, RunFolder, RunRefused
from everyturn.bench.grid import Cell, Grid
from everyturn.bench.items import Item
from everyturn.bench.manifest import Manifest, now
from everyturn.bench.money import dollars
from everyturn.bench.rows import THOUGHTS, FullRow, Key, Outcome, encoded
from everyturn.bench.scorers import score
from everyturn.bench.tagging import new_conversation

SHAPE_UNKNOWN: Final = "reasoning_content_shape_unknown"


@dataclass(slots=True)
class Tally:
    """How far a run is; what progress shows."""

    total: int
    done_before: int = 0
    done: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic)
    stop_reason: str | None = None


def all_keys(grid: Grid, items: Iterable[Item]) -> Iterator[Key]:
    """Every key of a run, item by item, so that a partial run compares cells on equal items."""
    for item in items:
        for epoch in range(grid.epochs):
            for cell in grid.cells:
                for model in grid.models:
                    yield Key(cell.name, model.name, item.item_id, epoch)


class Runner:
    """Works through keys, as many at once as allowed."""

    def __init__(
        self,
        manifest: Manifest,
        items: dict[str, Item],
        deck: Deck,
        askers: dict[str, Asker],
        folder: RunFolder,
        cleaner: Cleaner,
        stop: asyncio.Event,
        tally: Tally,
        warn: Callable[[str], None],
        *,
        grid: Grid,
        tags_turns: bool = False,
    ) -> None:
        """grid: as it was given now; what may differ from the manifest's is taken from it.

        tags_turns: tell the gateway of each turn which run and cell it belongs to.
        stop: set to end cleanly; rows under way are finished, nothing new begins.
        """
        self._manifest = manifest
        self._grid = grid
        self._items = items
        self._cells = {cell.name: cell for cell in grid.cells}
        self._deck = deck
        self._askers = askers
        self._folder = folder
        self._cleaner = cleaner
        self._stop = stop
        self._tally = tally
        self._warn = warn
        self._warned: set[str] = set()
        self._tags_turns = tags_turns

    async def run(self, keys: Iterable[Key]) -> None:
        """Make the rows of `keys`. Raises RunRefused for what ends the run; cancel it to stop."""
        rows = self._folder.appender(ROWS)
        todo = iter(keys)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._grid.concurrency):
                    group.create_task(self._work(todo, rows.append))
        except BaseExceptionGroup as failures:
            refused = failures.subgroup(RunRefused)
            if refused is None:
                raise
            raise _first(refused) from None
        finally:
            rows.close()

    async def _work(self, todo: Iterator[Key], write: Callable[[bytes], None]) -> None:
        for key in todo:
            if self._stop.is_set() or self._is_full():
                return
            try:
                row = await self._row(key)
            except Interrupted:
                return
            write(encoded(row))
            self._tally.done += 1
            self._tally.outcomes[row.outcome] += 1

    def _is_full(self) -> bool:
        size = self._folder.bytes
        if size >= WARN_BYTES:
            self._once("size", f"the run folder has passed {WARN_BYTES} bytes")
        if size < self._grid.max_bytes:
            return False
        self._tally.stop_reason = "max_bytes"
        self._stop.set()
        return True

    def _once(self, what: str, text: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            self._warn(text)

    async def _row(self, key: Key) -> FullRow:
        cell, item = self._cells[key.cell], self._items[key.item_id]
        asker = self._askers[key.model]
        talk = new_conversation(
            item.item_id, key.epoch, self._manifest, cell.name if self._tags_turns else None
        )
        started = now()
        played: Played | None = None
        failed: GaveUp | None = None
        try:
            played = await self._deck.play(
                cell, item, lambda messages, tools: asker.ask(talk, messages, tools)
            )
        except GaveUp as gave_up:
            failed = gave_up
        except (Interrupted, RunRefused, asyncio.CancelledError):
            raise
        except Exception as bug:
            if cell.kind != "python":
                raise
            # The callable is the user's: every item would meet the same, and it can be mended.
            hint = "Correct it, then start the same command again."
            raise RunRefused(
                f"the function of cell `{cell.name}` failed for item `{item.item_id}`: "
                f"{type(bug).__name__}.",
                hint,
            ) from bug
        finally:
            talk.end()
        return self._made(key, cell, item, talk, played, failed, started)

    def _made(
        self,
        key: Key,
        cell: Cell,
        item: Item,
        talk: Conversation,
        played: Played | None,
        failed: GaveUp | None,
        started: str,
    ) -> FullRow:
        model = self._askers[key.model].model
        answered = [attempt for attempt in talk.attempts if attempt.outcome == "answered"]
        last = answered[-1] if answered else None
        row = FullRow(
            run_id=self._manifest.run_id,
            cell=key.cell,
            model=key.model,
            item_id=key.item_id,
            epoch=key.epoch,
            control=cell.control,
            turn_id=talk.span.turn_id if talk.has_called else None,
            trace_id=talk.span.trace_id if talk.has_called else None,
            cached_from=talk.cached_from,
            outcome="empty",
            error_code=failed.code if failed else None,
            requested_model=model.model,
            served_model=last.served_model if last else None,
            prompt_tokens=_sum(attempt.prompt_tokens for attempt in answered),
            completion_tokens=_sum(attempt.completion_tokens for attempt in answered),
            reasoning_tokens=_sum(attempt.reasoning_tokens for attempt in answered),
            cost=dollars(talk.cost),
            attempts=tuple(talk.attempts),
            time_to_first_token_ms=answered[0].time_to_first_token_ms if answered else None,
            latency_ms=round(sum(a.latency_ms for a in answered), 3) if answered else None,
            retrieved=played.retrieved if played else (),
            cluster=item.cluster,
            category=item.category,
            dataset_version=self._grid.data.version,
            started_at=started,
        )
        self._add_reasoning(row, talk, asked=model.thinking is True)
        if model.revision and row.served_model and row.served_model != model.revision:
            talk.flags.add("served_other_revision")
        if failed is not None:
            row.outcome = _outcome_of(failed)
        elif played is not None:
            self._add_answer(row, talk, played, item)
        row.flags = tuple(sorted(talk.flags))
        return row

    def _add_answer(self, row: FullRow, talk: Conversation, played: Played, item: Item) -> None:
        bare = msgspec.structs.replace(played.answer, reasoning=UNSET)
        answer = clean_answer(bare, self._cleaner)
        row.finish_reason = answer.finish_reason
        row.model_answer = answer.text if answer.text or not answer.refusal else answer.refusal
        row.outcome = "limit_reached" if played.is_limited else outcome(answer)
        said, has_thoughts = without_thoughts(answer.text or "")
        if has_thoughts:
            talk.flags.add(THOUGHTS)
            if not said and row.outcome == "ok":
                row.outcome = "empty"
        is_scored = row.outcome == "ok"
        row.scores = {
            one.name: score(
                one.kind, said, item.expected, pattern=one.pattern, tolerance=one.tolerance
            )
            if is_scored
            else None
            for one in self._grid.scorers
        }

    def _add_reasoning(self, row: FullRow, talk: Conversation, *, asked: bool) -> None:
        text = _joined_reasoning(talk.answers)
        if isinstance(text, str):
            text = self._cleaner.text(text)
            row.reasoning_content_chars = len(text)
            row.reasoning_carrier = next(a.carrier for a in talk.answers if a.carrier)
        row.reasoning_content = text
        row.reasoning_state = state_of(text)
        is_odd = any(answer.has_odd_reasoning for answer in talk.answers)
        is_new = talk.cached_from is None
        if talk.answers and is_new and not isinstance(text, str) and (asked or is_odd):
            row.reasoning_carrier = UNKNOWN_CARRIER
            talk.flags.add(SHAPE_UNKNOWN)
            self._once(f"shape:{row.model}", f"{SHAPE_UNKNOWN}: model `{row.model}`")


def outcome(answer: Answer) -> Outcome:
    """What an answer is, before anybody scores it."""
    if answer.finish_reason == "length":
        return "length"
    if answer.refusal or answer.finish_reason == "content_filter":
        return "refused"
    return "ok" if (answer.text or "").strip() else "empty"


def _outcome_of(failed: GaveUp) -> Outcome:
    if failed.outcome == "timeout":
        return "timeout"
    return "skipped_budget" if failed.outcome == "skipped_budget" else "provider_error"


def _joined_reasoning(answers: list[Answer]) -> str | UnsetType | None:
    """The reasoning of all answers of a row; text wins over null, null over absence."""
    texts = [answer.reasoning for answer in answers if isinstance(answer.reasoning, str)]
    if texts:
        return "\n\n".join(text for text in texts if text)
    return None if any(answer.reasoning is None for answer in answers) else UNSET


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _first(group: BaseExceptionGroup[RunRefused]) -> RunRefused:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
