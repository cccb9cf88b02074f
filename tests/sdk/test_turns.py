"""Turns: what is recorded of them, how they end, and that they never mix."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import everyturn
from everyturn import ids
from everyturn.audit.trace import parse_trace
from everyturn.errors import InvalidValue
from tests.sdk.conftest import since, until
from tests.support.receiver import Receiver, fault_of

SECRET = "s3cr3t words of an exception"


def logs(events: list[dict[str, Any]], log: str) -> list[dict[str, Any]]:
    """The records of one log; all records must be what the contract takes."""
    assert [fault_of(event) for event in events] == [None] * len(events)
    return [event for event in events if event["log"] == log]


def test_a_turn_is_recorded_with_what_the_application_said() -> None:
    """A finished turn is one record with its texts, ids, counts and outcome."""
    with (
        everyturn.capture() as events,
        everyturn.turn(
            chat_id="c1",
            project_id="shop",
            plugin="faq",
            user_text="where is it?",
            user_message_id="m1",
            attributes={"base_id": "b"},
        ) as turn,
    ):
        turn.finish(assistant_text="there", assistant_message_id="m2")

    (event,) = logs(events, "turn_audit")
    assert ids.is_turn_id(turn.id)
    assert event["turn_id"] == turn.id
    assert event["trace_id"] == turn.trace_id
    assert (event["chat_id"], event["project_id"], event["plugin"]) == ("c1", "shop", "faq")
    assert (event["user_text"], event["assistant_text"]) == ("where is it?", "there")
    assert (event["user_message_id"], event["assistant_message_id"]) == ("m1", "m2")
    assert event["outcome"] == "success"
    assert (event["tool_call_count"], event["retrieval_count"]) == (0, 0)
    assert event["attributes_json"] == {"base_id": "b"}
    assert "failure_type" not in event
    assert "parent_span_id" not in event


def test_numbers_where_texts_belong_cost_no_record() -> None:
    """Ids, versions and codes that an application has as numbers are recorded as their digits."""
    odd: Any = 7
    with (
        everyturn.capture() as events,
        everyturn.turn(
            chat_id=odd, project_id=odd, user_text=odd, prompt_version=odd, user_message_id=odd
        ) as turn,
    ):
        with turn.tool("mcp", "find", target_service=odd) as run:
            run.finish(error_code=odd, provider_call_id=odd)
        with turn.retrieval(query=odd, index_version=odd, profile=odd, top_k=odd):
            pass
        turn.finish(error_code=odd, assistant_text=odd)
        everyturn.review(turn.id, source="eval", reviewer=odd, rubric_version=odd, correctness=1)

    (told,) = logs(events, "turn_audit")
    (search,) = logs(events, "retrieval_events")
    (review,) = logs(events, "quality_reviews")
    assert (told["chat_id"], told["prompt_version"], told["error_code"]) == ("7", "7", "7")
    assert (search["index_version"], search["top_k"]) == ("7", 7)
    assert (review["rubric_version"], review["score_correctness"]) == ("7", 1)


async def test_everything_works_with_async_with() -> None:
    """A turn, a tool run and a retrieval may be entered with `async with`."""
    with everyturn.capture() as events:
        async with everyturn.turn() as turn:
            async with turn.tool("internal", "one"):
                await asyncio.sleep(0)
            async with turn.retrieval(query="q"), everyturn.tool("rag", "inner"):
                await asyncio.sleep(0)

    assert [event["log"] for event in events] == [
        "tool_calls",
        "tool_calls",
        "retrieval_events",
        "turn_audit",
    ]


def test_headers_and_envelope_carry_the_ids() -> None:
    """Headers name turn, request and the turn's span; the envelope names turn, request, trace."""
    with everyturn.capture(), everyturn.turn(request_id="req-1") as turn:
        headers = turn.headers()
        envelope = turn.envelope()

    trace = parse_trace([headers["traceparent"]])
    assert trace is not None
    assert (trace.trace_id, trace.span_id) == (turn.trace_id, turn.span_id)
    assert headers["x-everyturn-turn-id"] == turn.id
    assert headers["x-request-id"] == "req-1"
    assert envelope == {
        "everyturn": {"turn_id": turn.id, "trace_id": turn.trace_id, "request_id": "req-1"}
    }


