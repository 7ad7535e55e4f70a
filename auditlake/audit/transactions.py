"""Transactions of the log: when, who, why, which tables, how many changes; filters on their changes, and one in detail.

**The log** lists transactions, newest first. Filters by key and by column read `changes` and return LSNs; the other
filters apply to those transactions. A transaction changed a column if some row has another value in it afterwards. A
value that was changed and changed back within the transaction does not count, nor does the first value of a new row.

**Schema changes** are sentences: the differences between two consecutive versions of a relation. A change that the DDL
trigger reported belongs to its own transaction, one that a Relation message showed to the transaction after the
message. A change that only the catalog showed is an entry of its own, with a range of LSNs. A dropped table has no
version; its parking record has the commit or the range (`lake.parking`).

**In detail** a transaction has every change in order with the row before and after it, and the logical messages. The
rows before it are read from the history and the tail, once per table, and the changes are applied to them, so a row
that was changed twice shows both steps. If a table has no history yet at that LSN, or the missing value of a column is
unknown, only the values in the change itself are known.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import merge
from itertools import chain, count, groupby, islice
from typing import Any

from auditlake.apply.tails import FOLDED_OPS_SQL
from auditlake.audit.changes import States, Step, Values, changes_of, in_changes, key_places
from auditlake.audit.diff import read_sides
from auditlake.audit.history_conditions import HERE, THERE, same_in_history
from auditlake.audit.lake_reader import Reader, Span, in_lsns, split_name
from auditlake.audit.overlay import Overlay, overlaid
from auditlake.audit.row_key import Key
from auditlake.audit.versions import history_texts, row_values, versions_of
from auditlake.delta.sql import select
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.duckdb_rows import apart
from auditlake.lake.history import HistoryTable
from auditlake.lake.parking import Cause
from auditlake.lake.relations import ShapeSource, attnums_of
from auditlake.lsn import LAST_LSN, Lsn
from auditlake.messages import say
from auditlake.pgoutput.attribution import Context, ContextInForce, context_text, read_context
from auditlake.pgoutput.table_shape import IDENTITY, definition_differences
from auditlake.relation import Relation, TableName
from auditlake.sql_names import standard_literal
from auditlake.temporal.knowledge import require_kept, say_erased
from auditlake.temporal.moments import snapshot_times
from auditlake.temporal.table_lookup import find_table
from auditlake.temporal.when import AtLsn, AtXid, parse_when, to_time

_COLUMNS = "lsn, xid, epoch_us(time) as time_us, origin, context, inserts, updates, deletes, truncates, tables"


@dataclass(frozen=True, slots=True)
class Transaction:
    """One committed transaction; `time_us` in microseconds since 1970. Counts are of changes, not of rows.

    `schema_changes` are sentences, from the DDL trigger or from the first changes in a new shape. `is_whole` is false
    if `tables` leaves out some that the reader may not see; the counts are of all.

    A change that only the catalog showed belongs to no known transaction: its entry has the xid 0, and the LSN and time
    at which the catalog was read.
    """

    lsn: Lsn
    xid: int
    time_us: int
    origin: str | None
    context: Context
    inserts: int
    updates: int
    deletes: int
    truncates: int
    tables: tuple[str, ...]
    schema_changes: tuple[str, ...] = field(default=(), kw_only=True)
    is_whole: bool = field(default=True, kw_only=True)

    @property
    def time(self) -> datetime:
        """When PostgreSQL committed it."""
        return to_time(self.time_us)

    @property
    def actor(self) -> str | None:
        """The user that the application recorded."""
        return self.context.actor

    @property
    def reason(self) -> str | None:
        """The reason that the application recorded."""
        return self.context.reason

    @property
    def db_user(self) -> str | None:
        """The role that the server observed."""
        return self.context.db_user

    def shown(self, only: frozenset[str] | None) -> "Transaction":
        """Return the transaction as a reader of these tables alone sees it: without the counts of others."""
        if only is None or only.issuperset(self.tables):
            return self
        return replace(self, tables=tuple(filter(only.__contains__, self.tables)), is_whole=False)

    @property
    def counts(self) -> dict[str, int | None]:
        """The number of changes of each kind; None if the reader may not see all of them."""
        found = {name: getattr(self, name) for name in ("inserts", "updates", "deletes", "truncates")}
        return found if self.is_whole else dict.fromkeys(found)

    @property
    def count(self) -> int:
        """The number of changes."""
        return self.inserts + self.updates + self.deletes + self.truncates


MOST_LISTED = 2_000
"""Of so many LSNs a filter reads no other transaction."""

CHANGED_BY = {"insert": ("insert",), "update": ("update",), "delete": ("delete", "truncate")}
"""Operations of a filter: a TRUNCATE deletes rows, too."""


@dataclass(frozen=True, slots=True)
class TransactionFilters:
    """Filters; None is no filter. `actor` is a whole name, compared without case; `reason` is a substring.

    A transaction has to change all of `tables`, and to have a change with the operation `op`, one of `CHANGED_BY`.
    """

    tables: "tuple[OfTable, ...]" = ()
    lsns: frozenset[int] | None = None
    op: str | None = None
    actor: str | None = None
    reason: str | None = None
    unattributed: bool = False
    committed: bool = False
    """Only transactions that are known, without what the catalog alone showed."""

    def takes(self, transaction: Transaction) -> bool:
        """Return whether a transaction passes the filters that are not in `in_sql`."""
        context = transaction.context
        return (
            (self.lsns is None or transaction.lsn in self.lsns)
            and (self.actor is None or _same_actor(context.actor, self.actor))
            and (self.reason is None or self.reason in (context.reason or ""))
            and not (self.unattributed and context.actor is not None)
            and not (self.committed and not transaction.xid)
        )

    @property
    def in_sql(self) -> str:
        """The condition on `transactions` that needs no parsed context."""
        parts = ["true", *(table.in_sql for table in self.tables)]
        if self.op is not None:
            parts.append(" + ".join(f"coalesce({op}s, 0)" for op in CHANGED_BY[self.op]) + " > 0")
        if self.lsns is not None:
            parts.append(in_lsns("lsn", self.lsns, MOST_LISTED))
        if self.actor is not None or self.reason is not None:
            parts.append("context is not null")
        return " and ".join(parts)

    @property
    def is_plain(self) -> bool:
        """Whether `in_sql` is the whole filter."""
        return self.lsns is None and self.actor is None and self.reason is None and not self.unattributed


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change of one table's definition in words, by the table's OID, or by its history if it was dropped.

    It is of the commit at `lsn` or, if it is not `exact`, was seen by then, at `time_us`. `names` are those of the
    table before and after it.
    """

    lsn: Lsn
    what: str
    names: frozenset[TableName]
    oid: int | None = None
    history: TableName | None = None
    exact: bool = True
    time_us: int | None = None

    def is_of(self, table: HistoryTable) -> bool:
        """Return whether it is a change of this table."""
        return self.history == table.name if self.oid is None else self.oid == table.oid


