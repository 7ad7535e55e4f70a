"""Small lake, written row by row: two tables at different horizons, four commits, the last two not applied yet.

0x100  snapshot of orders                           T0
0x150  xid 10  update order 1 → b                   T0 + 6 s
0x180  snapshot of customers                        T0 + 8 s
0x200  xid 11  delete order 2, insert order 3       T0 + 10 s   position of orders
0x250  xid 12  update order 1 → c, insert order 4,  T0 + 9 s: the clock ran backwards, time_mono is T0 + 10 s
               customer 1 → Anne
0x300  xid 10  delete order 3                       T0 + 30 s   watermark; the xid is reused
0x381  acknowledged                                 current up to T0 + 100 s
0x400  part of a transaction, above the watermark
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from auditlake.capture.change_log import MONO_SCHEMA
from auditlake.delta.append_table import AppendLog
from auditlake.lake.column_names import as_stored
from auditlake.lake.gaps import GAPS_SCHEMA
from auditlake.lake.history import HistoryTable, create_history, set_columns
from auditlake.lake.history_files import Files, find_files
from auditlake.lake.layout import (
    ACKNOWLEDGED_APP,
    CHANGES_APP,
    CURRENT_APP,
    HISTORY_APP,
    SNAPSHOT_APP,
    SNAPSHOT_TIME_APP,
    TRANSACTIONS_APP,
    Lake,
)
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from tests.read_lake import history_of
from tests.s3_server import chosen_lake
from tests.written_lake import written_once

T0 = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
T0_US = 1_795_251_600_000_000  # date -u -d 2026-11-21T09:00:00Z +%s

ORDERS = TableName("public", "orders")
CUSTOMERS = TableName("public", "customers")
ORDER_COLUMNS = (
    Column("id", 23, -1, key=True),
    Column("note", 25, -1, key=False),
    Column("price", 1700, ((10 << 16) | 2) + 4, key=False),
    Column("at", 1184, -1, key=False),
)
CUSTOMER_COLUMNS = (Column("id", 23, -1, key=True), Column("name", 25, -1, key=False))
_AT = datetime(2026, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def write_lake_with_manifest(root: Path, system_identifier: str = "1") -> Lake:
    """Write the same lake, with its manifest."""
    write_manifest(chosen_lake(root), Manifest(system_identifier, 1, "d", "s", "p"))
    return write_small_lake(root)


@written_once
def write_small_lake(root: Path) -> Lake:
    """Write the lake of this module's docstring; needs no JVM."""
    lake = chosen_lake(root)
    orders = {HISTORY_APP: 0x200, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, ORDERS, ORDER_COLUMNS, _orders(), orders, 1)
    customers = {HISTORY_APP: 0x180, SNAPSHOT_APP: 0x180, SNAPSHOT_TIME_APP: T0_US + 8_000_000}
    ann = version(0x180, None, "snapshot", None) | {"id": 1, "name": "Ann"}
    write_history(lake, CUSTOMERS, CUSTOMER_COLUMNS, [ann], customers, 2)
    _log(lake)
    return lake


STRANGE_COLUMNS = ("a;\n!sh touch ran\n", "a--b", "a/*b", "it's", 'a"b', "a\rb", "\u2028", "é", "a.b", "select")
STRANGE_TABLES = {
    TableName("public", "Lines"): 1,
    TableName("public", "lines"): 2,
    TableName("public", "order-items"): 3,
    TableName("public", "--;\n!sh touch ran\n"): 4,
    TableName("Public", "lines"): 5,
    TableName("public_versions", "lines"): 6,
    TableName("temp", "lines"): 7,
    TableName("auditlake", "lsn"): 8,
}
"""Tables with one row each, of this number in every column."""


