"""Tests of publication membership: losses between a record and the catalog."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from auditlake.relation import TableName
from auditlake.source.publication_membership import Loss, Member, Membership, find_losses

ORDERS, ITEMS, NEW = (TableName("public", name) for name in ("orders", "items", "new"))
ALL = frozenset({"insert", "update", "delete", "truncate"})
TABLES: Mapping[TableName, Member] = {ORDERS: Member(10, 100), ITEMS: Member(11, None)}
RECORDED = Membership(1, ALL, TABLES)


def losses(found: Membership | None, dropped: tuple[TableName, ...] = ()) -> list[Loss]:
    """Return the losses compared with the record."""
    return list(find_losses("p", RECORDED, found, dropped))


def test_an_equal_or_larger_membership_has_no_loss() -> None:
    """An additional table or operation is no loss."""
    assert losses(RECORDED) == []
    assert losses(replace(RECORDED, tables={**TABLES, NEW: Member(12, 102)})) == []
    some = replace(RECORDED, operations=ALL - {"truncate"})
    assert list(find_losses("p", some, RECORDED, ())) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (None, "is gone"),
        (replace(RECORDED, publication=2), "dropped and created again"),
        (replace(RECORDED, operations=frozenset({"insert"})), "no longer carries delete, truncate, update"),
    ],
)
def test_a_lost_publication_is_one_loss_of_all_tables(found: Membership | None, words: str) -> None:
    """No losses of single tables are reported with it."""
    (loss,) = losses(found)
    assert words in loss.what
    assert loss.table is None


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({ITEMS: TABLES[ITEMS]}, "no longer carries public.orders"),
        ({**TABLES, ORDERS: Member(99, 101)}, "no longer carries public.orders"),
        ({**TABLES, ORDERS: Member(10, 101)}, "taken out and put back, or its row filter or columns"),
        ({**TABLES, ORDERS: Member(10, None)}, "taken out and put back"),
    ],
)
def test_a_lost_table_is_the_only_one_named(tables: Mapping[TableName, Member], words: str) -> None:
    """The loss names this table, and there is no other loss."""
    (loss,) = losses(replace(RECORDED, tables=tables))
    assert words in loss.what
    assert loss.table == ORDERS


def test_a_dropped_table_is_no_loss() -> None:
    """A dropped table has no more changes; a new table of its name has, and is a loss."""
    assert losses(replace(RECORDED, tables={ITEMS: TABLES[ITEMS]}), (ORDERS,)) == []
    (loss,) = losses(replace(RECORDED, tables={**TABLES, ORDERS: Member(99, 101)}), ())
    assert loss.table == ORDERS


ONE, OTHER, AGAIN = 201, 202, 203
BY_SCHEMA = Membership(1, ALL, {ITEMS: Member(11, None, frozenset({ONE}), 7)}, frozenset({ONE, OTHER}))


@pytest.mark.parametrize(
    ("now", "of_all", "seen", "is_lost"),
    [
        ({ONE}, {ONE, OTHER}, None, False),
        ({ONE, AGAIN}, {ONE, AGAIN}, {ONE}, False),
        ({AGAIN}, {AGAIN, OTHER}, {ONE, OTHER}, True),
        ({OTHER}, {ONE, OTHER}, {ONE, OTHER}, False),
        ({OTHER}, {ONE, OTHER}, None, True),
        ({OTHER}, {ONE, OTHER}, {ONE}, True),
        ({OTHER}, {OTHER}, {ONE, OTHER}, True),
    ],
)
def test_a_table_is_lost_if_its_schema_may_have_been_out(
    now: set[int], of_all: set[int], seen: set[int] | None, *, is_lost: bool
) -> None:
    """A table may move to another published schema, if that has been published since the last comparison."""
    found = replace(BY_SCHEMA, tables={ITEMS: Member(11, None, frozenset(now), 7)}, schemas=frozenset(of_all))
    assert bool(list(find_losses("p", BY_SCHEMA, found, (), seen))) == is_lost


def test_other_operations_for_some_time_are_a_loss_of_every_table() -> None:
    """The publication has the same operations, and the xid of a later change."""
    found = replace(BY_SCHEMA, tables={ITEMS: replace(BY_SCHEMA.tables[ITEMS], altered_by=8)})
    (loss,) = find_losses("p", BY_SCHEMA, found, ())
    assert loss.table == ITEMS
