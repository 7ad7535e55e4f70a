"""Cost of exactness: copy and fold of lineitem, with and without the checks for values that do not fit.

    python bench/values.py [ROWS]

Without the checks a date out of range would be wrong, NaN would stop the copy, and `_raw` would stay empty. A turn runs
with, without and with checks, after one unmeasured run of each. The cost is the median over the turns of the ratio of
the runs with checks to the one without; the noise is the same median for the two runs with checks. The copy's time is
its process's CPU time, the fold's that of the JVM without its compilers. The fold is measured alone, from rows in
memory to Spark's noop sink, and in a batch, from `changes` to the history.
"""

import contextlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from harness.usage import cpu_s, jvm_of
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply.apply import apply_pending
from auditlake.apply.fold import fold
from auditlake.apply.tails import TailShape
from auditlake.demo.server import Server
from auditlake.lake.history import create_history, type_of
from auditlake.lake.layout import CHANGES_APP, HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.lake.relations import RelationVersion, version_rows
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.snapshot.copy import copy_bundle
from auditlake.snapshot.ctid_ranges import CopyTask, PageRange, SnapshotMark
from auditlake.source.catalog import read_tables
from auditlake.source.connection import connect, pinned_conninfo
from auditlake.spark.session import spark_session

ROUNDS = 11
NAME = TableName("public", "lineitem")
LINEITEM = """
create table lineitem as
select n as l_orderkey, n * 7 % 200000 as l_partkey, n % 10000 as l_suppkey, (n % 7)::int as l_linenumber,
       (n % 50)::numeric(15,2) as l_quantity, (n * 3.17)::numeric(15,2) as l_extendedprice,
       (n % 10 / 100.0)::numeric(15,2) as l_discount, (n % 8 / 100.0)::numeric(15,2) as l_tax,
       'N'::char(1) as l_returnflag, 'O'::char(1) as l_linestatus, date '1995-01-01' + (n % 2000)::int as l_shipdate,
       date '1995-02-01' + (n % 2000)::int as l_commitdate, date '1995-03-01' + (n % 2000)::int as l_receiptdate,
       'DELIVER IN PERSON'::char(25) as l_shipinstruct, 'TRUCK'::char(10) as l_shipmode,
       'carefully final deposits ' || n::varchar(44) as l_comment
  from generate_series(1, {rows}::bigint) n;
alter table lineitem add primary key (l_orderkey)
"""


