"""The two states that a question compares: the rows at A and at B of every key that was touched in (A, B].

From history where it has come that far: a version that is true at A and ends by B, one that is true at B and began
after A. Above the table's position the tail decides. A key that is on neither side, or alike on both, was not changed
in the end. Tables with a key; texts by column, see `versions.history_texts`.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.reading import Reader, Span
from auditlake.audit.tail import LSN, Tail
from auditlake.audit.versions import PERIOD, history_texts, value_column
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Sides:
    """Rows before and after; value columns and `lsn`, the commit that gave the row."""

    before: pa.Table
    after: pa.Table


def read_sides(reader: Reader, table: HistoryTable, span: Span) -> Sides:
    """Read both sides of a span; `span.after` must not be before the table's horizon."""
    tail = Tail(reader, table, span.upto) if span.upto > table.position else None
    if tail is None or not tail.rows.num_rows:
        merged = Span(span.after, span.upto)
        return Sides(_values(_before(reader, table, merged)), _values(_after(reader, table, merged)))
    if span.after >= table.position:
        return _within_tail(tail, span)
    return _across(reader, table, tail, span)


def _holds(lsn: int) -> str:
    return f"_from_lsn <= {lsn:d} and (_to_lsn is null or _to_lsn > {lsn:d})"


def _before(reader: Reader, table: HistoryTable, span: Span) -> pa.Table:
    return history_texts(reader, table, f"{_holds(span.after)} and _to_lsn <= {span.upto:d}")


def _after(reader: Reader, table: HistoryTable, span: Span) -> pa.Table:
    return history_texts(reader, table, f"{_holds(span.upto)} and _from_lsn > {span.after:d}")


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
    merged = Span(span.after, Lsn(table.position))
    touched = _values(tail.history(_holds(span.after), keys))
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
    """The texts of a column; NULLs where these rows never had it."""
    column = value_column(name)
    return rows[column] if column in rows.column_names else pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])


def differs(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Where two columns of texts differ, NULL being a value like any other."""
    both = pc.fill_null(pc.not_equal(one, other), fill_value=False)
    return pc.or_(both, pc.xor(pc.is_null(one), pc.is_null(other)))
