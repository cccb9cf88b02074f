"""How long the gateway takes from its start to the first answered turn."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.machine import free_port, running
from benchmarks.rows import (
    GATEWAY_ENVIRONMENT,
    Row,
    Upstream,
    gateway_command,
    gateway_config,
    wait_for_answer,
)


def measure(folder: Path, source: Upstream, core: int, *, times: int) -> list[float]:
    """Seconds of each start, each with a new record. The first also compiles what was not yet."""
    place = folder / "starts"
    place.mkdir()
    taken: list[float] = []
    for number in range(times + 1):
        config = place / f"{number}.toml"
        config.write_text(
            gateway_config(
                source.port, source.slow_port, is_recorded=True, data=place / f"data-{number}"
            )
        )
        port = free_port()
        started = time.perf_counter()
        with running(
            gateway_command(config, port), core=core, environment=GATEWAY_ENVIRONMENT
        ) as process:
            wait_for_answer(Row("everyturn", port, process), pause_s=0.002)
            taken.append(time.perf_counter() - started)
    return taken[1:]
