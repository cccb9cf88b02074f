"""The sender: batches, retries, bounds, and an account of every record."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from everyturn.sdk.counting import Counters
from everyturn.sdk.sender import Sender
from everyturn.sdk.settings import Settings
from tests.sdk.conftest import until
from tests.support.receiver import Receiver, Reply

UNCOUNTED = ("retries", "payload_not_spilled", "spill_sent", "spill_refused")


class Sending:
    """A sender with its counters."""

    def __init__(self, url: str, folder: Path, **given: Any) -> None:
        self.folder = folder
        self.counters = Counters()
        self.sender = Sender(Settings(url=url, spill_folder=folder, **given), self.counters)

    def put(self, count: int, *, notes: str = "n", start: int = 0) -> None:
        for number in range(start, start + count):
            self.sender.put(a_review(number, notes))

    def count(self, name: str) -> int:
        return self.counters.snapshot()[name]

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*")) if self.folder.exists() else []

    def check_account(self) -> None:
        """Every record that was made is sent, refused, spilled, dropped or waiting."""
        now = self.counters.snapshot()
        ends = ("sent", "refused", "spilled", "records_failed")
        known = sum(now[name] for name in now if name in ends or name.startswith("dropped_"))
        assert now["recorded"] == known + self.sender.sizes()[0]


def a_review(number: int, notes: str = "n") -> bytes:
    """A record whose id is its number."""
    record = {
        "log": "quality_reviews",
        "review_id": f"rev_{number}",
        "turn_id": "7c0f9a52-3b1f-4c58-9a5e-8f3f5d1d2c11",
        "review_source": "human",
        "notes": notes,
        "created_at": 1_800_000_000_000_000,
    }
    return json.dumps(record).encode()


@pytest.fixture
def sending(receiver: Receiver, tmp_path: Path) -> Any:
    """A sender to the receiver; closed at the end."""
    made: list[Sending] = []

    def make(**given: Any) -> Sending:
        made.append(Sending(given.pop("url", receiver.url), tmp_path / "spill", **given))
        return made[-1]

    yield make
    receiver.always = None
    for one in made:
        one.sender.close(5)
        one.check_account()


def test_records_travel_in_batches(receiver: Receiver, sending: Any) -> None:
    """Many records need few requests, none of which holds more than the contract allows."""
    one = sending()

    one.put(2500)
    assert one.sender.flush(30)

    assert len(receiver.items) == 2500
    assert 3 <= len(receiver.requests) <= 10
    assert all(len(json.loads(raw)["records"]) <= 1000 for _, raw in receiver.requests)
    assert one.count("sent") == 2500
    assert one.files() == []


def test_the_key_travels_in_the_header(receiver: Receiver, sending: Any) -> None:
    """Requests carry the key, and say who sends them."""
    one = sending(api_key="et_test_FAKE")

    one.put(1)
    assert one.sender.flush(30)

    headers, _ = receiver.requests[0]
    assert headers["authorization"] == "Bearer et_test_FAKE"
    assert headers["user-agent"].startswith("everyturn-python/")


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
def test_a_gateway_that_cannot_take_records_is_asked_again(
    status: int, receiver: Receiver, sending: Any
) -> None:
    """After an answer that may be different next time the same records are sent again."""
    one = sending()
    receiver.replies = [Reply(status)]

    one.put(3)
    until(lambda: len(receiver.items) == 3)
    until(lambda: one.count("sent") == 3)

    assert one.count("retries") == 1
    first, second = (raw for _, raw in receiver.requests)
    assert first == second


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"accepted": 9, "refused": []}', b"[]"])
def test_an_answer_that_is_not_a_gateways_delivers_nothing(
    body: bytes, receiver: Receiver, sending: Any
) -> None:
    """A 200 that does not account for the records is no delivery."""
    one = sending()
    receiver.replies = [Reply(200, body=body)]

    one.put(3)
    until(lambda: one.count("sent") == 3)

    assert one.count("retries") == 1
    assert len(receiver.items) == 3


def test_retry_after_is_honoured(receiver: Receiver, sending: Any) -> None:
    """No request comes before the time that the gateway named, not even in a hurry."""
    one = sending()
    receiver.replies = [Reply(429, headers={"retry-after": "1.5"})]
    started = time.monotonic()

    one.put(1)
    until(lambda: receiver.requests)
    until(lambda: one.count("sent") == 1)

    assert time.monotonic() - started >= 1.5
    assert len(receiver.requests) == 2


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_request_that_is_refused_is_lost_and_counted(
    status: int, receiver: Receiver, sending: Any
) -> None:
    """What the gateway refuses for its key or its path is not sent again."""
    one = sending()
    receiver.replies = [Reply(status)]

    one.put(4)
    until(lambda: one.count("dropped_rejected") == 4)
    one.put(1, start=9)
    until(lambda: one.count("sent") == 1)

    assert len(receiver.requests) == 2


def test_one_bad_record_does_not_take_the_others_with_it(receiver: Receiver, sending: Any) -> None:
    """Where a record spoils its request, it alone is lost."""
    one = sending()

    one.put(20)
    one.sender.put(b'{"log":"quality_reviews","notes":NaN}')
    one.put(20, start=20)
    assert one.sender.flush(30)

    assert len(receiver.items) == 40
    assert one.count("dropped_rejected") == 1
    assert one.count("sent") == 40


def test_records_that_are_refused_are_counted_and_logged(
    receiver: Receiver, sending: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What the gateway refuses of a batch is counted and named in the log; the rest is sent."""
    one = sending()
    receiver.refuse = lambda item: item["review_id"] == "rev_1"

    one.put(3, notes="private words")
    assert one.sender.flush(30)

    assert (one.count("sent"), one.count("refused")) == (2, 1)
    assert caplog.messages == ["the gateway refused a record: invalid_value `notes`"]


