"""Schema evolution: follow the columns of a table along its tail, and map each relation version to the history. Pure.

The stream sends a Relation message before the first change in a new shape, so a tail is a sequence of runs, each with
one relation version. From run to run:

1. A column may be added, if its value in existing rows is decided (`schema.missing_values`).
2. A column may get a wider type that keeps the text of every value (`values.types.is_widened`).
3. Anything else is refused, at the LSN of the first change that shows it.

A column exists *since* the commit of the first change that has it; the stream does not show when, before that, ALTER
TABLE was committed. If one transaction changes the table in both shapes, all of it counts as after the change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from auditlake.errors import Unsupported
from auditlake.lake.column_names import stored_beside
from auditlake.lake.history import RESERVED, HistoryTable
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity
from auditlake.schema.missing_values import Added, Answers
from auditlake.values.types import is_widened

_KEPT = "Everything before that LSN is in the history; all changes after it are kept in `changes`."
ANEW = (
    f"{_KEPT} To have a history of the table as it is now, move the folder of its history away and run auditlake"
    " bootstrap: it copies what has no history."
)


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive changes of a tail, from the commit at `lsn` on, in version `number` of the relation."""

    number: int
    relation: Relation
    lsn: int


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that is added in a tail; `missing` is the text of its value in existing rows, None for NULL."""

    column: Column
    missing: str | None

    @property
    def since(self) -> int:
        """Return the commit LSN since which the table has the column."""
        assert self.column.since is not None  # noqa: S101 - made with one
        return self.column.since


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of the folded columns in a relation version, None for a column that it lacks.

    `whole_old`: old tuples have all columns (REPLICA IDENTITY FULL).
    """

    places: tuple[int | None, ...]
    width: int
    whole_old: bool

    @property
    def is_plain(self) -> bool:
        """Whether its tuples have the folded columns in their order."""
        return self.places == tuple(range(self.width))


@dataclass(frozen=True, slots=True)
class Followed:
    """The columns at the end of a tail, those added in it, and the layout of each relation version by its number.

    After a refusal these describe the tail before `refused_at`.
    """

    columns: tuple[Column, ...]
    added: tuple[AddedColumn, ...]
    layouts: Mapping[int, Layout]
    refusal: Unsupported | None = None
    refused_at: int | None = None


def follow(table: HistoryTable, runs: Iterable[Run], answers: Answers, oid: int | None = None) -> Followed:
    """Follow the runs of a tail in order, up to the first one that is refused; `oid` is the table's, if known."""
    columns = table.columns_at(table.position)
    added: list[AddedColumn] = []
    relations: dict[int, Relation] = {}
    for run in runs:
        try:
            _check_same_table(table, run, oid)
            _check_run(table, columns, run)
            fresh = _added(table, columns, run, answers)
        except Unsupported as refusal:
            return Followed(columns, tuple(added), _layouts(columns, relations), refusal, run.lsn)
        added += fresh
        columns = (*columns, *(new.column for new in fresh))
        relations[run.number] = run.relation
    return Followed(columns, tuple(added), _layouts(columns, relations))


def _layouts(columns: Sequence[Column], relations: Mapping[int, Relation]) -> dict[int, Layout]:
    layouts = {}
    for number, relation in relations.items():
        places = {column.name: place for place, column in enumerate(relation.columns)}
        here = tuple(places.get(column.name) for column in columns)
        layouts[number] = Layout(here, len(relation.columns), relation.replica_identity == ReplicaIdentity.FULL)
    return layouts


def _check_same_table(table: HistoryTable, run: Run, oid: int | None) -> None:
    if oid is not None and run.relation.oid != oid:
        raise Unsupported(f"{table.name} was dropped and created again by {Lsn(run.lsn)}", ANEW)


def _check_run(table: HistoryTable, columns: Sequence[Column], run: Run) -> None:
    """Check that the relation still has these columns, and a replica identity that fits the history's key."""
    now = {column.name: column for column in run.relation.columns}
    lost = [column for column in columns if column.name not in now or not _holds(column, now[column.name])]
    if lost:
        raise _changed(table, columns, run)
    if problem := _identity_problem(table, run.relation):
        raise Unsupported(
            f"{table.name} changed at {Lsn(run.lsn)}: {problem}", f"This version does not follow that. {_KEPT}"
        )


def _added(table: HistoryTable, columns: Sequence[Column], run: Run, answers: Answers) -> list[AddedColumn]:
    """Return the columns of the relation that are not among `columns`."""
    names = {column.name for column in columns}
    ahead = {column.name: column for column in table.columns if column.name not in names}
    added: list[AddedColumn] = []
    for column in run.relation.columns:
        if column.name in names:
            continue
        missing = _missing(table, run, column, answers)
        beside = [*table.columns, *(other.column for other in added), *columns]
        stored_as = stored_beside(column.name, beside, RESERVED)
        new = replace(column, key=False, stored_as=stored_as, since=run.lsn)
        added.append(AddedColumn(ahead.get(column.name, new), missing))
    return added


def _missing(table: HistoryTable, run: Run, column: Column, answers: Answers) -> str | None:
    answer = answers.get(Added(run.relation.oid, column.name, run.lsn))
    what = f"column {column.name} was added to {table.name} by {Lsn(run.lsn)}"
    if answer is None:
        raise Unsupported(
            f"{what}, and the source was not asked what older rows show in it",
            f"Run auditlake follow, or auditlake capture and then auditlake apply: capture asks. {_KEPT}",
        )
    if answer.problem is not None:
        raise Unsupported(f"{what}, and what older rows show in it is not known: {answer.problem}", ANEW)
    return answer.value


def _holds(column: Column, now: Column) -> bool:
    """Whether the source's column still has the history's type, or a wider one.

    The history keeps its type. A value that is too large for it fails the fold, and the table is parked there.
    """
    return is_widened(_type(column), _type(now))


def _type(column: Column) -> tuple[int, int]:
    return column.type_oid, column.typmod


def _identity_problem(table: HistoryTable, relation: Relation) -> str | None:
    """Describe why the replica identity does not fit the history's key, None if it does.

    FULL sends all columns. With NOTHING the server refuses every change that would need an identity.
    """
    if relation.replica_identity in {ReplicaIdentity.FULL, ReplicaIdentity.NOTHING}:
        return None
    sent = {column.name for column in relation.columns if column.key}
    wanted = [column.name for column in table.key]
    if sent == set(wanted):
        return None
    is_now = ", ".join(column.name for column in relation.columns if column.key) or "no column"
    return f"replica identity is {is_now}, the history's key is {', '.join(wanted) or 'the whole row'}"


def _changed(table: HistoryTable, columns: Sequence[Column], run: Run) -> Unsupported:
    was, now = ({column.name: column for column in shape} for shape in (columns, run.relation.columns))
    kept = {name for name, column in was.items() if name in now and _holds(column, now[name])}
    gone = [_described(column) for name, column in was.items() if name not in kept]
    new = [_described(column) for name, column in now.items() if name not in kept]
    parts = [f"the history has {', '.join(gone)}", *([f"the stream has {', '.join(new)}"] if new else [])]
    return Unsupported(
        f"columns of {table.name} changed at {Lsn(run.lsn)}: {'; '.join(parts)}",
        f"This version follows columns that are added or get a wider type, no other change of them. {ANEW}",
    )


def _described(column: Column) -> str:
    return f"{column.name} (type {column.type_oid}, modifier {column.typmod})"
