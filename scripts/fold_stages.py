"""Write the stages of the fold in Spark's SQL, `auditlake/fold/stages_in_spark.sql`, from those in DuckDB's.

    python scripts/fold_stages.py

A test compares the file with `in_spark`, so that another release of sqlglot cannot change a fold unnoticed.
"""

from collections.abc import Mapping
from pathlib import Path

import sqlglot
from sqlglot import exp

from auditlake.fold.net import SPARK_FILE
from auditlake.fold.stages import STAGES

_HEADER = "-- Written by scripts/fold_stages.py from `fold.stages`: the stages of the fold, in Spark's SQL."


def in_spark(stages: Mapping[str, str]) -> str:
    """Return the text of the file."""
    return "\n\n".join([_HEADER, *(f"-- name: {name}\n{_translated(sql)}" for name, sql in stages.items())]) + "\n"


def _translated(sql: str) -> str:
    tree = sqlglot.parse_one(sql, read="duckdb")
    for ordered in tree.find_all(exp.Ordered):
        # Nothing that is ordered is NULL, and Spark sorts once for all windows only if it may put NULLs where it likes.
        ordered.set("nulls_first", not ordered.args.get("desc"))
    for call in tree.find_all(exp.Anonymous):
        if call.name == "error":
            call.set("this", "raise_error")
    return tree.sql("spark", pretty=True, normalize_functions=False, max_text_width=100)


if __name__ == "__main__":
    Path("auditlake/fold", SPARK_FILE).write_text(in_spark(STAGES))
