"""Names of exported views: valid in their engine, and each another name there. Pure.

PostgreSQL distinguishes `Orders` from `orders`; DuckDB, Spark and Trino do not, and a second view would replace the
first. Spark's catalog has ASCII letters, digits and `_` alone in names of schemas and views; other characters become
`_`. A name that is taken gets its table's OID as a suffix. PostgreSQL's own names win: those of present tables before
those of dropped ones, and in lower case before others. Columns keep their names (`lake.column_names`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from auditlake.lake.history import HistoryTable
from auditlake.relation import TableName

Named = Mapping[TableName, HistoryTable]
"""The tables by the names of their views."""

LSN_AT = ("auditlake", "lsn_at")
"""The function from a time to its LSN; `exported_views` adds `_at` to a table's name for another function."""
_RESERVED = frozenset({"global_temp", "information_schema", "memory", "pg_catalog", "spark_catalog", "system", "temp"})
"""Schemas in which DuckDB or Spark creates no views, or that have the name of a catalog."""
_OTHER = re.compile("[^A-Za-z0-9_]")


def view_of_versions(name: TableName) -> TableName:
    """Return the name of the view of every version, beside the view of a state."""
    return TableName(f"{name.schema}_versions", name.table)


def names_of_views(
    present: Named, dropped: Sequence[HistoryTable] = (), *, plain: bool, others: Iterable[TableName] = ()
) -> dict[TableName, HistoryTable]:
    """Name the views of the present tables, which have these names, and of dropped ones, which had their last name.

    `plain`: only with ASCII letters, digits and `_`. `others` are names in the same catalog that no view may have.
    """
    named: dict[TableName, HistoryTable] = {}
    taken = {TableName(LSN_AT[0], LSN_AT[1].removesuffix("_at")), *map(_folded, others)}
    first = sorted(present.items(), key=lambda each: (_written(each[0], plain=plain) != _folded(each[0]), each[0]))
    for wanted, table in [*first, *((table.last_name, table) for table in dropped)]:
        name = _written(wanted, plain=plain)
        while not taken.isdisjoint(_views(name)):
            name = TableName(name.schema, f"{name.table}{'_' if plain else '@'}{table.oid}")
        taken.update(_views(name))
        named[name] = table
    return named


def _written(name: TableName, *, plain: bool) -> TableName:
    schema, table = (_OTHER.sub("_", each) if plain else each for each in name)
    return TableName(f"{schema}_" if schema.casefold() in _RESERVED else schema, table)


def _folded(name: TableName) -> TableName:
    return TableName(*(each.casefold() for each in name))


def _views(name: TableName) -> set[TableName]:
    return {_folded(name), _folded(view_of_versions(name))}
