"""Both engines give the same answers: names, types and values of every column, on hostile values.

`tests/release/test_engines.py` asks for longer. A failure prints the seed and the statements.
"""

import random
from datetime import UTC
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.errors import NotAnswerable
from auditlake.query.spark_engine import batches, plan
from auditlake.query.statement import prepare_statement, read_state
from tests.engines_compared import Engines, compare
from tests.random_seeds import random_seeds
from tests.random_sql import write_lake

pytestmark = pytest.mark.spark

_STATEMENTS = (
    "select a.*, b.id from things a left join others b using (id) where a.num > 0 or a.num is null",
    "select flag, count(*), min(day) as d, avg(price) from things group by flag having count(*) > 0 order by 1",
    "with q as (select distinct flag, small from things) select * from q union select flag, num from others",
    "select id, rank() over (partition by flag order by price) as r from things where num in (select id from others)",
    "select day + interval '1' month as m, day - interval '90' day as d from things where year(day) between 2 and 9990",
    "select id, (select count(*) from others o where o.flag = t.flag) as n from things t",
    "select id from things t where t.num >= (select 0.5 * max(o.num) from others o where t.id = o.id and o.num < 9)",
    "select id, cast(id as decimal(38,4)) * 100.00 as p, cast(id as decimal(30,8)) * -0.0000000049 as q from things",
    "select id from things where cast(id as decimal(36,2)) > cast(small / 3.0 as decimal(38,6))",
    "select date_trunc('month', at) as m, date_trunc('QUARTER', day) as q, date_trunc('minute', at) as s from things",
    "select date_trunc('year', at) as y, count_if(num > 0) as p from others group by date_trunc('year', at)",
    "select quarter(day) as q, listagg(name, ', ') within group (order by name desc) as n from things group by 1",
    "select at + interval '3' hour as a, at - interval 90 minutes as b from things where year(at) between 2 and 9990",
    "select at + interval '1' month as c from things where year(at) between 2 and 9990",
    "select day - interval 7 days as d, at - interval 30 days as t from things where year(at) > 2 and year(day) > 2",
)


def test_both_engines_give_the_same_answers(spark: SparkSession, tmp_path: Path) -> None:
    """Random expressions and aggregates, and statements of every clause that DuckDB answers."""
    for seed in random_seeds():
        merged = Engines(spark, write_lake(tmp_path / f"{seed}", seed, 30, tail=False))
        found = compare(merged, random.Random(seed), expressions=16, statements=0)  # noqa: S311 - no secrets
        engines = Engines(spark, write_lake(tmp_path / f"{seed} with a tail", seed, 30))
        for sql in _STATEMENTS:
            assert engines.of_duckdb(sql) is not None, sql
            found += engines.differences(sql)
        assert not found, "\n".join(found)


def test_rows_without_columns_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """No format would show that there are any."""
    state = read_state(write_lake(tmp_path / "lake", 1, 20), None, UTC)
    every = plan(spark, prepare_statement(state, "select * from others", {})).columns
    rows = plan(spark, prepare_statement(state, f"select * except ({', '.join(every)}) from others", {}))
    assert rows.count() > 0
    with pytest.raises(NotAnswerable, match="no columns"):
        batches(rows)
