"""The turns that a gateway knows at this moment, each once: all who add to one see the same state.

A turn under way is known as long as anybody works on it: whoever is given its state holds it, and
releases it at the end. Of those that were joined or told of by an application, the latest are kept
a while longer; what was let go is read from the store.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from everyturn.audit.turn_state import TurnState
from everyturn.store.standing import UNKNOWN, Standing, standing_of

KEPT_MAX: Final = 4096
"""Turns that are kept when nobody works on them; others are read again when they are needed."""
KEPT_CHARS_MAX: Final = 16 << 20
"""Characters of their texts, all together."""


class TurnStates:
    """Finds the state of a turn. For the gateway's event loop alone."""

    def __init__(self, folder: Path, *, kept_max: int = KEPT_MAX) -> None:
        """folder: of the store."""
        self._folder = folder
        self._kept_max = kept_max
        self._known: dict[str, TurnState] = {}
        """Those that are held or kept, but for what was forgotten."""
        self._kept: OrderedDict[str, tuple[TurnState, int]] = OrderedDict()
        self._kept_chars = 0

    def __len__(self) -> int:
        """How many are known."""
        return len(self._known)

    def new(self, turn_id: str, *, principal: str | None) -> TurnState:
        """The state of a turn whose id was made here just now, by a request of that principal.

        It is held, as what `joined` and `counted` give is: `release` it.
        """
        state = self._known[turn_id] = TurnState()
        state.claim(principal)
        state.holders = 1
        return state

    async def joined(self, turn_id: str) -> TurnState:
        """The state of a turn that a client names. Raises what the store's reader raises."""
        state = self._known.get(turn_id)
        if state is None:
            found = await self._read([turn_id])
            state = self._take(turn_id, found.get(turn_id, UNKNOWN))
        state.holders += 1
        self._keep(turn_id, state)
        return state

    async def counted(self, turn_ids: Collection[str]) -> dict[str, TurnState]:
        """The states of turns that records were just added to, with what the store holds now.

        Raises what the store's reader raises.
        """
        found = await self._read(turn_ids) if turn_ids else {}
        states: dict[str, TurnState] = {}
        for turn_id in turn_ids:
            standing = found.get(turn_id, UNKNOWN)
            state = states[turn_id] = self._take(turn_id, standing)
            state.holders += 1
            state.count(standing.tally)
            self._keep(turn_id, state)
        return states

    def release(self, turn_id: str, state: TurnState) -> None:
        """Say that work on a turn has ended; once for each time that its state was given."""
        assert state.holders > 0, "nobody holds it"
        state.holders -= 1
        self._let_go(turn_id, state)

    def forget(self, turn_id: str) -> None:
        """Let a turn go whose state is not what is stored; it is read when it is needed again."""
        self._known.pop(turn_id, None)
        _, chars = self._kept.pop(turn_id, (None, 0))
        self._kept_chars -= chars

    async def _read(self, turn_ids: Iterable[str]) -> dict[str, Standing]:
        return await asyncio.to_thread(standing_of, self._folder, list(turn_ids))

    def _take(self, turn_id: str, standing: Standing) -> TurnState:
        """The state of a turn: the one that is known by now, else one of what was read."""
        state = self._known.get(turn_id)
        if state is None:
            state = self._known[turn_id] = TurnState(standing.row, standing.tally)
        return state

    def _keep(self, turn_id: str, state: TurnState) -> None:
        _, before = self._kept.pop(turn_id, (None, 0))
        chars = _chars(state)
        self._kept[turn_id] = state, chars
        self._kept_chars += chars - before
        while len(self._kept) > self._kept_max or (
            self._kept_chars > KEPT_CHARS_MAX and len(self._kept) > 1
        ):
            oldest, (let_go, chars) = self._kept.popitem(last=False)
            self._kept_chars -= chars
            self._let_go(oldest, let_go)

    def _let_go(self, turn_id: str, state: TurnState) -> None:
        """Forget a state that is neither held nor kept, where the turn is not known anew by now."""
        if not state.holders and turn_id not in self._kept and self._known.get(turn_id) is state:
            del self._known[turn_id]


def _chars(state: TurnState) -> int:
    row = state.row
    if row is None:
        return 0
    texts = (row.user_text, row.assistant_text, row.attributes_json)
    return sum(len(text) for text in texts if text is not None)
