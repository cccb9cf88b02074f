"""Tool runs and retrievals: what is recorded, by hand and by decorator, inside and outside."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest

import everyturn
from everyturn.errors import InvalidValue
from everyturn.wire.reader import read_client
from tests.sdk.conftest import since
from tests.support.receiver import fault_of


def recorded(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The first record, which must be what the contract takes."""
    assert [fault_of(event) for event in events] == [None] * len(events)
    return events[0]


def test_a_tool_run_is_recorded_as_it_was_at_that_moment() -> None:
    """Request and response stand as they were when they were given, whatever changes later."""
    with (
        everyturn.capture() as events,
        everyturn.turn() as turn,
        turn.tool("mcp", "get_order", target_service="orders", provider_call_id="c7") as run,
    ):
        arguments = {"id": 5}
        run.request(arguments)
        arguments["id"] = 6
        run.response(None)
        run.finish(status="partial", retry_count=2, attributes={"truncated": True})

    event = recorded(events)
    assert event["log"] == "tool_calls"
    assert (event["tool_family"], event["tool_name"]) == ("mcp", "get_order")
    assert (event["target_service"], event["provider_call_id"]) == ("orders", "c7")
    assert event["request_json"] == {"id": 5}
    assert event["response_json"] is None
    assert (event["status"], event["retry_count"]) == ("partial", 2)
    assert event["attributes_json"] == {"truncated": True}
    assert event["duration_ms"] >= 0


@pytest.mark.parametrize(
    "failure, status",
    [
        (KeyError("secret words"), "error"),
        (TimeoutError("secret words"), "timeout"),
        (asyncio.CancelledError("secret words"), "cancelled"),
    ],
)
def test_a_tool_that_raises_is_recorded_and_raises(failure: BaseException, status: str) -> None:
    """An exception gives the status and its class, not its text, and goes on."""
    with (
        everyturn.capture() as events,
        pytest.raises(type(failure)),
        everyturn.turn() as turn,
        turn.tool("rag", "x"),
    ):
        raise failure

    event = recorded(events)
    assert (event["status"], event["error_code"]) == (status, type(failure).__name__)
    assert "secret words" not in json.dumps(events)


def test_a_decorated_function_is_a_run_each_call() -> None:
    """Arguments by name and the result are recorded; the function is as it was otherwise."""

    @everyturn.tool("internal", target_service="self")
    def add(a: int, b: int = 2, *more: int, **named: int) -> int:
        """Adds."""
        return a + b

    with everyturn.capture() as events, everyturn.turn():
        assert add(1, 2, 3, c=4) == 3
        assert add(5) == 7

    first, second, _ = events
    assert (add.__name__, add.__doc__) == ("add", "Adds.")
    assert first["tool_name"] == "add"
    assert first["request_json"] == {"a": 1, "b": 2, "*": [3], "c": 4}
    assert first["response_json"] == 3
    assert second["request_json"] == {"a": 5}
    assert first["tool_call_id"] != second["tool_call_id"]


async def test_a_decorated_coroutine_function_is_a_run_each_call() -> None:
    """The run of a coroutine function ends when it has ended, and its own calls are children."""

    class Orders:
        @everyturn.tool("mcp", "get_order")
        async def get(self, order: str) -> dict[str, str]:
            await asyncio.sleep(0)
            with everyturn.retrieval(query=order):
                pass
            return {"order": order}

    with everyturn.capture() as events, everyturn.turn():
        assert await Orders().get("7") == {"order": "7"}

    search, run, _ = events
    assert (run["tool_name"], run["request_json"]) == ("get_order", {"order": "7"})
    assert run["response_json"] == {"order": "7"}
    assert search["parent_span_id"] == run["span_id"]


def test_a_decorated_function_may_keep_its_payload_to_itself() -> None:
    """Without payload only the facts of a run are recorded."""

    @everyturn.tool("internal", has_payload=False)
    def sign(text: str) -> str:
        return text

    with everyturn.capture() as events, everyturn.turn():
        sign("private")

    assert "private" not in json.dumps(events)


def test_generators_cannot_be_decorated() -> None:
    """A generator function is refused when it is decorated."""

    def pieces() -> Any:
        yield 1

    with pytest.raises(InvalidValue):
        everyturn.tool("internal")(pieces)


def test_outside_of_a_turn_the_code_runs_and_nothing_is_recorded() -> None:
    """Runs and retrievals outside of a turn record nothing, which is counted."""

    @everyturn.tool("internal")
    def add(a: int) -> int:
        return a + 1

    @everyturn.retrieval()
    def search(query: str) -> list[str]:
        return [query]

    before = everyturn.counters()
    with everyturn.capture() as events:
        assert add(1) == 2
        assert search("q") == ["q"]
        with everyturn.tool("mcp", "x") as run:
            run.request({})
            assert "x-everyturn-turn-id" not in run.headers()

    assert events == []
    assert since(before) == {"outside_turn": 3}


