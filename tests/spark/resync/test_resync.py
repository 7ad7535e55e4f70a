"""A new snapshot of tables: what differs ends and begins at its LSN, and everything before stays as it was."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

import auditlake
from auditlake.apply.apply import apply_pending
from auditlake.audit.lake_reader import Reader
from auditlake.audit.queries import RowQuestion, life_of
from auditlake.capture.supervisor import make_task, run_capture
from auditlake.errors import NotAnswerable, WrongSource
from auditlake.lake.gaps import Gap, read_gaps
from auditlake.lake.history import open_history
from auditlake.lake.history_files import data_files, is_open
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.resync.renewal import Renewal, find_renewal
from auditlake.resync.resync import Starters, Target, resync
from auditlake.resync.supersede import Resynced
from auditlake.snapshot.bootstrap import Target as First
from auditlake.snapshot.bootstrap import bootstrap
from auditlake.snapshot.worker_pool import LocalWorkers
from auditlake.temporal.moments import read_known
from tests import oracle
from tests.server import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_SCHEMA = """
create table parts (id int, k text, v float8, primary key (id, k)) partition by list (k);
create table parts_a partition of parts for values in ('a');
create table parts_b partition of parts for values in ('b');
create table copies (x int, "file" text); alter table copies replica identity full;
create table other (id int primary key, d date, v text);
insert into parts select n, k, n / 3.0 from generate_series(1, 40) n, unnest(array['a', 'b']) k;
insert into copies select n % 5, 'c' from generate_series(1, 20) n;
insert into other values (1, 'infinity', 'a'), (2, '4000-01-01 BC', 'b'), (3, '2026-01-01', null);
"""
_ATTACHED = """
create table parts_n (id int not null, k text not null, v float8, primary key (id, k));
insert into parts_n select n, 'n', '-0' from generate_series(1, 30) n;
alter table parts attach partition parts_n for values in ('n');
"""
TABLES = ("parts", "copies", "other")


@dataclass(frozen=True)
class Site:
    """A lake with three tables of a database."""

    dsn: str
    lake: Lake
    spark: "SparkSession"

    def run(self, *statements: str) -> None:
        """Execute statements, each in a transaction."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement)

    def catch_up(self) -> None:
        """Capture and apply everything."""
        run_capture(make_task(self.dsn, self.lake, "current"), Event(), lambda _: None)
        apply_pending(lambda: self.spark, self.lake)

    def resync(self, *tables: str, renewal: Renewal | None = None) -> list[Resynced]:
        """Give tables a new snapshot."""
        start = Starters(lambda: self.spark, lambda: LocalWorkers(1))
        names = [TableName("public", table) for table in tables]
        return resync(Target(self.dsn, self.lake, renewal=renewal), names, start, lambda _: None)

    def moment(self) -> oracle.Moment:
        """Return PostgreSQL's rows now."""
        return oracle.take_moment(self.dsn, TABLES)

    def rows(self, sql: str, as_of: str | None = None) -> Counter[tuple[Any, ...]]:
        """Query the lake."""
        return Counter(map(tuple, auditlake.sql(self.spark, self.lake.root, sql, as_of).collect()))

    def versions(self, table: str, condition: str = "true") -> Counter[str]:
        """Return the versions of a table as they are stored."""
        found = QueryBuilder().register("h", DeltaTable(self.lake.history(TableName("public", table))))
        rows = pa.table(found.execute(f"select * from h where {condition}").read_all()).to_pylist()
        return Counter(str(row) for row in rows)


@pytest.fixture
def site(server: Server, spark: "SparkSession", tmp_path: Path) -> Iterator[Site]:
    """Bootstrap the tables."""
    name = server.create_database("resync")
    made = Site(server.dsn(name), Lake(tmp_path / "lake"), spark)
    try:
        made.run(_SCHEMA)
        bootstrap(First(made.dsn, made.lake, "resync", "resync", None), lambda: LocalWorkers(1), lambda _: None)
        yield made
    finally:
        server.drop_database(name)


