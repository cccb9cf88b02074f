"""Receivers of records, and senders that are set up for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import everyturn
from everyturn.sdk.process import this_process
from tests.support.receiver import Receiver, a_receiver

LOOKS_MAX = 3000


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that this process does not send to by itself."""
    with a_receiver() as running:
        yield running


@pytest.fixture
def gateway(receiver: Receiver, tmp_path: Path) -> Iterator[Receiver]:
    """A receiver that this process's records go to."""
    before = this_process().given
    everyturn.configure(url=receiver.url, spill_folder=tmp_path / "spill")
    yield receiver
    receiver.always = None
    everyturn.configure(url="http://127.0.0.1:9", spill_folder=tmp_path / "after")
    this_process().given = before


def until(check: Callable[[], object], what: str = "it to be so") -> None:
    """Wait until `check` holds; fails when it does not after many looks.

    Looks are counted, not seconds: a machine that stands still for a while must not fail a test.
    """
    for _ in range(LOOKS_MAX):
        if check():
            return
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {what}")


def since(before: dict[str, int]) -> dict[str, int]:
    """The counters that changed since `before`, by how much."""
    now = everyturn.counters()
    return {name: now[name] - before[name] for name in now if now[name] != before[name]}
