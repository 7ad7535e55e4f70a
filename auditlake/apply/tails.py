"""Which tables have a tail, and what is in it: two questions to `changes`, answered without a JVM.

A tail is what `changes` holds of a table above its position, up to a limit that is never above the watermark. It ends
before the first transaction that shows a shape of the table which its history cannot follow (`columns`): `refusal` says
so, and what came before can still be folded.

Only `op`, tuple presence and flags are read here; no value is.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from auditlake.apply.columns import AddedColumn, Followed, Run, follow
from auditlake.apply.shape import TailShape
from auditlake.errors import Unsupported
from auditlake.lake.added import Answers, read_added
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import CHANGES_APP, Lake
from auditlake.lake.log import open_delta, select
from auditlake.lake.relations import read_relations
from auditlake.literals import standard_literal
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, TableName

FOLDED_OPS = ("insert", "update", "delete", "truncate")
_OPS = ", ".join(f"'{op}'" for op in FOLDED_OPS)
_FULL = "f"

_TAILS = """
select c."schema", c."table", c.relation,
       count(*) as rows, min(c.lsn) as first_lsn,
       bool_and(c.op = 'insert') as inserts_only,
       bool_or(c.op = 'truncate') as has_truncate,
       bool_or(c.op = 'update' and c.old is not null) as has_old,
       array_agg(distinct c.unchanged) filter (where c.unchanged is not null) as unchanged
from changes c
join (values {after}) as p("schema", "table", position) on p."schema" = c."schema" and p."table" = c."table"
where c.lsn > {lowest} and c.lsn <= {upto} and c.lsn > p.position and c.op in ({ops})
group by c."schema", c."table", c.relation
"""

_RUNS = """
select lsn, relation
from (select lsn, ordinal, relation, lag(relation) over (order by lsn, ordinal) as before
      from changes
      where "schema" = {schema} and "table" = {table} and lsn > {after} and lsn <= {upto} and op in ({ops}))
where before is null or before <> relation
order by lsn, ordinal
"""


@dataclass(frozen=True, slots=True)
class Log:
    """`changes` at one Delta version; `watermark` is that version's."""

    folder: Path
    delta: DeltaTable
    watermark: Lsn

    def files(self, first: Lsn, last: Lsn) -> "Files":
        """Find the Parquet files that may hold changes in [`first`, `last`], by the statistics in Delta's log."""
        actions = pa.table(self.delta.get_add_actions(flatten=True))
        above, below = pc.less(actions["max.lsn"], int(first)), pc.greater(actions["min.lsn"], int(last))
        # A file without statistics may hold anything.
        outside = pc.fill_null(pc.or_kleene(above, below), False)
        inside = actions.filter(pc.invert(outside))
        size_bytes, rows = (pc.sum(inside[name]).as_py() or 0 for name in ("size_bytes", "num_records"))
        return Files(tuple(str(self.folder / path) for path in inside["path"].to_pylist()), size_bytes / max(1, rows))


@dataclass(frozen=True, slots=True)
class Files:
    """Parquet files of `changes`, and how many bytes a change takes in them on average."""

    paths: tuple[str, ...]
    row_bytes: float


