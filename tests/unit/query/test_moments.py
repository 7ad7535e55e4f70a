"""Moments of a small lake, resolved without a JVM: exactly, or refused with both values named."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import CommitProperties, Transaction

from auditlake.audit.lake_reader import Reader
from auditlake.errors import LakeUnusable, NotAnswerable
from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.history import create_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lsn import Lsn
from auditlake.query.statement import Log, prepare_sql
from auditlake.query.system_time import Bounds, State, Versions
from auditlake.relation import Column, TableName
from auditlake.temporal.moments import Known, read_known, resolve
from auditlake.temporal.when import parse_when
from tests.s3_server import chosen_lake, on_disk
from tests.small_lake import (
    CUSTOMER_COLUMNS,
    CUSTOMERS,
    ORDER_COLUMNS,
    ORDERS,
    T0,
    T0_US,
    write_history,
    write_small_lake,
)

# Versions of orders as (_from_lsn, _to_lsn), hand-made from the docstring of the small lake.
A, B, C, GONE, THIRD, FOURTH = "1a", "1b", "1c", "2", "3", "4"
VERSIONS = {
    A: (0x100, 0x150),
    B: (0x150, 0x250),
    C: (0x250, None),
    GONE: (0x100, 0x200),
    THIRD: (0x200, 0x300),
    FOURTH: (0x250, None),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return the small lake, which no test here writes to."""
    return write_small_lake(tmp_path_factory.mktemp("small") / "lake")


@pytest.fixture(scope="module")
def known(lake: Lake) -> Known:
    """Return its state."""
    return read_known(lake)


@pytest.mark.parametrize(
    ("when", "lsn"),
    [
        ("2026-11-21T09:00:00Z", 0x100),  # the snapshot, no commit yet
        ("2026-11-21T09:00:05.999999Z", 0x100),
        ("2026-11-21T09:00:06Z", 0x150),  # a commit exactly then counts
        ("2026-11-21T09:00:07.999999Z", 0x150),
        ("2026-11-21T09:00:08Z", 0x180),  # the second snapshot
        ("2026-11-21T09:00:09Z", 0x180),  # 0/250 has this time, but 0/200 before it has a later one
        ("2026-11-21T09:00:09.999999Z", 0x180),
        ("2026-11-21T09:00:10Z", 0x250),  # two commits of one time_mono
        ("2026-11-21T09:00:29Z", 0x250),
        ("2026-11-21T10:00:30+01:00", 0x300),
        ("2026-11-21T09:01:40Z", 0x300),
        ("0/380", 0x380),
        ("0/381", 0x380),  # the end of the log when capture acknowledged it: everything before it is known
        ("now", 0x300),
        ("xid:11", 0x200),
        ("xid:12", 0x250),
        ("xid:10", 0x300),  # used twice: the latest
        ("0/1", 0x1),  # each table checks its own horizon
    ],
)
def test_a_moment_resolves_to_one_lsn(known: Known, when: str, lsn: int) -> None:
    """Times are looked up in time_mono, xids by their latest use."""
    assert resolve(known, parse_when(when, T0)) == lsn


def test_now_is_the_watermark(known: Known) -> None:
    """A statement without a moment reads the last complete transaction."""
    assert known.now_lsn == 0x300
    assert known.last_lsn == 0x380


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ("0/382", ["0/382", "0/380", "follow --until-current"]),
        ("0/400", ["0/400", "0/380"]),
        ("FFFFFFFF/FFFFFFFF", ["FFFFFFFF/FFFFFFFF", "0/380"]),
        ("2026-11-21T08:59:59.999999Z", ["08:59:59.999999Z", "2026-11-21T09:00:00Z"]),
        ("0001-01-01", ["0001-01-01T00:00:00Z"]),
        ("2026-11-21T09:01:40.000001Z", ["09:01:40.000001Z", "2026-11-21T09:01:40Z", "follow --until-current"]),
        ("9999-12-31", ["9999-12-31T00:00:00Z"]),
        ("xid:14", ["xid:14", "0/300"]),  # half a transaction above the watermark
        ("xid:1", ["xid:1", "0/300"]),
    ],
)
def test_an_unknown_moment_is_refused_with_both_values(known: Known, when: str, words: list[str]) -> None:
    """After the watermark, before the first snapshot, incomplete transactions: both values and the next command."""
    with pytest.raises(NotAnswerable) as caught:
        resolve(known, parse_when(when, T0))
    said = f"{caught.value.message} {caught.value.hint}"
    assert all(word in said for word in words), said
    assert caught.value.hint


