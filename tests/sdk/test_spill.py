"""The spill: what rests while the gateway is away, who owns it, and that all of it arrives."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from everyturn.sdk.counting import Counters
from everyturn.sdk.resting import Resting
from everyturn.sdk.spill import SpillFolder
from tests.sdk.conftest import until
from tests.sdk.test_sender import Sending, a_review
from tests.support.receiver import Receiver, Reply

SECRET = "ghp_" + "FAKE" * 9
REASONING = "a chain of thought that nobody may read"


@pytest.fixture
def away(receiver: Receiver, tmp_path: Path) -> Any:
    """A sender whose gateway is away."""
    receiver.stop()
    one = Sending(receiver.url, tmp_path / "spill")
    yield one
    one.sender.close(5)


def spilled(folder: Path) -> list[dict[str, Any]]:
    """The lines of all spill files."""
    return [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
    ]


def test_records_wait_on_disk_and_arrive_later(receiver: Receiver, away: Sending) -> None:
    """While the gateway is away records rest in a private file, which is deleted once sent."""
    away.put(10)
    assert away.sender.flush(30)

    (path,) = away.files()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert away.count("spilled") == 10
    away.put(1, start=10)
    receiver.start()
    until(lambda: len(receiver.items) == 11)
    until(lambda: away.files() == [])
    assert away.count("spill_sent") + away.count("sent") == 11
    away.check_account()


def test_a_gateway_that_stays_away_makes_records_spill_by_themselves(away: Sending) -> None:
    """Without any hurry, what waits is on disk within seconds."""
    away.put(3)

    until(lambda: away.count("spilled") == 3)

    assert len(spilled(away.folder)) == 3


def test_records_of_a_dead_process_are_sent_by_the_next(receiver: Receiver, tmp_path: Path) -> None:
    """A file whose process was killed is taken over, its torn last line counted."""
    folder = tmp_path / "spill"
    code = (
        "import os, sys\n"
        "from everyturn.sdk.spill import SpillFolder\n"
        "from tests.sdk.test_sender import a_review\n"
        "folder = SpillFolder(sys.argv[1], bytes_max=10**6)\n"
        "print(folder.write([a_review(n) for n in range(5)]), flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("written\n", -9), done.stderr
    (path,) = folder.glob("*.jsonl")
    with path.open("ab") as file:
        file.write(a_review(5)[:-1])

    one = Sending(receiver.url, folder)
    one.put(1, start=7)
    until(lambda: len(receiver.items) == 6)
    until(lambda: one.files() == [])
    one.sender.close(5)

    assert one.count("spill_sent") == 5
    assert one.count("spill_lines_torn") == 1


def test_a_file_has_one_owner(receiver: Receiver, tmp_path: Path) -> None:
    """A file whose process lives is nobody else's."""
    mine = SpillFolder(str(tmp_path), bytes_max=10**6)
    other = SpillFolder(str(tmp_path), bytes_max=10**6)
    assert mine.write([a_review(1)]) == "written"

    assert other.next() == (None, 0)
    mine.release()
    file, _ = other.next()

    assert file is not None
    assert file.take(bytes_max=10**6, count_max=10) == ([a_review(1)], 0)
    other.release()


def test_a_torn_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    """What is appended to an adopted file begins on a line of its own."""
    (tmp_path / "1.jsonl").write_bytes(a_review(1) + b"\n" + b'{"a": {}')
    folder = SpillFolder(str(tmp_path), bytes_max=10**6)
    file, _ = folder.next()
    assert file is not None

    assert folder.write([a_review(2)]) == "written"

    assert file.take(bytes_max=10**6, count_max=10) == ([a_review(1), a_review(2)], 1)
    folder.release()


@pytest.mark.parametrize("bytes_max, count_max", [(1, 10), (400, 10), (10**6, 1), (10**6, 1000)])
def test_lines_are_taken_piece_by_piece(bytes_max: int, count_max: int, tmp_path: Path) -> None:
    """However much is taken at a time, each line comes once, and the file ends as sent."""
    folder = SpillFolder(str(tmp_path), bytes_max=10**6)
    wanted = [a_review(number, "x" * number) for number in range(20)]
    assert folder.write(wanted) == "written"
    file, _ = folder.next()
    assert file is not None

    lines: list[bytes] = []
    while not file.is_sent:
        some, torn = file.take(bytes_max=bytes_max, count_max=count_max)
        assert file.take(bytes_max=bytes_max, count_max=count_max) == (some, torn)
        assert some
        lines += some
        file.sent()
    folder.done()

    assert lines == wanted
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept, torn", [(0, 0), (5, 1)])
def test_a_file_that_somebody_cut_comes_to_its_end(kept: int, torn: int, tmp_path: Path) -> None:
    """Where the rest of a file is no line, nothing is taken and the file counts as sent."""
    folder = SpillFolder(str(tmp_path), bytes_max=10**6)
    assert folder.write([a_review(1)]) == "written"
    file, _ = folder.next()
    assert file is not None
    os.truncate(file.path, kept)

    assert file.take(bytes_max=100, count_max=10) == ([], torn)
    file.sent()

    assert file.is_sent
    folder.done()


def test_the_folder_is_bounded_in_bytes(receiver: Receiver, tmp_path: Path) -> None:
    """A full folder takes no more; what does not fit is counted, and other files count as well."""
    receiver.stop()
    folder = tmp_path / "spill"
    folder.mkdir(mode=0o700)
    (folder / "other.jsonl").write_bytes(b"x" * 3000)
    one = Sending(receiver.url, folder, spill_bytes_max=3500)

    one.put(10)
    assert one.sender.flush(30)
    one.sender.close(5)

    assert one.count("dropped_spill_full") == 10
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 3500
    one.check_account()


