"""One transaction in detail: every change in order, with the row before and after it, and the logical messages.

The rows before it are read from the history and the tail, once per table, and the changes are applied to them, so a row
that was changed twice shows both steps. If a table has no history at that LSN, not yet or because its versions have
expired, or the missing value of a column is unknown, only the values in the change itself are known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, count

from auditlake.audit.changes import RowChange, States, Step, changes_of
from auditlake.audit.diff import read_sides
from auditlake.audit.lake_reader import Reader, Span
from auditlake.audit.transactions import Transaction, lsns_of_xid, transactions_at
from auditlake.audit.versions import row_values
from auditlake.delta.sql import select
from auditlake.errors import NotAnswerable
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn
from auditlake.pgoutput.attribution import Context, ContextInForce, context_text, read_context
from auditlake.relation import Relation, ReplicaIdentity, TableName
from auditlake.temporal.knowledge import require_kept, say_erased
from auditlake.temporal.when import AtLsn, AtXid, parse_when


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
    """Return the transaction of an LSN or `xid:N`, and all LSNs of its xid; raises BadUsage, NotAnswerable."""
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
    states, needs_versions = states_before(reader, table, span), False
    for change in changes:
        step = states.apply(change)
        needs_versions |= _needs_versions(change, relation)
        if table is None:
            yield name, states.key, step
        else:
            columns = reader.columns_at(table, lsn)
            own = reader.own_names(table)
            shown = {own.get(column.stored, column.stored): column.name for column in columns}
            yield name, tuple(shown.get(key, key) for key in states.key), _as_shown(reader, table, step)
    if table is not None and needs_versions:
        reader.say_expired(table, span, f"what its rows were before {lsn} is not known")


def _needs_versions(change: RowChange, relation: Relation) -> bool:
    """Return whether a change does not tell itself what the rows before it were."""
    is_whole = relation.replica_identity == ReplicaIdentity.FULL and change.op != "truncate"
    return change.op != "insert" and not is_whole


def _as_shown(reader: Reader, table: HistoryTable, step: Step) -> Step:
    sides = (step.before, step.after)
    shown = (None if values is None else reader.shown_at(table, step.change.lsn, values) for values in sides)
    before, after = shown
    return replace(step, before=before, after=after)


def states_before(reader: Reader, table: HistoryTable | None, span: Span) -> States:
    """Return the rows that the changes of a span touch, as they are before it."""
    if table is None or span.after < table.horizon or reader.known.timeline(table).at(span.after) is not None:
        return States(_key(table), known=False)
    key = _key(table)
    if not key:
        return States(key)
    rows = (row_values(row) for row in read_sides(reader, table, span).before.to_pylist())
    return States(key, {tuple(str(row[name]) for name in key): row for row in rows})


def _key(table: HistoryTable | None) -> tuple[str, ...]:
    return () if table is None else tuple(column.name for column in table.key)