@dataclass(frozen=True, slots=True)
class Tail:
    """The changes of `table` in (its position, `upto`], read from `files`: those of one version of `changes`."""

    table: HistoryTable
    upto: Lsn
    files: Files
    shape: TailShape | None
    followed: Followed

    @property
    def refusal(self) -> Unsupported | None:
        """Why it ends where it does, if that is before the limit."""
        return self.followed.refusal

    @property
    def size_bytes(self) -> int:
        """About how many bytes its changes take in their files."""
        return 0 if self.shape is None else int(self.shape.rows * self.files.row_bytes)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns at its end: those of the history at its position, then those that were added."""
        return self.followed.columns

    @property
    def added(self) -> tuple[AddedColumn, ...]:
        """The columns that were added in it."""
        return self.followed.added


@dataclass(frozen=True, slots=True)
class _Place:
    log: Log
    after: Mapping[HistoryTable, int]
    upto: Lsn
    answers: Answers


def open_log(lake: Lake) -> Log | None:
    """Open `changes` as it is now; None where capture has not begun."""
    delta = open_delta(lake.changes)
    watermark = None if delta is None else delta.transaction_version(CHANGES_APP)
    if delta is None or watermark is None:
        return None
    return Log(lake.changes, delta, Lsn(watermark))


def find_tails(lake: Lake, log: Log, after: Mapping[HistoryTable, int], upto: Lsn) -> list[Tail]:
    """Find the tails up to `upto`; `after` gives each table the LSN up to which nothing of it is to be found."""
    due = {table: lsn for table, lsn in after.items() if lsn < upto}
    if not due:
        return []
    groups: dict[TableName, list[dict[str, Any]]] = defaultdict(list)
    for row in _query(log, due, upto):
        groups[TableName(row["schema"], row["table"])].append(row)
    if not groups:
        return []
    relations, place = read_relations(lake), _Place(log, due, upto, read_added(lake))
    return [_tail(table, groups[table.name], relations, place) for table in due if table.name in groups]


def _query(log: Log, due: Mapping[HistoryTable, int], upto: Lsn) -> list[dict[str, Any]]:
    after = ", ".join(
        f"({standard_literal(t.name.schema)}, {standard_literal(t.name.table)}, {lsn:d})" for t, lsn in due.items()
    )
    sql = _TAILS.format(after=after, lowest=f"{min(due.values()):d}", upto=f"{upto:d}", ops=_OPS)
    return list(select(log.delta, "changes", sql).to_pylist())


def _tail(table: HistoryTable, groups: list[dict[str, Any]], relations: Mapping[int, Relation], at: "_Place") -> Tail:
    runs = _runs(table, groups, relations, at)
    followed = follow(table, runs, at.answers)
    end = at.upto if followed.refused_at is None else Lsn(followed.refused_at - 1)
    foldable = [row for row in groups if row["first_lsn"] <= end and row["relation"] in followed.layouts]
    shape = _shape(foldable, relations, followed) if foldable else None
    files = at.log.files(Lsn(min(row["first_lsn"] for row in foldable)), end) if foldable else Files((), 0)
    return Tail(table, end, files, shape, followed)


def _runs(
    table: HistoryTable, groups: list[dict[str, Any]], relations: Mapping[int, Relation], at: "_Place"
) -> Iterator[Run]:
    """The stretches of a tail with one relation version; of one version alone there is one."""
    found = [(row["relation"], row["first_lsn"]) for row in groups]
    if len(found) > 1:
        name = table.name
        sql = _RUNS.format(
            schema=standard_literal(name.schema),
            table=standard_literal(name.table),
            after=f"{at.after[table]:d}",
            upto=f"{at.upto:d}",
            ops=_OPS,
        )
        rows = select(at.log.delta, "changes", sql).to_pylist()
        found = [(row["relation"], row["lsn"]) for row in rows]
    return (Run(number, relations[number], lsn) for number, lsn in found)


def _shape(groups: Iterable[dict[str, Any]], relations: Mapping[int, Relation], followed: Followed) -> TailShape:
    rows = list(groups)
    return TailShape(
        rows=sum(row["rows"] for row in rows),
        inserts_only=all(row["inserts_only"] for row in rows),
        has_truncate=any(row["has_truncate"] for row in rows),
        has_key_change=any(row["has_old"] for row in rows),
        old_is_whole=all(relations[row["relation"]].replica_identity == _FULL for row in rows),
        unchanged=frozenset(
            followed.layouts[row["relation"]].places.index(place)
            for row in rows
            for places in row["unchanged"] or ()
            for place in places
        ),
    )
