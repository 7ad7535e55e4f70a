"""Rows of one table as of an LSN: a page of them, their number, frequent values. No JVM.

The rows are those of `audit.state`, filtered, sorted (`audit.filters`) and cut in DuckDB; only those of the page become
texts. The connection is a cursor of the server's one database, so all questions share its memory limit. Rows of a large
table that is asked for again are in memory (`held_tables`).
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.bounds import ANSWER_CHARACTERS, first_batches
from auditlake.audit.equal_keys import matching_keys
from auditlake.audit.filters import (
    Condition,
    Filter,
    beside,
    may_not_fit,
    ordered,
    sort_column,
)
from auditlake.audit.history_conditions import types_over_time
from auditlake.audit.lake_reader import Reader
from auditlake.audit.overlay import Overlay
from auditlake.audit.row_key import Key
from auditlake.audit.state import StateRequest, columns_of, state_query, versions_upto, with_comparisons
from auditlake.audit.versions import texts_by_own_name
from auditlake.errors import BadUsage
from auditlake.lake.comparison_keys import compared_sql, is_grouped_by_key
from auditlake.lake.duckdb_rows import quoted, raw_entry
from auditlake.lake.history import HistoryTable, type_of
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.serve.held_tables import Held, HeldRows
from auditlake.values.exact_text import exact_texts, stored_texts
from auditlake.values.input_syntax import type_name
from auditlake.values.types import Conversion

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_VALUES = 10_000
_BATCH_ROWS = 10_000
_BATCH_BYTES = ANSWER_CHARACTERS
_FETCHED_ROWS = 64
"""Fetched at a time, before it is known how long they are."""
_MOST_ROWS = 2**62
_FAR = 5_000
"""From this offset on, finding a page by its first and last value takes less time than sorting the rows before it."""


@dataclass(frozen=True, slots=True)
class Order:
    """Order of the rows: by one column, then by the key. NULL is last, first if descending, as in PostgreSQL.

    `backwards`: by the key from its end.
    """

    column: Column | None
    descending: bool
    key: tuple[Column, ...]
    backwards: bool = False

    def sql(self) -> str:
        """Return the ORDER BY clause; "" for no order."""
        others = (column for column in self.key if column != self.column)
        terms = [*self._first(()), *(ordered(column, descending=self.backwards) for column in others)]
        return f" order by {', '.join(terms)}" if terms else ""

    def sql_held(self, fitting: Container[str]) -> str:
        """Return the ORDER BY clause for rows that are held in the order of their keys."""
        last = "h.rowid desc" if self.backwards else "h.rowid"
        return f" order by {', '.join([*self._first(fitting), last])}"

    def _first(self, fitting: Container[str]) -> list[str]:
        return [] if self.column is None else [ordered(self.column, descending=self.descending, fitting=fitting)]


def parse_order(given: str | None, columns: Mapping[str, Column], key: tuple[Column, ...]) -> Order:
    """Parse `column` or `-column`; raises BadUsage."""
    if not given:
        return Order(None, False, key)
    return Order(*sort_column(given, columns), key)


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Conditions on rows, their order, and the part of them to return; without `limit` all from `offset` on."""

    where: tuple[Filter, ...]
    order: Order
    offset: int = 0
    limit: int | None = None