@dataclass
class Hit:
    """A hit as an index gives it."""

    text: str
    score: float


@pytest.mark.parametrize(
    "hits, sources, scores",
    [
        ([{"id": 1, "score": 0.5}, {"id": 2}], [{"id": 1, "score": 0.5}, {"id": 2}], [0.5, None]),
        (["a", "b"], ["a", "b"], [None, None]),
        ([("a", 0.9), ("b", 0.1)], ["a", "b"], [0.9, 0.1]),
        (
            [Hit("a", 0.9), Hit("b", float("nan"))],
            [
                {"text": "a", "score": 0.9},
                {"text": "b", "score": {"not_recorded": "not a finite number"}},
            ],
            [0.9, None],
        ),
    ],
)
def test_sources_have_rank_score_and_use(
    hits: list[Any], sources: list[Any], scores: list[float | None]
) -> None:
    """Every candidate stands with its rank, its score, and whether it entered the prompt."""
    with (
        everyturn.capture() as events,
        everyturn.turn() as turn,
        turn.retrieval(
            query="q", profile="docs", index_version="v1", top_k=8, plugin="faq"
        ) as search,
    ):
        search.sources(hits, used=hits[:1])
        search.context("12345")

    event = recorded(events)
    found = event["sources_json"]
    assert [entry["rank"] for entry in found] == [1, 2]
    assert [entry["used"] for entry in found] == [True, False]
    assert [entry["source"] for entry in found] == sources
    assert [entry.get("score") for entry in found] == scores
    assert (event["query_text"], event["profile"], event["top_k"]) == ("q", "docs", 8)
    assert (event["index_version"], event["plugin"], event["context_chars"]) == ("v1", "faq", 5)
    assert event["retrieval_latency_ms"] >= 0


async def test_a_decorated_search_has_its_query_and_its_sources() -> None:
    """The named parameter is the query; a list that comes back is the sources, use unknown."""

    @everyturn.retrieval(profile="docs", top_k=2, query_param="question")
    async def search(index: str, question: str) -> list[str]:
        return ["one", "two"]

    with everyturn.capture() as events, everyturn.turn():
        assert await search("main", question="why?") == ["one", "two"]

    event = recorded(events)
    assert event["query_text"] == "why?"
    assert event["sources_json"] == [{"rank": 1, "source": "one"}, {"rank": 2, "source": "two"}]


class Odd:
    """An object that fails wherever it is touched."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment]

    @property
    def model_dump(self) -> Any:
        raise RuntimeError


def test_a_context_of_any_kind_never_breaks_the_application() -> None:
    """Its length in characters is recorded; nothing has none."""
    odd: list[Any] = ["12345", 7, None, [{"text": "é"}]]
    with everyturn.capture() as events, everyturn.turn() as turn:
        for value in odd:
            with turn.retrieval() as search:
                search.context(value)

    found = [event["context_chars"] for event in events[:-1]]
    assert found == [5, 7, 0, len('[{"text":"é"}]')]


@pytest.mark.parametrize("depth", [50, 99, 101, 126, 500, 900])
def test_no_depth_costs_a_record(depth: int) -> None:
    """A payload that is deeper than the gateway reads is left out below; the rest is taken."""
    value: Any = "end"
    for level in range(depth):
        value = [value, "]"] if level % 2 else {'[{"': value}
    with (
        everyturn.capture() as events,
        everyturn.turn() as turn,
        turn.tool("internal", "x") as run,
    ):
        run.response([value, [{}] * 200])

    (event, _) = events
    assert fault_of(event) is None
    assert read_client(json.dumps({"records": [event]}).encode())
    is_whole = event["response_json"] == [value, [{}] * 200]
    assert is_whole is (depth < 100)
    assert is_whole is ("deeper than is recorded" not in json.dumps(event))


def test_what_json_cannot_hold_never_breaks_the_application() -> None:
    """Cycles, NaN, lone surrogates, depth and hostile objects are recorded as what they are not."""
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    before = everyturn.counters()
    with everyturn.capture() as events, everyturn.turn() as turn:
        with turn.tool("internal", "x") as run:
            run.request({"nan": float("nan"), "odd": Odd(), 5: b"bytes", "half": "\ud800"})
            run.response(cycle)
        with turn.retrieval() as search:
            search.sources([Odd(), Odd()], used=[Odd()])

    request = events[0]["request_json"]
    assert request["nan"] == {"not_recorded": "not a finite number"}
    assert request["odd"] == {"not_recorded": "tests.sdk.test_tools_and_retrievals.Odd"}
    assert request["5"] == {"not_recorded": "builtins.bytes"}
    assert request["half"] == "\ufffd"
    assert "deeper than is recorded" in json.dumps(events[0]["response_json"])
    changed = since(before)
    assert changed["characters_replaced"] == 1
    assert changed["values_not_json"] >= 5
