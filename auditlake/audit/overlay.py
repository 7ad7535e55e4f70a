"""Overlay: the versions of a table up to an LSN as one relation, of its history and of the changes not applied yet.

    overlay = overlaid(reader, table, upto)
    select("select count(*) from history where _to_lsn is null", history=overlay)

It is the history that apply would leave at `upto`, in its columns: `overlay.table` is that table, at that position. So
a question is written once, about a history, and is the same wherever the position of the table is.

    closed versions                                           as they are
    open versions    those that the fold closes               with their end
                     the others                               with the missing values of added columns
    fold (`fold.in_duckdb`)                                   the versions that begin in the tail

Of some `keys`, only the changes of these keys are read and folded, and of all keys that their rows had in the tail: a
change of the key links two. Then the relation may have versions of other keys, which may be wrong.

A schema change that the history cannot follow ends it (`schema.evolution`); `Reader.check` refuses a moment that is not
known. Memory: the changes of the tail as text, and their net result (`fold.in_duckdb`).
"""

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.apply.tails import follow_changes
from auditlake.audit.changes import linked_changes, read_changes
from auditlake.audit.history_conditions import bounds_of, in_history
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.row_key import Key
from auditlake.delta.data_files import DataFile
from auditlake.delta.sql import Bound, TableFiles, as_relation, may_have, select, shared_cursor
from auditlake.errors import InvariantBroken, Unsupported
from auditlake.fold.in_duckdb import Fold, ToFold, files_in_shape, in_shape
from auditlake.fold.net import ENDS, KIND, RowKind
from auditlake.fold.open_versions import BEGIN, contradiction, key_of, may_have_key_of
from auditlake.lake.duckdb_rows import same_key, sql_type
from auditlake.lake.history import HistoryTable
from auditlake.lake.history_files import is_open
from auditlake.lsn import LAST_LSN, Lsn
from auditlake.schema.evolution import Followed
from auditlake.store.place import Place
from auditlake.temporal.as_of_predicate import as_of_sql, some_as_of

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

_PART = "_part"
_ENDS = tuple(name for name in ENDS if name != _PART)


class _Folded:
    """The fold of a tail, the columns at its end, and the position `after` which it begins."""

    def __init__(self, fold: Fold, followed: Followed, after: Lsn) -> None:
        self._fold, self.followed, self.after = fold, followed, after
        self.key = key_of(followed.folded)

    @cached_property
    def closes(self) -> pa.Table:
        """The keys and ends of the open versions that end: `k0`, `r0`, …, or BEGIN without a key."""
        return self._fold.net.filter(pc.equal(self._fold.net["kind"], RowKind.CLOSE))

    @cached_property
    def edges(self) -> pa.Table:
        """The keys of all versions that end or are born, with `kind`."""
        net = self._fold.net
        return net.filter(pc.not_equal(net["kind"], RowKind.VERSION)).select([*self._key_names, "kind"])

    @property
    def _key_names(self) -> Sequence[str]:
        return [name for n in range(len(self.key)) for name in (f"k{n}", f"r{n}")] or BEGIN

    def same(self, other: str) -> str:
        """Return SQL that compares the key of the rows `h` with that of `closes` or `edges`."""
        return same_key(self.key, other) or " and ".join(f"h.{name} = {other}.{name}" for name in BEGIN)

    def may_end(self, file: DataFile) -> bool:
        """Return whether a file may have versions that end."""
        return is_open(file) and self._may_have_closed(file)

    @cached_property
    def _may_have_closed(self) -> Callable[[DataFile], bool]:
        return may_have_key_of(self._stored_keys(self.closes), self.key)

    def _stored_keys(self, keys: pa.Table) -> pa.Table:
        places = {column.stored: f"k{n}" for n, column in enumerate(self.key)} or {name: name for name in BEGIN}
        return pa.table({stored: keys[name] for stored, name in places.items()})

    def ended(self, connection: "DuckDBPyConnection", rows: str, names: Container[str]) -> str:
        """Return a query of open versions, given in the columns `names` of the history, with their ends."""
        ends = ", ".join(f"g.{name} as {name}" for name in _ENDS)
        gone = as_relation(connection, self.closes)
        rows = f"select h.* replace ({ends}) from ({rows}) h left join {gone} g on {self.same('g')}"
        return in_shape(connection, rows, names, self.followed)

    def still_open(self, connection: "DuckDBPyConnection", rows: str, names: Container[str]) -> str:
        """Return a query of those open versions that do not end; `names` may lack the columns of the period."""
        gone = as_relation(connection, self.closes)
        return in_shape(connection, f"from ({rows}) h anti join {gone} g on {self.same('g')}", names, self.followed)

    def require_agreement(self, table: HistoryTable, connection: "DuckDBPyConnection", opened: TableFiles) -> None:
        """Check that each key that ends is open once, and none that is born; raises InvariantBroken."""
        files = opened.which(may_have_key_of(self._stored_keys(self.edges), self.key))
        rows, edges = files_in_shape(connection, files, self.followed), as_relation(connection, self.edges)
        met = connection.sql(f"select g.kind from ({rows}) h join {edges} g on {self.same('g')}").to_arrow_table()
        if reason := contradiction(self.edges["kind"], met["kind"]):
            raise InvariantBroken(f"the changes of {table.label} after {table.position} cannot be folded: {reason}")

    def added_rows(self, lsn: Lsn) -> int:
        """Return how many rows more the table has at an LSN in the tail than before it."""
        net = self._fold.net
        begun = pc.and_(pc.not_equal(net["kind"], RowKind.CLOSE), _valid_at(net, [lsn]))
        ended = pc.and_(pc.equal(net["kind"], RowKind.CLOSE), pc.less_equal(net["_to_lsn"], int(lsn)))
        return (pc.sum(begun).as_py() or 0) - (pc.sum(ended).as_py() or 0)

    def begun(self, wanted: Callable[[pa.Table], pa.Array] | None, only: Container[str] | None) -> pa.Table:
        """Return the versions that begin in the tail, all or those that a mask of their periods chooses."""
        net = self._fold.net
        begins = pc.not_equal(net["kind"], RowKind.CLOSE)
        mask = begins if wanted is None else pc.and_(begins, wanted(net))
        rows = self._fold.rows(mask, only)
        return rows.select([name for name in rows.column_names if name not in {KIND, _PART}])


