"""Names of exported views, by hand."""

from pathlib import Path

import pytest

from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.query.exported_names import names_of_views
from auditlake.relation import TableName


def _table(oid: int, schema: str, name: str) -> HistoryTable:
    return HistoryTable(TableName(schema, name), Lake(Path("/t")), (), 3, Lsn(9), Lsn(5), as_made=True, oid=oid)


@pytest.mark.parametrize(
    ("plain", "present", "dropped", "expected"),
    [
        (False, ["Orders", "orders"], [], ["Orders@1", "orders"]),
        (True, ["Orders", "orders"], [], ["Orders_1", "orders"]),
        (True, ["Orders"], [], ["Orders"]),
        (False, ["Orders"], ["orders"], ["Orders", "orders@2"]),
        (True, ["a-b", "a b", "a_b"], [], ["a_b_1", "a_b_2", "a_b"]),
        (False, ["a-b", "é"], [], ["a-b", "é"]),
        (True, ["a-b", "a_b", "a_b_1"], [], ["a_b_1_1", "a_b", "a_b_1"]),
    ],
)
def test_a_name_is_valid_and_of_one_table(
    plain: bool,  # noqa: FBT001 - a parameter of the test
    present: list[str],
    dropped: list[str],
    expected: list[str],
) -> None:
    """A table's OID is its place in the lists."""
    tables = [_table(oid, "s", name) for oid, name in enumerate([*present, *dropped], start=1)]
    named = {table.name: table for table in tables[: len(present)]}
    names = {table.oid: name for name, table in names_of_views(named, tables[len(present) :], plain=plain).items()}
    assert [names[table.oid] for table in tables] == [TableName("s", name) for name in expected]


def test_no_view_is_that_of_versions_nor_the_function_of_times() -> None:
    """Schemas with the names of ours, and those that an engine has itself."""
    names = [("s", "t"), ("s_versions", "t"), ("s_versions_versions", "t"), ("auditlake", "lsn"), ("Temp", "t")]
    tables = {(table := _table(oid, *name)).name: table for oid, name in enumerate(names, start=1)}
    found = {table.oid: tuple(name) for name, table in names_of_views(tables, plain=False).items()}
    assert found == {
        1: ("s", "t"),
        2: ("s_versions", "t@2"),
        3: ("s_versions_versions", "t"),
        4: ("auditlake", "lsn@4"),
        5: ("Temp_", "t"),
    }


def test_no_view_has_the_name_of_a_registered_history() -> None:
    """In Trino, in whose catalog case does not distinguish names; neither has its view of versions."""
    names = [("x", "t"), ("X_Lake", "T"), ("x_lake", "other"), ("y", "u")]
    tables = {(table := _table(oid, *name)).name: table for oid, name in enumerate(names, start=1)}
    others = [TableName("x_lake", "t"), TableName("y_versions", "u")]
    found = {table.oid: tuple(name) for name, table in names_of_views(tables, plain=False, others=others).items()}
    assert found == {1: ("x", "t"), 2: ("X_Lake", "T@2"), 3: ("x_lake", "other"), 4: ("y", "u@4")}
