"""Eras of a history's key: between two changes of the key, the same physical columns identify a row.

A key changes if another column becomes the primary key or the replica identity, or if a new snapshot continues a key
column in another physical one, because its rows were rewritten for a new type. Versions of an earlier era are NULL in a
physical column of a later one, or repeat its values. So uniqueness of a key is a rule of one era.

A column that only gets another name is the same one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.relation import Column


@dataclass(frozen=True, slots=True)
class KeyEra:
    """The commits from `first` on, up to `end`, exclusive; `columns` are those of the table at the end of the era.

    `first` is None for the first era, `end` for the last one.
    """

    first: Lsn | None
    end: Lsn | None
    columns: tuple[Column, ...]


def key_eras(table: HistoryTable) -> list[KeyEra]:
    """Return the eras of a history's key up to its position, in order; there is at least one."""
    begins = [lsn for lsn in sorted(set(_changes(table))) if table.first_snapshot_lsn < lsn <= table.position]
    first = [lsn for lsn in begins if _key(table, Lsn(lsn - 1)) != _key(table, lsn)]
    ends = [*first, None]
    return [
        KeyEra(begin, end, table.columns_at(table.position if end is None else Lsn(end - 1)))
        for begin, end in zip([None, *first], ends, strict=True)
    ]


def era_conditions(era: KeyEra) -> tuple[Expression, Expression]:
    """Return the conditions of versions that are in force at some moment of an era, and of those that begin in it."""
    begin, end = F.col("_from_lsn"), F.col("_to_lsn")
    before_its_end = [begin < int(era.end)] if era.end is not None else []
    begins = [*([begin >= int(era.first)] if era.first is not None else []), *before_its_end]
    lasts = [end.isNull() | (end > int(era.first)) | (begin >= int(era.first))] if era.first is not None else []
    in_force = [*before_its_end, *lasts]
    here, begins_here = (reduce(lambda a, b: a & b, every, F.lit(True)) for every in (in_force, begins))
    # A version without a begin belongs to the last era.
    return (here | begin.isNull(), begins_here) if era.end is None else (here, begins_here)


def _changes(table: HistoryTable) -> Iterator[Lsn]:
    """Yield the LSNs at which a column of the table changed."""
    for column in table.columns:
        yield from (lsn for lsn in (column.since, column.until) if lsn is not None)
        yield from (former.until for former in column.former)


def _key(table: HistoryTable, lsn: Lsn) -> frozenset[str]:
    return frozenset(column.stored for column in table.key_at(lsn))
