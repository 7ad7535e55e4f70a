"""One transaction whole: every change in its order, what each row was and became, and what the session said.

The state before comes from history and the tail, once per table; the changes then lead from row to row, so that a row
changed twice shows both steps. Of a table whose history begins later, or that has none, only what the change itself
carries is known; so it is with a column whose older values nobody knows.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from auditlake.audit.changes import States, Step, changes_of
from auditlake.audit.reading import Reader, Span
from auditlake.audit.sides import read_sides
from auditlake.audit.transactions import Transaction, lsns_of_xid, transactions_at
from auditlake.audit.versions import row_values
from auditlake.errors import NotAnswerable
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.pgoutput.context import Context, Scope, context_text, read_context
from auditlake.query.when import AtLsn, AtXid, parse_when
from auditlake.relation import TableName


@dataclass(frozen=True, slots=True)
class Message:
    """A logical message of the transaction."""

    ordinal: int
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Shown:
    """One change of a table, under the context in force there."""

    table: TableName
    key: tuple[str, ...]
    step: Step
    context: Context


def find_transaction(reader: Reader, name: str) -> tuple[Transaction, list[Lsn]]:
    """Find the transaction that an LSN or `xid:N` names, and every LSN that its xid committed at.

    Raises BadUsage, NotAnswerable where there is none.
    """
    when = parse_when(name, reader.now)
    if isinstance(when, AtXid):
        lsns = lsns_of_xid(reader, when.xid)
    elif isinstance(when, AtLsn):
        lsns = [when.lsn]
    else:
        raise NotAnswerable(f"{name} names a moment, not a transaction", "auditlake log lists transactions.")
    found = transactions_at(reader, lsns[-1:])
    if not found:
        raise NotAnswerable(
            f"no transaction {name} is known up to {reader.watermark}",
            "It may have changed no published table, or lie before the snapshot; auditlake log lists what is known.",
        )
    return found[lsns[-1]], lsns


def contents(reader: Reader, transaction: Transaction) -> Iterator[Shown | Message]:
    """Everything in a transaction, in its order."""
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
    table = reader.known.tables.get(name)
    span = Span(Lsn(lsn - 1), lsn)
    changes = changes_of(reader, name, span)
    states = states_before(reader, table, span)
    for change in changes:
        step = states.apply(change)
        yield name, states.key, step if table is None else _as_shown(reader, table, step)


def _as_shown(reader: Reader, table: HistoryTable, step: Step) -> Step:
    sides = (step.before, step.after)
    shown = (None if values is None else reader.shown_at(table, step.change.lsn, values) for values in sides)
    before, after = shown
    return replace(step, before=before, after=after)


def states_before(reader: Reader, table: HistoryTable | None, span: Span) -> States:
    """The rows at the beginning of a span that its changes touch."""
    if table is None or span.after < table.horizon:
        return States(_key(table), known=False)
    key = _key(table)
    if not key:
        return States(key)
    rows = (row_values(row) for row in read_sides(reader, table, span).before.to_pylist())
    return States(key, {tuple(str(row[name]) for name in key): row for row in rows})


def _key(table: HistoryTable | None) -> tuple[str, ...]:
    return () if table is None else tuple(column.name for column in table.key)
