"""Ask all queries in one process, and write the answers: queries.py ENGINE FOLDER QUERIES ANSWERS MOMENT.

ENGINE is `parquet` (DuckDB over files), `delta` (Spark over plain Delta tables), `lake` (auditlake in DuckDB) or
`lake-spark` (auditlake in Spark).
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Ask = Callable[[str], Iterable[tuple[Any, ...]]]
_ENGINE, _FOLDER, _QUERIES, _ANSWERS, _MOMENT = sys.argv[1:]


def _parquet() -> Ask:
    import duckdb  # noqa: PLC0415 - each engine imports its own

    conn = duckdb.connect()
    for file in Path(_FOLDER).glob("*.parquet"):
        conn.execute(f"create view {file.stem} as from '{file}'")
    return lambda query: conn.execute(query).fetchall()


def _delta() -> Ask:
    from auditlake.spark.session import spark_session  # noqa: PLC0415

    spark = spark_session({"spark.master": "local[2]"})
    for folder in Path(_FOLDER).iterdir():
        spark.read.format("delta").load(str(folder)).createOrReplaceTempView(folder.name)
    return lambda query: [tuple(row) for row in spark.sql(query).collect()]


def _lake() -> Ask:
    import auditlake  # noqa: PLC0415

    lake = auditlake.Lake(_FOLDER)
    return lambda query: _tuples(lake.sql(query, as_of=_MOMENT).to_arrow().to_pylist())


def _lake_spark() -> Ask:
    import auditlake  # noqa: PLC0415
    from auditlake.spark.session import spark_session  # noqa: PLC0415

    spark = spark_session({"spark.master": "local[2]"})
    auditlake.register(spark, _FOLDER, as_of=_MOMENT)
    return lambda query: [tuple(row) for row in spark.sql(query).collect()]


def _tuples(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows]


_ENGINES: dict[str, Callable[[], Ask]] = {
    "parquet": _parquet,
    "delta": _delta,
    "lake": _lake,
    "lake-spark": _lake_spark,
}


def main() -> None:
    """Ask them one after the other."""
    ask = _ENGINES[_ENGINE]()
    queries: dict[str, str] = json.loads(Path(_QUERIES).read_text())
    answers = {number: [[str(value) for value in row] for row in ask(query)] for number, query in queries.items()}
    Path(_ANSWERS).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
