"""`everyturn mock` as a process."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

COMMAND = "from everyturn.cli.mock import mock_command; mock_command(prog_name='mock')"


def start(*arguments: str) -> subprocess.Popen[str]:
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_command_serves_and_ends_with_status_0(how: signal.Signals) -> None:
    """It prints the URL to stdout and the scenarios to stderr, and ends with status 0."""
    with start("--port", "0") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{url}/models") as answer:
            assert answer.status == 200
        process.send_signal(how)
        rest, listing = process.communicate(timeout=10)

    assert process.returncode == 0
    assert rest == ""
    assert "deepseek" in listing
    assert "bench[-N]" in listing
    assert "Traceback" not in listing


def test_quiet_prints_the_url_only() -> None:
    """With `--quiet` there is nothing but the URL."""
    with start("--port", "0", "--quiet") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.terminate()
        assert process.communicate(timeout=10) == ("", "")


def test_other_hosts_come_with_a_warning() -> None:
    """An address that others reach comes with a word of warning."""
    with start("--port", "0", "--quiet", "--host", "0.0.0.0") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        _, warning = process.communicate(timeout=10)

    assert "keys included" in warning


def test_taken_port_says_what_to_do() -> None:
    """A port that is taken ends the command with a sentence, not a traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with start("--port", str(taken.getsockname()[1])) as process:
            _, said = process.communicate(timeout=10)

    assert process.returncode == 1
    assert "--port 0" in said
    assert "Traceback" not in said
