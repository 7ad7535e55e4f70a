"""The shell over a small lake: one session, many inputs."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from auditlake.query.shell import Shell, gathered
from tests.small_lake import write_small_lake

pytestmark = pytest.mark.spark

INPUT = """\
\\format csv
select note from orders
 where id = 1;
\\as-of 0/150
create temporary view first as select note from orders where id = 1; select count(*) as n
  from orders;
select nothing from orders;
\\as-of 9/0
\\nonsense
\\as-of now
select * from first; select * from first;
create view first as select 1;
\\d customers
select note from orders where id = 1
"""


def test_a_session(spark: SparkSession, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Statements over several lines, several on one, a pinned moment, a view that keeps it, errors that end nothing."""
    lake = write_small_lake(tmp_path / "lake")
    shell = Shell(lake, lambda: spark, chatty=True)
    assert shell.run(gathered(INPUT.splitlines(keepends=True))) == 2
    said = capsysbinary.readouterr()
    described = "col_name,data_type,comment\nid,int,\nname,string,\n"
    assert said.out.decode() == f"note\nc\nn\n2\nnote\nb\n\nnote\nb\n{described}note\nc\n"
    errors = [line for line in said.err.decode().splitlines() if "error:" in line]
    assert [next(word for word in ("nothing", "9/0", "\\nonsense", "first") if word in line) for line in errors] == [
        "nothing",
        "9/0",
        "\\nonsense",
        "first",
    ]
    assert "1 row as of 0/300" in said.err.decode()
    spark.catalog.dropTempView("first")


def test_the_end(spark: SparkSession, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    r"""After \q nothing is looked at."""
    lake = write_small_lake(tmp_path / "lake")
    assert Shell(lake, lambda: spark, chatty=False).run(["\\q", "select 1;"]) == 0
    assert capsysbinary.readouterr().out == b""
