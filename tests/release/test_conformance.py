"""Conformance of `auditlake.delta`: four readers return the same rows of a table of ours and of one of Spark's.

Each case builds a table with our writer and one of the same content with Spark's, and reads both with Spark, deltalake,
DuckDB and polars. A reader that does not support a feature would fail for both tables; one that misreads what we write
fails for ours only.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, Schema
from deltalake.schema import PrimitiveType
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from auditlake.delta.append_table import AppendLog
from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.data_files import list_files, write_part
from auditlake.delta.deletion_vectors import write_vectors
from auditlake.delta.log_writer import (
    Action,
    Creation,
    create_table,
    moved,
    put_commit,
    removed,
    with_schema,
    without_change,
)

pytestmark = pytest.mark.spark

_ROWS = pa.schema([("id", pa.int64()), ("number", pa.int32()), ("day", pa.date32()), ("name", pa.string())])
_DDL = "id bigint, number int, day date, name string"
_STATISTICS = ["id", "number"]
_ODD_VALUES = ("a b", "50%", "%41", "a/b", "x=y", "é", "it's", "#?&:*+", "{~}", "2026-11")

Row = tuple[Any, ...]
Reader = Callable[[Path, str], Sequence[Row]]


def numbered(*ids: int) -> pa.Table:
    """Return one row for each id; every third has NULL as its number."""
    day = dt.date(2026, 11, 1)
    rows = [
        (number, None if number % 3 == 0 else -number, day + dt.timedelta(number), f"näme {number}") for number in ids
    ]
    return pa.Table.from_pylist([dict(zip(_ROWS.names, row, strict=True)) for row in rows], schema=_ROWS)


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows in the order of their ids, which are the first column."""
    return sorted(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


@dataclass
class Ours:
    """A table written by `auditlake.delta`, partitioned by `part`."""

    path: Path
    version: int = 0

    def __post_init__(self) -> None:
        schema = Schema.from_arrow(pa.schema([*_ROWS, ("part", pa.string())]))
        create_table(self.path, Creation("t", schema, ("part",), {"delta.enableDeletionVectors": "true"}))

    def commit(self, *actions: Action) -> None:
        """Commit the next version."""
        self.version += 1
        put_commit(self.path, self.version, "WRITE", actions)

    def append(self, rows: pa.Table, part: str = "open") -> None:
        """Append a file to a partition."""
        self.commit(write_part(self.path, rows, _STATISTICS, {"part": part}))

    def delete(self, place: int, *positions: int) -> None:
        """Mark rows of a file, by its place in the listing, in a deletion vector."""
        file = list_files(self.path, self.version)[place]
        (vector,) = write_vectors(self.path, [BitMap64(positions)])
        self.commit(removed(file.add), {"add": {**file.add, "dataChange": True, "deletionVector": vector}})

    def compact(self) -> None:
        """Replace all files by one, without a change of data."""
        files = list_files(self.path, self.version)
        rows = [pq.ParquetFile(self.path / file.add["path"]).read() for file in files]
        added = write_part(self.path, pa.concat_tables(rows), _STATISTICS, {"part": "open"})
        self.commit(*(without_change(action) for action in (*(removed(file.add) for file in files), added)))

    def add_column(self) -> None:
        """Add a column after all others; no file has it yet."""
        table, later = DeltaTable(self.path), Field("later", PrimitiveType("string"), nullable=True)
        self.commit(*with_schema(table, [*table.schema().fields, later], {}))


@dataclass
class Sparks:
    """A table of the same schema written by Spark."""

    path: Path
    spark: SparkSession

    def __post_init__(self) -> None:
        self.sql(
            "create table {t} (" + _DDL + ", part string) using delta partitioned by (part) "
            "tblproperties (delta.enableDeletionVectors = true)"
        )

    def sql(self, statement: str) -> None:
        """Run a statement; `{t}` is the table."""
        self.spark.sql(statement.replace("{t}", f"delta.`{self.path}`"))

    def append(self, rows: pa.Table, part: str = "open") -> None:
        """Append rows to a partition, in one file."""
        frame = self.spark.createDataFrame(rows.append_column("part", pa.array([part] * rows.num_rows)))
        frame.coalesce(1).write.format("delta").mode("append").save(str(self.path))


@pytest.fixture(scope="module")
def readers(spark: SparkSession) -> Iterator[Mapping[str, Reader]]:
    """Return the readers by name: each returns the rows that meet a condition, in the order of their ids."""
    folder = Path(duckdb_extension_delta.__file__).parent

    def by_spark(path: Path, condition: str) -> list[Row]:
        return [
            tuple(row) for row in spark.read.format("delta").load(str(path)).where(condition).orderBy("id").collect()
        ]

    def by_deltalake(path: Path, condition: str) -> list[Row]:
        query = QueryBuilder().register("t", DeltaTable(path))
        return rows_of(pa.table(query.execute(f"select * from t where {condition}").read_all()))

    def by_polars(path: Path, condition: str) -> list[Row]:
        return pl.scan_delta(str(path)).filter(pl.sql_expr(condition)).sort("id").collect().rows()

    with duckdb.connect() as connection:
        connection.load_extension(str(next(folder.rglob("delta.duckdb_extension"))))

        def by_duckdb(path: Path, condition: str) -> list[Row]:
            return connection.execute(f"select * from delta_scan('{path}') where {condition} order by id").fetchall()

        yield {"spark": by_spark, "deltalake": by_deltalake, "polars": by_polars, "duckdb": by_duckdb}


@pytest.fixture
def ours(tmp_path: Path) -> Ours:
    """Create an empty table of ours."""
    return Ours(tmp_path / "ours")


@pytest.fixture
def sparks(tmp_path: Path, spark: SparkSession) -> Sparks:
    """Create an empty table of Spark's."""
    return Sparks(tmp_path / "spark", spark)


def assert_all_read(
    readers: Mapping[str, Reader], paths: Sequence[Path], expected: Sequence[Row], condition: str = "true"
) -> None:
    """Check that every reader returns these rows of every table."""
    found = {(name, path.name): read(path, condition) for path in paths for name, read in readers.items()}
    assert found == {key: list(expected) for key in found}


def with_part(rows: pa.Table, part: str = "open") -> list[Row]:
    """Return rows with the value of their partition."""
    return [(*row, part) for row in rows_of(rows)]


def test_appended_rows_are_read_alike(readers: Mapping[str, Reader], tmp_path: Path, spark: SparkSession) -> None:
    """A table without table features, as capture writes it."""
    log = AppendLog(tmp_path / "ours", _ROWS)
    plain = f"delta.`{tmp_path / 'spark'}`"
    spark.sql(f"create table {plain} ({_DDL}) using delta")
    for rows in (numbered(1, 2, 3), numbered(4)):
        log.append(rows.combine_chunks().to_batches()[0], {"app": 7})
        spark.createDataFrame(rows).write.format("delta").mode("append").save(str(tmp_path / "spark"))
    assert_all_read(readers, [tmp_path / "ours", tmp_path / "spark"], rows_of(numbered(1, 2, 3, 4)))
    log.tidy()
    assert len(log.table.file_uris()) == 1
    assert_all_read(readers, [tmp_path / "ours"], rows_of(numbered(1, 2, 3, 4)))


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("id = 5", (5,)),
        ("id > 6 and id <= 8", (7, 8)),
        ("number is null", (3, 6, 9)),
        ("number <= -7", (7, 8)),
        ("name = 'näme 4'", (4,)),
    ],
)
def test_files_skipped_by_statistics_have_no_matching_rows(
    readers: Mapping[str, Reader], tables_with_statistics: Sequence[Path], condition: str, ids: Sequence[int]
) -> None:
    """Conditions on columns with and without statistics, of files with disjoint ids."""
    assert_all_read(readers, tables_with_statistics, with_part(numbered(*ids)), condition)


