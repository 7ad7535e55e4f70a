"""Fold of a tail in DuckDB and Arrow, without a JVM: the rules of `fold.net`, as in Spark.

To start Spark for a tail takes many times as long as to fold most of them (`is_ordinary`): 400,000 changes of TPC-B
took 32.9 s and 35 CPU-s from the start of `apply` in Spark; they take 2.2 s and 3.1 CPU-s (2026-11-23,
bench/cold_follow.py). Spark folds every other tail, and one that fails here because a value cannot be read or memory is
short (`NotFolded`): the reason of a parked table is always one of Spark's errors.

Memory: of one part (`parts`), the changes are held as text and typed, bounded by HELD_BYTES
(`deletion_vector_writer`), as are the versions that it closes; DuckDB has the memory of the lake's session
(`delta.sql`).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.apply.deletion_vector_writer import HELD_BYTES, Computed, Edges, mark
from auditlake.apply.large_rows import has_large_changes
from auditlake.apply.merge import reshape, reshaping
from auditlake.apply.parts import TailPart, divide_tail
from auditlake.apply.tails import Tail
from auditlake.delta.sql import VIRTUAL_COLUMNS, as_relation, shared_cursor
from auditlake.failpoints import After, reach
from auditlake.fold.in_duckdb import Fold, ToFold
from auditlake.fold.open_versions import BEGIN, TooLarge, key_of
from auditlake.lake.duckdb_rows import as_table_files, same_key, stored_rows_of
from auditlake.lake.history import OPEN_PART, STORED_PERIOD
from auditlake.lake.history_files import find_files
from auditlake.relation import Column
from auditlake.sql_names import standard_identifier

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

_RAW = "_raw"


def is_ordinary(tail: Tail) -> bool:
    """Return whether `merge_embedded` may fold this tail: it has rows of usual size, and fills in no older rows."""
    return _obstacle(tail) is None


def _obstacle(tail: Tail) -> str | None:
    """Return why a tail is not folded here; None if it is."""
    if tail.followed.fills:
        return "a new column has a value in older rows"
    if any(column.key for column in tail.lacking):
        return "a new column is part of the key"
    if not VIRTUAL_COLUMNS.isdisjoint(column.stored.lower() for column in tail.followed.physical):
        return "DuckDB reserves the name of a column"
    return "it has very large rows" if has_large_changes(tail) else None


class NotFolded(Exception):
    """The tail was not folded here, for this `reason`; nothing was committed."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


def merge_embedded(tail: Tail) -> None:
    """Commit an ordinary tail to its history; one without changes moves only the position.

    Raises:
        NotFolded: if Spark has to fold it; nothing was committed.
        CannotFold: if it contradicts the history; nothing was committed.
        LakeConflict, Overtaken: as `mark`.
    """
    if tail.shape is None:
        if tail.is_reshaped:
            reshape(tail)
            reach(After.TABLE_MERGED)
        return
    if not is_ordinary(tail):
        raise NotFolded(_obstacle(tail) or "")
    if (files := find_files(tail.table)) is None:
        raise NotFolded("another program has given the history table features")
    opened = files.of_part(OPEN_PART)
    with ExitStack() as kept:
        try:
            with _not_folded():
                parts = divide_tail(tail, opened, kept)
            computed = chain.from_iterable(_computed(tail, part) for part in parts)
            mark(opened, computed, tail.upto, reshaping(tail))
        except TooLarge as exc:
            raise NotFolded(f"it needs more than {HELD_BYTES >> 20} MB, and cannot be divided") from exc
    reach(After.TABLE_MERGED)


@contextmanager
def _not_folded() -> Iterator[None]:
    import duckdb  # noqa: PLC0415 - see above

    try:
        yield
    except (duckdb.Error, pa.ArrowInvalid, ValueError) as exc:  # whose text may quote a value
        raise NotFolded(f"a value cannot be read, or memory is short ({type(exc).__name__})") from exc


def _computed(tail: Tail, part: TailPart) -> Iterator[Computed]:
    """Fold a part of a tail; raises NotFolded, or TooLarge if too many or incomplete open versions end."""
    with closing(shared_cursor(tail.table.path)) as connection:
        to_fold = ToFold(
            part.changes(connection, tail),
            tail.followed,
            as_table_files(part.opened),
            part.condition,
            most_bytes=HELD_BYTES * part.of,
            row_condition=part.row_condition,
        )
        with _not_folded():
            rows = Fold(connection, to_fold).rows()
        edges = Edges.of(rows, tail.columns, part.opened, inserts_only=part.inserts_only)
        with _not_folded():
            met = _find_open(connection, tail.columns, edges) if edges.opened.by_name else None
        yield Computed(rows, edges, met)


def _find_open(connection: "DuckDBPyConnection", columns: Sequence[Column], found: Edges) -> pa.Table:
    """Return the rows of the edges' files with the key of an edge, for `Computed`."""
    key, files, edges = key_of(columns), found.opened, found.rows
    sought = {"edge": pa.array(np.arange(edges.num_rows, dtype=np.int32))}
    for number, column in enumerate(key):
        sought[f"k{number}"] = edges[column.stored]
        sought[f"r{number}"] = pc.map_lookup(edges[_RAW], column.stored, "first")
    sought |= {} if key else {name: edges[name] for name in BEGIN}
    # Delta's writers put `_part` into the files, too; ours do not.
    names = [*(column.stored for column in files.table.columns), *STORED_PERIOD]
    shown = ", ".join(f"h.{standard_identifier(name)}" for name in names)
    same = same_key(key, "w") or " and ".join(f"h.{name} = w.{name}" for name in BEGIN)
    wanted = as_relation(connection, pa.table(sought))
    met = connection.sql(
        f"select {shown}, h.file_index, h.file_row_number, w.edge"
        f" from ({stored_rows_of(connection, files)}) h join {wanted} w on {same}"
    ).to_arrow_table()
    *values, number, row, edge = (column.combine_chunks() for column in met.columns)
    file = pa.array(list(files.by_name), pa.string()).take(number)
    part = pa.StructArray.from_arrays([file, row, edge], names=["file", "row", "edge"])
    return pa.table({**dict(zip(names, values, strict=True)), "_part": part})