def test_a_table_whose_rows_changed_without_row_events_goes_on(site: Site) -> None:
    """It is refused between the last certain LSN and the new snapshot; both ends and everything later are exact."""
    site.run("update parts set v = 7 where id < 5", "delete from parts where id = 6")
    before = site.moment()
    site.catch_up()
    site.run(_ATTACHED, "update parts set v = v + 1 where id = 10", "delete from parts where id = 11 and k = 'n'")
    site.catch_up()
    (parked,) = read_known(site.lake).parked.values()
    past = site.versions("parts", "_to_lsn is not null")
    (done,) = site.resync("parts")
    now = site.moment()
    assert (done.closed, done.begun, done.removed) == (2, 29 + 2, 0)
    assert done.lsn < now.lsn
    site.run("update parts set v = 8 where id = 10 and k = 'n'", "insert into other values (9)")
    later = site.moment()
    site.catch_up()

    assert not read_known(site.lake).parked
    oracle.assert_histories_at(site.lake, [before, now, later])
    oracle.assert_periods(site.lake)
    (gap,) = read_gaps(site.lake)
    assert (gap.lsn_from, gap.lsn_to, gap.reason) == (parked.lsn, done.lsn, parked.reason)
    ended = "select k, id from parts for system_time all where _end_op = 'resync'"
    assert site.rows(ended) == Counter({("a", 10): 1, ("b", 10): 1})
    assert past <= site.versions("parts", "_to_lsn is not null")
    for lsn in (gap.lsn_from, gap.lsn_to):
        assert site.rows("select count(*) from parts", str(lsn))
    for lsn in (Lsn(gap.lsn_from + 1), Lsn(gap.lsn_to - 1)):
        with pytest.raises(NotAnswerable, match="are missing: its partition parts_n was attached"):
            site.rows("select count(*) from parts", str(lsn))


def test_an_unchanged_table_gets_no_versions(site: Site) -> None:
    """Values that no typed column can hold are equal to themselves; copies of a row are counted."""
    site.run("insert into copies values (1, 'c'), (7, null)", "delete from copies where x = 3")
    site.catch_up()
    past = {table: site.versions(table) for table in TABLES}
    for done in site.resync(*TABLES):
        assert (done.closed, done.begun, done.gap) == (0, 0, None), done
    assert {table: site.versions(table) for table in TABLES} == past
    assert read_gaps(site.lake) == ()
    histories = [open_history(site.lake, TableName("public", table)) for table in TABLES]
    assert len({table.position for table in histories if table}) == 1


def test_a_table_without_a_key_gains_and_loses_copies(site: Site) -> None:
    """Of too many equal rows the youngest end; a publication that lost the table gets it back."""
    site.run("insert into copies values (2, 'c'), (2, 'd')")
    site.catch_up()
    before = site.moment()
    site.run(
        "alter publication resync drop table copies",
        "delete from copies where ctid = (select max(ctid) from copies where x = 2 and file = 'c')",
        "insert into copies values (4, 'c'), (4, null)",
        "update other set v = 'seen' where id = 3",
    )
    site.catch_up()
    assert [each.table.table for each in read_known(site.lake).parked.values()] == ["copies"]
    (done,) = site.resync("copies")
    assert (done.closed, done.begun, done.removed) == (1, 2, 0)
    now = site.moment()
    site.run("delete from copies where x = 4", "insert into copies values (2, 'c')")
    later = site.moment()
    site.catch_up()
    assert not read_known(site.lake).parked
    oracle.assert_histories_at(site.lake, [before, now, later])
    youngest = "select max(_from_lsn) from copies for system_time all where x = 2 and file = 'c'"
    assert site.rows(f"{youngest} and _to_lsn is not null") == site.rows(f"{youngest} and _end_op = 'resync'")


