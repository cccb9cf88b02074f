"""Retrievals: what was looked for, what was found, and which of it entered the prompt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from everyturn.sdk.calls import Arguments, wrapped
from everyturn.sdk.process import this_process
from everyturn.sdk.spans import Line, Span, emit, new_id, recording_span

if TYPE_CHECKING:
    from types import TracebackType

P = ParamSpec("P")
R = TypeVar("R")


class Retrieval(Span):
    """One search. Nothing that is given to it is changed."""

    __slots__ = ("_fields",)

    def __init__(self, parent: Span | None, fields: dict[str, Any]) -> None:
        """parent: the span this runs in; None outside of a turn. fields: of the record."""
        if parent is None:
            super().__init__(Line(turn_id=None), parent_span_id=None)
        else:
            super().__init__(parent.line, parent_span_id=parent.span_id, root=parent.root)
        self._fields = fields

    def query(self, text: str) -> None:
        """What was looked for, where it was not known at the start (a rewritten question)."""
        self._fields["query_text"] = text

    def sources(self, hits: Iterable[Any], *, used: Iterable[Any] | None = None) -> None:
        """All candidates, best first, and which of them entered the prompt.

        hits: anything: mappings, documents, texts, or pairs of one of these and a score. A member
        or attribute `score` is the score. used: some of the hits themselves, or equal ones; None
        when it is not known.
        """
        if self.line.turn_id is None:
            return
        candidates = list(hits)
        entries = [_entry(rank, hit) for rank, hit in enumerate(candidates, start=1)]
        if used is not None:
            _mark_used(candidates, entries, list(used))
        self._fields["sources_json"] = this_process().plain.payload(entries)

    def context(self, text: str | int) -> None:
        """What entered the prompt, or how many characters of it; only the number is recorded."""
        if not isinstance(text, int):
            text = len(this_process().plain.text(text) or "")
        self._fields["context_chars"] = text

    def finish(self, *, attributes: Mapping[str, Any]) -> None:
        """Attributes that are known when the search is over."""
        known = self._fields.get("attributes_json") or {}
        self._fields["attributes_json"] = {**known, **attributes}

    def _closing(self, failure: BaseException | None) -> None:  # noqa: ARG002 - has no column
        process = this_process()
        if self.line.turn_id is None:
            process.counters.add("outside_turn")
            return
        self.line.count_retrieval()
        fields = self._fields
        fields["query_text"] = process.plain.text(fields.get("query_text"))
        emit(
            "retrieval_events",
            {
                "retrieval_id": new_id("ret"),
                **self.ids(),
                **fields,
                "retrieval_latency_ms": self.elapsed_ms(),
            },
        )


class Search:
    """A search to be made: enter it for one, or put it on a function for one each call."""

    __slots__ = ("_fields", "_query_param", "_retrieval")

    def __init__(self, fields: dict[str, Any], *, query_param: str | None) -> None:
        self._fields = fields
        self._query_param = query_param
        self._retrieval: Retrieval | None = None

    def __enter__(self) -> Retrieval:
        self._retrieval = Retrieval(recording_span(), dict(self._fields))
        return self._retrieval.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._retrieval is not None:
            self._retrieval.__exit__(kind, failure, traceback)

    async def __aenter__(self) -> Retrieval:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, failure, traceback)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, each call of it a search. A list that it gives is the sources."""
        arguments = Arguments(function)

        def opened(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Retrieval:
            search = Retrieval(recording_span(), dict(self._fields))
            search.query(arguments.value(self._query_param, args, kwargs))
            return search

        def answered(search: Retrieval, result: Any) -> None:
            if isinstance(result, list | tuple):
                search.sources(result)

        return wrapped(function, opened, answered)


def retrieval(
    *,
    query: str | None = None,
    profile: str | None = None,
    index_version: str | None = None,
    top_k: int | None = None,
    plugin: str | None = None,
    attributes: Mapping[str, Any] | None = None,
    query_param: str | None = None,
) -> Search:
    """A search in the turn of this context: `with everyturn.retrieval(…) as r:` or a decorator.

    profile: which way of searching; index_version: of what was searched.
    query_param: a decorated function's parameter that is the query; the first if left out.
    Outside of a turn the code runs and nothing is recorded, which is counted.
    """
    fields = retrieval_fields(query, profile, index_version, top_k, plugin, attributes)
    return Search(fields, query_param=query_param)


def retrieval_fields(
    query: str | None,
    profile: str | None,
    index_version: str | None,
    top_k: int | None,
    plugin: str | None,
    attributes: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The fields of a record that are known before the search."""
    return {
        "plugin": plugin,
        "profile": profile,
        "index_version": index_version,
        "query_text": query,
        "top_k": top_k,
        "attributes_json": dict(attributes) if attributes else None,
    }


def _entry(rank: int, hit: Any) -> dict[str, Any]:
    """One candidate as it stands in `sources_json`."""
    source, score = hit, None
    # `dict` first: it is the usual hit, and asking for an abstract class is slow.
    if isinstance(hit, dict | Mapping):
        score = _number(hit.get("score"))
    elif isinstance(hit, tuple) and len(hit) == 2 and _number(hit[1]) is not None:
        source, score = hit[0], _number(hit[1])
    else:
        score = _number(getattr(hit, "score", None))
    if score is None:
        return {"rank": rank, "source": source}
    return {"rank": rank, "score": score, "source": source}


def _mark_used(candidates: list[Any], entries: list[dict[str, Any]], used: list[Any]) -> None:
    """Say of each entry whether it is among `used`: the same object, or an equal one."""
    same = {id(one) for one in used}
    found = 0
    for hit, entry in zip(candidates, entries, strict=True):
        entry["used"] = id(hit) in same or id(entry["source"]) in same
        found += entry["used"]
    if found >= len(used):
        return
    for hit, entry in zip(candidates, entries, strict=True):
        entry["used"] = entry["used"] or any(_is_equal(one, hit) for one in used)


def _number(value: Any) -> float | None:
    """A finite number, those of numpy included; texts and arrays of several are none."""
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, str | bytes) or not hasattr(type(value), "__float__"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _is_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # noqa: BLE001 - arrays, for one, answer neither yes nor no
        return False
