"""The joined rows of a run as a Parquet file: typed columns, made from the type of a row.

A column is null exactly where the row says null. What may also be absent is no plain column:
`scores` is a map, in which a scorer that said nothing has a null and one that did not look has no
entry; of the reasoning, `reasoning_state` says whether it was text, empty, null or absent. The text
itself has no column, for the schema is that of `Row`, which has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import inspect

from everyturn.bench.folder import RunRefused, replacing
from everyturn.bench.parquet import INSTALL, NoLibrary, library
from everyturn.bench.rows import Row
from everyturn.bench.viewing import JOINED, Joined

ROWS_MAX: Final = 10_000
"""Rows of a row group; fewer where they are long."""
BYTES_MAX: Final = 32 * 1024**2
"""Bytes of JSON of the rows in a row group, the last row apart: what is in memory at once."""


def write_parquet(joined: Joined, out: Path) -> None:
    """Write every row of a run, whole or not at all; by one pyarrow the same run in the same bytes.

    Raises RunRefused where pyarrow is missing, or a value does not fit its column.
    """
    try:
        arrow, parquet = library()
    except NoLibrary as bad:
        raise RunRefused("Parquet needs pyarrow, which is not installed.", INSTALL) from bad
    schema = _schema(arrow)
    form = {"compression": "zstd", "version": "2.6"}
    with replacing(out) as file, parquet.ParquetWriter(file, schema, **form) as writer:
        for rows in _groups(joined.rows()):
            writer.write_table(_table(arrow, schema, rows, out), row_group_size=len(rows))


def _groups(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(msgspec.json.encode(row))
        if len(group) == ROWS_MAX or size >= BYTES_MAX:
            yield group
            group, size = [], 0
    if group:
        yield group


def _table(arrow: Any, schema: Any, rows: list[dict[str, Any]], out: Path) -> Any:
    try:
        return _made(arrow, schema, rows)
    except (arrow.ArrowException, OverflowError, ValueError):
        for row in rows:
            try:
                _made(arrow, schema, [row])
            except (arrow.ArrowException, OverflowError, ValueError) as bad:
                at = f"{row['cell']}/{row['model']}, item {row['item_id']}, epoch {row['epoch']}"
                raise RunRefused(
                    f"{out} is not written: a value of the row {at} fits no column: {bad}.",
                    "`--format jsonl` takes it.",
                ) from bad
        raise


def _made(arrow: Any, schema: Any, rows: list[dict[str, Any]]) -> Any:
    # A member without a column would be lost without a word.
    assert all(len(row) == len(schema.names) for row in rows)
    columns = []
    for field in schema:
        values = [row[field.name] for row in rows]
        if arrow.types.is_map(field.type):
            values = [list(value.items()) for value in values]
        columns.append(arrow.array(values, field.type))
    return arrow.Table.from_arrays(columns, schema=schema)


def _schema(arrow: Any) -> Any:
    """The columns: the members of a row, then what is joined to it."""
    info = inspect.type_info(Row)
    assert isinstance(info, inspect.StructType)
    fields = [_field(arrow, member.encode_name, member.type) for member in info.fields]
    fields += [_field(arrow, name, inspect.type_info(kind)) for name, kind in JOINED.items()]
    return arrow.schema(fields)


def _field(arrow: Any, name: str, kind: inspect.Type) -> Any:
    is_null_possible = False
    if isinstance(kind, inspect.UnionType):
        rest = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        is_null_possible = len(rest) < len(kind.types)
        (kind,) = rest
    return arrow.field(name, _type(arrow, kind), nullable=is_null_possible)


def _type(arrow: Any, kind: inspect.Type) -> Any:
    match kind:
        case inspect.StrType() | inspect.LiteralType():
            return arrow.string()
        case inspect.BoolType():
            return arrow.bool_()
        case inspect.IntType():
            return arrow.int64()
        case inspect.FloatType():
            return arrow.float64()
        case inspect.VarTupleType() | inspect.ListType():
            return arrow.list_(_field(arrow, "element", kind.item_type))
        case inspect.DictType():
            value = _field(arrow, "value", kind.value_type)
            return arrow.map_(_type(arrow, kind.key_type), value)
        case inspect.StructType():
            return arrow.struct([_field(arrow, m.encode_name, m.type) for m in kind.fields])
        case _:
            raise TypeError(f"no column holds {kind}")