@dataclass(frozen=True, slots=True)
class OfTable:
    """Filter for the table that has a name, under its former names too, and for others while they had that name.

    `called` has names with the first and the last LSN, inclusive; None is no end.
    """

    table: HistoryTable
    name: TableName
    called: tuple[tuple[TableName, int, int | None], ...]
    schema_lsns: frozenset[int]

    @classmethod
    def of(cls, reader: Reader, table: HistoryTable, name: str) -> "OfTable":
        """Return the filter for a table, which was found under a name."""
        found = find_table(split_name(name), reader.known.names)
        others = [each for each in reader.known.had(found) if each.name != table.name]
        called = [*table.called, *(each for other in others for each in other.called if each[0] == found)]
        changes = (each for each in read_schema_changes(reader) if each.is_of(table) or found in each.names)
        return cls(table, found, tuple(called), frozenset(each.lsn for each in changes))

    def takes(self, change: SchemaChange) -> bool:
        """Return whether a schema change passes the filter."""
        return change.is_of(self.table) or self.name in change.names

    @property
    def in_sql(self) -> str:
        """The condition on `transactions`."""
        parts = [f"lsn in ({', '.join(f'{lsn:d}' for lsn in sorted(self.schema_lsns))})"] if self.schema_lsns else []
        for name, first, last in self.called:
            upto = "" if last is None else f" and lsn <= {last:d}"
            parts.append(f"(array_has(tables, {standard_literal(str(name))}) and lsn >= {first:d}{upto})")
        return f"({' or '.join(parts)})"


def _same_actor(actor: str | None, wanted: str) -> bool:
    return actor is not None and actor.casefold() == wanted.casefold()


