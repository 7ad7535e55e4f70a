"""Fold of a tail in DuckDB and Arrow, without a JVM: the rules of `fold.net`, as in Spark.

Most tails fit into memory (`is_ordinary`), and to start Spark for one takes many times as long as to fold it: 400,000
changes of TPC-B took 32.9 s and 35 CPU-s from the start of `apply` in Spark; they take 2.2 s and 3.1 CPU-s (2026-11-23,
bench/cold_follow.py). Spark folds every other tail, and one that fails here because a value cannot be read or memory is
short (`NotFolded`): only Spark's errors say why a table is parked.

1. DuckDB reads the changes from the files of `changes`, in the columns at the end of the tail.
2. Arrow types the key of each change before and after it (`fold.captured`). In a table without a key, DuckDB groups
   equal rows, and finds their open copies.
3. DuckDB nets the effects of a key per transaction (`fold.net`); the payload of an effect is the number of its change.
   A TRUNCATE needs the keys of all open versions.
4. Arrow types the values of the versions that begin. A value that an UPDATE did not send, as unchanged TOAST, is the
   last one that was sent for the row, else that of the open version that had the row's first key.

Memory: the changes are held as text and typed, bounded by `deletion_vector_writer.HELD_BYTES`, as are the versions that
a TRUNCATE closes; DuckDB has MEMORY_BYTES.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from auditlake.apply import keys
from auditlake.apply.deletion_vector_writer import HELD_BYTES, Computed, TooLarge, mark, open_versions
from auditlake.apply.large_rows import has_large_rows
from auditlake.apply.merge import reshape, reshaping
from auditlake.apply.tails import FOLDED_OPS, Tail, TailShape
from auditlake.delta.row_groups import held_bytes
from auditlake.delta.sql import VIRTUAL_COLUMNS, connect, parquet_files, register
from auditlake.failpoints import After, reach
from auditlake.fold.captured import NEVER_SENT, Captured, sql_of_tuples
from auditlake.fold.chains import roots
from auditlake.fold.net import BEFORE, KIND, PLACE, Dialect, FoldColumns, RowKind
from auditlake.lake.duckdb_rows import (
    apart,
    places_of,
    quoted,
    raw_entry,
    rows_of,
    same_key,
)
from auditlake.lake.history import OPEN_PART, PERIOD_COLUMNS, type_of
from auditlake.lake.history_files import Files, find_files
from auditlake.relation import Column
from auditlake.sql_names import standard_identifier, standard_literal
from auditlake.values.exact_text import arrow_type, outside, raw_map, typed_values
from auditlake.values.types import Conversion as TypeKind

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

MEMORY_BYTES = 512 << 20
_RAW = "_raw"
_CHANGES = """
select lsn, ordinal, xid, time, op, {tuples} from {files}
where lsn > {after} and lsn <= {upto} and relation in ({relations}) and op in ({ops})
"""
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
_EQUAL_OTHERWISE = {TypeKind.FLOAT, TypeKind.ARRAY}
"""Kinds with different values that are equal: of -0 and 0, DuckDB returns either as the key of both."""
_NO_NUMBER = pa.scalar(None, pa.int64())


def is_ordinary(tail: Tail) -> bool:
    """Return whether `merge_embedded` may fold this tail: it fits into memory, and fills in no older rows."""
    return _obstacle(tail) is None


def _obstacle(tail: Tail) -> str | None:
    """Return why a tail is not folded here; None if it is."""
    if any(addition.missing is not None for addition in tail.added):
        return "a new column has a value in older rows"
    if any(column.key for column in tail.lacking):
        return "a new column is part of the key"
    if not VIRTUAL_COLUMNS.isdisjoint(column.stored.lower() for column in tail.followed.physical):
        return "DuckDB reserves the name of a column"
    if tail.held_bytes > HELD_BYTES:
        return f"a transaction needs {tail.held_bytes >> 20:,} MB, the limit is {HELD_BYTES >> 20} MB"
    return "it has very large rows" if has_large_rows(tail) else None


class NotFolded(Exception):
    """The tail was not folded here, for this `reason`; nothing was written."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


