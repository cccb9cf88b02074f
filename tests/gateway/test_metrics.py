"""`GET /metrics`: counts and sizes, never content."""

from __future__ import annotations

import re
from pathlib import Path

from everyturn.errors import UpstreamTimeout
from everyturn.gateway.call import CallResult
from everyturn.gateway.metrics import BUCKETS_S, Metrics
from everyturn.wire.reply import Choice, Reply
from tests.support.gateway import Running, gateway_and_mock

SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)+)\})? (\S+)')


def samples(text: str) -> dict[str, float]:
    """Every sample of a text in Prometheus' format; fails on a line that has another form."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            assert re.fullmatch(r"# (HELP|TYPE) [a-z_]+ .+", line), line
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        found[line.rpartition(" ")[0]] = float(match[3])
    return found


async def scrape(running: Running) -> dict[str, float]:
    """The gateway's metrics."""
    root = str(running.client.base_url).removesuffix("/v1/")
    answer = await running.client.get(f"{root}/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(answer.text)


async def test_turns_and_requests_are_counted(tmp_path: Path) -> None:
    """Good calls, failures and refused requests each move their counter, with their model."""
    async with gateway_and_mock(tmp_path / "data", upstream_model="plain") as (running, _):
        await running.chat("m")
        await running.chat("m", stream=True)
        await running.chat("nobody")
        found = await scrape(running)

    chat = 'everyturn_http_requests_total{route="/v1/chat/completions",method="POST"'
    assert found[f'{chat},status="200"}}'] == 2
    assert found[f'{chat},status="404"}}'] == 1
    assert found['everyturn_calls_total{model="m",end="ok"}'] == 2
    assert found['everyturn_usage_reports_total{model="m"}'] == 2
    assert found['everyturn_tokens_total{model="m",kind="prompt"}'] > 0
    assert found['everyturn_call_duration_seconds_count{model="m"}'] == 2
    assert found["everyturn_store_writable"] == 1
    assert found["everyturn_unrecorded_turns_total"] == 0
    assert found["everyturn_sync_failures_total"] == 0


async def test_no_content_is_in_the_metrics(tmp_path: Path) -> None:
    """Neither words nor names that a client chose stand in the metrics."""
    async with gateway_and_mock(tmp_path / "data", upstream_model="plain") as (running, _):
        await running.chat("a-name-of-the-client")
        await running.client.get("/a-path-of-the-client")
        root = str(running.client.base_url).removesuffix("/v1/")
        text = (await running.client.get(f"{root}/metrics")).text

    assert "of-the-client" not in text


def test_a_failure_is_counted_by_its_code() -> None:
    """Timeouts and other failures are told apart."""
    metrics = Metrics()
    metrics.call("m", CallResult(failure=UpstreamTimeout("x"), latency_ms=20.0))
    metrics.call("m", CallResult(stream_state="cancelled"))

    found = samples(metrics.text({}).decode())
    assert found['everyturn_calls_total{model="m",end="upstream_timeout"}'] == 1
    assert found['everyturn_calls_total{model="m",end="cancelled"}'] == 1


def test_histograms_are_cumulative() -> None:
    """Each bucket counts what is at most its bound; the last counts all."""
    metrics = Metrics()
    for latency_ms in (5.0, 6.0, 1e9):
        metrics.call("m", CallResult(stream_state="whole", latency_ms=latency_ms))

    found = samples(metrics.text({}).decode())
    name = "everyturn_call_duration_seconds_bucket"
    counts = [found[f'{name}{{model="m",le="{bound:g}"}}'] for bound in BUCKETS_S]
    assert counts == [1, *[2] * (len(BUCKETS_S) - 1)]
    assert found[f'{name}{{model="m",le="+Inf"}}'] == 3


def test_an_answer_that_says_nothing_is_counted() -> None:
    """Finished without content, tool call or refusal; reasoning alone is as empty to a user."""
    metrics = Metrics()
    for choice in (Choice(0), Choice(0, reasoning="hm"), Choice(0, content="a")):
        metrics.call("m", CallResult(stream_state="whole", reply=Reply(choices=[choice])))

    found = samples(metrics.text({}).decode())
    assert found['everyturn_empty_answers_total{model="m"}'] == 2


def test_labels_are_escaped() -> None:
    """A model's name with quotes or line ends cannot break a line."""
    metrics = Metrics()
    metrics.call('a"b\\c\nd', CallResult(stream_state="whole"))

    assert 'model="a\\"b\\\\c\\nd"' in metrics.text({}).decode()
