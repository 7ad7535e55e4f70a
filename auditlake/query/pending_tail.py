"""Tails of a statement's tables, found for all of them together before Spark starts. No JVM.

The position of an idle table does not move, so a table may be idle or have a tail right after its position, and
scanning `changes` for it would read everything since. `transactions` is many times smaller and names the tables of each
commit, so it shows which tables have a tail at all, and where the tail begins.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from auditlake.apply.tails import ChangesVersion, Schemas, Tail, find_tails
from auditlake.delta.sql import read_log_at, select
from auditlake.lake.column_names import columns_of_versions, shown_in_state
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.query.system_time import Selection, State
from auditlake.relation import Column
from auditlake.schema.evolution import find_shapes
from auditlake.temporal.knowledge import not_followed
from auditlake.temporal.moments import Known

_TOUCHED = """
select name, min(lsn) as first_lsn
from (select lsn, unnest(tables) as name from transactions where lsn > {lowest} and lsn <= {upto})
group by name
"""


@dataclass(frozen=True, slots=True)
class Tails:
    """The tails of a statement's tables, `found` by table and the LSN up to which it is read."""

    known: Known
    found: Mapping[tuple[HistoryTable, Lsn], Tail]

    def of(self, table: HistoryTable, selection: Selection) -> Tail | None:
        """Return the tail of a selection; None if its table has none."""
        return self.found.get((table, self.asked_upto(table, selection)))

    def asked_upto(self, table: HistoryTable, selection: Selection) -> Lsn:
        """Return the LSN up to which a selection asks, whether its table changed since its position or not."""
        return _upto(self.known, table, selection)

    def upto(self, table: HistoryTable, selection: Selection) -> Lsn:
        """Return the LSN up to which the table is read: with its tail, else its position."""
        last = self.asked_upto(table, selection)
        return last if (table, last) in self.found else table.position

    def columns_shown(self, table: HistoryTable, selection: Selection) -> tuple[tuple[Column, ...], dict[str, str]]:
        """Return the columns of a selection, and the name under which it shows each, by stored name."""
        tail = self.of(table, selection)
        if isinstance(selection, State):
            columns = table.columns_at(selection.lsn) if tail is None else tail.current
            return columns, shown_in_state(columns, raw=selection.raw)
        physical = table.columns if tail is None else tail.followed.physical
        return columns_of_versions(physical, tail.upto if tail else table.position)


def _upto(known: Known, table: HistoryTable, selection: Selection) -> Lsn:
    """Return the LSN up to which a selection reads: a state its own, versions all that is known of the table."""
    last = selection.lsn if isinstance(selection, State) else min(known.now_lsn, known.timeline(table).last)
    return known.changes_up_to(last)


def find_reading_tails(known: Known, readings: Iterable[tuple[HistoryTable, Selection]]) -> Tails:
    """Find the changes from each table's position to the LSN of its reading; raises NotAnswerable."""
    due: dict[Lsn, set[HistoryTable]] = defaultdict(set)
    for table, selection in readings:
        if (last := _upto(known, table, selection)) > table.position:
            due[last].add(table)
    if not known.positions.watermark:  # capture has not begun
        return Tails(known, {})
    found = [(tail, last) for last, tables in due.items() for tail in _up_to(known, tables, last)]
    for tail, last in found:
        if tail.is_cut or tail.refusal is not None:
            raise not_followed(tail.table, last, tail.upto, None if tail.is_cut else tail.refusal)
    return Tails(known, {(tail.table, last): tail for tail, last in found})


def _up_to(known: Known, tables: Collection[HistoryTable], last: Lsn) -> list[Tail]:
    touched = _touched(known, Lsn(min(table.position for table in tables)), last)
    shapes = find_shapes(tables, known.versions, last)
    after = {}
    for table, found in shapes.items():
        names = {str(table.name_at(table.position)), *(str(version.relation.name) for version in found.following)}
        lsns = [touched[name] for name in names if name in touched] + [version.lsn for version in found.following]
        if lsns:  # a commit at the first LSN of a tail belongs to it, hence the 1
            after[table] = max(table.position, min(lsns) - 1)
    if not after:
        return []
    version, etag = known.positions.delta_version, known.positions.etag
    log = ChangesVersion(read_log_at(known.lake.changes, version, etag), known.positions.watermark)
    return find_tails(known.lake, log, after, last, Schemas(known.versions, known.answers))


def _touched(known: Known, lowest: Lsn, last: Lsn) -> dict[str, int]:
    """Return the first LSN in (`lowest`, `last`] at which each table was changed, by the table's name."""
    transactions = known.open_transactions()
    if transactions is None:
        return {}
    query = _TOUCHED.format(lowest=f"{lowest:d}", upto=f"{last:d}")
    rows = select(query, transactions=transactions.within(lsn=(lowest + 1, last)))
    return dict(zip(rows["name"].to_pylist(), rows["first_lsn"].to_pylist(), strict=True))
