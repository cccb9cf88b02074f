"""The standard streams of a command, whatever it was started with.

A shell, a supervisor or cron may start a process with any of the three closed. The next file or
socket that it opens then gets that number, and what is meant for a person is written into it.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare() -> None:
    """Open to nowhere what is closed, and let no character end a command.

    What a terminal's encoding lacks is shown as an escape.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115 (for good)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def told_when_lost() -> Iterator[None]:
    """Ends the command with status 1 when what it said could not be written.

    It says why, but not when the reader has gone: `| head` has had enough.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as lost:
        if lost.filename is not None:
            raise  # Not a stream: a file that was to be opened.
        # What is left in the buffers goes nowhere, or the interpreter would try once more.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        if lost.errno != errno.EPIPE:
            print(f"everyturn: the output cannot be written: {lost.strerror}.", file=sys.stderr)
        sys.exit(1)
