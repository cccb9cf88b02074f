"""The link between gateway and worker is cut, stalled and black-holed, a process at each end.

Whatever it does, every client gets an end, every record says what the client saw, and the model
server, which writes down each call before it answers, runs none of them twice.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.worker_kill import Processes, Tally, flowing, streaming
from tests.support.faulty_wire import a_faulty_wire

IMPATIENT = "timeouts = { connect_ms = 500, first_byte_ms = 1500, idle_ms = 1500 }\n"
STALL_S = 0.5
"""Less than any limit."""
HOLE_S = 2.5
"""More than `idle_ms`, and less than it takes to find that a link is lost."""


async def test_streams_over_a_link_that_breaks(tmp_path: Path) -> None:
    """Resets, pauses, and silence that ends in a reset, one after the other."""
    tally = Tally(streams_min=60)
    processes = Processes(tmp_path, IMPATIENT)
    async with (
        a_faulty_wire(processes.gateway_port) as wire,
        streaming(processes, tally, wire.port),
    ):
        for fault_s in (0.0, STALL_S, HOLE_S) * 2:
            await flowing(tally)
            if fault_s:
                wire.black_hole()
                await asyncio.sleep(fault_s)
            if fault_s != STALL_S:
                wire.cut()
            wire.heal()

    assert tally.endings["done"] >= 10
    assert tally.endings["worker_lost"]
    assert tally.endings["upstream_timeout"]
    assert not tally.faults, tally.faults


@pytest.mark.slow
async def test_a_link_that_is_silent_is_found_out(tmp_path: Path) -> None:
    """Where no limit of the model ends a call, the heartbeat does; then the worker is back."""
    tally = Tally()
    processes = Processes(tmp_path)
    async with (
        a_faulty_wire(processes.gateway_port) as wire,
        streaming(processes, tally, wire.port),
    ):
        await flowing(tally)
        wire.black_hole()
        async with asyncio.timeout(25):
            while not tally.endings["worker_lost"]:
                await asyncio.sleep(0.05)
        wire.heal()
        await flowing(tally)

    assert set(tally.endings) <= {"done", "worker_lost", "worker_unavailable"}
    assert not tally.faults, tally.faults
