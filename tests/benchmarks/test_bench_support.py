"""The benchmark reads what wrk and /proc say as they mean it; nothing here is about speed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.load import (
    NUMBER_DIGITS,
    Figures,
    LoadFailed,
    parse_figures,
    request_body,
    wrk_script,
)
from benchmarks.machine import cpu_seconds, free_port, resident_bytes, running
from benchmarks.report import BEGIN, DOCS, END, between_markers
from benchmarks.results import Results
from benchmarks.rows import gateway_config
from benchmarks.storage import made_up_text, stored_bytes
from everyturn.config import read_config

WRK_OUTPUT = """\
Running 2s test @ http://127.0.0.1:9301/v1/chat/completions
  1 threads and 32 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.14ms    3.01ms  20.02ms   88.12%
  5000 requests in 2.00s, 5.10MB read
Requests/sec:   2500.00
figures {"requests":5000,"duration_us":2000000,"bytes":5347737,"errors":{"connect":0,"read":0,\
"write":0,"status":2,"timeout":1},"p50_us":640,"p99_us":12900,"max_us":20020}
"""


def figures(per_second: int, p50_us: float) -> Figures:
    """A run of one second."""
    return Figures(
        requests=per_second, duration_s=1.0, p50_us=p50_us, p99_us=p50_us * 2, errors={"read": 0}
    )


def test_figures_of_wrk_are_read() -> None:
    """Rate, latencies and the count of errors stand in the line that the script prints."""
    read = parse_figures(WRK_OUTPUT)

    assert read.per_second == 2500.0
    assert (read.p50_us, read.p99_us) == (640, 12900)
    assert read.errors_count == 3


@pytest.mark.parametrize(
    "output",
    [
        "unable to connect to 127.0.0.1:1 Connection refused\n",
        WRK_OUTPUT.replace('"requests":5000', '"requests":0'),
    ],
)
def test_a_run_without_answers_is_no_figure(output: str) -> None:
    """wrk that reached nobody gives a failure, not a rate of zero."""
    with pytest.raises(LoadFailed):
        parse_figures(output)


def test_every_request_of_a_script_is_whole() -> None:
    """The script's parts and a number make a request whose length is the one its head says."""
    script = wrk_script(8080, "/v1/chat/completions", model="bench", is_stream=True, first=7)
    parts = script.partition("\n")[0].partition(" = ")[2]
    head, before, after = json.loads(f"[{parts}]")
    body = before + "7".zfill(NUMBER_DIGITS) + after

    assert f"content-length: {len(body)}\r\n\r\n" in head
    assert body == request_body("7".zfill(NUMBER_DIGITS), model="bench", is_stream=True)
    assert json.loads(body)["stream"] is True


def test_cpu_time_is_read_behind_any_name() -> None:
    """User and system time are the 14th and 15th field, whatever the process calls itself."""
    ticks = os.sysconf("SC_CLK_TCK")
    fields = ["R", *map(str, range(4, 14)), str(3 * ticks), str(ticks // 2), "0", "0", "20"]

    assert cpu_seconds("42 (a (b) c) " + " ".join(fields)) == 3.5


def test_resident_memory_is_read() -> None:
    """VmRSS stands in KiB; a process without memory of its own is no figure."""
    assert resident_bytes("Name:\tx\nVmRSS:\t   1024 kB\nThreads:\t1\n") == 1024 * 1024
    with pytest.raises(ValueError, match="VmRSS"):
        resident_bytes("Name:\tkthreadd\nThreads:\t1\n")


def test_a_process_is_measured_and_ended() -> None:
    """A program has CPU time and memory while it runs, and is gone when the block is left."""
    core = min(os.sched_getaffinity(0))
    with running([sys.executable, "-c", "while True: pass"], core=core) as process:
        until = time.monotonic() + 20
        while process.cpu_s() == 0 and time.monotonic() < until:
            time.sleep(0.01)
        used, resident = process.cpu_s(), process.resident_bytes()

    assert used > 0
    assert resident > 1_000_000
    assert not process.is_running()


def test_ratios_are_taken_within_a_round() -> None:
    """A round in which the machine was busy does not bend the ratio of two rows."""
    results = Results(load_before=0.0, rounds=3)
    for factor in (1, 10, 2):
        results.add("one", "whole_1", figures(100 * factor, 900.0 / factor), 0.5)
        results.add("two", "whole_1", figures(400 * factor, 300.0 / factor), 0.5)

    assert results.ratio("one", "two", "whole_1", "per_second") == 0.25
    assert results.added("one", "two", "whole_1", "p50_us") == 300.0
    assert results.median("one", "whole_1", "cpu_us") == 2500.0


def test_the_page_has_a_place_for_figures() -> None:
    """Figures go between the markers of the page and replace those that stood there."""
    page = DOCS.read_text(encoding="utf-8")

    once = between_markers(page, "FIGURES-1")
    twice = between_markers(once, "FIGURES-2")

    assert "FIGURES-1" in once
    assert "FIGURES-1" not in twice
    assert twice.count(BEGIN) == twice.count(END) == 1
    with pytest.raises(ValueError, match="markers"):
        between_markers("no place", "figures")


def test_the_gateway_of_the_benchmark_has_default_settings() -> None:
    """Nothing is set but where the record is and whether there is one."""
    on, off = (
        read_config(
            gateway_config(1, 2, is_recorded=is_recorded, data=Path("data")),
            "bench.toml",
            {"BENCH_API_KEY": "sk-test-FAKE"},
        )
        for is_recorded in (True, False)
    )

    assert on.records
    assert not off.records
    assert on.durability == "process"
    assert [model.target.name for model in on.models] == ["bench", "bench-slow"]


def test_stored_bytes_counts_every_file(tmp_path: Path) -> None:
    """The size of a record is that of all its files, folders included."""
    (tmp_path / "a").write_bytes(b"x" * 10)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b").write_bytes(b"y" * 5)

    assert stored_bytes(tmp_path) == 15


def test_a_free_port_can_be_had() -> None:
    """A port that is said to be free can be listened on."""
    code = "import socket, sys; socket.create_server(('127.0.0.1', int(sys.argv[1])))"

    subprocess.run([sys.executable, "-c", code, str(free_port())], check=True, timeout=20)


def test_made_up_text_has_its_size() -> None:
    """Texts of the conversation have the size they should and differ."""
    draw = random.Random(1)
    texts = {made_up_text(draw, 1024) for _ in range(20)}

    assert len(texts) == 20
    assert {len(text.encode()) for text in texts} == {1024}