def merge_embedded(tail: Tail) -> None:
    """Commit an ordinary tail to its history; one without changes moves only the position.

    Raises:
        NotFolded: if Spark has to fold it; nothing was written.
        CannotFold: if it contradicts the history; nothing was written.
        LakeConflict, Overtaken: as `mark`.
    """
    if tail.shape is None:
        if tail.is_reshaped:
            reshape(tail)
            reach(After.TABLE_MERGED)
        return
    if not is_ordinary(tail):
        raise NotFolded(_obstacle(tail) or "")
    if (files := find_files(tail.table)) is None:
        raise NotFolded("another program has given the history table features")
    with closing(connect(MEMORY_BYTES)) as connection:
        opened = files.of_part(OPEN_PART)
        try:
            computed = _Fold(connection, tail, tail.shape, opened).computed()
            mark(opened, computed, tail.upto, inserts_only=tail.inserts_only, reshaping=reshaping(tail))
        except TooLarge as exc:
            raise NotFolded(f"the versions that it ends need more than {HELD_BYTES >> 20} MB") from exc
    reach(After.TABLE_MERGED)


@contextmanager
def _not_folded() -> Iterator[None]:
    import duckdb  # noqa: PLC0415 - see above

    try:
        yield
    except (duckdb.Error, pa.ArrowInvalid, ValueError) as exc:  # whose text may quote a value
        raise NotFolded(f"a value cannot be read, or memory is short ({type(exc).__name__})") from exc


