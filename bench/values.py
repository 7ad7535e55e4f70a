"""What exactness costs: copy and fold of lineitem, as they are and without a look at values that do not fit.

    python bench/values.py [ROWS]

Without it a date out of range would be wrong, NaN would stop the copy, and `_raw` stay empty. The two take turns, after
one unmeasured turn each. The cost is the median of what each turn says of its two neighbours; the noise is what the
same median says of the same thing measured twice. The copy's time is that of its own CPU, the fold's that of the JVM,
without its compilers. The fold is computed once alone, from rows in memory to nothing, and once as it runs: in a batch,
from `changes` to the history.
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

from auditlake.apply.apply import apply_tail
from auditlake.apply.fold import fold
from auditlake.apply.shape import TailShape
from auditlake.demo.server import Server
from auditlake.lake.history import create_history, history_ddl, type_of
from auditlake.lake.layout import CHANGES_APP, HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.lake.relations import RELATIONS_SCHEMA
from auditlake.lake.session import spark_session
from auditlake.pgoutput.schema import CHANGES_SCHEMA
from auditlake.postgres.catalog import read_tables
from auditlake.postgres.connection import connect, pinned_conninfo
from auditlake.relation import Column, TableName
from auditlake.snapshot.copy import copy_range
from auditlake.snapshot.ranges import PageRange
from auditlake.snapshot.task import CopyTask, SnapshotMark

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
        pages, mark = PageRange(0, None), SnapshotMark(1, 0)
        task = CopyTask(pinned_conninfo(server.dsn()), str(snapshot), table.name, columns, pages, Path(folder), mark)
        compare("copy", lambda: copy_range(task), copy_unguarded(), time.process_time)
    spark = spark_session({"spark.master": "local[2]", "spark.driver.memory": "2g"})
    changes = tail(spark, columns, rows)
    nothing = spark.createDataFrame([], history_ddl(columns))
    shape = TailShape(rows, True, False, False, False, frozenset())
    jvm = jvm_of(spark)
    fold_rows = lambda: run(fold(changes, lambda: nothing, columns, shape).rows)  # noqa: E731
    compare("fold", fold_rows, fold_unguarded(), lambda: jvm_seconds(jvm))
    with tempfile.TemporaryDirectory() as folder:
        apply_rows = batch(spark, Lake(Path(folder)), columns, changes)
        compare("batch", apply_rows, fold_unguarded(), lambda: jvm_seconds(jvm) + time.process_time())
    spark.stop()


def batch(spark: SparkSession, lake: Lake, columns: tuple[Column, ...], changes: DataFrame) -> Callable[[], object]:
    """What brings the changes into an empty history, from `changes` on."""
    described = [{"name": c.name, "type_oid": c.type_oid, "typmod": c.typmod, "key": c.key} for c in columns]
    relation = {"relation": 1, "lsn": 1, "oid": 1, "schema": NAME.schema, "table": NAME.table, "replica_identity": "d"}
    relations = pa.Table.from_pylist([{**relation, "columns": described}], schema=RELATIONS_SCHEMA)
    write_deltalake(lake.relations, relations, mode="append")
    held = changes.toArrow()
    constant = {"schema": NAME.schema, "table": NAME.table, "relation": 1}
    given = {name: held[name] for name in held.column_names}
    given |= {name: pa.repeat(value, held.num_rows) for name, value in constant.items()}
    arrays = [
        given[f.name].cast(f.type) if f.name in given else pa.nulls(held.num_rows, f.type) for f in CHANGES_SCHEMA
    ]
    watermark = CommitProperties(app_transactions=[Transaction(CHANGES_APP, held.num_rows + 1)])
    write_deltalake(lake.changes, pa.table(arrays, schema=CHANGES_SCHEMA), mode="append", commit_properties=watermark)
    begin = CommitProperties(app_transactions=[Transaction(app, 1) for app in (HISTORY_APP, SNAPSHOT_APP)])

    def apply_all() -> None:
        shutil.rmtree(lake.history(NAME), ignore_errors=True)
        history = create_history(lake, NAME, columns)
        history.create_write_transaction([], "append", history.schema(), ["_part"], commit_properties=begin)
        apply_tail(spark, lake)

    return apply_all


def copy_unguarded() -> "list[mock._patch[Callable[..., object]]]":
    """The copy that casts and does not look."""
    as_cast = lambda text, target: (text.cast(target), None)  # noqa: E731
    no_map = lambda _, length: pa.nulls(length, pa.map_(pa.string(), pa.string()))  # noqa: E731
    names = {"_check_years": lambda _: None, "_decimal": as_cast, "raw_map": no_map}
    return [mock.patch(f"auditlake.snapshot.select.{name}", each) for name, each in names.items()]


def fold_unguarded() -> "list[mock._patch[Callable[..., object]]]":
    """The fold that casts and does not look."""
    plain = lambda column, text: text.cast(type_of(column).delta)  # noqa: E731
    no_map = lambda _: F.lit(None).cast("map<string,string>")  # noqa: E731
    return [mock.patch("auditlake.apply.typing.value", plain), mock.patch("auditlake.apply.typing.raw_map", no_map)]


def compare(
    what: str,
    work: Callable[[], object],
    patches: "list[mock._patch[Callable[..., object]]]",
    clock: Callable[[], float],
) -> None:
    """Run it in turns with and without, and print the median of what each turn says."""

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
    """CPU seconds of a JVM so far, without those of its compilers, which come and go between measurements."""
    seconds = cpu_s(jvm)
    for thread in (jvm / "task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            if (thread / "comm").read_text().startswith(("C1 Comp", "C2 Comp")):
                seconds -= cpu_s(thread)
    return seconds


def timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Seconds that one run takes."""
    begun = clock()
    work()
    return clock() - begun


def tail(spark: SparkSession, columns: tuple[Column, ...], rows: int) -> DataFrame:
    """Inserts of the same rows, as `changes` has them."""
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
    """Compute every row and keep none."""
    rows.write.format("noop").mode("overwrite").save()


if __name__ == "__main__":
    main()