class TableState:
    """A table at one LSN, at which `reader.check` has allowed it."""

    def __init__(self, reader: Reader, table: HistoryTable, lsn: Lsn) -> None:
        self.reader = reader
        self.table = table
        self.lsn = lsn
        self.columns = with_comparisons(reader, table, columns_of(reader, table, lsn))

    @property
    def by_name(self) -> dict[str, Column]:
        """The columns of the moment by name."""
        return {column.name: column for column in self.columns}

    @property
    def name(self) -> str:
        """The name that the table had at the moment."""
        return str(self.table.name_at(self.lsn))

    def own_name(self, column: Column) -> str:
        """Return the name of a column in rows that the audit commands read (`audit.columns_over_time`)."""
        return self.reader.own_names(self.table).get(column.stored, column.name)

    @property
    def key(self) -> tuple[Column, ...]:
        """The key's columns at the moment."""
        return tuple(column for column in self.columns if column.key)

    @cached_property
    def overlay(self) -> Overlay:
        """All versions up to the LSN, with those of changes that are not applied."""
        return self.overlay_of(None)

    def overlay_of(self, keys: Collection[Key] | None) -> Overlay:
        """Return the same, of all keys or of some."""
        return versions_upto(self.reader, self.table, self.lsn, keys)

    @property
    def applied(self) -> Overlay | None:
        """The versions that are applied; None if there are no others, or others after a change of the columns."""
        if self.lsn <= self.table.position or self.reader.shapes_of(self.table).shapes.following:
            return None
        return versions_upto(self.reader, self.table, self.table.position)

    def versions(
        self, cursor: "DuckDBPyConnection", conditions: Sequence[Condition], limit: int
    ) -> Iterator[dict[str, Any]]:
        """Yield versions that meet a condition, those that ended first, as texts by own name, with their period."""
        some, values = _any_of(conditions)
        sql = (
            f"select * {self._begun(cursor, self.overlay)} and ({some})"
            f" order by _to_lsn is null or _to_lsn > {self.lsn:d}, _to_lsn desc limit {limit:d}"
        )
        for batch in cursor.execute(sql, values).to_arrow_reader():
            columns = self.overlay.table.columns
            physical = [(c, pa.chunked_array([t])) for c, t in zip(columns, _texts_of(columns, batch), strict=True)]
            begins = pa.chunked_array([batch.column("_from_lsn")])
            texts = texts_by_own_name(self.reader, self.table, begins, physical)
            period = batch.select(["_from_lsn", "_to_lsn"]).to_pylist()
            values_of = [each.to_pylist() for each in texts.values()]
            for place, bounds in enumerate(period):
                yield {**{name: each[place] for name, each in zip(texts, values_of, strict=True)}, **bounds}

    def keys(
        self, cursor: "DuckDBPyConnection", overlay: Overlay, conditions: Sequence[Condition], limit: int
    ) -> list[Key]:
        """Return the keys of such versions, at most `limit` (`audit.equal_keys`)."""
        parts = [types_over_time(overlay.table, column) for column in self.table.key]
        return matching_keys(cursor, self._begun(cursor, overlay), parts, _any_of(conditions), self.lsn, limit)

    def _begun(self, cursor: "DuckDBPyConnection", overlay: Overlay) -> str:
        """Return FROM and WHERE of the versions that began up to the LSN, alias h."""
        return f"from ({overlay.sql(cursor)}) h where _from_lsn <= {self.lsn:d}"

    @property
    def held_rows(self) -> HeldRows:
        """The rows of the history in this state."""
        table = self.reader.known.tables[self.table.name]
        return HeldRows.of_state(table, self.lsn, self.columns, Order(None, False, self.key).sql())


def _any_of(conditions: Sequence[Condition]) -> tuple[str, list[Any]]:
    """Return SQL of one of these conditions, with its values."""
    some = " or ".join(text for text, _ in conditions) or "false"
    return some, [value for _, values in conditions for value in values]