def find(reader: Reader, span: Span, wanted: TransactionFilters, limit: int | None) -> Iterator[Transaction]:
    """Yield the transactions of a span, newest first, at most `limit`."""
    if reader.transactions is None:
        return
    last = min(span.upto, reader.watermark)
    sql = f"select {_COLUMNS} from transactions where lsn > {span.after:d} and lsn <= {last:d}"
    sql += f" and {wanted.in_sql} and {reader.known.shown_sql}"
    sql += " order by lsn desc" + (f" limit {limit:d}" if limit is not None and wanted.is_plain else "")
    only = reader.known.only
    changes = [each for each in read_schema_changes(reader) if only is None or _are_shown(only, each)]
    # A change is seen at the end of the source's log, which may be after all that the lake has.
    is_now = span.upto >= reader.known.now_lsn
    seen = (each for each in changes if not each.exact and span.after < each.lsn and (is_now or each.lsn <= span.upto))
    chosen = [_entry(reader, each) for each in seen if all(table.takes(each) for table in wanted.tables)]
    beside = sorted((each for each in chosen if wanted.takes(each)), key=lambda each: -each.lsn)
    files = reader.transactions.within(lsn=(span.after + 1, last))
    batches = select(sql, transactions=files).to_batches(max_chunksize=1000)
    committed = (transaction_of(row).shown(only) for batch in batches for row in batch.to_pylist())
    found = merge((each for each in committed if wanted.takes(each)), beside, key=lambda each: -each.lsn)
    words: dict[int, list[str]] = {}
    for change in changes:
        words.setdefault(change.lsn, []).extend([change.what] if change.exact else [])
    for each in islice(found, limit):
        yield each if each.schema_changes else replace(each, schema_changes=tuple(words.get(each.lsn, ())))


def _are_shown(only: frozenset[str], change: SchemaChange) -> bool:
    return only.issuperset(map(str, change.names))


def _entry(reader: Reader, change: SchemaChange) -> Transaction:
    """Return the entry of the log for a schema change whose transaction is not known.

    Its time, if it was not recorded, is that of the last commit before it that is shown, else of the last snapshot.
    """
    lsn, time_us = Lsn(change.lsn), change.time_us
    if time_us is None:
        sql = "select epoch_us(max(time_mono)) as time_us from transactions"
        sql += f" where lsn <= {lsn:d} and {reader.known.shown_sql}"
        taken = (at_us or 0 for at, at_us in snapshot_times(reader.known).items() if at <= lsn)
        time_us = select(sql, transactions=reader.transactions)["time_us"][0].as_py() or max(taken, default=0)
    return Transaction(lsn, 0, time_us, None, read_context(None), 0, 0, 0, 0, (), schema_changes=(change.what,))


def transaction_of(row: Mapping[str, Any]) -> Transaction:
    """Convert one row of `transactions`; `time_us` is its time in microseconds since 1970."""
    counts: dict[str, Any] = {name: row[name] or 0 for name in ("inserts", "updates", "deletes", "truncates")}
    context, tables = read_context(row["context"]), tuple(row["tables"] or ())
    return Transaction(Lsn(row["lsn"]), row["xid"], row["time_us"], row["origin"], context, **counts, tables=tables)


def transactions_at(reader: Reader, lsns: Iterable[int]) -> dict[int, Transaction]:
    """Return the transactions with these commit LSNs; the LSN of a snapshot has none."""
    wanted = frozenset(lsns)
    if not wanted:
        return {}
    if any(lsn <= reader.known.expired_transactions for lsn in wanted - snapshot_times(reader.known).keys()):
        say(f"the transactions up to {reader.known.expired_transactions} have expired: who made them is not known")
    span = Span(Lsn(min(wanted) - 1), Lsn(max(wanted)))
    return {each.lsn: each for each in find(reader, span, TransactionFilters(lsns=wanted), None)}


def lsns_of_xid(reader: Reader, xid: int) -> list[Lsn]:
    """Return the commit LSNs of the transactions with this xid, oldest first; xids have 32 bits and wrap around."""
    if reader.transactions is None:
        return []
    sql = f"select lsn from transactions where xid = {xid:d} and lsn <= {reader.watermark:d}"
    sql += f" and {reader.known.shown_sql} order by lsn"
    return [Lsn(lsn) for lsn in select(sql, transactions=reader.transactions)["lsn"].to_pylist()]


