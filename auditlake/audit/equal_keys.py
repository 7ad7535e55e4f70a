"""Keys of the versions that meet a condition, and those that PostgreSQL takes for equal to one: 1.50 for 1.5.

Both read all versions up to an LSN, and return keys as PostgreSQL printed them.
"""

from collections.abc import Sequence
from contextlib import closing
from itertools import chain
from math import prod
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.filters import Condition, filter_on, operations_of, signed
from auditlake.audit.history_conditions import types_over_time
from auditlake.audit.lake_reader import Reader
from auditlake.audit.overlay import overlaid
from auditlake.audit.row_key import GivenKey, Key
from auditlake.audit.state import with_comparisons
from auditlake.delta.sql import shared_cursor
from auditlake.errors import BadUsage
from auditlake.lake.duckdb_rows import apart, from_apart, quoted, raw_entry
from auditlake.lake.history import HistoryTable, type_of
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.values.exact_text import exact_texts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_EQUAL = signed("=")
_MOST = 10_000


def equal_keys(reader: Reader, table: HistoryTable, given: GivenKey, upto: Lsn) -> list[Key] | None:
    """Return the keys of all versions up to an LSN that are equal to one; None if their equality is not known here."""
    overlay = overlaid(reader, table, upto)
    parts = [types_over_time(overlay.table, column) for column in table.key]
    columns = with_comparisons(reader, table, table.key)
    if any(len(each) > 1 for each in parts) or not all(_EQUAL in operations_of(column) for column in columns):
        return None
    try:
        conditions = [filter_on(*each).sql() for each in zip(columns, [_EQUAL] * len(columns), given.key, strict=True)]
    except BadUsage:  # a form of an interval that is not read here
        return None
    texts, values = zip(*conditions, strict=True)
    with closing(shared_cursor(reader.lake.root)) as cursor:
        rows = f"from ({overlay.sql(cursor)}) h where _from_lsn <= {upto:d}"
        return matching_keys(cursor, rows, parts, (" and ".join(texts), [*chain(*values)]), upto, _MOST)


def matching_keys(  # noqa: PLR0913, PLR0917 - what is read, and how much of it
    cursor: "DuckDBPyConnection",
    rows: str,
    key: Sequence[Sequence[Column]],
    condition: Condition,
    lsn: Lsn,
    limit: int,
) -> list[Key]:
    """Return the keys of versions that meet a condition, at most `limit`: those without a row at the LSN first.

    `rows` is FROM and WHERE of all versions `h`, `key` has the physical columns of each column of the key: one for each
    type. Of the others, the latest are first.
    """
    typed = [column for part in key for column in part]
    cells = [apart(column, f"h.{quoted(column)}") for column in typed]
    cells += [raw_entry(column) if type_of(column).may_not_fit else "null" for column in typed]
    some, values = condition
    listed = ", ".join(f"{cell} as k{n}" for n, cell in enumerate(cells))
    same = " and ".join(f"{cell} is not distinct from m.k{n}" for n, cell in enumerate(cells))
    names = ", ".join(f"m.k{n}" for n in range(len(cells)))
    shown = [from_apart(column, f"m.k{n}") for n, column in enumerate(typed)]
    shown += [f"m.k{n}" for n in range(len(typed), len(cells))]
    sql = (
        f"with m as (select distinct {listed} {rows} and ({some}))"
        f" select {', '.join(shown)} from m join (select h.* {rows}) h on {same} group by {names}"
        f" order by bool_or(h._to_lsn is null or h._to_lsn > {lsn:d}), max(h._from_lsn) desc"
        f" limit {limit * prod(map(len, key)):d}"
    )
    found = cursor.execute(sql, values).to_arrow_table().combine_chunks()
    texts = {}
    for n, column in enumerate(typed):
        raw = found.column(len(typed) + n).combine_chunks().cast(pa.string())
        entries = raw if type_of(column).may_not_fit else None
        texts[column.stored] = exact_texts(found.column(n).combine_chunks(), type_of(column), entries)
    keys = [pc.coalesce(*(texts[column.stored] for column in part)).to_pylist() for part in key]
    return list(dict.fromkeys(zip(*keys, strict=True)))[:limit]