def write_strange_lake(root: Path) -> Lake:
    """Write a lake with names that engines confuse, refuse, or that would end a script; needs no JVM."""
    lake = chosen_lake(root)
    write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
    columns = as_stored(Column(name, 23, -1, key=name == "id") for name in ("id", *STRANGE_COLUMNS))
    for name, number in STRANGE_TABLES.items():
        row = version(0x100, None, "snapshot", None) | {column.stored: number for column in columns}
        positions = {HISTORY_APP: 0x200, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
        write_history(lake, name, columns, [row], positions, 100 + number)
    _log(lake)
    return lake


def write_history(  # noqa: PLR0913, PLR0917 - what a history has
    lake: Lake,
    name: TableName,
    columns: tuple[Column, ...],
    rows: list[dict[str, Any]],
    positions: Mapping[str, int],
    oid: int = 0,
) -> None:
    """Create a history with these rows and positions."""
    table = create_history(lake, name, columns, oid)
    transactions = [Transaction(app, version) for app, version in positions.items()]
    content = pa.Table.from_pylist(rows, schema=pa.schema(table.schema().to_arrow()))
    write_deltalake(table, content, mode="append", commit_properties=CommitProperties(app_transactions=transactions))


def add_columns(table: HistoryTable, *columns: Column) -> None:
    """Add columns to a history, as apply does."""
    set_columns(table, [*table.columns, *columns], table.names)


def files_of(lake: Lake, name: TableName) -> Files:
    """Return the current files of a history."""
    table = history_of(lake, name)
    files = find_files(table)
    assert files is not None
    return files


def _orders() -> list[dict[str, Any]]:
    return [
        _order(1, "a", "1.00") | version(0x100, 0x150, "snapshot", "update"),
        _order(1, "b", "2.00") | version(0x150, None, "update", None),
        _order(2, "", "10.50") | version(0x100, 0x200, "snapshot", "delete"),
        _order(3, None, None) | version(0x200, None, "insert", None),
    ]


def _order(number: int, note: str | None, price: str | None) -> dict[str, Any]:
    return {"id": number, "note": note, "price": None if price is None else Decimal(price), "at": _AT}


_SECONDS = {0x100: 0, 0x150: 6, 0x180: 8, 0x200: 10, 0x250: 9, 0x300: 30, 0x400: 40}
_COUNTS = {0x150: (0, 1, 0, 0), 0x200: (1, 0, 1, 0), 0x250: (1, 2, 0, 0), 0x300: (0, 0, 1, 0), 0x400: (1, 0, 0, 0)}
_XIDS = {0x100: None, 0x150: 10, 0x180: None, 0x200: 11, 0x250: 12, 0x300: 10, 0x400: 14}


def version(from_lsn: int, to_lsn: int | None, op: str, end_op: str | None) -> dict[str, Any]:
    """Return the period columns of one version."""
    return {
        "_from_lsn": from_lsn,
        "_to_lsn": to_lsn,
        "_from_time": T0 + timedelta(seconds=_SECONDS[from_lsn]),
        "_to_time": None if to_lsn is None else T0 + timedelta(seconds=_SECONDS[to_lsn]),
        "_op": op,
        "_end_op": end_op,
        "_xid": _XIDS[from_lsn],
        "_end_xid": None if to_lsn is None else _XIDS[to_lsn],
        "_ordinal": 0,
        "_raw": None,
        "_part": "open" if to_lsn is None else "2026-11",
    }


def _log(lake: Lake) -> None:
    relations = RelationsLog(lake)
    orders = relations.register(Relation(1, ORDERS, ReplicaIdentity.DEFAULT, ORDER_COLUMNS), Lsn(0x150))
    customers = relations.register(Relation(2, CUSTOMERS, ReplicaIdentity.DEFAULT, CUSTOMER_COLUMNS), Lsn(0x250))
    relations.flush()
    at = "2026-01-01 12:00:00.25+00"
    rows = [
        _change(0x150, 0, "update", ORDERS, orders, None, ["1", "b", "2.00", at]),
        _change(0x200, 0, "delete", ORDERS, orders, ["2", None, None, None], None),
        _change(0x200, 1, "insert", ORDERS, orders, None, ["3", None, None, at]),
        _change(0x250, 0, "update", ORDERS, orders, None, ["1", "c", "3.00", at]),
        _change(0x250, 1, "insert", ORDERS, orders, None, ["4", "new", "4.00", at]),
        _change(0x250, 2, "update", CUSTOMERS, customers, None, ["1", "Anne"]),
        _change(0x300, 0, "delete", ORDERS, orders, ["3", None, None, None], None),
    ]
    above = [_change(0x400, 0, "insert", ORDERS, orders, None, ["5", "half", "5.00", at])]
    transactions = [_transaction(lsn, mono) for lsn, mono in ((0x150, 6), (0x200, 10), (0x250, 10), (0x300, 30))]
    write_log(lake, transactions, rows, acknowledged_lsn=0x381, current_us=T0_US + 100_000_000)
    above_transaction = pa.RecordBatch.from_pylist([_transaction(0x400, 40)], schema=MONO_SCHEMA)
    AppendLog(lake.transactions, MONO_SCHEMA).append(above_transaction, {TRANSACTIONS_APP: 0x400})
    AppendLog(lake.changes, CHANGES_SCHEMA).append(pa.RecordBatch.from_pylist(above, schema=CHANGES_SCHEMA), {})


def write_log(
    lake: Lake,
    transactions: Sequence[Mapping[str, Any]],
    changes: Sequence[Mapping[str, Any]],
    *,
    acknowledged_lsn: int,
    current_us: int,
) -> None:
    """Append transactions, the last one at the end, and their changes as capture does: `transactions` first."""
    last = transactions[-1]["lsn"]
    rows = pa.RecordBatch.from_pylist(list(transactions), schema=MONO_SCHEMA)
    AppendLog(lake.transactions, MONO_SCHEMA).append(rows, {TRANSACTIONS_APP: last})
    positions = {CHANGES_APP: last, ACKNOWLEDGED_APP: acknowledged_lsn, CURRENT_APP: current_us}
    rows = pa.RecordBatch.from_pylist(list(changes), schema=CHANGES_SCHEMA)
    AppendLog(lake.changes, CHANGES_SCHEMA).append(rows, positions)
    AppendLog(lake.gaps, GAPS_SCHEMA)


def _change(  # noqa: PLR0913, PLR0917 - the columns of one row, in their order
    lsn: int, ordinal: int, op: str, name: TableName, relation: int, old: list[Any] | None, new: list[Any] | None
) -> dict[str, Any]:
    return {
        "lsn": lsn,
        "ordinal": ordinal,
        "xid": _XIDS[lsn],
        "time": T0 + timedelta(seconds=_SECONDS[lsn]),
        "op": op,
        "schema": name.schema,
        "table": name.table,
        "relation": relation,
        "old": old,
        "new": new,
    }


def _transaction(lsn: int, mono_s: int) -> dict[str, Any]:
    return {
        "lsn": lsn,
        "end_lsn": lsn + 0x20,
        "xid": _XIDS[lsn],
        "time": T0 + timedelta(seconds=_SECONDS[lsn]),
        "time_mono": T0 + timedelta(seconds=mono_s),
        **dict(zip(("inserts", "updates", "deletes", "truncates"), _COUNTS[lsn], strict=True)),
        "tables": [str(ORDERS), str(CUSTOMERS)] if lsn == 0x250 else [str(ORDERS)],
    }
