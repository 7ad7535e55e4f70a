"""A new snapshot of tables: what differs ends and begins at its LSN, and everything before stays as it was."""

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from unittest import mock

import pytest

import auditlake.resync.resync as resyncing
import auditlake.resync.supersede as superseding
from auditlake.audit.lake_reader import Reader
from auditlake.audit.queries import RowQuestion, life_of
from auditlake.errors import LakeConflict, NotAnswerable, SourceUnready, WrongSource
from auditlake.lake.gaps import Gap, read_gaps
from auditlake.lake.histories import list_histories
from auditlake.lake.parking import read_parked
from auditlake.lsn import Lsn
from auditlake.resync.hold import hold_tables
from auditlake.resync.renewal import find_renewal
from auditlake.source.connection import connect
from auditlake.source.server import wal_end
from auditlake.temporal.moments import read_known
from tests import oracle
from tests.read_lake import positions_of
from tests.server import install_trigger
from tests.spark.resync.site import TABLES, Site, site

__all__ = ["site"]

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_ATTACHED = """
create table parts_n (id int not null, k text not null, v float8, primary key (id, k));
insert into parts_n select n, 'n', '-0' from generate_series(1, 30) n;
alter table parts attach partition parts_n for values in ('n');
"""


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


def test_a_change_of_columns_that_no_commit_follows_is_not_that_of_the_new_snapshot(site: Site) -> None:
    """What older rows show in a column is known until the table is parked, and would be NULL."""
    site.run("alter table parts add d numeric(10, 2) not null default 1.5, add e int")
    site.catch_up()
    before = site.moment()
    site.catch_up()
    site.run("truncate parts_a")
    site.catch_up()
    with mock.patch.object(superseding, "_supersede", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        site.resync("parts")
    oracle.assert_histories_at(site.lake, [before])
    site.resync("parts")
    now = site.moment()
    site.catch_up()
    oracle.assert_histories_at(site.lake, [before, now])
    assert site.rows("select k, count(*), min(d), max(d), count(e) from parts group by k", str(before.lsn)) == Counter(
        {("a", 40, Decimal("1.50"), Decimal("1.50"), 0): 1, ("b", 40, Decimal("1.50"), Decimal("1.50"), 0): 1}
    )


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
    shown = [entry.reason if isinstance(entry, Gap) else entry.op for entry in life]
    assert shown == ["resync", renewal.problem, "update", "snapshot"]


def test_an_idle_source_gets_no_offset(site: Site) -> None:
    """A killed run has held the tables up to the end of the log, and the source has written nothing since."""
    site.catch_up()
    site.run("select pg_drop_replication_slot('resync')")
    positions = positions_of(site.lake)
    with connect(site.dsn) as control:
        end = wal_end(control).lsn
        hold_tables(site.lake, list_histories(site.lake), positions, end, problem="slot resync is gone")
    renewal = find_renewal(site.dsn, site.lake)
    assert renewal is not None
    assert renewal.manifest.lsn_offset == 0
    with connect(site.dsn) as control:
        assert wal_end(control).lsn > end


def test_tables_that_exchanged_names_before_their_new_snapshot_keep_them(site: Site) -> None:
    """The renames are in the range whose changes are not folded; afterwards each name is the other table's."""
    install_trigger(site.dsn)
    site.run(
        "alter table other alter v type varchar(20) using upper(v)",
        "begin; alter table other rename to aside; alter table copies rename to other;"
        " alter table aside rename to copies; commit",
        "insert into copies values (4, '2026-01-04', 'D')",
    )
    site.catch_up()
    site.resync("other")
    site.catch_up()
    assert site.rows("select id, v from copies") == site.shown("select id, v from copies")
    assert site.rows("select x from other") == site.shown("select x from other")
    called = {str(table.name): [str(name) for name in table.all_names] for table in list_histories(site.lake)}
    assert called["public.other"] == ["public.other", "public.aside", "public.copies"]
    assert called["public.copies"] == ["public.copies", "public.other"]


def test_a_partition_that_logs_another_key_gets_no_new_snapshot(site: Site) -> None:
    """The stream after it would be as incomplete as before, until the partition logs the key of the table again."""
    site.run("create unique index parts_a_v on parts_a (v)", "alter table parts_a alter v set not null")
    site.run("alter table parts_a replica identity using index parts_a_v", "delete from parts where id < 5")
    site.catch_up()
    with pytest.raises(SourceUnready, match="the replica identity of its partition parts_a lacks columns of its key"):
        site.resync("parts")
    site.run("alter table parts_a replica identity default")
    site.catch_up()
    (parked,) = read_parked(site.lake, list_histories(site.lake)).values()
    assert "parts_a lacks columns of its key" in parked.reason
    site.resync("parts")
    site.run("delete from parts where id = 7")
    site.catch_up()
    assert read_parked(site.lake, list_histories(site.lake)) == {}
    assert site.rows("select id, k from parts") == site.shown("select id, k from parts")


def test_an_older_snapshot_does_not_replace_a_newer_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may be suspended for longer than its lease in a store, and another one takes over."""
    real = resyncing.supersede  # type: ignore[attr-defined] # as this module calls it

    def overtaken(*given: Any, **named: Any) -> object:
        monkeypatch.setattr(resyncing, "supersede", real)
        site.run("update other set v = 'newer' where id = 2", "insert into other values (11)")
        site.resync("other")
        return real(*given, **named)

    monkeypatch.setattr(resyncing, "supersede", overtaken)
    before = site.moment()
    with pytest.raises(LakeConflict, match="another process has brought its history to"):
        site.resync("other")
    site.run("delete from other where id = 11")
    later = site.moment()
    site.catch_up()
    oracle.assert_histories_at(site.lake, [before, later])
    oracle.assert_periods(site.lake)
