"""Versions with PostgreSQL's text of every value: of a history as an Arrow table, or of few keys as objects.

`versions_of` returns every version of some keys as of a moment, from the overlay of history and tail (`audit.overlay`).
A version that ends after the moment is open as of it. `KeyReads` has all reads of the history of a row (`row_history`),
which finds the next key only in the versions of the last one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.changes import RowChange, Values, change_of, changes_of, in_changes
from auditlake.audit.columns_over_time import Later
from auditlake.audit.history_conditions import HERE, bounds_of, in_history
from auditlake.audit.lake_reader import Reader, Span, in_lsns
from auditlake.audit.overlay import Overlay, overlaid
from auditlake.audit.row_key import Key
from auditlake.delta.sql import Queried, select
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.relation import Column
from auditlake.sql_names import standard_identifier
from auditlake.values.exact_text import stored_texts

_PERIOD = (
    "_from_lsn, _to_lsn, epoch_us(_from_time) as _from_us, epoch_us(_to_time) as _to_us, _op, _end_op, _xid, _end_xid"
)
PERIOD = ("_from_lsn", "_to_lsn", "_from_us", "_to_us", "_op", "_end_op", "_xid", "_end_xid")


@dataclass(frozen=True, slots=True)
class CommitMark:
    """A commit that began or ended a version, or added a column, and its operation; `time_us` is None if not known."""

    lsn: Lsn
    time_us: int | None
    op: str
    xid: int | None


@dataclass(frozen=True, slots=True)
class Version:
    """One state of one key; `end` is None if it is open."""

    key: Key
    values: Values
    begin: CommitMark
    end: CommitMark | None


_NOT_KEPT = "(op <> 'update' or \"old\" is not null)"
_VALUE = "v:"


def value_column(name: str) -> str:
    """Return the name of a source column in `history_texts`; the prefix keeps it apart from the other columns."""
    return _VALUE + name


def row_values(row: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the source's columns of a row of `history_texts`, by their own names."""
    return {name.removeprefix(_VALUE): value for name, value in row.items() if name.startswith(_VALUE)}


def history_texts(
    reader: Reader,
    table: HistoryTable,
    condition: str,
    columns: Sequence[str] | None = None,
    files: Queried | None = None,
) -> pa.Table:
    """Read the history rows that match `condition`: texts of the source's columns, or those named, and PERIOD.

    `condition` is SQL on `history` under the alias HERE. `files` are those of the history that may have such rows, by
    default all.
    """
    chosen = [column for column in table.columns if columns is None or column.name in columns]
    names = "".join(f"{standard_identifier(column.stored)} as c{n}, " for n, column in enumerate(chosen))
    sql = f"select {names}_raw, {_PERIOD} from history {HERE} where {condition}"
    rows = select(sql, history=files or reader.history(table)).combine_chunks()
    texts = texts_by_own_name(
        reader, table, rows["_from_lsn"], [(c, _texts(c, rows[f"c{n}"], rows["_raw"])) for n, c in enumerate(chosen)]
    )
    for name, later in reader.later(table.name).items():
        if columns is None or name in columns:
            texts[name] = _of_later(table, name, later, (texts.get(name), rows["_to_lsn"]))
    return pa.table({**{value_column(n): each for n, each in texts.items()}, **{name: rows[name] for name in PERIOD}})


def texts_by_own_name(
    reader: Reader, table: HistoryTable, from_lsns: pa.ChunkedArray, texts: Sequence[tuple[Column, pa.ChunkedArray]]
) -> dict[str, pa.ChunkedArray]:
    """Return the texts of versions by the own names of columns, given those of physical columns.

    Each version has the value of the physical column that the table had when the version began. No version that is not
    NULL in a column outlives a rewrite of that column: the next snapshot ends it.
    """
    begins, found = reader.shapes_of(table).begins, dict[str, pa.ChunkedArray]()
    for column, values in sorted(texts, key=lambda pair: begins[pair[0].stored]):
        earlier = found.get(column.name)
        begun = None if earlier is None else pc.greater_equal(from_lsns, int(begins[column.stored]))
        found[column.name] = values if begun is None else pc.if_else(begun, values, earlier)
    return {column.name: found[column.name] for column, _ in texts}


def _of_later(
    table: HistoryTable, name: str, later: Later, versions: tuple[pa.ChunkedArray | None, pa.ChunkedArray]
) -> pa.ChunkedArray:
    """Return the texts of an added column; its missing value in rows that do not have it in the history."""
    texts, to_lsns = versions
    missing = pa.chunked_array([pa.array([later.missing] * len(to_lsns), pa.string())])
    if texts is None or not any(c.name == name and (c.since or 0) <= table.position for c in table.columns):
        return missing
    return pc.if_else(pc.fill_null(pc.less(to_lsns, later.since), fill_value=False), missing, texts)


