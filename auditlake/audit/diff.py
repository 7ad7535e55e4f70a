"""Net difference of one table between two moments: rows added, removed and modified.

`Diff`, for a table with a key. A column that was changed and changed back does not differ; a key change is one row
removed and one added. `before` has the columns of the table at A, `after` those at B, and a row is modified if a column
that both have differs. Columns are compared as Arrow arrays over all keys; only rows that are returned become Python
values.

`MultisetDiff`, for a table without a key: the number of copies of each row that were added or removed. Equal rows
cannot be distinguished, so none is modified.

`Sides` are the versions valid at A that end by B, and those valid at B that began after A, in the overlay of history
and tail (`audit.overlay`). A key on neither side, or equal on both, has no net change. The columns are those of
`versions.history_texts`.

`compared_rows` chooses between the two. In either direction, the columns of keys and of modified rows have their names
at the later moment.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.changes import Values
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.overlay import Overlay, overlaid
from auditlake.audit.versions import PERIOD, history_texts, row_values, value_column
from auditlake.errors import NotAnswerable
from auditlake.lake.history import HistoryTable
from auditlake.lake.masks import masked_names
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.temporal.as_of_predicate import as_of_sql
from auditlake.values.input_syntax import type_name

ADDED, REMOVED, MODIFIED = "added", "removed", "modified"
_NUL = "\0"
_ROWS_AT_ONCE = 100
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Sides:
    """Rows before and after, in value columns."""

    before: pa.Table
    after: pa.Table


def read_sides(reader: Reader, table: HistoryTable, span: Span) -> Sides:
    """Read both sides of a span; `span.after` must be at or above the table's horizon."""
    return _sides(reader, _overlay(reader, table, span), span)


def _overlay(reader: Reader, table: HistoryTable, span: Span) -> Overlay:
    return overlaid(reader, table, span.upto, moments=(span.after, span.upto))


def _sides(reader: Reader, overlay: Overlay, span: Span) -> Sides:
    ended = overlay.valid_at(span.after).within(_to_lsn=span.bounds)
    begun = overlay.valid_at(span.upto).within(_from_lsn=span.bounds)
    before, after = f"_to_lsn <= {span.upto:d}", f"_from_lsn > {span.after:d}"
    return Sides(
        _values(history_texts(reader, overlay.table, f"{as_of_sql(span.after)} and {before}", files=ended)),
        _values(history_texts(reader, overlay.table, f"{as_of_sql(span.upto)} and {after}", files=begun)),
    )


def _values(rows: pa.Table) -> pa.Table:
    return rows.drop_columns(list(PERIOD))