class OpenState:
    """The rows of a state, in a cursor of the database; `held`: they are in its memory."""

    def __init__(self, state: TableState, cursor: "DuckDBPyConnection", held: Held | None = None) -> None:
        self._state = state
        self._cursor = cursor
        partial = any(type_of(column).may_not_fit for column in state.columns)
        source = None if held is None else held.source
        reading = StateRequest(state.table, state.lsn, state.columns, partial, source)
        query = state_query(cursor, state.reader, reading)
        self._rows = query.sql
        # Without changes of the tail the rows are those of the held table, which knows more of them.
        self._whole = held if query.is_held else None
        self._matching: dict[tuple[Filter, ...], npt.NDArray[np.int64]] = {}

    def _query(self, select: str, where: Sequence[Filter], more: str) -> tuple[str, list[Any]]:
        rows, fitting = f"({self._rows})", frozenset[str]()
        if self._whole is not None:
            rows, fitting = self._whole.name, self._whole.fitting
        conditions = [each.sql(fitting) for each in where]
        texts = " and ".join(text for text, _ in conditions)
        sql = f"select {select} from {rows} h{f' where {texts}' if texts else ''}{more}"
        return sql, [value for _, values in conditions for value in values]

    def pages(self, selection: RowSelection) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches: the exact text of every column, by its name."""
        limit = "" if selection.limit is None else f" limit {selection.limit:d}"
        offset = f" offset {selection.offset:d}" if selection.offset else ""
        sql, values = self._query("*", selection.where, f"{self._order_sql(selection.order)}{limit}{offset}")
        for batch in _gathered(self._cursor.execute(sql, values).to_arrow_reader(_FETCHED_ROWS)):
            yield self._texts(batch)

    def _order_sql(self, order: Order) -> str:
        return order.sql() if self._whole is None else order.sql_held(self._whole.fitting)

    def _texts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = self._state.columns
        texts = _texts_of(columns, batch)
        return pa.RecordBatch.from_arrays(texts, [column.name for column in columns])

    def page(self, selection: RowSelection) -> pa.Table:
        """Return rows, of long ones the first: the exact text of every column, by its name."""
        chosen = None if self._whole is None else self._numbers(self._whole, selection)
        if self._whole is None or chosen is None:
            schema = pa.schema([(column.name, pa.string()) for column in self._state.columns])
            most = _MOST_ROWS if selection.limit is None else selection.limit
            return pa.Table.from_batches(first_batches(self.pages(selection), most).batches, schema)
        return self._numbered(self._whole, chosen)

    def next_to(self, key: Sequence[str], *, forwards: bool) -> pa.Table | None:
        """Return the row after or before a key, which need not exist, None without one; raises BadUsage."""
        columns = self._state.key
        if len(columns) != len(key) or not columns:
            raise BadUsage(f"the key has {len(columns)} columns, {len(key)} values are given", "Give one for each.")
        order = Order(None, descending=False, key=columns, backwards=not forwards)
        for place in reversed(range(len(columns))):
            signs = [*"=" * place, ">" if forwards else "<"]
            where = map(beside, columns, signs, key)
            found = self.page(RowSelection(tuple(where), order, 0, 1))
            if found.num_rows:
                return found
        return None

    def _numbered(self, held: Held, chosen: npt.NDArray[np.integer[Any]]) -> pa.Table:
        """Return held rows by their numbers, in this order.

        DuckDB skips row groups by a range, not by a list (21 and 6 ms of CPU for 50 of a million rows, 2026-11).
        """
        schema = pa.schema([(column.name, pa.string()) for column in self._state.columns])
        numbers = ", ".join(map(str, chosen.tolist())) or "null"
        least, most = (min(chosen), max(chosen)) if chosen.size else (0, 0)
        condition = f"rowid between {least:d} and {most:d} and rowid in ({numbers})"
        found = self._cursor.execute(f"select *, rowid from {held.name} where {condition}")
        rows = found.to_arrow_table().combine_chunks()
        places = pc.index_in(pa.array(chosen, pa.int64()), rows["rowid"].combine_chunks())
        return pa.Table.from_batches([self._texts(batch) for batch in rows.take(places).to_batches()], schema)

    def _numbers(self, held: Held, selection: RowSelection) -> npt.NDArray[np.integer[Any]] | None:
        """Return the numbers of the held rows of a page, in its order; None if they are found by sorting all rows."""
        if selection.order.backwards:
            return None
        offset, limit = selection.offset, held.count if selection.limit is None else selection.limit
        if selection.order.column is not None:
            return self._far(held, selection) if offset >= _FAR else None
        if selection.where:
            return self._matches(selection.where)[offset : offset + limit]
        return np.arange(min(offset, held.count), min(offset + limit, held.count))

    def _matches(self, where: tuple[Filter, ...]) -> npt.NDArray[np.int64]:
        """Return the numbers of all held rows that meet the filters; a page and its count need one scan."""
        if where not in self._matching:
            sql, values = self._query("h.rowid as n", where, "")
            numbers = np.asarray(self._cursor.execute(sql, values).fetchnumpy()["n"], np.int64)
            self._matching[where] = np.sort(numbers, kind="stable")
        return self._matching[where]

    def _far(self, held: Held, selection: RowSelection) -> npt.NDArray[np.integer[Any]] | None:
        """Select the values at both ends of the page, then sort only the rows between them.

        None if the page has rows without a value, or values that their type cannot represent.
        """
        order, first = selection.order, selection.offset
        if order.column is None or may_not_fit(order.column, held.fitting):
            return None
        name = compared_sql(order.column, f"h.{quoted(order.column)}")
        count, values = self._query(f"count(*), count({name})", selection.where, "")
        rows, valued = self._cursor.execute(count, values).fetchone() or (0, 0)
        nulls = rows - valued if order.descending else 0
        last = min(first + (selection.limit or rows), rows) - 1
        if first > last or first < nulls or last >= nulls + valued:
            return None
        places = [valued - 1 - (n - nulls) if order.descending else n for n in (first, last)]
        shares = ", ".join(str((place + 0.5) / valued) for place in sorted(places))
        ends, _ = self._query(f"quantile_disc({name}, [{shares}]) as q", selection.where, "")
        least, most = "(select q[1] from ends)", "(select q[2] from ends)"
        before = f"{name} > {most}" if order.descending else f"{name} < {least}"
        skipped, _ = self._query(f"count(*) filter ({before}) as n", selection.where, "")
        page, _ = self._query("h.rowid as n", selection.where, "")
        sql = (
            f"with ends as materialized ({ends}), skipped as materialized ({skipped})"
            f" {page} {'and' if selection.where else 'where'} {name} between {least} and {most}"
            f"{order.sql_held(held.fitting)} limit {last - first + 1:d}"
            f" offset (select {first - nulls:d} - n from skipped)"
        )
        return np.asarray(self._cursor.execute(sql, 3 * values).fetchnumpy()["n"], np.int64)

    def count(self, where: tuple[Filter, ...] = ()) -> int:
        """Return the number of rows."""
        if where in self._matching:
            return len(self._matching[where])
        sql, values = self._query("count(*)", where, "")
        row = self._cursor.execute(sql, values).fetchone()
        return int(row[0]) if row else 0

    def values_of(self, column: Column, where: Sequence[Filter]) -> dict[str | None, int] | None:
        """Count the rows by a column, as GROUP BY does; None if it has more than `MOST_VALUES` values.

        A text stands for all equal ones, such as 1.5 for 1.50. Raises BadUsage if equality is not known here.
        """
        if not is_grouped_by_key(column):
            raise BadUsage(
                f"the values of {column.name} ({type_name(*column.type)}) cannot be counted: equal ones may differ in"
                " their texts",
                "SQL counts the texts: group by them.",
            )
        partial, name = type_of(column).may_not_fit, f"h.{quoted(column)}"
        key, raw = compared_sql(column, name), raw_entry(column) if partial else "null"
        one = key if type_of(column).kind is Conversion.FLOAT else name
        sql, values = self._query(
            f"min({one}) as v, {raw} as r, count(*) as n", where, f" group by {key}, 2 limit {MOST_VALUES + 1:d}"
        )
        found = self._cursor.execute(sql, values).to_arrow_table().combine_chunks()
        if found.num_rows > MOST_VALUES:
            return None
        typed = found["v"].combine_chunks() if found.num_rows else pa.array([], pa.string())
        texts = exact_texts(typed, type_of(column), found["r"].combine_chunks().cast(pa.string()) if partial else None)
        return dict(zip(texts.to_pylist(), found["n"].to_pylist(), strict=True))


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches to ones of `_BATCH_ROWS`, or of fewer long rows."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        kept.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield pa.concat_batches(kept)
            kept, rows, size = [], 0, 0
    if kept:
        yield pa.concat_batches(kept)


def _texts_of(columns: Sequence[Column], batch: pa.RecordBatch) -> list[pa.Array]:
    """Return the texts of columns of a state, which has `_raw` only if it needs it, or of versions."""
    raw = batch.column("_raw") if "_raw" in batch.schema.names else None
    return [stored_texts(column, batch.column(column.stored), raw) for column in columns]