def _texts(column: Column, values: pa.ChunkedArray, raw: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([stored_texts(column, values.combine_chunks(), raw.combine_chunks())])


def versions_of(reader: Reader, table: HistoryTable, keys: Iterable[Key], upto: Lsn) -> list[Version]:
    """Return every version of these keys that began up to `upto`, ordered by its beginning."""
    wanted = list(keys)
    overlay = overlaid(reader, table, upto, wanted)
    found = [version for key in wanted for version in _of_key(reader, overlay, key, upto)]
    return sorted(found, key=lambda version: version.begin.lsn)


def _of_key(reader: Reader, overlay: Overlay, key: Key, upto: Lsn) -> Iterator[Version]:
    table = overlay.table
    files = overlay.within(_from_lsn=(None, upto), **bounds_of(table, [key]))
    rows = history_texts(reader, table, f"({in_history(table, key)}) and _from_lsn <= {upto:d}", files=files)
    for version in versions_from(table, rows):
        if version.key == key:
            yield version if version.end is None or version.end.lsn <= upto else replace(version, end=None)


def versions_from(table: HistoryTable, rows: pa.Table) -> Iterator[Version]:
    """Convert the rows of `history_texts`."""
    for row in rows.to_pylist():
        values = row_values(row)
        begin = CommitMark(Lsn(row["_from_lsn"]), row["_from_us"], row["_op"], row["_xid"])
        end = (
            None
            if row["_to_lsn"] is None
            else CommitMark(Lsn(row["_to_lsn"]), row["_to_us"], row["_end_op"], row["_end_xid"])
        )
        yield Version(tuple(str(values[column.name]) for column in table.key), values, begin, end)


class KeyReads:
    """Reads of a table's keys as of one moment: their versions, and the changes that begin or end them. All are cached.

    From `changes` only these operations are read, and only at the commits where versions begin or end; those of a tail
    have been read for its overlay.
    """

    def __init__(self, reader: Reader, table: HistoryTable, upto: Lsn) -> None:
        self._reader = reader
        self._table = table
        self._names = tuple(column.name for column in table.key)
        self._upto = upto
        self._overlays: dict[Key, Overlay] = {}
        self._versions: dict[Key, list[Version]] = {}
        self._turns: dict[Key, dict[int, list[RowChange]]] = {}

    def versions(self, key: Key) -> list[Version]:
        """Return every version of a key, oldest first."""
        if key not in self._versions:
            found = _of_key(self._reader, self._overlay(key), key, self._upto)
            self._versions[key] = sorted(found, key=lambda version: version.begin.lsn)
        return self._versions[key]

    def _overlay(self, key: Key) -> Overlay:
        if key not in self._overlays:
            found = overlaid(self._reader, self._table, self._upto, [key])
            self._overlays |= dict.fromkeys((key, *found.keys), found)
        return self._overlays[key]

    def turns(self, key: Key, lsn: Lsn) -> list[RowChange]:
        """Return the changes that begin or end a key in one transaction."""
        turns = self._turns.setdefault(key, {})
        if lsn not in turns:
            marks = [mark for v in self.versions(key) for mark in (v.begin, v.end) if mark and mark.op != "snapshot"]
            lsns = {lsn, *(mark.lsn for mark in marks)}
            turns |= {each: [] for each in lsns}
            for change in chain(self._applied_turns(key, lsns), self._turns_in_tail(key, lsns)):
                turns.setdefault(change.lsn, []).append(change)  # of many LSNs a range is read
        return turns[lsn]

    def _applied_turns(self, key: Key, lsns: set[Lsn]) -> Iterable[RowChange]:
        applied = [int(lsn) for lsn in lsns if lsn <= self._table.position]
        if not applied:
            return ()
        this = in_changes(self._table, self._reader.relations_of(self._table), [key])
        condition = f"{in_lsns(applied)} and {_NOT_KEPT} and (op = 'truncate' or {this})"
        span = Span(Lsn(min(applied) - 1), Lsn(max(applied)))
        return changes_of(self._reader, self._table.name, span, condition)

    def _turns_in_tail(self, key: Key, lsns: set[Lsn]) -> Iterator[RowChange]:
        changes = self._overlay(key).changes
        if changes is None:
            return
        of_lsns = pc.is_in(changes["lsn"], pa.array([int(lsn) for lsn in lsns]))
        turns = changes.filter(
            pc.and_(of_lsns, pc.or_(pc.not_equal(changes["op"], "update"), pc.is_valid(changes["old"])))
        )
        for row in turns.sort_by([("lsn", "ascending"), ("ordinal", "ascending")]).to_pylist():
            change = change_of(row, self._reader)
            if change.op == "truncate" or key in {change.key_before(self._names), change.key_after(self._names)}:
                yield change
