"""One turn over all that is known of it: the gateway's calls, and what the application says.

Pure. A turn has one row. The gateway makes it from its calls, the application says how its turn was
in a record of its own, in either order and also while a call is under way. Field by field the
application's words stand over what the gateway found out; what it does not say stays the gateway's.
A person's review makes it `reviewed`, unless the application says where that stands.
`sources_by_field_json` remembers which is which, so that a later call, a correction or the next
start of the gateway keeps to it.

A failure type `unknown` says that the application does not know, so one that the gateway knows
stands. Where the application says `success`, no failure that the gateway saw stands against it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from everyturn.audit.records import REDACTIONS_NONE, TurnAudit
from everyturn.errors import GatewayInterrupted
from everyturn.wire import reader

Source = Literal["application", "gateway", "review"]

_replace: Final = msgspec.structs.replace
_BOOKKEEPING: Final = frozenset(
    {
        "turn_id",
        "revision",
        "schema_version",
        "redaction_applied",
        "redaction_rules_version",
        "redactions_json",
        "sources_by_field_json",
    }
)
_NOBODY: Final = object()
_MARK: Final = re.compile(r"\[redacted:([a-z0-9_]+)(?::[0-9a-f]{8})?\]")
_DEFAULTS: Final = {field.name: field.default for field in msgspec.structs.fields(TurnAudit)}
_FIELDS: Final = tuple(name for name in _DEFAULTS if name not in _BOOKKEEPING)
_COUNTED: Final = ("model_call_count", "tool_call_count", "retrieval_count", "human_review_status")
"""What a row says of the records of its turn."""


class Tally(msgspec.Struct, frozen=True, gc=False):
    """What the store holds of a turn beside its row."""

    calls: int = 0
    """Model calls that the gateway made."""
    cost: float | None = 0.0
    """What they cost in US dollars; None when one is owed and not known."""
    external_calls: int = 0
    """Model calls that were made elsewhere."""
    external_cost: float | None = 0.0
    tools: int = 0
    """Runs of tools that were recorded."""
    retrievals: int = 0
    human_reviews: int = 0


NOTHING: Final = Tally()


class Mark:
    """What a recorder changes of a turn, at one moment."""

    __slots__ = ("calls", "cost", "row", "tool_calls")

    def __init__(
        self, row: TurnAudit | None, calls: int, cost: float | None, tool_calls: int
    ) -> None:
        self.row = row
        self.calls = calls
        self.cost = cost
        self.tool_calls = tool_calls


class TurnState:
    """A turn as it stands: its newest row, the sums of its calls, the application's words.

    Several recorders may share one, where an application makes several calls in a turn, and so may
    whoever takes the application's records; each change is the next revision of the row.
    """

    __slots__ = ("_owner", "calls", "cost", "holders", "row", "tally", "tool_calls", "words")

    def __init__(self, row: TurnAudit | None = None, tally: Tally = NOTHING) -> None:
        """row, tally: as they stand in the store, for a turn that is joined; none for a new one."""
        self.row = row
        self.tally = tally
        self._owner: object = _NOBODY if row is None else row.principal
        self.calls = tally.calls
        self.cost = tally.cost
        """US dollars; None once a call's cost was owed and not known."""
        self.words: dict[str, Any] = {}
        """Field → what the application said, as it may rest; never None."""
        self.tool_calls = 0
        """Tool calls that models asked for."""
        self.holders = 0
        """How many work on the turn at this moment; counted by whoever keeps the states."""
        if row is not None:
            self.words = words_of(row)
            if "tool_call_count" not in self.words:
                self.tool_calls = row.tool_call_count or 0

    def claim(self, principal: str | None) -> bool:
        """Whether the turn is this principal's. Whoever opens a turn is the first to claim it."""
        if self._owner is _NOBODY:
            self._owner = principal
        return self._owner == principal

    def count(self, tally: Tally) -> None:
        """Take up what the store holds by now. Rows never become fewer."""
        before = self.tally
        if tally == before:
            return
        if tally.external_calls < before.external_calls:
            tally = _replace(
                tally, external_calls=before.external_calls, external_cost=before.external_cost
            )
        self.tally = _replace(
            tally,
            tools=max(tally.tools, before.tools),
            retrievals=max(tally.retrievals, before.retrievals),
            human_reviews=max(tally.human_reviews, before.human_reviews),
        )

    def mark(self) -> Mark:
        """How it stands now, to take back to."""
        return Mark(self.row, self.calls, self.cost, self.tool_calls)

    def take_back(self, before: Mark, after: Mark) -> None:
        """Undo what led from one mark to the other: it could not be stored, so it does not stand.
        What others added meanwhile stays."""
        self.calls -= after.calls - before.calls
        self.tool_calls -= after.tool_calls - before.tool_calls
        if self.row is after.row:
            self.row, self.cost = before.row, before.cost
        elif self.cost is not None and before.cost is not None and after.cost is not None:
            self.cost -= after.cost - before.cost

    def say(self, words: Mapping[str, Any], opened: TurnAudit) -> TurnAudit:
        """Take up an application's words, and give the row as it stands then.

        opened: the row of a turn that nobody knew. The same words again give the same row.
        """
        self.words.update(words)
        return self._next(self.row if self.row is not None else opened)

    def recount(self) -> TurnAudit | None:
        """The row with its counts as they stand now; None while there is none."""
        return None if self.row is None else self._next(self.row)

    def settle(self, row: TurnAudit) -> TurnAudit:
        """A row that the gateway made, with what others know better. The revision stays."""
        if not self.words and self.tally is NOTHING:
            return row
        row = self._counted(row)
        is_reviewed = row.human_review_status != _DEFAULTS["human_review_status"]
        return with_words(row, self.words) if self.words or is_reviewed else row

    def _next(self, row: TurnAudit) -> TurnAudit:
        settled = self.settle(row)
        if self.row is None:
            self.row = settled
        elif settled != self.row:
            self.row = _replace(settled, revision=self.row.revision + 1)
        return self.row

    def _counted(self, row: TurnAudit) -> TurnAudit:
        tally = self.tally
        changes: dict[str, Any] = {}
        calls = self.calls + tally.external_calls
        if calls:
            changes["model_call_count"] = calls
            is_known = self.cost is not None and tally.external_cost is not None
            changes["cost_estimate"] = (self.cost or 0.0) + (tally.external_cost or 0.0)
            if not is_known:
                changes["cost_estimate"] = None
        tools = max(self.tool_calls, tally.tools)
        if tools:
            changes["tool_call_count"] = tools
        if tally.retrievals:
            changes["retrieval_count"] = tally.retrievals
        if tally.human_reviews:
            changes["human_review_status"] = "reviewed"
        return _replace(row, **changes) if changes else row


