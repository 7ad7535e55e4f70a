"""State of a table at an LSN as typed Arrow, without a JVM: history files ⊕ the changes not applied yet, in DuckDB.

    open_state(reader, table, lsn)            a stream of record batches, with the source's names and order of columns
    state_query(connection, reader, reading)  the same as a query, for DuckDB statements over several tables

1. Files that statistics rule out are not read (`temporal.as_of_predicate`); rows that deletion vectors mark are left
   out.
2. Below the table's position that is all. Above it `pending_changes.Tail` folds the tail: the rows of every key that it
   touches are replaced by their state at the LSN. A table without a key is a multiset: of equal rows, as many are left
   out or added as the tail removed or inserted.
3. Columns added since the snapshot show their missing value in older rows.

A value that its type cannot represent is NULL; with `raw` the column `_raw` has its text, as in a history. `open_state`
leaves out the trailing blanks of `char(n)`, unless it is asked for values as they are printed.

Files on an object store are read in ranges, through obstore.

Memory: rows of the history are streamed; the keys and rows of the tail are held, as is what DuckDB sorts (up to
`delta.sql.MEMORY_BYTES`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from auditlake.audit.changes import States, Values, changes_of
from auditlake.audit.filters import column_named, filter_on, may_not_fit, ordered, signed, sort_column
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.pending_changes import Tail, TailVersion
from auditlake.audit.versions import value_column
from auditlake.delta.sql import VIRTUAL_COLUMNS, connect, register
from auditlake.errors import Unsupported
from auditlake.lake.duckdb_rows import (
    apart,
    bare,
    quoted,
    raw_entry,
    raw_with_printed,
    rows_of,
    same_key,
    sql_type,
)
from auditlake.lake.history import PERIOD_COLUMNS, HistoryTable, type_of
from auditlake.lake.history_files import Files, find_files
from auditlake.lsn import LAST_LSN, Lsn
from auditlake.relation import Column
from auditlake.sql_names import standard_identifier, standard_literal
from auditlake.temporal.as_of_predicate import as_of_sql, of_state
from auditlake.values.exact_text import outside, raw_map, typed_values
from auditlake.values.types import is_widened

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

_BATCH_ROWS = 1 << 14
_RAW = "_raw"
_ROW, _COUNT, _COPY = "`row", "`count", "`copy"
"""Columns beside those of the source, each optional; no name of a column contains a backtick."""
_INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Reading:
    """A table's state at `lsn` in some of its columns of that moment; `raw`: with `_raw`.

    `held` is a relation of the connection, read instead of the files. It has the rows of the history at `lsn`, or at
    the table's position if that is lower, with the columns of the reading, those of the key, and `_raw`.
    """

    table: HistoryTable
    lsn: Lsn
    columns: tuple[Column, ...]
    raw: bool = False
    held: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Order and part of the rows: names of columns, `-name` descending; NULL is last, in descending order first."""

    order: tuple[str, ...] = ()
    limit: int | None = None
    offset: int = 0


_EVERYTHING = Page()