def main() -> None:
    """Measure the copy, then the fold."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
    with Server(18) as server, connect(server.dsn()) as conn, tempfile.TemporaryDirectory() as folder:
        for statement in LINEITEM.format(rows=rows).split(";"):
            conn.execute(f"set search_path = public; {statement}".encode())
        (table,) = read_tables(conn)
        columns = table.relation.columns
        conn.execute("begin isolation level repeatable read")
        (snapshot,) = conn.execute("select pg_export_snapshot()").fetchone() or ("",)
        pages, mark = PageRange(0, None), SnapshotMark(Lsn(1), 0)
        task = CopyTask(pinned_conninfo(server.dsn()), str(snapshot), table.name, columns, pages, Path(folder), mark)
        compare("copy", lambda: copy_bundle([task]), copy_unguarded(), time.process_time)
    spark = spark_session({"spark.master": "local[2]", "spark.driver.memory": "2g"})
    changes = tail(spark, columns, rows)
    shape = TailShape(rows, True, False, False, False, frozenset())
    jvm = jvm_of(spark)
    fold_rows = lambda: run(fold(changes, None, columns, shape).rows)  # noqa: E731
    compare("fold", fold_rows, fold_unguarded(), lambda: jvm_seconds(jvm))
    with tempfile.TemporaryDirectory() as folder:
        apply_rows = batch(spark, Lake(Path(folder)), columns, changes)
        compare("batch", apply_rows, fold_unguarded(), lambda: jvm_seconds(jvm) + time.process_time())
    spark.stop()


def batch(spark: SparkSession, lake: Lake, columns: tuple[Column, ...], changes: DataFrame) -> Callable[[], object]:
    """Return a function that applies the changes in `changes` to an empty history."""
    version = RelationVersion(1, Lsn(1), Relation(1, NAME, ReplicaIdentity.DEFAULT, columns))
    write_deltalake(lake.relations, pa.Table.from_batches([version_rows([(1, version)])]), mode="append")
    rows = changes.toArrow()
    constant = {"schema": NAME.schema, "table": NAME.table, "relation": 1}
    arrays = {name: rows[name] for name in rows.column_names}
    arrays |= {name: pa.repeat(value, rows.num_rows) for name, value in constant.items()}
    in_order = [
        arrays[f.name].cast(f.type) if f.name in arrays else pa.nulls(rows.num_rows, f.type) for f in CHANGES_SCHEMA
    ]
    watermark = CommitProperties(app_transactions=[Transaction(CHANGES_APP, rows.num_rows + 1)])
    write_deltalake(lake.changes, pa.table(in_order, schema=CHANGES_SCHEMA), mode="append", commit_properties=watermark)
    begin = CommitProperties(app_transactions=[Transaction(app, 1) for app in (HISTORY_APP, SNAPSHOT_APP)])

    def apply_all() -> None:
        shutil.rmtree(lake.history(NAME), ignore_errors=True)
        history = create_history(lake, NAME, columns, 1)
        history.create_write_transaction([], "append", history.schema(), ["_part"], commit_properties=begin)
        apply_pending(lambda: spark, lake)

    return apply_all


def copy_unguarded() -> "list[mock._patch[Callable[..., object]]]":
    """Return patches with which the copy casts without checks."""
    as_cast = lambda text, target: (text.cast(target), None)  # noqa: E731
    no_map = lambda _, length: pa.nulls(length, pa.map_(pa.string(), pa.string()))  # noqa: E731
    names: dict[str, Callable[..., object]] = {"_check_years": lambda _: None, "_decimal": as_cast, "raw_map": no_map}
    return [mock.patch(f"auditlake.snapshot.column_codec.{name}", each) for name, each in names.items()]


def fold_unguarded() -> "list[mock._patch[Callable[..., object]]]":
    """Return patches with which the fold casts without checks."""
    plain = lambda column, text: text.cast(type_of(column).delta)  # noqa: E731
    no_map = lambda _: F.lit(None).cast("map<string,string>")  # noqa: E731
    return [
        mock.patch("auditlake.apply.typed_values.typed_value", plain),
        mock.patch("auditlake.apply.typed_values.raw_entries", no_map),
    ]


def compare(
    what: str,
    work: Callable[[], object],
    patches: "list[mock._patch[Callable[..., object]]]",
    clock: Callable[[], float],
) -> None:
    """Run the work in turns with and without checks, and print the medians."""

    def unguarded() -> None:
        for patch in patches:
            patch.start()
        work()
        for patch in patches:
            patch.stop()

    work()
    unguarded()
    turns = [[timed(each, clock) for each in (work, unguarded, work)] for _ in range(ROUNDS)]
    cost = statistics.median((before + after) / 2 / without for before, without, after in turns) - 1
    noise = abs(statistics.median(after / before for before, _, after in turns) - 1)
    exact, without = (statistics.median(turn[n] for turn in turns) for n in (0, 1))
    print(f"{what}: {exact:.2f} s, without {without:.2f} s: {cost:+.1%}, noise {noise:.1%}", flush=True)


def jvm_seconds(jvm: Path) -> float:
    """Return the CPU-seconds of a JVM so far, without its compiler threads, whose load differs between measurements."""
    seconds = cpu_s(jvm)
    for thread in (jvm / "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            if (thread / "comm").read_text().startswith(("C1 Comp", "C2 Comp")):
                seconds -= cpu_s(thread)
    return seconds


def timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the seconds of one run."""
    begun = clock()
    work()
    return clock() - begun


def tail(spark: SparkSession, columns: tuple[Column, ...], rows: int) -> DataFrame:
    """Return inserts of the same rows, with the columns of `changes`."""
    n = F.col("id")
    day = F.date_add(F.lit("1995-01-01").cast("date"), (n % 2000).cast("int")).cast("string")
    amount = (n * 3.17).cast("decimal(15,2)").cast("string")
    by_kind = {"date": day, "decimal(15,2)": amount, "string": F.concat(F.lit("final deposits "), n.cast("string"))}
    texts = [by_kind.get(type_of(column).delta, n.cast("string")) for column in columns]
    none = F.lit(None)
    place = {"lsn": n + 1, "ordinal": F.lit(0), "xid": n, "time": F.current_timestamp(), "op": F.lit("insert")}
    tuples = {"old": none.cast("array<string>"), "new": F.array(*texts), "unchanged": none.cast("array<smallint>")}
    made = spark.range(1, rows + 1).select(*(each.alias(name) for name, each in {**place, **tuples}.items()))
    cached = made.cache()
    cached.count()
    return cached


def run(rows: DataFrame) -> None:
    """Compute every row, and discard the rows."""
    rows.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
