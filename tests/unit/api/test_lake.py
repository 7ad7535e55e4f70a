"""The Python API on the small lake; expected values are those of its docstring."""

import pickle
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import duckdb
import pytest

import auditlake
from auditlake.api.lake import Dialect
from auditlake.errors import BadUsage, LakeConflict, LakeUnusable, NotAnswerable, Unsupported
from auditlake.lake import layout
from auditlake.lake.column_names import as_stored
from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP
from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName
from tests import erasure_lake
from tests.command import run_here
from tests.s3_server import on_disk
from tests.small_lake import (
    ORDERS,
    T0,
    T0_US,
    version,
    write_history,
    write_lake_with_manifest,
    write_strange_lake,
)

_AT = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)
_ROW = {"id": 1, "note": "c", "price": Decimal("3.00"), "at": _AT}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small lake."""
    return _make_lake(tmp_path_factory.mktemp("api")).root


def _make_lake(folder: Path) -> layout.Lake:
    return write_lake_with_manifest(folder / "lake")


@pytest.fixture
def lake(folder: Path) -> auditlake.Lake:
    """The API of the small lake."""
    return auditlake.Lake(folder)


def test_the_log_is_typed(lake: auditlake.Lake) -> None:
    """Newest first, with filters; a key may be a value or a mapping."""
    assert [each.lsn for each in lake.log()] == [0x300, 0x250, 0x200, 0x150]
    assert [each.lsn for each in lake.log(table="orders", key=3)] == [0x300, 0x200]
    assert [each.lsn for each in lake.log(table="orders", column="price", limit=1)] == [0x250]
    (first,) = lake.log(until="0/150")
    assert (first.xid, (first.time - T0).total_seconds(), first.updates, first.tables) == (10, 6, 1, ("public.orders",))


def test_a_key_of_no_table_is_refused(lake: auditlake.Lake) -> None:
    """It would not filter at all."""
    with pytest.raises(BadUsage, match="a key needs a table"):
        lake.log(key=3)


@pytest.mark.parametrize("key", [None, [None], {"id": None}])
def test_a_key_of_null_is_refused(lake: auditlake.Lake, key: object) -> None:
    """It is not the text None."""
    with pytest.raises(BadUsage, match="is NULL, which no key has"):
        lake.row("orders", key)


def test_the_history_of_a_row_has_python_values(lake: auditlake.Lake) -> None:
    """Versions before and after each event, and what changed."""
    last, first, snapshot = lake.row("public.orders", {"id": 1})
    assert (last.commit.lsn, last.op, last.changed) == (0x250, "update", ("note", "price"))
    assert (last.before, last.after) == ({**_ROW, "note": "b", "price": Decimal("2.00")}, _ROW)
    assert (first.commit.xid, first.key) == (10, {"id": 1})
    assert (snapshot.op, snapshot.commit.lsn, snapshot.before) == ("snapshot", None, None)
    assert len(lake.row("orders", 9)) == 0


def test_a_record_can_be_pickled(lake: auditlake.Lake) -> None:
    """Its values are decoded when they are asked for, also in another process, which has no reader of the lake."""
    asked: list[tuple[Sequence[Any], str]] = [
        (lake.row("orders", 1), "before"),
        (lake.deleted("orders"), "row"),
        (lake.blame("orders", 1), "value"),
        (lake.diff("0/180"), "after"),
    ]
    for found, name in asked:
        copied = pickle.loads(pickle.dumps(list(found)))  # noqa: S301 - our own
        assert copied == list(found)
        assert [getattr(each, name) for each in copied] == [getattr(each, name) for each in found]
        assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - as above


def test_a_moment_is_not_read_across_an_erasure(tmp_path: Path) -> None:
    """The files that it pinned are gone; tables of which nothing was erased are read on, and a new moment has all."""
    erased = auditlake.Lake(erasure_lake.write_lake(tmp_path / "lake").root)
    folded, pending = erased.as_of("0/300"), erased.as_of("0/600")
    rows = folded.table("people")
    assert run_here(["forget", *erasure_lake.OF_ONE, "--lake", erased.location]).code == 0
    for ask in (rows.to_arrow, folded.table("people").count, folded.to_duckdb, pending.table("people").to_arrow):
        with pytest.raises(LakeConflict, match=r"(rewritten since|deleted while) it was read") as refused:
            ask()
        assert "Lake.as_of" in str(refused.value.hint)
    assert [*folded.table("notes").texts()] == [{"id": "1", "text": "second"}]
    assert [row["name"] for row in erased.as_of("0/300").table("people").texts() if row["id"] == "11"] == [None]


def test_a_gap_is_part_of_a_rows_history(tmp_path: Path) -> None:
    """The row may have changed in it."""
    made = _make_lake(tmp_path)
    record_gaps(made, [Gap(ORDERS, Lsn(0x150), Lsn(0x200), "slot lost")])
    (gap,) = auditlake.Lake(made.root).row("orders", 1).gaps
    assert (gap.lsn_from, gap.lsn_to, gap.reason) == (0x150, 0x200, "slot lost")


def test_blame_names_the_commit_of_each_column(lake: auditlake.Lake) -> None:
    """None before the snapshot; of a deleted row its last state."""
    blamed = {each.column: (each.value, each.commit.lsn) for each in lake.blame("orders", 1)}
    assert blamed == {"id": (1, None), "note": ("c", 0x250), "price": (Decimal("3.00"), 0x250), "at": (_AT, None)}
    ends = {each.deleted.lsn for each in lake.blame("orders", 3) if each.deleted is not None}
    assert ends == {0x300}


def test_deleted_rows_have_their_last_state(lake: auditlake.Lake) -> None:
    """Newest deletion first."""
    found = [(each.key, each.row["price"], each.commit.lsn, each.op) for each in lake.deleted("orders")]
    assert found == [({"id": 3}, None, 0x300, "delete"), ({"id": 2}, Decimal("10.50"), 0x200, "delete")]


def test_a_diff_lists_rows(lake: auditlake.Lake) -> None:
    """Net, of all tables or those named."""
    found = [(each.table, each.kind, each.key["id"], each.changed) for each in lake.diff("0/180")]
    assert found == [
        ("public.customers", "modified", 1, ("name",)),
        ("public.orders", "removed", 2, ("id", "note", "price", "at")),
        ("public.orders", "modified", 1, ("note", "price")),
        ("public.orders", "added", 4, ("id", "note", "price", "at")),
    ]
    assert len(lake.diff("0/180", "0/200", tables=["customers"])) == 0


@pytest.mark.parametrize(
    ("when", "ids"),
    [("0/14F", [1, 2]), ("0/200", [1, 3]), ("0/250", [1, 3, 4]), (None, [1, 4]), ("2026-11-21T09:00:06Z", [1, 2])],
)
def test_a_table_as_of_a_moment_is_arrow(lake: auditlake.Lake, when: str | None, ids: list[int]) -> None:
    """From history and tail; as Arrow, pandas, polars and DuckDB."""
    rows = lake.as_of(when).table("public.orders", order_by=["id"])
    assert rows.to_arrow()["id"].to_pylist() == ids
    assert [row["id"] for row in rows] == ids
    assert rows.to_pandas()["id"].tolist() == ids
    assert rows.to_polars()["id"].to_list() == ids
    assert [row[0] for row in rows.to_duckdb().fetchall()] == ids


def test_rows_are_filtered_where_they_are_read(lake: auditlake.Lake) -> None:
    """Columns, conditions, order and part."""
    moment = lake.as_of("0/250")
    rows = moment.table("orders", columns=["note"], where=[("price", ">=", Decimal("3.00"))], order_by=["-price"])
    assert rows.to_arrow().to_pydict() == {"note": ["new", "c"]}
    assert moment.table("orders", columns=["id"], order_by=["id"], limit=1, offset=1).to_arrow()["id"].to_pylist() == [
        3
    ]


@pytest.mark.parametrize("part", [{"offset": -1}, {"offset": 2**63}, {"limit": -1}, {"limit": 2**63}])
def test_a_part_that_is_none_is_refused(lake: auditlake.Lake, part: dict[str, int]) -> None:
    """Before a row is read: what asks may be a language model."""
    with pytest.raises(BadUsage, match="need a number from 0"):
        lake.as_of("0/250").table("orders", **part)  # type: ignore[arg-type]


def test_a_number_of_transactions_that_is_none_is_refused(lake: auditlake.Lake) -> None:
    """It is no damage of the lake."""
    for limit in (-1, 2**63):
        with pytest.raises(BadUsage, match="need a number from 0"):
            lake.log(limit=limit)


@pytest.mark.parametrize("operation", ["=", "<", "contains", "begins with"])
def test_a_text_that_is_not_unicode_is_refused(lake: auditlake.Lake, operation: str) -> None:
    """As an argument of a command with a byte that is not UTF-8."""
    with pytest.raises(BadUsage, match="the value for note is not a valid text"):
        lake.as_of("0/250").table("orders", where=[("note", operation, "\udcff")]).to_arrow()
    for dialect in ("postgres", "spark"):
        with pytest.raises(BadUsage):
            lake.sql("select '\udcff'", dialect=dialect)


def test_duckdb_sees_the_whole_database_as_of_a_moment(lake: auditlake.Lake) -> None:
    """Every table at the same LSN; one that is not known then has no view."""
    question = "select o.id, c.name from public.orders o join public.customers c using (id)"
    assert lake.as_of("0/200").to_duckdb().execute(question).fetchall() == [(1, "Ann")]
    assert lake.as_of().to_duckdb().execute(question).fetchall() == [(1, "Anne")]
    early = lake.as_of("0/150").to_duckdb().execute("select table_name from information_schema.tables").fetchall()
    assert early == [("orders",)]


def test_duckdb_has_the_names_of_exported_views(tmp_path: Path) -> None:
    """Of tables, schemas and columns that DuckDB does not tell apart, or has for itself; each shows its own values."""
    made = write_strange_lake(tmp_path / "lake")
    columns = as_stored(Column(name, 25, -1, key=name == "id") for name in ("id", "Name", "name"))
    values = {column.stored: column.name for column in columns}
    positions = {HISTORY_APP: 0x200, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    for oid, name in enumerate((TableName("memory", "cased"), TableName("system", "cased")), 200):
        write_history(made, name, columns, [version(0x100, None, "snapshot", None) | values], positions, oid)
    moment = auditlake.Lake(made.root).as_of("0/150")
    connection = moment.to_duckdb()
    listed = connection.execute("select table_schema || '.' || table_name from information_schema.tables").fetchall()
    assert {"public.lines", "public.Lines@101", "temp_.lines", "memory_.cased"} < {name for (name,) in listed}
    assert len(listed) == len(moment.tables())
    for view, number in (
        ("public.lines", 2),
        ('public."Lines@101"', 1),
        ("temp_.lines", 7),
        ('"Public"."lines@105"', 5),
    ):
        assert connection.execute(f"select id from {view}").fetchall() == [(number,)]
    for schema in ("memory_", "system_"):
        found = connection.execute(f'select "~4eame", name from {schema}.cased').fetchall()
        assert found == [("Name", "name")]
    assert moment.table("memory.cased").to_duckdb().columns == ["id", "~4eame", "name"]


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5, minutes=45))], ids=["UTC", "Kathmandu"])
def test_a_moment_may_be_a_datetime(lake: auditlake.Lake, zone: timezone) -> None:
    """In every question, inclusive, to the microsecond; the same answers as for the text."""
    first, second = (T0 + timedelta(seconds=6)).astimezone(zone), (T0 + timedelta(seconds=10)).astimezone(zone)
    assert [each.lsn for each in lake.log(since=second)] == [0x300, 0x250, 0x200]
    assert [each.lsn for each in lake.log(until=first)] == [0x150]
    assert [each.lsn for each in lake.log(until=first - timedelta(microseconds=1))] == []
    assert [each.op for each in lake.row("orders", 1, until=first)] == ["update", "snapshot"]
    assert lake.blame("orders", 1, as_of=first)[1].value == "b"
    assert len(lake.deleted("orders", as_of=first)) == 0
    assert len(lake.diff(first, second, tables=["orders"])) == len(lake.diff("0/150", "0/250", tables=["orders"])) == 4
    assert lake.as_of(first).lsn == 0x150
    assert [each.lsn for each in lake.changes(second, follow=False)] == [0x200, 0x250, 0x300]
    assert [each.lsn for each in auditlake.changes(lake.location, second, follow=False)] == [0x200, 0x250, 0x300]
    assert list(lake.sql("select id from orders order by id", as_of=first)) == [(1,), (2,)]


def test_sql_returns_rows_for_other_libraries(lake: auditlake.Lake) -> None:
    """Of the state at one moment, with joins and FOR SYSTEM_TIME, and a note if NULL may be a value."""
    joined = lake.sql("select o.id, c.name, o.price from orders o join customers c on o.id = c.id")
    assert (joined.columns, list(joined), len(joined)) == (["id", "name", "price"], [(1, "Anne", Decimal("3.00"))], 1)
    assert joined.to_polars()["name"].to_list() == joined.to_pandas()["name"].tolist() == ["Anne"]
    versions = lake.sql("select count(*) from orders for system_time all where id = 1")
    assert (list(versions), versions.notes) == ([(3,)], ())
    with pytest.raises(BadUsage, match="there is no table"):
        lake.sql("select * from nothing")
    with pytest.raises(BadUsage, match=r"exactly as Spark: .*crc32") as refused:
        lake.sql("select crc32(note) from orders", dialect="spark")
    assert refused.value.hint == "Ask Spark: auditlake.sql(spark, lake, statement)."


def test_sql_reads_the_dialect_of_postgresql(lake: auditlake.Lake) -> None:
    """With its names and values; what it refuses is refused, and a dialect that does not exist."""
    found = lake.sql("select id, price * 1.5, at::date from orders where id = 1", dialect="postgres")
    assert (found.columns, list(found)) == (["id", "?column?", "at"], [(1, Decimal("4.500"), date(2026, 1, 1))])
    assert list(lake.sql("select note from orders order by 1 limit 1", as_of="0/150", dialect="postgres")) == [("",)]
    with pytest.raises(BadUsage, match="division by zero"):
        lake.sql("select id / 0 from orders", dialect="postgres")
    with pytest.raises(BadUsage, match="there is no dialect mysql"):
        lake.sql("select 1", dialect="mysql")  # type: ignore[arg-type]


def test_statements_share_one_database(lake: auditlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is opened once for each dialect, also by threads; each statement sees the views of its own moment."""
    opened = Mock(wraps=duckdb.connect)
    monkeypatch.setattr(duckdb, "connect", opened)
    whens = {"0/100": 2, "0/150": 2, "0/200": 2, "0/250": 3, "0/300": 2} | {None: 2}

    def count(asked: tuple[str | None, Dialect]) -> int:
        ((found,),) = lake.sql("select count(*) as n from orders", as_of=asked[0], dialect=asked[1])
        return int(found)

    questions: list[tuple[str | None, Dialect]] = [(when, each) for when in whens for each in ("postgres", "spark")] * 2
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(count, questions)) == [whens[when] for when, _ in questions]
    of_statements = 2
    assert opened.call_count <= of_statements + 1  # and the one in which the lake's own tables are read


