"""Write a folded tail into its history for the price of its own rows: what the MERGE does, without Delta's writers.

Spark folds the tail and finds the open versions that it ends, by a broadcast join with the files of the open partition
that may hold one of the keys. The rest needs no plan: the rows that ended are marked in deletion vectors, and stand in
a new file of their month, beside the versions that begin. One entry in Delta's log makes all of it so, and moves the
position.

1. Everything is read as of one version of the table, and the entry is that of the next version, or there is none: so
   nothing was committed in between, neither a position nor a file.
2. Files come before the vectors and these before the entry, each on the disk. Without the entry they are nobody's, and
   a vacuum deletes them.
3. A close that finds no open version, or a birth that finds one, fails, as it does in a MERGE.

For tails of which all rows fit into memory several times, without new columns.

Authority: Delta's PROTOCOL.md, "Add File and Remove File", "Deletion Vectors"
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyroaring import BitMap64
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import keys
from auditlake.apply.failures import broken, conflict, contradiction, folded_wrong
from auditlake.apply.fold import ENDS, Folded, Kind
from auditlake.failpoints import After, reach
from auditlake.lake.commits import Action, moved, put_commit, removed
from auditlake.lake.conflicts import Overtaken
from auditlake.lake.deletionvectors import Descriptor, write_vectors
from auditlake.lake.history import HistoryTable, whole_number_keys, write_rows
from auditlake.lake.layout import HISTORY_APP
from auditlake.lake.scan import File, Files, read_places
from auditlake.relation import Column

HELD_BYTES = 64 << 20
"""Up to this size in their files, changes and versions that end are held in memory, which takes several times that."""
_CHECKPOINT_EVERY = 10
_RESULT_LIMIT = "spark.driver.maxResultSize"


class TooLarge(Exception):
    """There is more to write than should be held in memory; nothing was done."""


def mark(files: Files, folded: Folded, upto: int, *, inserts_only: bool) -> None:
    """Make the fold part of the history, and `upto` its position.

    Raises LakeConflict if another process moved the table, Overtaken if its files were joined meanwhile, TooLarge.
    """
    table = files.table
    try:
        rows = _held(folded.rows)
        ended, places = _ended(files, rows.slice(0, 0) if inserts_only else rows, folded)
    except PySparkException as exc:
        if wrong := broken(table, exc):
            raise wrong from None  # what Spark says may quote the value
        raise
    begun = rows.filter(pc.not_equal(rows["_kind"], Kind.CLOSE)).drop_columns("_kind")
    actions = [*_added(table, pa.concat_tables([begun, ended])), *_marked(files, places)]
    reach(After.ROWS_WRITTEN)
    _commit(table, [*moved({HISTORY_APP: upto}), *actions])


def _held(rows: DataFrame) -> pa.Table:
    try:
        return rows.toArrow()
    except Py4JJavaError as exc:
        if _RESULT_LIMIT in str(exc):
            raise TooLarge from exc
        raise


def _ended(files: Files, rows: pa.Table, folded: Folded) -> tuple[pa.Table, Mapping[str, BitMap64]]:
    """The open versions that end, with their ends, as rows of the history; and which rows of which files they were."""
    edges = rows.filter(pc.not_equal(rows["_kind"], Kind.VERSION))
    kinds, shape = edges["_kind"], rows.schema.remove(rows.schema.get_field_index("_kind"))
    opened = _may_hold(files, edges, folded.columns)
    if not opened.by_name:
        _see_agreement(files.table, kinds, kinds.slice(0, 0))
        return shape.empty_table(), {}
    if edges.num_rows * opened.size_bytes / opened.rows > HELD_BYTES:
        raise TooLarge
    met = _held(_look_up(opened, edges, folded))
    met = met.filter(_still_there(opened, met["_part"]))
    edge = pc.struct_field(met["_part"], "edge")
    _see_agreement(files.table, kinds, kinds.take(edge))
    ends = edges.select(ENDS).take(edge)
    columns = [ends[field.name] if field.name in ENDS else met[field.name].cast(field.type) for field in shape]
    return pa.table(columns, schema=shape), _places(met["_part"])


def _may_hold(files: Files, edges: pa.Table, columns: Sequence[Column]) -> Files:
    """The files of which no bounds exclude every key."""
    known = {column.stored: np.unique(edges[column.stored].to_numpy()) for column in whole_number_keys(columns)}
    return files.which(
        lambda file: edges.num_rows > 0 and all(_reaches(file, name, values) for name, values in known.items())
    )


def _reaches(file: File, column: str, values: np.ndarray) -> bool:
    bounds = file.bounds(column)
    if bounds is None:
        return True
    low, high = bounds
    return bool(np.searchsorted(values, low, "left") < np.searchsorted(values, high, "right"))


def _look_up(files: Files, edges: pa.Table, folded: Folded) -> DataFrame:
    """Rows of these files that have the key of an edge; `_part` says which row of which file, and which edge."""
    spark, columns = folded.rows.sparkSession, folded.columns
    key = [column.stored for column in keys.key_of(columns)]
    wanted = edges.select([*key, "_raw"] if key else keys.BEGIN)
    wanted = wanted.append_column("_part", pa.array(np.arange(edges.num_rows, dtype=np.int32)))
    places = [f"c{place}" for place in range(wanted.num_columns)]
    sought = spark.createDataFrame(wanted.rename_columns(places)).toDF(*wanted.column_names)  # which takes no odd names
    opened = read_places(spark, files).alias("t")
    met = opened.join(F.broadcast(sought.alias("s")), on=F.expr(keys.same(columns, "t", "s")))
    which = F.struct("t._part.file", "t._part.row", F.col("s._part").alias("edge")).alias("_part")
    return met.select(*(keys.source(name, "t") for name in opened.columns if name != "_part"), which)


def _still_there(files: Files, places: pa.ChunkedArray) -> pa.Array:
    gone = {name: files.gone(name) for name in files.by_name}
    names, rows = (pc.struct_field(places, field).to_pylist() for field in ("file", "row"))
    return pa.array([row not in gone[name] for name, row in zip(names, rows, strict=True)], pa.bool_())


def _see_agreement(table: HistoryTable, expected: pa.ChunkedArray, met: pa.ChunkedArray) -> None:
    if wrong := contradiction(expected, met):
        raise folded_wrong(table, wrong)


def _places(found: pa.ChunkedArray) -> Mapping[str, BitMap64]:
    table = pa.table({"file": pc.struct_field(found, "file"), "row": pc.struct_field(found, "row")})
    rows = table.group_by("file").aggregate([("row", "list")])
    return dict(zip(rows["file"].to_pylist(), map(BitMap64, rows["row_list"].to_pylist()), strict=True))


def _added(table: HistoryTable, rows: pa.Table) -> list[Action]:
    """Write the rows, a file for each part."""
    parts = {part: rows.filter(pc.equal(rows["_part"], part)) for part in pc.unique(rows["_part"]).to_pylist()}
    return [write_rows(table, part, of_part.drop_columns("_part")) for part, of_part in parts.items()]


def _marked(files: Files, places: Mapping[str, BitMap64]) -> list[Action]:
    """Mark these rows; a file of which none is left is taken out."""
    gone = {name: rows | files.gone(name) for name, rows in places.items()}
    left = [name for name, rows in gone.items() if len(rows) < files.by_name[name].rows]
    vectors = write_vectors(files.table.path, [gone[name] for name in left]) if left else []
    kept = [_with_vector(files.by_name[name], vector) for name, vector in zip(left, vectors, strict=True)]
    return [*(removed(files.by_name[name].add) for name in places), *kept]


def _with_vector(file: File, vector: Descriptor) -> Action:
    """The bounds stay, though the rows that had them may be gone."""
    stats = json.dumps({**file.stats, "tightBounds": False})
    return {"add": {**file.add, "dataChange": True, "stats": stats, "deletionVector": vector}}


def _commit(table: HistoryTable, actions: list[Action]) -> None:
    version = table.delta_version + 1
    try:
        put_commit(table.path, version, "MERGE", actions)
    except FileExistsError:
        if DeltaTable(table.path).transaction_version(HISTORY_APP) != table.position:
            raise conflict(table) from None
        raise Overtaken from None
    if version % _CHECKPOINT_EVERY == 0:
        DeltaTable(table.path).create_checkpoint()
