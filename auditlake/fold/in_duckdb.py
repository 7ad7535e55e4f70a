"""Fold of a tail in DuckDB and Arrow, without a JVM: the rules of `fold.net`, as in Spark.

1. DuckDB reads the changes, in the columns at the end of the tail.
2. Arrow types the key of each change before and after it (`fold.captured`). In a table without a key, DuckDB groups
   equal rows, and finds their open copies.
3. DuckDB nets the effects of a key per transaction (`fold.net`); the payload of an effect is the number of its change.
   A TRUNCATE needs the keys of all open versions.
4. Arrow types the values of the versions that begin, or of those that are asked for. A value that an UPDATE did not
   send, as unchanged TOAST, is the last one that was sent for the row, else that of the open version that had the row's
   first key. In an added column it is the missing value in older rows (`apply.tail_fold` has the rules).

Memory: the changes are held as text and typed, the result without its values.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.delta.log_reader import file_path
from auditlake.delta.row_groups import held_bytes
from auditlake.delta.sql import TableFiles, as_relation
from auditlake.fold.captured import AS_THEY_ARE, NEVER_SENT, Captured, sql_of_tuples
from auditlake.fold.chains import roots
from auditlake.fold.net import BEFORE, KIND, PLACE, Executor, FoldColumns, RowKind
from auditlake.fold.open_versions import TooLarge, key_of, may_have_key_of
from auditlake.lake.duckdb_rows import apart, quoted, raw_entry, same_key, sql_type
from auditlake.lake.history import PERIOD_COLUMNS, type_of
from auditlake.relation import Column
from auditlake.schema.evolution import Followed
from auditlake.sql_names import standard_literal
from auditlake.values.exact_text import arrow_type, outside, raw_map, typed_values
from auditlake.values.types import Conversion as TypeKind

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

_RAW = "_raw"
_CHANGES = "select lsn, ordinal, xid, time, op, {tuples} from ({changes})"
_BEFORE = f"""
{BEFORE}::bigint as lsn, -1::int as ordinal, null::bigint as xid, null::timestamptz as time, null::varchar as op,
false as born, false as died, 0::bigint as epoch
"""
_OPEN_KEYS = "select {key}, " + _BEFORE + " from ({rows}) h"
_OPEN_COPIES = (
    "select {row_id} as row_id, h._from_lsn as began_lsn, h._ordinal as began_ordinal, "
    + _BEFORE
    + " from ({rows}) h {join} {sought} w on {same}"
)
EQUAL_OTHERWISE = {TypeKind.FLOAT, TypeKind.ARRAY}
"""Kinds with different values that are equal: of -0 and 0, DuckDB returns either as the key of both."""
_NO_NUMBER = pa.scalar(None, pa.int64())


@dataclass(frozen=True, slots=True)
class ToFold:
    """A tail: its `changes` in any order or a query of them, the columns along it, and the files of versions before.

    `condition` is one on the open versions that all of its keys fulfil. `most_bytes` limits the open versions that are
    held; None is no limit. `wanted` is a condition on the periods of versions that begin in the tail: others may be
    left out. `only_open`: versions that end in the tail, and the ends of others, are not wanted. `row_condition`: of
    the rows of a table without a key, as lists `texts`, those that fulfil it are folded.
    """

    changes: str | pa.Table
    followed: Followed
    opened: TableFiles
    condition: str = "true"
    most_bytes: int | None = None
    wanted: str | None = None
    only_open: bool = False
    row_condition: str = "true"

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the changes."""
        return self.followed.folded


