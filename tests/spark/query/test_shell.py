"""Shell on a small lake: one session, many inputs."""

from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import SparkSession

from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.query.engine_choice import Engines
from auditlake.query.shell import Shell, inputs_of
from auditlake.relation import Column, TableName
from tests.small_lake import version, write_history, write_small_lake

pytestmark = pytest.mark.spark

INPUT = """\
\\format csv
select note from orders
 where id = 1;
\\as-of 0/150
create temporary view first as select note from orders where id = 1; select count(*) as n
  from orders;
select 1 / 0 as failed from orders; select 7 as seven;
select nothing from orders;
\\as-of 9/0
\\nonsense
\\as-of now
select * from first; select * from first;
create view first as select 1;
\\d customers
\\timing
\\x
\\format table
select id, note from orders where id = 1;
\\format json
select o.id, c.id from orders o, customers c;
help
\\format csv
select note from orders where id = 1
"""
_PRICE = ((10 << 16) | 2) + 4  # numeric(10,2)
_EXPANDED = "── 1 ──\nid       1\nnote     c\n"


def _shell(spark: SparkSession, lake: Lake, engine: str, *, chatty: bool, zone: tzinfo = UTC) -> Shell:
    return Shell(lake, Engines(engine, {}, lambda: spark), lambda: None, chatty=chatty, zone=zone)


def test_a_session_keeps_its_state_and_survives_errors(
    spark: SparkSession, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """With the engine of each statement's choice; `tests/release` has one in Spark alone."""
    check_session(spark, tmp_path, capsysbinary, "auto")


def check_session(spark: SparkSession, folder: Path, capsysbinary: pytest.CaptureFixture[bytes], engine: str) -> None:
    """Statements over several lines, several on one, a pinned moment, a view that keeps it."""
    lake = write_small_lake(folder / "lake")
    shell = _shell(spark, lake, engine, chatty=True)
    assert shell.run(inputs_of(INPUT.splitlines(keepends=True))) == 2
    said = capsysbinary.readouterr()
    described = "col_name,data_type,comment\nid,int,\nname,string,\n"
    out = "\n".join(line.rstrip() for line in said.out.decode().split("\n"))
    assert out == f"note\nc\nn\n2\nfailed\n\nseven\n7\nnote\nb\n\nnote\nb\n{described}{_EXPANDED}note\nc\n"
    errors = [line for line in said.err.decode().splitlines() if "error:" in line]
    expected = ("DIVIDE_BY_ZERO", "nothing", "9/0", "\\nonsense", "first", "several columns are named id")
    assert len(errors) == len(expected)
    assert all(word in line for word, line in zip(expected, errors, strict=True)), errors
    assert " ms\n" in said.err.decode()
    assert "\\timing" in said.err.decode()
    assert "1 row as of 0/300" in said.err.decode()
    spark.catalog.dropTempView("first")


def test_nothing_is_read_after_the_end(
    spark: SparkSession, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    r"""The end is \q or exit, in any case."""
    lake = write_small_lake(tmp_path / "lake")
    for end in ("\\q", "exit", "Quit;\n"):
        assert _shell(spark, lake, "auto", chatty=False).run([end, "select 1;"]) == 0
    assert capsysbinary.readouterr().out == b""


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_a_person_sees_lsns_times_and_what_a_null_hides(
    spark: SparkSession, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], engine: str
) -> None:
    """Also in renamed columns; computed integers and formats for programs are unchanged."""
    lake = write_small_lake(tmp_path / "lake")
    columns = (
        Column("id", 23, -1, key=True),
        Column("price", 1700, _PRICE, key=False),
        Column("due", 1082, -1, key=False),
    )
    row = {"id": 1, "price": None, "due": None, **version(0x180, None, "snapshot", None), "_raw": [("price", "NaN")]}
    write_history(lake, TableName("public", "prices"), columns, [row], {HISTORY_APP: 0x180, SNAPSHOT_APP: 0x180})
    shell = _shell(spark, lake, engine, chatty=False, zone=ZoneInfo("Europe/Paris"))
    script = """\\x
        select _from_lsn as since, _from_lsn + 0 as plain, _from_time as at from prices for system_time all;
        select price as amount, due from prices; select p.price from prices p join orders using (id) where id = 2;
        \\format csv
        select _from_lsn as since, price, _from_time as at from prices for system_time all;"""
    assert shell.run(inputs_of(line.lstrip() for line in script.splitlines(keepends=True))) == 0
    said = capsysbinary.readouterr()
    lines = [" ".join(line.split()) for line in said.out.decode().splitlines()]
    assert lines[1:4] == ["since 0/180", "plain 384", "at 2026-11-21T10:00:08+01:00"]
    assert lines[-1] == "384,,2026-11-21T09:00:08Z"
    notes = [line for line in said.err.decode().splitlines() if "note:" in line]
    assert [("price" in note, "due" in note) for note in notes] == [(True, False)]
