"""Large chat requests: their messages are cleaned beside the event loop, and rest as all others."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from everyturn.audit.cleaning import Cleaner
from everyturn.audit.redact import Redacted
from tests.gateway.test_lifecycle import until
from tests.gateway.test_records import SECRET, recorded
from tests.support.gateway import HELLO, Running, gateway_and_mock
from tests.support.store_records import bytes_of

LONG = "word " * 60_000


class Held(Cleaner):
    """Cleans; in a thread beside the loop only when it may go."""

    def __init__(self, cleaner: Cleaner) -> None:
        self.__dict__.update(cleaner.__dict__)
        self.may_go = threading.Event()
        self.under_way = self.under_way_max = 0
        self.on_loop: list[int] = []
        """Lengths of the long messages that the loop cleaned itself."""

    def sent(self, raw: bytes, keep: Any = None) -> Redacted[str]:
        """As a cleaner does."""
        if threading.current_thread() is threading.main_thread():
            if len(raw) > len(LONG) and raw not in self._ready:
                self.on_loop.append(len(raw))
            return super().sent(raw, keep)
        self.under_way += 1
        self.under_way_max = max(self.under_way, self.under_way_max)
        try:
            assert self.may_go.wait(30)
            return super().sent(raw, keep)
        finally:
            self.under_way -= 1


async def ask(running: Running, *contents: str) -> Any:
    """An answer to a request with these messages."""
    messages = [{"role": "user", "content": content} for content in contents]
    return await running.client.post("/chat/completions", json={"model": "m", "messages": messages})


async def test_a_large_request_holds_up_no_other(tmp_path: Path) -> None:
    """While a thread cleans one, small requests are answered and a second large one waits."""
    async with gateway_and_mock(tmp_path / "data", upstream_model="plain") as (running, _):
        recording = running.gateway.app._recording
        held = recording.cleaner = Held(recording.cleaner)
        asking = [asyncio.create_task(ask(running, LONG + name)) for name in "ab"]
        try:
            await until(lambda: held.under_way == 1)
            small = await running.client.post(
                "/chat/completions", json={"model": "m", "messages": HELLO}
            )
            during = held.under_way
        finally:
            held.may_go.set()
        answers = await asyncio.gather(*asking)

    assert (small.status_code, during) == (200, 1)
    assert [answer.status_code for answer in answers] == [200, 200]
    assert (held.under_way_max, held.on_loop) == (1, [])


@pytest.mark.parametrize("keep", ["", '[reasoning]\nstore = "keep"'])
async def test_no_secret_of_a_large_request_rests(tmp_path: Path, keep: str) -> None:
    """Messages and the text of the turn are as they were sent but for what was removed."""
    text = f"{LONG}my key is {SECRET}"
    async with gateway_and_mock(tmp_path / "data", upstream_model="plain", extra=keep) as (
        running,
        _,
    ):
        answer = await ask(running, "short", text)
        again = await ask(running, "short", text, f"{SECRET} again")
        turns = [await recorded(running, one) for one in (answer, again)]
        held = bytes_of(tmp_path / "data")

    assert b"FAKEfake" not in held
    for turn in turns:
        short, long = turn["model_calls"][0]["prompt_messages_json"][:2]
        assert short["content"] == "short"
        assert long["content"].startswith(f"{LONG}my key is [redacted:openai_key:")
    assert turns[0]["turn"]["user_text"] == long["content"]
    counts = [turn["model_calls"][0]["redactions_json"] for turn in turns]
    assert counts == [{"openai_key": 1}, {"openai_key": 2}]
