"""Commits that touched a row or changed a column, as LSNs: by `changes`, and by the versions of a history.

A transaction changed a column if some row has another value in it afterwards. A value that was changed and changed back
within the transaction does not count, nor does the first value of a new row.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import chain, groupby

from auditlake.apply.tails import FOLDED_OPS_SQL
from auditlake.audit.changes import States, Step, Values, changes_of, in_changes, key_places
from auditlake.audit.history_conditions import HERE, THERE, same_in_history
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.overlay import Overlay, overlaid
from auditlake.audit.row_key import Key
from auditlake.audit.versions import history_texts, row_values, versions_of
from auditlake.delta.sql import select
from auditlake.errors import BadUsage
from auditlake.lake.duckdb_rows import apart
from auditlake.lake.history import HistoryTable
from auditlake.lsn import LAST_LSN, Lsn
from auditlake.messages import say


def lsns_of_table(
    reader: Reader, table: HistoryTable, span: Span, key: Key | None, column: str | None
) -> frozenset[int] | None:
    """Return the transactions of a span that touched the key and changed the column; None without a filter.

    Raises BadUsage if the table has no such column, NotAnswerable if changes of the span have expired, or the versions
    with the values before them.
    """
    lsns: frozenset[int] | None = None
    asked = f"the changes of {table.label}"
    if key is not None or column is not None:
        span = reader.with_changes(span, asked)
    if key is not None:
        lsns = frozenset(_of_key(reader, table, span, key))
        _say_emptied(reader, table, span)
    if column is not None:
        span = _with_values(reader, table, reader.with_versions(table, span, asked))
        changed = lsns_of_columns(reader, table, span, reader.physical_columns(table, column, span.upto))
        lsns = changed if lsns is None else lsns & changed
    return lsns


def _say_emptied(reader: Reader, table: HistoryTable, span: Span) -> None:
    """Report each TRUNCATE up to a table's horizon: only the versions that have expired tell which rows it ended."""
    if not table.has_expired or span.after >= table.horizon:
        return
    truncates = lsns_of_changes(reader, [table], span.until(table.horizon), "op = 'truncate'")
    if truncates:
        at = ", ".join(str(Lsn(lsn)) for lsn in sorted(truncates))
        reader.say_expired(table, span, f"whether the row was there at the TRUNCATE of {at} is not known")


def _with_values(reader: Reader, table: HistoryTable, span: Span) -> Span:
    """Return the part of a span after the table's horizon; report changes before it, of which no values are known."""
    if span.after >= table.horizon:
        return span
    if lsns_of_changes(reader, [table], span.until(table.horizon)):
        say(f"the history of {table.label} begins at {table.horizon}: the answer starts there")
    return replace(span, after=table.horizon)


def touches_key(reader: Reader, table: HistoryTable, key: Key) -> bool:
    """Return whether any known transaction touched the key, or the snapshot has it."""
    everything = Span(Lsn(0), reader.watermark)
    versions = versions_of(reader, table, [key], reader.watermark)
    return bool(versions) or any(True for _ in _of_key(reader, table, everything, key))


def _of_key(reader: Reader, table: HistoryTable, span: Span, key: Key) -> Iterator[int]:
    condition = in_changes(table, reader.relations_of(table), [key])
    yield from lsns_of_changes(reader, [table], span, condition)
    for version in versions_of(reader, table, [key], span.upto):
        if version.end is not None and version.end.op == "truncate" and version.end.lsn in span:
            yield version.end.lsn


def lsns_of_changes(reader: Reader, tables: Iterable[HistoryTable], span: Span, condition: str = "true") -> list[int]:
    """Return the transactions of a span with changes of some tables that meet a condition."""
    if reader.changes is None:
        return []
    about = " or ".join(f"({reader.about(table.name)})" for table in tables) or "false"
    where = f"({about}) and op in ({FOLDED_OPS_SQL}) and {span.until(reader.watermark).sql()}"
    sql = f"select distinct lsn from changes where {where} and ({condition})"
    lsns: list[int] = select(sql, changes=reader.changes_in(span))["lsn"].to_pylist()
    return lsns


