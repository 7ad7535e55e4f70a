"""The columns of a table along its tail: which were added, where, and how each shape becomes that of the history. Pure.

The stream says what a relation looks like before the first change that has the new shape, so a tail is a sequence of
runs: stretches in which one relation version is in use. Along them columns may only be added, and only where it is
known what the rows show in them that were there before (`auditlake.added`). Anything else is a refusal, at the LSN of
the first change that shows it.

A column is there *since* the commit of its first change: when exactly ALTER TABLE was committed before it, the stream
does not tell. A transaction may change the table in both shapes; then all of it counts as after the change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from auditlake.errors import Unsupported
from auditlake.lake.added import Added, Answers
from auditlake.lake.history import RESERVED, HistoryTable
from auditlake.lake.names import stored_beside
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation

_FULL, _NOTHING = "f", "n"
_KEPT = "Everything before that LSN is in the history; all changes after it are kept in `changes`."
_ANEW = (
    f"{_KEPT} To have a history of the table as it is now, move the folder of its history away and run auditlake"
    " bootstrap: it copies what has no history."
)


@dataclass(frozen=True, slots=True)
class Run:
    """A stretch of a tail, from the commit at `lsn` on, whose changes are all of version `number` of the relation."""

    number: int
    relation: Relation
    lsn: int


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that appears in a tail; `missing` is the text that rows from before show in it, None for NULL."""

    column: Column
    missing: str | None

    @property
    def since(self) -> int:
        """The commit LSN from which on the table has it."""
        assert self.column.since is not None  # noqa: S101 - made with one
        return self.column.since


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a relation version has the columns of the fold, None for one that it lacks.

    `whole_old`: its old tuples are of REPLICA IDENTITY FULL.
    """

    places: tuple[int | None, ...]
    width: int
    whole_old: bool

    @property
    def is_plain(self) -> bool:
        """Whether its tuples are as the fold wants them."""
        return self.places == tuple(range(self.width))


@dataclass(frozen=True, slots=True)
class Followed:
    """The columns at the end of a tail, those of them that were added in it, and each relation's layout by number.

    After a refusal at `refused_at` nothing is followed; all of this is about what was before it.
    """

    columns: tuple[Column, ...]
    added: tuple[AddedColumn, ...]
    layouts: Mapping[int, Layout]
    refusal: Unsupported | None = None
    refused_at: int | None = None


def follow(table: HistoryTable, runs: Iterable[Run], answers: Answers) -> Followed:
    """Go along the runs of a tail, in their order, as far as its history can follow."""
    columns = table.columns_at(table.position)
    added: list[AddedColumn] = []
    relations: dict[int, Relation] = {}
    for run in runs:
        try:
            _see_goes_on(table, columns, run)
            fresh = _added(table, columns, run, answers)
        except Unsupported as refusal:
            return Followed(columns, tuple(added), _layouts(columns, relations), refusal, run.lsn)
        added += fresh
        columns = (*columns, *(each.column for each in fresh))
        relations[run.number] = run.relation
    return Followed(columns, tuple(added), _layouts(columns, relations))


def _layouts(columns: Sequence[Column], relations: Mapping[int, Relation]) -> dict[int, Layout]:
    found = {}
    for number, relation in relations.items():
        places = {column.name: place for place, column in enumerate(relation.columns)}
        here = tuple(places.get(column.name) for column in columns)
        found[number] = Layout(here, len(relation.columns), relation.replica_identity == _FULL)
    return found


def _see_goes_on(table: HistoryTable, columns: Sequence[Column], run: Run) -> None:
    """See that the relation still has these columns, and tells rows apart as the history does."""
    now = {column.name: column for column in run.relation.columns}
    lost = [column for column in columns if column.name not in now or _type(now[column.name]) != _type(column)]
    if lost:
        raise _changed(table, columns, run)
    if problem := _identity_problem(table, run.relation):
        raise Unsupported(
            f"{table.name} changed at {Lsn(run.lsn)}: {problem}", f"This version does not follow that. {_KEPT}"
        )


def _added(table: HistoryTable, columns: Sequence[Column], run: Run, answers: Answers) -> list[AddedColumn]:
    """What the relation has beyond these columns."""
    held = {column.name for column in columns}
    ahead = {column.name: column for column in table.columns if column.name not in held}
    found: list[AddedColumn] = []
    for column in run.relation.columns:
        if column.name in held:
            continue
        missing = _missing(table, run, column, answers)
        beside = [*table.columns, *(each.column for each in found), *columns]
        stored_as = stored_beside(column.name, beside, RESERVED)
        new = replace(column, key=False, stored_as=stored_as, since=run.lsn)
        found.append(AddedColumn(ahead.get(column.name, new), missing))
    return found


def _missing(table: HistoryTable, run: Run, column: Column, answers: Answers) -> str | None:
    answer = answers.get(Added(run.relation.oid, column.name, run.lsn))
    what = f"column {column.name} was added to {table.name} by {Lsn(run.lsn)}"
    if answer is None:
        raise Unsupported(
            f"{what}, and the source was not asked what older rows show in it",
            f"Run auditlake follow, or auditlake capture and then auditlake apply: capture asks. {_KEPT}",
        )
    if answer.problem is not None:
        raise Unsupported(f"{what}, and what older rows show in it is not known: {answer.problem}", _ANEW)
    return answer.value


def _type(column: Column) -> tuple[int, int]:
    return column.type_oid, column.typmod


def _identity_problem(table: HistoryTable, relation: Relation) -> str | None:
    """What is wrong with the replica identity for a history with this key; FULL sends whatever any key needs.

    Under NOTHING the server refuses what would need an identity.
    """
    if relation.replica_identity in {_FULL, _NOTHING}:
        return None
    sent = {column.name for column in relation.columns if column.key}
    wanted = [column.name for column in table.key]
    if sent == set(wanted):
        return None
    is_now = ", ".join(column.name for column in relation.columns if column.key) or "no column"
    return f"replica identity is {is_now}, the history's key is {', '.join(wanted) or 'the whole row'}"


def _changed(table: HistoryTable, columns: Sequence[Column], run: Run) -> Unsupported:
    was, now = ([(c.name, *_type(c)) for c in shape] for shape in (columns, run.relation.columns))
    gone = [f"{name} (type {oid}, modifier {mod})" for name, oid, mod in was if (name, oid, mod) not in now]
    new = [f"{name} (type {oid}, modifier {mod})" for name, oid, mod in now if (name, oid, mod) not in was]
    parts = [f"the history has {', '.join(gone)}", *([f"the stream has {', '.join(new)}"] if new else [])]
    return Unsupported(
        f"columns of {table.name} changed at {Lsn(run.lsn)}: {'; '.join(parts)}",
        f"This version follows columns that are added, no other change of them. {_ANEW}",
    )
