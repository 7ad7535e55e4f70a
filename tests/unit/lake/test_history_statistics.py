"""Statistics of histories: every file has bounds of its LSNs, however wide the table is, and none of texts."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from auditlake.lake.history import PERIOD_COLUMNS, create_history
from auditlake.lake.layout import Lake
from auditlake.relation import Column, TableName

_WIDE = (
    Column("email", 25, -1, key=False),
    *(Column(f"c{number}", 23, -1, key=False) for number in range(60)),
    Column("flag", 16, -1, key=False),
    Column("odd name", 23, -1, key=False),
    Column("code", 25, -1, key=True),
    Column("id", 20, -1, key=True),
)


def _statistics(lake: Path) -> dict[str, Any]:
    """Write a row as deltalake does, and return its statistics in the log."""
    table = create_history(Lake(lake), TableName("public", "wide"), _WIDE, 1)
    row = {name: 7 if kind == "bigint" else None for name, kind in PERIOD_COLUMNS} | {"_part": "open"}
    row |= {f"c{number}": number for number in range(60)}
    row |= {"id": 1, "flag": True, "odd name": 2, "email": "ann@example.org", "code": "a"}
    write_deltalake(table, pa.Table.from_pylist([row], schema=pa.schema(table.schema().to_arrow())), mode="append")
    log = (lake / "history/public/wide/_delta_log/00000000000000000001.json").read_text()
    assert "ann@example.org" not in log
    (stats,) = [
        json.loads(action["add"]["stats"]) for line in log.splitlines() if "add" in (action := json.loads(line))
    ]
    return dict(stats)


def test_a_wide_table_has_statistics_of_period_and_key(tmp_path: Path) -> None:
    """They come first, then other columns up to Delta's default of 32; a text has none unless it is in the key."""
    stats = _statistics(tmp_path)
    first = {"_from_lsn": 7, "_to_lsn": 7, "id": 1, "code": "a", "c0": 0}
    assert first.items() <= stats["minValues"].items()
    assert first.items() <= stats["maxValues"].items()
    assert len(stats["nullCount"]) == 32
    assert "email" not in stats["nullCount"]