def with_words(row: TurnAudit, words: Mapping[str, Any]) -> TurnAudit:
    """The row with the application's words over it, and the source of each field."""
    said = dict(words)
    if said.get("failure_type") == "unknown" and row.failure_type != "none":
        del said["failure_type"]
    if said.get("outcome") == "success":
        said.setdefault("failure_type", "none")
        said.setdefault("error_code", None)
    row = _replace(row, **said)
    sources: dict[str, Source] = {}
    for name in _FIELDS:
        if name in words and name in said:
            sources[name] = "application"
        elif getattr(row, name) != _DEFAULTS[name]:
            sources[name] = "review" if name == "human_review_status" else "gateway"
    return _replace(
        row, sources_by_field_json=reader.write_text(sources), redactions_json=_marks_in(row)
    )


def words_of(row: TurnAudit) -> dict[str, Any]:
    """What the application said of a stored turn."""
    if row.sources_by_field_json is None:
        return {}
    sources = msgspec.json.decode(row.sources_by_field_json, type=dict[str, str])
    return {name: getattr(row, name) for name, source in sources.items() if source == "application"}


def filled(row: TurnAudit, opening: TurnAudit) -> TurnAudit:
    """A row that the application made, with what the gateway's own request adds to it."""
    added = {
        name: value
        for name in _FIELDS
        if getattr(row, name) is None and (value := getattr(opening, name)) is not None
    }
    return _replace(row, **added) if added else row


def interrupted(row: TurnAudit, tally: Tally) -> TurnAudit:
    """The next revision of a turn whose gateway died in the middle of a call.

    tally: what is stored; the call that was cut off is among its calls. Tool calls that a model
    asked for may be more than were run.
    """
    ended = _replace(
        _with_tally(row, tally),
        outcome="failure",
        failure_type=GatewayInterrupted.failure_type,
        error_code=GatewayInterrupted.code,
    )
    words = words_of(row)
    return with_words(ended, words) if words else ended


def counted_as(row: TurnAudit, tally: Tally) -> TurnAudit:
    """The row as what is stored of its turn makes it, or the same object where it says that."""
    counted = TurnState(row, tally).recount()
    assert counted is not None
    # Not its cost: a sum of the same numbers in another order may differ in the last digit.
    return row if all(getattr(counted, n) == getattr(row, n) for n in _COUNTED) else counted


def counted_again(row: TurnAudit, tally: Tally) -> TurnAudit:
    """The next revision of a turn that has ended, counted by what is stored of it."""
    counted, words = _with_tally(row, tally), words_of(row)
    return with_words(counted, words) if words else counted


def _with_tally(row: TurnAudit, tally: Tally) -> TurnAudit:
    return _replace(
        row,
        model_call_count=tally.calls,
        tool_call_count=max(row.tool_call_count or 0, tally.tools) or row.tool_call_count,
        retrieval_count=tally.retrievals or row.retrieval_count,
        revision=row.revision + 1,
    )


def _marks_in(row: TurnAudit) -> str:
    """`redactions_json` of a row whose texts have two sources: the marks that stand in them."""
    texts = (value for name in _FIELDS if isinstance(value := getattr(row, name), str))
    found = Counter(mark[1] for text in texts for mark in _MARK.finditer(text))
    return reader.write_text(dict(found)) if found else REDACTIONS_NONE