def test_a_snapshot_ahead_of_capture_delays_only_its_own_table(tmp_path: Path) -> None:
    """A table copied at an LSN that capture has not reached is refused; other tables are read."""
    lake = write_small_lake(tmp_path / "lake")
    mark = [Transaction(app, 0x500) for app in (HISTORY_APP, SNAPSHOT_APP)]
    table = create_history(lake, TableName("public", "late"), (Column("id", 23, -1, key=True),), 3)
    properties = CommitProperties(app_transactions=mark)
    table.create_write_transaction([], "append", table.schema(), ["_part"], commit_properties=properties)
    assert prepare_sql(lake, "select * from orders").lsn == 0x300
    with pytest.raises(NotAnswerable, match=r"public\.late as of 0/300, .*0/500"):
        prepare_sql(lake, "select * from late")


@on_disk("renames a folder")
def test_without_changes_only_the_snapshots_can_be_read(tmp_path: Path) -> None:
    """Before the first capture no time is known."""
    lake = chosen_lake(tmp_path / "lake")
    for name, columns, lsn in ((ORDERS, ORDER_COLUMNS, 0x100), (CUSTOMERS, CUSTOMER_COLUMNS, 0x180)):
        write_history(lake, name, columns, [], {HISTORY_APP: lsn, SNAPSHOT_APP: lsn, SNAPSHOT_TIME_APP: T0_US})
    known = read_known(lake)
    assert (known.now_lsn, known.last_lsn) == (0x180, 0x180)
    with pytest.raises(NotAnswerable, match="captured nothing yet"):
        resolve(known, parse_when("2026-11-21T09:00:08Z", T0))


def test_an_empty_folder_is_no_lake(tmp_path: Path) -> None:
    """The error names the folder and the next command."""
    with pytest.raises(LakeUnusable) as caught:
        read_known(chosen_lake(tmp_path))
    assert "bootstrap" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("all", {A, B, C, GONE, THIRD, FOURTH}),
        ("from '0/100' to '0/150'", {A, GONE}),
        ("from '0/100' to '0/151'", {A, B, GONE}),
        ("from '0/150' to '0/150'", set()),
        ("from '0/200' to '0/150'", set()),
        ("between '0/100' and '0/150'", {A, B, GONE}),
        ("between '0/150' and '0/150'", {B, GONE}),
        ("between '0/200' and '0/150'", set()),
        ("between '0/250' and '0/300'", {C, THIRD, FOURTH}),
        ("contained in ('0/100', '0/250')", {A, B, GONE}),
        ("contained in ('0/101', '0/250')", {B}),
        ("contained in ('0/100', '0/24F')", {A, GONE}),
        ("contained in ('0/100', '0/380')", {A, B, GONE, THIRD}),
        ("contained in ('0/250', '0/150')", set()),
        ("from '2026-11-21 09:00' to '2026-11-21 09:00:06'", {A, GONE}),
        ("from '2026-11-21 09:00' to '2026-11-21 09:00:06.000001'", {A, B, GONE}),
        ("from '2026-11-21 09:00:06.5' to '2026-11-21 09:00:06.7'", {B, GONE}),
        ("from '2026-11-21 09:00:06.5' to '2026-11-21 09:00:06.5'", set()),
        ("from '2026-11-21 09:00:07' to '2026-11-21 09:00:06'", set()),
        ("between timestamp '2026-11-21 09:00' and timestamp '2026-11-21 09:00:06'", {A, B, GONE}),
        ("between '2026-11-21 09:00:07' and '2026-11-21 09:00:06.5'", set()),
        ("contained in ('2026-11-21 09:00', '2026-11-21 09:00:10')", {A, B, GONE}),
        ("contained in ('2026-11-21 09:00:00.000001', '2026-11-21 09:00:10')", {B}),
        ("from 'xid:11' to 'xid:12'", {B, THIRD}),
        ("from '2026-11-21 09:00:06' to '0/150'", set()),
        ("from '0/150' to '2026-11-21 09:00:06'", set()),
        ("from '0/150' to '2026-11-21 09:00:07'", {B, GONE}),
    ],
)
def test_a_period_selects_the_versions_of_sql_2011(lake: Lake, clause: str, expected: set[str]) -> None:
    """Every SQL:2011 form, by LSN, time, xid and mixed, over the small lake's versions."""
    query = prepare_sql(lake, f"select * from orders for system_time {clause}")
    [(table, selection)] = query.views.values()
    assert table == ORDERS
    assert isinstance(selection, Versions)
    assert {name for name, period in VERSIONS.items() if _within(selection.bounds, *period)} == expected