def test_rows_are_counted_without_their_values(lake: auditlake.Lake) -> None:
    """With filters and pages."""
    moment = lake.as_of("0/250")
    assert moment.table("orders").count() == 3
    assert moment.table("orders", where=[("id", ">", 1)]).count() == 2
    assert moment.table("orders", limit=1, raw=True).count() == 1
    assert moment.table("orders", columns=["note"]).count() == 3


def test_results_print_as_a_short_table(lake: auditlake.Lake) -> None:
    """With the number of rows; a notebook shows the same as HTML."""
    rows = lake.as_of("0/250").table("orders", columns=["id", "note"], order_by=["id"])
    assert str(rows).splitlines() == ["id  note", "--  ----", "1   c", "3   NULL", "4   new", "3 rows"]
    assert rows._repr_html_().startswith("<table><thead><tr><th>id</th><th>note</th></tr></thead><tbody><tr><td>1</td>")
    assert str(lake.tables()).splitlines()[-1] == "2 rows"
    assert str(lake.sql("select name from customers")).splitlines() == ["name", "----", "Anne", "1 row"]


def test_results_convert_to_arrow(lake: auditlake.Lake) -> None:
    """With declared types, also when there are no rows."""
    for empty, full in ((lake.row("orders", 9), lake.row("orders", 1)), (lake.log(actor="x"), lake.log())):
        assert empty.to_arrow().schema == full.to_arrow().schema
        assert (empty.to_arrow().num_rows, full.to_arrow().num_rows) == (0, len(full))
    assert lake.row("orders", 1).to_arrow()["after"][0].as_py()[:2] == [("id", "1"), ("note", "c")]
    assert lake.tables().to_polars()["name"].to_list() == ["public.customers", "public.orders"]
    assert lake.blame("orders", 1).to_pandas()["value"].tolist()[:2] == ["1", "c"]


