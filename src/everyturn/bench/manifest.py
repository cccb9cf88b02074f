"""The manifest of a run: what is needed to repeat it, and what a resumed run must agree with."""

from __future__ import annotations

import hashlib
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from everyturn import __version__, ids
from everyturn.bench.cleaning import Cleaner
from everyturn.bench.folder import ITEMS, MANIFEST, RunFolder, RunRefused
from everyturn.bench.grid import Grid
from everyturn.bench.items import Document, Item, Items
from everyturn.bench.money import Price
from everyturn.bench.rows import lines

FORMAT: Final = 1
_PACKAGES: Final = ("apsw", "msgspec", "google-re2", "uvloop")


class DataFacts(msgspec.Struct, kw_only=True):
    """The data of a run, by what it is known."""

    name: str
    version: str | None
    sha256: str
    ids_sha256: str
    selected: int
    total: int
    limit: int | None
    documents_sha256: str


class Code(msgspec.Struct, kw_only=True):
    """Which code ran. commit: None outside of a checkout."""

    version: str
    commit: str | None
    is_dirty: bool | None
    python: str
    packages: dict[str, str]


class Manifest(msgspec.Struct, kw_only=True):
    """What `manifest.json` holds."""

    format: int
    run_id: str
    created_at: str
    grid: Grid
    data: DataFacts
    prices: dict[str, Price | None]
    """By model; the grid's own, else the gateway's at the time."""
    price_sources: dict[str, str | None]
    presets: dict[str, str | None]
    code: Code
    judges: list[dict[str, Any]] = []
    """Each judging of this run: rubric, taxonomy, models."""
    pairwise: list[dict[str, Any]] = []
    """Each judging of pairs."""


def now() -> str:
    """The time, RFC 3339 in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_manifest(
    grid: Grid,
    items: Items,
    documents: Sequence[Document],
    limit: int | None,
    served: Mapping[str, Mapping[str, Any]],
    bits: int,
) -> Manifest:
    """The manifest of a run that begins. served: the models of the gateway; bits: 128 random."""
    prices: dict[str, Price | None] = {}
    sources: dict[str, str | None] = {}
    for model in grid.models:
        listed = served.get(model.model, {})
        prices[model.name] = model.price or (
            Price.of(listed["price"]) if _is_price(listed.get("price")) else None
        )
        sources[model.name] = "grid" if model.price else listed.get("price_version")
    return Manifest(
        format=FORMAT,
        run_id=ids.record_id("run", bits),
        created_at=now(),
        grid=_without_paths(grid),
        data=data_facts(grid, items, documents, limit),
        prices=prices,
        price_sources=sources,
        presets={m.name: served.get(m.model, {}).get("preset") for m in grid.models},
        code=_code(),
    )


def _without_paths(grid: Grid) -> Grid:
    """The grid as it may be shown to others: files by their names alone."""
    documents = grid.data.documents
    data = msgspec.structs.replace(
        grid.data,
        path=Path(grid.data.path).name,
        documents=None if documents is None else Path(documents).name,
    )
    cache = None if grid.cache is None else Path(grid.cache).name
    return msgspec.structs.replace(grid, data=data, cache=cache)


def _is_price(listed: Any) -> bool:
    return isinstance(listed, dict) and listed.get("input") is not None and "output" in listed


def data_facts(
    grid: Grid, items: Items, documents: Sequence[Document], limit: int | None
) -> DataFacts:
    """What the data of a run are known by."""
    return DataFacts(
        name=Path(grid.data.path).name,
        version=grid.data.version,
        sha256=items.data_sha256,
        ids_sha256=items.ids_sha256,
        selected=len(items.items),
        total=items.total,
        limit=limit,
        documents_sha256=hashlib.sha256(msgspec.json.encode(documents)).hexdigest(),
    )


def check_same(manifest: Manifest, grid: Grid, data: DataFacts) -> None:
    """Refuse to go on with another grid or other data than the run began with."""
    hint = "Restore what it was, or name another folder for a new run."
    if data.sha256 != manifest.data.sha256 or data.documents_sha256 != (
        manifest.data.documents_sha256
    ):
        raise RunRefused("the data set has changed since this run began.", hint)
    old, new = _fixed(manifest.grid), _fixed(grid)
    changed = [name for name in old if old[name] != new[name]]
    if changed:
        raise RunRefused(f"the grid has changed since this run began: `{changed[0]}`.", hint)
    if data.ids_sha256 != manifest.data.ids_sha256:
        raise RunRefused(
            "`--limit` or the sample selects other items than this run began with.",
            "Leave `--limit` out to go on with the same.",
        )


def _fixed(grid: Grid) -> dict[str, Any]:
    """What of a grid may not change between the parts of a run."""
    tree = msgspec.to_builtins(grid)
    data = {name: tree["data"][name] for name in ("version", "sample", "by")}
    names = ("seed", "epochs", "models", "cells", "scorers")
    return {**{name: tree[name] for name in names}, "data": data}


def write_manifest(folder: RunFolder, manifest: Manifest) -> None:
    """Write it, readable by people."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    folder.replace(MANIFEST, text + b"\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a run folder. Raises RunRefused where there is no run."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    except FileNotFoundError as absent:
        hint = "`everyturn bench run GRID --out FOLDER` makes one."
        raise RunRefused(f"{folder} holds no run.", hint) from absent
    except msgspec.DecodeError as bad:
        hint = "It was made by another version, or changed by hand."
        raise RunRefused(f"the manifest in {folder} cannot be read.", hint) from bad


def check_clean(given: msgspec.Struct, cleaner: Cleaner) -> None:
    """Refuse a grid or judges that hold what looks like a secret: a manifest is to be shown."""
    text = msgspec.json.encode(given).decode()
    if cleaner.text(text) != text:
        raise RunRefused(
            "the file holds a key, or what looks like one.",
            "Keys come from the environment; remove it from the file.",
        )


def write_items(folder: RunFolder, items: Sequence[Item], cleaner: Cleaner) -> None:
    """Keep the selected items in the run, so that it can be judged without the data file."""
    texts = (cleaner.text(msgspec.json.encode(item).decode()) for item in items)
    folder.replace(ITEMS, b"".join(text.encode() + b"\n" for text in texts))


def read_items(folder: Path) -> dict[str, Item]:
    """The items of a run by id."""
    decoder = msgspec.json.Decoder(Item)
    found = (decoder.decode(line) for line in lines(folder / ITEMS))
    return {item.item_id: item for item in found}


def _code() -> Code:
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = "unknown"
    commit = _git("rev-parse", "HEAD")
    changes = None if commit is None else _git("status", "--porcelain", "--untracked-files=no")
    return Code(
        version=__version__,
        commit=commit,
        is_dirty=None if changes is None else bool(changes),
        python=platform.python_version(),
        packages=packages,
    )


def _git(*arguments: str) -> str | None:
    """What git says of the folder that this code stands in; None where it has nothing to say."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
