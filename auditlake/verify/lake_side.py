"""Lake side of a verification: a table as of an LSN, from history and tail, digested in Spark's workers.

Typed values are converted back to PostgreSQL's text (`values.exact_text`), or taken from `_raw`. The driver collects
only the sums of buckets and the rows of differing buckets.

`reading` reports a history that cannot be read or folded as a finding, not as a bug.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.apply.errors import fold_failure
from auditlake.lake.history import HistoryTable
from auditlake.lake.history_files import find_files
from auditlake.lsn import Lsn
from auditlake.query.as_of import read_selection
from auditlake.query.pending_tail import find_reading_tails
from auditlake.query.spark_values import SETTING
from auditlake.query.system_time import State, select_state
from auditlake.relation import Column
from auditlake.temporal.moments import Known
from auditlake.temporal.when import AtLsn
from auditlake.values.exact_text import stored_texts
from auditlake.verify.digest import SIDE_SCHEMA, Digest, Sums, rows_of_buckets
from auditlake.verify.report import Finding

# Searched in every cause's message: collecting Arrow batches wraps Spark's own exception in others.
_UNREADABLE = re.compile(r"\[((?:FAILED_READ_FILE|PATH_NOT_FOUND|CANNOT_READ_FILE)[A-Z_.]*)\]")
_SUMS_DDL = "bucket bigint, n bigint, high bigint, low bigint"
_SIDE_DDL = "identity bigint, key array<string>, hashes array<bigint>"
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_BATCH_BYTES = str(16 << 20)
_SMALL_BYTES = 4 << 20
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}

Batches = Iterable[pa.RecordBatch]


class Unreadable(Exception):
    """A history cannot be read or folded; `finding` is the reason."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.kind)
        self.finding = finding


@contextmanager
def reading(table: HistoryTable) -> Iterator[None]:
    """Turn Spark's errors about damaged files and contradicting changes into Unreadable, without their text."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as exc:
        finding = _finding(table, exc)
        if finding is None:
            raise
        raise Unreadable(finding) from None


def _finding(table: HistoryTable, exc: PySparkException | Py4JJavaError) -> Finding | None:
    for cause, message in _causes(exc):
        if condition := _UNREADABLE.search(message):
            return Finding("unreadable rows", detail=condition[1])
        if failure := fold_failure(table, cause):
            return Finding("contradicts changes", detail=failure.what)
    return None


def _causes(exc: PySparkException | Py4JJavaError) -> Iterator[tuple[PySparkException, str]]:
    """Yield each cause as a PySparkException, with its message."""
    if isinstance(exc, PySparkException):
        yield exc, str(exc)
        return
    java = exc.java_exception
    while java is not None:
        yield convert_exception(java), str(java.getMessage())
        java = java.getCause()


@dataclass(frozen=True, slots=True)
class VerifiedState:
    """A table as of an LSN, with its columns at that LSN."""

    rows: DataFrame
    columns: tuple[Column, ...]


def exact_session(spark: SparkSession, table: HistoryTable) -> SparkSession:
    """Return a new session that returns stored values unchanged, in batches of bounded size.

    For a small table, code generation is off: compiling plans would take longer than interpreting them.
    """
    session = spark.newSession()
    session.conf.set(SETTING, "string")
    session.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", _BATCH_BYTES)
    files = find_files(table)
    if files is not None and files.size_bytes < _SMALL_BYTES:
        for name, value in _INTERPRETED.items():
            session.conf.set(name, value)
    return session


def state_at(session: SparkSession, known: Known, table: HistoryTable, lsn: Lsn) -> VerifiedState:
    """Plan the state of a table as of `lsn`; raises NotAnswerable or Unsupported if it is not exactly known."""
    chosen = State(select_state(known, table, lsn, AtLsn(lsn)).lsn, raw=True)
    tails = find_reading_tails(known, [(table, chosen)])
    columns, names = tails.columns_shown(table, chosen)
    shown = tuple(replace(column, stored_as=names[column.stored]) for column in columns)
    return VerifiedState(read_selection(session, table, chosen, tails), shown)


def sums_of(state: VerifiedState, columns: Sequence[Column], digest: Digest) -> Sums:
    """Sum up the digests of the state's rows over these columns."""
    parts = _mapped(state.rows, _summing(columns, digest), _SUMS_DDL)
    added = parts.groupBy("bucket").agg(F.sum("n").alias("n"), F.sum("high").alias("high"), F.sum("low").alias("low"))
    totals = added.toArrow()
    buckets = totals["bucket"].to_numpy()
    sums = Sums(digest.buckets)
    sums.rows[buckets] = totals["n"].to_numpy()
    # Spark fails if a sum overflows, so the halves of the digests were added.
    high, low = (totals[name].to_numpy().astype(np.uint64) for name in ("high", "low"))
    sums.digests[buckets] = (high << _HALF) + low
    return sums


def bucket_rows(
    state: VerifiedState, columns: Sequence[Column], digest: Digest, wanted: npt.NDArray[np.int64]
) -> pa.Table:
    """Return the rows of the wanted buckets, as SIDE_SCHEMA."""
    return _mapped(state.rows, _choosing(columns, digest, wanted), _SIDE_DDL).toArrow().cast(SIDE_SCHEMA)


def _mapped(rows: DataFrame, function: Callable[[Batches], Iterator[pa.RecordBatch]], ddl: str) -> DataFrame:
    """Return `mapInArrow`, which takes a dot in the name of a column for a field of a struct."""
    names = rows.columns

    def named(batches: Batches) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return rows.toDF(*(f"c{place}" for place in range(len(names)))).mapInArrow(named, ddl)


def row_texts(batch: pa.RecordBatch, columns: Sequence[Column], digest: Digest) -> list[pa.Array]:
    """Return PostgreSQL's text of each column of a batch of history rows; for the digest's floats, numbers."""
    raw = batch.column(batch.schema.get_field_index("_raw"))
    texts = []
    for place, column in enumerate(columns):
        values = batch.column(batch.schema.get_field_index(column.stored))
        texts.append(values if place in digest.floats else stored_texts(column, values, raw))
    return texts


def _summing(columns: Sequence[Column], digest: Digest) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def summed(batches: Batches) -> Iterator[pa.RecordBatch]:
        sums = Sums(digest.buckets)
        for batch in batches:
            sums.add_rows(digest, digest.of_rows(row_texts(batch, columns, digest), batch.num_rows))
        buckets = np.flatnonzero(sums.rows)
        digests = sums.digests[buckets]
        halves = ((digests >> _HALF).astype(np.int64), (digests & _LOW).astype(np.int64))
        values = (buckets.astype(np.int64), sums.rows[buckets], *halves)
        names = ("bucket", "n", "high", "low")
        yield pa.RecordBatch.from_pydict(dict(zip(names, map(pa.array, values), strict=True)))

    return summed


def _choosing(
    columns: Sequence[Column], digest: Digest, wanted: npt.NDArray[np.int64]
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def chosen(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = row_texts(batch, columns, digest)
            yield rows_of_buckets(digest, digest.of_rows(texts, batch.num_rows), texts, wanted)

    return chosen