def test_a_folder_that_cannot_be_made_loses_and_counts(receiver: Receiver, tmp_path: Path) -> None:
    """Where nothing can be written, records are lost and counted, and the application goes on."""
    receiver.stop()
    (tmp_path / "file").write_text("")
    one = Sending(receiver.url, tmp_path / "file" / "spill")

    one.put(4)
    assert one.sender.flush(30)
    one.sender.close(5)

    assert one.count("dropped_spill_failed") == 4
    one.check_account()


def test_a_folder_open_to_others_is_closed_and_a_link_is_refused(tmp_path: Path) -> None:
    """A folder of ours gets mode 0700; a link in its place is not followed."""
    ours = tmp_path / "ours"
    ours.mkdir(mode=0o755)
    link = tmp_path / "link"
    link.symlink_to(ours)

    assert SpillFolder(str(ours), bytes_max=10**6).write([a_review(1)]) == "written"
    assert SpillFolder(str(link), bytes_max=10**6).write([a_review(1)]) == "failed"

    assert stat.S_IMODE(ours.stat().st_mode) == 0o700


def test_a_gateway_that_fails_in_the_middle_gets_the_rest_later(
    receiver: Receiver, away: Sending
) -> None:
    """A spill that was sent in part is sent to its end, each record once in the gateway."""
    away.put(2500)
    assert away.sender.flush(30)
    receiver.start()
    receiver.replies = [Reply(503)]

    until(lambda: len(receiver.items) == 2500)
    until(lambda: away.files() == [])

    assert away.count("spill_sent") == 2500


# ------------------------------------------------------------- what may rest


def a_tool_call(**fields: Any) -> dict[str, Any]:
    """A record with something of everything."""
    return {
        "log": "tool_calls",
        "tool_call_id": "tool_1",
        "turn_id": "7c0f9a52-3b1f-4c58-9a5e-8f3f5d1d2c11",
        "trace_id": "1" * 32,
        "timestamp": 1_800_000_000_000_000,
        "tool_family": "mcp",
        "tool_name": "get_order",
        "status": "ok",
        "duration_ms": 1.5,
        **fields,
    }


def rested(counters: Counters, known: str | None = None, **fields: Any) -> dict[str, Any]:
    """The record as it would rest."""
    line = Resting(counters, known).line(json.dumps(a_tool_call(**fields)).encode())
    result: dict[str, Any] = json.loads(line)
    return result


def test_texts_rest_without_secrets() -> None:
    """Vendor keys, named secrets and the gateway's own key are removed; the rest stays."""
    found = rested(
        Counters(),
        known="et_test_FAKEFAKE",
        request_json={"password": "hunter2-FAKE", "order": 5, "nested": json.dumps({"k": SECRET})},
        response_json=f"sent with et_test_FAKEFAKE and {SECRET}",
        target_service=SECRET,
    )

    text = json.dumps(found)
    assert SECRET not in text
    assert "hunter2-FAKE" not in text
    assert "et_test_FAKEFAKE" not in text
    assert found["request_json"]["order"] == 5
    assert found["tool_name"] == "get_order"
    assert text.count("[redacted:") >= 5


def test_reasoning_does_not_rest() -> None:
    """Known carriers and tags are marked with their length; the answer around them stays."""
    found = rested(
        Counters(),
        request_json={"messages": [{"role": "assistant", "reasoning_content": REASONING}]},
        response_json={"thinking": REASONING, "content": f"<think>{REASONING}</think>done"},
    )

    assert REASONING not in json.dumps(found)
    assert "done" in json.dumps(found)
    assert str(len(REASONING)) in json.dumps(found)


def test_facts_rest_as_they_are() -> None:
    """Ids, times, enums and numbers are never touched."""
    found = rested(Counters(), request_json={"password": "hunter2-FAKE"})

    assert {name: found[name] for name in a_tool_call()} == a_tool_call()


def test_a_line_is_one_line() -> None:
    """Whatever signs a text holds, the record is one line of ASCII."""
    line = Resting(Counters(), None).line(
        json.dumps(a_tool_call(response_json="a\u2028b\x85c\r\nd\x00")).encode()
    )

    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert json.loads(line)["response_json"] == "a\u2028b\x85c\r\nd\x00"


def test_without_the_engine_texts_are_left_out_and_counted(tmp_path: Path) -> None:
    """Where the scanner is not installed, facts and plain names rest and texts do not."""
    code = (
        "import sys, json\n"
        "sys.modules['re2'] = None\n"
        "from everyturn.sdk.counting import Counters\n"
        "from everyturn.sdk.resting import Resting\n"
        "counters = Counters()\n"
        "line = Resting(counters, None).line(sys.stdin.buffer.read())\n"
        "print(line.decode())\n"
        "print(counters.snapshot()['payload_not_spilled'])\n"
    )
    record = a_tool_call(request_json={"a": 1}, response_json="text", target_service="a b c")

    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(record),
        capture_output=True,
        text=True,
        check=True,
    )

    line, count = done.stdout.splitlines()
    assert json.loads(line) == a_tool_call()
    assert count == "1"


def test_what_is_spilled_holds_no_secret(receiver: Receiver, away: Sending) -> None:
    """No byte of a file in the spill folder holds a secret or reasoning that was recorded."""
    record = a_tool_call(request_json={"token": SECRET}, response_json={"reasoning": REASONING})
    away.sender.put(json.dumps(record).encode())
    away.sender.put(a_review(1, f"see {SECRET}"))
    assert away.sender.flush(30)

    raw = b"".join(path.read_bytes() for path in away.files())

    assert len(spilled(away.folder)) == 2
    assert SECRET.encode() not in raw
    assert REASONING.encode() not in raw
    assert os.listdir(away.folder) == [path.name for path in away.files()]
