"""The ledger against the lake: each transaction of `changes`, and each version of each history, with its bounds.

What PostgreSQL's triggers wrote is folded by `tests.model`, which is plain Python, and must give every history row: its
values, both LSNs, both times, what began and what ended it, and both transactions. Only which LSN and time a
transaction has is taken from the lake: PostgreSQL does not tell.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from auditlake.audit.reading import Reader
from auditlake.audit.versions import PERIOD, history_texts, value_column
from auditlake.lake.history import HistoryTable, list_histories
from auditlake.lake.layout import Lake
from tests import model, oracle
from tests.torture.schema import texts

Row = tuple[str | None, ...]
_QUERY = "select xid, tab, op, old::text, new::text from public.ledger order by n"


@dataclass(frozen=True)
class Entry:
    """One row change, or a truncate; whole rows as texts."""

    xid: int
    table: str
    op: str
    old: Row | None
    new: Row | None


def read_ledger(dsn: str, lake: Lake) -> list[Entry]:
    """Read the ledger of the tables of a lake, in its order."""
    columns = {table.name.table: [column.name for column in table.columns] for table in list_histories(lake)}
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(_QUERY).fetchall()
    return [
        Entry(xid, table, op, *(None if row is None else texts(row, columns[table]) for row in (old, new)))
        for xid, table, op, old, new in rows
        if table in columns
    ]


def assert_changes(lake: Lake, ledger: Sequence[Entry]) -> int:
    """See that each transaction of `changes` is what the ledger has of it, one change after the other."""
    said: dict[int, list[Entry]] = defaultdict(list)
    for entry in ledger:
        said[entry.xid].append(entry)
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for change in oracle.changes(lake):
        if change["op"] != "message":
            found[change["xid"]].append(change)
    for xid, changes in found.items():
        expected = [(entry.table, entry.op) for entry in said[xid]]
        assert expected == [(change["table"], change["op"]) for change in changes], f"changes of transaction {xid}"
        for entry, change in zip(said[xid], changes, strict=True):
            assert _same(entry.new, change["new"], change["unchanged"]), f"a row of transaction {xid}"
    return len(found)


def _same(said: Row | None, found: Sequence[str | None] | None, unchanged: Sequence[int] | None) -> bool:
    if said is None or found is None:
        return said is None and found is None
    left_out = frozenset(unchanged or ())
    return all(at in left_out or one == other for at, (one, other) in enumerate(zip(said, found, strict=True)))


@dataclass(frozen=True)
class _Commits:
    """LSN and time (us since 1970) of the transactions in a lake, by xid."""

    by_xid: Mapping[int, tuple[int, int]]

    def after(self, xid: int, horizon: int) -> bool:
        """Whether a transaction is beyond a snapshot; one that the lake does not have is before all of them."""
        return xid in self.by_xid and self.by_xid[xid][0] > horizon


def assert_versions(lake: Lake, ledger: Sequence[Entry]) -> int:
    """See that every history has exactly the versions that the ledger leads to; give their number."""
    rows = oracle.transactions(lake)
    commits = _Commits({row["xid"]: (row["lsn"], _us(row["time"])) for row in rows})
    return sum(_assert_table(lake, table, ledger, commits) for table in list_histories(lake))


def _us(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def _assert_table(lake: Lake, table: HistoryTable, ledger: Sequence[Entry], commits: _Commits) -> int:
    entries = [entry for entry in ledger if entry.table == table.name.table]
    before = [entry for entry in entries if not commits.after(entry.xid, table.horizon)]
    later: dict[int, list[Entry]] = defaultdict(list)
    for entry in entries:
        if commits.after(entry.xid, table.horizon) and commits.by_xid[entry.xid][0] <= table.position:
            later[entry.xid].append(entry)
    fold = _Fold(table, before)
    for xid in sorted(later, key=lambda each: commits.by_xid[each]):
        fold.commit(xid, *commits.by_xid[xid], later[xid])
    expected, found = Counter(fold.versions()), Counter(_found(lake, table))
    assert expected == found, (
        f"{table.name}: {sum((found - expected).values())} versions are not the ledger's, "
        f"{sum((expected - found).values())} of the ledger's are missing; {_difference(expected, found)}"
    )
    return sum(found.values())


def _difference(expected: Counter[Any], found: Counter[Any]) -> str:
    shown = [str(row)[:400] for row in (*list(found - expected)[:2], "/", *list(expected - found)[:2])]
    return " ".join(shown)


class _Fold:
    """The model of one table, fed by the ledger."""

    def __init__(self, table: HistoryTable, before: Sequence[Entry]) -> None:
        self._key = [place for place, column in enumerate(table.columns) if column.key]
        self._bag = model.Bag()
        self._model = model.Model()
        rows: dict[model.Key, model.Values] = {}
        for entry in before:
            model.apply_operation(self._operation(entry), rows, {}, {})
        begun = (table.horizon, None, "snapshot", None)
        self._model.open = {key: model.Version(key, row, *begun, ordinal=None) for key, row in rows.items()}

    def commit(self, xid: int, lsn: int, time_us: int, entries: Sequence[Entry]) -> None:
        self._model.commit(model.Transaction(lsn, xid, time_us, [self._operation(entry) for entry in entries]))

    def versions(self) -> Iterator[tuple[Any, ...]]:
        for version in [*self._model.closed, *self._model.open.values()]:
            row = version.values if self._key else version.values[0]
            begin = (version.from_lsn, version.from_time, version.op, version.xid)
            yield row, *begin, version.to_lsn, version.to_time, version.end_op, version.end_xid

    def _operation(self, entry: Entry) -> model.Operation:
        operation = self._plain(entry)
        return operation if self._key else self._bag.numbered(operation)

    def _plain(self, entry: Entry) -> model.Operation:
        match entry.op, entry.old, entry.new:
            case "insert", None, new if new is not None:
                return model.Insert(self._of(new), new)
            case "update", old, new if old is not None and new is not None:
                return model.Update(self._of(old), self._of(new), new)
            case "delete", old, None if old is not None:
                return model.Delete(self._of(old))
            case _:
                return model.Truncate()

    def _of(self, row: Row) -> model.Key:
        return tuple(row[place] for place in self._key) if self._key else row


def _found(lake: Lake, table: HistoryTable) -> Iterator[tuple[Any, ...]]:
    held = history_texts(Reader(lake, datetime.now(UTC)), table, "true")
    values = [held[value_column(column.name)].to_pylist() for column in table.columns]
    from_lsn, to_lsn, from_us, to_us, op, end_op, xid, end_xid = (held[name].to_pylist() for name in PERIOD)
    for number, row in enumerate(zip(*values, strict=True)):
        from_time = None if op[number] == "snapshot" else from_us[number]
        begin = (from_lsn[number], from_time, op[number], xid[number])
        yield row, *begin, to_lsn[number], to_us[number], end_op[number], end_xid[number]
