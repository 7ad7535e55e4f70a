"""The small lake, with a table whose key changed, and one whose name another table has now; all is applied.

0x100  snapshot of moved (key code) and of again (key code)
0x500  xid 30  update row a of both: v 1 → 2
0x600          the key of moved is id from here on; again was dropped
0x680  snapshot of another table again (key id), which has no row
0x700  xid 31  insert row c, 30 into moved
"""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from auditlake.lake.history import create_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.relation import Column, Former, Relation, ReplicaIdentity, TableName
from tests.small_lake import T0, T0_US, version, write_lake_with_manifest, write_log

MOVED, AGAIN = TableName("public", "moved"), TableName("public", "again")
_V = Column("v", 23, -1, key=False)
_CODE, _ID = Column("code", 25, -1, key=True), Column("id", 23, -1, key=True)
_NO_CODE, _NO_ID = Column("code", 25, -1, key=False), Column("id", 23, -1, key=False)
_FORMERLY = (Former(Lsn(0x600), "code", key=True),), (Former(Lsn(0x600), "id", key=False),)
_OF_MOVED = (
    Column("code", 25, -1, key=False, former=_FORMERLY[0]),
    Column("id", 23, -1, key=True, former=_FORMERLY[1]),
    _V,
)


def write_rekeyed_lake(root: Path) -> Lake:
    """Write the lake of this module's docstring; needs no JVM."""
    lake = write_lake_with_manifest(root)
    a, c = {"code": "a", "id": 10}, {"code": "c", "id": 30, "v": 3}
    moved = [_row(0x100, 0x500, **a, v=1), _row(0x500, None, **a, v=2), _row(0x700, None, **c)]
    again = [_row(0x100, 0x500, code="a", v=1), _row(0x500, None, code="a", v=2)]
    _write(lake, MOVED, Relation(11, MOVED, ReplicaIdentity.DEFAULT, _OF_MOVED), moved, 0x100)
    _write(lake, AGAIN, Relation(12, AGAIN, ReplicaIdentity.DEFAULT, (_CODE, _V)), again, 0x100)
    other = Relation(13, AGAIN, ReplicaIdentity.DEFAULT, (_ID, _V))
    _write(lake, TableName("public", "again@13"), other, [], 0x680)
    _log(lake)
    return lake


_OPS = {0x100: "snapshot", 0x500: "update", 0x700: "insert"}
_XIDS = {0x100: None, 0x500: 30, 0x700: 31}


def _at(lsn: int) -> Any:
    return T0 if lsn == 0x100 else T0 + timedelta(seconds=lsn)


def _row(begin: int, end: int | None, **values: object) -> dict[str, Any]:
    ended = {"_to_lsn": end, "_to_time": end and _at(end), "_end_op": end and "update", "_end_xid": end and _XIDS[end]}
    begun = {"_from_lsn": begin, "_from_time": _at(begin), "_op": _OPS[begin], "_xid": _XIDS[begin]}
    part = {"_part": "2026-11" if end else "open"}
    return version(0x100, None, "snapshot", None) | begun | ended | part | values


def _write(lake: Lake, name: TableName, relation: Relation, rows: list[dict[str, Any]], snapshot: int) -> None:
    table = create_history(lake, name, relation.columns, relation.oid, relation.name)
    positions = {HISTORY_APP: 0x700, SNAPSHOT_APP: snapshot, SNAPSHOT_TIME_APP: T0_US}
    transactions = [Transaction(app, position) for app, position in positions.items()]
    content = pa.Table.from_pylist(rows, schema=pa.schema(table.schema().to_arrow()))
    write_deltalake(table, content, mode="append", commit_properties=CommitProperties(app_transactions=transactions))


def _log(lake: Lake) -> None:
    relations, default = RelationsLog(lake), ReplicaIdentity.DEFAULT
    by_code = relations.register(Relation(11, MOVED, default, (_CODE, _NO_ID, _V)), Lsn(0x500))
    again = relations.register(Relation(12, AGAIN, default, (_CODE, _V)), Lsn(0x500))
    by_id = relations.register(Relation(11, MOVED, default, (_NO_CODE, _ID, _V)), Lsn(0x600))
    relations.flush()
    changes = [
        _change(0x500, 0, MOVED, by_code, ["a", "10", "2"]),
        _change(0x500, 1, AGAIN, again, ["a", "2"]),
        _change(0x700, 0, MOVED, by_id, ["c", "30", "3"]),
    ]
    transactions = [_transaction(0x500, [MOVED, AGAIN], updates=2), _transaction(0x700, [MOVED], inserts=1)]
    write_log(lake, transactions, changes, acknowledged_lsn=0x740, current_us=T0_US + 3_600_000_000)


def _change(lsn: int, ordinal: int, name: TableName, relation: int, new: list[str]) -> Mapping[str, Any]:
    named = {"schema": name.schema, "table": name.table, "relation": relation}
    return _common(lsn) | named | {"ordinal": ordinal, "op": _OPS[lsn], "old": None, "new": new}


def _transaction(lsn: int, tables: list[TableName], **counts: int) -> Mapping[str, Any]:
    return _common(lsn) | {"end_lsn": lsn + 0x20, "time_mono": _at(lsn), "tables": [*map(str, tables)]} | counts


def _common(lsn: int) -> dict[str, Any]:
    return {"lsn": lsn, "xid": _XIDS[lsn], "time": _at(lsn)}
