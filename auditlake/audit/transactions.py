"""Transactions of the log: when, who, why, which tables, how many changes; newest first.

The filters by key and by column read `changes` (`transaction_filter`) and pass LSNs here; the others apply to those.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from auditlake.attribution import Context, read_context
from auditlake.audit.lake_reader import Reader, Span, in_lsns
from auditlake.audit.schema_changes import read_schema_changes
from auditlake.lsn import Lsn
from auditlake.sql_names import standard_literal

_COLUMNS = (
    "lsn, xid, arrow_cast(\"time\", 'Int64') as time_us, origin, context, inserts, updates, deletes, truncates, tables"
)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One committed transaction; `time_us` in microseconds since 1970. Counts are of changes, not of rows.

    `schema_changes` are what the DDL trigger reported, in words.
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

    @property
    def time(self) -> datetime:
        """When PostgreSQL committed it."""
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.time_us)

    @property
    def actor(self) -> str | None:
        """Who did it, as the application says."""
        return self.context.actor

    @property
    def reason(self) -> str | None:
        """Why, as the application says."""
        return self.context.reason

    @property
    def count(self) -> int:
        """The number of changes."""
        return self.inserts + self.updates + self.deletes + self.truncates


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filters; None is no filter. `actor` is a whole name, compared without case; `reason` is a substring."""

    table: str | None = None
    lsns: frozenset[int] | None = None
    actor: str | None = None
    reason: str | None = None
    unattributed: bool = False

    def takes(self, transaction: Transaction) -> bool:
        """Return whether a transaction passes every filter except `table`."""
        context = transaction.context
        return (
            (self.lsns is None or transaction.lsn in self.lsns)
            and (self.actor is None or _same_actor(context.actor, self.actor))
            and (self.reason is None or self.reason in (context.reason or ""))
            and not (self.unattributed and context.actor is not None)
        )

    @property
    def in_sql(self) -> str:
        """The condition on `transactions` that needs no parsed context."""
        parts = ["true"]
        if self.table is not None:
            parts.append(f"array_has(tables, {standard_literal(self.table)})")
        if self.lsns is not None:
            parts.append(in_lsns("lsn", sorted(self.lsns)) if self.lsns else "false")
        if self.actor is not None or self.reason is not None:
            parts.append("context is not null")
        return " and ".join(parts)

    @property
    def is_plain(self) -> bool:
        """Whether `in_sql` is the whole filter."""
        return self.lsns is None and self.actor is None and self.reason is None and not self.unattributed


def _same_actor(actor: str | None, wanted: str) -> bool:
    return actor is not None and actor.casefold() == wanted.casefold()


def find(reader: Reader, span: Span, wanted: Wanted, limit: int | None) -> Iterator[Transaction]:
    """Yield the transactions of a span, newest first, at most `limit`."""
    if reader.transactions is None:
        return
    last = min(span.upto, reader.watermark)
    sql = f"select {_COLUMNS} from transactions where lsn > {span.after:d} and lsn <= {last:d} and {wanted.in_sql}"
    sql += " order by lsn desc" + (f" limit {limit:d}" if limit is not None and wanted.is_plain else "")
    count, schema_changes = 0, read_schema_changes(reader.lake)
    for batch in reader.query(sql, transactions=reader.transactions).to_batches(max_chunksize=1000):
        for row in batch.to_pylist():
            transaction = transaction_of(row)
            if wanted.takes(transaction):
                yield replace(transaction, schema_changes=tuple(schema_changes.get(transaction.lsn, ())))
                count += 1
            if count == limit:
                return


def transaction_of(row: Mapping[str, object]) -> Transaction:
    """Convert one row of `transactions`; `time_us` is its time in microseconds since 1970."""
    tables = row["tables"]
    assert isinstance(tables, list | None)  # noqa: S101 - the schema says so
    inserts, updates, deletes, truncates = (
        int(str(row[name] or 0)) for name in ("inserts", "updates", "deletes", "truncates")
    )
    context = row["context"]
    return Transaction(
        lsn=Lsn(int(str(row["lsn"]))),
        xid=int(str(row["xid"])),
        time_us=int(str(row["time_us"])),
        origin=None if row["origin"] is None else str(row["origin"]),
        context=read_context(None if context is None else str(context)),
        inserts=inserts,
        updates=updates,
        deletes=deletes,
        truncates=truncates,
        tables=tuple(tables or ()),
    )


def transactions_at(reader: Reader, lsns: Iterable[int]) -> dict[int, Transaction]:
    """Return the transactions with these commit LSNs; the LSN of a snapshot has none."""
    wanted = frozenset(lsns)
    if not wanted:
        return {}
    span = Span(Lsn(min(wanted) - 1), Lsn(max(wanted)))
    return {each.lsn: each for each in find(reader, span, Wanted(lsns=wanted), None)}


def lsns_of_xid(reader: Reader, xid: int) -> list[Lsn]:
    """Return the commit LSNs of the transactions with this xid, oldest first; xids have 32 bits and wrap around."""
    if reader.transactions is None:
        return []
    sql = f"select lsn from transactions where xid = {xid:d} and lsn <= {reader.watermark:d} order by lsn"
    return [Lsn(lsn) for lsn in reader.query(sql, transactions=reader.transactions)["lsn"].to_pylist()]