def test_a_turn_that_called_a_model_and_was_not_finished_has_no_outcome() -> None:
    """Where the turn's headers went out and nothing was said, the outcome is the gateway's."""
    with everyturn.capture() as events:
        with everyturn.turn() as turn:
            turn.headers()
        with everyturn.turn():
            pass

    called, other = logs(events, "turn_audit")
    assert "outcome" not in called
    assert other["outcome"] == "success"


def test_a_failure_type_alone_makes_a_failure() -> None:
    """A turn finished with only a failure type is a failure."""
    with everyturn.capture() as events, everyturn.turn() as turn:
        turn.finish(failure_type="rag_miss")

    (event,) = logs(events, "turn_audit")
    assert (event["outcome"], event["failure_type"]) == ("failure", "rag_miss")


@pytest.mark.parametrize(
    "failure, outcome, failure_type",
    [
        (ValueError(SECRET), "failure", "unknown"),
        (TimeoutError(SECRET), "failure", "timeout"),
        (asyncio.CancelledError(SECRET), "abandoned", None),
    ],
)
def test_an_exception_makes_a_failure_and_goes_on(
    failure: BaseException, outcome: str, failure_type: str | None
) -> None:
    """An exception in the body is recorded by its class, without its text, and raised again."""
    with everyturn.capture() as events, pytest.raises(type(failure)), everyturn.turn() as turn:
        turn.finish(assistant_text="too early")
        raise failure

    (event,) = logs(events, "turn_audit")
    assert (event["outcome"], event.get("failure_type")) == (outcome, failure_type)
    assert event["error_code"] == type(failure).__name__
    assert SECRET not in json.dumps(events)


def test_what_the_application_said_of_a_failure_stands() -> None:
    """An exception does not replace an outcome other than success."""
    with everyturn.capture() as events, pytest.raises(ValueError), everyturn.turn() as turn:
        turn.finish(outcome="refused", failure_type="policy_error", error_code="blocked")
        raise ValueError(SECRET)

    (event,) = logs(events, "turn_audit")
    assert (event["outcome"], event["failure_type"]) == ("refused", "policy_error")
    assert event["error_code"] == "blocked"


def test_nested_turns_refuse() -> None:
    """A turn inside of a turn is refused, and the outer one goes on."""
    with everyturn.capture() as events, everyturn.turn() as outer:
        with pytest.raises(InvalidValue), everyturn.turn():
            pass
        with outer.tool("internal", "x"), pytest.raises(InvalidValue), everyturn.turn():
            pass
        assert everyturn.current() is outer

    assert [event["log"] for event in events] == ["tool_calls", "turn_audit"]
    assert everyturn.current() is None


def test_a_turn_is_entered_once() -> None:
    """A turn that was left cannot be entered again."""
    with everyturn.capture() as events:
        with everyturn.turn() as turn:
            pass
        with pytest.raises(InvalidValue), turn:
            pass

    assert len(events) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda: everyturn.turn(turn_id="not-a-uuid"),
        lambda: everyturn.turn(human_review_status="soon"),  # type: ignore[arg-type]
        lambda: everyturn.turn().finish(outcome="fine"),  # type: ignore[arg-type]
        lambda: everyturn.turn().finish(failure_type="bad"),  # type: ignore[arg-type]
        lambda: everyturn.turn().tool("python", "x"),  # type: ignore[arg-type]
        lambda: everyturn.tool("python"),  # type: ignore[arg-type]
        lambda: everyturn.turn().tool("mcp", "x").finish(status="bad"),  # type: ignore[arg-type]
    ],
)
def test_words_outside_of_the_closed_sets_are_refused(call: Any) -> None:
    """A wrong word or id is refused where it is given, without repeating it."""
    with pytest.raises(InvalidValue) as failure:
        call()

    assert failure.value.param is not None


def test_a_turn_left_in_another_context_is_recorded() -> None:
    """A turn that a generator enters in one context and leaves in another is recorded once."""

    def body() -> Any:
        with everyturn.turn():
            yield

    with everyturn.capture() as events:
        work = body()
        contextvars.copy_context().run(next, work)
        with pytest.raises(StopIteration):
            contextvars.copy_context().run(next, work)

    assert len(logs(events, "turn_audit")) == 1


