"""Transactions and rows over time: the log, one transaction, the life of a row, two moments compared."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

from pydantic import Field

from auditlake.audit import json_output as objects
from auditlake.audit.answers import BlamedColumn, RowEvent, Texts, differences
from auditlake.audit.bounds import Room
from auditlake.audit.changes import Values
from auditlake.audit.diff import ADDED, MODIFIED, REMOVED, compared_rows
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.overlay import overlaid
from auditlake.audit.queries import Life, RowQuestion, blame_in, life_of, table_of_both
from auditlake.audit.row_key import InOrder, parse_key
from auditlake.audit.touched_rows import lsns_of_changes, lsns_of_table
from auditlake.audit.transaction_contents import Message, ShownChange, contents, find_transaction
from auditlake.audit.transactions import CHANGED_BY, MOST_LISTED, OfTable, Transaction, TransactionFilters, find
from auditlake.audit.undo_script import patch
from auditlake.delta.sql import select
from auditlake.errors import AuditlakeError, BadUsage, NotAnswerable
from auditlake.lake.gaps import Gap
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.messages import noted, say
from auditlake.serve import models
from auditlake.serve.lake_answers import At, moment, moment_at
from auditlake.serve.resources import Resources, as_lsn
from auditlake.serve.table_answers import OneTable
from auditlake.sql_names import standard_literal

_MOST_CHANGES = 50_000
_CHUNK = 2_000


class OfLog(At):
    """Transactions up to a moment."""

    since: str | None = Field(default=None, description="From this moment on, inclusive.", max_length=200)
    before: str | None = Field(
        default=None, description="Only transactions before this LSN: the next page.", max_length=50
    )
    table: list[str] = Field(default=[], max_length=10, description="That changed this table; each of several.")
    op: Literal["insert", "update", "delete"] | None = Field(
        default=None, description="With such a change, of these tables if there are any; TRUNCATE deletes, too."
    )
    actor: str | None = Field(default=None, description="By this actor, ignoring case.", max_length=1000)
    reason: str | None = Field(default=None, description="Whose reason contains this.", max_length=1000)
    unattributed: bool = Field(default=False, description="Without an actor.")
    limit: int = Field(default=50, ge=1, le=500)


class OfTransaction(At):
    """One transaction; with `table` and `key`, its neighbours in the life of that row, too."""

    transaction: str = Field(description="Its commit LSN, or xid:N.", max_length=50)
    table: str | None = Field(default=None, max_length=300)
    key: list[str] = Field(default=[], max_length=32, description="The row's key, in the order of the key's columns.")
    limit: int = Field(default=500, ge=1, le=5_000)


class OfRow(OneTable):
    """A row."""

    key: list[str] = Field(description="The row's key, in the order of the key's columns.", max_length=32)
    column: str | None = Field(default=None, description="Only what changed this column.", max_length=300)
    versus: str | None = Field(default=None, description="Another moment to compare the row with.", max_length=200)


class OfComparison(models.Model):
    """Two moments, and the tables to compare: all that changed in between by default."""

    before: str = Field(description="The first moment.", max_length=200)
    after: str | None = Field(default=None, description="The second moment; now by default.", max_length=200)
    table: list[str] = Field(default=[], max_length=50)
    limit: int = Field(default=50, ge=1, le=500, description="Rows of each kind and table.")


def log(resources: Resources, asked: OfLog) -> models.LogJson:
    """List transactions up to a moment, newest first."""
    reader = resources.reader(asked.at)
    lsn, at = moment(resources, reader, asked.at)
    upto = lsn if asked.before is None else Lsn(min(lsn, as_lsn(asked.before) - 1))
    span = Span(_after(reader, asked.since), upto)
    wanted = _wanted(reader, span, asked)
    found = list(islice(_backwards(reader, span, wanted, asked.limit + 1), asked.limit + 1))
    room = Room()
    page = room.fitting(map(objects.transaction_json, found[: asked.limit]))
    room.require(page, "the first transaction", "auditlake log shows it.")
    before = page[-1]["lsn"] if len(found) > len(page) else None
    expired = max(reader.known.expired_transactions, Lsn(0) if wanted.lsns is None else reader.expired)
    after = span.after if before is None else found[len(page) - 1].lsn
    return models.LogJson(
        at=at,
        transactions=page,
        before=before,
        expired=str(expired) if expired > span.after else None,
        notes=reader.known.missing(Lsn(max(after, expired)), upto, wanted.histories(reader)),
    )


def _after(reader: Reader, since: str | None) -> Lsn:
    """Return the LSN after which transactions are asked for; raises NotAnswerable if they have expired."""
    if since is None:
        return Lsn(0)
    span = reader.span(since, None)
    reader.with_transactions(span)
    return span.after


def _wanted(reader: Reader, span: Span, asked: OfLog) -> TransactionFilters:
    tables = tuple(OfTable.of(reader, reader.table(name, span.upto), name) for name in asked.table if name)
    lsns = None if asked.op is None else _lsns_of_op(reader, span, tables, asked.op)
    return TransactionFilters(tables, lsns, asked.op, asked.actor, asked.reason, asked.unattributed, committed=True)


def _lsns_of_op(reader: Reader, span: Span, tables: Iterable[OfTable], op: str) -> frozenset[int] | None:
    """Return the transactions with such a change in tables; None if any table counts, and all are shown.

    Raises NotAnswerable if changes of the span have expired.
    """
    named = [each for table in tables for each in reader.known.had(table.name)]
    if not named and reader.known.only is None:
        return None
    span = reader.with_changes(span, f"transactions with {op}s")
    condition = " or ".join(f"op = '{each}'" for each in CHANGED_BY[op])
    return frozenset(lsns_of_changes(reader, named or reader.known.listed, span, condition))


def _backwards(reader: Reader, span: Span, wanted: TransactionFilters, limit: int) -> Iterator[Transaction]:
    """Yield transactions, newest first; filters that SQL does not know are applied to one chunk after another."""
    if wanted.is_plain:
        yield from find(reader, span, wanted, limit)
        return
    if wanted.lsns is not None:
        lsns = sorted(wanted.lsns, reverse=True)
        for part in (lsns[at : at + MOST_LISTED] for at in range(0, len(lsns), MOST_LISTED)):
            listed = replace(wanted, lsns=frozenset(part))
            yield from find(reader, Span(Lsn(part[-1] - 1), Lsn(part[0])), listed, None)
        return
    plain = TransactionFilters(wanted.tables, op=wanted.op, committed=True)
    upto = span.upto
    while True:
        chunk = list(find(reader, Span(span.after, upto), plain, _CHUNK))
        yield from (each for each in chunk if wanted.takes(each))
        if len(chunk) < _CHUNK:
            return
        upto = Lsn(chunk[-1].lsn - 1)


def transaction(resources: Resources, asked: OfTransaction) -> models.TransactionDetailJson:
    """Return a transaction with all its changes, in order; raises BadUsage, NotAnswerable."""
    reader = resources.reader(asked.transaction if asked.at is None else asked.at)
    room = Room()
    with noted() as notes:
        found, _ = find_transaction(reader, asked.transaction)
        described = room.fitting([objects.transaction_json(found)])
        room.require(described, "the context of the transaction", "auditlake show shows it.")
        changes = iter(()) if found.count > _MOST_CHANGES else map(_change, contents(reader, found))
        shown = room.fitting(islice(changes, asked.limit))
    return models.TransactionDetailJson(
        at=moment_at(resources, reader, found.lsn),
        transaction=described[0],
        neighbours=list(_neighbours(resources, reader, found, asked)),
        changes=shown,
        more=room.is_cut or next(changes, None) is not None or found.count > _MOST_CHANGES,
        notes=notes,
    )


def _change(each: ShownChange | Message) -> objects.ContentJson:
    found = objects.content_json(each)
    if isinstance(each, ShownChange) and "changed" in found:
        found["unchanged"] = _unchanged(each.step.before, each.step.after, found["changed"])
    return found


def _unchanged(before: Texts | None, after: Texts | None, changed: objects.Changed) -> int:
    """Return how many columns have the same value on both sides."""
    return len(set(before or ()) & set(after or ())) - sum(len(sides) > 1 for sides in changed.values())


def _neighbours(
    resources: Resources, reader: Reader, found: Transaction, asked: OfTransaction
) -> Iterator[models.NeighboursJson]:
    commits = resources.timeline
    number = commits.number(found.lsn)
    before, after = (found and found[0] for found in (commits.commit(number - 1), commits.commit(number + 1)))
    yield models.NeighboursJson(by="transaction", before=_text(before), after=_text(after))
    if asked.table and asked.key:
        yield _by_row(reader, found.lsn, asked.table, asked.key)
    for name in found.tables[:10]:
        yield _by_table(reader, found.lsn, name)
    if found.context.actor is not None:
        wanted = TransactionFilters(actor=found.context.actor)
        last = next(_backwards(reader, Span(Lsn(0), Lsn(found.lsn - 1)), wanted, 1), None)
        following = _next_by(reader, found.lsn, wanted)
        yield models.NeighboursJson(
            by=f"actor {found.context.actor}",
            before=_text(None if last is None else last.lsn),
            after=_text(None if following is None else following.lsn),
        )


def _by_row(reader: Reader, lsn: Lsn, name: str, values: list[str]) -> models.NeighboursJson:
    """Return the neighbours of a row, by the columns that are its key at an LSN: by others it has no link here."""
    table = reader.keyed_table(name, lsn)
    key = parse_key(table, InOrder(tuple(values))).key
    first, last = reader.shapes_of(table).of_one_key(lsn)
    span = Span(Lsn(max(reader.expired, first - 1)), Lsn(min(reader.watermark, last)))
    lsns = lsns_of_table(reader, table, span, key, None) or ()
    earlier = max((each for each in lsns if each < lsn), default=None)
    later = min((each for each in lsns if each > lsn), default=None)
    return models.NeighboursJson(by="row", before=_text(earlier), after=_text(later))


def _text(stored: int | None) -> str | None:
    """Return the text of an LSN, or of one as a table stores it."""
    return None if stored is None else str(Lsn(stored))


def _by_table(reader: Reader, lsn: Lsn, name: str) -> models.NeighboursJson:
    sql = (
        f"select max(lsn) filter (where lsn < {lsn:d}) as before, min(lsn) filter (where lsn > {lsn:d}) as after"
        f" from transactions where lsn <= {reader.watermark:d} and array_has(tables, {standard_literal(name)})"
    )
    row = select(sql, transactions=reader.transactions).to_pylist()[0]
    return models.NeighboursJson(by=f"table {name}", before=_text(row["before"]), after=_text(row["after"]))


def _next_by(reader: Reader, lsn: Lsn, wanted: TransactionFilters) -> Transaction | None:
    """Return the first later transaction that matches, reading one chunk of commits after another."""
    after = lsn
    while True:
        sql = f"select lsn from transactions where lsn > {after:d} and lsn <= {reader.watermark:d}"
        sql += f" and context is not null order by lsn limit {_CHUNK:d}"
        lsns = select(sql, transactions=reader.transactions)["lsn"].to_pylist()
        if not lsns:
            return None
        chunk = list(find(reader, Span(after, Lsn(lsns[-1])), wanted, None))
        if chunk:
            return chunk[-1]
        after = Lsn(lsns[-1])


def row(resources: Resources, asked: OfRow) -> models.RowHistoryJson:
    """Return the life of a row up to a moment; raises BadUsage, NotAnswerable."""
    reader = resources.reader(asked.at)
    lsn, at = moment(resources, reader, asked.at)
    with noted() as notes:
        life = life_of(reader, RowQuestion(asked.table, InOrder(tuple(asked.key)), None, asked.at))
        blamed = _blamed(life)
        entries = list(life.entries())
    room = Room()
    blame = room.fitting(map(objects.blame_json, blamed))
    only = None if asked.column is None else _Column.of(reader, life.table, asked.column, lsn)
    chosen = (entry for entry in entries if isinstance(entry, RowEvent))
    listed = [entry for entry in chosen if only is None or only.is_changed(entry)]
    events = room.fitting(_event(entry, only) for entry in listed)
    room.require(events, "the row", "auditlake row shows it.")
    return models.RowHistoryJson(
        at=at,
        table=str(life.table.name_at(lsn)),
        key_columns=[column.name for column in life.table.key],
        key=list(life.keys[0]),
        exists=life.exists,
        notes=notes,
        events=events,
        gaps=[
            *_parked(reader, life.table, lsn),
            *(objects.gap_json(entry) for entry in entries if isinstance(entry, Gap)),
        ],
        blame=blame,
        before=str(listed[len(events)].at.lsn) if len(events) < len(listed) else None,
        difference=None if asked.versus is None else _versus(resources, life, asked.versus, lsn),
    )


def _blamed(life: Life) -> Sequence[BlamedColumn]:
    """Return who set each value of a row; if that is not known, say so: the rest of the page is."""
    try:
        return blame_in(life).columns
    except NotAnswerable as exc:
        say(f"who set each value is not known: {exc.message}")
        return ()


@dataclass(frozen=True, slots=True)
class _Column:
    """One column of a table under every name and type: its own names in versions, its names by moment."""

    reader: Reader
    table: HistoryTable
    own: frozenset[str]

    @classmethod
    def of(cls, reader: Reader, table: HistoryTable, name: str, lsn: Lsn) -> "_Column":
        """Find a column by the name that it has at `lsn`, or had; raises BadUsage if there is none."""
        names = reader.own_names(table)
        stored = reader.physical_columns(table, name, lsn)
        return cls(reader, table, frozenset(names.get(each, each) for each in stored))

    def is_changed(self, event: RowEvent) -> bool:
        """Return whether an event gave it another value, or began or ended the row."""
        before, after = event.before_texts, event.after_texts
        if before is None or after is None:
            return True
        return any(before.get(name) != after.get(name) for name in self.names(event.at.lsn or 0))

    def _name(self, own: str, lsn: int) -> str:
        names = self.reader.own_names(self.table)
        columns = self.reader.columns_at(self.table, Lsn(lsn))
        return next((c.name for c in columns if names.get(c.stored, c.stored) == own), own)

    def names(self, lsn: int) -> frozenset[str]:
        """Return the names that it has in rows as they are shown at an LSN."""
        return frozenset(self._name(own, lsn) for own in self.own)


def _parked(reader: Reader, table: HistoryTable, lsn: Lsn) -> Iterator[objects.GapJson]:
    for each in reader.known.unknown(table):
        if each.upto is None and each.after <= lsn:
            yield {"op": "gap", "lsn": str(each.after), "to_lsn": None, "reason": each.reason}


def _versus(resources: Resources, life: Life, when: str, lsn: Lsn) -> models.RowDifferenceJson:
    """Compare the row with its state at an earlier moment; raises BadUsage for a later one, NotAnswerable."""
    resources.reader(when)
    other, shown = moment(resources, life.reader, when)
    if other > lsn:
        raise BadUsage(f"{other} is after {lsn}", "Ask as of the later moment, versus the earlier one.")
    life.reader.check(life.table, other, when)
    if (rekeyed := life.reader.rekeyed_at(life.table, lsn)) is not None and other < rekeyed:
        raise NotAnswerable(
            f"the key of {life.table.last_name} changed at {rekeyed}, after {other}",
            "Compare with a moment after the change.",
        )
    before, after = (_state(life, each) for each in (other, lsn))
    changed = objects.changed_json(before, after)
    return models.RowDifferenceJson(
        before=shown,
        existed=before is not None,
        exists=after is not None,
        changed=changed,
        unchanged=_unchanged(before, after, changed),
    )


def _state(life: Life, lsn: Lsn) -> Values | None:
    """Return the row of a key at an LSN, None if there was none."""
    ended = [event for event in life.events if event.mark.lsn <= lsn]
    version = ended[-1].after if ended else None
    return None if version is None else life.reader.shown_at(life.table, lsn, version.values)


def _event(event: RowEvent, only: _Column | None) -> objects.EventJson:
    """Describe an event; `only` is the column whose values are shown, of all by default."""
    found = objects.event_json(event)
    if only is not None:
        names = only.names(event.at.lsn or 0)
        found["changed"] = {name: sides for name, sides in found["changed"].items() if name in names}
        found["row"] = found["row"] and {name: text for name, text in found["row"].items() if name in names}
    return found


def _moments(
    resources: Resources, asked: OfComparison
) -> tuple[Reader, tuple[Lsn, models.MomentJson], tuple[Lsn, models.MomentJson]]:
    resources.reader(asked.before)
    reader = resources.reader(asked.after)
    return reader, moment(resources, reader, asked.before), moment(resources, reader, asked.after)


def compare_moments(resources: Resources, asked: OfComparison) -> models.ComparisonJson:
    """Compare two moments, net: the rows of each table that were added, removed and modified, and its columns."""
    reader, (a, before), (b, after) = _moments(resources, asked)
    span = Span(min(a, b), max(a, b))
    room = Room()
    tables = [_table_diff(reader, table, (a, b), asked, room) for table in _tables(reader, span, asked.table)]
    return models.ComparisonJson(before=before, after=after, tables=[each for each in tables if each is not None])


def _tables(reader: Reader, span: Span, names: list[str]) -> list[HistoryTable]:
    """Return the tables named, or those that the span may have changed: in rows, in columns, or in a gap.

    Raises NotAnswerable if a name means one table before the span and another one after it.
    """
    if names:
        return [table_of_both(reader, name, span.after, span.upto) for name in names]
    changed: set[str] = set()
    if reader.transactions is not None:
        sql = (
            "select distinct t from (select unnest(tables) as t from transactions"
            f" where lsn > {span.after:d} and lsn <= {min(span.upto, reader.watermark):d})"
        )
        changed = set(select(sql, transactions=reader.transactions)["t"].to_pylist())
    known = {table.name: table for lsn in (span.after, span.upto) for table in reader.known.tables_at(lsn).values()}
    return [
        table
        for table in sorted(known.values(), key=lambda table: (table.name_at(span.upto), table.name))
        if changed.intersection(map(str, table.all_names))
        or span.after < table.first_snapshot_lsn <= span.upto
        or any(each.upto is None or each.upto > span.after for each in reader.known.timeline(table).recorded)
        or reader.columns_at(table, span.after) != reader.columns_at(table, span.upto)
    ]


def _check_both(reader: Reader, table: HistoryTable, lsns: tuple[Lsn, Lsn], asked: OfComparison) -> None:
    for lsn, when in zip(lsns, (asked.before, asked.after), strict=True):
        reader.check(table, lsn, when)


def _table_diff(
    reader: Reader, table: HistoryTable, lsns: tuple[Lsn, Lsn], asked: OfComparison, room: Room
) -> models.TableDiffJson | None:
    span = Span(min(lsns), max(lsns))
    name = str(table.name_at(span.upto))
    if span.after < table.first_snapshot_lsn <= span.upto and lsns[0] < lsns[1]:
        return _new(reader, table, span.upto, asked)
    try:
        _check_both(reader, table, lsns, asked)
    except AuditlakeError as exc:
        return models.TableDiffJson(table=name, problem=exc.message)
    found = compared_rows(reader, table, span, reverse=lsns[0] > lsns[1])
    stat = found.stat()
    entries: list[objects.DifferenceJson] = []
    for kind in (ADDED, REMOVED, MODIFIED):
        entries += room.fitting(map(objects.difference_json, islice(differences(found, (kind,)), asked.limit)))
    changes = found.schema_changes()
    if not asked.table and not changes and not (stat.added or stat.removed or stat.modified):
        return None
    return models.TableDiffJson(
        table=name,
        rows_before=stat.rows_before,
        rows_after=stat.rows_after,
        added=stat.added,
        removed=stat.removed,
        modified=stat.modified,
        schema_changes=changes,
        entries=entries,
        more=len(entries) < stat.added + stat.removed + stat.modified,
    )


def _new(reader: Reader, table: HistoryTable, upto: Lsn, asked: OfComparison) -> models.TableDiffJson:
    """Describe a table whose history begins between the moments: nothing is known of it at the first one."""
    name, begins = str(table.name_at(upto)), str(table.first_snapshot_lsn)
    try:
        reader.check(table, upto, asked.after)
    except AuditlakeError as exc:
        return models.TableDiffJson(table=name, begins=begins, problem=exc.message)
    rows = overlaid(reader, table, upto).count(upto) if table.key else None
    return models.TableDiffJson(table=name, begins=begins, rows_after=rows)


def undo_script(resources: Resources, asked: OfComparison) -> Iterator[str]:
    """Yield statements that bring PostgreSQL from the second moment back to the first; raises NotAnswerable."""
    reader, (a, _), (b, _) = _moments(resources, asked)
    span = Span(min(a, b), max(a, b))
    tables = _tables(reader, span, asked.table)
    for table in tables:
        _check_both(reader, table, (a, b), asked)  # also if one is new: nothing is known that could be restored
    yield from patch([compared_rows(reader, table, span, reverse=a < b) for table in tables])