def open_state(  # noqa: PLR0913 - the parts of a question
    reader: Reader,
    table: HistoryTable,
    lsn: Lsn,
    *,
    columns: Sequence[str] | None = None,
    where: Sequence[tuple[str, str] | tuple[str, str, Any]] = (),
    page: Page = _EVERYTHING,
    raw: bool = False,
    printed: bool = False,
) -> pa.RecordBatchReader:
    """Read the rows of a table after the commit at `lsn`, in the columns that it had then, or those named.

    `printed`: with the trailing blanks of `char(n)`.

    Raises NotAnswerable if the state is not known, BadUsage for a column that the table did not have, Unsupported if
    another program has given the history table features.
    """
    reader.check(table, lsn, str(lsn))
    had = {column.name: column for column in columns_of(reader, table, lsn)}
    chosen = tuple(column_named(name, had) for name in (had if columns is None else columns))
    filters = [filter_on(column_named(name, had), signed(sign), *value) for name, sign, *value in where]
    order = [sort_column(name, had) for name in page.order]
    used = (*(each.column for each in filters), *(column for column, _ in order))
    needed, with_raw = tuple(dict.fromkeys((*chosen, *used))), raw or any(map(may_not_fit, used))
    conditions = [each.sql() for each in filters]
    connection = connect()
    inner = state_query(connection, reader, Reading(table, lsn, needed, with_raw))
    shown = [quoted(column) if printed else bare(column, f"h.{quoted(column)}") for column in chosen]
    shown += [raw_with_printed([(column, column.stored) for column in chosen])] if raw else []
    condition = " and ".join(text for text, _ in conditions)
    terms = ", ".join(ordered(column, descending=descending) for column, descending in order)
    sql = (
        f"select {', '.join(shown) or '1'} from ({inner}) h"
        f"{f' where {condition}' if condition else ''}{f' order by {terms}' if terms else ''}"
        f"{'' if page.limit is None else f' limit {page.limit:d}'}{f' offset {page.offset:d}' if page.offset else ''}"
    )
    values = [value for _, given in conditions for value in given]
    batches = connection.execute(sql, values).to_arrow_reader(_BATCH_ROWS)
    # DuckDB would change names that differ only in case.
    names = [*(column.name for column in chosen), *([_RAW] if raw else [])] or [_ROW]
    return pa.RecordBatchReader.from_batches(_renamed(batches.schema, names), _kept(connection, batches, names))


