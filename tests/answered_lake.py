"""Lake whose answers are frozen: the page's lake, and commits with a context, a message, a moved key and a TRUNCATE.

0x400  xid 14  T0 + 40 s  insert order 5: the part that the small lake has above its watermark
0x410  xid 15  T0 + 50 s  ann, for "refund": message note; order 4 → 40, insert order 6, truncate customers
0x420  xid 16  T0 + 60 s  visits, a table without a key: delete one of two equal rows, insert another
       gap (0x120, 0x140] of hostile, without a transaction in it
"""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from tests import page
from tests.small_lake import T0, T0_US, version, write_history, write_log

CONTEXT = {"app": {"actor": "ann", "reason": "refund", "ticket": 7}, "db": {"session_user": "shop"}}
_AT = "2026-01-01 12:00:00.25+00"
_ORDERS, _CUSTOMERS, _VISITS = 1, 2, 3
"""Relation versions."""
_VISIT_COLUMNS = (Column("page", 25, -1, key=False), Column("seconds", 23, -1, key=False))


def write_lake(root: Path) -> Lake:
    """Write the lake of this module's docstring."""
    lake = page.write_lake(root)
    visits = TableName("public", "visits")
    visited = (("/", 3), ("/", 3), ("/about", None))
    rows = [_visit(*each) | {"_ordinal": number} for number, each in enumerate(visited)]
    positions = {HISTORY_APP: 0x300, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, visits, _VISIT_COLUMNS, rows, positions, 4)
    relations = RelationsLog(lake)
    relation = relations.register(Relation(4, visits, ReplicaIdentity.FULL, _VISIT_COLUMNS), Lsn(0x420))
    relations.flush()
    assert relation == _VISITS
    transactions = [
        _transaction(0x410, {"inserts": 1, "updates": 1, "truncates": 1}, ["public.customers", "public.orders"])
        | {"context": json.dumps(CONTEXT)},
        _transaction(0x420, {"inserts": 1, "deletes": 1}, ["public.visits"]),
    ]
    changes = [
        _change(0x410, 0, "message", prefix="auditlake", content=json.dumps(CONTEXT["app"]).encode()),
        _change(0x410, 1, "message", prefix="note", content=b"hello \xff"),
        _change(0x410, 2, "update", _ORDERS, old=["4", None, None, None], new=["40", "new", "4.50", _AT]),
        _change(0x410, 3, "insert", _ORDERS, new=["6", None, "1.10", _AT]),
        _change(0x410, 4, "truncate", _CUSTOMERS),
        _change(0x420, 0, "delete", _VISITS, old=["/", "3"]),
        _change(0x420, 1, "insert", _VISITS, new=["/new", "1"]),
    ]
    write_log(lake, transactions, changes, acknowledged_lsn=0x440, current_us=T0_US + 100_000_000)
    record_gaps(lake, [Gap(TableName("public", "hostile"), Lsn(0x120), Lsn(0x140), "the slot was lost")])
    return lake


def _visit(where: str, seconds: int | None) -> dict[str, Any]:
    return {"page": where, "seconds": seconds} | version(0x100, None, "snapshot", None)


_XIDS = {0x410: 15, 0x420: 16}
_SECONDS = {0x410: 50, 0x420: 60}
_TABLES = {_ORDERS: "orders", _CUSTOMERS: "customers", _VISITS: "visits"}


def _transaction(lsn: int, counts: dict[str, int], tables: list[str]) -> dict[str, Any]:
    time = T0 + timedelta(seconds=_SECONDS[lsn])
    return {
        "lsn": lsn,
        "end_lsn": lsn + 0x8,
        "xid": _XIDS[lsn],
        "time": time,
        "time_mono": time,
        **dict.fromkeys(("inserts", "updates", "deletes", "truncates"), 0),
        **counts,
        "tables": tables,
    }


def _change(lsn: int, ordinal: int, op: str, relation: int | None = None, **values: Any) -> dict[str, Any]:
    named = {} if relation is None else {"schema": "public", "table": _TABLES[relation], "relation": relation}
    time = T0 + timedelta(seconds=_SECONDS[lsn])
    return {"lsn": lsn, "ordinal": ordinal, "xid": _XIDS[lsn], "time": time, "op": op, **named, **values}
