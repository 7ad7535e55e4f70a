"""Comparison of the ledger with the lake: every transaction of `changes`, and every version of every history.

`tests.model`, plain Python, folds what PostgreSQL's triggers wrote; the result must equal every row of the history: its
values, both LSNs, both times, both operations and both transactions. Only the commit LSN and the commit time of a
transaction come from the lake, because a trigger cannot know them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from auditlake.audit.lake_reader import Reader
from auditlake.audit.versions import PERIOD, history_texts, value_column
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from tests import model, oracle
from tests.random_ddl import ERASED, SCHEMAS
from tests.torture.schema import texts

Row = tuple[str | None, ...]
_QUERY = "select xid, tab, op, old::text, new::text from public.ledger order by n"


@dataclass(frozen=True)
class Entry:
    """A change of one row, or a TRUNCATE; complete rows as texts."""

    xid: int
    table: str
    op: str
    old: Row | None
    new: Row | None


def read_ledger(dsn: str, lake: Lake) -> list[Entry]:
    """Read the ledger of the tables of a lake, in its order."""
    columns = {table.name.table: [column.name for column in table.current] for table in oracle.fixed_histories(lake)}
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(_QUERY).fetchall()
    return [
        Entry(xid, table, op, *(None if row is None else texts(row, columns[table]) for row in (old, new)))
        for xid, table, op, old, new in rows
        if table in columns
    ]


def assert_changes(changes: Sequence[Mapping[str, Any]], ledger: Sequence[Entry]) -> int:
    """Compare each transaction of `changes` with the ledger, change by change; return the number of transactions."""
    recorded: dict[int, list[Entry]] = defaultdict(list)
    for entry in ledger:
        recorded[entry.xid].append(entry)
    captured: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for change in changes:
        if change["op"] != "message" and change["schema"] not in {*SCHEMAS, ERASED}:
            captured[change["xid"]].append(change)
    for xid, own in captured.items():
        expected = [(entry.table, entry.op) for entry in recorded[xid]]
        assert expected == [(change["table"], change["op"]) for change in own], f"changes of transaction {xid}"
        for entry, change in zip(recorded[xid], own, strict=True):
            assert _same(entry.new, change["new"], change["unchanged"]), f"a row of transaction {xid}"
    return len(captured)


def _same(recorded: Row | None, captured: Sequence[str | None] | None, unchanged: Sequence[int] | None) -> bool:
    if recorded is None or captured is None:
        return recorded is None and captured is None
    left_out = frozenset(unchanged or ())
    return all(at in left_out or one == other for at, (one, other) in enumerate(zip(recorded, captured, strict=True)))


@dataclass(frozen=True)
class _Commits:
    """LSN and time (us since 1970) of the transactions in a lake, by xid."""

    by_xid: Mapping[int, tuple[int, int]]

    def after(self, xid: int, horizon: int) -> bool:
        """Whether a transaction committed after a snapshot; the lake lacks only transactions before all snapshots."""
        return xid in self.by_xid and self.by_xid[xid][0] > horizon


def assert_versions(lake: Lake, ledger: Sequence[Entry], rows: Sequence[Mapping[str, Any]]) -> int:
    """Compare the versions of every history with those that follow from the ledger; return their number."""
    commits = _Commits({row["xid"]: (row["lsn"], _us(row["time"])) for row in rows})
    tables = (table for table in oracle.fixed_histories(lake) if not table.resynced)
    return sum(_assert_table(lake, table, ledger, commits) for table in tables)


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
    for xid in sorted(later, key=lambda one: commits.by_xid[one]):
        fold.commit(xid, *commits.by_xid[xid], later[xid])
    expected, found = Counter(fold.versions()), Counter(_found(lake, table))
    assert expected == found, (
        f"{table.name}: {sum((found - expected).values())} versions do not follow from the ledger, "
        f"{sum((expected - found).values())} that do are missing; {_difference(expected, found)}"
    )
    return sum(found.values())


def _difference(expected: Counter[Any], found: Counter[Any]) -> str:
    shown = [str(row)[:400] for row in (*list(found - expected)[:2], "/", *list(expected - found)[:2])]
    return " ".join(shown)


class _Fold:
    """Model of one table, fed by the ledger."""

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
