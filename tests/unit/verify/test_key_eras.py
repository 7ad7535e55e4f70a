"""Eras of a key: one per set of physical columns, whatever their names."""

from dataclasses import replace
from pathlib import Path

import pytest

from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.relation import Column, Former, TableName
from auditlake.verify.key_eras import key_eras

_ID, _OTHER = Column("id", 23, -1, key=True, attnum=1), Column("other", 23, -1, key=False, attnum=2)
_REWRITTEN = (
    replace(_ID, until=Lsn(30)),
    Column("id", 20, -1, key=True, stored_as="id~2", since=Lsn(30), attnum=1),
    _OTHER,
)
_SWITCHED = (
    replace(_ID, key=False, former=(Former(Lsn(30), "id", key=True),)),
    replace(_OTHER, key=True, former=(Former(Lsn(30), "other", key=False),)),
)
_RENAMED = (replace(_ID, name="number", stored_as="id", former=(Former(Lsn(30), "id", key=True),)), _OTHER)


@pytest.mark.parametrize(
    ("columns", "position", "eras"),
    [
        ((_ID, _OTHER), 100, [(None, None, "id")]),
        (_REWRITTEN, 100, [(None, 30, "id"), (30, None, "id~2")]),
        (_REWRITTEN, 29, [(None, None, "id")]),
        (_SWITCHED, 100, [(None, 30, "id"), (30, None, "other")]),
        (_RENAMED, 100, [(None, None, "id")]),
    ],
    ids=["unchanged", "rewritten", "not yet", "switched", "renamed"],
)
def test_an_era_ends_when_other_columns_are_the_key(
    columns: tuple[Column, ...], position: int, eras: list[tuple[int | None, int | None, str]]
) -> None:
    """An era has the columns at its end; changes above the position are not in force."""
    name, lake = TableName("public", "t"), Lake(Path())
    table = HistoryTable(name, lake, columns, 1, Lsn(position), Lsn(10), as_made=True, oid=1)
    found = [(era.first, era.end, *(c.stored for c in era.columns if c.key)) for era in key_eras(table)]
    assert found == eras
