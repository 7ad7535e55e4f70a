"""One transaction in detail: every change in order with the row before and after it, and the logical messages.

The rows before the transaction are read from the history and the tail, once per table, and the changes are applied to
them, so a row that was changed twice shows both steps. If a table has no history yet at that LSN, only the values that
the change itself carries are known; so also for a column whose missing value is unknown.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from auditlake.attribution import Context, Scope, context_text, read_context
from auditlake.audit.before_after import read_sides
from auditlake.audit.changes import States, Step, changes_of
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.transactions import Transaction, lsns_of_xid, transactions_at
from auditlake.audit.versions import row_values
from auditlake.errors import NotAnswerable
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.temporal.when import AtLsn, AtXid, parse_when


@dataclass(frozen=True, slots=True)
class Message:
    """A logical message of the transaction."""

    ordinal: int
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Shown:
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
    transactions = transactions_at(reader, lsns[-1:])
    if not transactions:
        raise NotAnswerable(
            f"no transaction {name} is known up to {reader.watermark}",
            "It changed no published table, or it is older than the snapshot. auditlake log lists all that are known.",
        )
    return transactions[lsns[-1]], lsns


def contents(reader: Reader, transaction: Transaction) -> Iterator[Shown | Message]:
    """Yield the changes and messages of a transaction, in order."""
    messages = list(_messages(reader, transaction.lsn))
    steps = chain.from_iterable(_steps(reader, name, transaction.lsn) for name in _tables(reader, transaction.lsn))
    everything: list[Message | _Placed] = [*messages, *steps]
    everything.sort(key=_ordinal)
    scope = Scope()
    for each in everything:
        if isinstance(each, Message):
            scope = scope.after(each.prefix, each.content, each.ordinal)
            yield each
        else:
            name, key, step = each
            yield Shown(name, key, step, read_context(context_text(scope.app, scope.db)))


_Placed = tuple[TableName, tuple[str, ...], Step]


def _ordinal(each: Message | _Placed) -> int:
    return each.ordinal if isinstance(each, Message) else each[2].change.ordinal


def _messages(reader: Reader, lsn: Lsn) -> Iterator[Message]:
    sql = f"select ordinal, prefix, content from changes where lsn = {lsn:d} and op = 'message' order by ordinal"
    for row in reader.query(sql, changes=reader.changes).to_pylist():
        yield Message(row["ordinal"], row["prefix"], row["content"] or b"")


def _tables(reader: Reader, lsn: Lsn) -> list[TableName]:
    sql = f'select distinct "schema", "table" from changes where lsn = {lsn:d} and "table" is not null'
    return [TableName(row["schema"], row["table"]) for row in reader.query(sql, changes=reader.changes).to_pylist()]


def _steps(reader: Reader, name: TableName, lsn: Lsn) -> Iterator[_Placed]:
    table = reader.table_at(name, lsn)
    table = None if table is None else reader.keyed_at(table, lsn)
    span = Span(Lsn(lsn - 1), lsn)
    changes = changes_of(reader, name, span)
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