async def one_conversation(number: int) -> str:
    """A turn that gives way to the other tasks wherever it can."""
    with everyturn.turn(chat_id=f"chat-{number}") as turn:
        await asyncio.sleep(0)
        with everyturn.tool("internal", f"tool-{number}") as run:
            await asyncio.sleep(0)
            run.request({"number": number})
            with everyturn.retrieval(query=f"query-{number}"):
                await asyncio.sleep(0)
        assert everyturn.current() is turn
        turn.finish(assistant_text=f"answer-{number}")
    return turn.id


def check_apart(events: list[dict[str, Any]], turn_ids: list[str]) -> None:
    """Each turn has its own tool run and retrieval, and nothing of another turn."""
    assert len(set(turn_ids)) == len(turn_ids)
    by_turn: dict[str, dict[str, dict[str, Any]]] = {}
    for event in events:
        by_turn.setdefault(event["turn_id"], {})[event["log"]] = event
    assert len(events) == 3 * len(turn_ids)
    for number, turn_id in enumerate(turn_ids):
        mine = by_turn[turn_id]
        turn, tool = mine["turn_audit"], mine["tool_calls"]
        search = mine["retrieval_events"]
        assert turn["chat_id"] == f"chat-{number}"
        assert turn["assistant_text"] == f"answer-{number}"
        assert (tool["tool_name"], tool["request_json"]) == (f"tool-{number}", {"number": number})
        assert search["query_text"] == f"query-{number}"
        assert {one["trace_id"] for one in mine.values()} == {turn["trace_id"]}
        assert tool["parent_span_id"] == turn["span_id"]
        assert search["parent_span_id"] == tool["span_id"]
        assert (turn["tool_call_count"], turn["retrieval_count"]) == (1, 1)


async def test_a_thousand_interleaved_tasks_do_not_mix() -> None:
    """Turns of 1,000 tasks that give way to each other hold nothing of one another."""
    with everyturn.capture() as events:
        turn_ids = await asyncio.gather(*map(one_conversation, range(1000)))

    check_apart(events, list(turn_ids))


def test_fifty_threads_do_not_mix(gateway: Receiver) -> None:
    """Turns of 50 threads at the same time hold nothing of one another, and all arrive."""
    barrier = threading.Barrier(50)
    before = everyturn.counters()

    def work(number: int) -> str:
        barrier.wait()
        return asyncio.run(one_conversation(number))

    with ThreadPoolExecutor(50) as pool:
        turn_ids = list(pool.map(work, range(50)))
    assert everyturn.flush(30)
    until(lambda: len(gateway.items) == 150)

    check_apart(gateway.items, turn_ids)
    assert since(before) == {"recorded": 150, "sent": 150}


def test_tools_of_one_turn_may_run_in_many_threads() -> None:
    """Runs that threads open through the turn itself belong to it, and all are counted."""
    with everyturn.capture() as events, everyturn.turn() as turn:

        def work(number: int) -> None:
            with turn.tool("internal", f"tool-{number}"):
                pass

        threads = [
            threading.Thread(target=contextvars.copy_context().run, args=(work, number))
            for number in range(50)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    tools = logs(events, "tool_calls")
    (event,) = logs(events, "turn_audit")
    assert len({tool["tool_name"] for tool in tools}) == 50
    assert {tool["parent_span_id"] for tool in tools} == {turn.span_id}
    assert event["tool_call_count"] == 50


async def test_concurrent_captures_do_not_mix() -> None:
    """Two captures at the same time each hold the records of their own context alone."""

    async def captured(number: int) -> list[dict[str, Any]]:
        with everyturn.capture() as events:
            for _ in range(10):
                with everyturn.turn(chat_id=str(number)):
                    await asyncio.sleep(0)
        return events

    before = everyturn.counters()
    all_events = await asyncio.gather(*map(captured, range(20)))

    for number, events in enumerate(all_events):
        assert [event["chat_id"] for event in events] == [str(number)] * 10
    assert since(before) == {"captured": 200}


async def test_a_task_that_outlives_its_turn_opens_turns_of_its_own() -> None:
    """A task started in a turn may open a turn when that one is over; it has its own trace."""
    go = asyncio.Event()

    async def worker() -> None:
        await go.wait()
        with everyturn.turn(chat_id="later"):
            pass

    with everyturn.capture() as events:
        with everyturn.turn(chat_id="first"):
            task = asyncio.create_task(worker())
        go.set()
        await task

    first, later = logs(events, "turn_audit")
    assert (first["chat_id"], later["chat_id"]) == ("first", "later")
    assert first["trace_id"] != later["trace_id"]
    assert "parent_span_id" not in later