class _Fold:
    """The fold of one tail; `opened` are the files with the versions that were open before it."""

    def __init__(self, connection: "DuckDBPyConnection", tail: Tail, shape: TailShape, opened: Files) -> None:
        self._connection, self._tail, self._shape, self._opened = connection, tail, shape, opened
        self._columns = tail.columns
        self._key = keys.key_of(tail.columns)
        self._names = tuple(f"{letter}{number}" for number in range(len(self._key)) for letter in ("k", "r"))

    def computed(self) -> Computed:
        """Return the fold.

        Raises NotFolded, and TooLarge if too many open versions end, or have values that were not sent.
        """
        if self._shape.has_truncate and held_bytes(self._opened.paths) > HELD_BYTES:
            raise TooLarge
        with _not_folded():
            return Computed(self._rows(), self._columns, self._find_open)

    def _rows(self) -> pa.Table:
        changes = _with_epochs(self._read())
        is_truncate = pc.equal(changes["op"], "truncate")
        truncates = changes.filter(is_truncate).select([*PLACE, "epoch"])
        changes = changes.filter(pc.invert(is_truncate)) if truncates.num_rows else changes
        self._captured = Captured(changes, self._columns, sorted(self._shape.unchanged))
        net = self._net(changes, truncates)
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
        """Return the changes of the tail in any order."""
        tail = self._tail
        tuples = sql_of_tuples(tail.followed.layouts, tail.columns, tail.added)
        query = _CHANGES.format(
            tuples=", ".join(tuples.values()),
            files=parquet_files(self._connection, [file.path for file in tail.files], by_name=False),
            after=f"{tail.table.position:d}",
            upto=f"{tail.upto:d}",
            relations=", ".join(map(str, sorted(tail.relations))),
            ops=", ".join(map(standard_literal, FOLDED_OPS)),
        )
        return self._connection.sql(query).to_arrow_table()

    def _net(self, changes: pa.Table, truncates: pa.Table) -> pa.Table:
        """Return the net changes: `kind`, key (`k0`, `r0`, …), period, and `number` of the change with the values.

        `f<place>` is the number of the last change that sent the value of a column that some change omits.
        """
        captured, form = self._captured, FoldColumns(Dialect.DUCKDB, self._names, ("number",))
        number = pa.array(np.arange(changes.num_rows))
        given = {name: changes[name] for name in PLACE} | {"op": captured.op, "had_old": captured.had_old}
        given |= {"number": number, "epoch": changes["epoch"]}
        if self._tail.inserts_only:
            return self._table(form.stage("inserted", self._registered(given | captured.keys_after())))
        form = replace(form, has_truncate=truncates.num_rows > 0)
        if not self._key:
            return self._net_of_copies(form, given, truncates)
        sent = {f"f{place}": pc.if_else(array, number, _NO_NUMBER) for place, array in captured.partly_sent().items()}
        form = replace(form, sent=tuple(sent))
        changed = self._registered(given | sent | captured.keys_after() | captured.keys_before())
        effects = f"({form.effects(changed, may_move=self._shape.has_key_change)})"
        if form.has_truncate:
            form, effects = self._truncated(form, f"{effects} union all by name ({self._open_keys()})", truncates)
        if form.sent:
            form, effects = self._with_last_sent(form, effects)
        return self._table(form.net_rows(effects))

    def _registered(self, columns: Mapping[str, pa.Array]) -> str:
        return register(self._connection, pa.table(columns))

    def _table(self, query: str) -> pa.Table:
        return self._connection.sql(query).to_arrow_table().combine_chunks()

    def _truncated(self, form: FoldColumns, effects: str, truncates: pa.Table) -> tuple[FoldColumns, str]:
        """Return the effects with the deaths of every TRUNCATE; they are also of the versions that were open before."""
        ends = register(self._connection, truncates.rename_columns([*PLACE, "truncate_epoch"]))
        form, effects = form.after_truncates(f"({effects})", ends)
        return form, f"({effects})"

    def _open_keys(self) -> str:
        """Return the keys of all open versions as effects."""
        parts = [
            f"h.{quoted(column)} as k{number}, {_raw_or_null(column)} as r{number}"
            for number, column in enumerate(self._key)
        ]
        shown = [*map(quoted, self._key), _RAW]
        return _OPEN_KEYS.format(key=", ".join(parts), rows=rows_of(self._connection, self._opened, shown, None))

    def _with_last_sent(self, form: FoldColumns, effects: str) -> tuple[FoldColumns, str]:
        """Return the effects with the last sent values of their row, which may have moved from key to key."""
        form = replace(form, first_key=tuple(f"first_{name}" for name in form.key))
        if self._shape.has_key_change:
            self._connection.execute(f"create temp table lives as {form.stage('lives', effects)}")
            moves = self._table(form.stage("moves", "lives"))
            form, effects = form.along_chains("lives", register(self._connection, roots(moves)))
            effects = f"({effects})"
        form, effects = form.filled(effects)
        return form, f"({effects})"

    def _net_of_copies(self, form: FoldColumns, given: Mapping[str, pa.Array], truncates: pa.Table) -> pa.Table:
        """Return the net changes of a table without a key."""
        rows = pa.chunked_array([self._captured.rows_after(), self._captured.rows_before()]).combine_chunks()
        after, before = self._numbered(rows)
        form = replace(form, key=("row_id", "copy"), numbers_copies=True)
        changed = self._registered({**given, "a_row_id": after, "b_row_id": before})
        effects = f"({form.effects(changed, may_move=True)})"
        sought = rows.take(pc.unique(before).drop_null())
        opened = self._open_copies(sought, pc.unique(before).drop_null(), all_rows=form.has_truncate)
        effects = f"({form.stage('numbered', f'({effects} union all by name ({opened}))')})"
        if form.has_truncate:
            form, effects = self._truncated(form, effects, truncates)
        return self._table(form.net_rows(effects))

    def _numbered(self, rows: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Return a number for each row, the same for equal ones: the place of the first of them; NULL for no row."""
        given = self._registered({"place": np.arange(len(rows)), "texts": rows})
        query = f"select place, min(place) over (partition by texts) as row_id from {given} where texts is not null"
        found = self._table(query)
        numbers = np.full(len(rows), -1, np.int64)
        numbers[found["place"].to_numpy()] = found["row_id"].to_numpy()
        after, before = np.split(numbers, 2)
        return pa.array(after, mask=after < 0), pa.array(before, mask=before < 0)

    def _open_copies(self, rows: pa.Array, row_ids: pa.Array, *, all_rows: bool) -> str:
        """Return the open copies of these rows as effects; `all_rows`: those of others, too, as distinct rows."""
        sought, same = {"row_id": row_ids}, list[str]()
        stored = {column.stored for column in self._opened.table.columns}
        for place, column in enumerate(self._columns):
            texts, held = pc.list_element(rows, place), type_of(column)
            sought[f"c{place}"] = typed_values(texts, held)
            here = f"h.{quoted(column)}" if column.stored in stored else "null"
            same.append(f"{apart(column, here)} is not distinct from {apart(column, f'w.c{place}')}")
            if held.may_not_fit:
                sought[f"r{place}"] = outside(texts, held)
                same.append(f"{raw_entry(column)} is not distinct from w.r{place}")
        shown = [quoted(column) for column in self._columns if column.stored in stored]
        opened = rows_of(self._connection, self._opened, [*shown, "_from_lsn", "_ordinal", _RAW], None)
        return _OPEN_COPIES.format(
            row_id="coalesce(w.row_id, -1 - row_number() over ())" if all_rows else "w.row_id",
            rows=opened,
            join="left join" if all_rows else "join",
            sought=self._registered(sought),
            same=" and ".join(same),
        )

    def _value(self, net: pa.Table, place: int, column: Column) -> tuple[pa.Array, pa.Array]:
        """Return the typed values of a column, and the texts of those that do not fit; NULL if they are not known."""
        held, number = type_of(column), self._key.index(column) if column.key else None
        of = net[f"f{place}" if f"f{place}" in net.column_names else "number"].combine_chunks()
        if number is None or held.kind in _EQUAL_OTHERWISE:
            texts = self._captured.text(place).take(of)
            values, raws = typed_values(texts, held), outside(texts, held)
        if number is None:
            return values, raws
        key, raw = net[f"k{number}"].combine_chunks().cast(arrow_type(held)), net[f"r{number}"].combine_chunks()
        return (pc.if_else(pc.is_valid(of), values, key) if held.kind in _EQUAL_OTHERWISE else key), raw

    def _filled(self, rows: pa.Table, net: pa.Table, raws: dict[str, pa.Array]) -> pa.Table:
        """Return the rows with the values that no change of their row sent: those of the version open before."""
        begins = pc.not_equal(rows[KIND], RowKind.CLOSE).to_numpy()
        sent = {place: net[f"f{place}"] for place in self._captured.omitted if f"f{place}" in net.column_names}
        unknown = {place: begins & pc.is_null(numbers).to_numpy() for place, numbers in sent.items()}
        unknown = {place: mask for place, mask in unknown.items() if mask.any()}
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
        first = {column.stored: net[f"first_k{number}"] for number, column in enumerate(self._key)}
        raws = {column.stored: net[f"first_r{number}"] for number, column in enumerate(self._key)}
        sought = pa.table(first | {_RAW: raw_map(raws, net.num_rows)})
        met = open_versions(self._opened, sought, self._columns, self._find_open)
        if met is None:
            raise ValueError(NEVER_SENT)
        edges = pc.struct_field(met["_part"], "edge")
        if not np.array_equal(np.sort(edges.to_numpy()), np.arange(net.num_rows)):
            raise ValueError(NEVER_SENT)
        met = met.take(pc.sort_indices(edges))
        return {name: met[name].combine_chunks() for name in met.column_names}

    def _find_open(self, files: Files, edges: pa.Table) -> pa.Table:
        """Return the rows of some files with the key of an edge, as `Computed` says."""
        sought = {"edge": pa.array(np.arange(edges.num_rows, dtype=np.int32))}
        for number, column in enumerate(self._key):
            sought[f"k{number}"] = edges[column.stored]
            sought[f"r{number}"] = pc.map_lookup(edges[_RAW], column.stored, "first")
        sought |= {} if self._key else {name: edges[name] for name in keys.BEGIN}
        # Delta's writers put `_part` into the files, too; ours do not.
        own = [name for name, _ in PERIOD_COLUMNS if name != "_part"]
        names = [*(column.stored for column in files.table.columns), *own]
        shown = ", ".join(f"h.{standard_identifier(name)}" for name in names)
        same = same_key(self._key, "w") or " and ".join(f"h.{name} = w.{name}" for name in keys.BEGIN)
        with _not_folded():
            wanted = self._registered(sought)
            met = self._connection.sql(
                f"select {shown}, h.file_index, h.file_row_number, w.edge"
                f" from ({places_of(self._connection, files)}) h join {wanted} w on {same}"
            ).to_arrow_table()
        *values, number, row, edge = (column.combine_chunks() for column in met.columns)
        file = pa.array(list(files.by_name), pa.string()).take(number)
        part = pa.StructArray.from_arrays([file, row, edge], names=["file", "row", "edge"])
        return pa.table({**dict(zip(names, values, strict=True)), "_part": part})


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
