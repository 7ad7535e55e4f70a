"""Which tables have a tail, and what is in it: two questions to `changes`, answered without a JVM.

A tail is what `changes` holds of a table above its position, up to a limit that is never above the watermark. It ends
before the first transaction whose relation no longer has the history's columns, or no longer tells rows apart as the
history does: `refusal` says so, and what came before can still be folded.

Only `op`, tuple presence and flags are read here; no value is.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, QueryBuilder

from auditlake.apply.shape import TailShape
from auditlake.errors import Unsupported
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import CHANGES_APP, Lake
from auditlake.lake.log import open_delta
from auditlake.lake.relations import read_relations
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, TableName

FOLDED_OPS = ("insert", "update", "delete", "truncate")
_FULL, _NOTHING = "f", "n"

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


@dataclass(frozen=True, slots=True)
class Log:
    """`changes` at one Delta version; `watermark` is that version's."""

    folder: Path
    delta: DeltaTable
    watermark: Lsn

    def files(self, first: Lsn, last: Lsn) -> tuple[str, ...]:
        """Paths of the Parquet files that may hold changes in [`first`, `last`], by the statistics in Delta's log."""
        actions = pa.table(self.delta.get_add_actions(flatten=True))
        above, below = pc.less(actions["max.lsn"], int(first)), pc.greater(actions["min.lsn"], int(last))
        # A file without statistics may hold anything.
        outside = pc.fill_null(pc.or_kleene(above, below), False)
        paths = actions.filter(pc.invert(outside))["path"].to_pylist()
        return tuple(str(self.folder / path) for path in paths)


@dataclass(frozen=True, slots=True)
class Tail:
    """The changes of `table` in (its position, `upto`], read from `files`: those of one version of `changes`."""

    table: HistoryTable
    upto: Lsn
    files: tuple[str, ...]
    shape: TailShape | None
    refusal: Unsupported | None


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
    relations = read_relations(lake) if groups else {}
    return [_tail(table, groups[table.name], relations, log, upto) for table in due if table.name in groups]


def _query(log: Log, due: Mapping[HistoryTable, int], upto: Lsn) -> list[dict[str, Any]]:
    after = ", ".join(f"({_text(t.name.schema)}, {_text(t.name.table)}, {lsn:d})" for t, lsn in due.items())
    ops = ", ".join(_text(op) for op in FOLDED_OPS)
    sql = _TAILS.format(after=after, lowest=f"{min(due.values()):d}", upto=f"{upto:d}", ops=ops)
    found = pa.table(QueryBuilder().register("changes", log.delta).execute(sql).read_all())
    return list(found.to_pylist())


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _tail(
    table: HistoryTable, groups: list[dict[str, Any]], relations: Mapping[int, Relation], log: Log, upto: Lsn
) -> Tail:
    changed = [row for row in groups if not _goes_on(relations[row["relation"]], table)]
    if not changed:
        return Tail(table, upto, _files(groups, log, upto), _shape(groups, relations), None)
    first = min(changed, key=lambda row: row["first_lsn"])
    lsn = Lsn(first["first_lsn"])
    foldable = [row for row in groups if row["first_lsn"] < lsn]
    shape = _shape(foldable, relations) if foldable else None
    files = _files(foldable, log, Lsn(lsn - 1)) if foldable else ()
    return Tail(table, Lsn(lsn - 1), files, shape, _refusal(table, relations[first["relation"]], lsn))


def _files(groups: Iterable[dict[str, Any]], log: Log, upto: Lsn) -> tuple[str, ...]:
    return log.files(Lsn(min(row["first_lsn"] for row in groups)), upto)


def _goes_on(relation: Relation, table: HistoryTable) -> bool:
    return _types(relation.columns) == _types(table.columns) and _identity_problem(relation, table) is None


def _identity_problem(relation: Relation, table: HistoryTable) -> str | None:
    """What is wrong with the replica identity for a history with this key; FULL sends whatever any key needs.

    Under NOTHING the server refuses what would need an identity.
    """
    if relation.replica_identity in {_FULL, _NOTHING}:
        return None
    sent = [column.name for column in relation.columns if column.key]
    wanted = [column.name for column in table.key]
    if sent == wanted:
        return None
    is_now = ", ".join(sent) or "no column"
    return f"replica identity is {is_now}, the history's key is {', '.join(wanted) or 'the whole row'}"


def _shape(groups: Iterable[dict[str, Any]], relations: Mapping[int, Relation]) -> TailShape:
    rows = list(groups)
    return TailShape(
        rows=sum(row["rows"] for row in rows),
        inserts_only=all(row["inserts_only"] for row in rows),
        has_truncate=any(row["has_truncate"] for row in rows),
        has_key_change=any(row["has_old"] for row in rows),
        old_is_whole=all(relations[row["relation"]].replica_identity == _FULL for row in rows),
        unchanged=frozenset(p for row in rows for positions in row["unchanged"] or () for p in positions),
    )


def _types(columns: Iterable[Column]) -> list[tuple[str, int, int]]:
    return [(column.name, column.type_oid, column.typmod) for column in columns]


def _refusal(table: HistoryTable, relation: Relation, lsn: Lsn) -> Unsupported:
    if _types(table.columns) == _types(relation.columns):
        return Unsupported(
            f"{table.name} changed at {lsn}: {_identity_problem(relation, table)}",
            hint="This version does not follow that. Everything before that LSN is in the history; "
            "all changes after it are kept in `changes`.",
        )
    was, now = _types(table.columns), _types(relation.columns)
    gone = [f"{name} (type {oid}, modifier {mod})" for name, oid, mod in was if (name, oid, mod) not in now]
    new = [f"{name} (type {oid}, modifier {mod})" for name, oid, mod in now if (name, oid, mod) not in was]
    parts = [f"the history has {', '.join(gone)}"] * bool(gone) + [f"the stream has {', '.join(new)}"] * bool(new)
    what = "; ".join(parts) or "the columns are in another order"
    return Unsupported(
        f"columns of {table.name} changed at {lsn}: {what}",
        hint="This version does not follow schema changes. Everything before that LSN is in the history; "
        "all changes after it are kept in `changes`.",
    )