def _within(bounds: Bounds | None, from_lsn: int, to_lsn: int | None) -> bool:
    """Evaluate Bounds on one version."""
    if bounds is None:
        return False
    begins = (bounds.from_above is None or from_lsn > bounds.from_above) and (
        bounds.from_up_to is None or from_lsn <= bounds.from_up_to
    )
    ends = bounds.to_up_to is None or (to_lsn is not None and to_lsn <= bounds.to_up_to)
    return begins and ends and (bounds.open_after is None or to_lsn is None or to_lsn > bounds.open_after)


@pytest.mark.parametrize(
    "sql",
    [
        "select * from orders for system_time as of '0/FF'",
        "select * from orders for system_time as of '0/382'",
        "select * from orders for system_time from '0/FF' to '0/200'",
        "select * from orders for system_time between '0/100' and '0/382'",
        "select * from orders for system_time contained in ('2026-11-21 08:00', '2026-11-21 09:00:05')",
        "select * from orders, customers for system_time as of '0/17F'",
    ],
)
def test_a_period_that_is_partly_unknown_is_refused(lake: Lake, sql: str) -> None:
    """Before the horizon or after the watermark: an error before Spark starts."""
    with pytest.raises(NotAnswerable) as caught:
        prepare_sql(lake, sql)
    assert caught.value.hint


def test_each_table_has_its_own_horizon(lake: Lake) -> None:
    """At one moment one table may be known and another not; the error names the unknown one."""
    when = "2026-11-21T09:00:07Z"
    assert prepare_sql(lake, "select * from orders", when).lsn == 0x150
    with pytest.raises(NotAnswerable, match=r"public\.customers as of 2026-11-21T09:00:07Z \(0/150\).*0/180"):
        prepare_sql(lake, "select * from orders join customers using (id)", when)
    with pytest.raises(NotAnswerable, match=r"public\.orders as of 0/FF, .*0/100"):
        prepare_sql(lake, "select * from orders", "0/FF")


def test_all_tables_of_a_statement_share_one_lsn(lake: Lake) -> None:
    """Tables without a clause are read at the statement's LSN; a clause affects only its own table."""
    sql = "select * from orders, customers for system_time as of 'xid:11', auditlake.changes"
    query = prepare_sql(lake, sql, "2026-11-21T09:00:30Z")
    assert set(query.views.values()) == {
        (ORDERS, State(Lsn(0x300))),
        (CUSTOMERS, State(Lsn(0x200))),
        (("auditlake", "changes"), Log(Lsn(0x300))),
    }


def test_a_moment_inside_a_gap_is_refused(tmp_path: Path) -> None:
    """The ends of the gap, other tables and ALL are answered."""
    lake = write_small_lake(tmp_path / "lake")
    record_gaps(lake, [Gap(ORDERS, Lsn(0x150), Lsn(0x250), "the slot was lost")])
    for sql in (
        "select * from orders for system_time as of '0/151'",
        "select * from orders for system_time as of '0/24F'",
        "select * from orders for system_time between '0/100' and '0/151'",
        "select * from orders for system_time contained in ('0/200', '0/300')",
    ):
        with pytest.raises(NotAnswerable, match="between 0/150 and 0/250 are missing: the slot was lost"):
            prepare_sql(lake, sql)
    for sql in (
        "select * from orders for system_time as of '0/150'",
        "select * from orders for system_time as of '0/250'",
        "select * from orders for system_time between '0/250' and '0/300'",
        "select * from orders for system_time all",
        "select * from customers for system_time as of '0/200'",
    ):
        assert prepare_sql(lake, sql).views


