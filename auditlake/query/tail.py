"""The tails that a statement's readings need: found for all of them together, before Spark starts. No JVM.

Positions of idle tables never move, so a table may be idle or have a tail that begins right after its position, and
looking for it in `changes` would read everything since. `transactions` is many times smaller and names the tables of
each commit: it says which tables have a tail at all, and where it begins.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from auditlake.apply.tails import Log, Tail, find_tails, open_log
from auditlake.lake.history import HistoryTable
from auditlake.lake.log import open_delta, select
from auditlake.lsn import Lsn
from auditlake.query.moments import Known
from auditlake.query.selection import Selection, State

Tails = Mapping[tuple[HistoryTable, Lsn], Tail]
"""The tail of a table up to an LSN; a pair that is not there has none."""

_TOUCHED = """
select name, min(lsn) as first_lsn
from (select lsn, unnest(tables) as name from transactions where lsn > {lowest} and lsn <= {upto})
group by name
"""


def upto(known: Known, selection: Selection) -> Lsn:
    """Say up to which LSN a selection looks: a state to its own, versions to all that is known."""
    return known.changes_up_to(selection.lsn if isinstance(selection, State) else known.now_lsn)


def find_reading_tails(known: Known, readings: Iterable[tuple[HistoryTable, Selection]]) -> Tails:
    """Find what lies between the positions of these tables and the LSNs up to which they are read.

    Raises Unsupported where the columns of a table changed there.
    """
    due: dict[Lsn, set[HistoryTable]] = defaultdict(set)
    for table, selection in readings:
        if (last := upto(known, selection)) > table.position:
            due[last].add(table)
    log = open_log(known.lake) if due else None
    if log is None:
        return {}
    found = [(tail, last) for last, tables in due.items() for tail in _up_to(known, log, tables, last)]
    for tail, _ in found:
        if tail.refusal is not None:
            raise tail.refusal
    return {(tail.table, last): tail for tail, last in found}


def _up_to(known: Known, log: Log, tables: Iterable[HistoryTable], last: Lsn) -> list[Tail]:
    touched = _touched(known, Lsn(min(table.position for table in tables)), last)
    # A commit at the first LSN of a tail belongs to it, hence the 1.
    after = {t: max(t.position, touched[str(t.name)] - 1) for t in tables if str(t.name) in touched}
    return find_tails(known.lake, log, after, last)


def _touched(known: Known, lowest: Lsn, last: Lsn) -> dict[str, int]:
    """The tables that were changed in (`lowest`, `last`], each with the first LSN there that changed it."""
    transactions = open_delta(known.lake.transactions)
    if transactions is None:
        return {}
    query = _TOUCHED.format(lowest=f"{lowest:d}", upto=f"{last:d}")
    rows = select(transactions, "transactions", query)
    return dict(zip(rows["name"].to_pylist(), rows["first_lsn"].to_pylist(), strict=True))
