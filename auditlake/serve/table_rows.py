"""Rows of one table as of an LSN: a page of them, their number, the frequent values of a column. No JVM.

The rows are those of `audit.state`, filtered, sorted and cut in DuckDB; only those of the page become texts. The
connection is a cursor of the server's one database, so all questions share its memory limit.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.lake_reader import Reader
from auditlake.audit.state import Reading, columns_of, state_query, versions_query
from auditlake.lake.history import HistoryTable, type_of
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.serve.filters import Condition, Order, Where
from auditlake.sql_names import standard_identifier
from auditlake.values.exact_text import exact_texts

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_VALUES = 10_000
_BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows, in which order, from where on and how many; `limit` None is all."""

    where: tuple[Where, ...]
    order: Order
    offset: int = 0
    limit: int | None = None


class TableState:
    """A table at one LSN, at which `reader.check` has allowed it."""

    def __init__(self, reader: Reader, table: HistoryTable, lsn: Lsn) -> None:
        self.reader = reader
        self.table = table
        self.lsn = lsn
        self.columns = columns_of(reader, table, lsn)

    @property
    def by_name(self) -> dict[str, Column]:
        """The columns of the moment by name."""
        return {column.name: column for column in self.columns}

    @property
    def merged(self) -> tuple[Column, ...]:
        """The columns of the moment that the history has already."""
        stored = {column.stored for column in self.table.columns}
        return tuple(column for column in self.columns if column.stored in stored)

    @property
    def key(self) -> tuple[Column, ...]:
        """The key's columns at the moment."""
        return tuple(column for column in self.columns if column.key)

    def _query(
        self, cursor: "DuckDBPyConnection", select: str, columns: Sequence[Column], where: Sequence[Where], more: str
    ) -> tuple[str, list[Any]]:
        needed = tuple(dict.fromkeys((*columns, *(each.column for each in where)))) or self.columns[:1]
        raw = any(type_of(column).may_not_fit for column in needed)
        inner = state_query(cursor, self.reader, Reading(self.table, self.lsn, needed, raw))
        conditions = [each.sql() for each in where]
        texts = " and ".join(text for text, _ in conditions)
        sql = f"select {select} from ({inner}) h{f' where {texts}' if texts else ''}{more}"
        return sql, [value for _, values in conditions for value in values]

    def pages(self, cursor: "DuckDBPyConnection", selection: Selection) -> Iterator[pa.RecordBatch]:
        """Yield rows in batches: the exact text of every column, by its name."""
        limit = "" if selection.limit is None else f" limit {selection.limit:d}"
        offset = f" offset {selection.offset:d}" if selection.offset else ""
        columns = tuple(dict.fromkeys((*self.columns, *selection.order.columns)))
        sql, values = self._query(cursor, "*", columns, selection.where, f"{selection.order.sql()}{limit}{offset}")
        for batch in cursor.execute(sql, values).to_arrow_reader(_BATCH_ROWS):
            texts = [texts_of(column, batch) for column in self.columns]
            yield pa.RecordBatch.from_arrays(texts, [column.name for column in self.columns])

    def page(self, cursor: "DuckDBPyConnection", selection: Selection) -> pa.Table:
        """Return rows: the exact text of every column, by its name."""
        schema = pa.schema([(column.name, pa.string()) for column in self.columns])
        return pa.Table.from_batches(self.pages(cursor, selection), schema)

    def count(self, cursor: "DuckDBPyConnection", where: Sequence[Where] = ()) -> int:
        """Return the number of rows."""
        sql, values = self._query(cursor, "count(*)", (), where, "")
        row = cursor.execute(sql, values).fetchone()
        return int(row[0]) if row else 0

    def versions(
        self, cursor: "DuckDBPyConnection", conditions: Sequence[Condition], limit: int
    ) -> Iterator[dict[str, Any]]:
        """Yield versions up to the LSN, and to the table's position, that meet one of the conditions; ended ones first.

        A version is its texts by column, and its period.
        """
        columns = self.merged
        inner = versions_query(cursor, self.table, columns)
        some = " or ".join(text for text, _ in conditions) or "false"
        sql = (
            f"select * from ({inner}) h where _from_lsn <= {min(self.lsn, self.table.position):d} and ({some})"
            f" order by _to_lsn is null or _to_lsn > {self.lsn:d}, _to_lsn desc limit {limit:d}"
        )
        for batch in cursor.execute(sql, [value for _, values in conditions for value in values]).to_arrow_reader():
            texts = {column.name: texts_of(column, batch).to_pylist() for column in columns}
            period = batch.select(["_from_lsn", "_to_lsn"]).to_pylist()
            for place, row in enumerate(period):
                yield {**{name: values[place] for name, values in texts.items()}, **row}

    def values_of(
        self, cursor: "DuckDBPyConnection", column: Column, where: Sequence[Where]
    ) -> Counter[str | None] | None:
        """Count the rows by the text of a column; None if it has more than `MOST_VALUES` values."""
        name = standard_identifier(column.stored)
        partial = type_of(column).may_not_fit
        raw = f"_raw['{column.stored.replace(chr(39), 2 * chr(39))}']" if partial else "null"
        select = f"{name} as v, {raw} as r, count(*) as n"
        sql, values = self._query(cursor, select, (column,), where, f" group by 1, 2 limit {MOST_VALUES + 1:d}")
        found = cursor.execute(sql, values).to_arrow_table().combine_chunks()
        if found.num_rows > MOST_VALUES:
            return None
        typed = found["v"].combine_chunks() if found.num_rows else pa.array([], pa.string())
        texts = exact_texts(typed, type_of(column), found["r"].combine_chunks().cast(pa.string()) if partial else None)
        counts: Counter[str | None] = Counter()
        for text, number in zip(texts.to_pylist(), found["n"].to_pylist(), strict=True):
            counts[text] += number  # -0 and 0 are one group, and have one text each
        return counts


def texts_of(column: Column, batch: pa.RecordBatch) -> pa.Array:
    """Return the exact texts of a column of a state, or of versions."""
    values = batch.column(column.stored)
    raws = None
    if type_of(column).may_not_fit and (raw := batch.column("_raw")).null_count < len(raw):
        raws = pc.map_lookup(raw, column.stored, "first")
    return exact_texts(values, type_of(column), raws)
