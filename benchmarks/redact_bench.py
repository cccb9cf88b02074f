"""How fast secrets are taken out: clean text, code, dense secrets, and hostile texts.

    python -m benchmarks.redact_bench [--seconds 1.0]

Each row: the text's size, microseconds a run (the fastest of the runs, since other work on the
machine only ever slows), and MB/s. `cleaner` is the whole pass that a record makes (reasoning,
media and secrets), `redactor` the secrets alone. Growth says what doubling a hostile text costs: 2
is linear.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

from everyturn.audit.cleaning import Cleaner
from everyturn.audit.redact import Redactor

TEXT = (
    "the gateway keeps every turn of an application whole and on disk so that what was asked and "
    "what came back can be read again please explain how tokens are counted when a message has "
    "keys values and a short list of things to think about before the answer is written down"
)
KEY = b"k" * 32


def prose(size: int, seed: int) -> str:
    """Plain words, a new text for each seed."""
    words = random.Random(seed).choices(TEXT.split(" "), k=size)
    return " ".join(words)[:size]


def code(size: int) -> str:
    """Source code of this package."""
    source = "".join(
        path.read_text()
        for path in sorted((Path(__file__).parent.parent / "src/everyturn/wire").glob("*.py"))
    )
    return (source * (size // len(source) + 1))[:size]


def dense(size: int) -> str:
    """A secret in each line, no two alike."""
    draw = random.Random(7)
    kinds = (
        "export API_KEY='{}'",
        "ghp_{}{}",
        "postgres://app:{}@db/x",
        "Authorization: Bearer {}{}",
        "sk-proj-{}{}",
    )
    lines = [
        draw.choice(kinds).format(f"{draw.getrandbits(80):020x}", f"{draw.getrandbits(80):020x}")
        for _ in range(size // 24)
    ]
    return "\n".join(lines)[:size]


def microseconds(run: Callable[[], object], seconds: float) -> float:
    """The fastest run of as many as fit into `seconds`."""
    best = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - started)
    return best * 1e6


def as_message(text: str) -> bytes:
    """The text as a stored message would hold it."""
    return json.dumps({"role": "user", "content": text}, ensure_ascii=False).encode()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row")
    seconds: float = parser.parse_args().seconds
    redactor = Redactor(KEY, known=["known-value-FAKE-1", "known-value-FAKE-2"])
    cleaner = Cleaner(redactor, KEY)
    rows = {
        "clean, 200 B": as_message(prose(200, 1)),
        "clean, 2 KB": as_message(prose(2000, 2)),
        "clean, 1 MB": as_message(prose(1_000_000, 3)),
        "code, 32 KB": as_message(code(32_000)),
        "base64, 1 MB": as_message(random.Random(4).randbytes(500_000).hex()),
        "dense, 2 KB": as_message(dense(2000)),
        "dense, 1 MB": as_message(dense(1_000_000)),
    }
    print(f"rules: {len(redactor.hints)} patterns, version {redactor.version}")
    print(f"{'text':<16}{'bytes':>10}{'redactor us':>14}{'MB/s':>8}{'cleaner us':>14}{'MB/s':>8}")
    for name, raw in rows.items():
        alone = microseconds(lambda raw=raw: redactor.redact_json(raw), seconds)  # type: ignore[misc]
        whole = microseconds(lambda raw=raw: cleaner.sent(raw), seconds)  # type: ignore[misc]
        size = len(raw)
        print(
            f"{name:<16}{size:>10}{alone:>14.1f}{size / alone:>8.0f}"
            f"{whole:>14.1f}{size / whole:>8.0f}"
        )
    print()
    hostile = {
        "name and no value": "password=",
        "URL without end": "x://a:",
        "key without end": "-----BEGIN PRIVATE KEY-----",
        "header": "Authorization: Bearer ",
        "cookie": "cookie: a=",
        "JWT": "eyJhbGciOiJIUzI1NiJ9.",
        "quotes": '\\"',
        "letters": "a" * 31 + "!",
        "marks": "[redacted:assigned:0123abcd] password=",
        "braces": '{"a":[',
    }
    print(f"{'hostile, 200 KB':<20}{'us':>12}{'MB/s':>8}{'growth':>8}")
    for name, piece in hostile.items():
        text = piece * (200_000 // len(piece))
        once = microseconds(lambda text=text: redactor.redact_text(text), seconds)  # type: ignore[misc]
        twice = microseconds(lambda text=text * 2: redactor.redact_text(text), seconds)  # type: ignore[misc]
        print(f"{name:<20}{once:>12.0f}{len(text) / once:>8.1f}{twice / once:>8.2f}")


if __name__ == "__main__":
    main()