def test_what_cannot_be_answered_is_refused(lake: auditlake.Lake, tmp_path: Path) -> None:
    """With the errors of the command line."""
    with pytest.raises(LakeUnusable):
        auditlake.Lake(tmp_path / "none")
    with pytest.raises(NotAnswerable, match="its history begins at 0/180"):
        lake.as_of("0/150").table("customers")
    with pytest.raises(BadUsage, match="has no time zone"):
        lake.as_of(datetime(2026, 11, 21))  # noqa: DTZ001 - refused
    with pytest.raises(BadUsage, match="there is no table"):
        lake.row("nothing", 1)


def test_one_name_is_not_its_characters(lake: auditlake.Lake) -> None:
    """A text in place of a list of names is one name."""
    names = lake.as_of().table("orders", columns="note", order_by="-note").to_arrow().column_names
    assert names == ["note"]
    assert {each.table for each in lake.diff("0/180", tables="orders")} == {"public.orders"}
    found = list(lake.changes(since="beginning", tables="customers", ops="update", follow=False))
    assert [[str(change.table) for change in each.changes] for each in found] == [["public.customers"]]


def test_a_date_is_no_moment(lake: auditlake.Lake) -> None:
    """It has no time and no zone; its text would have both."""
    with pytest.raises(BadUsage, match="not a moment: a value of type date"):
        lake.as_of(date(2026, 11, 21))  # type: ignore[arg-type]


