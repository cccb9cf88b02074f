"""Counts for operators, as Prometheus reads them: no content, no ids, no names that clients choose.

Labels come from closed sets: routes, configured models, error codes. The text format is a page of
its own specification, and the usual client library takes longer to import than the rest of the
gateway; so it is written here.
Source: Prometheus documentation, "Exposition formats", text format 0.0.4.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any, Final

from everyturn.audit.schema import LOG_NAMED
from everyturn.gateway.call import CallResult
from everyturn.wire.reply import Reply

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

# In two parts: compiled, a tuple of plain numbers is built anew wherever it is used.
BUCKETS_S: Final[tuple[float, ...]] = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1, 2.5, 5, 10, 30, 60, 120, 300),
)
"""Upper bounds of the histograms, in seconds: from a cache's answer to a long thought."""

Labels = tuple[tuple[str, str], ...]


class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total += seconds


class _Calls:
    """What is counted of the calls to one model."""

    __slots__ = ("durations", "empty", "ends", "first_tokens", "tokens", "usage_reports")

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.durations = _Histogram()
        self.first_tokens: _Histogram | None = None
        self.tokens: dict[str, int] = {}
        self.usage_reports = 0
        self.empty = 0


class Metrics:
    """Counters of one gateway since it started."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, int | None], int] = {}
        self._models: dict[str, _Calls] = {}
        self._records: dict[Labels, int] = {}
        self._tools: dict[Labels, int] = {}

    def request(self, *, route: str, method: str, status: int | None) -> None:
        """Count an HTTP request; status None: the client left before an answer."""
        shown = method if method in ("GET", "POST") else "other"
        key = (route, shown, status)
        self._requests[key] = self._requests.get(key, 0) + 1

    def call(self, model: str, result: CallResult) -> None:
        """Count a call that ended."""
        calls = self._models.get(model)
        if calls is None:
            calls = self._models[model] = _Calls()
        end = _end(result)
        calls.ends[end] = calls.ends.get(end, 0) + 1
        calls.durations.add(result.latency_ms / 1000)
        if result.time_to_first_token_ms is not None:
            if calls.first_tokens is None:
                calls.first_tokens = _Histogram()
            calls.first_tokens.add(result.time_to_first_token_ms / 1000)
        reply = result.reply
        if reply is None:
            return
        if result.failure is None and _is_empty(reply):
            calls.empty += 1
        if isinstance(reply.usage, dict):
            calls.usage_reports += 1
            _add(calls.tokens, "prompt", reply.usage.get("prompt_tokens"))
            _add(calls.tokens, "completion", reply.usage.get("completion_tokens"))

    def record(self, item: Any, *, is_accepted: bool) -> None:
        """Count a record that an application sent; one that came before counts again."""
        log = item.get("log") if isinstance(item, dict) else None
        shown = log if isinstance(log, str) and log in LOG_NAMED else "unknown"
        labels = (("log", shown), ("result", "accepted" if is_accepted else "refused"))
        self._records[labels] = self._records.get(labels, 0) + 1
        if is_accepted and shown == "tool_calls":
            status = (("status", str(item["status"])),)
            self._tools[status] = self._tools.get(status, 0) + 1

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> bytes:
        """All metrics in Prometheus' text format.

        gauges: name → (help, value), for what others know at this moment.
        """
        lines = [*self._counters(), *self._histograms()]
        for name, (meaning, value) in gauges.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", f"{name} {value:g}"]
        return "\n".join([*lines, ""]).encode()

    def _counters(self) -> Iterator[str]:
        requests: dict[Labels, int] = {
            (("route", route), ("method", method), ("status", str(status or "none"))): count
            for (route, method, status), count in self._requests.items()
        }
        ends: dict[Labels, int] = {}
        tokens: dict[Labels, int] = {}
        usage_reports: dict[Labels, int] = {}
        empty: dict[Labels, int] = {}
        for model, calls in self._models.items():
            by_model = ("model", model)
            ends.update({(by_model, ("end", end)): n for end, n in calls.ends.items()})
            tokens.update({(by_model, ("kind", kind)): n for kind, n in calls.tokens.items()})
            if calls.usage_reports:
                usage_reports[by_model,] = calls.usage_reports
            if calls.empty:
                empty[by_model,] = calls.empty
        for name, meaning, counts in (
            ("http_requests", "HTTP requests answered.", requests),
            ("calls", "Calls to providers, by how they ended.", ends),
            ("tokens", "Tokens that providers reported.", tokens),
            ("usage_reports", "Calls whose provider reported usage.", usage_reports),
            ("empty_answers", "Answers without content, tool call or refusal.", empty),
            ("records", "Records that applications sent, by log.", self._records),
            ("tool_calls", "Runs of tools that applications recorded, by status.", self._tools),
        ):
            yield f"# HELP everyturn_{name}_total {meaning}"
            yield f"# TYPE everyturn_{name}_total counter"
            for labels, count in sorted(counts.items()):
                yield f"everyturn_{name}_total{_labels(labels)} {count}"

    def _histograms(self) -> Iterator[str]:
        durations = {model: calls.durations for model, calls in self._models.items()}
        first_tokens = {
            model: calls.first_tokens
            for model, calls in self._models.items()
            if calls.first_tokens is not None
        }
        for name, meaning, known in (
            ("call_duration", "From the start of a call to its end.", durations),
            ("first_token", "From the start of a call to its first text.", first_tokens),
        ):
            yield f"# HELP everyturn_{name}_seconds {meaning}"
            yield f"# TYPE everyturn_{name}_seconds histogram"
            for model, histogram in sorted(known.items()):
                yield from _series(f"everyturn_{name}_seconds", model, histogram)


def _series(name: str, model: str, histogram: _Histogram) -> Iterator[str]:
    count = 0
    for bound, within in zip((*BUCKETS_S, None), histogram.counts, strict=True):
        count += within
        le = "+Inf" if bound is None else f"{bound:g}"
        yield f"{name}_bucket{_labels((('model', model), ('le', le)))} {count}"
    yield f"{name}_sum{_labels((('model', model),))} {histogram.total:.6f}"
    yield f"{name}_count{_labels((('model', model),))} {count}"


def _end(result: CallResult) -> str:
    if result.failure is not None:
        return result.failure.code
    return "cancelled" if result.stream_state == "cancelled" else "ok"


def _add(counts: dict[str, int], kind: str, count: Any) -> None:
    """Add a count that is one."""
    if type(count) is int and count >= 0:
        counts[kind] = counts.get(kind, 0) + count


def _is_empty(reply: Reply) -> bool:
    """Whether an answer that ended well says nothing at all."""
    for choice in reply.choices:
        if choice.content or choice.content_items or choice.tool_calls or choice.refusal:
            return False
        if choice.values.get("function_call"):
            return False
    return True


def _labels(labels: Labels) -> str:
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{told}}}" if told else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
