"""Transactions: when, who, why, which tables, how many; chosen by table, key, column, actor, reason and time.

Newest first. The filters that look into changes (`key`, `column`) give the LSNs that the others then choose from:
`key` any transaction that touched the key, `column` those that left some row with another value in it.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from auditlake.audit.reading import Reader, Span, in_lsns
from auditlake.literals import standard_literal
from auditlake.lsn import Lsn
from auditlake.pgoutput.context import Context, read_context
from auditlake.query.when import format_us

_COLUMNS = (
    "lsn, xid, arrow_cast(\"time\", 'Int64') as time_us, origin, context, inserts, updates, deletes, truncates, tables"
)


@dataclass(frozen=True, slots=True)
class Transaction:
    """One commit; `time_us` in microseconds since 1970. Counts are of changes, not of rows left changed."""

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

    def as_json(self) -> dict[str, object]:
        """The fields of `auditlake log --json`."""
        return {
            **self.who(),
            "origin": self.origin,
            "context": {"app": self.context.app, "db": self.context.db},
            "tables": list(self.tables),
            "inserts": self.inserts,
            "updates": self.updates,
            "deletes": self.deletes,
            "truncates": self.truncates,
        }

    def who(self) -> dict[str, object]:
        """When, who and why: the fields that every answer has."""
        return {
            "lsn": str(self.lsn),
            "xid": self.xid,
            "time": format_us(self.time_us),
            "actor": self.context.actor,
            "reason": self.context.reason,
        }


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which transactions; None wants all. `reason` is a part of it, `actor` the whole."""

    table: str | None = None
    lsns: frozenset[int] | None = None
    actor: str | None = None
    reason: str | None = None
    unattributed: bool = False

    def takes(self, transaction: Transaction) -> bool:
        """Whether a transaction is one of them, its table aside."""
        context = transaction.context
        return (
            (self.lsns is None or transaction.lsn in self.lsns)
            and (self.actor is None or context.actor == self.actor)
            and (self.reason is None or self.reason in (context.reason or ""))
            and not (self.unattributed and context.actor is not None)
        )

    @property
    def in_sql(self) -> str:
        """The part that needs no look at the context."""
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
        """Whether SQL alone chooses."""
        return self.lsns is None and self.actor is None and self.reason is None and not self.unattributed


def find(reader: Reader, span: Span, wanted: Wanted, limit: int | None) -> Iterator[Transaction]:
    """Give the transactions of a span, newest first, at most `limit`."""
    if reader.transactions is None:
        return
    last = min(span.upto, reader.watermark)
    sql = f"select {_COLUMNS} from transactions where lsn > {span.after:d} and lsn <= {last:d} and {wanted.in_sql}"
    sql += " order by lsn desc" + (f" limit {limit:d}" if limit is not None and wanted.is_plain else "")
    count = 0
    for batch in reader.query(sql, transactions=reader.transactions).to_batches(max_chunksize=1000):
        for row in batch.to_pylist():
            transaction = _transaction(row)
            if wanted.takes(transaction):
                yield transaction
                count += 1
            if count == limit:
                return


def _transaction(row: dict[str, object]) -> Transaction:
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
    """The transactions that commit at these LSNs; a snapshot's LSN has none."""
    wanted = frozenset(lsns)
    if not wanted:
        return {}
    span = Span(Lsn(min(wanted) - 1), Lsn(max(wanted)))
    return {found.lsn: found for found in find(reader, span, Wanted(lsns=wanted), None)}


def lsns_of_xid(reader: Reader, xid: int) -> list[Lsn]:
    """Where transactions with this xid committed, oldest first: 32 bits come back after 4 billion of them."""
    if reader.transactions is None:
        return []
    sql = f"select lsn from transactions where xid = {xid:d} and lsn <= {reader.watermark:d} order by lsn"
    return [Lsn(lsn) for lsn in reader.query(sql, transactions=reader.transactions)["lsn"].to_pylist()]


def json_line(fields: dict[str, object]) -> str:
    """Write one object of a `--json` answer."""
    return json.dumps(fields, ensure_ascii=False)