class Fold:
    """The fold of one tail.

    Raises ValueError and errors of Arrow and DuckDB if a value cannot be read, TooLarge if too many open versions end,
    or have values that were not sent.
    """

    def __init__(self, connection: "DuckDBPyConnection", tail: ToFold) -> None:
        self._connection, self._tail, self._columns = connection, tail, tail.columns
        self._key = key_of(tail.columns)
        self._names = tuple(f"{letter}{number}" for number in range(len(self._key)) for letter in ("k", "r"))
        changes = _with_epochs(self._read())
        is_truncate = pc.equal(changes["op"], "truncate")
        truncates = changes.filter(is_truncate).select([*PLACE, "epoch"])
        changes = changes.filter(pc.invert(is_truncate)) if truncates.num_rows else changes
        self._captured = Captured(changes, self._columns, _omitted(changes))
        self._may_move = pc.any(pc.and_(pc.equal(changes["op"], "update"), self._captured.had_old)).as_py() is True
        if truncates.num_rows:
            self._require_space(self._tail.opened)
        self.net = self._net(changes, truncates)
        """The net changes: `kind`, key (`k0`, `r0`, …), period, and `number` of the change with the values."""

    def rows(self, wanted: pa.Array | None = None, only: Container[str] | None = None) -> pa.Table:
        """Return the net changes, or those that a mask chooses, as rows of the history with KIND.

        A close has the key and the end of its version only. `only` are the stored names of the columns that are typed;
        the others are left out.
        """
        net = self.net if wanted is None else self.net.filter(wanted).combine_chunks()
        values, raws = dict[str, pa.Array](), dict[str, pa.Array]()
        for place, column in enumerate(self._columns):
            if only is not None and column.stored not in only:
                continue
            values[column.stored], raws[column.stored] = self._value(net, place, column)
        for column in self._tail.followed.physical:  # the table did not have the others within the tail
            if column.stored not in values and (only is None or column.stored in only):
                values[column.stored] = pa.nulls(net.num_rows, arrow_type(type_of(column)))
        period = {name: net[name] for name, _ in PERIOD_COLUMNS if name in net.column_names}
        rows = pa.table(values | period | {_RAW: raw_map(raws, net.num_rows), KIND: net["kind"]})
        return self._without_added(self._filled(rows, net, raws))

    def _read(self) -> pa.Table:
        """Return the changes of the tail in any order."""
        tail, changes = self._tail, self._tail.changes
        tuples = sql_of_tuples(tail.followed.layouts, tail.columns, tail.followed.added)
        if isinstance(changes, pa.Table):
            if tuples is AS_THEY_ARE:
                return changes
            changes = f"from {as_relation(self._connection, changes)}"
        query = _CHANGES.format(tuples=", ".join(tuples.values()), changes=changes)
        return self._connection.sql(query).to_arrow_table()

    def _net(self, changes: pa.Table, truncates: pa.Table) -> pa.Table:
        """Return the net changes; `f<place>` is the number of the last change that sent a value which some omit."""
        captured, form = self._captured, FoldColumns(Executor.DUCKDB, self._names, ("number",))
        number = pa.array(np.arange(changes.num_rows))
        given = {name: changes[name] for name in PLACE} | {"op": captured.op, "had_old": captured.had_old}
        given |= {"number": number, "epoch": changes["epoch"]}
        partly_sent = captured.partly_sent()  # raises if an INSERT omits a value
        if not truncates.num_rows and pc.all(pc.equal(captured.op, "insert")).as_py():
            return self._table(form.stage("inserted", self._registered(given | captured.keys_after())))
        form = replace(form, has_truncate=truncates.num_rows > 0)
        if not self._key:
            return self._net_of_copies(form, given, truncates)
        sent = {f"f{place}": pc.if_else(array, number, _NO_NUMBER) for place, array in partly_sent.items()}
        form = replace(form, sent=tuple(sent))
        changed = self._registered(given | sent | captured.keys_after() | captured.keys_before())
        effects = f"({form.effects(changed, may_move=self._may_move)})"
        if form.has_truncate:
            form, effects = self._truncated(form, f"{effects} union all by name ({self._open_keys()})", truncates)
        if form.sent:
            form, effects = self._with_last_sent(form, effects)
        return self._net_rows(form, effects)

    def _net_rows(self, form: FoldColumns, effects: str) -> pa.Table:
        if self._tail.only_open:
            return self._table(form.last_rows(effects))
        rows, wanted = form.net_rows(effects), self._tail.wanted
        return self._table(rows if wanted is None else f"from ({rows}) where kind = '{RowKind.CLOSE}' or ({wanted})")

    def _registered(self, columns: Mapping[str, pa.Array]) -> str:
        return as_relation(self._connection, pa.table(columns))

    def _table(self, query: str) -> pa.Table:
        return self._connection.sql(query).to_arrow_table().combine_chunks()

    def _truncated(self, form: FoldColumns, effects: str, truncates: pa.Table) -> tuple[FoldColumns, str]:
        """Return the effects with the deaths of every TRUNCATE; they are also of the versions that were open before."""
        ends = as_relation(self._connection, truncates.rename_columns([*PLACE, "truncate_epoch"]))
        form, effects = form.after_truncates(f"({effects})", ends)
        return form, f"({effects})"

    def _open_rows(self, opened: TableFiles) -> str:
        rows = files_in_shape(self._connection, opened, self._tail.followed)
        return f"{rows} where {self._tail.condition}"

    def _open_keys(self) -> str:
        """Return the keys of all open versions as effects."""
        parts = [
            f"h.{quoted(column)} as k{number}, {_raw_or_null(column)} as r{number}"
            for number, column in enumerate(self._key)
        ]
        return _OPEN_KEYS.format(key=", ".join(parts), rows=self._open_rows(self._tail.opened))

    def _with_last_sent(self, form: FoldColumns, effects: str) -> tuple[FoldColumns, str]:
        """Return the effects with the last sent values of their row, which may have moved from key to key."""
        form = replace(form, first_key=tuple(f"first_{name}" for name in form.key))
        if self._may_move:
            lives = as_relation(self._connection, self._table(form.stage("lives", effects)))
            moves = self._table(form.stage("moves", lives))
            form, effects = form.along_chains(lives, as_relation(self._connection, roots(moves)))
            effects = f"({effects})"
        form, effects = form.filled(effects)
        return form, f"({effects})"

    def _net_of_copies(self, form: FoldColumns, given: Mapping[str, pa.Array], truncates: pa.Table) -> pa.Table:
        """Return the net changes of a table without a key."""
        rows = pa.chunked_array([self._captured.rows_after(), self._captured.rows_before()]).combine_chunks()
        after, before = self._numbered(rows)
        form = replace(form, key=("row_id", "copy"), numbers_copies=True)
        changed = self._registered({**given, "a_row_id": after, "b_row_id": before})
        effects = f"(from ({form.effects(changed, may_move=True)}) where row_id is not null)"
        sought = rows.take(pc.unique(before).drop_null())
        opened = self._open_copies(sought, pc.unique(before).drop_null(), all_rows=form.has_truncate)
        effects = f"({form.stage('numbered', f'({effects} union all by name ({opened}))')})"
        if form.has_truncate:
            form, effects = self._truncated(form, effects, truncates)
        return self._net_rows(form, effects)

    def _numbered(self, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return a number for each row, the same for equal ones: the place of the first; NULL for one not to fold."""
        given = self._registered({"place": np.arange(len(rows)), "texts": rows})
        wanted = f"texts is not null and {self._tail.row_condition}"
        query = f"select place, min(place) over (partition by texts) as row_id from {given} where {wanted}"
        found = self._table(query)
        numbers = np.full(len(rows), -1, np.int64)
        numbers[found["place"].to_numpy()] = found["row_id"].to_numpy()
        after, before = np.split(numbers, 2)
        return pa.array(after, mask=after < 0), pa.array(before, mask=before < 0)

    def _open_copies(self, rows: pa.Array, row_ids: pa.Array, *, all_rows: bool) -> str:
        """Return the open copies of these rows as effects; `all_rows`: those of others, too, as distinct rows."""
        sought, same = {"row_id": row_ids}, list[str]()
        for place, column in enumerate(self._columns):
            texts, held = pc.list_element(rows, place), type_of(column)
            sought[f"c{place}"] = typed_values(texts, held)
            here = f"h.{quoted(column)}"
            same.append(f"{apart(column, here)} is not distinct from {apart(column, f'w.c{place}')}")
            if held.may_not_fit:
                sought[f"r{place}"] = outside(texts, held)
                same.append(f"{raw_entry(column)} is not distinct from w.r{place}")
        return _OPEN_COPIES.format(
            row_id="coalesce(w.row_id, -1 - row_number() over ())" if all_rows else "w.row_id",
            rows=self._open_rows(self._tail.opened),
            join="left join" if all_rows else "join",
            sought=self._registered(sought),
            same=" and ".join(same) or "true",  # of a table without columns
        )

    def _value(self, net: pa.Table, place: int, column: Column) -> tuple[pa.Array, pa.Array]:
        """Return the typed values of a column, and the texts of those that do not fit; NULL if they are not known."""
        held, number = type_of(column), self._key.index(column) if column.key else None
        of = net[f"f{place}" if f"f{place}" in net.column_names else "number"].combine_chunks()
        if number is None or held.kind in EQUAL_OTHERWISE:
            texts = self._captured.text(place).take(of)
            values, raws = typed_values(texts, held), outside(texts, held)
        if number is None:
            return values, raws
        key, raw = net[f"k{number}"].combine_chunks().cast(arrow_type(held)), net[f"r{number}"].combine_chunks()
        return (pc.if_else(pc.is_valid(of), values, key) if held.kind in EQUAL_OTHERWISE else key), raw

    def _filled(self, rows: pa.Table, net: pa.Table, raws: dict[str, pa.Array]) -> pa.Table:
        """Return the rows with the values that no change of their row sent: those of the version open before."""
        begins = pc.not_equal(rows[KIND], RowKind.CLOSE).to_numpy()
        sent = {place: net[f"f{place}"] for place in self._captured.omitted if f"f{place}" in net.column_names}
        unknown = {place: begins & pc.is_null(numbers).to_numpy() for place, numbers in sent.items()}
        unknown = {
            p: mask for p, mask in unknown.items() if mask.any() and self._columns[p].stored in rows.column_names
        }
        if not unknown:
            return rows
        wanted = np.flatnonzero(np.logical_or.reduce([*unknown.values()]))
        before, number = self._before(net.take(pa.array(wanted))), np.arange(rows.num_rows)
        for place, mask in unknown.items():
            name = self._columns[place].stored
            choice = pa.array(np.where(mask, rows.num_rows + np.searchsorted(wanted, number), number))
            known, texts = rows[name].combine_chunks(), pc.map_lookup(before[_RAW], name, "first")
            filled = pa.concat_arrays([known, before[name].cast(known.type)]).take(choice)
            rows = rows.set_column(rows.schema.get_field_index(name), name, filled)
            raws[name] = pa.concat_arrays([raws[name], texts]).take(choice)
        return rows.set_column(rows.schema.get_field_index(_RAW), _RAW, raw_map(raws, rows.num_rows))

    def _before(self, net: pa.Table) -> dict[str, pa.Array]:
        """Return the columns of the open versions that have the first keys of these net rows, in their order."""
        first = {f"k{number}": net[f"first_k{number}"] for number in range(len(self._key))}
        first |= {f"r{number}": net[f"first_r{number}"] for number in range(len(self._key))}
        keys = {column.stored: first[f"k{number}"] for number, column in enumerate(self._key)}
        opened = self._tail.opened.which(may_have_key_of(pa.table(keys), self._key))
        self._require_space(opened, net.num_rows)
        sought = self._registered(first | {"edge": pa.array(np.arange(net.num_rows))})
        rows, same = self._open_rows(opened), same_key(self._key, "w")
        met = self._table(f"select h.*, w.edge from ({rows}) h join {sought} w on {same} order by edge")
        if not np.array_equal(met["edge"].to_numpy(), np.arange(net.num_rows)):
            raise ValueError(NEVER_SENT)
        return {name: met[name].combine_chunks() for name in met.column_names}

    def _require_space(self, opened: TableFiles, rows: int | None = None) -> None:
        """Check that all rows of some files may be held, or a number of them."""
        if self._tail.most_bytes is None or not opened.files:
            return
        share = 1 if rows is None else rows / sum(file.rows for file in opened.files)
        if share * held_bytes(file_path(opened.place, file.add) for file in opened.files) > self._tail.most_bytes:
            raise TooLarge

    def _without_added(self, rows: pa.Table) -> pa.Table:
        """Return the rows with NULL in each added column in versions that were closed before it existed."""
        for addition in self._tail.followed.added:
            name, raw = addition.column.stored, rows[_RAW].combine_chunks()
            if addition.missing is None or name not in rows.column_names:  # without one, it is NULL there already
                continue
            gone = pc.fill_null(pc.less(rows["_to_lsn"], int(addition.since)), fill_value=False)
            if not pc.any(gone).as_py():
                continue
            value = rows[name].combine_chunks()
            kept = pc.if_else(gone, pa.scalar(None, value.type), value)
            rows = rows.set_column(rows.schema.get_field_index(name), name, kept)
            if type_of(addition.column).may_not_fit:
                rows = rows.set_column(rows.schema.get_field_index(_RAW), _RAW, _without_entry(raw, name, gone))
        return rows


def files_in_shape(connection: "DuckDBPyConnection", files: TableFiles, followed: Followed) -> str:
    """Return `in_shape` of the rows of files."""
    files.fetch()
    return in_shape(connection, files.sql(connection), files.types, followed)


def in_shape(connection: "DuckDBPyConnection", rows: str, names: Container[str], followed: Followed) -> str:
    """Return a query, without WHERE, of versions from before a tail in the columns at its end.

    `rows` is a query of versions in the columns `names`; others are NULL. Versions that did not end before a column was
    added have its missing value.
    """
    missing = {addition.column.stored: addition for addition in followed.added}
    cells, entries = list[str](), list[str]()
    for column in followed.physical:
        name, kind = quoted(column), sql_type(column)
        if (addition := missing.get(column.stored)) is None:
            cells.append(f"cast({name if column.stored in names else 'null'} as {kind}) as {name}")
            continue
        texts = pa.array([addition.missing], pa.string())
        had = f"(_to_lsn is null or _to_lsn >= {addition.since:d})" if "_to_lsn" in names else "true"
        value = as_relation(connection, pa.table({"x": typed_values(texts, type_of(column))}))
        cells.append(f"cast(case when {had} then (select x from {value}) end as {kind}) as {name}")
        if (text := outside(texts, type_of(column))[0].as_py()) is not None:
            entry = f"map([{standard_literal(column.stored)}], [{standard_literal(text)}])"
            entries.append(f"if({had}, {entry}, map())")
    raw = f"nullif(map_concat(coalesce({_RAW}, map()), {', '.join(entries)}), map())" if entries else _RAW
    for name, _ in PERIOD_COLUMNS:
        if name != "_part":
            cells.append(f"{raw} as {_RAW}" if name == _RAW else name if name in names else f"null as {name}")
    return f"select {', '.join(cells)} from ({rows})"


def _without_entry(raw: pa.Array, name: str, gone: pa.Array) -> pa.Array:
    """Return `_raw` without the entry of a column, in the rows that are marked."""
    rows = zip(raw.to_pylist(), gone.to_pylist(), strict=True)
    kept = [[pair for pair in each or () if not marked or pair[0] != name] or None for each, marked in rows]
    return pa.array(kept, raw.type)


def _omitted(changes: pa.Table) -> Sequence[int]:
    """Return the places of columns that some UPDATE omits as unchanged TOAST."""
    return sorted(pc.unique(changes["unchanged"].combine_chunks().flatten()).to_pylist())


def _raw_or_null(column: Column) -> str:
    return raw_entry(column) if type_of(column).may_not_fit else "null::varchar"


def _with_epochs(changes: pa.Table) -> pa.Table:
    """Add to every change the number of TRUNCATEs before it."""
    is_truncate = pc.equal(changes["op"], "truncate").to_numpy()
    epochs = np.zeros(changes.num_rows, np.int64)
    if is_truncate.any():
        in_order = np.lexsort((changes["ordinal"].to_numpy(), changes["lsn"].to_numpy()))
        epochs[in_order] = np.cumsum(is_truncate[in_order]) - is_truncate[in_order]
    return changes.append_column("epoch", pa.array(epochs))
