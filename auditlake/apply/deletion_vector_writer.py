"""Write a folded tail with deletion vectors: the result of a MERGE at a cost of the changed rows only.

Order of effects:
  1. Fold the tail, and find the open versions that it closes, by a join with those files of the open partition whose
     statistics do not rule out every key. Spark does both (`computed_by_spark`), or DuckDB (`embedded_fold`).
  2. Write and fsync the data files: versions that begin, and closed versions with their ends, by month. A large tail
     comes in parts (`parts`), and 1 and 2 are done for each.
  3. Write and fsync the deletion vectors, which mark the old rows of the closed versions.
  4. Write the log entry, which also moves the position. Without it, the files are orphans, which vacuum deletes.

Invariants:
  I1. Everything is read at one version of the table, and the entry is that of the next version, or fails. So nothing
      was committed in between, neither a position nor a file.
  I2. A close without an open version, or a birth with one, is an error, as in a MERGE.

Limits: the changes of a part and the closed versions must fit into memory several times; no added columns.

Authority: Delta's PROTOCOL.md, "Add File and Remove File", "Deletion Vectors"
"""

from __future__ import annotations  # types of Spark are imported for mypy only

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from auditlake.apply import keys
from auditlake.apply.errors import cannot_fold, conflict, fold_failure
from auditlake.apply.fold import Folded
from auditlake.apply.windows import WINDOW_BYTES
from auditlake.delta.commit_failures import Overtaken
from auditlake.delta.log_writer import Action, moved
from auditlake.delta.row_groups import held_bytes
from auditlake.delta.table import open_table
from auditlake.failpoints import After, reach
from auditlake.fold.net import ENDS, KIND, RowKind
from auditlake.fold.open_versions import BEGIN, TooLarge, contradiction, key_of, may_have_key_of
from auditlake.jvm_trace import raised_by
from auditlake.lake.history import HistoryTable, commit_as_read, write_rows
from auditlake.lake.history_files import Files, marked
from auditlake.lake.history_rows import read_places
from auditlake.lake.layout import HISTORY_APP
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.spark import functions as F  # noqa: N812 - the usual name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HELD_BYTES = WINDOW_BYTES
"""Limit for the uncompressed size of changes and of closed versions; both are in memory several times."""
_RESULT_LIMIT = "spark.driver.maxResultSize"


