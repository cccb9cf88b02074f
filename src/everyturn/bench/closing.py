"""The end of a run: what is worth keeping moves out, the raw rows go.

Everything that stays is written first. Then the folder is marked as closed, and only then anything
is deleted, so that a kill at any moment leaves either the run or what was made of it.
"""

from __future__ import annotations

import gzip
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from everyturn.bench.folder import (
    ITEMS,
    JUDGEMENTS,
    MANIFEST,
    ROWS,
    SPEND,
    RunFolder,
    RunRefused,
    replace,
)
from everyturn.bench.pairs import PAIRS
from everyturn.bench.report import telling_rows
from everyturn.bench.session import is_complete
from everyturn.bench.summary import summarise, write_summary
from everyturn.bench.viewing import Joined

CLOSED: Final = "closed.json"
_RAW: Final = (ROWS, JUDGEMENTS, PAIRS, ITEMS, SPEND)


@dataclass(frozen=True, slots=True)
class Closed:
    """Where what was kept stands."""

    curated: Path
    archived: Path | None


class _Mark(msgspec.Struct):
    curated: str
    archived: str | None


def close(
    path: Path, curate: Path, *, rows: int, archive: Path | None, even_if_incomplete: bool = False
) -> Closed:
    """Keep summary, manifest and the most telling rows below `curate`, then delete the run.

    No reasoning text is kept, only its lengths; an archive, where one is named, holds the raw rows
    with it. Raises RunRefused for a run that is not complete, unless that is meant.
    """
    with RunFolder(path) as folder:
        mark = folder.file(CLOSED)
        if mark.exists():
            known = msgspec.json.decode(mark.read_bytes(), type=_Mark)
            archived = None if known.archived is None else Path(known.archived)
            done = Closed(Path(known.curated), archived)
        else:
            if not even_if_incomplete and not is_complete(path):
                raise RunRefused(
                    f"the run in {path} is not complete.",
                    "Finish it with `bench run`, or close it as it is with `--incomplete`.",
                )
            done = _keep(path, curate, rows, archive)
            kept = None if done.archived is None else str(done.archived.resolve())
            folder.replace(CLOSED, msgspec.json.encode(_Mark(str(done.curated.resolve()), kept)))
        for name in _RAW:
            folder.file(name).unlink(missing_ok=True)
        # The mark goes with the last of it: until then this can be done again.
        for left in path.iterdir():
            if left.name != CLOSED:
                left.unlink()
        shutil.rmtree(path)
        return done


def _keep(path: Path, curate: Path, rows: int, archive: Path | None) -> Closed:
    joined = Joined(path)
    run_id = joined.reading.manifest.run_id
    curated = curate / run_id
    curated.mkdir(parents=True, exist_ok=True)
    summary = summarise(path, joined.reading)
    write_summary(curated, summary)
    replace(curated / MANIFEST, (path / MANIFEST).read_bytes())
    told = telling_rows(joined, joined.reading.metrics[-1], rows)
    lines = (msgspec.json.encode(joined.joined(row)) + b"\n" for row in told)
    replace(curated / ROWS, b"".join(lines))
    if archive is None:
        return Closed(curated, None)
    archived = archive / run_id
    archived.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in _RAW:
        if (path / name).exists():
            _pack(path / name, archived / f"{name}.gz")
    replace(archived / MANIFEST, (path / MANIFEST).read_bytes())
    return Closed(curated, archived)


def _pack(source: Path, target: Path) -> None:
    """Compress a file, and read it back before it counts."""
    half = target.with_name(f".{target.name}.new")
    half.touch(mode=0o600)
    with source.open("rb") as raw, gzip.open(half, "wb", compresslevel=6) as packed:
        shutil.copyfileobj(raw, packed, 1 << 20)
    with source.open("rb") as raw, gzip.open(half, "rb") as packed:
        while True:
            one, other = raw.read(1 << 20), packed.read(1 << 20)
            if one != other:
                raise RunRefused(f"{target.name} does not read back as it was written.")
            if not one:
                break
    half.replace(target)