def test_a_full_queue_drops_and_counts_and_never_waits(receiver: Receiver, sending: Any) -> None:
    """While the gateway does not answer, `put` returns at once; what does not fit is counted."""
    go = threading.Event()
    receiver.always = Reply(503, until=go)
    one = sending(queue_bytes_max=20_000)

    one.put(1000)

    assert one.count("recorded") == 1000
    assert one.count("dropped_queue_full") > 800
    assert one.sender.sizes()[1] <= 20_000
    receiver.always = None
    go.set()
    until(lambda: one.sender.sizes()[0] == 0)
    one.check_account()


def test_a_record_larger_than_the_queue_is_counted(receiver: Receiver, sending: Any) -> None:
    """A record that can never fit is dropped by itself."""
    one = sending(queue_bytes_max=2000)

    one.put(1, notes="n" * 3000)
    one.put(1, start=1)
    assert one.sender.flush(30)

    assert (one.count("dropped_too_large"), one.count("sent")) == (1, 1)


def test_a_connection_that_was_closed_meanwhile_is_opened_again(
    receiver: Receiver, sending: Any
) -> None:
    """A gateway that restarts between two batches is not away."""
    one = sending()
    one.put(1)
    assert one.sender.flush(30)
    receiver.stop()
    receiver.start()

    one.put(1, start=1)
    until(lambda: one.count("sent") == 2)

    assert one.files() == []


def test_a_sender_that_was_closed_spills(receiver: Receiver, sending: Any) -> None:
    """What is recorded behind the end goes to the spill file."""
    one = sending()
    one.put(1)
    one.sender.close(5)

    one.put(1, start=1)

    assert (one.count("sent"), one.count("spilled")) == (1, 1)


def test_closing_does_not_wait_for_a_gateway_that_hangs(receiver: Receiver, sending: Any) -> None:
    """The end waits as long as it may; then everything is in the spill file."""
    go = threading.Event()
    receiver.always = Reply(503, until=go)
    one = sending()
    one.put(5)
    until(lambda: receiver.requests)

    started = time.monotonic()
    one.sender.close(0.3)

    assert time.monotonic() - started < 10
    assert one.count("spilled") == 5
    go.set()