def read_schema_changes(reader: Reader) -> list[SchemaChange]:
    """Read the schema changes of all tables, in order."""
    tables = {table.oid: table for table in reader.known.tables.values()}
    seen_us = {(gap.table, gap.lsn_to): gap.to_us for gap in reader.known.gaps}
    changes: list[SchemaChange] = []
    before: dict[int, Relation] = {}
    for version in reader.known.versions:
        now, table = version.relation, tables.get(version.relation.oid)
        was = before.get(now.oid) or (_first(reader, table, now) if table is not None else None)
        before[now.oid] = now
        words = list(definition_differences(was, now)) if was is not None else []
        if version.source is ShapeSource.STREAM and not words:
            continue
        is_seen = version.source is ShapeSource.CATALOG
        what = ", ".join(words) or version.command or (IDENTITY if is_seen else "changed")
        if is_seen:
            what += f", between {Lsn(version.after_lsn or 0)} and {version.lsn}"
        name = was.name if was is not None else now.name
        time_us = None if table is None else seen_us.get((table.name, version.lsn))
        changes.append(
            SchemaChange(
                version.lsn, f"{name}: {what}", frozenset({name, now.name}), now.oid, None, not is_seen, time_us
            )
        )
    return sorted([*changes, *_drops(reader)], key=lambda each: each.lsn)


def _first(reader: Reader, table: HistoryTable, now: Relation) -> Relation:
    """Return the relation of a table at its snapshot, as far as it can be compared with its first version."""
    columns = reader.columns_at(table, table.first_snapshot_lsn)
    if attnums_of(now) is None or any(column.attnum is None for column in columns):
        return replace(now, name=table.name_at(table.first_snapshot_lsn))
    keys = {column.attnum for column in now.columns if column.key}
    had = tuple(replace(column, key=column.attnum in keys) for column in columns)
    return replace(now, name=table.name_at(table.first_snapshot_lsn), columns=had)


def _drops(reader: Reader) -> Iterator[SchemaChange]:
    for parked in reader.known.records:
        table = reader.known.tables.get(parked.table)
        if not parked.ended or table is None or parked.cause not in {Cause.DDL, Cause.PUBLICATION}:
            continue
        exact, name = parked.cause is Cause.DDL, table.last_name
        what = f"{name}: it was dropped" + ("" if exact else f", between {parked.lsn} and {parked.until}")
        yield SchemaChange(parked.until, what, frozenset({name}), None, table.name, exact, parked.time_us)


def lsns_of_table(
    reader: Reader, table: HistoryTable, span: Span, key: Key | None, column: str | None
) -> frozenset[int] | None:
    """Return the transactions of a span that touched the key and changed the column; None without a filter.

    Raises BadUsage if the table has no such column, NotAnswerable if changes of the span have expired.
    """
    lsns: frozenset[int] | None = None
    if key is not None or column is not None:
        span = reader.with_changes(span, f"the changes of {table.label}")
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
    where = f"({about}) and op in ({FOLDED_OPS_SQL}) and lsn > {span.after:d} and lsn <= {span.upto:d}"
    sql = f"select distinct lsn from changes where {where} and lsn <= {reader.watermark:d} and ({condition})"
    lsns: list[int] = select(sql, changes=reader.changes_in(span))["lsn"].to_pylist()
    return lsns


def _of_column(reader: Reader, table: HistoryTable, span: Span, column: str) -> frozenset[int]:
    return lsns_of_columns(reader, table, span, reader.physical_columns(table, column, span.upto))


def lsns_of_columns(reader: Reader, table: HistoryTable, span: Span, stored: Iterable[str]) -> frozenset[int]:
    """Return the transactions of a span that changed one of these physical columns while the table had it.

    Raises BadUsage if the table has no key, NotAnswerable if the history cannot follow a schema change of the span.
    """
    if not table.key:
        raise BadUsage(f"{table.last_name} has no key, so the changes of a column cannot be followed", None)
    reader.check_followed(table, span.upto)
    own = reader.own_names(table)
    ends = {column.stored: LAST_LSN if column.until is None else column.until for column in reader.all_columns(table)}
    lasts: dict[str, Lsn] = {}
    for each in stored:
        name = own.get(each, each)
        lasts[name] = max(lasts.get(name, Lsn(0)), Lsn(ends.get(each, LAST_LSN) - 1))
    overlay = overlaid(reader, table, span.upto)
    found = (_of_own(reader, overlay, Span(span.after, min(span.upto, last)), name) for name, last in lasts.items())
    return frozenset(chain.from_iterable(found))


