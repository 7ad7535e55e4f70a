"""Notices beside answers about a period in which changes are missing: which, of how many tables, and how many."""

from dataclasses import replace
from pathlib import Path

from auditlake.lake.gaps import UNKNOWN_SHAPE, Gap, record_gaps
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, Parked, park
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.temporal.moments import read_known
from tests.command import run_here
from tests.page import write_lake
from tests.small_lake import ORDERS

_CUSTOMERS = TableName("public", "customers")
_LACKS = "the answer may lack what happened then"


def _told(lake: Lake, *line: str) -> list[str]:
    done = run_here(["log", "--json", *line, "--lake", lake.root])
    assert done.code == 0, done
    return [each.removeprefix("auditlake: ") for each in done.stderr.splitlines()]


def test_tables_with_one_gap_are_in_one_notice(tmp_path: Path) -> None:
    """Those that were asked for; a gap of all tables counts for each, one of a shape alone for none."""
    lake = write_lake(tmp_path / "lake")
    gap = Gap(ORDERS, Lsn(0x160), Lsn(0x1F0), "lost")
    whole, shape = Gap(None, Lsn(0x210), Lsn(0x220), "gone"), f"{UNKNOWN_SHAPE}: a"
    record_gaps(lake, [gap, replace(gap, table=_CUSTOMERS), whole, Gap(ORDERS, Lsn(0x230), Lsn(0x240), shape)])
    all_of_them = f"no table is known between 0/210 and 0/220: gone; {_LACKS}"
    where = f"not known between 0/160 and 0/1F0: lost; {_LACKS}"
    assert _told(lake) == [f"public.customers, public.orders are {where}", all_of_them]
    assert _told(lake, "--table", "orders") == [f"public.orders is {where}", all_of_them]
    assert _told(lake, "--table", "hostile") == [all_of_them]
    assert _told(lake, "--since", "0/221") == []
    assert _told(lake, "--until", "0/160") == []
    assert _told(lake, "-n", "2") == []  # 0/300 and 0/250


def test_a_reader_sees_no_gap_of_a_hidden_table(tmp_path: Path) -> None:
    """Its name is not told."""
    lake = write_lake(tmp_path / "lake")
    record_gaps(lake, [Gap(ORDERS, Lsn(0x160), Lsn(0x1F0), "lost")])
    known = read_known(lake)
    assert len(known.missing(Lsn(0), Lsn(0x300))) == 1
    assert known.limited_to([_CUSTOMERS], lambda _: False).missing(Lsn(0), Lsn(0x300)) == []


def test_a_parked_table_is_missing_from_there_on(tmp_path: Path) -> None:
    """But one that was dropped lacks nothing."""
    lake = write_lake(tmp_path / "lake")
    park(lake, Parked(ORDERS, Cause.SHAPE, Lsn(0x280), Lsn(0x300), "rewritten", "a remedy", 0))
    assert _told(lake) == [f"public.orders is not known after 0/280: rewritten; {_LACKS}"]
    assert _told(lake, "--table", "customers") == []
    dropped = write_lake(tmp_path / "dropped")
    park(dropped, Parked(ORDERS, Cause.DDL, Lsn(0x280), Lsn(0x300), "dropped", "a remedy", 0, ended=True))
    assert _told(dropped) == []


def test_of_many_gaps_the_last_are_named(tmp_path: Path) -> None:
    """And the number of the others."""
    lake = write_lake(tmp_path / "lake")
    record_gaps(lake, [Gap(ORDERS, Lsn(0x110 + n), Lsn(0x111 + n), "a reason") for n in range(12)])
    first, *named = _told(lake)
    assert first == "auditlake.gaps lists 2 earlier gaps"
    assert [line.split()[5] for line in named] == [str(Lsn(0x112 + n)) for n in range(10)]