def test_a_damaged_history_is_repaired(site: Site) -> None:
    """A file of the open versions is missing: what was open is there again, and the gap begins before it was lost."""
    site.run("update other set v = 'new' where id = 1", "insert into other values (4), (5)")
    site.catch_up()
    table = open_history(site.lake, TableName("public", "other"))
    assert table is not None
    files = [file for file in data_files(table) if is_open(file)]
    begins = [bounds[0] for file in files if (bounds := file.bounds("_from_lsn"))]
    begin, lost = max(begins), files[begins.index(max(begins))]
    (table.path / "_part=open" / lost.name).unlink()
    (done,) = site.resync("other")
    assert (done.closed, done.lost_files, done.begun) == (0, 1, lost.rows)
    now = site.moment()
    oracle.assert_histories_at(site.lake, [now])
    (gap,) = read_gaps(site.lake)
    assert gap.lsn_from == begin - 1
    assert site.rows("select count(*) from other", str(gap.lsn_from)) == Counter([(3,)])


def test_a_lake_goes_on_after_its_slot_was_lost(site: Site) -> None:
    """Under a new slot and one new snapshot: every state up to the loss and from the snapshot on is exact."""
    site.run("update other set v = 'x' where id = 2")
    before = site.moment()
    site.catch_up()
    site.run(
        "update other set v = 'y' where id = 2",
        "select pg_drop_replication_slot('resync')",
        "select pg_create_logical_replication_slot('resync', 'pgoutput')",
        "insert into other values (10)",
        "delete from copies where x = 0",
        "drop publication resync",
    )
    with pytest.raises(WrongSource, match=r"publication resync is gone|stands at") as refused:
        site.catch_up()
    assert "auditlake resync --all" in (refused.value.hint or "")
    renewal = find_renewal(site.dsn, site.lake)
    assert renewal is not None
    assert "slot resync is dropped and created anew" in renewal.changes
    assert {done.lsn for done in site.resync(*TABLES, renewal=renewal)} == {read_gaps(site.lake)[0].lsn_to}
    now = site.moment()
    site.run("insert into copies values (0, 'again')", "update parts set v = 0")
    later = site.moment()
    site.catch_up()
    assert find_renewal(site.dsn, site.lake) is None
    oracle.assert_histories_at(site.lake, [before, now, later])
    oracle.assert_periods(site.lake)
    assert {gap.table.table for gap in read_gaps(site.lake) if gap.table} == set(TABLES)
    reader = Reader(site.lake, datetime.now(UTC))
    life = list(life_of(reader, RowQuestion("other", ("id=2",), None, None)).entries())
    shown = [entry.reason if isinstance(entry, Gap) else entry.mark.op for entry, _ in life]
    assert shown == ["resync", renewal.problem, "update", "snapshot"]


def test_a_table_of_another_shape_goes_on(site: Site) -> None:
    """Columns get another type, are dropped and added, and the key changes; the past keeps its shape."""
    site.run("update other set v = 'kept' where id = 1", "insert into copies values (9, 'z')")
    before = str(site.moment().lsn)
    site.catch_up()
    past = {table: site.rows(f"select * from {table}", before) for table in ("copies", "other")}
    site.run(
        "alter table copies alter x type text using x || '!', drop column \"file\", add column n int default 5",
        "update other set v = id where v is null or id = 1",
        "alter table other alter v type int using case when id = 2 then null else 7 end, drop constraint other_pkey",
        "alter table other add column k serial primary key",
        "insert into copies values ('new', 1)",
        "insert into other (id, v) values (1, 8)",
    )
    site.catch_up()
    site.resync("copies", "other")
    site.run("update copies set n = 6 where x = '9!'", "update other set v = 9 where k = 1")
    site.catch_up()
    assert not read_known(site.lake).parked
    with psycopg.connect(site.dsn) as conn:
        copies = Counter(conn.execute("select x, n from copies").fetchall())
        other = Counter(conn.execute("select id, d::text, v, k from other").fetchall())
    assert site.rows("select x, n from copies") == copies
    assert site.rows("select id, exact_text(d), v, k from other") == other
    assert {table: site.rows(f"select * from {table}", before) for table in past} == past
