"""What it costs to turn a turn's facts into records: one small call, opened and closed.

    python -m benchmarks.recorder_bench

Microseconds a turn, the fastest of many short runs. `new`: the question was never seen. `known`:
the whole history was. `secret`: question and answer hold a key. Nothing is stored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from everyturn.audit.cleaning import Cleaner
from everyturn.audit.content import ContentIndex
from everyturn.audit.facts import CallClosing, CallOpening, TurnOpening
from everyturn.audit.recorder import TurnRecorder
from everyturn.audit.records import AccessEvent
from everyturn.audit.redact import Redactor
from everyturn.audit.scan import Scanner
from everyturn.presets.load import load_preset
from everyturn.wire.limits import Limits
from everyturn.wire.preset import target_of
from everyturn.wire.reply import Reply
from everyturn.wire.stream import read_whole

KEY = b"k" * 32
TEXT = "Why does the quick brown fox jump over the lazy dog? Please explain it to me. " * 4
KEYED = " my key is sk-test-FAKE1234FAKE1234"
TARGET = target_of(load_preset("deepseek"), name="deepseek-chat")
RUNS = 300
TURNS = 20


def a_reply(text: str) -> Reply:
    """A whole answer with usage."""
    body = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "deepseek-chat",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 12, "total_tokens": 21},
    }
    return read_whole(json.dumps(body).encode(), TARGET, Limits(), choices=1)[0]


class Desk:
    """Records one turn after the other."""

    def __init__(self, text: str, *, is_searched: bool = True) -> None:
        """is_searched: whether texts are searched for secrets, as they always are in a gateway."""
        redactor = Redactor(KEY)
        # One without patterns goes over the text as well, for a microsecond.
        self._cleaner = Cleaner(redactor, KEY, None if is_searched else Scanner([]))
        self._contents = ContentIndex(redactor.version)
        self._reply = a_reply(text)
        self._text = text
        self._count = 0

    def turn(self, *, is_new: bool) -> None:
        """One turn from its facts to its two groups."""
        self._count += 1
        count = self._count
        question = f"{self._text} {count}" if is_new else self._text
        sent: dict[str, Any] = {
            "model": "deepseek-chat",
            "messages": [
                {"role": "system", "content": "You are helpful."},
                {"role": "user", "content": question},
            ],
            "temperature": 0.2,
        }
        recorder = TurnRecorder(
            TurnOpening(turn_id=f"t{count}", timestamp=count, trace_id="a" * 32),
            cleaner=self._cleaner,
            contents=self._contents,
        )
        opening = CallOpening(
            model_call_id=f"c{count}",
            timestamp=count,
            span_id="c" * 16,
            target=TARGET,
            requested_model="deepseek-chat",
            sent=sent,
            stream=False,
        )
        self._contents.confirm(recorder.open_call(opening))
        recorder.close_turn(
            duration_ms=1.2,
            call=CallClosing(
                stream_state="whole", reply=self._reply, status_code=200, latency_ms=1.0
            ),
            access=AccessEvent(access_id=f"a{count}", timestamp=count),
        )


def microseconds(turn: Callable[[], None]) -> float:
    """A turn's cost in the fastest run."""
    best = float("inf")
    for _ in range(RUNS):
        started = time.perf_counter()
        for _ in range(TURNS):
            turn()
        best = min(best, time.perf_counter() - started)
    return best / TURNS * 1e6


def redaction_us() -> float:
    """What searching for secrets adds to a small turn that was never seen, in microseconds."""
    searched, blind = Desk(TEXT), Desk(TEXT, is_searched=False)
    with_search = microseconds(lambda: searched.turn(is_new=True))
    return max(0.0, with_search - microseconds(lambda: blind.turn(is_new=True)))


def main() -> None:
    """Print the figures."""
    clean, secret = Desk(TEXT), Desk(TEXT + KEYED)
    print(f"new:    {microseconds(lambda: clean.turn(is_new=True)):6.1f} us a turn")
    print(f"known:  {microseconds(lambda: clean.turn(is_new=False)):6.1f} us a turn")
    print(f"redaction of a new one: {redaction_us():.1f} us")
    print(f"secret: {microseconds(lambda: secret.turn(is_new=True)):6.1f} us a turn")


if __name__ == "__main__":
    main()