def lsns_of_columns(reader: Reader, table: HistoryTable, span: Span, stored: Iterable[str]) -> frozenset[int]:
    """Return the transactions of a span that changed one of these physical columns while the table had it.

    The span begins at the horizon of the table, or later.

    Raises BadUsage if the table has no key, NotAnswerable if the history cannot follow a schema change of the span.
    """
    if not table.key:
        raise BadUsage(f"{table.last_name} has no key, so the changes of a column cannot be followed", None)
    reader.check_followed(table, span.upto)
    own = reader.own_names(table)
    columns = reader.shapes_of(table).followed.physical
    ends = {column.stored: LAST_LSN if column.until is None else column.until for column in columns}
    lasts: dict[str, Lsn] = {}
    for each in stored:
        name = own.get(each, each)
        lasts[name] = max(lasts.get(name, Lsn(0)), Lsn(ends.get(each, LAST_LSN) - 1))
    overlay = overlaid(reader, table, span.upto)
    found = (_of_own(reader, overlay, span.until(last), name) for name, last in lasts.items())
    return frozenset(chain.from_iterable(found))


def _of_own(reader: Reader, overlay: Overlay, span: Span, column: str) -> Iterator[int]:
    """Yield the transactions of a span that changed a column: by the versions of a key, and of moved rows by replay."""
    if not any(each.name == column for each in overlay.table.columns):
        return
    timeline = reader.known.timeline(overlay.table)
    moves = _lsns_of_moves(reader, overlay.table, span)
    moved = {lsn for lsn in moves if timeline.at(Lsn(lsn - 1)) is None}  # in a gap, the rows before are not known
    yield from _in_versions(reader, overlay, span, column) - moved
    if moved:
        yield from _replayed(reader, overlay, moved, column)


def _in_versions(reader: Reader, overlay: Overlay, span: Span, column: str) -> set[int]:
    table, later = overlay.table, reader.later(overlay.table.name).get(column)
    same = " and ".join(same_in_history(table, c.name) for c in table.key)
    # A version that ended before ADD COLUMN has no value to compare with.
    span = span if later is None else Span(Lsn(max(span.after, later.since - 1)), span.upto)
    sql = (
        f"select distinct {THERE}._from_lsn as lsn from history {HERE} join history {THERE}"
        f" on {HERE}._to_lsn = {THERE}._from_lsn and {same}"
        f" where {span.sql(f'{THERE}._from_lsn')} and {THERE}._op = 'update'"
        f" and not ({same_in_history(table, column, apart)})"
    )
    files = overlay.within_any({"_from_lsn": span.bounds}, {"_to_lsn": span.bounds})
    return set(select(sql, history=files)["lsn"].to_pylist())


def _lsns_of_moves(reader: Reader, table: HistoryTable, span: Span) -> set[int]:
    """Return the transactions that changed keys: only the changes link their rows, the history does not."""
    names = [c.name for c in table.key]
    moved = " or ".join(
        f"(relation = {number:d} and (" + " or ".join(f"old[{p + 1}] <> new[{p + 1}]" for p in places) + "))"
        for number, places in key_places(reader.relations_of(table), names).items()
    )
    return set(
        lsns_of_changes(reader, [table], span, f"op = 'update' and \"old\" is not null and ({moved or 'false'})")
    )


def _replayed(reader: Reader, overlay: Overlay, lsns: Collection[int], column: str) -> Iterator[int]:
    """Yield those of some transactions that changed the column, by replaying their changes row by row."""
    table, listed = overlay.table, f"in ({', '.join(map(str, sorted(lsns)))})"
    key, rows = tuple(column.name for column in table.key), dict[int, dict[Key, Values]]()
    ended = overlay.within(_to_lsn=(min(lsns), max(lsns)))
    for row in history_texts(reader, table, f"_to_lsn {listed}", files=ended).to_pylist():
        values = row_values(row)
        rows.setdefault(row["_to_lsn"], {})[tuple(str(values[name]) for name in key)] = values
    span = Span(Lsn(min(lsns) - 1), Lsn(max(lsns)))
    for lsn, transaction in groupby(changes_of(reader, table.name, span, f"lsn {listed}"), key=lambda each: each.lsn):
        states = States(key, rows.get(lsn, {}))
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
