"""Parquet files of items, and the one door to pyarrow.

pyarrow is an extra, several times larger than all the rest: it is imported when a Parquet file is
read or written, and who has none of these needs none of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from types import ModuleType
from typing import Any, Final

from everyturn.errors import ConfigError

INSTALL: Final = "Install it with `pip install everyturn[parquet]`."
_BATCH_ROWS: Final = 1024


class NoLibrary(Exception):
    """pyarrow is not installed."""


def library() -> tuple[ModuleType, ModuleType]:
    """`pyarrow` and `pyarrow.parquet`. Raises NoLibrary."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as bad:
        raise NoLibrary from bad
    return pyarrow, pyarrow.parquet


def item_rows(raw: bytes, path: str, members: Collection[str]) -> Iterator[tuple[int, Any]]:
    """(row, value) of each row, from 1; the value is a ValueError where a row cannot be read.

    members: of an item; each other column is an attribute, as in a CSV file. A null is a missing
    member, for a column cannot leave one out; inside a struct or a list it stays null.
    Raises ConfigError for what is no Parquet file, or has columns that no item can hold.
    """
    try:
        arrow, parquet = library()
    except NoLibrary as bad:
        what = "is a Parquet file, which needs pyarrow."
        raise ConfigError(path, [(0, "data.path", what, INSTALL)]) from bad
    row = 1
    try:
        file = parquet.ParquetFile(arrow.BufferReader(raw))
        _check_columns(arrow, file.schema_arrow, path, members)
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, use_threads=False):
            for at in range(batch.num_rows):
                yield row, _value(batch, at, members)
                row += 1
    # A broken page shows only when it is decoded, and then as any of these.
    except (arrow.ArrowException, OSError, ValueError, EOFError) as bad:
        what = f"is no Parquet file that can be read: {_first_line(bad)}."
        hint = "Write it anew."
        # `row` is the first one that was not read; before any was, the fault is the file's.
        raise ConfigError(path, [(row if row > 1 else 0, "data.path", what, hint)]) from bad


def _value(batch: Any, at: int, members: Collection[str]) -> dict[str, Any] | ValueError:
    """One row as an item is given; the ValueError says which column cannot be read."""
    value: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            cell = column[at].as_py(maps_as_pydicts="strict")
        except (ValueError, KeyError) as bad:
            return ValueError(f"the column `{name}` cannot be read: {_first_line(bad)}")
        if cell is None:
            continue
        if not _is_finite(cell):
            return ValueError(f"the column `{name}` holds a number that is not finite")
        (value if name in members else attributes)[name] = cell
    if attributes:
        given = value.setdefault("attributes", {})
        twice = sorted(set(given) & set(attributes)) if isinstance(given, dict) else ()
        if twice:
            return ValueError(f"`{twice[0]}` is a column, and in `attributes` too")
        if isinstance(given, dict):
            given.update(attributes)
    return value


def _is_finite(cell: Any) -> bool:
    """Whether JSON can say it; items are kept as JSON."""
    if isinstance(cell, float):
        return math.isfinite(cell)
    if isinstance(cell, dict):
        return all(map(_is_finite, cell.values()))
    return not isinstance(cell, list) or all(map(_is_finite, cell))


def _check_columns(arrow: Any, schema: Any, path: str, members: Collection[str]) -> None:
    """Raise ConfigError for columns of a type that JSON has not, and for a name that is twice."""
    faults: list[tuple[int, str, str, str]] = []
    for at, field in enumerate(schema):
        if field.name in schema.names[:at]:
            what = f"has two columns `{field.name}`."
            faults.append((0, "items", what, "Names of columns are unique."))
        elif not _is_plain(arrow.types, field.type):
            what = f"has a column `{field.name}` of type {field.type}."
            faults.append((0, "items", what, "Items hold what JSON can say; cast it to text."))
    faults.extend(
        (0, "items", f"has no column `{name}`.", "Each item has one.")
        for name in ("item_id", "question")
        if name in members and name not in schema.names
    )
    if faults:
        raise ConfigError(path, faults)


def _is_plain(types: Any, kind: Any) -> bool:
    if types.is_dictionary(kind):
        return _is_plain(types, kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _is_plain(types, kind.value_type)
    if types.is_map(kind):
        return _is_text(types, kind.key_type) and _is_plain(types, kind.item_type)
    if types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        names = [field.name for field in fields]
        is_unique = len(set(names)) == len(names)
        return is_unique and all(_is_plain(types, field.type) for field in fields)
    is_number = types.is_integer(kind) or types.is_floating(kind)
    return bool(is_number or types.is_boolean(kind) or types.is_null(kind)) or _is_text(types, kind)


def _is_text(types: Any, kind: Any) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _first_line(bad: BaseException) -> str:
    return (str(bad).splitlines() or [type(bad).__name__])[0].rstrip(".")
