"""Fold of an ordinary tail in DuckDB and Arrow, without a JVM: the rules and the result of `fold`, the reference.

An ordinary tail is small, of a table with a key, and has neither a TRUNCATE nor a change of columns (`is_ordinary`).
Most tails are, and to start Spark for one takes many times as long as to fold it: 400,000 changes of TPC-B took 32.9 s
and 35 CPU-s from the start of `apply` in Spark; they take 2.2 s and 3.1 CPU-s (2026-11-23, bench/cold_follow.py). Spark
folds every other tail, and one that fails here because a value cannot be read or memory is short (`NotFolded`): only
Spark's errors say why a table is parked.

1. DuckDB reads the changes from the files of `changes`.
2. Arrow types the key of each change before and after it (`values.exact_text.typed_values`, which tests compare with
   `typed_values` of this package).
3. DuckDB splits key changes into a death and a birth, and nets the effects of a key per transaction (`_NET`).
4. Arrow types the values of the versions that begin. A value that an UPDATE did not send, as unchanged TOAST, is the
   last one that was sent for the key, else that of the open version. A tail in which a row may have moved from key to
   key meanwhile is left to Spark.

Memory: the changes are held as text and typed, bounded by `deletion_vector_writer.HELD_BYTES`; DuckDB has MEMORY_BYTES.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.apply import keys
from auditlake.apply.deletion_vector_writer import HELD_BYTES, Computed, TooLarge, mark, open_versions
from auditlake.apply.fold import KIND, Kind
from auditlake.apply.large_rows import has_large_rows
from auditlake.apply.tails import FOLDED_OPS, Tail
from auditlake.failpoints import After, reach
from auditlake.lake.duckdb_rows import VIRTUAL_COLUMNS, connect, parquet_files, places_of, register, same_key
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, type_of
from auditlake.lake.history_files import Files, find_files
from auditlake.relation import Column
from auditlake.sql_names import standard_identifier, standard_literal
from auditlake.values.exact_text import arrow_type, outside, raw_map, typed_values
from auditlake.values.types import Kind as TypeKind

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

MEMORY_BYTES = 512 << 20
_COMPARED_OTHERWISE = {TypeKind.FLOAT, TypeKind.ARRAY}
"""Kinds of keys that Spark and DuckDB need not compare alike: -0 and NaN."""
_RAW = "_raw"
_NEVER_SENT = "an unchanged value was never sent, or for another key"
_PLACE = ("lsn", "ordinal", "xid", "time")
_CHANGES = """
select lsn, ordinal, xid, time, op, "old", "new", unchanged from {files}
where lsn > {after} and lsn <= {upto} and relation in ({relations}) and op in ({ops})
"""
_NET = """
with effects as (
  select number, lsn, ordinal, xid, time, op, {after}, op = 'insert' or {moved} as born, false as died{sent}
    from {changes} where op <> 'delete'
  union all
  select number, lsn, ordinal, xid, time, op, {before}, false, true{unsent}
    from {changes} where op = 'delete' or {moved}
),
marked as (
  select *{last_sent}, lead(lsn) over by_key as following_lsn, first_value(born) over in_transaction as from_nothing,
         coalesce(last_value(case when born then op end ignore nulls) over in_transaction, 'update') as begin_op,
         coalesce(last_value(case when died then op end ignore nulls) over in_transaction, 'update') as end_op
    from effects
  window by_key as (partition by {key} order by lsn, ordinal),
         in_transaction as (partition by {key}, lsn order by ordinal)
),
net as (
  select *, lag(lsn) over by_transaction is null as is_first,
         lead({{'lsn': lsn, 'time': time, 'xid': xid, 'op': end_op}}) over by_transaction as until
    from marked where following_lsn is null or following_lsn <> lsn
  window by_transaction as (partition by {key} order by lsn)
),
rows as (
  select '{close}' as kind, null as number, {key}, lsn, ordinal, xid, time, begin_op,
         {{'lsn': lsn, 'time': time, 'xid': xid, 'op': end_op}} as until{unknown}
    from net where is_first and not from_nothing
  union all
  select case when is_first and from_nothing then '{birth}' else '{version}' end, number, {key}, lsn, ordinal, xid,
         time, begin_op, until{last}
    from net where not died
)
select kind, number, {key}, lsn as _from_lsn, until.lsn as _to_lsn, time as _from_time,
       until.time as _to_time, begin_op as _op, until.op as _end_op, xid as _xid, until.xid as _end_xid,
       ordinal as _ordinal, coalesce(strftime(until.time, '%Y-%m'), '{open}') as _part{last}
  from rows
