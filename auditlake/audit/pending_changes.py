"""Tail of one table as Arrow: the keys that it touches, and their state at any LSN within it. For many rows.

A tail is every change above the table's position, up to a limit.

1. Per key, the last effect up to an LSN decides: the row exists with the values of that change, or it does not.
2. A TRUNCATE ends every key without a later effect.
3. Both are computed on Arrow columns. Only if unchanged TOAST values are missing from a row's last change, the tail is
   replayed row by row (`_replayed`): the value may come from any earlier change, or from a row with another key.

The rows before the tail (`base`) are the open versions of the keys that it touches; of all keys if it has a TRUNCATE.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.changes import Change, States, Values, change_of, fetch, key_places
from auditlake.audit.history_conditions import HERE, bounds_of, types_over_time
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.row_key import Key
from auditlake.audit.versions import history_texts, record, row_values, value_column
from auditlake.delta.sql import Bound
from auditlake.errors import Unsupported
from auditlake.lake.history import HistoryTable, type_of
from auditlake.lsn import Lsn
from auditlake.sql_names import standard_identifier
from auditlake.values.types import Conversion

LSN = "lsn"
"""Column of a state: the commit that wrote the row."""

_CASTS = {Conversion.INTEGER: "bigint", Conversion.TEXT: "varchar", Conversion.BOOLEAN: "boolean"}
_FEW_KEYS = 1000
_FEW_CHANGES = 20_000


@dataclass(frozen=True, slots=True)
class TailVersion:
    """A version that ends or begins in a tail; one without `begin` is open in the history.

    `begin` is the last change of its key in the transaction that it begins with; `end` has a change of the transaction
    that ends it, and by which operation.
    """

    key: Key
    values: Values | None
    begin: Change | None
    op: str | None
    end: tuple[Change, str] | None


class Tail:
    """The changes of a table with a key in (its position, `upto`]."""

    def __init__(self, reader: Reader, table: HistoryTable, upto: Lsn) -> None:
        self._reader = reader
        self._table = table
        self._span = Span(table.position, upto)
        self._key = [column.name for column in table.key]
        self.rows = fetch(reader, table.name, self._span).combine_chunks()
        self._lsn: npt.NDArray[np.int64] = self.rows["lsn"].to_numpy()
        self._truncates = np.flatnonzero(pc.equal(self.rows["op"], "truncate").to_numpy(zero_copy_only=False))

    @property
    def key_columns(self) -> list[str]:
        """The names of the key's columns in the tables that this class returns."""
        return [value_column(name) for name in self._key]

    @cached_property
    def effects(self) -> pa.Table:
        """The effects on keys, in order: key columns, `row` (number in `rows`), `dead` (no row has the key then)."""
        before, after = self._before_and_after
        number = pa.array(np.arange(self.rows.num_rows))
        op = self.rows["op"]
        is_update = pc.equal(op, "update")
        left = self._effect(before, number, self._moved, dead=True)
        gone = self._effect(before, number, pc.equal(op, "delete"), dead=True)
        there = self._effect(after, number, pc.or_(is_update, pc.equal(op, "insert")), dead=False)
        # A key change ends its old key first: under deferred constraints, rows may exchange their keys.
        return pa.concat_tables([left, gone, there]).sort_by([("row", "ascending"), ("dead", "descending")])

    @cached_property
    def _before_and_after(self) -> tuple[list[pa.Array], list[pa.Array]]:
        """The key of every change, before it and after it."""
        return self._keys("old", "new"), self._keys("new", "old")

    @cached_property
    def _moved(self) -> pa.ChunkedArray:
        """A mask of the updates that changed the key."""
        same = pa.array(np.ones(self.rows.num_rows, np.bool_))
        for one, other in zip(*self._before_and_after, strict=True):
            same = pc.and_(same, pc.fill_null(pc.equal(one, other), fill_value=True))
        return pc.and_(pc.equal(self.rows["op"], "update"), pc.invert(same))

    def _effect(self, keys: list[pa.Array], number: pa.Array, here: pa.ChunkedArray, *, dead: bool) -> pa.Table:
        columns = dict(zip(self.key_columns, keys, strict=True))
        table = pa.table({**columns, "row": number}).filter(here)
        return table.append_column("dead", pa.array(np.full(table.num_rows, dead)))

    def _keys(self, first: str, second: str) -> list[pa.Array]:
        places = key_places(self._table, self._reader.relations_of(self._table), self._key)
        found = []
        for index in range(len(self._key)):
            wanted = {number: where[index] for number, where in places.items()}
            found.append(pc.coalesce(self._elements(first, wanted), self._elements(second, wanted)))
        return found

    def _elements(self, side: str, places: dict[int, int], rows: pa.Table | None = None) -> pa.Array:
        """Return the text of one column in every row, at its position in the row's relation version."""
        of = self.rows if rows is None else rows
        relations = of["relation"].to_numpy()
        parts, numbers = [pa.array([], pa.string())], [np.array([], np.int64)]
        for relation, place in places.items():
            here = np.flatnonzero(relations == relation)
            lists = of[side].take(pa.array(here)).combine_chunks()
            parts.append(pc.list_element(lists, place))
            numbers.append(here)
        where = np.full(of.num_rows, -1, np.int64)
        order = np.concatenate(numbers)
        where[order] = np.arange(order.size)
        return pa.concat_arrays(parts).take(pa.array(where, mask=where < 0))

    def touched(self, after: Lsn) -> pa.Table | None:
        """Return the keys touched above `after`; None after a TRUNCATE, which touches every key."""
        first = int(np.searchsorted(self._lsn, after, side="right"))
        if (self._truncates >= first).any():
            return None
        here = self.effects.filter(pc.greater_equal(self.effects["row"], first))
        return here.select(self.key_columns).group_by(self.key_columns).aggregate([])

    @cached_property
    def base(self) -> pa.Table:
        """The open versions of the keys that the tail touches: value columns and `lsn`."""
        keys = self.touched(self._table.position)
        rows = self.history("_to_lsn is null", keys)
        return rows.select([name for name in rows.column_names if not name.startswith("_")])

    def history(self, condition: str, keys: pa.Table | None) -> pa.Table:
        """Read versions that match `condition` and have one of `keys` (None: any), as `history_texts`, with `lsn`."""
        if keys is None:
            versions = history_texts(self._reader, self._table, condition)
        else:
            files = self._reader.history(self._table).within(**self._bounds(keys))
            condition = f"{condition} and {self._among(keys)}"
            versions = history_texts(self._reader, self._table, condition, files=files, keys=keys)
            versions = versions.join(keys, keys=self.key_columns, join_type="left semi")
        return versions.append_column(LSN, versions["_from_lsn"])

    def _bounds(self, keys: pa.Table) -> dict[str, Bound]:
        few = keys.num_rows <= _FEW_KEYS
        return bounds_of(self._table, [tuple(row.values()) for row in keys.to_pylist()]) if few and len(keys) else {}

    def _among(self, keys: pa.Table) -> str:
        """Return a condition on `history` that all rows of `keys` fulfil: an equality of typed values, if possible."""
        typed = [
            (name, column, _CASTS.get(type_of(column).kind))
            for name, column in zip(keys.column_names, self._table.key, strict=True)
        ]
        same = [
            f"{HERE}.{standard_identifier(column.stored)} = try_cast({standard_identifier(name)} as {cast})"
            for name, column, cast in typed
            if cast is not None and len(types_over_time(self._table, column)) == 1
        ]
        return f"exists (select 1 from keys where {' and '.join(same)})" if same else "true"

    def changed(self) -> pa.Table:
        """Return the rows at the end of the tail of the keys that it touches: value columns and `lsn`.

        The open versions are read only for values that were not sent.
        """
        winners = self._winners(self.rows.num_rows)
        return self._values(winners.filter(pc.invert(winners["dead"])), self.rows.num_rows)

    def _winners(self, count: int) -> pa.Table:
        """Return the last effect on each key among the first `count` changes, of those after the last TRUNCATE."""
        cuts = self._truncates[self._truncates < count]
        first = int(cuts[-1]) + 1 if cuts.size else 0
        rows = self.effects["row"].to_numpy()
        begin, end = np.searchsorted(rows, [first, count])
        effects = self.effects.slice(int(begin), int(end - begin))
        effects = effects.append_column("n", pa.array(np.arange(effects.num_rows)))
        last = effects.group_by(self.key_columns).aggregate([("n", "max")])
        return effects.take(last["n_max"].combine_chunks()) if last.num_rows else effects.slice(0, 0)

    def _values(self, winners: pa.Table, count: int) -> pa.Table:
        """Return the rows after these effects, which are among the first `count` changes."""
        rows = self.rows.take(winners["row"].combine_chunks())
        columns: dict[str, pa.Array] = dict(
            zip(self.key_columns, winners.select(self.key_columns).columns, strict=True)
        )
        for name in self.names:
            if name not in self._key:
                columns[value_column(name)] = self._sent(name, rows)
        sent = pa.table({**columns, LSN: rows["lsn"]})
        unsent = pc.fill_null(pc.greater(pc.list_value_length(rows["unchanged"]), 0), fill_value=False)
        return self._filled(sent, np.flatnonzero(unsent.to_numpy(zero_copy_only=False)), count)

    def versions(self) -> list["TailVersion"]:
        """Fold the tail as apply does, row by row: the versions that end or begin in it, ordered by their end.

        Raises Unsupported if that takes too long: the tail is large, or has a TRUNCATE.
        """
        if self._truncates.size or self.rows.num_rows > _FEW_CHANGES:
            raise Unsupported(f"the tail of {self._table.name} is large or has a TRUNCATE", "Run auditlake apply.")
        states, names = self._replayed(0), tuple(self._key)
        standing = {key: TailVersion(key, None, None, None, None) for key in states.rows}
        ended = []
        changes = (change_of(row, self._reader) for row in self.rows.to_pylist())
        for _, transaction in groupby(changes, key=lambda change: change.lsn):
            births: dict[Key, str] = {}
            deaths: dict[Key, str] = {}
            last: dict[Key, Change] = {}
            for change in transaction:
                last |= dict.fromkeys((change.key_before(names), change.key_after(names)), change)
                record(states.apply(change), set(), births, deaths)
            for key, change in last.items():
                if key in standing:
                    ended.append(replace(standing.pop(key), end=(change, deaths.get(key, "update"))))
                if key in states.rows:
                    values = states.rows[key]
                    standing[key] = TailVersion(key, values, change, births.get(key, "update"), None)
        return [*ended, *(version for version in standing.values() if version.begin is not None)]

    @cached_property
    def names(self) -> list[str]:
        """The columns of the history and those added since."""
        of_history = (column.name for column in self._table.columns)
        return list(dict.fromkeys((*of_history, *self._reader.later(self._table.name))))

    def _sent(self, name: str, rows: pa.Table) -> pa.Array:
        """Return the texts of a column after changes; its missing value for changes from before it was added."""
        places = self._places(name)
        sent, later = self._elements("new", places, rows), self._reader.later(self._table.name).get(name)
        if later is None or later.missing is None:
            return sent
        has_it = pc.is_in(rows["relation"].combine_chunks(), pa.array(places, pa.int64()))
        return pc.if_else(has_it, sent, pa.scalar(later.missing))

    def _places(self, name: str) -> dict[int, int]:
        return {n: p[0] for n, p in key_places(self._table, self._reader.relations_of(self._table), [name]).items()}

    def _filled(self, rows: pa.Table, unsent: npt.NDArray[np.int64], count: int) -> pa.Table:
        """Replace the rows at `unsent` by their whole state, from a replay of the first `count` changes."""
        if not unsent.size:
            return rows
        states = self._replayed(count)
        keys = [tuple(row.values()) for row in rows.take(unsent).select(self.key_columns).to_pylist()]
        whole = [states.rows[key] for key in keys]
        sent = np.setdiff1d(np.arange(rows.num_rows), unsent)
        columns = {value_column(n): pa.array([row.get(n) for row in whole], pa.string()) for n in self.names}
        replayed = pa.table({**columns, LSN: rows[LSN].take(pa.array(unsent))})
        return pa.concat_tables([rows.take(pa.array(sent)), replayed.select(rows.column_names)])

    def _replayed(self, count: int) -> States:
        """Return the state of the touched keys after the first `count` changes."""
        key = tuple(self._key)
        states = States(key)
        for row in self.base.to_pylist():
            states.rows[tuple(row[column] for column in self.key_columns)] = row_values(row)
        for row in self.rows.slice(0, count).to_pylist():
            states.apply(change_of(row, self._reader))
        return states