@dataclass(frozen=True, slots=True)
class Overlay:
    """The versions of `table` up to its position, in `files` of its history and in a folded tail if there is one.

    `wanted` chooses versions that begin in the tail by their periods. An overlay of some keys has the `changes` of all
    `keys` that their rows had in the tail, and the versions of these.
    """

    table: HistoryTable
    files: TableFiles
    folded: _Folded | None = None
    wanted: Callable[[pa.Table], pa.Array] | None = None
    keys: frozenset[Key] = frozenset()
    changes: pa.Table | None = None

    @property
    def place(self) -> Place:
        """The folder of the history."""
        return self.files.place

    def which(self, condition: Callable[[DataFile], bool]) -> Self:
        """Return the same of the files that meet a condition; all versions that begin in the tail stay."""
        return replace(self, files=self.files.which(condition))

    def within(self, **bounds: Bound) -> Self:
        """Return the same of the files that may have versions with a value within each of these bounds."""
        return self.within_any(bounds)

    def within_any(self, *alternatives: Mapping[str, Bound]) -> Self:
        """Return the same of the files that may have versions within each bound of one of these alternatives."""
        return self.which(lambda file: any(self._may_have(file, bounds) for bounds in alternatives))

    def _may_have(self, file: DataFile, bounds: Mapping[str, Bound]) -> bool:
        may_end = self.folded is not None and self.folded.may_end(file)
        return may_have(file, {name: bound for name, bound in bounds.items() if not (may_end and name in ENDS)})

    def valid_at(self, *lsns: Lsn) -> Self:
        """Return the same of the files that may have versions valid at one of these moments."""
        found = self.which(lambda file: any(some_as_of(file, lsn) for lsn in lsns))
        return replace(found, wanted=lambda net: _valid_at(net, lsns))

    def count(self, lsn: Lsn) -> int:
        """Return the number of rows at an LSN."""
        in_history = lsn if self.folded is None else Lsn(min(lsn, self.folded.after))
        files = self.files.which(lambda file: some_as_of(file, in_history))
        sql = f"select count(*) as n from history where {as_of_sql(in_history)}"
        count: int = select(sql, history=files)["n"][0].as_py()
        return count if self.folded is None or lsn <= in_history else count + self.folded.added_rows(lsn)

    def fetch(self) -> None:
        """Read small files in a store at the same time, as far as they are kept in memory."""
        self.files.fetch()

    def sql(self, connection: "DuckDBPyConnection") -> str:
        """Return a query of the versions, in all columns."""
        if self.folded is None:
            return self.files.sql(connection)
        begun = as_relation(connection, self.folded.begun(self.wanted, None))
        return " union all by name ".join(
            [f"from {begun}", *_parts(connection, self.folded, self.files, self.folded.ended)]
        )

    def open_rows(self, connection: "DuckDBPyConnection", shown: str, only: Container[str], held: str | None) -> str:
        """Return a query of the open versions of a folded tail, for cells that need these columns, by stored name.

        `held` is a relation of the connection with the open versions of the history, read instead of the files: it need
        not have the columns of the period.
        """
        folded = self.folded
        assert folded is not None  # noqa: S101 - the caller has seen it
        if held is None or not folded.key:
            parts = [*_parts(connection, folded, self.files.which(is_open), folded.still_open)]
        else:
            parts = [folded.still_open(connection, f"from {held}", connection.sql(f"from {held} limit 0").columns)]
        begun = folded.begun(lambda net: pc.is_null(net["_to_lsn"]), only)
        parts.append(f"from {as_relation(connection, begun)}")
        return " union all ".join(f"select {shown} from ({part}) h" for part in parts)


