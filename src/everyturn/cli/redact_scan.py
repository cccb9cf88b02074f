"""`everyturn redact-scan`: what the rules find in files, and never what they found."""

from __future__ import annotations

import os
import stat
import sys
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import click

from everyturn.audit.finding import Finding, findings
from everyturn.audit.redact import Redactor
from everyturn.audit.scan import ScanFailed
from everyturn.cli.terminal import safe_line
from everyturn.config import load_config
from everyturn.errors import ConfigError
from everyturn.wire.reader import write

PIECE_BYTES: Final = 8 << 20
"""What of a file is looked at in one go."""
OVERLAP_BYTES: Final = 64 << 10
"""How much of a piece the next one looks at again, for what stands across its end."""
_HEAD_BYTES: Final = 8192
_STDIN: Final = "-"


class Scan:
    """Looks through files and counts them."""

    def __init__(
        self,
        redactor: Redactor,
        *,
        as_json: bool,
        piece_bytes: int = PIECE_BYTES,
        overlap_bytes: int = OVERLAP_BYTES,
    ) -> None:
        self._redactor = redactor
        self._as_json = as_json
        self._piece_bytes = piece_bytes
        self._overlap_bytes = overlap_bytes
        self.files = 0
        self.files_with_finds = 0
        self.finds = 0
        self.binary = 0
        """Files that are no text; their bytes are looked at as Latin-1."""
        self.links = 0
        """Links and things that are no files, which are passed by."""
        self.unread: list[str] = []
        """What could not be looked at."""

    def path(self, path: Path) -> None:
        """A file, or everything below a folder, in the order of names."""
        if not path.is_dir():
            self._file(path)
            return
        for folder, folders, names in os.walk(path, onerror=self._not_listed):
            folders.sort()
            for name in [*folders]:
                if (Path(folder) / name).is_symlink():
                    folders.remove(name)
                    self.links += 1
            for name in sorted(names):
                file = Path(folder) / name
                if file.is_symlink() or not stat.S_ISREG(file.lstat().st_mode):
                    self.links += 1
                else:
                    self._file(file)

    def stream(self, name: str, stream: BinaryIO) -> None:
        """Everything a stream gives."""
        self.files += 1
        before = self.finds
        try:
            for line, column, find in self._stream(stream):
                self.finds += 1
                self._print(name, line, column, find)
        except OSError as bad:
            self.unread.append(f"{name}: {bad.strerror}")
        except ScanFailed:
            self.unread.append(f"{name}: could not be scanned")
        self.files_with_finds += self.finds > before

    def _not_listed(self, bad: OSError) -> None:
        self.unread.append(f"{bad.filename}: {bad.strerror}")

    def _file(self, path: Path) -> None:
        try:
            stream = path.open("rb")
        except OSError as bad:
            self.unread.append(f"{path}: {bad.strerror}")
            return
        with stream:
            self.stream(str(path), stream)

    def _stream(self, stream: BinaryIO) -> Iterator[tuple[int, int, Finding]]:
        """Line and column of each find, counted from 1, in characters."""
        lines = 0
        """Line ends before this piece."""
        columns = 0
        """Characters of the piece's first line that stand before it."""
        skip = 0
        """Characters of this piece that the one before looked at."""
        rest = b""
        encoding = ""
        while True:
            raw = rest + stream.read(self._piece_bytes - len(rest))
            is_last = len(raw) < self._piece_bytes
            if not encoding:
                is_binary = b"\0" in raw[:_HEAD_BYTES]
                self.binary += is_binary
                encoding = "latin-1" if is_binary else "utf-8"
            text = raw.decode(encoding, "surrogateescape")
            starts = [0, *(at + 1 for at, sign in enumerate(text) if sign == "\n")]
            for find in findings(text, self._redactor):
                if find.end > skip or skip == 0:
                    row = bisect_right(starts, find.start) - 1
                    column = find.start - starts[row] + (columns if row == 0 else 0)
                    yield lines + row + 1, column + 1, find
            if is_last:
                return
            rest = _overlap(raw, self._overlap_bytes)
            again = rest.decode(encoding, "surrogateescape")
            skip = len(again)
            seen = len(text) - skip
            row = bisect_right(starts, seen) - 1
            columns = seen - starts[row] + (columns if row == 0 else 0)
            lines += row

    def _print(self, name: str, line: int, column: int, find: Finding) -> None:
        length = find.end - find.start
        if self._as_json:
            row = {
                "path": name,
                "line": line,
                "column": column,
                "length": length,
                "rule": find.rule,
            }
            click.echo(write(row).decode())
        else:
            click.echo(
                f"{safe_line(name, 4096)}:{line}:{column}: {find.rule} ({length} characters)"
            )


def _overlap(raw: bytes, length: int) -> bytes:
    """The end of a piece that the next one starts with: from the start of a line, where one is."""
    tail = raw[-length:]
    cut = tail.find(b"\n", 0, length // 2) + 1
    if cut == 0:  # One long line: from the start of a character.
        while cut < 4 and tail[cut] & 0xC0 == 0x80:
            cut += 1
    return tail[cut:]


@click.command("redact-scan")
@click.argument("path", type=click.Path(exists=True, allow_dash=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Also the rules, known values and personal data of this configuration.",
)
def redact_scan_command(path: Path, as_json: bool, config: Path | None) -> None:
    """Show what redaction finds in PATH: a file, a folder, or `-` for the standard input.

    Names rule, line, column and length of each find, never the secret. Links in a folder are not
    followed. Exit status 0: nothing found; 1: something found; 2: bad use, or something that could
    not be read.
    """
    scan = Scan(_redactor(config), as_json=as_json)
    if str(path) == _STDIN:
        scan.stream(_STDIN, sys.stdin.buffer)
    else:
        scan.path(path)
    for what in scan.unread:
        click.echo(f"everyturn: {safe_line(what, 4096)}", err=True)
    click.echo(
        f"{scan.finds} found in {scan.files_with_finds} of {scan.files} files"
        + (f"; {scan.binary} are no text" if scan.binary else "")
        + (f"; {scan.links} links and other things passed by" if scan.links else "")
        + (f"; {len(scan.unread)} not read" if scan.unread else ""),
        err=True,
    )
    sys.exit(1 if scan.finds else 2 if scan.unread else 0)


def _redactor(config: Path | None) -> Redactor:
    """The rules of a configuration; the built-in ones without it. Tags are not shown."""
    if config is None:
        return Redactor(b"")
    try:
        loaded = load_config(config, os.environ)
    except ConfigError as bad:
        click.echo(str(bad), err=True)
        sys.exit(2)
    known = [*(model.api_key for model in loaded.models if model.api_key), *loaded.redaction.known]
    return Redactor(b"", known=known, rules=loaded.redaction.rules)