"""
_INSERTED = """
select '{birth}' as kind, number, {after}, lsn as _from_lsn, null::bigint as _to_lsn, time as _from_time,
       null::timestamptz as _to_time, op as _op, null::varchar as _end_op, xid as _xid, null::bigint as _end_xid,
       ordinal as _ordinal, '{open}' as _part
  from {changes}
"""


def is_ordinary(tail: Tail) -> bool:
    """Return whether `merge_embedded` may fold this tail; one that is cut off or reshaped needs more than a fold."""
    shape, columns = tail.shape, tail.columns
    return (
        shape is not None
        and not (shape.has_truncate or tail.added or tail.is_reshaped or tail.is_cut)
        and tail.refusal is None
        and all(layout.is_plain and layout.width == len(columns) for layout in tail.followed.layouts.values())
        and bool(keys.key_of(columns))
        and not any(type_of(column).kind in _COMPARED_OTHERWISE for column in keys.key_of(columns))
        and VIRTUAL_COLUMNS.isdisjoint(column.stored.lower() for column in tail.followed.physical)
        and tail.held_bytes <= HELD_BYTES
        and not has_large_rows(tail)
    )


class NotFolded(Exception):
    """The tail was not folded here; nothing was written."""


def merge_embedded(tail: Tail) -> None:
    """Commit an ordinary tail to its history.

    Raises:
        NotFolded: if Spark has to fold it; nothing was written.
        CannotFold: if it contradicts the history; nothing was written.
        LakeConflict, Overtaken: as `mark`.
    """
    files = find_files(tail.table) if is_ordinary(tail) else None
    if files is None:
        raise NotFolded
    with closing(connect(MEMORY_BYTES)) as connection:
        opened = files.of_part(OPEN_PART)
        try:
            computed = _Fold(connection, tail, opened).computed()
            mark(opened, computed, tail.upto, inserts_only=tail.inserts_only)
        except TooLarge as exc:
            raise NotFolded from exc
    reach(After.TABLE_MERGED)


@contextmanager
def _not_folded() -> Iterator[None]:
    import duckdb  # noqa: PLC0415 - see above

    try:
        yield
    except (duckdb.Error, pa.ArrowInvalid, ValueError) as exc:
        raise NotFolded from exc


class _Fold:
    """The fold of one tail; `opened` are the files with the versions that were open before it."""

    def __init__(self, connection: "DuckDBPyConnection", tail: Tail, opened: Files) -> None:
        self._connection, self._tail, self._opened = connection, tail, opened
        self._columns = tail.columns
        self._key = keys.key_of(tail.columns)
        self._names = [f"{letter}{number}" for number in range(len(self._key)) for letter in ("k", "r")]
        self._omitted = sorted(tail.shape.unchanged) if tail.shape else []

    def computed(self) -> Computed:
        """Return the fold.

        Raises NotFolded, and TooLarge if too many open versions have values that were not sent.
        """
        with _not_folded():
            return Computed(self._rows(), self._columns, self._find_open)

    def _rows(self) -> pa.Table:
        changes = self._read()
        self._tuples = {name: changes[name].combine_chunks() for name in ("old", "new", "unchanged")}
        net = self._net(changes)
        values, raws = dict[str, pa.Array](), dict[str, pa.Array]()
        for place, column in enumerate(self._columns):
            values[column.stored], raws[column.stored] = self._value(net, place, column)
        for column in self._tail.followed.physical:  # the table did not have the others within the tail
            if column.stored not in values:
                values[column.stored] = pa.nulls(net.num_rows, arrow_type(type_of(column)))
        period = {name: net[name] for name, _ in PERIOD_COLUMNS if name != _RAW}
        rows = pa.table(values | period | {_RAW: raw_map(raws, net.num_rows), KIND: net["kind"]})
        return self._filled(rows, net, raws)

    def _read(self) -> pa.Table:
        """Return the changes of the tail in any order, with `number`."""
        tail = self._tail
        query = _CHANGES.format(
            files=parquet_files(self._connection, [file.path for file in tail.files], by_name=False),
            after=f"{tail.table.position:d}",
            upto=f"{tail.upto:d}",
            relations=", ".join(map(str, sorted(tail.relations))),
            ops=", ".join(map(standard_literal, FOLDED_OPS)),
        )
        changes = self._connection.sql(query).to_arrow_table()
        return changes.append_column("number", pa.array(np.arange(changes.num_rows)))

    def _net(self, changes: pa.Table) -> pa.Table:
        """Return the net changes: `kind`, key (`k0`, `r0`, …), period, and `number` of the change with the values.

        `n<place>` is the number of the last change that sent the value of a column that some change omits.
        """
        given = register(self._connection, pa.table(self._given(changes)))
        after, before = ([f"{side}{name}" for name in self._names] for side in ("a", "b"))
        moved = " or ".join(f"{one} is distinct from {other}" for one, other in zip(after, before, strict=True))
        query = (_INSERTED if self._tail.inserts_only else _NET).format(
            changes=given,
            after=_named(after, self._names),
            before=_named(before, self._names),
            key=", ".join(self._names),
            moved=f"(op = 'update' and had_old and ({moved}))",
            open=OPEN_PART,
            sent=self._each(", case when sent{0} then number end as c{0}"),
            unsent=self._each(", null"),
            last_sent=self._each(", last_value(c{0} ignore nulls) over by_key as n{0}"),
            unknown=self._each(", null as n{0}"),
            last=self._each(", n{0}"),
            **{kind.value: kind.value for kind in Kind},
        )
        return self._connection.sql(query).to_arrow_table().combine_chunks()

    def _given(self, changes: pa.Table) -> dict[str, pa.Array]:
        """Return place and operation of each change, its typed key after it and before it, and which values it sent."""
        op, had_old = changes["op"].combine_chunks(), pc.is_valid(self._tuples["old"])
        is_delete = pc.equal(op, "delete")
        given = {name: changes[name] for name in ("number", *_PLACE)} | {"op": op, "had_old": had_old}
        given |= self._typed_key("a", pc.invert(is_delete), self._text)
        given |= self._typed_key("b", pc.or_(is_delete, had_old), self._old_text)
        return given | {f"sent{place}": self._is_sent(place, op) for place in self._omitted}

    def _each(self, template: str) -> str:
        """Return SQL for the places of the columns that some change omits."""
        return "".join(template.format(place) for place in self._omitted)

    def _text(self, place: int) -> pa.Array:
        """Return the text of a column after each change: of REPLICA IDENTITY FULL, `old` has an unchanged value."""
        new = pc.list_element(self._tuples["new"], place)
        return pc.if_else(self._is_omitted(place), self._old_text(place), new) if place in self._omitted else new

    def _old_text(self, place: int) -> pa.Array:
        return pc.list_element(self._tuples["old"], place)

    def _is_omitted(self, place: int) -> pa.Array:
        unchanged = self._tuples["unchanged"]
        found = np.zeros(len(unchanged), np.bool_)
        flat = unchanged.flatten().to_numpy()
        found[pc.list_parent_indices(unchanged).to_numpy()[flat == place]] = True
        return pa.array(found)

    def _is_sent(self, place: int, op: pa.Array) -> pa.Array:
        """Return whether each change has the value of a column; a value stored out of line is never NULL."""
        unsent = pc.and_(self._is_omitted(place), pc.is_null(self._old_text(place)))
        moves = self._tail.shape is not None and self._tail.shape.has_key_change
        if pc.any(pc.and_(unsent, pc.or_(pc.equal(op, "insert"), moves))).as_py():
            raise ValueError(_NEVER_SENT)
        return pc.invert(unsent)

    def _typed_key(self, side: str, had: pa.Array, text: Callable[[int], pa.Array]) -> dict[str, pa.Array]:
        """Return the typed key where there is one, and the text of values that their type cannot represent."""
        typed = dict[str, pa.Array]()
        places = [place for place, column in enumerate(self._columns) if column.key]
        for number, place in enumerate(places):
            texts, held = pc.if_else(had, text(place), pa.scalar(None, pa.string())), type_of(self._columns[place])
            if pc.any(pc.and_(had, pc.is_null(texts))).as_py():
                raise ValueError("a change has no value for a key column")
            typed |= {f"{side}k{number}": typed_values(texts, held), f"{side}r{number}": outside(texts, held)}
        return typed

    def _value(self, net: pa.Table, place: int, column: Column) -> tuple[pa.Array, pa.Array]:
        """Return the typed values of a column, and the texts of those that do not fit; NULL if they are not known."""
        held = type_of(column)
        if column.key:
            number = self._key.index(column)
            return net[f"k{number}"].combine_chunks().cast(arrow_type(held)), net[f"r{number}"].combine_chunks()
        of = f"n{place}" if place in self._omitted else "number"
        texts = self._text(place).take(net[of].combine_chunks())
        return typed_values(texts, held), outside(texts, held)

    def _filled(self, rows: pa.Table, net: pa.Table, raws: dict[str, pa.Array]) -> pa.Table:
        """Return the rows with the values that no change of their key sent: those of the open version."""
        begins = pc.not_equal(rows[KIND], Kind.CLOSE).to_numpy()
        unknown = {place: begins & pc.is_null(net[f"n{place}"]).to_numpy() for place in self._omitted}
        unknown = {place: mask for place, mask in unknown.items() if mask.any()}
        if not unknown:
            return rows
        wanted = np.flatnonzero(np.logical_or.reduce([*unknown.values()]))
        before, number = self._before(rows.take(pa.array(wanted))), np.arange(rows.num_rows)
        for place, mask in unknown.items():
            name = self._columns[place].stored
            choice = pa.array(np.where(mask, rows.num_rows + np.searchsorted(wanted, number), number))
            known, texts = rows[name].combine_chunks(), pc.map_lookup(before[_RAW], name, "first")
            filled = pa.concat_arrays([known, before[name].cast(known.type)]).take(choice)
            rows = rows.set_column(rows.schema.get_field_index(name), name, filled)
            raws[name] = pa.concat_arrays([raws[name], texts]).take(choice)
        return rows.set_column(rows.schema.get_field_index(_RAW), _RAW, raw_map(raws, rows.num_rows))

    def _before(self, rows: pa.Table) -> dict[str, pa.Array]:
        """Return the columns of the open versions that have the keys of these rows, in their order."""
        met = open_versions(self._opened, rows, self._columns, self._find_open)
        if met is None:
            raise ValueError(_NEVER_SENT)
        edges = pc.struct_field(met["_part"], "edge")
        if not np.array_equal(np.sort(edges.to_numpy()), np.arange(rows.num_rows)):
            raise ValueError(_NEVER_SENT)
        met = met.take(pc.sort_indices(edges))
        return {name: met[name].combine_chunks() for name in met.column_names}

    def _find_open(self, files: Files, edges: pa.Table) -> pa.Table:
        """Return the rows of some files with the key of an edge, as `Computed` says."""
        sought = {"edge": pa.array(np.arange(edges.num_rows, dtype=np.int32))}
        for number, column in enumerate(self._key):
            sought[f"k{number}"] = edges[column.stored]
            sought[f"r{number}"] = pc.map_lookup(edges[_RAW], column.stored, "first")
        # Delta's writers put `_part` into the files, too; ours do not.
        own = [name for name, _ in PERIOD_COLUMNS if name != "_part"]
        names = [*(column.stored for column in files.table.columns), *own]
        shown = ", ".join(f"h.{standard_identifier(name)}" for name in names)
        with _not_folded():
            wanted = register(self._connection, pa.table(sought))
            met = self._connection.sql(
                f"select {shown}, h.file_index, h.file_row_number, w.edge"
                f" from ({places_of(self._connection, files)}) h join {wanted} w on {same_key(self._key, 'w')}"
            ).to_arrow_table()
        *values, number, row, edge = (column.combine_chunks() for column in met.columns)
        file = pa.array(list(files.by_name), pa.string()).take(number)
        part = pa.StructArray.from_arrays([file, row, edge], names=["file", "row", "edge"])
        return pa.table({**dict(zip(names, values, strict=True)), "_part": part})


def _named(columns: Sequence[str], names: Sequence[str]) -> str:
    return ", ".join(f"{column} as {name}" for column, name in zip(columns, names, strict=True))
