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

from harness.versions import Versions
from pyspark.sql import DataFrame, SparkSession

import auditlake
from auditlake.api.lake import Moment
from auditlake.audit.lake_reader import Reader
from auditlake.lake.layout import Lake
from auditlake.lake.relations import RelationsLog, ShapeSource
from auditlake.lsn import Lsn
from auditlake.relation import Column, Former, Relation, ReplicaIdentity, TableName
from auditlake.spark.session import spark_session

_NAME = TableName("public", "accounts")
_FIXED = ("v0", "v1", "v2", "v3")
_QUERY = "select v0, count(*) as rows, sum(id) as ids, max(v1) as highest from {} group by v0"
_BIGINT = 20


def _columns(shapes: int, versions: Versions, *, changing: bool) -> tuple[Column, ...]:
    """Return the physical columns: those that stay, and one for each change of shape."""
    names = ("id", *_FIXED)
    fixed = [Column(n, _BIGINT, -1, key=n == "id", attnum=place) for place, n in enumerate(names, 1)]
    later = [Column(f"c{n}", _BIGINT, -1, key=False, attnum=len(names) + n) for n in range(1, shapes)]
    changed = [_changed(column, n, _lsn(n, versions, shapes)) for n, column in enumerate(later, 1)]
    return (*fixed, *(changed if changing else later))


def _lsn(change: int, versions: Versions, shapes: int) -> Lsn:
    return versions.after(change * versions.closed // shapes)


def _changed(column: Column, change: int, lsn: Lsn) -> Column:
    match change % 3:
        case 0:
            return replace(column, since=lsn)
        case 1:
            return replace(column, former=(Former(lsn, f"former_{column.name}", key=False),))
        case _:
            return replace(column, until=lsn)


def _write(root: Path, versions: Versions, shapes: int, *, changing: bool) -> Lake:
    lake, columns = Lake(root), _columns(shapes, versions, changing=changing)
    versions.write(lake, _NAME, columns, oid=1)
    _record(lake, columns, versions, shapes)
    return lake


def _record(lake: Lake, columns: tuple[Column, ...], versions: Versions, shapes: int) -> None:
    """Record the versions of the relation, as capture does."""
    log = RelationsLog(lake)
    for change in range(shapes):
        lsn = _lsn(change, versions, shapes)
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
        versions = Versions(chosen.open, chosen.closed, months=12)
        one = _write(folder / "one", versions, chosen.shapes, changing=False)
        many = _write(folder / "many", versions, chosen.shapes, changing=True)
        engines: dict[str, Callable[[Lake, int], list[tuple[object, ...]]]] = {"duckdb": _duckdb}
        if chosen.engine != "duckdb":
            spark = spark_session({"spark.master": "local[2]"})
            engines["spark"] = lambda lake, lsn: _spark(spark, lake, lsn)
        for engine, ask in engines.items():
            for lsn in (versions.after(versions.closed // part) for part in (1, 2, 10)):
                one_s, many_s = _compare(partial(_asked, ask, lsn), one, many, chosen.runs)
                print(
                    f"{engine} as of 0/{lsn:X}: one shape {one_s:.3f} s, {chosen.shapes} shapes {many_s:.3f} s,"
                    f" {many_s / one_s:.2f} x"
                )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
