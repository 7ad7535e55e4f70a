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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

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


@dataclass(frozen=True, slots=True)
class Edges:
    """The closes and births of a fold that may meet open versions, and the files that may have these."""

    rows: pa.Table
    opened: Files

    @classmethod
    def of(cls, rows: pa.Table, columns: Sequence[Column], opened: Files, *, inserts_only: bool) -> Self:
        """Find those of a fold of a table with these columns; `inserts_only`: no birth meets an open version.

        Raises TooLarge.
        """
        edges = rows.slice(0, 0) if inserts_only else rows.filter(pc.not_equal(rows[KIND], RowKind.VERSION))
        files = opened.which(may_have_key_of(edges, columns))
        if files.by_name and edges.num_rows * held_bytes(files.paths) / files.rows > HELD_BYTES:
            raise TooLarge
        return cls(edges, files)


@dataclass(frozen=True, slots=True)
class Computed:
    """A fold as Arrow: `rows` as in `Folded`, and the open versions that its edges meet.

    `met` are the rows of the edges' files with the key of an edge, also those that deletion vectors mark; None without
    files. `_part` is a struct of `file`, `row` number and number of the `edge`.
    """

    rows: pa.Table
    edges: Edges
    met: pa.Table | None


def computed_by_spark(opened: Files, folded: Folded, *, inserts_only: bool) -> Computed:
    """Have Spark compute a fold; raises CannotFold, TooLarge."""

    def collect(rows: DataFrame) -> pa.Table:
        try:
            return _collect(rows)
        except raised_by("pyspark.errors", "PySparkException") as exc:
            if failure := fold_failure(opened.table, exc):
                raise failure from None  # Spark's message may quote the value
            raise

    rows = collect(folded.rows)
    edges = Edges.of(rows, folded.columns, opened, inserts_only=inserts_only)
    return Computed(rows, edges, collect(_find_open_versions(edges, folded)) if edges.opened.by_name else None)


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
    closed, ended = _closed_versions(part)
    begun = part.rows
    if part.edges.rows.num_rows:  # a filter copies the rows
        begun = begun.filter(pc.not_equal(begun[KIND], RowKind.CLOSE))
    return _added(part.edges.opened.table, pa.concat_tables([begun.drop_columns(KIND), closed])), ended


def _collect(rows: DataFrame) -> pa.Table:
    try:
        return rows.toArrow()
    except raised_by("py4j.protocol", "Py4JJavaError") as exc:
        if _RESULT_LIMIT in str(exc):
            raise TooLarge from exc
        raise


def _closed_versions(part: Computed) -> tuple[pa.Table, Mapping[str, BitMap64]]:
    """Return the closed versions as rows of the history, and the rows that they were, per file."""
    files, edges = part.edges.opened, part.edges.rows
    kinds, shape = edges[KIND], edges.schema.remove(edges.schema.get_field_index(KIND))
    if part.met is None:
        _require_agreement(files.table, kinds, kinds.slice(0, 0))
        return shape.empty_table(), {}
    met = part.met.filter(_not_deleted(files, part.met["_part"]))
    edge = pc.struct_field(met["_part"], "edge")
    _require_agreement(files.table, kinds, kinds.take(edge))
    ends = edges.select(ENDS).take(edge)
    columns = [(ends if field.name in ENDS else met, field) for field in shape]
    return pa.table([_column(rows_, field) for rows_, field in columns], schema=shape), _places(met["_part"])


def _column(rows: pa.Table, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """Return a column of rows; NULL if it is added to the history with them."""
    return rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(len(rows), field.type)


def _find_open_versions(edges: Edges, folded: Folded) -> DataFrame:
    """Return the rows of the edges' files with the key of an edge, for `Computed`."""
    spark, columns = folded.rows.sparkSession, folded.columns
    key = [column.stored for column in key_of(columns)]
    wanted = edges.rows.select([*key, "_raw"] if key else BEGIN)
    wanted = wanted.append_column("_part", pa.array(np.arange(wanted.num_rows, dtype=np.int32)))
    places = [f"c{place}" for place in range(wanted.num_columns)]
    sought = spark.createDataFrame(wanted.rename_columns(places)).toDF(
        *wanted.column_names
    )  # createDataFrame rejects some names
    opened = read_places(spark, edges.opened).alias("t")
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