def _of_own(reader: Reader, overlay: Overlay, span: Span, column: str) -> Iterator[int]:
    """Yield the transactions of a span that changed a column: by the versions of a key, and of moved rows by replay."""
    if not any(each.name == column for each in overlay.table.columns):
        return
    moved = _lsns_of_moves(reader, overlay.table, span)
    yield from _in_versions(reader, overlay, span, column) - moved
    if moved:
        yield from _replayed(reader, overlay, moved, column)


def _in_versions(reader: Reader, overlay: Overlay, span: Span, column: str) -> set[int]:
    table, later = overlay.table, reader.later(overlay.table.name).get(column)
    same = " and ".join(same_in_history(table, c.name) for c in table.key)
    # A version that ended before ADD COLUMN has no value to compare with.
    after = span.after if later is None else max(span.after, later.since - 1)
    sql = (
        f"select distinct {THERE}._from_lsn as lsn from history {HERE} join history {THERE}"
        f" on {HERE}._to_lsn = {THERE}._from_lsn and {same}"
        f" where {THERE}._from_lsn > {after:d} and {THERE}._from_lsn <= {span.upto:d} and {THERE}._op = 'update'"
        f" and not ({same_in_history(table, column, apart)})"
    )
    bound = (after + 1, span.upto)
    return set(select(sql, history=overlay.within_any({"_from_lsn": bound}, {"_to_lsn": bound}))["lsn"].to_pylist())


def _lsns_of_moves(reader: Reader, table: HistoryTable, span: Span) -> set[int]:
    """Return the transactions that changed keys: only the changes link their rows, the history does not."""
    names = [c.name for c in table.key]
    moved = " or ".join(
        f"(relation = {number:d} and (" + " or ".join(f"old[{p + 1}] <> new[{p + 1}]" for p in places) + "))"
        for number, places in key_places(table, reader.relations_of(table), names).items()
    )
    return set(
        lsns_of_changes(reader, [table], span, f"op = 'update' and \"old\" is not null and ({moved or 'false'})")
    )


def _replayed(reader: Reader, overlay: Overlay, lsns: Collection[int], column: str) -> Iterator[int]:
    """Yield those of some transactions that changed the column, by replaying their changes row by row."""
    table, listed = overlay.table, f"in ({', '.join(map(str, sorted(lsns)))})"
    key, rows = _key(table), dict[int, dict[Key, Values]]()
    ended = overlay.within(_to_lsn=(min(lsns), max(lsns)))
    for row in history_texts(reader, table, f"_to_lsn {listed}", files=ended).to_pylist():
        values = row_values(row)
        rows.setdefault(row["_to_lsn"], {})[tuple(str(values[name]) for name in key)] = values
    span = Span(Lsn(min(lsns) - 1), Lsn(max(lsns)))
    for lsn, transaction in groupby(changes_of(reader, table.name, span, f"lsn {listed}"), key=lambda each: each.lsn):
        states = States(key, rows.get(lsn, {}), known=lsn > table.horizon)
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


@dataclass(frozen=True, slots=True)
class Message:
    """A logical message of the transaction."""

    ordinal: int
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class ShownChange:
    """One change of a table, with the context in force for it."""

    table: TableName
    key: tuple[str, ...]
    step: Step
    context: Context


def find_transaction(reader: Reader, name: str) -> tuple[Transaction, list[Lsn]]:
    """Return the transaction that an LSN or `xid:N` names, and every LSN at which its xid committed.

    Raises BadUsage, and NotAnswerable if there is none.
    """
    when = parse_when(name, reader.now)
    if isinstance(when, AtXid):
        lsns = lsns_of_xid(reader, when.xid)
    elif isinstance(when, AtLsn):
        lsns = [when.lsn]
    else:
        raise NotAnswerable(f"{name} is a moment, not a transaction", "auditlake log lists transactions.")
    if lsns:
        require_kept("transactions", reader.known.expired_transactions, lsns[-1], f"the transaction {name}")
    transactions = transactions_at(reader, lsns[-1:])
    if not transactions:
        raise NotAnswerable(
            f"no transaction {name} is known up to {reader.watermark}",
            "It changed no published table, is older than the snapshot, or has expired. auditlake log lists others.",
        )
    transaction = transactions[lsns[-1]]
    for table in reader.known.listed:
        if set(map(str, table.all_names)).intersection(transaction.tables):
            say_erased(reader.lake, table, Lsn(transaction.lsn - 1), transaction.lsn)
    return transaction, lsns