def test_a_moment_inside_a_gap_is_refused_with_the_lsns_that_are_answered(tmp_path: Path) -> None:
    """Gaps that overlap, or end after what is known, offer only LSNs outside of all."""
    lake = write_small_lake(tmp_path / "lake")
    ranges = [(0x140, 0x210), (0x200, 0x250), (0x290, 0x900)]
    record_gaps(lake, [Gap(ORDERS, Lsn(first), Lsn(last), "the slot was lost") for first, last in ranges])
    for asked, offered in (("0/1FF", ["0/140", "0/250"]), ("0/20F", ["0/140", "0/250"]), ("0/300", ["0/290"])):
        with pytest.raises(NotAnswerable) as caught:
            prepare_sql(lake, "select * from orders", asked)
        hint = str(caught.value.hint)
        assert re.findall(r"LSN (\S+)", hint) == offered
        for lsn in offered:
            assert prepare_sql(lake, "select * from orders", lsn).views


def test_a_time_inside_a_gap_is_named_beside_its_lsn(tmp_path: Path) -> None:
    """It may resolve to the LSN before the gap, which itself is answered."""
    lake = write_small_lake(tmp_path / "lake")
    begin_us, end_us = (int(datetime(2026, 11, 21, 9, 0, second, tzinfo=UTC).timestamp() * 1e6) for second in (2, 20))
    record_gaps(lake, [Gap(ORDERS, Lsn(0x150), Lsn(0x250), "lost", begin_us, end_us)])
    with pytest.raises(NotAnswerable, match=r"as of 2026-11-21T09:00:07Z \(0/150\), its changes between 0/150 and"):
        prepare_sql(lake, "select * from orders", "2026-11-21T09:00:07Z")
    assert prepare_sql(lake, "select * from orders", "0/150").views


@pytest.mark.parametrize("begins", [0x280, 0x300, 0x350], ids=["before now", "at now", "after now"])
def test_now_is_refused_while_capture_has_not_passed_the_end_of_a_gap(tmp_path: Path, begins: int) -> None:
    """The table has changed after the last known commit; moments before, and other tables, are answered."""
    lake = write_small_lake(tmp_path / "lake")
    record_gaps(lake, [Gap(ORDERS, Lsn(begins), Lsn(0x390), "a partition was attached")])
    for sql in (
        "select * from orders",
        "select * from orders for system_time as of 'now'",
        "select * from orders for system_time between '0/100' and 'now'",
    ):
        with pytest.raises(NotAnswerable, match=r"a partition was attached|are missing"):
            prepare_sql(lake, sql)
    reader = Reader(lake, datetime.now(UTC))
    orders, now = reader.table("orders"), reader.moment(None)
    for when in (None, "now"):
        with pytest.raises(NotAnswerable, match=r"as of now, it is known again from 0/390 on|are missing"):
            reader.check(orders, now, when)
    reader.check(orders, Lsn(begins), str(Lsn(begins)))
    assert prepare_sql(lake, f"select * from orders for system_time as of '{Lsn(begins)}'").views
    assert prepare_sql(lake, "select * from customers").views


def test_now_is_the_end_of_a_gap_that_capture_has_passed(tmp_path: Path) -> None:
    """A snapshot later than every commit, up to which all of the log is known."""
    lake = write_small_lake(tmp_path / "lake")
    record_gaps(lake, [Gap(ORDERS, Lsn(0x300), Lsn(0x380), "a partition was attached")])
    ((_, chosen),) = prepare_sql(lake, "select * from orders").views.values()
    assert chosen == State(Lsn(0x380))


def test_a_table_that_is_not_completely_copied_is_refused(tmp_path: Path) -> None:
    """A history without a position is named as not copied yet, not as unknown."""
    lake = write_small_lake(tmp_path / "lake")
    create_history(lake, TableName("public", "late"), (Column("id", 23, -1, key=True),), 3)
    for name in ("late", "public.late", "PUBLIC.Late"):
        with pytest.raises(NotAnswerable, match=r"public\.late has not been completely copied yet"):
            prepare_sql(lake, f"select * from {name}")
    assert prepare_sql(lake, "with late as (select 1) select * from late").lsn == 0x300


def test_an_idle_table_reads_no_changes(tmp_path: Path) -> None:
    """`transactions` shows which tables have a tail, and its first LSN."""
    lake = write_small_lake(tmp_path / "lake")
    query = prepare_sql(lake, "select * from orders join customers using (id)", "0/300")
    assert {table.name for table, _ in query.tails.found} == {ORDERS, CUSTOMERS}
    assert prepare_sql(lake, "select * from customers", "0/200").tails.found == {}
    assert prepare_sql(lake, "select * from orders", "0/200").tails.found == {}
