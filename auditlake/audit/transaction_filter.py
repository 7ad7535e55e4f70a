"""Filters of the log by key and by column: the LSNs of the transactions that touched one or changed the other.

A transaction changed a column if it left some row with another value in it. A value changed and changed back within the
transaction does not count, nor does the first value of a new row.
"""

from collections.abc import Iterator
from itertools import groupby

from auditlake.audit.changes import ROW_OPS, Step, Values, changes_of
from auditlake.audit.keys import HERE, THERE, Key, in_changes, key_places, same_in_history
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.transaction_detail import states_before
from auditlake.audit.versions import versions_of
from auditlake.errors import BadUsage
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn


def lsns_of_table(
    reader: Reader, table: HistoryTable, span: Span, key: Key | None, column: str | None
) -> frozenset[int] | None:
    """Return the transactions of a span that touched the key and changed the column; None without a filter.

    Raises BadUsage if the table has no such column.
    """
    lsns: frozenset[int] | None = None
    if key is not None:
        lsns = frozenset(_of_key(reader, table, span, key))
    if column is not None:
        changed = frozenset(_of_column(reader, table, span, column))
        lsns = changed if lsns is None else lsns & changed
    return lsns


def touches_key(reader: Reader, table: HistoryTable, key: Key) -> bool:
    """Return whether any known transaction touched the key, or the snapshot has it."""
    everything = Span(Lsn(0), reader.watermark)
    versions = versions_of(reader, table, [key], reader.watermark)
    return bool(versions) or any(True for _ in _of_key(reader, table, everything, key))


def _of_key(reader: Reader, table: HistoryTable, span: Span, key: Key) -> Iterator[int]:
    condition = in_changes(table, reader.relations, [key])
    yield from _lsns(reader, table, span, condition)
    for version in versions_of(reader, table, [key], span.upto):
        if version.end is not None and version.end.op == "truncate" and version.end.lsn in span:
            yield version.end.lsn


def _lsns(reader: Reader, table: HistoryTable, span: Span, condition: str) -> list[int]:
    if reader.changes is None:
        return []
    where = f"{reader.about(table.name)} and op in {ROW_OPS} and lsn > {span.after:d} and lsn <= {span.upto:d}"
    sql = f"select distinct lsn from changes where {where} and lsn <= {reader.watermark:d} and ({condition})"
    lsns: list[int] = reader.query(sql, changes=reader.changes)["lsn"].to_pylist()
    return lsns


def _of_column(reader: Reader, table: HistoryTable, span: Span, column: str) -> Iterator[int]:
    own = reader.own_names(table)
    known = {name: name for name in own.values()}
    known |= {c.name: own.get(c.stored, c.stored) for c in reader.columns_at(table, span.upto)}
    if column not in known:
        raise BadUsage(f"{table.name} has no column {column}", f"It has {', '.join(known)}.")
    column = known[column]
    if not table.key:
        raise BadUsage(f"{table.name} has no key, so the changes of a column cannot be followed", None)
    merged = Span(span.after, Lsn(min(span.upto, table.position)))
    if merged.after < merged.upto:
        moved = _lsns_of_moves(reader, table, merged)
        in_history = column in {c.name for c in table.columns}
        yield from (
            lsn for lsn in (_in_history(reader, table, merged, column) if in_history else ()) if lsn not in moved
        )
        for lsn in moved:
            yield from _replayed(reader, table, Span(Lsn(lsn - 1), Lsn(lsn)), column)
    if span.upto > table.position:
        tail = Span(Lsn(max(span.after, table.position)), span.upto)
        yield from _replayed(reader, table, tail, column)


def _in_history(reader: Reader, table: HistoryTable, span: Span, column: str) -> list[int]:
    same = " and ".join(same_in_history(table, c.name) for c in table.key)
    later = reader.later(table.name).get(column)
    # A version that ended before ADD COLUMN has no value to compare with.
    after = span.after if later is None else max(span.after, later.since - 1)
    sql = (
        f"select distinct {THERE}._from_lsn as lsn from history {HERE} join history {THERE}"
        f" on {HERE}._to_lsn = {THERE}._from_lsn and {same}"
        f" where {THERE}._from_lsn > {after:d} and {THERE}._from_lsn <= {span.upto:d} and {THERE}._op = 'update'"
        f" and not ({same_in_history(table, column)})"
    )
    lsns: list[int] = reader.query(sql, history=reader.history(table))["lsn"].to_pylist()
    return lsns


def _lsns_of_moves(reader: Reader, table: HistoryTable, span: Span) -> set[int]:
    """Return the transactions that changed keys: only the changes link their rows, the history does not."""
    names = [c.name for c in table.key]
    moved = " or ".join(
        f"(relation = {number:d} and (" + " or ".join(f"old[{p + 1}] <> new[{p + 1}]" for p in places) + "))"
        for number, places in key_places(table, reader.relations, names).items()
    )
    return set(_lsns(reader, table, span, f"op = 'update' and \"old\" is not null and ({moved or 'false'})"))


def _replayed(reader: Reader, table: HistoryTable, span: Span, column: str) -> Iterator[int]:
    """Yield the transactions that changed the column, by replaying the changes of a span row by row."""
    states = states_before(reader, table, span)
    for lsn, transaction in groupby(changes_of(reader, table.name, span), key=lambda change: change.lsn):
        first: dict[Key, Values | None] = {}
        for change in transaction:
            _record_first(states.apply(change), first)
        if any(row is not None and row.get(column) != states.rows[key].get(column) for key, row in first.items()):
            yield lsn


def _record_first(step: Step, first: dict[Key, Values | None]) -> None:
    """Record each touched row as it was before the transaction, None for a new one, under its present key."""
    if step.change.op == "truncate":
        first.clear()
        return
    was = None if step.key_before is None else first.pop(step.key_before, step.before)
    if step.key_after is not None:
        first[step.key_after] = was
