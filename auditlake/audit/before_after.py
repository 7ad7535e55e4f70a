"""Rows before and after a span (A, B]: the states at A and at B of every key that the span touches.

Up to the table's position they come from the history: versions valid at A that end by B, and versions valid at B that
began after A. Above the position the tail decides. A key on neither side, or equal on both, has no net change. Tables
with a key only; the columns are those of `versions.history_texts`.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.pending_changes import LSN, Tail
from auditlake.audit.versions import PERIOD, history_texts, value_column
from auditlake.lake.history import HistoryTable
from auditlake.temporal.as_of_predicate import as_of_sql


@dataclass(frozen=True, slots=True)
class Sides:
    """Rows before and after: value columns, and `lsn`, the commit that wrote the row."""

    before: pa.Table
    after: pa.Table


def read_sides(reader: Reader, table: HistoryTable, span: Span) -> Sides:
    """Read both sides of a span; `span.after` must be at or above the table's horizon."""
    tail = Tail(reader, table, span.upto) if span.upto > table.position else None
    if tail is None or not tail.rows.num_rows:
        merged = Span(span.after, span.upto)
        return Sides(_values(_before(reader, table, merged)), _values(_after(reader, table, merged)))
    if span.after >= table.position:
        return _within_tail(tail, span)
    return _across(reader, table, tail, span)


def _before(reader: Reader, table: HistoryTable, span: Span) -> pa.Table:
    return history_texts(reader, table, f"{as_of_sql(span.after)} and _to_lsn <= {span.upto:d}")


def _after(reader: Reader, table: HistoryTable, span: Span) -> pa.Table:
    return history_texts(reader, table, f"{as_of_sql(span.upto)} and _from_lsn > {span.after:d}")


def _values(rows: pa.Table) -> pa.Table:
    found = rows if LSN in rows.column_names else rows.append_column(LSN, rows["_from_lsn"])
    return found.drop_columns([name for name in PERIOD if name in found.column_names])


def _within_tail(tail: Tail, span: Span) -> Sides:
    keys = tail.touched(span.after)
    return Sides(*(_of(tail.state(lsn), keys, tail) for lsn in (span.after, span.upto)))


def _of(rows: pa.Table, keys: pa.Table | None, tail: Tail) -> pa.Table:
    return rows if keys is None else rows.join(keys, keys=tail.key_columns, join_type="left semi")


def _across(reader: Reader, table: HistoryTable, tail: Tail, span: Span) -> Sides:
    keys = tail.touched(table.position)
    merged = Span(span.after, table.position)
    touched = _values(tail.history(as_of_sql(span.after), keys))
    if keys is None:
        return Sides(touched, tail.state(span.upto))
    rest = [
        _without(_values(rows), keys, tail) for rows in (_before(reader, table, merged), _after(reader, table, merged))
    ]
    return Sides(_both(touched, rest[0]), _both(tail.state(span.upto), rest[1]))


def _without(rows: pa.Table, keys: pa.Table, tail: Tail) -> pa.Table:
    return rows.join(keys, keys=tail.key_columns, join_type="left anti")


def _both(one: pa.Table, other: pa.Table) -> pa.Table:
    return pa.concat_tables([one, other], promote_options="permissive")


def column_or_null(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return the texts of a column, all NULL if these rows do not have it."""
    column = value_column(name)
    return rows[column] if column in rows.column_names else pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])


def differs(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Compare two columns of texts as IS DISTINCT FROM does: NULL equals NULL only."""
    both = pc.fill_null(pc.not_equal(one, other), fill_value=False)
    return pc.or_(both, pc.xor(pc.is_null(one), pc.is_null(other)))