def _renamed(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    return pa.schema([field.with_name(name) for name, field in zip(names, schema, strict=False)])


def columns_of(reader: Reader, table: HistoryTable, lsn: Lsn) -> tuple[Column, ...]:
    """Return the columns of a table at an LSN, with their stored names."""
    stored = {column.stored: column for column in table.columns}
    return tuple(_named_as(stored.get(column.stored, column), column) for column in reader.columns_at(table, lsn))


def _named_as(column: Column, now: Column) -> Column:
    """Return a column with the type of the history, or the wider one that the moment has, under its name then."""
    types = column.type, now.type
    type_oid, typmod = types[is_widened(*types)]
    stored_as = None if column.stored == now.name else column.stored
    return replace(column, type_oid=type_oid, typmod=typmod, name=now.name, stored_as=stored_as)


def _kept(
    connection: "DuckDBPyConnection", batches: pa.RecordBatchReader, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Keep the connection open until the last batch is read."""
    try:
        for batch in batches:
            yield pa.RecordBatch.from_arrays(batch.columns, schema=_renamed(batch.schema, names))
    finally:
        connection.close()


def state_query(connection: "DuckDBPyConnection", reader: Reader, reading: Reading) -> str:
    """Return a query of the state's rows under their stored names; its inputs are registered in the connection.

    The caller has checked that the state is known (`Reader.check`, or `query.system_time`). Raises Unsupported.
    """
    return _State(connection, reader, reading).sql()


def is_held(query: str, reading: Reading) -> bool:
    """Return whether a state's query reads all rows of `held` and no others, unchanged."""
    shown = [*(quoted(column) for column in reading.columns), *([_RAW] if reading.raw else [])]
    return query == f"select {', '.join(shown)} from {reading.held}"


def versions_query(
    connection: "DuckDBPyConnection", reader: Reader, table: HistoryTable, columns: tuple[Column, ...], upto: Lsn
) -> str:
    """Return a query of all versions up to an LSN, with the columns of the period.

    Above the table's position the columns must be those of the history. Raises Unsupported.
    """
    found = _files(table)
    found.fetch()
    period = [name for name, _ in PERIOD_COLUMNS if name != "_part"]
    shown = [quoted(column) for column in columns] + period
    if upto <= table.position or reader.changes is None:
        return rows_of(connection, found, shown, None)
    if not table.key:
        raise Unsupported(f"{table.name} has no key, and changes that are not applied yet", _THROUGH_SPARK)
    _check_key(reader, table, upto)
    return _State(connection, reader, Reading(table, upto, columns, raw=True)).versions(found, shown)


def _check_key(reader: Reader, table: HistoryTable, upto: Lsn) -> None:
    """Require that the changes which are not applied yet have the key of the history; raises Unsupported."""
    if reader.followed_to(table, upto).cut_at is not None:
        raise Unsupported(f"the key of {table.name} changes, or its columns, and that is not applied", _THROUGH_SPARK)


def _files(table: HistoryTable) -> Files:
    found = find_files(table)
    if found is None or any(column.stored.casefold() in VIRTUAL_COLUMNS for column in table.columns):
        raise Unsupported(
            f"the history of {table.name} has columns, table features or statistics that DuckDB cannot read here",
            _THROUGH_SPARK,
        )
    return found


_THROUGH_SPARK = "Ask through Spark: auditlake sql --engine spark."


class _State:
    """One reading: the query of its rows."""

    def __init__(self, connection: "DuckDBPyConnection", reader: Reader, reading: Reading) -> None:
        self._connection = connection
        self._reader = reader
        self._table = reader.known.tables[reading.table.name]
        self._lsn = reading.lsn
        self._columns = reading.columns
        self._raw = reading.raw
        self._held_as = reading.held
        self._shown = [*(quoted(column) for column in reading.columns), *([_RAW] if reading.raw else [])] or [
            f"1 as {standard_identifier(_ROW)}"
        ]

    @cached_property
    def _upto(self) -> Lsn:
        return self._reader.known.changes_up_to(self._lsn)

    def sql(self) -> str:
        if self._upto <= self._table.position or self._reader.changes is None:
            return self._history(self._shown)
        _check_key(self._reader, self._table, self._upto)
        if not self._table.key:
            return self._copies()
        tail = Tail(self._reader, self._table, self._upto)
        if not tail.rows.num_rows:
            return self._history(self._shown)
        changed = tail.changed()
        here = self._held(self._typed(changed, changed.num_rows))
        keys = tail.touched(self._table.position)
        if keys is None:  # a TRUNCATE
            return here
        return f"{self._untouched(keys)} union all {here}"

    def versions(self, files: Files, shown: Sequence[str]) -> str:
        """Return a query of all versions: of the history, closed where the tail ends them, and of the tail."""
        folded = Tail(self._reader, self._table, self._upto).versions()
        ends = [version for version in folded if version.begin is None]
        begun = [version for version in folded if version.begin is not None]
        needed = dict.fromkeys((*shown, *(quoted(column) for column in self._table.key)))
        history = rows_of(self._connection, files, list(needed), None)
        if ends:
            texts = zip(*(version.key for version in ends), strict=True)
            keys = {
                value_column(c.name): pa.array(values, pa.string())
                for c, values in zip(self._table.key, texts, strict=True)
            }
            gone = register(self._connection, pa.table(self._typed_keys(pa.table(keys)) | _ends(ends)))
            cells = [f'coalesce(g."{name}", h.{name}) as {name}' if name in _ENDS else f"h.{name}" for name in shown]
            history = (
                f"select {', '.join(cells)} from ({history}) h left join {gone} g"
                f" on h._to_lsn is null and {same_key(self._table.key, 'g')}"
            )
        values = [version.values or {} for version in begun]
        names = dict.fromkeys(self._own(column) for column in self._columns)
        rows = pa.table({value_column(n): pa.array([row.get(n) for row in values], pa.string()) for n in names})
        typed = self._typed(rows, len(begun)).drop_columns([_ROW])
        for name, column in (_begins(begun) | _ends(begun)).items():
            typed = typed.append_column(name, column)
        new = f"select {', '.join(shown)} from {register(self._connection, typed)}"
        return f"select {', '.join(shown)} from ({history}) h union all {new}"

    def _typed_keys(self, keys: pa.Table) -> dict[str, pa.Array]:
        """Return columns of a key as `_same_key` compares them: `k0` …, and `r0` … for texts that do not fit."""
        typed, had = {}, {column.stored: column for column in columns_of(self._reader, self._table, self._upto)}
        for number, column in enumerate(self._table.key):
            texts, held = keys[value_column(column.name)].combine_chunks(), type_of(had.get(column.stored, column))
            typed[f"k{number}"] = typed_values(texts, held)
            typed[f"r{number}"] = outside(texts, held)
        return typed

    def _untouched(self, keys: pa.Table) -> str:
        """Return a query of the rows of the history whose keys the tail does not touch."""
        gone = register(self._connection, pa.table(self._typed_keys(keys)))
        needed = [*self._shown, *(quoted(column) for column in self._table.key)]
        needed += [_RAW] if any(type_of(column).may_not_fit for column in self._table.key) else []
        rows = self._history(list(dict.fromkeys(needed)))
        return f"select {', '.join(self._shown)} from ({rows}) h anti join {gone} g on {same_key(self._table.key, 'g')}"

    def _history(self, shown: Sequence[str]) -> str:
        """Return a query of the history's rows in the state at the LSN, or at its position if that is lower."""
        cells = [self._cell(name) for name in shown]
        if self._held_as is not None:
            return f"select {', '.join(cells)} from {self._held_as}"
        chosen = of_state(_files(self._table), self._lsn, self._table.position)
        chosen.all.fetch()
        whole = rows_of(self._connection, chosen.whole, cells, None)
        if not chosen.partly.by_name:
            return whole
        partly = rows_of(self._connection, chosen.partly, cells, as_of_sql(self._lsn))
        return f"{whole} union all {partly}" if chosen.whole.by_name else partly

    def _cell(self, name: str) -> str:
        """Return SQL for a column in rows of the history, which may lack one that was added since."""
        if name == _RAW:
            return self._raw_cell()
        column = self._unmerged.get(name)
        if column is None:
            wider = self._wider.get(name)
            return name if wider is None else f"cast({name} as {sql_type(wider)}) as {name}"
        missing = self._reader.later(self._table.name)[self._own(column)].missing
        texts = pa.array([missing], pa.string())
        value = typed_values(texts, type_of(column))
        if not value[0].is_valid:
            return f"cast(null as {sql_type(column)}) as {name}"
        return f"(select x from {register(self._connection, pa.table({'x': value}))}) as {name}"

    @cached_property
    def _wider(self) -> dict[str, Column]:
        """The columns of the state that have a wider type than in the history, by their quoted names."""
        merged = {column.stored: type_of(column).delta for column in self._table.columns}
        return {quoted(c): c for c in self._columns if merged.get(c.stored, type_of(c).delta) != type_of(c).delta}

    @cached_property
    def _unmerged(self) -> dict[str, Column]:
        """The columns of the state that were added after the history's position, by their quoted names."""
        position = self._table.position
        merged = {c.stored for c in self._table.columns if c.since is None or c.since <= position}
        later = self._reader.later(self._table.name)
        return {quoted(c): c for c in self._columns if c.stored not in merged and self._own(c) in later}

    def _own(self, column: Column) -> str:
        """Return the name of a column in rows that the audit commands read (`table_shapes`)."""
        return self._reader.own_names(self._table).get(column.stored, column.name)

    def _raw_cell(self) -> str:
        later = self._reader.later(self._table.name)
        texts = {
            c.stored: outside(pa.array([later[self._own(c)].missing], pa.string()), type_of(c))
            for c in self._unmerged.values()
        }
        entries = {name: text[0].as_py() for name, text in texts.items() if text[0].is_valid}
        if not entries:
            return _RAW
        names, values = (", ".join(map(standard_literal, each)) for each in (entries, entries.values()))
        return f"map_concat(coalesce({_RAW}, map()), map([{names}], [{values}])) as {_RAW}"

    def _typed(self, rows: pa.Table, count: int) -> pa.Table:
        """Return rows of texts in the types of the history, and with their `_raw`."""
        texts = {column.stored: self._texts_of(column, rows) for column in self._columns}
        typed = {c.stored: typed_values(texts[c.stored], type_of(c)) for c in self._columns}
        if self._raw:
            partial = [column for column in self._columns if type_of(column).may_not_fit]
            typed[_RAW] = raw_map({c.stored: outside(texts[c.stored], type_of(c)) for c in partial}, count)
        return pa.table(typed | {_ROW: pa.array(np.arange(count))})

    def _texts_of(self, column: Column, rows: pa.Table) -> pa.Array:
        """Return the texts of a column; NULL in a physical column that had ended before the tail."""
        if self._ends.get(column.stored, LAST_LSN) <= self._table.position:
            return pa.nulls(rows.num_rows, pa.string())
        return rows[value_column(self._own(column))].combine_chunks()

    @cached_property
    def _ends(self) -> dict[str, Lsn]:
        columns = self._reader.all_columns(self._table)
        return {column.stored: column.until for column in columns if column.until is not None}

    def _copies(self) -> str:
        """Return a query of the rows of a table without a key."""
        span = Span(self._table.position, self._upto)
        net: Counter[tuple[str | None, ...]] = Counter()
        names = [self._own(column) for column in columns_of(self._reader, self._table, self._lsn)]
        truncated = False
        for change in changes_of(self._reader, self._table.name, span):
            if change.op == "truncate":
                net.clear()
                truncated = True
                continue
            step = States(()).apply(change)
            _count(net, names, step.before, -1)
            _count(net, names, step.after, 1)
        here = self._added_copies(names, [(row, count) for row, count in net.items() if count > 0])
        gone = [(row, -count) for row, count in net.items() if count < 0]
        return here if truncated else f"{self._left_copies(names, gone)} union all {here}"

    def _texts(self, names: Sequence[str], rows: Sequence[tuple[str | None, ...]]) -> pa.Table:
        columns = {value_column(n): pa.array([row[i] for row in rows], pa.string()) for i, n in enumerate(names)}
        return pa.table(columns)

    def _added_copies(self, names: Sequence[str], net: Sequence[tuple[tuple[str | None, ...], int]]) -> str:
        rows = self._texts(names, [row for row, count in net for _ in range(count)])
        return self._held(self._typed(rows, sum(count for _, count in net)))

    def _held(self, rows: pa.Table) -> str:
        """Return a query of rows in memory."""
        return f"select {', '.join(self._shown)} from {register(self._connection, rows)}"

    def _left_copies(self, names: Sequence[str], net: Sequence[tuple[tuple[str | None, ...], int]]) -> str:
        if not net:
            return self._history(self._shown)
        every = columns_of(self._reader, self._table, self._lsn)
        rows = self._texts(names, [row for row, _ in net])
        typed: dict[str, pa.Array] = {_COUNT: pa.array([count for _, count in net], pa.int64())}
        same = []
        for number, column in enumerate(every):
            texts, held = rows[value_column(self._own(column))].combine_chunks(), type_of(column)
            typed[f"k{number}"] = typed_values(texts, held)
            typed[f"r{number}"] = outside(texts, held)
            same.append(f"{apart(column, f'h.{quoted(column)}')} is not distinct from {apart(column, f'g.k{number}')}")
            if held.may_not_fit:
                same.append(f"{raw_entry(column)} is not distinct from g.r{number}")
        typed["id"] = pa.array(np.arange(len(net)))
        gone = register(self._connection, pa.table(typed))
        history = self._history([*(quoted(column) for column in every), _RAW])
        shown = ", ".join(self._shown)
        return (
            f'select {shown} from (select h.*, g."{_COUNT}", row_number() over (partition by g.id) as "{_COPY}"'
            f" from ({history}) h left join {gone} g on {' and '.join(same) or 'true'})"
            f' where "{_COUNT}" is null or "{_COPY}" > "{_COUNT}"'
        )


_ENDS = frozenset({"_to_lsn", "_to_time", "_end_op", "_end_xid"})


def _begins(versions: Sequence[TailVersion]) -> dict[str, pa.Array]:
    changes = [version.begin for version in versions if version.begin is not None]
    return {
        "_from_lsn": pa.array([change.lsn for change in changes], pa.int64()),
        "_from_time": pa.array([change.time_us for change in changes], _INSTANT),
        "_op": pa.array([version.op for version in versions], pa.string()),
        "_xid": pa.array([change.xid for change in changes], pa.int64()),
        "_ordinal": pa.array([change.ordinal for change in changes], pa.int32()),
    }


def _ends(versions: Sequence[TailVersion]) -> dict[str, pa.Array]:
    ends = [(None, None) if version.end is None else version.end for version in versions]
    return {
        "_to_lsn": pa.array([change and change.lsn for change, _ in ends], pa.int64()),
        "_to_time": pa.array([change and change.time_us for change, _ in ends], _INSTANT),
        "_end_op": pa.array([op for _, op in ends], pa.string()),
        "_end_xid": pa.array([change and change.xid for change, _ in ends], pa.int64()),
    }


def _count(net: "Counter[tuple[str | None, ...]]", names: Sequence[str], row: Values | None, by: int) -> None:
    if row is not None:
        net[tuple(row.get(name) for name in names)] += by