def test_a_missing_library_is_named(lake: auditlake.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it; Arrow is always there."""
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(Unsupported, match="polars is not installed") as caught:
        lake.log().to_polars()
    assert caught.value.hint == "Install it: pip install polars."


def test_the_import_is_cheap_and_the_api_needs_no_spark(folder: Path) -> None:
    """`import auditlake` imports nothing heavy; a whole session neither Spark nor pandas nor polars."""
    code = """
import sys, auditlake
heavy = {"pyarrow", "deltalake", "duckdb", "pandas", "polars", "pyspark", "psycopg", "pydantic"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
lake = auditlake.Lake(sys.argv[1])
lake.log(), lake.row("orders", 1), lake.as_of().table("orders").to_arrow(), list(lake.changes("now", follow=False))
assert not {"pyspark", "polars", "mcp"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


@on_disk("a bucket has no relative names")
def test_the_folder_may_be_relative(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the command line."""
    monkeypatch.chdir(folder.parent)
    assert repr(auditlake.Lake("lake")) == f"Lake({str(layout.Lake(folder).root)!r})"


def test_the_example_of_the_documentation_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first block of docs/api.md, with a moment and a key of this lake."""
    block = (Path(__file__).parents[3] / "docs" / "api.md").read_text().split("\n\n    import auditlake\n", 1)[1]
    program = textwrap.dedent("    import auditlake\n" + block.split("\n\nA key", 1)[0])
    for written, here in (('"./lake"', repr(str(folder))), ('"-2h"', '"0/250"'), (", 7)", ", 1)")):
        program = program.replace(written, here)
    found: dict[str, Any] = {}
    exec(program, found)  # noqa: S102 - the document's example
    assert sorted(found["prices"]["id"].tolist()) == [1, 3, 4]
    assert "('note', 'price')" in capsys.readouterr().out
