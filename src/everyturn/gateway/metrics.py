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

BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
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


class Metrics:
    """Counters of one gateway since it started."""

    def __init__(self) -> None:
        self._requests: dict[Labels, int] = {}
        self._calls: dict[Labels, int] = {}
        self._durations: dict[str, _Histogram] = {}
        self._first_tokens: dict[str, _Histogram] = {}
        self._tokens: dict[Labels, int] = {}
        self._usage_reports: dict[Labels, int] = {}
        self._empty: dict[Labels, int] = {}
        self._records: dict[Labels, int] = {}
        self._tools: dict[Labels, int] = {}

    def request(self, *, route: str, method: str, status: int | None) -> None:
        """Count an HTTP request; status None: the client left before an answer."""
        shown = method if method in ("GET", "POST") else "other"
        labels = (("route", route), ("method", shown), ("status", str(status or "none")))
        self._requests[labels] = self._requests.get(labels, 0) + 1

    def call(self, model: str, result: CallResult) -> None:
        """Count a call that ended."""
        by_model = (("model", model),)
        labels = (*by_model, ("end", _end(result)))
        self._calls[labels] = self._calls.get(labels, 0) + 1
        self._histogram(self._durations, model).add(result.latency_ms / 1000)
        if result.time_to_first_token_ms is not None:
            self._histogram(self._first_tokens, model).add(result.time_to_first_token_ms / 1000)
        reply = result.reply
        if reply is None:
            return
        if result.failure is None and _is_empty(reply):
            self._empty[by_model] = self._empty.get(by_model, 0) + 1
        if isinstance(reply.usage, dict):
            self._usage(by_model, reply.usage)

    def record(self, item: Any, *, is_accepted: bool) -> None:
        """Count a record that an application sent; one that came before counts again."""
        log = item.get("log") if isinstance(item, dict) else None
        shown = log if isinstance(log, str) and log in LOG_NAMED else "unknown"
        labels = (("log", shown), ("result", "accepted" if is_accepted else "refused"))
        self._records[labels] = self._records.get(labels, 0) + 1
        if is_accepted and shown == "tool_calls":
            status = (("status", str(item["status"])),)
            self._tools[status] = self._tools.get(status, 0) + 1

    def _usage(self, by_model: Labels, usage: Mapping[str, Any]) -> None:
        self._usage_reports[by_model] = self._usage_reports.get(by_model, 0) + 1
        for kind in ("prompt", "completion"):
            count = usage.get(f"{kind}_tokens")
            if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
                labels = (*by_model, ("kind", kind))
                self._tokens[labels] = self._tokens.get(labels, 0) + count

    @staticmethod
    def _histogram(known: dict[str, _Histogram], model: str) -> _Histogram:
        found = known.get(model)
        if found is None:
            found = known[model] = _Histogram()
        return found

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
        for name, meaning, counts in (
            ("http_requests", "HTTP requests answered.", self._requests),
            ("calls", "Calls to providers, by how they ended.", self._calls),
            ("tokens", "Tokens that providers reported.", self._tokens),
            ("usage_reports", "Calls whose provider reported usage.", self._usage_reports),
            ("empty_answers", "Answers without content, tool call or refusal.", self._empty),
            ("records", "Records that applications sent, by log.", self._records),
            ("tool_calls", "Runs of tools that applications recorded, by status.", self._tools),
        ):
            yield f"# HELP everyturn_{name}_total {meaning}"
            yield f"# TYPE everyturn_{name}_total counter"
            for labels, count in sorted(counts.items()):
                yield f"everyturn_{name}_total{_labels(labels)} {count}"

    def _histograms(self) -> Iterator[str]:
        for name, meaning, known in (
            ("call_duration", "From the start of a call to its end.", self._durations),
            ("first_token", "From the start of a call to its first text.", self._first_tokens),
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


def _is_empty(reply: Reply) -> bool:
    """Whether an answer that ended well says nothing at all."""
    return not any(
        choice.content
        or choice.content_items
        or choice.tool_calls
        or choice.refusal
        or choice.values.get("function_call")
        for choice in reply.choices
    )


def _labels(labels: Labels) -> str:
    told = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{told}}}" if told else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
