"""Files and media that a deployment keeps: in one table, read by one command, and gone with their
last turn; without the setting they rest nowhere."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from click.testing import CliRunner, Result

from everyturn.cli.main import main
from everyturn.mock.script import Script
from everyturn.mock.server import MockProvider
from everyturn.store.export import export_day
from everyturn.store.sqlite import SqliteStore
from tests.gateway.test_answers import chunk
from tests.support.gateway import Running, gateway_and_mock
from tests.support.store_records import bytes_of

KEEP = '[media]\nstore = "keep"'
SECRET = "sk-proj-FAKEfakeFAKEfake1234567890abcdefghij"
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40 + b"quietpicture"
NOTES = f"quietnotes\nkey {SECRET} here\n".encode()
TABLE = b"quiettable,1\r\n2,3\r\n"
MARK = re.compile(r"\[media:([^:\]]+):(\d+):([0-9a-f]{32})(?::(\w+))?\]")


def a_url(kind: str, content: bytes) -> str:
    """A data URL in base64."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def a_message(*urls: str) -> dict[str, Any]:
    """A user's message with these data URLs."""
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"role": "user", "content": [{"type": "text", "text": "look"}, *images]}


async def ask(running: Running, mock: MockProvider, *messages: dict[str, Any]) -> str:
    """The id of a turn with these messages."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "ok"}}
    body = {"id": "c", "choices": [{**choice, "finish_reason": "stop"}]}
    mock.add("m", Script.whole(body=json.dumps(body).encode()))
    answer = await running.client.post(
        "/chat/completions", json={"model": "m", "messages": list(messages)}
    )
    assert answer.status_code == 200, answer.text
    return answer.headers["x-everyturn-turn-id"]


async def marks(running: Running, turn_id: str) -> list[tuple[str, ...]]:
    """Type, bytes, hash and word of each mark in what was sent."""
    turn = (await running.client.get(f"/turns/{turn_id}")).json()
    return MARK.findall(json.dumps(turn["model_calls"][0]["prompt_messages_json"]))


def command(data: Path, *line: str) -> Result:
    """What a command over this record says."""
    return CliRunner().invoke(main, line, env={"EVERYTURN_DATA": str(data)})


def rows(data: Path) -> list[tuple[Any, ...]]:
    """What the table holds."""
    db = sqlite3.connect(data / "everyturn.db")
    found = db.execute("SELECT media_type, size_bytes, is_text, data FROM media ORDER BY rowid")
    listed = found.fetchall()
    db.close()
    return listed


def contents_of(folder: Path) -> list[bytes]:
    """The files of a folder, by name."""
    return [path.read_bytes() for path in sorted(folder.iterdir())]


async def test_media_are_kept_and_written_out(tmp_path: Path) -> None:
    """A picture rests as it came, a text file without its secret; the marks say which, and
    `show --media` writes both, privately and again without a change."""
    data, out = tmp_path / "data", tmp_path / "out"
    async with gateway_and_mock(data, "openai-chat", extra=KEEP) as (running, mock):
        urls = [a_url("image/png", PICTURE), a_url("text/plain", NOTES)]
        plain = f"data:text/csv,{quote(TABLE.decode())}"
        turn_id = await ask(running, mock, a_message(*urls, plain))
        found = await marks(running, turn_id)
        told = await asyncio.to_thread(command, data, "show", turn_id, "--media", str(out))
        again = await asyncio.to_thread(command, data, "show", turn_id, "--media", str(out))

    assert [(kind, int(size), word) for kind, size, _, word in found] == [
        ("image/png", len(PICTURE), "kept"),
        ("text/plain", len(NOTES), "redacted"),
        ("text/csv", len(TABLE), "kept"),
    ]
    assert (told.exit_code, again.exit_code) == (0, 0)
    assert sorted(path.suffix for path in out.iterdir()) == [".csv", ".png", ".txt"]
    picture, notes, table = contents_of(out)
    assert (picture, table) == (PICTURE, TABLE)
    assert re.fullmatch(rb"quietnotes\nkey \[redacted:openai_key:\w{8}\] here\n", notes)
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}
    assert SECRET.encode() not in bytes_of(data)


async def test_another_file_is_not_written_over(tmp_path: Path) -> None:
    """Where a file of that name is another one, the command fails and leaves it; a link too."""
    data, out = tmp_path / "data", tmp_path / "out"
    async with gateway_and_mock(data, "openai-chat", extra=KEEP) as (running, mock):
        turn_id = await ask(running, mock, a_message(a_url("image/png", PICTURE)))
        await asyncio.to_thread(command, data, "show", turn_id, "--media", str(out))
        (path,) = out.iterdir()
        path.write_bytes(b"mine")
        refused = await asyncio.to_thread(command, data, "show", turn_id, "--media", str(out))
        path.unlink()
        path.symlink_to(tmp_path / "elsewhere")
        linked = await asyncio.to_thread(command, data, "show", turn_id, "--media", str(out))

    assert (refused.exit_code, linked.exit_code) == (1, 1)
    assert "is there and is another file" in refused.stderr
    assert "Nothing is written over" in linked.stderr
    assert not (tmp_path / "elsewhere").exists()


async def test_without_the_setting_nothing_is_kept(tmp_path: Path) -> None:
    """By default a mark is type, bytes and hash, no file holds the content, and the command says
    that nothing is kept."""
    data, out = tmp_path / "data", tmp_path / "out"
    async with gateway_and_mock(data, "openai-chat") as (running, mock):
        turn_id = await ask(running, mock, a_message(a_url("image/png", PICTURE)))
        found = await marks(running, turn_id)
        told = await asyncio.to_thread(command, data, "show", turn_id, "--media", str(out))

    assert [(kind, word) for kind, _, _, word in found] == [("image/png", "")]
    assert rows(data) == []
    assert b"quietpicture" not in bytes_of(data)
    assert told.exit_code == 0
    assert "keeps no files or media of this turn" in told.stderr
    assert contents_of(out) == []


async def test_a_medium_is_stored_once(tmp_path: Path) -> None:
    """A history that brings it again, another turn, another spelling: one row."""
    data = tmp_path / "data"
    async with gateway_and_mock(data, "openai-chat", extra=KEEP) as (running, mock):
        first = a_message(a_url("image/png", PICTURE))
        turns = [await ask(running, mock, first)]
        turns += [await ask(running, mock, first, {"role": "user", "content": "and now"})]
        audio = {"data": base64.b64encode(PICTURE).decode(), "format": "wav"}
        other = {"role": "user", "content": [{"type": "input_audio", "input_audio": audio}]}
        turns += [await ask(running, mock, other)]
        found = [await marks(running, turn_id) for turn_id in turns]

    assert rows(data) == [("image/png", len(PICTURE), 0, PICTURE)]
    names = {name for one in found for _, _, name, _ in one}
    assert len(names) == 1
    assert bytes_of(data).count(b"quietpicture") == 1


async def test_what_an_answer_brings_is_kept(tmp_path: Path) -> None:
    """A picture that a model made rests as one that was sent, whole and streamed."""
    data, out = tmp_path / "data", tmp_path / "out"
    image = {"type": "image_url", "image_url": {"url": a_url("image/png", PICTURE)}}
    async with gateway_and_mock(data, "openrouter", extra=KEEP) as (running, mock):
        ended = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        end = [b"data: " + json.dumps(ended).encode() + b"\n\n", b"data: [DONE]\n\n"]
        mock.add("m", Script.sse([chunk(content="here", images=[image]), *end]))
        answer = await running.chat("m", stream=True)
        turn_id = answer.headers["x-everyturn-turn-id"]
        await asyncio.to_thread(command, data, "show", turn_id, "--media", str(out))

    assert base64.b64encode(PICTURE) in answer.content
    assert contents_of(out) == [PICTURE]


async def test_what_is_larger_than_the_bound_stays_a_hash(tmp_path: Path) -> None:
    """The mark says that it was too large; a medium of just that size is kept."""
    data = tmp_path / "data"
    extra = f"{KEEP}\nbytes_max = {len(PICTURE)}"
    async with gateway_and_mock(data, "openai-chat", extra=extra) as (running, mock):
        urls = [a_url("image/png", PICTURE), a_url("image/png", PICTURE + b"!")]
        turn_id = await ask(running, mock, a_message(*urls))
        found = await marks(running, turn_id)

    assert [word for *_, word in found] == ["kept", "too_large"]
    assert [size for _, size, _, _ in rows(data)] == [len(PICTURE)]


async def test_kept_media_are_in_no_other_place(tmp_path: Path) -> None:
    """No reading, list, search, export, metric or log line has what is in the table."""
    data, export = tmp_path / "data", tmp_path / "export"
    async with gateway_and_mock(data, "openai-chat", extra=KEEP) as (running, mock):
        message = a_message(a_url("text/plain", NOTES), a_url("image/png", PICTURE))
        turn_id = await ask(running, mock, message)
        read = (await running.client.get(f"/turns/{turn_id}")).text
        root = running.url.removesuffix("/v1")
        metrics = (await running.client.get(f"{root}/metrics")).text
        lines: Sequence[Sequence[str]] = (
            ["turns", "--json"],
            ["show", turn_id],
            ["show", turn_id, "--json"],
            ["find", "quietnotes"],
        )
        told = [await asyncio.to_thread(command, data, *line) for line in lines]
        list(export_day(data, datetime.now(UTC).date(), export))
        log = json.dumps(running.log_lines)

    exported = [path.read_text() for path in export.iterdir()]
    assert exported
    for text in (read, metrics, log, *(one.output for one in told), *exported):
        assert "quiet" not in text.replace("quietnotes`", "")
    assert b"quietnotes" not in (data / "search.db").read_bytes()


async def test_erasing_the_last_turn_takes_the_medium(tmp_path: Path) -> None:
    """A medium goes from the files with the last turn that has it, and not before."""
    data = tmp_path / "data"
    async with gateway_and_mock(data, "openai-chat", extra=KEEP) as (running, mock):
        shared, own = a_url("image/png", PICTURE), a_url("text/plain", NOTES)
        first = await ask(running, mock, a_message(shared, own))
        second = await ask(running, mock, a_message(shared), {"role": "user", "content": "b"})
    store = SqliteStore(data)
    store.erase([first])
    after_first = bytes_of(data)
    kept = [kind for kind, *_ in rows(data)]
    store.erase([second])
    after_second = bytes_of(data)
    store.close()

    assert kept == ["image/png"]
    assert b"quietpicture" in after_first
    assert b"quietnotes" not in after_first
    assert b"quietpicture" not in after_second
    assert rows(data) == []
