"""Both engines give the same answers: names, types and values of every column, on hostile values.

`tests/release/test_engines.py` asks for longer. A failure prints the seed and the statements.
"""

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engines_compared import Engines, compare
from tests.random_seeds import random_seeds
from tests.random_sql import write_lake

pytestmark = pytest.mark.spark

_STATEMENTS = (
    "select * from things",
    "select a.*, b.id from things a left join others b using (id) where a.num > 0 or a.num is null",
    "select * from things join others using (id)",
    "select name, flag, count(*), min(day) as d, max(at) as m from things group by name, flag having count(*) > 0",
    "with q as (select id % 5 as n, price from things) select n, sum(price), avg(price) from q group by n order by n",
    "select distinct flag, small from things union select flag, num from others",
    "select id, row_number() over (partition by flag order by price desc, id) as r from things",
    "select t.c0 from (select num + 1 as c0 from things where big not in (select big from others)) t",
)


def test_both_engines_give_the_same_answers(spark: SparkSession, tmp_path: Path) -> None:
    """Random expressions and aggregates, and statements of every clause that DuckDB answers."""
    for seed in random_seeds():
        engines = Engines(spark, write_lake(tmp_path / str(seed), seed, 30))
        found = compare(engines, random.Random(seed), expressions=24, statements=0)  # noqa: S311 - no secrets
        for sql in _STATEMENTS:
            assert engines.of_duckdb(sql) is not None, sql
            found += engines.differences(sql)
        assert not found, "\n".join(found)