def column_or_null(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return the texts of a column, all NULL if these rows do not have it."""
    column = value_column(name)
    return rows[column] if column in rows.column_names else pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])


def differs(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Compare two columns of texts as IS DISTINCT FROM does: NULL equals NULL only."""
    both = pc.fill_null(pc.not_equal(one, other), fill_value=False)
    return pc.or_(both, pc.xor(pc.is_null(one), pc.is_null(other)))


@dataclass(frozen=True, slots=True)
class DifferingRow:
    """One row that differs: `before` and `after` are whole rows, `changed` the columns that differ."""

    kind: str
    key: Values
    before: Values | None
    after: Values | None
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stat:
    """Size of a difference: `rows_…` count the whole table, `cells_modified` the values in modified rows."""

    rows_before: int
    rows_after: int
    added: int
    removed: int
    modified: int
    cells_modified: int

    @property
    def unmodified(self) -> int:
        return self.rows_after - self.added - self.modified


class Compared(ABC):
    """A table and its columns at two moments of a span: from its beginning to its end or, if `reverse`, back.

    `name` is the table's name at the later moment, `last_name` its last one. `moments` are the one that the difference
    starts from, with `columns_before`, and the one that it ends at.
    """

    def __init__(self, reader: Reader, table: HistoryTable, span: Span, *, reverse: bool) -> None:
        self._reader = reader
        self.table = table
        self.name, self.last_name = table.name_at(Lsn(span.upto)), table.last_name
        self._span = span
        self._reverse = reverse
        self.moments = self._directed(Lsn(span.after), Lsn(span.upto))
        self._earlier, self._later = reader.columns_at(table, span.after), reader.columns_at(table, span.upto)
        self.columns_before, self.columns_after = self._directed(self._earlier, self._later)
        own = reader.own_names(table)
        self.own = {c: own.get(c.stored, c.stored) for c in (*self._earlier, *self._later)}
        self._later_names = {self.own[c]: c.name for c in self._later}
        self._now = {self.own[c]: c.name for c in self._earlier} | self._later_names

    def _directed(self, earlier: _T, later: _T) -> tuple[_T, _T]:
        return (later, earlier) if self._reverse else (earlier, later)

    @cached_property
    def _overlay(self) -> Overlay:
        """The versions up to the later moment; folded when the first rows are asked for, not for all tables at once."""
        return _overlay(self._reader, self.table, self._span)

    @abstractmethod
    def stat(self) -> Stat:
        """Count the rows and cells that differ."""

    @abstractmethod
    def entries(self, kind: str) -> Iterator[DifferingRow]:
        """Yield the rows of one kind, in key order; of a table without a key, each copy."""

    @abstractmethod
    def columns_with_invalid_text(self) -> Sequence[str]:
        """Return the columns with an escaped invalid byte (`values.escapes`) in some row that differs."""

    def named_columns(self, kind: str) -> tuple[dict[str, Column], dict[str, Column]]:
        """Return the columns on both sides of entries of a kind, by the names that they have there.

        In a modified row, a renamed column has its later name on both sides; a dropped one whose name was given to
        another column is left out.
        """
        return self._named(self.columns_before, kind), self._named(self.columns_after, kind)

    def _named(self, columns: Sequence[Column], kind: str) -> dict[str, Column]:
        if kind != MODIFIED:
            return {column.name: column for column in columns}
        lasting = {self._now[self.own[column]]: column for column in columns if self.own[column] in self._later_names}
        gone = {column.name: column for column in columns if self.own[column] not in self._later_names}
        return {column.name: column for column in gone.values() if column.name not in lasting} | lasting

    @property
    def key(self) -> list[str]:
        """The names of the key's columns at the later moment."""
        return [self._now.get(column.name, column.name) for column in self.table.key]

    @property
    def masked_columns(self) -> Sequence[str]:
        """The names of columns, at either moment, whose values the lake does not have."""
        masked = masked_names(self._reader.lake, self.table)
        return sorted(masked & {column.name for column in (*self._earlier, *self._later)})

    def schema_changes(self) -> list[str]:
        """Describe each difference of the columns in one line."""
        own = self.own
        was, now = ({own[column]: column for column in shape} for shape in (self.columns_before, self.columns_after))
        gone = {column.name: column for name, column in was.items() if name not in now}
        new = {column.name: column for name, column in now.items() if name not in was}
        pairs = [(column, now[name]) for name, column in was.items() if name in now]
        pairs += [(column, new[name]) for name, column in gone.items() if name in new]
        added = [f"column {name} added" for name in new if name not in gone]
        removed = [f"column {name} removed" for name in gone if name not in new]
        renamed = [f"column {one.name} renamed to {other.name}" for one, other in pairs if one.name != other.name]
        types = [(two.name, type_name(*one.type), type_name(*two.type)) for one, two in pairs if one.type != two.type]
        other = [f"column {name} changed its type: {one} → {two}" for name, one, two in types]
        replaced = [
            f"column {n} replaced by another of its type" for n, c in gone.items() if n in new and c.type == new[n].type
        ]
        return [*added, *removed, *renamed, *other, *replaced]


class Diff(Compared):
    """A table with a key at two moments."""

    def __init__(self, reader: Reader, table: HistoryTable, span: Span, *, reverse: bool) -> None:
        super().__init__(reader, table, span, reverse=reverse)
        self._key = [value_column(column.name) for column in table.key]

    @cached_property
    def _sides(self) -> Sides:
        sides = _sides(self._reader, self._overlay, self._span)
        return Sides(*self._directed(sides.before, sides.after))

    @cached_property
    def _pairs(self) -> pa.Table:
        """The full outer join of both sides on the key: row numbers `i` before and `j` after, NULL if there is none."""
        sides = self._sides
        before = sides.before.select(self._key).append_column("i", pa.array(np.arange(sides.before.num_rows)))
        after = sides.after.select(self._key).append_column("j", pa.array(np.arange(sides.after.num_rows)))
        return before.join(after, keys=self._key, join_type="full outer").select(["i", "j"]).combine_chunks()

    @cached_property
    def common(self) -> list[str]:
        """The columns outside the key that the table had at both moments, by own name."""
        names = (self.own[column] for column in self._earlier)
        return [name for name in names if name in self._later_names and value_column(name) not in self._key]

    @cached_property
    def _both(self) -> pa.Table:
        """The pairs with both rows, and for each common column a boolean: whether it differs."""
        pairs = self._pairs.filter(pc.and_(pc.is_valid(self._pairs["i"]), pc.is_valid(self._pairs["j"])))
        for name in self.common:
            before = column_or_null(self._sides.before, name).take(pairs["i"])
            after = column_or_null(self._sides.after, name).take(pairs["j"])
            pairs = pairs.append_column(value_column(name), differs(before, after))
        return pairs

    @cached_property
    def _modified(self) -> pa.Table:
        flags = [self._both[value_column(name)] for name in self.common]
        if not flags:
            return self._both.slice(0, 0)
        some = flags[0]
        for flag in flags[1:]:
            some = pc.or_(some, flag)
        return self._both.filter(some)

    @cached_property
    def _removed(self) -> pa.Array:
        return self._pairs.filter(pc.is_null(self._pairs["j"]))["i"]

    @cached_property
    def _added(self) -> pa.Array:
        return self._pairs.filter(pc.is_null(self._pairs["i"]))["j"]

    def stat(self) -> Stat:
        modified = self._modified
        cells = sum(pc.sum(modified[value_column(name)]).as_py() or 0 for name in self.common)
        rows_before, rows_after = map(self._overlay.count, self.moments)
        return Stat(rows_before, rows_after, len(self._added), len(self._removed), modified.num_rows, cells)

    def entries(self, kind: str) -> Iterator[DifferingRow]:
        if kind == MODIFIED:
            yield from self._modified_entries()
            return
        side, rows = (self._sides.after, self._added) if kind == ADDED else (self._sides.before, self._removed)
        columns = self._named(self.columns_after if kind == ADDED else self.columns_before, kind)
        taken = side.take(rows)
        for row in _each_row(taken.take(_order(taken, self._key))):
            values = self._row(row, columns)
            before, after = (None, values) if kind == ADDED else (values, None)
            yield DifferingRow(kind, self._key_of(row), before, after, tuple(values))

    def columns_with_invalid_text(self) -> list[str]:
        before, after = self._sides.before, self._sides.after
        written = [before.take(rows) for rows in (self._removed, self._modified["i"])]
        written += [after.take(rows) for rows in (self._added, self._modified["j"])]
        found = (own for own in self._later_names if any(_has_nul(column_or_null(rows, own)) for rows in written))
        return [self._later_names[own] for own in found]

    def _modified_entries(self) -> Iterator[DifferingRow]:
        before = self._sides.before.take(self._modified["i"])
        after = self._sides.after.take(self._modified["j"])
        order = _order(before, self._key)
        flags = self._modified.select([value_column(name) for name in self.common])
        rows = (_each_row(table.take(order)) for table in (before, after, flags))
        named_before, named_after = self.named_columns(MODIFIED)
        for was, now, flag in zip(*rows, strict=True):
            # A renamed column is the same column: both rows have it under the later name.
            one, other = self._row(was, named_before), self._row(now, named_after)
            changed = tuple(self._now[name] for name in self.common if flag[value_column(name)])
            yield DifferingRow(MODIFIED, self._key_of(now), one, other, changed)

    def _row(self, row: dict[str, str | None], named: dict[str, Column]) -> Values:
        return {name: row.get(value_column(self.own[column])) for name, column in named.items()}

    def _key_of(self, row: dict[str, str | None]) -> Values:
        return {self._now.get(c.name, c.name): row[value_column(c.name)] for c in self.table.key}


def _has_nul(texts: pa.ChunkedArray) -> bool:
    found: bool | None = pc.any(pc.match_substring(texts, _NUL)).as_py()
    return found is True


def _order(rows: pa.Table, key: list[str]) -> pa.Array:
    return pc.sort_indices(rows.select(key), sort_keys=[(name, "ascending") for name in key])


def _each_row(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows as Python values, a batch at a time: a page takes the first of many."""
    for batch in rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
        yield from batch.to_pylist()


Row = tuple[tuple[str, str | None], ...]


def _kept(values: Values, names: Container[str]) -> Row:
    return tuple(sorted((name, text) for name, text in values.items() if name in names))


class MultisetDiff(Compared):
    """A table without a key at two moments."""

    @cached_property
    def _net(self) -> Counter[Row]:
        """The copies of each row, without columns that were dropped in between: those make no row differ."""
        sides, net = _sides(self._reader, self._overlay, self._span), Counter[Row]()
        before, after = self._directed(sides.before, sides.after)
        net.update(_kept(row_values(row), self._later_names) for row in after.to_pylist())
        net.subtract(_kept(row_values(row), self._later_names) for row in before.to_pylist())
        return net

    def stat(self) -> Stat:
        added, removed = (sum(1 for _ in self.entries(kind)) for kind in (ADDED, REMOVED))
        earlier, more = self._overlay.count(self._span.after), added - removed
        before = earlier - more if self._reverse else earlier
        return Stat(before, before + more, added, removed, 0, 0)

    def entries(self, kind: str) -> Iterator[DifferingRow]:
        sign = {ADDED: 1, REMOVED: -1}.get(kind, 0)
        columns = self.columns_after if kind == ADDED else self.columns_before
        for row, count in sorted(self._net.items(), key=lambda item: str(item[0])):
            texts = dict(row)
            own = ((column.name, self.own[column]) for column in columns)
            values = {name: texts[own_name] for name, own_name in own if own_name in texts}
            before, after = (None, values) if kind == ADDED else (values, None)
            for _ in range(count * sign):
                yield DifferingRow(kind, {}, before, after, tuple(values))

    def columns_with_invalid_text(self) -> list[str]:
        texts = ((name, text) for row, count in self._net.items() if count for name, text in row)
        return sorted({self._now[name] for name, text in texts if text is not None and _NUL in text})


def _with_one_key(reader: Reader, table: HistoryTable, span: Span) -> HistoryTable:
    """Return the table with its key at both moments; raises NotAnswerable if the key changed in between."""
    before, after = (reader.keyed_at(table, lsn) for lsn in (span.after, span.upto))
    if {column.name for column in before.key} != {column.name for column in after.key}:  # own names: of one column
        raise NotAnswerable(
            f"the key of {table.label} changed between {span.after} and {span.upto}, so its rows cannot be compared",
            "Compare two moments on one side of the change; auditlake.relations has its LSN.",
        )
    return after


def compared_rows(reader: Reader, table: HistoryTable, span: Span, *, reverse: bool) -> Compared:
    """Compare a table with itself over a span, or in `reverse`; raises NotAnswerable if its key changed."""
    table = _with_one_key(reader, table, span)
    return (Diff if table.key else MultisetDiff)(reader, table, span, reverse=reverse)
