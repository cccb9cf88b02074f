"""W3C trace context is read strictly and written canonically."""

from __future__ import annotations

import pytest

from everyturn.audit.trace import RANDOM, SAMPLED, TraceContext, fit_state, parse_state, parse_trace

TRACE = "0123456789abcdef0123456789abcdef"
SPAN = "0123456789abcdef"
PARENT = f"00-{TRACE}-{SPAN}-01"


def test_a_context_is_read_and_written() -> None:
    """Ids, flags and state come back as they were."""
    context = parse_trace([PARENT], ["a=1,b@v=2"])

    assert context is not None
    assert (context.trace_id, context.span_id, context.flags) == (TRACE, SPAN, SAMPLED)
    assert context.traceparent == PARENT
    assert context.tracestate == "a=1,b@v=2"
    assert context.child("f" * 16).traceparent == f"00-{TRACE}-{'f' * 16}-01"


MALFORMED = [
    [],
    [PARENT, PARENT],
    [""],
    [PARENT[:-1]],
    [PARENT + "-extra"],
    [PARENT + "."],
    [PARENT.upper()],
    [f"00-{'0' * 32}-{SPAN}-01"],
    [f"00-{TRACE}-{'0' * 16}-01"],
    [f"ff-{TRACE}-{SPAN}-01"],
    [f"cc-{TRACE}-{SPAN}-01x"],
    [f"00_{TRACE}-{SPAN}-01"],
    [f"00-{TRACE[:-1]}g-{SPAN}-01"],
    [f"00-{TRACE}-{SPAN}-0x"],
    [f"0x-{TRACE}-{SPAN}-01"],
]


@pytest.mark.parametrize("headers", MALFORMED)
def test_a_malformed_parent_is_none(headers: list[str]) -> None:
    """Wrong length, letters, version, zero ids and two headers are refused, never repaired."""
    assert parse_trace(headers) is None


def test_later_versions_and_flags() -> None:
    """A later version may add fields after a dash; flags nobody knows are dropped."""
    assert parse_trace([f"01-{TRACE}-{SPAN}-01-what-comes"]) is not None
    context = parse_trace([f" 00-{TRACE}-{SPAN}-ff\t"])
    assert context is not None
    assert context.flags == SAMPLED | RANDOM


STATES: list[tuple[list[str], tuple[tuple[str, str], ...] | None]] = [
    (["a=1", "b=2"], (("a", "1"), ("b", "2"))),
    ([" a=1 ,\tb=2 ,,"], (("a", "1"), ("b", "2"))),
    (["a=x y"], (("a", "x y"),)),
    (["0t@v=1"], (("0t@v", "1"),)),
    (["a-_*/=1"], (("a-_*/", "1"),)),
    ([""], ()),
    (["a=1,b=3,a=2", "a=4"], (("a", "1"), ("b", "3"))),
    (["a@=1,b@c@@d=2"], (("a@", "1"), ("b@c@@d", "2"))),
    (["a=  1"], (("a", "  1"),)),
    (["A=1"], None),
    (["a =1"], None),
    (["a"], None),
    (["a="], None),
    (["=1"], None),
    (["a=1=2"], None),
    (["a=é"], None),
    (["@v=1"], None),
    (["_a=1"], None),
    (["a.b=1"], None),
    (["a" * 256 + "=1"], (("a" * 256, "1"),)),
    (["a" * 257 + "=1"], None),
    (["t" * 242 + "@" + "v" * 13 + "=1"], (("t" * 242 + "@" + "v" * 13, "1"),)),
    (["a=" + "x" * 256], (("a", "x" * 256),)),
    (["a=" + "x" * 257], None),
    ([",".join(["a=1"] * 33)], None),
    ([",".join(f"k{n}=1" for n in range(32))], tuple((f"k{n}", "1") for n in range(32))),
    ([",".join(f"k{n}=1" for n in range(33))], None),
]


@pytest.mark.parametrize("headers, members", STATES)
def test_state_is_read_by_the_grammar(
    headers: list[str], members: tuple[tuple[str, str], ...] | None
) -> None:
    """Members in order over all headers; anything malformed makes the list None."""
    assert parse_state(headers) == members


def test_a_malformed_state_leaves_the_parent() -> None:
    """The trace goes on without the state."""
    context = parse_trace([PARENT], ["a=1,B=2"])

    assert context is not None
    assert (context.traceparent, context.state) == (PARENT, ())
    assert context.tracestate is None


def test_state_that_is_too_long_loses_whole_members() -> None:
    """Long members go first, then the oldest, until 512 characters are left."""
    long = ("long", "x" * 200)
    short = tuple((f"k{n:02}", "y" * 16) for n in range(24))

    assert fit_state((long, *short[:3])) == (long, *short[:3])
    fitted = fit_state((long, *short))
    assert long not in fitted
    assert fitted == short[: len(fitted)]
    context = TraceContext(trace_id=TRACE, span_id=SPAN, state=(long, *short))
    assert context.tracestate == ",".join(f"{key}={value}" for key, value in fitted)
    assert len(context.tracestate) <= 512


def test_state_of_exactly_512_characters_is_sent_whole() -> None:
    """The limit itself fits; one more character does not."""
    state = tuple((f"k{n:02}", "y" * 28) for n in range(15))
    whole = TraceContext(trace_id=TRACE, span_id=SPAN, state=(*state, ("z", "y" * 15)))
    longer = TraceContext(trace_id=TRACE, span_id=SPAN, state=(*state, ("z", "y" * 16)))

    assert whole.tracestate is not None
    assert len(whole.tracestate) == 512
    assert fit_state(longer.state) == state
