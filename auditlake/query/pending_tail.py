"""Tails of a statement's tables, found for all of them together before Spark starts. No JVM.

The position of an idle table does not move, so a table may be idle or have a tail right after its position, and
scanning `changes` for it would read everything since. `transactions` is many times smaller and names the tables of each
commit, so it shows which tables have a tail at all, and where the tail begins.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from auditlake.apply.tails import Log, Tail, find_tails, open_log
from auditlake.delta.append_table import open_delta, select
from auditlake.errors import NotAnswerable
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.query.system_time import Selection, State
from auditlake.temporal.moments import Known

Tails = Mapping[tuple[HistoryTable, Lsn], Tail]
"""Tails by table and the LSN up to which it is read; a missing pair has no tail."""

_TOUCHED = """
select name, min(lsn) as first_lsn
from (select lsn, unnest(tables) as name from transactions where lsn > {lowest} and lsn <= {upto})
group by name
"""


def upto(known: Known, table: HistoryTable, selection: Selection) -> Lsn:
    """Return the LSN up to which a selection reads: a state its own, versions all that is known of the table."""
    parked = known.parked.get(table.name)
    last = known.now_lsn if parked is None else min(known.now_lsn, parked.lsn)
    return known.changes_up_to(selection.lsn if isinstance(selection, State) else last)


def find_reading_tails(known: Known, readings: Iterable[tuple[HistoryTable, Selection]]) -> Tails:
    """Find the changes between the positions of these tables and the LSNs up to which they are read.

    Raises NotAnswerable if a table cannot be folded up to that LSN.
    """
    due: dict[Lsn, set[HistoryTable]] = defaultdict(set)
    for table, selection in readings:
        if (last := upto(known, table, selection)) > table.position:
            due[last].add(table)
    log = open_log(known.lake) if due else None
    if log is None:
        return {}
    found = [(tail, last) for last, tables in due.items() for tail in _up_to(known, log, tables, last)]
    for tail, last in found:
        if tail.refusal is not None:
            raise NotAnswerable(
                f"asked for {tail.table.name} as of {last}, it is known up to {tail.upto}: {tail.refusal.message}",
                f"Ask for a moment up to {tail.upto}. {tail.refusal.hint}",
            )
    return {(tail.table, last): tail for tail, last in found}


def _up_to(known: Known, log: Log, tables: Iterable[HistoryTable], last: Lsn) -> list[Tail]:
    touched = _touched(known, Lsn(min(table.position for table in tables)), last)
    # A commit at the first LSN of a tail belongs to it, hence the 1.
    after = {t: max(t.position, touched[str(t.name)] - 1) for t in tables if str(t.name) in touched}
    return find_tails(known.lake, log, after, last)


def _touched(known: Known, lowest: Lsn, last: Lsn) -> dict[str, int]:
    """Return the first LSN in (`lowest`, `last`] at which each table was changed, by the table's name."""
    transactions = open_delta(known.lake.transactions)
    if transactions is None:
        return {}
    query = _TOUCHED.format(lowest=f"{lowest:d}", upto=f"{last:d}")
    rows = select(transactions, "transactions", query)
    return dict(zip(rows["name"].to_pylist(), rows["first_lsn"].to_pylist(), strict=True))
