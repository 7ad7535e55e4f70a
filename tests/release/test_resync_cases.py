"""Cases of a new snapshot: nothing changed, copies of a row, a damaged file, another shape."""

from collections import Counter

import psycopg
import pytest

from auditlake.lake.gaps import read_gaps
from auditlake.lake.history import open_history
from auditlake.lake.history_files import data_files, is_open
from auditlake.relation import TableName
from auditlake.temporal.moments import read_known
from tests import oracle
from tests.read_lake import history_of
from tests.spark.resync.site import TABLES, Site, site

__all__ = ["site"]

pytestmark = [pytest.mark.pg, pytest.mark.spark]


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
    """A file of open versions is missing: resync restores its rows, and the gap begins before the file was lost."""
    site.run("update other set v = 'new' where id = 1", "insert into other values (4), (5)")
    site.catch_up()
    table = history_of(site.lake, TableName("public", "other"))
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
