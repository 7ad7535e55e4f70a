"""Tests of the code that Spark generates for the fold: exact texts must not cost a second parse, nor compilation."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from auditlake.apply.fold import fold
from auditlake.apply.tails import TailShape
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.relation import Column
from auditlake.spark.planning import WIDE_COLUMNS, interpreted_if_wide

pytestmark = pytest.mark.spark

_AMOUNT = ((15 << 16) | 2) + 4
_TYPES = ((20, -1, 3), (23, -1, 1), (1700, _AMOUNT, 4), (1042, 5, 2), (1082, -1, 3), (1043, 29, 3))
_KINDS = [(oid, typmod) for oid, typmod, times in _TYPES for _ in range(times)]
LINEITEM = tuple(Column(f"l_{n}", oid, typmod, key=n == 0) for n, (oid, typmod) in enumerate(_KINDS))
"""Column types of TPC-H's lineitem: of 16, four decimals and three dates may not fit."""

_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


def test_each_value_is_parsed_once_in_a_compiled_stage(spark: SparkSession, tmp_path: Path) -> None:
    """A text is parsed once for its column and for `_raw`, in methods short enough for the JVM to compile."""
    pq.write_table(CHANGES_SCHEMA.empty_table(), tmp_path / "changes.parquet")
    changes = spark.read.parquet(str(tmp_path))
    before = {name: str(spark.conf.get(name)) for name in _COMPILED}
    try:
        for name, value in _COMPILED.items():
            spark.conf.set(name, value)
        rows = fold(changes, None, LINEITEM, TailShape(1, True, False, False, False, frozenset())).rows
        (stage,) = code_of(spark, rows._jdf.queryExecution())  # noqa: SLF001  # PySpark has no public way to it
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    longest = re.search(r"maxMethodCodeSize:(\d+)", stage)
    assert longest is not None
    assert int(longest[1]) < int(str(spark.conf.get("spark.sql.codegen.hugeMethodLimit")))
    assert stage.count("Decimal.fromString(") == 4
    assert stage.count("Decimal.fromStringANSI(") == 4  # only if fromString returned NULL
    assert stage.count("stringToDateAnsi(") == 3


def test_only_wide_tables_disable_code_generation(spark: SparkSession) -> None:
    """The session's settings change for a wide table only, and are restored afterwards."""
    session = spark.newSession()
    session.conf.set("spark.sql.codegen.factoryMode", "FALLBACK")
    with interpreted_if_wide(session, WIDE_COLUMNS):
        assert session.conf.get("spark.sql.codegen.factoryMode") == "NO_CODEGEN"
    with interpreted_if_wide(session, WIDE_COLUMNS - 1):
        assert session.conf.get("spark.sql.codegen.factoryMode") == "FALLBACK"


def code_of(spark: SparkSession, execution: object) -> list[str]:
    """Return the generated code of every stage, each with the size of its longest method."""
    jvm = spark._jvm  # noqa: SLF001  # as above
    assert jvm is not None
    explained = str(jvm.PythonSQLUtils.explainString(execution, "codegen"))
    return re.split(r"== Subtree \d+ / \d+", explained)[1:]