def _parts(
    connection: "DuckDBPyConnection",
    folded: _Folded,
    files: TableFiles,
    ended: Callable[["DuckDBPyConnection", str, Container[str]], str],
) -> Iterator[str]:
    """Yield queries of the versions in files from before the tail; `ended` makes that of files that may have ends."""
    end, stay = files.which(folded.may_end), files.which(lambda file: not folded.may_end(file))
    if stay.files:
        yield files_in_shape(connection, stay, folded.followed)
    if end.files:
        end.fetch()
        yield ended(connection, end.sql(connection), end.types)


def _valid_at(net: pa.Table, lsns: Collection[Lsn]) -> pa.Array:
    begins, ends = net["_from_lsn"], pc.fill_null(net["_to_lsn"], int(LAST_LSN))
    valid = (pc.and_(pc.less_equal(begins, int(lsn)), pc.greater(ends, int(lsn))) for lsn in lsns)
    return reduce(pc.or_, valid)


def overlaid(  # noqa: PLR0913 - which versions
    reader: Reader,
    table: HistoryTable,
    upto: Lsn,
    keys: Collection[Key] | None = None,
    *,
    moments: Collection[Lsn] = (),
    only_open: bool = False,
) -> Overlay:
    """Return the versions of a table up to an LSN, or up to its position if that is higher; of all keys, or of some.

    `moments`: it answers `valid_at` and `count` of these alone, in less memory. `only_open`: it answers `open_rows`
    alone, in a third of the time.

    Raises InvariantBroken if changes of these keys contradict the history, Unsupported if a value cannot be read.
    """
    span, history = Span(table.position, upto).until(reader.watermark), reader.history(table)
    is_empty = span.upto <= span.after and not reader.shapes_of(table).shapes.following
    if upto <= table.position or is_empty:
        return Overlay(table, history)
    linked, changes = _read(reader, table, span, keys)
    followed = _follow(reader, table, upto, changes)  # the catalog may show a schema change above the watermark
    last = followed.last_lsn(upto)
    if last < span.upto:
        changes = changes.filter(pc.less_equal(changes["lsn"], int(last)))
    whole = Overlay(table, history, keys=frozenset(linked or ()), changes=None if linked is None else changes)
    if not changes.num_rows and not _is_reshaped(reader, table, followed):
        return whole
    later = reader.shapes_of(table).advanced(followed, last, [column.stored for column in table.key])
    wanted = " or ".join(map(as_of_sql, moments)) or None
    tail = ToFold(changes, followed, history.which(is_open), wanted=wanted, only_open=only_open)
    if linked is not None:
        condition = " or ".join(f"({in_history(table, key)})" for key in linked)
        tail = replace(tail, opened=tail.opened.within(**bounds_of(table, linked)), condition=condition)
    connection = shared_cursor(history.place)
    with _readable(table):
        folded = _Folded(Fold(connection, tail), followed, table.position)
    if linked is not None:
        folded.require_agreement(table, connection, tail.opened)
    return replace(whole, table=later, folded=folded)


def _read(
    reader: Reader, table: HistoryTable, span: Span, keys: Collection[Key] | None
) -> tuple[Sequence[Key] | None, pa.Table]:
    """Return the changes of a span, of all keys or of all that the rows of some had in it, and these keys."""
    linked, changes = (
        (None, read_changes(reader, table.name, span, "true"))
        if keys is None
        else linked_changes(reader, table, span, keys)
    )
    with _readable(table):  # more than 2 GB of texts do not fit into one array
        return linked, changes.combine_chunks()


def _is_reshaped(reader: Reader, table: HistoryTable, followed: Followed) -> bool:
    """Return whether a table has other columns or types at the end of a tail, or older rows have values in new ones.

    A killed apply may have added such a column already: it is NULL in every row until the tail is folded.
    """
    before = reader.shapes_of(table).table.columns
    was, now = ([(column.stored, sql_type(column)) for column in each] for each in (before, followed.physical))
    return was != now or followed.fills


def _follow(reader: Reader, table: HistoryTable, upto: Lsn, changes: pa.Table) -> Followed:
    """Follow the columns of a table along changes, and its schema changes up to an LSN.

    They have their types after the tail: apply does not widen the history, and parks the table at a value too large.
    """
    of_table = reader.shapes_of(table)
    shapes = of_table.shapes
    known = replace(shapes, following=tuple(version for version in shapes.following if version.lsn <= upto))
    groups = changes.group_by("relation").aggregate([("lsn", "min"), ("lsn", "max")])
    rows = groups.rename_columns(["relation", "first_lsn", "last_lsn"]).to_pylist()
    relations = {row["relation"]: reader.known.versions.relation(row["relation"]) for row in rows}
    followed = follow_changes(of_table.table, rows, known, relations, of_table.answers)
    folded, physical = (tuple(map(of_table.widened, each)) for each in (followed.folded, followed.physical))
    return replace(followed, folded=folded, physical=physical)


@contextmanager
def _readable(table: HistoryTable) -> Iterator[None]:
    import duckdb  # noqa: PLC0415 - it takes a tenth of a second to import

    try:
        yield
    except (duckdb.Error, pa.ArrowInvalid, ValueError) as exc:  # whose text may quote a value
        raise Unsupported(
            f"the changes of {table.label} that are not applied yet cannot be folded: {type(exc).__name__}",
            "auditlake apply tells why.",
        ) from exc
