"""Both engines give the same answers: to random statements, to hostile ones, and to every statement of the query tests.

AUDITLAKE_ENGINES_S sets the seconds of the random ones (300). `tests/data/sql` has the hostile ones, one a line: what
DuckDB accepts of them must be Spark's answer, and what Spark refuses DuckDB must leave to it.
"""

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engines_compared import Engines, compare
from tests.random_seeds import random_seeds
from tests.random_sql import write_lake

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]

_ROOT = Path(__file__).parents[2]
_SQL = _ROOT / "tests" / "data" / "sql"


def test_both_engines_give_the_same_answers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expressions, aggregates, joins, grouping, set operations and order, on lakes of random hostile values."""
    monkeypatch.setenv("AUDITLAKE_PROPERTY_S", os.environ.get("AUDITLAKE_ENGINES_S", "300"))
    for seed in random_seeds():
        engines = Engines(spark, write_lake(tmp_path / str(seed), seed, 60))
        found = compare(engines, random.Random(seed), expressions=80, statements=30)  # noqa: S311 - no secrets
        assert not found, "\n".join(found)


def _statements() -> Iterator[str]:
    for text in (_SQL / "expressions.txt").read_text().splitlines():
        yield f"select {text} from things"
        yield f"select {text} as c from things"
        yield f"select id from things where ({text}) is not null"
    for text in (_SQL / "aggregates.txt").read_text().splitlines():
        yield f"select {text} from things"
        yield f"select {text} as c from things where id < 0"
        yield f"select flag, {text} as c from things group by flag"
    yield from (_SQL / "statements.txt").read_text().splitlines()


def test_both_engines_give_the_same_answers_to_hostile_statements(spark: SparkSession, tmp_path: Path) -> None:
    """Every operator, function, cast, literal and clause that may mean something else in one of them."""
    engines = Engines(spark, write_lake(tmp_path / "lake", 7, 40))
    found = [difference for sql in _statements() for difference in engines.differences(sql)]
    assert not found, "\n".join(found)


def test_both_engines_give_the_same_answers_to_the_query_tests() -> None:
    """Every statement that a test of the tree asks of Spark."""
    arguments = ["-m", "pytest", "-q", "-p", "tests.both_engines", "tests/spark/query", "tests/spark/walk"]
    done = subprocess.run([sys.executable, *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    compared = re.search(r"(\d+) statements compared", done.stdout)
    assert done.returncode == 0, done.stdout[-10_000:]
    assert compared is not None
    assert int(compared[1]) > 100, compared[0]