def contents(reader: Reader, transaction: Transaction) -> Iterator[ShownChange | Message]:
    """Return the changes and messages of a transaction, in order.

    A reader of some tables gets no messages, and its changes numbered from 0: ordinals would count the others.

    Raises NotAnswerable if they have expired.
    """
    require_kept("changes", reader.expired, transaction.lsn, f"the changes of transaction {transaction.lsn}")
    return _contents(reader, transaction)


def _contents(reader: Reader, transaction: Transaction) -> Iterator[ShownChange | Message]:
    messages = list(_messages(reader, transaction.lsn))
    steps = chain.from_iterable(_steps(reader, each, transaction.lsn) for each in _relations(reader, transaction.lsn))
    everything: list[Message | _Placed] = [*messages, *steps]
    everything.sort(key=_ordinal)
    is_whole, numbers = reader.known.only is None, count()
    scope, context = ContextInForce(), None
    for each in everything:
        if isinstance(each, Message):
            scope, context = scope.after(each.prefix, each.content, each.ordinal), None
            if is_whole:
                yield each
        else:
            name, key, step = each
            if not is_whole:
                step = replace(step, change=replace(step.change, ordinal=next(numbers)))
            context = context or read_context(context_text(scope.app, scope.db))
            yield ShownChange(name, key, step, context)


_Placed = tuple[TableName, tuple[str, ...], Step]


def _ordinal(each: Message | _Placed) -> int:
    return each.ordinal if isinstance(each, Message) else each[2].change.ordinal


def _messages(reader: Reader, lsn: Lsn) -> Iterator[Message]:
    sql = f"select ordinal, prefix, content from changes where lsn = {lsn:d} and op = 'message' order by ordinal"
    for row in select(sql, changes=reader.changes_in(_of_commit(lsn))).to_pylist():
        yield Message(row["ordinal"], row["prefix"], row["content"] or b"")


def _of_commit(lsn: Lsn) -> Span:
    return Span(Lsn(lsn - 1), lsn)


def _relations(reader: Reader, lsn: Lsn) -> list[Relation]:
    """Return the last relation version of each table that a transaction changed, whatever its names in it."""
    sql = f"select distinct relation from changes where lsn = {lsn:d} and relation is not null order by relation"
    numbers = select(sql, changes=reader.changes_in(_of_commit(lsn)))["relation"].to_pylist()
    relations = [relation for relation in map(reader.relation, numbers) if _is_shown(reader, relation)]
    return list({relation.oid: relation for relation in relations}.values())


def _is_shown(reader: Reader, relation: Relation) -> bool:
    """Return whether a reader shows the changes of a relation; one of some tables none of a table without a history."""
    only = reader.known.only
    return only is None or (str(relation.name) in only and reader.table_of(relation) is not None)


def _steps(reader: Reader, relation: Relation, lsn: Lsn) -> Iterator[_Placed]:
    table, name = reader.table_of(relation), relation.name
    table = None if table is None else reader.keyed_at(table, lsn)
    span = _of_commit(lsn)
    condition = f"relation in ({', '.join(map(str, sorted(reader.numbers_of(relation.oid))))})"
    changes = changes_of(reader, name if table is None else table.name, span, condition)
    states = states_before(reader, table, span)
    for change in changes:
        step = states.apply(change)
        if table is None:
            yield name, states.key, step
        else:
            columns = reader.columns_at(table, lsn)
            own = reader.own_names(table)
            shown = {own.get(column.stored, column.stored): column.name for column in columns}
            yield name, tuple(shown.get(key, key) for key in states.key), _as_shown(reader, table, step)


def _as_shown(reader: Reader, table: HistoryTable, step: Step) -> Step:
    sides = (step.before, step.after)
    shown = (None if values is None else reader.shown_at(table, step.change.lsn, values) for values in sides)
    before, after = shown
    return replace(step, before=before, after=after)


def states_before(reader: Reader, table: HistoryTable | None, span: Span) -> States:
    """Return the rows that the changes of a span touch, as they are before it."""
    if table is None or span.after < table.horizon:
        return States(_key(table), known=False)
    key = _key(table)
    if not key:
        return States(key)
    rows = (row_values(row) for row in read_sides(reader, table, span).before.to_pylist())
    return States(key, {tuple(str(row[name]) for name in key): row for row in rows})


def _key(table: HistoryTable | None) -> tuple[str, ...]:
    return () if table is None else tuple(column.name for column in table.key)
