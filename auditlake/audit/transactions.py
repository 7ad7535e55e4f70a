"""Transactions of the log, newest first: when, who, why, which tables, how many changes; and filters on them.

Filters by key and by column are LSNs (`audit.touched_rows`). A schema change that no trigger reported is an entry of
its own, with a range of LSNs (`audit.schema_changes`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

from auditlake.audit.lake_reader import Reader, Span, in_lsns
from auditlake.audit.schema_changes import SchemaChange, read_schema_changes
from auditlake.delta.sql import select
from auditlake.instants import to_time
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.messages import say
from auditlake.pgoutput.attribution import Context, read_context
from auditlake.relation import TableName
from auditlake.sql_names import standard_literal
from auditlake.temporal.moments import snapshot_times
from auditlake.temporal.table_lookup import find_table, split_name

_COLUMNS = "lsn, xid, epoch_us(time) as time_us, origin, context, inserts, updates, deletes, truncates, tables"


@dataclass(frozen=True, slots=True)
class Transaction:
    """One committed transaction; `time_us` in microseconds since 1970. Counts are of changes, not of rows.

    `schema_changes` are sentences. `is_whole` is false if `tables` leaves out some that the reader may not see; the
    counts are of all.

    A schema change that the DDL trigger did not report belongs to no known transaction: its entry has the xid 0, and
    the LSN and time at which the catalog, or the first row in the new shape, showed it.
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
            parts.append(in_lsns(self.lsns, MOST_LISTED))
        if self.actor is not None or self.reason is not None:
            parts.append("context is not null")
        return " and ".join(parts)

    def histories(self, reader: Reader) -> list[HistoryTable]:
        """Return the tables that it asks for, with the others that had their names; none if all tables count."""
        return [each for table in self.tables for each in (table.table, *reader.known.had(table.name))]

    @property
    def is_plain(self) -> bool:
        """Whether `in_sql` is the whole filter."""
        return self.lsns is None and self.actor is None and self.reason is None and not self.unattributed


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
    known = span.until(reader.watermark)
    sql = f"select {_COLUMNS} from transactions where {known.sql()}"
    sql += f" and {wanted.in_sql} and {reader.known.shown_sql}"
    sql += " order by lsn desc" + (f" limit {limit:d}" if limit is not None and wanted.is_plain else "")
    only = reader.known.only
    changes = [each for each in read_schema_changes(reader) if only is None or only.issuperset(map(str, each.names))]
    # A change is seen at the end of the source's log, which may be after all that the lake has.
    is_now = span.upto >= reader.known.now_lsn
    seen = (each for each in changes if not each.exact and span.after < each.lsn and (is_now or each.lsn <= span.upto))
    chosen = [_entry(reader, each) for each in seen if all(table.takes(each) for table in wanted.tables)]
    beside = sorted((each for each in chosen if wanted.takes(each)), key=lambda each: -each.lsn)
    files = reader.transactions.within(lsn=known.bounds)
    batches = select(sql, transactions=files).to_batches(max_chunksize=1000)
    committed = (transaction_of(row).shown(only) for batch in batches for row in batch.to_pylist())
    found = merge((each for each in committed if wanted.takes(each)), beside, key=lambda each: -each.lsn)
    words: dict[int, list[str]] = {}
    for change in changes:
        words.setdefault(change.lsn, []).extend([change.what] if change.exact else [])
    for each in islice(found, limit):
        yield each if each.schema_changes else replace(each, schema_changes=tuple(words.get(each.lsn, ())))


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
    """Return the transactions with these commit LSNs; the LSN of a snapshot has none.

    A schema change of no known transaction is there only if no transaction has its LSN: it is seen by a row's, too.
    """
    wanted = frozenset(lsns)
    if not wanted:
        return {}
    if any(lsn <= reader.known.expired_transactions for lsn in wanted - snapshot_times(reader.known).keys()):
        say(f"the transactions up to {reader.known.expired_transactions} have expired: who made them is not known")
    span = Span(Lsn(min(wanted) - 1), Lsn(max(wanted)))
    return {each.lsn: each for each in sorted(find(reader, span, TransactionFilters(lsns=wanted), None), key=_is_known)}


def _is_known(each: Transaction) -> bool:
    return each.xid > 0


def lsns_of_xid(reader: Reader, xid: int) -> list[Lsn]:
    """Return the commit LSNs of the transactions with this xid, oldest first; xids have 32 bits and wrap around."""
    if reader.transactions is None:
        return []
    sql = f"select lsn from transactions where xid = {xid:d} and lsn <= {reader.watermark:d}"
    sql += f" and {reader.known.shown_sql} order by lsn"
    return [Lsn(lsn) for lsn in select(sql, transactions=reader.transactions)["lsn"].to_pylist()]
