"""Records a second through `POST /v1/records`, and whether `kill -9` loses one that was accepted.

    python -m benchmarks.records_bench [--seconds 10] [--kills 5] [--senders 4] [--batch 100]

Senders post batches as the SDK does: turns of five records each (a request, a retrieval with eight
sources, two tool runs, the turn itself), every id new. The gateway is `everyturn serve` as it is
installed. It runs `--seconds` for the rate; then it is killed at random moments under the same load
and started again, and every record that was accepted must be in the store once, with what was sent.
The mark is 3,000 a second. Exit status 1 if anything was lost or changed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import apsw

from benchmarks.kill import start_gateway
from everyturn import ids

MARK: Final = 3_000
RECORDS_OF_A_TURN: Final = 5
TEXT: Final = "Your order left the warehouse this morning and arrives tomorrow before noon. " * 8
IDS: Final = {
    "access_events": "access_id",
    "retrieval_events": "retrieval_id",
    "tool_calls": "tool_call_id",
    "turn_audit": "turn_id",
}
CHANGED: Final = {"tool_calls": "error_code", "turn_audit": "variant"}
"""Log → a field with a value of each record's own, to see that it is the one that was sent."""


@dataclass(slots=True)
class Tally:
    """What the gateway answered for."""

    accepted: dict[str, dict[str, str | None]] = field(
        default_factory=lambda: {log: {} for log in IDS}
    )
    """Log → id → the value of the record's own."""
    refused: int = 0
    broken: int = 0
    """Requests that broke off; what they held may be stored or not."""
    count: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """How much load, how long, how often killed."""

    seconds: float = 10.0
    kills: int = 5
    senders: int = 4
    batch: int = 100


def a_turn(number: int) -> list[dict[str, Any]]:
    """The records of one turn, as the SDK sends them."""
    turn_id = ids.generate_turn_id()
    now = time.time_ns() // 1000
    bits = now << 64 | random.getrandbits(64)
    of_turn = {"turn_id": turn_id, "trace_id": f"{bits:032x}", "span_id": f"{number + 1:016x}"}
    mark = f"e{number}"
    hits = [{"rank": rank, "score": 1 / rank, "source": TEXT[:200]} for rank in range(1, 9)]
    tools = [
        {
            "log": "tool_calls",
            "tool_call_id": ids.record_id("tool", bits + at),
            **of_turn,
            "timestamp": now,
            "tool_family": "mcp",
            "tool_name": "get_order",
            "request_json": {"id": number},
            "response_json": {"state": "sent", "text": TEXT},
            "status": "ok",
            "error_code": mark,
            "duration_ms": 12.5,
        }
        for at in range(2)
    ]
    return [
        {
            "log": "retrieval_events",
            "retrieval_id": ids.record_id("ret", bits),
            **of_turn,
            "timestamp": now,
            "query_text": TEXT[:80],
            "top_k": 8,
            "sources_json": hits,
        },
        *tools,
        {
            "log": "turn_audit",
            **of_turn,
            "timestamp": now,
            "chat_id": "c1",
            "user_text": TEXT,
            "assistant_text": TEXT,
            "outcome": "success",
            "duration_ms": 800.0,
            "tool_call_count": 2,
            "retrieval_count": 1,
            "variant": mark,
        },
        {
            "log": "access_events",
            "access_id": ids.record_id("acc", bits),
            **of_turn,
            "timestamp": now,
            "service": "shop",
            "method": "POST",
            "path_template": "/ask",
            "status_code": 200,
        },
    ]


async def send(port: int, batch: int, tally: Tally, until: float) -> None:
    """Post batches on one connection until the time is up or it breaks."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return
    try:
        while time.perf_counter() < until:
            records = [
                record
                for _ in range(batch // RECORDS_OF_A_TURN)
                for record in a_turn(random.getrandbits(40))
            ]
            body = json.dumps({"records": records}).encode()
            writer.write(
                b"POST /v1/records HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json"
                b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            await writer.drain()
            answer = await _answer(reader)
            tally.refused += len(answer["refused"])
            bad = {one["index"] for one in answer["refused"]}
            for index, record in enumerate(records):
                if index not in bad:
                    log = record["log"]
                    own = CHANGED.get(log)
                    tally.accepted[log][record[IDS[log]]] = record[own] if own else None
            tally.count += answer["accepted"]
    except (OSError, asyncio.IncompleteReadError, ValueError):
        tally.broken += 1
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    body: dict[str, Any] = json.loads(await reader.readexactly(length))
    if "accepted" not in body:
        raise ValueError("the gateway refused a request")
    return body


def lost_of(data: Path, tally: Tally) -> tuple[int, int]:
    """How many accepted records are missing, and how many say something else than was sent."""
    db = apsw.Connection(str(data / "everyturn.db"), flags=apsw.SQLITE_OPEN_READONLY)
    missing = changed = 0
    for log, id_column in IDS.items():
        own = CHANGED.get(log, "NULL")
        stored = dict(db.execute(f"SELECT {id_column}, {own} FROM {log}"))  # noqa: S608 - names above
        for key, value in tally.accepted[log].items():
            if key not in stored:
                missing += 1
            elif stored[key] != value:
                changed += 1
    db.close()
    return missing, changed


async def _load(port: int, plan: Plan, tally: Tally, seconds: float) -> None:
    until = time.perf_counter() + seconds
    await asyncio.gather(*(send(port, plan.batch, tally, until) for _ in range(plan.senders)))


async def run(plan: Plan, data: Path) -> tuple[Tally, float, float]:
    """Load for the rate, then kills under load; what was accepted, records a second, and CPU time
    of the gateway a record in microseconds. The record stays in `data`."""
    config = data.with_name("records.toml")
    config.write_text(
        f'[gateway]\nport = 0\ndata = "{data}"\n[[models]]\nname = "m"\npreset = "openai-chat"\n',
        "utf-8",
    )
    tally = Tally()
    process, port = await start_gateway(config)
    begun, cpu = time.perf_counter(), _cpu_s(process.pid)
    await _load(port, plan, tally, plan.seconds)
    took, used = time.perf_counter() - begun, _cpu_s(process.pid) - cpu
    rate, cost = tally.count / took, used / max(tally.count, 1) * 1e6
    for _ in range(plan.kills):
        loading = asyncio.create_task(_load(port, plan, tally, 60))
        await asyncio.sleep(random.uniform(0.3, 1.5))
        process.kill()
        await process.wait()
        await loading
        process, port = await start_gateway(config)
    process.terminate()
    await process.wait()
    return tally, rate, cost


def _cpu_s(pid: int) -> float:
    """CPU time of a process, threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    usual = Plan()
    parser.add_argument("--seconds", type=float, default=usual.seconds)
    parser.add_argument("--kills", type=int, default=usual.kills)
    parser.add_argument("--senders", type=int, default=usual.senders)
    parser.add_argument("--batch", type=int, default=usual.batch)
    plan = Plan(**vars(parser.parse_args()))
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        tally, rate, cost = asyncio.run(run(plan, data))
        missing, changed = lost_of(data, tally)
        size = sum(path.stat().st_size for path in data.iterdir()) / max(tally.count, 1)
    met = "met" if rate >= MARK else "not met"
    print(f"records/s {rate:,.0f} (mark {MARK:,}: {met}), {cost:.0f} us of CPU a record")
    print(f"accepted {tally.count:,}, refused {tally.refused}, {size:.0f} bytes a record on disk")
    print(f"kills {plan.kills}, broken requests {tally.broken}")
    print(f"lost {missing}, changed {changed}")
    return 1 if missing or changed else 0


if __name__ == "__main__":
    sys.exit(main())
