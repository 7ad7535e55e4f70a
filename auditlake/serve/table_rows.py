"""Rows of one table as of an LSN: filters and order from a URL, a page of rows, their number, frequent values. No JVM.

    status:is:paid     the value's text is this one, in any spelling that PostgreSQL reads as it
    price:ge:10.00     compared as PostgreSQL compares values of the type; ops are lt, le, gt, ge
    name:has:desk      the text contains this; `begins`: it starts with this
    note:null:         no value; `notnull`: some value

A comparison is offered only where the order of the typed column is PostgreSQL's own: whole numbers, numeric, dates,
times, floats, and text, which is compared byte by byte, as under the collation C. A value that does not fit its typed
column (`_raw`) is before or after all values that do: `-infinity` and years BC before, the others after.

The rows are those of `audit.state`, filtered, sorted and cut in DuckDB; only those of the page become texts. The
connection is a cursor of the server's one database, so all questions share its memory limit.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.keys import read_value
from auditlake.audit.lake_reader import Reader
from auditlake.audit.state import Reading, columns_of, state_query, versions_query
from auditlake.errors import BadUsage
from auditlake.lake.history import HistoryTable, type_of
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.sql_names import standard_identifier, standard_literal
from auditlake.values.exact_text import exact_texts
from auditlake.values.typed import typed_values
from auditlake.values.types import Kind

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


COMPARED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
OPS = ("is", *COMPARED, "has", "begins", "null", "notnull")
_WHERE = re.compile(rf"(?P<column>.+?):(?P<op>{'|'.join(OPS)}):(?P<value>.*)", re.DOTALL)
_COMPARABLE = frozenset({Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT, Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMPTZ})
_TEXT, _VARCHAR, _UUID = 25, 1043, 2950
_ORDERED_TEXTS = frozenset({_TEXT, _VARCHAR, _UUID})

Condition = tuple[str, list[Any]]
"""SQL with `?` for its values, and the values."""
MOST_VALUES = 10_000
_BATCH_ROWS = 10_000


def ops_of(column: Column) -> tuple[str, ...]:
    """Return the operations that a filter on this column may use."""
    kind = type_of(column).kind
    ops = [] if kind is Kind.ARRAY else ["is"]
    if kind in _COMPARABLE or column.type_oid in _ORDERED_TEXTS:
        ops += COMPARED
    if kind is Kind.TEXT:
        ops += ["has", "begins"]
    return (*ops, "null", "notnull")


def may_sort(column: Column) -> bool:
    """Return whether rows can be sorted by this column."""
    return type_of(column).kind is not Kind.ARRAY


@dataclass(frozen=True, slots=True)
class Where:
    """One filter; `value` is as the user wrote it, `text` as PostgreSQL prints it, "" if the operation takes none."""

    column: Column
    op: str
    value: str
    text: str

    def __str__(self) -> str:
        return f"{self.column.name}:{self.op}:{self.value}"

    def sql(self) -> Condition:
        """Return the condition on a row of the state, alias h."""
        name, partial = _of(self.column), type_of(self.column).may_not_fit
        absent = f"{name} is null{f' and {_entry(self.column)} is null' if partial else ''}"
        match self.op:
            case "null":
                return f"({absent})", []
            case "notnull":
                return f"not ({absent})", []
            case "has" | "begins":
                return f"{'contains' if self.op == 'has' else 'starts_with'}({name}, ?)", [self.text]
            case _:
                return self._compared()

    def _compared(self) -> Condition:
        value = typed(self.column, self.text)
        if value is None:
            return f"{_entry(self.column)} = ?", [self.text]
        sign = COMPARED.get(self.op, "=")
        condition = f"{_of(self.column)} {sign} ?"
        if sign == "=" or not type_of(self.column).may_not_fit:
            return condition, [value]
        return f"({condition} or {_place(self.column)} {sign} 0)", [value]


def typed(column: Column, text: str) -> Any:  # noqa: ANN401 - of any type
    """Return the typed value of PostgreSQL's text; None if the typed column cannot represent it."""
    return typed_values(pa.array([text]), type_of(column))[0].as_py()


def _of(column: Column) -> str:
    return f"h.{standard_identifier(column.stored)}"


def _entry(column: Column) -> str:
    return f"h._raw[{standard_literal(column.stored)}]"


def _place(column: Column) -> str:
    """Return SQL for where a value outside of its type is: -1 before those that fit, 1 after them, else NULL."""
    entry = _entry(column)
    return f"case when {entry} like '-%' or {entry} like '% BC' then -1 when {entry} is not null then 1 end"


def parse_where(given: Sequence[str], columns: Mapping[str, Column]) -> tuple[Where, ...]:
    """Parse the filters of a URL.

    Raises BadUsage.
    """
    return tuple(_parse(each, columns) for each in given)


def _parse(given: str, columns: Mapping[str, Column]) -> Where:
    match = _WHERE.fullmatch(given)
    if match is None:
        raise BadUsage("a filter is not in the form COLUMN:OP:VALUE", f"OP is one of {', '.join(OPS)}.")
    column = column_named(match["column"], columns)
    op, value = match["op"], match["value"]
    if op not in ops_of(column):
        raise BadUsage(f"{column.name} cannot be filtered by {op}", f"It can by {', '.join(ops_of(column))}.")
    if op in {"null", "notnull"}:
        return Where(column, op, "", "")
    text = value if op in {"has", "begins"} else read_value(column, value).text
    if op in COMPARED and typed(column, text) is None:
        raise BadUsage(
            f"{column.name} cannot be compared with this value", "Compare with a finite one, of the years 1 to 9999."
        )
    return Where(column, op, value, text)


def column_named(name: str, columns: Mapping[str, Column]) -> Column:
    """Return the column of this name.

    Raises BadUsage.
    """
    if name not in columns:
        raise BadUsage(f"there is no column {name} at this moment", f"The columns are {', '.join(columns)}.")
    return columns[name]


@dataclass(frozen=True, slots=True)
class Order:
    """Order of the rows: by one column, then by the key. NULL is last, first if descending, as in PostgreSQL."""

    column: Column | None
    descending: bool
    key: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns to sort by."""
        first = () if self.column is None else (self.column,)
        return (*first, *(column for column in self.key if column != self.column and may_sort(column)))

    def sql(self) -> str:
        """Return the ORDER BY clause; "" for no order."""
        parts: list[str] = []
        for column in self.columns:
            descending = self.descending and column == self.column
            way = "desc nulls first" if descending else "asc nulls last"
            if type_of(column).may_not_fit:
                parts.append(f"case when {_of(column)} is not null then 0 else {_place(column)} end {way}")
            parts.append(f"{_of(column)} {way}")
        return f" order by {', '.join(parts)}" if parts else ""


def parse_order(given: str | None, columns: Mapping[str, Column], key: tuple[Column, ...]) -> Order:
    """Parse `column` or `-column`.

    Raises BadUsage.
    """
    if not given:
        return Order(None, False, key)
    descending = given.startswith("-") and given not in columns
    column = column_named(given.removeprefix("-") if descending else given, columns)
    if not may_sort(column):
        raise BadUsage(f"{column.name} is an array, by which rows cannot be sorted", "Sort by another column.")
    return Order(column, descending, key)


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
