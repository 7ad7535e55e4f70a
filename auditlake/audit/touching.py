"""Which transactions touched a key, or changed a column. LSNs only; `transactions` tells the rest.

A transaction changed a column if it left some row with another value in it: what is set and set back within one
transaction does not count, nor does the first value of a new row.
"""

from collections.abc import Iterator
from itertools import groupby

from auditlake.audit.changes import ROW_OPS, Step, Values, changes_of
from auditlake.audit.keys import HERE, THERE, Key, in_changes, key_places, same_in_history
from auditlake.audit.reading import Reader, Span, about
from auditlake.audit.show import states_before
from auditlake.audit.versions import versions_of
from auditlake.errors import BadUsage
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn


def lsns_of_table(
    reader: Reader, table: HistoryTable, span: Span, key: Key | None, column: str | None
) -> frozenset[int] | None:
    """The transactions of a span that touched the key and changed the column; None where neither is asked for.

    Raises BadUsage where the table has no such column.
    """
    found: frozenset[int] | None = None
    if key is not None:
        found = frozenset(_of_key(reader, table, span, key))
    if column is not None:
        changed = frozenset(_of_column(reader, table, span, column))
        found = changed if found is None else found & changed
    return found


def _of_key(reader: Reader, table: HistoryTable, span: Span, key: Key) -> Iterator[int]:
    condition = in_changes(table, reader.relations, [key])
    yield from _lsns(reader, table, span, condition)
    for version in versions_of(reader, table, [key], span.upto):
        if version.end is not None and version.end.op == "truncate" and version.end.lsn in span:
            yield version.end.lsn


def _lsns(reader: Reader, table: HistoryTable, span: Span, condition: str) -> list[int]:
    if reader.changes is None:
        return []
    where = f"{about(table.name)} and op in {ROW_OPS} and lsn > {span.after:d} and lsn <= {span.upto:d}"
    sql = f"select distinct lsn from changes where {where} and lsn <= {reader.watermark:d} and ({condition})"
    found: list[int] = reader.query(sql, changes=reader.changes)["lsn"].to_pylist()
    return found


def _of_column(reader: Reader, table: HistoryTable, span: Span, column: str) -> Iterator[int]:
    known = {c.name: c for c in (*table.columns, *reader.columns_at(table, span.upto))}
    if column not in known:
        raise BadUsage(f"{table.name} has no column {column}", f"It has {', '.join(known)}.")
    if not table.key:
        raise BadUsage(f"{table.name} has no key: its rows have no past that a column could change in", None)
    merged = Span(span.after, Lsn(min(span.upto, table.position)))
    if merged.after < merged.upto:
        moved = _lsns_of_moves(reader, table, merged)
        in_history = column in {c.name for c in table.columns}
        yield from (
            lsn for lsn in (_in_history(reader, table, merged, column) if in_history else ()) if lsn not in moved
        )
        for lsn in moved:
            yield from _in_stretch(reader, table, Span(Lsn(lsn - 1), Lsn(lsn)), column)
    if span.upto > table.position:
        tail = Span(Lsn(max(span.after, table.position)), span.upto)
        yield from _in_stretch(reader, table, tail, column)


def _in_history(reader: Reader, table: HistoryTable, span: Span, column: str) -> list[int]:
    same = " and ".join(same_in_history(table, c.name) for c in table.key)
    later = reader.later(table.name).get(column)
    # A version that ended before the column was there has no value to compare with.
    after = span.after if later is None else max(span.after, later.since - 1)
    sql = (
        f"select distinct {THERE}._from_lsn as lsn from history {HERE} join history {THERE}"
        f" on {HERE}._to_lsn = {THERE}._from_lsn and {same}"
        f" where {THERE}._from_lsn > {after:d} and {THERE}._from_lsn <= {span.upto:d} and {THERE}._op = 'update'"
        f" and not ({same_in_history(table, column)})"
    )
    found: list[int] = reader.query(sql, history=reader.history(table))["lsn"].to_pylist()
    return found


def _lsns_of_moves(reader: Reader, table: HistoryTable, span: Span) -> set[int]:
    """The transactions that changed keys: history does not link their rows, the changes do."""
    names = [c.name for c in table.key]
    moved = " or ".join(
        f"(relation = {number:d} and (" + " or ".join(f"old[{p + 1}] <> new[{p + 1}]" for p in places) + "))"
        for number, places in key_places(table.name, reader.relations, names).items()
    )
    return set(_lsns(reader, table, span, f"op = 'update' and \"old\" is not null and ({moved or 'false'})"))


def _in_stretch(reader: Reader, table: HistoryTable, span: Span, column: str) -> Iterator[int]:
    """Go through the changes of a stretch row by row."""
    states = states_before(reader, table, span)
    for lsn, transaction in groupby(changes_of(reader, table.name, span), key=lambda change: change.lsn):
        first: dict[Key, Values | None] = {}
        for change in transaction:
            _follow(states.apply(change), first)
        if any(row is not None and row.get(column) != states.rows[key].get(column) for key, row in first.items()):
            yield lsn


def _follow(step: Step, first: dict[Key, Values | None]) -> None:
    """Keep what each touched row was before the transaction, None for a new one, by the key that it has now."""
    if step.change.op == "truncate":
        first.clear()
        return
    was = None if step.key_before is None else first.pop(step.key_before, step.before)
    if step.key_after is not None:
        first[step.key_after] = was