@pytest.fixture(scope="module")
def tables_with_statistics(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Sequence[Path]:
    """Write three files of three rows into both tables."""
    folder = tmp_path_factory.mktemp("statistics")
    ours, sparks = Ours(folder / "ours"), Sparks(folder / "spark", spark)
    for first in (1, 4, 7):
        ours.append(numbered(first, first + 1, first + 2))
        sparks.append(numbered(first, first + 1, first + 2))
    return [ours.path, sparks.path]


def test_statistics_equal_those_of_spark(tables_with_statistics: Sequence[Path]) -> None:
    """The log has the same number of rows, bounds and NULLs for the columns that both writers list."""
    ours, sparks = (
        [
            (
                file.rows,
                file.bounds("id"),
                file.bounds("number"),
                file.stats["nullCount"]["id"],
                file.stats["nullCount"]["number"],
            )
            for file in sorted(list_files(path, 3), key=lambda file: file.bounds("id") or ())
        ]
        for path in tables_with_statistics
    )
    assert ours == sparks


def test_rows_in_deletion_vectors_are_not_read(readers: Mapping[str, Reader], ours: Ours, sparks: Sparks) -> None:
    """Rows marked in one file, and marked again with more of them."""
    for table in (ours, sparks):
        table.append(numbered(*range(10)))
        table.append(numbered(*range(10, 20)))
    ours.delete(0, 0, 3)
    ours.delete(1, 0, 3, 9)
    sparks.sql("delete from {t} where id in (0, 3)")
    sparks.sql("delete from {t} where id = 9")
    left = with_part(numbered(*(number for number in range(20) if number not in {0, 3, 9})))
    assert_all_read(readers, [ours.path, sparks.path], left)
    assert_all_read(readers, [ours.path, sparks.path], [], "id = 3")


def test_a_checkpoint_replaces_the_entries_before_it(readers: Mapping[str, Reader], ours: Ours, sparks: Sparks) -> None:
    """With deletion vectors and an added column in it, the entries before it deleted, and a commit after it."""
    for table in (ours, sparks):
        table.append(numbered(*range(6)))
    ours.delete(0, 2)
    ours.add_column()
    ours.commit(*moved({"app": 7}))
    sparks.sql("delete from {t} where id = 2")
    sparks.sql("alter table {t} add column later string")
    for path in (ours.path, sparks.path):
        checkpoint(path)
        for entry in sorted((path / "_delta_log").glob("*.json"))[:-1]:
            entry.unlink()
    for table in (ours, sparks):
        table.append(numbered(7, 8))
    expected = [(*row, "open", None) for row in rows_of(numbered(0, 1, 3, 4, 5, 7, 8))]
    assert_all_read(readers, [ours.path, sparks.path], expected)
    assert DeltaTable(ours.path).transaction_version("app") == 7


def test_partition_values_keep_special_characters(readers: Mapping[str, Reader], ours: Ours, sparks: Sparks) -> None:
    """Every reader takes the value from the log, and finds the file at its encoded path."""
    for number, value in enumerate(_ODD_VALUES):
        ours.append(numbered(number), value)
    parts = pa.array(_ODD_VALUES)
    rows = numbered(*range(len(_ODD_VALUES)))
    frame = sparks.spark.createDataFrame(rows.append_column("part", parts))
    frame.write.format("delta").mode("append").save(str(sparks.path))
    expected = [(*row, value) for row, value in zip(rows_of(rows), _ODD_VALUES, strict=True)]
    assert_all_read(readers, [ours.path, sparks.path], expected)
    assert_all_read(readers, [ours.path, sparks.path], expected[3:4], "part = 'a/b'")


def test_compacted_files_have_the_same_rows(readers: Mapping[str, Reader], ours: Ours, sparks: Sparks) -> None:
    """One file in place of three, by a commit that changes no data."""
    for first in (1, 4, 7):
        ours.append(numbered(first, first + 1, first + 2))
        sparks.append(numbered(first, first + 1, first + 2))
    ours.compact()
    sparks.sql("optimize {t}")
    assert [len(list_files(path, 4)) for path in (ours.path, sparks.path)] == [1, 1]
    assert_all_read(readers, [ours.path, sparks.path], with_part(numbered(*range(1, 10))))


def test_added_columns_are_null_in_older_files(readers: Mapping[str, Reader], ours: Ours, sparks: Sparks) -> None:
    """A column after all others, which only the second file has."""
    later = numbered(3, 4).append_column("later", pa.array(["x", None]))
    ours.append(numbered(1, 2))
    ours.add_column()
    ours.append(later)
    sparks.append(numbered(1, 2))
    sparks.sql("alter table {t} add column later string")
    sparks.append(later)
    values = (None, None, "x", None)
    expected = [(*row, value) for row, value in zip(with_part(numbered(1, 2, 3, 4)), values, strict=True)]
    assert_all_read(readers, [ours.path, sparks.path], expected)
