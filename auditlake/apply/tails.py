"""Tails: find the tables with unapplied changes, and the statistics of these changes, without a JVM.

A table's tail is its changes above its position, up to a limit that is at most the watermark. It ends before the first
transaction with a shape of the table that its history cannot follow (`schema.evolution`); `refusal` is the reason, and
the changes before can still be folded.

Only `op`, the presence of tuples and flags are read here, never values. The fold's plan depends on these statistics
(`TailShape`): a flag that is true without need makes the fold slower, never different.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from auditlake.apply.windows import WINDOW_BYTES, ChangeFile, Window, cut, held_within
from auditlake.delta.append_table import open_delta, select
from auditlake.errors import Unsupported
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import CHANGES_APP, Lake
from auditlake.lake.positions import read_positions
from auditlake.lake.publication_record import read_recorded
from auditlake.lake.relations import read_relations
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.schema.evolution import AddedColumn, Followed, Run, follow
from auditlake.schema.missing_values import Answers, read_added
from auditlake.sql_names import standard_literal
from auditlake.store.place import Place

FOLDED_OPS = ("insert", "update", "delete", "truncate")
_MOST_LSN = 2**63 - 1
_OPS = ", ".join(f"'{op}'" for op in FOLDED_OPS)

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

_COMMITS = """
select distinct lsn from changes
where "schema" = {schema} and "table" = {table} and lsn > {after} and lsn <= {upto} and op in ({ops})
order by lsn
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

    folder: Place
    delta: DeltaTable
    watermark: Lsn

    def files(self, first: int, last: int) -> tuple[ChangeFile, ...]:
        """Return the Parquet files that may have changes in [`first`, `last`], by their statistics."""
        actions = pa.table(self.delta.get_add_actions(flatten=True))
        # A file without statistics may have any LSN.
        least, greatest = pc.fill_null(actions["min.lsn"], 0), pc.fill_null(actions["max.lsn"], _MOST_LSN)
        rows = zip(actions["path"].to_pylist(), least.to_pylist(), greatest.to_pylist(), strict=True)
        files = (ChangeFile(self.folder / path, low, high) for path, low, high in rows)
        return tuple(file for file in files if file.first <= last and file.last >= first)

    def window(self, after: int) -> Window:
        """Return the changes above `after` up to the watermark, or the first part that fits into memory."""
        return cut(self.files(after + 1, self.watermark), after, self.watermark, WINDOW_BYTES)


@dataclass(frozen=True, slots=True)
class TailShape:
    """Possible contents of one table's tail; `unchanged` are the columns that an UPDATE omits as TOAST, by position.

    `has_key_change`: an UPDATE has an old tuple. `old_is_whole`: all old tuples are of REPLICA IDENTITY FULL.
    """

    rows: int
    inserts_only: bool
    has_truncate: bool
    has_key_change: bool
    old_is_whole: bool
    unchanged: frozenset[int]

    @classmethod
    def anything(cls, rows: int, columns: tuple[Column, ...]) -> "TailShape":
        """Return the shape that excludes nothing."""
        return cls(
            rows=rows,
            inserts_only=False,
            has_truncate=True,
            has_key_change=True,
            old_is_whole=False,
            unchanged=frozenset(range(len(columns))),
        )


