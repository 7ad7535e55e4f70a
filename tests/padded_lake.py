"""Small lake with columns of `char(n)`, one of them the key, padded: history and changes not applied yet.

0x100  snapshot: AT Österreich, DE Deutschland, FR (no name)
0x150  DE → Germany, insert "I"                      not applied
"""

from datetime import timedelta
from pathlib import Path
from typing import Any

from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP, Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.lake.relations import RelationsLog
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from tests.s3_server import chosen_lake
from tests.small_lake import T0, T0_US, version, write_history, write_log

NATIONS = TableName("public", "nations")
_CHAR, _CHARS = 1042, 1014
COLUMNS = (
    Column("code", _CHAR, 4 + 3, key=True),
    Column("name", _CHAR, 4 + 12, key=False),
    Column("free", _CHAR, -1, key=False),
    Column("tags", _CHARS, 4 + 2, key=False),
)
NAMES = {"AT": "Österreich", "DE": "Germany", "FR": None, "I": "  x"}
"""The names of now, without padding."""


def write_padded_lake(root: Path) -> Lake:
    """Write the lake of this module's docstring; needs no JVM."""
    lake = chosen_lake(root)
    write_manifest(lake, Manifest("1", 1, "d", "s", "p"))
    rows = [
        _row("AT", "Österreich", "a ", ["x ", None]),
        _row("DE", "Deutschland", "a", []),
        _row("FR", None, "", None),
    ]
    positions = {HISTORY_APP: 0x100, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    write_history(lake, NATIONS, COLUMNS, rows, positions, 1)
    relations = RelationsLog(lake)
    number = relations.register(Relation(1, NATIONS, ReplicaIdentity.DEFAULT, COLUMNS), Lsn(0x150))
    relations.flush()
    changes = [
        _change(0, "update", number, ["DE ", "Germany".ljust(12), "a", "{}"]),
        _change(1, "insert", number, ["I  ", "  x".ljust(12), "a  ", '{"xy","  "}']),
    ]
    write_log(lake, [_TRANSACTION], changes, acknowledged_lsn=0x171, current_us=T0_US + 100_000_000)
    return lake


def _row(code: str, name: str | None, free: str, tags: list[str | None] | None) -> dict[str, Any]:
    padded = None if name is None else name.ljust(12)
    values = {"code": code.ljust(3), "name": padded, "free": free, "tags": tags}
    return values | version(0x100, None, "snapshot", None)


_AT = {"lsn": 0x150, "xid": 10, "time": T0 + timedelta(seconds=6)}
_TRANSACTION = {
    **_AT,
    "end_lsn": 0x170,
    "time_mono": T0 + timedelta(seconds=6),
    **dict(zip(("inserts", "updates", "deletes", "truncates"), (1, 1, 0, 0), strict=True)),
    "tables": [str(NATIONS)],
}


def _change(ordinal: int, op: str, relation: int, new: list[str | None]) -> dict[str, Any]:
    table = {"schema": NATIONS.schema, "table": NATIONS.table, "relation": relation}
    return {**_AT, **table, "ordinal": ordinal, "op": op, "old": None, "new": new}
