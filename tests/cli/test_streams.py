"""Commands whose standard streams are closed, full, gone or of another encoding."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everyturn.audit.group import Group
from everyturn.store.sqlite import SqliteStore
from tests.support.store_records import a_call, a_turn

RUN = f"{sys.executable} -m everyturn"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of one turn, with more than ASCII in it."""
    folder = tmp_path_factory.mktemp("streams") / "data"
    store = SqliteStore(folder)
    turn = a_turn(user_text="naïve 你好", outcome="success")
    store.append([Group((turn, a_call(turn, stream_state="whole")))])
    store.close()
    return folder


def shell(command: str, data: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell, with the record's folder known."""
    return subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "EVERYTURN_DATA": str(data), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["turns", "turns --json", "find naïve", "presets"])
def test_a_closed_stdout_is_no_fault(data: Path, command: str) -> None:
    """What nobody wants to have goes nowhere."""
    ended = shell(f"{RUN} {command} >&-", data)

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("command", ["turns", "turns --json", "presets", "failures --help"])
def test_a_full_disk_is_told(data: Path, command: str) -> None:
    """Output that could not be written is one line and status 1, however little it was."""
    ended = shell(f"{RUN} {command} >/dev/full", data)

    assert ended.stderr == "everyturn: the output cannot be written: No space left on device.\n"
    assert ended.returncode == 1


def test_a_reader_that_has_enough_hears_no_complaint(data: Path) -> None:
    """`| head` ends a command without a word."""
    ended = shell(f"{RUN} presets --json | head -c 1", data)

    assert (ended.stdout, ended.stderr) == ("[", "")


@pytest.mark.parametrize("command", ["turns", "turns --json", "find naïve"])
def test_a_terminal_without_unicode_gets_escapes(data: Path, command: str) -> None:
    """A character that the encoding lacks is shown as an escape, and ends nothing."""
    ended = shell(f"{RUN} {command}", data, PYTHONIOENCODING="ascii", PYTHONUTF8="0")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "na" in ended.stdout


def test_a_gateway_runs_with_every_stream_closed(tmp_path: Path) -> None:
    """A gateway with nobody to talk to serves all the same; no file of it gets its words."""
    config = tmp_path / "everyturn.toml"
    config.write_text(
        f'[gateway]\nport = 0\ndata = "{tmp_path / "data"}"\n'
        '[[models]]\nname = "m"\npreset = "generic-strict"\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    ended = shell(
        f"{RUN} serve --config {config} <&- >&- 2>&- & P=$!;"
        f" for i in $(seq 200); do test -s {tmp_path}/data/search.db && break; sleep 0.05; done;"
        " kill $P; wait $P",
        tmp_path,
    )

    assert ended.returncode == 0
    assert (tmp_path / "data" / "gateway.lock").read_text().strip().isdigit()