@dataclass(frozen=True, slots=True)
class Tail:
    """The changes of `table` in (its position, `upto`], read from `files`: those of one version of `changes`."""

    table: HistoryTable
    upto: Lsn
    files: tuple[ChangeFile, ...]
    shape: TailShape | None
    followed: Followed

    @property
    def refusal(self) -> Unsupported | None:
        """The reason why the tail ends before the limit, if it does."""
        return self.followed.refusal

    @property
    def held_bytes(self) -> int:
        """Estimated size of its changes in memory; includes changes of other tables between them."""
        return sum(held_within(file, self.table.position, self.upto) for file in self.files)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns at its end: those of the history at its position, then added ones."""
        return self.followed.columns

    @property
    def added(self) -> tuple[AddedColumn, ...]:
        """The columns added within the tail."""
        return self.followed.added


@dataclass(frozen=True, slots=True)
class _Place:
    log: Log
    after: Mapping[HistoryTable, int]
    upto: Lsn
    answers: Answers
    oids: Mapping[TableName, int]


def open_log(lake: Lake) -> Log | None:
    """Open the current version of `changes`; None before capture has begun."""
    delta = open_delta(lake.changes)
    watermark = None if delta is None else delta.transaction_version(CHANGES_APP)
    if delta is None or watermark is None:
        return None
    return Log(lake.changes, delta, Lsn(watermark))


def read_watermark(lake: Lake) -> Lsn | None:
    """Read the watermark, from the last log entries if possible; None before capture has begun."""
    positions = read_positions(lake)
    if positions is not None:
        return positions.watermark
    log = open_log(lake)
    return None if log is None else log.watermark


def find_tails(lake: Lake, log: Log, after: Mapping[HistoryTable, int], upto: Lsn) -> list[Tail]:
    """Find the tails up to `upto`; up to its LSN in `after`, a table is known to have no unapplied changes."""
    due = {table: lsn for table, lsn in after.items() if lsn < upto}
    if not due:
        return []
    groups: dict[TableName, list[dict[str, Any]]] = defaultdict(list)
    for row in _query(log, due, upto):
        groups[TableName(row["schema"], row["table"])].append(row)
    if not groups:
        return []
    recorded = read_recorded(lake)
    oids = {name: member.relation for name, member in recorded.tables.items()} if recorded else {}
    relations, place = read_relations(lake), _Place(log, due, upto, read_added(lake), oids)
    return [_tail(table, groups[table.name], relations, place) for table in due if table.name in groups]


def find_commits(log: Log, table: HistoryTable, upto: Lsn) -> list[Lsn]:
    """Return the commits in (the table's position, `upto`] that changed it, in order."""
    sql = _COMMITS.format(
        schema=standard_literal(table.name.schema),
        table=standard_literal(table.name.table),
        after=f"{table.position:d}",
        upto=f"{upto:d}",
        ops=_OPS,
    )
    return [Lsn(row["lsn"]) for row in select(log.delta, "changes", sql).to_pylist()]


def _query(log: Log, due: Mapping[HistoryTable, int], upto: Lsn) -> list[dict[str, Any]]:
    after = ", ".join(
        f"({standard_literal(t.name.schema)}, {standard_literal(t.name.table)}, {lsn:d})" for t, lsn in due.items()
    )
    sql = _TAILS.format(after=after, lowest=f"{min(due.values()):d}", upto=f"{upto:d}", ops=_OPS)
    return list(select(log.delta, "changes", sql).to_pylist())


def _tail(table: HistoryTable, groups: list[dict[str, Any]], relations: Mapping[int, Relation], at: "_Place") -> Tail:
    runs = _runs(table, groups, relations, at)
    followed = follow(table, runs, at.answers, at.oids.get(table.name))
    end = at.upto if followed.refused_at is None else Lsn(followed.refused_at - 1)
    foldable = [row for row in groups if row["first_lsn"] <= end and row["relation"] in followed.layouts]
    shape = _shape(foldable, relations, followed) if foldable else None
    files = at.log.files(min(row["first_lsn"] for row in foldable), end) if foldable else ()
    return Tail(table, end, files, shape, followed)


def _runs(
    table: HistoryTable, groups: list[dict[str, Any]], relations: Mapping[int, Relation], at: "_Place"
) -> Iterator[Run]:
    """Return the runs of a tail: consecutive changes with one relation version."""
    starts = [(row["relation"], row["first_lsn"]) for row in groups]
    if len(starts) > 1:
        name = table.name
        sql = _RUNS.format(
            schema=standard_literal(name.schema),
            table=standard_literal(name.table),
            after=f"{at.after[table]:d}",
            upto=f"{at.upto:d}",
            ops=_OPS,
        )
        rows = select(at.log.delta, "changes", sql).to_pylist()
        starts = [(row["relation"], row["lsn"]) for row in rows]
    return (Run(number, relations[number], lsn) for number, lsn in starts)


def _shape(groups: Iterable[dict[str, Any]], relations: Mapping[int, Relation], followed: Followed) -> TailShape:
    rows = list(groups)
    return TailShape(
        rows=sum(row["rows"] for row in rows),
        inserts_only=all(row["inserts_only"] for row in rows),
        has_truncate=any(row["has_truncate"] for row in rows),
        has_key_change=any(row["has_old"] for row in rows),
        old_is_whole=all(relations[row["relation"]].replica_identity == ReplicaIdentity.FULL for row in rows),
        unchanged=frozenset(
            followed.layouts[row["relation"]].places.index(place)
            for row in rows
            for places in row["unchanged"] or ()
            for place in places
        ),
    )
