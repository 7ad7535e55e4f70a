"""Statistics of histories: every file has bounds of its LSNs, however wide the table is."""

import json
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from auditlake.lake.history import PERIOD_COLUMNS, create_history
from auditlake.lake.layout import Lake
from auditlake.relation import Column, TableName

_WIDE = (
    *(Column(f"c{number}", 25, -1, key=False) for number in range(60)),
    Column("flag", 16, -1, key=False),
    Column("odd name", 23, -1, key=False),
    Column("id", 20, -1, key=True),
)


def test_a_wide_table_has_statistics_of_period_and_key(tmp_path: Path) -> None:
    """They come first, then other columns up to Delta's default of 32."""
    table = create_history(Lake(tmp_path), TableName("public", "wide"), _WIDE)
    row = {name: 7 if kind == "bigint" else None for name, kind in PERIOD_COLUMNS} | {"_part": "open"}
    row |= {column.name: "x" for column in _WIDE[:60]} | {"id": 1, "flag": True, "odd name": 2}
    write_deltalake(table, pa.Table.from_pylist([row], schema=pa.schema(table.schema().to_arrow())), mode="append")
    log = (tmp_path / "history/public/wide/_delta_log/00000000000000000001.json").read_text().splitlines()
    (stats,) = [json.loads(action["add"]["stats"]) for line in log if "add" in (action := json.loads(line))]
    assert {"_from_lsn": 7, "_to_lsn": 7, "id": 1}.items() <= stats["minValues"].items()
    assert {"_from_lsn": 7, "_to_lsn": 7, "id": 1}.items() <= stats["maxValues"].items()
    assert len(stats["nullCount"]) == 32
