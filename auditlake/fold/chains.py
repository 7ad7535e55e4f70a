"""Chains: which row a key change moves, along all moves of a tail (`fold.net`). Pure."""

from collections.abc import Iterator

import pyarrow as pa

ROOT_COLUMNS = ("of_lsn", "of_ordinal", "root_lsn", "root_ordinal", "root_born")
ROOTS_DDL = "of_lsn bigint, of_ordinal int, root_lsn bigint, root_ordinal int, root_born boolean"
"""Schema of `roots` in Spark."""


def roots(moves: pa.Table) -> pa.Table:
    """Return the first life of the row that each key change moves: one pass, because a row moves forward only.

    A row of `moves` is a place and the life that ends there under the old key: its place, and whether it has a birth.
    The life that begins there has that place, and a birth.
    """
    root: dict[tuple[int, int], tuple[int, int, bool]] = {}
    for lsn, ordinal, life_lsn, life_ordinal, life_born in sorted(_rows(moves)):
        before = root.get((life_lsn, life_ordinal)) if life_born else None
        root[lsn, ordinal] = before or (life_lsn, life_ordinal, life_born)
    columns = [list(values) for values in zip(*((*place, *life) for place, life in root.items()), strict=True)]
    kinds = [field.type for field in moves.schema]
    arrays = [pa.array(values, kind) for values, kind in zip(columns or [[] for _ in kinds], kinds, strict=True)]
    return pa.table(dict(zip(ROOT_COLUMNS, arrays, strict=True)))


def _rows(moves: pa.Table) -> Iterator[tuple[int, int, int, int, bool]]:
    return zip(*(column.to_pylist() for column in moves.columns), strict=True)
