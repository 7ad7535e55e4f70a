"""Schema changes in words."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from auditlake.audit.lake_reader import Reader
from auditlake.audit.schema_changes import read_schema_changes
from auditlake.lake.relations import RelationsLog, ShapeSource
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity
from auditlake.temporal.moments import read_known
from tests.small_lake import CUSTOMER_COLUMNS, CUSTOMERS, ORDER_COLUMNS, ORDERS, write_small_lake


def _numbered(*columns: Column, first: int = 1) -> tuple[Column, ...]:
    return tuple(replace(column, attnum=number) for number, column in enumerate(columns, start=first))


def test_another_source_is_no_schema_change(tmp_path: Path) -> None:
    """There each table has the OID of the other one here, columns have other numbers, and an own type another OID."""
    lake = write_small_lake(tmp_path / "lake")
    log, default = RelationsLog(lake), ReplicaIdentity.DEFAULT
    kinds = [Column("kind", oid, -1, key=False) for oid in (20_000, 30_000)]
    here, there = ((*ORDER_COLUMNS, kind) for kind in kinds)
    log.record(Relation(1, ORDERS, default, _numbered(*here, first=3)), Lsn(0x200))
    log.record(Relation(2, ORDERS, default, _numbered(*there)), Lsn(0x280))
    seen = Relation(1, CUSTOMERS, default, _numbered(*CUSTOMER_COLUMNS))
    log.record(seen, Lsn(0x280), after_lsn=Lsn(0x270), source=ShapeSource.CATALOG)
    renamed = [replace(column, name="sort") if column.name == "kind" else column for column in there]
    log.record(Relation(2, ORDERS, default, _numbered(*renamed)), Lsn(0x300))
    log.flush()
    known = read_known(lake)
    swapped = {
        t.name: replace(t, oid=3 - t.oid, names=(), former_oids=((Lsn(0x260), t.oid),)) for t in known.tables.values()
    }
    reader = Reader(lake, datetime.now(UTC), replace(known, tables=swapped))
    assert [(each.lsn, each.what, each.history) for each in read_schema_changes(reader)] == [
        (0x200, "public.orders: its columns were changed, between 0/150 and 0/200", ORDERS),
        (0x300, "public.orders: column kind was renamed to sort, between 0/280 and 0/300", ORDERS),
    ]


def test_columns_are_compared_with_the_last_ones_that_are_known(tmp_path: Path) -> None:
    """A column was dropped and added again; a message in between did not show which one it has."""
    lake = write_small_lake(tmp_path / "lake")
    log, (first, *rest) = RelationsLog(lake), ORDER_COLUMNS
    added = [replace(each, attnum=number) for number, each in enumerate(rest, start=20)]
    last = replace(added[-1], attnum=30)
    shapes = [(*_numbered(first), *added), ORDER_COLUMNS, (*_numbered(first), *added[:-1], last)]
    log.record(Relation(1, ORDERS, ReplicaIdentity.DEFAULT, shapes[0]), Lsn(0x200))
    log.record(Relation(1, ORDERS, ReplicaIdentity.DEFAULT, shapes[1]), Lsn(0x280))
    seen = Relation(1, ORDERS, ReplicaIdentity.DEFAULT, shapes[2])
    log.record(seen, Lsn(0x300), after_lsn=Lsn(0x290), source=ShapeSource.CATALOG)
    log.flush()
    found = read_schema_changes(Reader(lake, datetime.now(UTC), read_known(lake)))
    what = f"column {last.name} was dropped, column {last.name} was added, between 0/290 and 0/300"
    assert found[-1].what == f"public.orders: {what}"


def test_a_column_that_comes_or_goes_changes_no_identity_that_is_full(tmp_path: Path) -> None:
    """The key flags of a table with REPLICA IDENTITY FULL are those of every column."""
    lake = write_small_lake(tmp_path / "lake")
    log, columns = RelationsLog(lake), [replace(each, key=True) for each in _numbered(*ORDER_COLUMNS)]
    for lsn, shape in ((0x200, columns[:-1]), (0x280, columns), (0x300, columns[1:])):
        log.record(Relation(1, ORDERS, ReplicaIdentity.FULL, tuple(shape)), Lsn(lsn))
    log.flush()
    found = [each.what for each in read_schema_changes(Reader(lake, datetime.now(UTC), read_known(lake)))]
    assert found[1:] == [
        "public.orders: column at was added, between 0/200 and 0/280",
        "public.orders: column id was dropped, between 0/280 and 0/300",
    ]


def test_columns_of_an_earlier_source_are_found_by_their_names(tmp_path: Path) -> None:
    """A dump numbers columns anew if one was dropped: the number of a column is that of another one now."""
    lake = write_small_lake(tmp_path / "lake")
    first, *rest = ORDER_COLUMNS
    then = (*_numbered(first), *_numbered(*rest, first=3))
    log = RelationsLog(lake)
    log.record(Relation(1, ORDERS, ReplicaIdentity.DEFAULT, then), Lsn(0x150))
    log.flush()
    known = read_known(lake)
    table = known.tables[ORDERS]
    moved = replace(table, oid=9, former_oids=((Lsn(0x260), table.oid),), columns=_numbered(*table.columns))
    reader = Reader(lake, datetime.now(UTC), replace(known, tables={**known.tables, ORDERS: moved}))
    found = [[column.name for column in each.columns] for each in reader.relations_of(moved).values()]
    assert [column.name for column in ORDER_COLUMNS] in found
    assert all(names == [column.name for column in ORDER_COLUMNS] for names in found)
    assert read_schema_changes(reader) == []
