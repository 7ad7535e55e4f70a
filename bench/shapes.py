"""As-of queries over twenty shapes of a table against the same rows in one shape, in turns, in both engines.

    python bench/shapes.py [--open 200000] [--closed 400000] [--runs 5] [--shapes 20]
                           [--engine duckdb]

Two histories have the same files. In one all columns exist from the beginning; in the other each change of shape adds,
renames or drops one, at LSNs spread over the history. The query and its answer are the same. The bar is 1.3.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession

import auditlake
from auditlake.api.lake import Moment
from auditlake.audit.lake_reader import Reader
from auditlake.lake.history import create_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lake.relations import RelationsLog, ShapeSource
from auditlake.lsn import Lsn
from auditlake.relation import Column, Former, Relation, ReplicaIdentity, TableName
from auditlake.spark.session import spark_session

_NAME = TableName("public", "accounts")
_BEGIN, _END = 1_000, 1_000_000_000
_FIXED = ("v0", "v1", "v2", "v3")
_FILES = 12
_QUERY = "select v0, count(*) as rows, sum(id) as ids, max(v1) as highest from {} group by v0"
_BIGINT = 20


def _columns(shapes: int, *, changing: bool) -> tuple[Column, ...]:
    """Return the physical columns: those that stay, and one for each change of shape."""
    names = ("id", *_FIXED)
    fixed = [Column(n, _BIGINT, -1, key=n == "id", attnum=place) for place, n in enumerate(names, 1)]
    later = [Column(f"c{n}", _BIGINT, -1, key=False, attnum=len(names) + n) for n in range(1, shapes)]
    return (*fixed, *(_changed(column, n, shapes) if changing else column for n, column in enumerate(later, 1)))


def _lsn(change: int, shapes: int) -> Lsn:
    return Lsn(_BEGIN + change * (_END - _BEGIN) // shapes)


def _changed(column: Column, change: int, shapes: int) -> Column:
    lsn = _lsn(change, shapes)
    match change % 3:
        case 0:
            return replace(column, since=lsn)
        case 1:
            return replace(column, former=(Former(lsn, f"former_{column.name}", key=False),))
        case _:
            return replace(column, until=lsn)


def _write(root: Path, sizes: tuple[int, int], shapes: int, *, changing: bool) -> Lake:
    lake, columns, (keys, versions) = Lake(root), _columns(shapes, changing=changing), sizes
    table = create_history(lake, _NAME, columns, 1)
    step, number = (_END - _BEGIN) // versions, np.arange(versions)
    month = np.char.add("2026-", np.char.zfill((number * 12 // versions + 1).astype(str), 2))
    closed = {
        "id": number % keys,
        "_from_lsn": np.maximum(_BEGIN, _BEGIN + (number + 1 - keys) * step),
        "_to_lsn": _BEGIN + (number + 1) * step,
        "_part": month,
    }
    key = np.arange(keys)
    begun = np.maximum(_BEGIN, _BEGIN + (versions - keys + key + 1) * step)
    opened = {"id": key, "_from_lsn": begun, "_to_lsn": pa.nulls(keys, pa.int64()), "_part": ["open"] * keys}
    schema = pa.schema(table.schema().to_arrow())
    for rows, files in ((closed, _FILES), (opened, 4)):
        chance = np.random.default_rng(7)
        values = {c.stored: chance.integers(0, 1000, len(rows["id"])) for c in columns[1:]}
        known = {**rows, **values}
        arrays = [known.get(field.name, pa.nulls(len(rows["id"]))) for field in schema]
        arrays = [pa.array(each).cast(field.type) for each, field in zip(arrays, schema, strict=True)]
        for part in np.array_split(np.arange(len(rows["id"])), files):
            batch = pa.Table.from_arrays(arrays, schema=schema).slice(part[0], len(part))
            write_deltalake(table, batch, mode="append")
    table.update_incremental()
    marks = {HISTORY_APP: _END, SNAPSHOT_APP: _BEGIN, SNAPSHOT_TIME_APP: 0}
    properties = CommitProperties(app_transactions=[Transaction(app, lsn) for app, lsn in marks.items()])
    table.create_write_transaction([], "append", table.schema(), ["_part"], commit_properties=properties)
    _record(lake, columns, shapes)
    return lake


def _record(lake: Lake, columns: tuple[Column, ...], shapes: int) -> None:
    """Record the versions of the relation, as capture does."""
    log = RelationsLog(lake)
    for change in range(shapes):
        lsn = _lsn(change, shapes)
        had = tuple(
            Column(c.at(lsn).name, _BIGINT, -1, key=c.key, attnum=c.attnum) for c in columns if c.exists_at(lsn)
        )
        relation = Relation(1, _NAME, ReplicaIdentity.DEFAULT, had)
        log.record(relation, lsn, source=ShapeSource.DDL_TRIGGER, command="ALTER TABLE")
    log.flush()


def _spark(spark: SparkSession, lake: Lake, lsn: int) -> list[tuple[object, ...]]:
    frame: DataFrame = auditlake.read(spark, lake.root, str(_NAME), as_of=f"0/{lsn:X}")
    frame.createOrReplaceTempView("asked")
    return [tuple(row) for row in spark.sql(_QUERY.format("asked")).collect()]


def _duckdb(lake: Lake, lsn: int) -> list[tuple[object, ...]]:
    connection = Moment(Reader(lake, datetime.now(UTC)), Lsn(lsn), None).to_duckdb()
    return connection.execute(_QUERY.format(f"{_NAME.schema}.{_NAME.table}")).fetchall()


def _asked(ask: Callable[[Lake, int], list[tuple[object, ...]]], lsn: int, lake: Lake) -> list[tuple[object, ...]]:
    return ask(lake, lsn)


def _compare(ask: Callable[[Lake], list[tuple[object, ...]]], one: Lake, many: Lake, runs: int) -> Iterator[float]:
    """Yield the seconds of one shape and of many, after a first run of each, and check that the answers are equal."""
    assert sorted(map(str, ask(one))) == sorted(map(str, ask(many)))  # noqa: S101 - a benchmark of equal answers
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        for lake, taken in zip((one, many), seconds, strict=True):
            started = time.monotonic()
            ask(lake)
            taken.append(time.monotonic() - started)
    yield from map(statistics.median, seconds)


def main() -> None:
    """Parse arguments, write both histories, compare at three moments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--open", type=int, default=200_000)
    parser.add_argument("--closed", type=int, default=400_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--shapes", type=int, default=20)
    parser.add_argument("--engine", choices=["both", "duckdb"], default="both")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="auditlake-bench-"))
    try:
        sizes = chosen.open, chosen.closed
        one = _write(folder / "one", sizes, chosen.shapes, changing=False)
        many = _write(folder / "many", sizes, chosen.shapes, changing=True)
        engines: dict[str, Callable[[Lake, int], list[tuple[object, ...]]]] = {"duckdb": _duckdb}
        if chosen.engine != "duckdb":
            spark = spark_session({"spark.master": "local[2]"})
            engines["spark"] = lambda lake, lsn: _spark(spark, lake, lsn)
        for engine, ask in engines.items():
            for lsn in (_END, (_BEGIN + _END) // 2, _BEGIN + _END // 10):
                one_s, many_s = _compare(partial(_asked, ask, lsn), one, many, chosen.runs)
                print(
                    f"{engine} as of 0/{lsn:X}: one shape {one_s:.3f} s, {chosen.shapes} shapes {many_s:.3f} s,"
                    f" {many_s / one_s:.2f} x"
                )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