FindOpen = Callable[[Files, pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class Computed:
    """A fold as Arrow: `rows` as in `Folded`, of a table with these columns.

    `inserts_only`: all rows are births of keys without an open version, which is not looked for. `opened` are the files
    with the open versions of the other keys. `find_open` takes files and the edges (closes and births), and returns the
    rows of the files with the key of an edge, also those that deletion vectors mark. `_part` is a struct of `file`,
    `row` number and number of the `edge`.
    """

    rows: pa.Table
    columns: tuple[Column, ...]
    opened: Files
    find_open: FindOpen
    inserts_only: bool


def computed_by_spark(opened: Files, folded: Folded, *, inserts_only: bool) -> Computed:
    """Have Spark compute a fold; this and `find_open` of the result raise CannotFold, TooLarge."""

    def collect(rows: DataFrame) -> pa.Table:
        try:
            return _collect(rows)
        except raised_by("pyspark.errors", "PySparkException") as exc:
            if failure := fold_failure(opened.table, exc):
                raise failure from None  # Spark's message may quote the value
            raise

    def find_open(files: Files, edges: pa.Table) -> pa.Table:
        return collect(_find_open_versions(files, edges, folded))

    return Computed(collect(folded.rows), folded.columns, opened, find_open, inserts_only)


def mark(files: Files, parts: Iterable[Computed], upto: Lsn, reshaping: Sequence[Action] = ()) -> None:
    """Commit the fold to the history, with `upto` as its position, and the actions that change its columns.

    `files` are those of its open versions. No two parts have the same key; each is written before the next is computed.

    Raises:
        LakeConflict: if another process moved the position.
        Overtaken: if files were compacted meanwhile.
        TooLarge: before the commit.
    """
    table, added, places = files.table, list[Action](), defaultdict[str, BitMap64](BitMap64)
    for actions, ended in map(_write, parts):  # which keeps no part
        added += actions
        for name, positions in ended.items():
            places[name] |= positions
    actions = [*added, *marked(files, places)]
    reach(After.ROWS_WRITTEN)
    commit(table, "MERGE", [*moved({HISTORY_APP: upto}), *reshaping, *actions])


def _write(part: Computed) -> tuple[list[Action], Mapping[str, BitMap64]]:
    """Write the rows of a part; return their files, and the rows that closed versions were, per file."""
    rows = part.rows
    closed, ended = _closed_versions(rows.slice(0, 0) if part.inserts_only else rows, part)
    begun = (rows if part.inserts_only else rows.filter(pc.not_equal(rows[KIND], RowKind.CLOSE))).drop_columns(KIND)
    return _added(part.opened.table, pa.concat_tables([begun, closed])), ended


def _collect(rows: DataFrame) -> pa.Table:
    try:
        return rows.toArrow()
    except raised_by("py4j.protocol", "Py4JJavaError") as exc:
        if _RESULT_LIMIT in str(exc):
            raise TooLarge from exc
        raise


def _closed_versions(rows: pa.Table, computed: Computed) -> tuple[pa.Table, Mapping[str, BitMap64]]:
    """Return the closed versions as rows of the history, and the rows that they were, per file."""
    files = computed.opened
    edges = rows.filter(pc.not_equal(rows[KIND], RowKind.VERSION))
    kinds, shape = edges[KIND], rows.schema.remove(rows.schema.get_field_index(KIND))
    met = _open_versions(files, edges, computed.columns, computed.find_open)
    if met is None:
        _require_agreement(files.table, kinds, kinds.slice(0, 0))
        return shape.empty_table(), {}
    edge = pc.struct_field(met["_part"], "edge")
    _require_agreement(files.table, kinds, kinds.take(edge))
    ends = edges.select(ENDS).take(edge)
    columns = [(ends if field.name in ENDS else met, field) for field in shape]
    return pa.table([_column(rows_, field) for rows_, field in columns], schema=shape), _places(met["_part"])


def _column(rows: pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """Return a column of rows; NULL if it is added to the history with them."""
    return rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)


def _open_versions(files: Files, edges: pa.Table, columns: Sequence[Column], find_open: FindOpen) -> pa.Table | None:
    """Return live open versions with the key of an edge, as `find_open`; None without any. Raises TooLarge."""
    opened = files.which(may_have_key_of(edges, columns))
    if not opened.by_name:
        return None
    if edges.num_rows * held_bytes(opened.paths) / opened.rows > HELD_BYTES:
        raise TooLarge
    met = find_open(opened, edges)
    return met.filter(_not_deleted(opened, met["_part"]))


def _find_open_versions(files: Files, edges: pa.Table, folded: Folded) -> DataFrame:
    """Return the rows of these files with the key of an edge; `_part` contains file, row number and edge."""
    spark, columns = folded.rows.sparkSession, folded.columns
    key = [column.stored for column in key_of(columns)]
    wanted = edges.select([*key, "_raw"] if key else BEGIN)
    wanted = wanted.append_column("_part", pa.array(np.arange(edges.num_rows, dtype=np.int32)))
    places = [f"c{place}" for place in range(wanted.num_columns)]
    sought = spark.createDataFrame(wanted.rename_columns(places)).toDF(
        *wanted.column_names
    )  # createDataFrame rejects some names
    opened = read_places(spark, files).alias("t")
    met = opened.join(F.broadcast(sought.alias("s")), on=F.expr(keys.same(columns, "t", "s")))
    place = F.struct("t._part.file", "t._part.row", F.col("s._part").alias("edge")).alias("_part")
    return met.select(*(keys.source(name, "t") for name in opened.columns if name != "_part"), place)


def _not_deleted(files: Files, places: pa.ChunkedArray) -> pa.Array:
    gone = {name: files.gone(name) for name in files.by_name}
    names, rows = (pc.struct_field(places, field).to_pylist() for field in ("file", "row"))
    return pa.array([row not in gone[name] for name, row in zip(names, rows, strict=True)], pa.bool_())


def _require_agreement(table: HistoryTable, expected: pa.ChunkedArray, met: pa.ChunkedArray) -> None:
    if reason := contradiction(expected, met):
        raise cannot_fold(table, reason)


def _places(places: pa.ChunkedArray) -> Mapping[str, BitMap64]:
    table = pa.table({"file": pc.struct_field(places, "file"), "row": pc.struct_field(places, "row")})
    rows = table.group_by("file").aggregate([("row", "list")])
    return dict(zip(rows["file"].to_pylist(), map(BitMap64, rows["row_list"].to_pylist()), strict=True))


def _added(table: HistoryTable, rows: pa.Table) -> list[Action]:
    """Write the rows, one file per partition."""
    partitions = pc.unique(rows["_part"]).to_pylist()
    return [write_rows(table, each, _of_partition(rows, each, alone=len(partitions) == 1)) for each in partitions]


def _of_partition(rows: pa.Table, partition: str, *, alone: bool) -> pa.Table:
    kept = rows if alone else rows.filter(pc.equal(rows["_part"], partition))  # a filter copies the rows
    return kept.drop_columns("_part")


def commit(table: HistoryTable, operation: str, actions: Iterable[Action]) -> None:
    """Commit to a history as it was read; raises LakeConflict if its position moved since, else Overtaken."""
    try:
        commit_as_read(table, operation, actions)
    except FileExistsError:
        if open_table(table.path).transaction_version(HISTORY_APP) != table.position:
            raise conflict(table) from None
        raise Overtaken from None
