"""Audit queries return columns under the source's names, whatever their stored names."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from auditlake.audit.keys import in_history
from auditlake.audit.lake_reader import Reader
from auditlake.audit.versions import history_texts, row_values
from auditlake.lake.column_names import as_stored
from auditlake.lake.history import RESERVED, create_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP
from auditlake.relation import Column, TableName
from tests.small_lake import T0, T0_US, write_small_lake

_NAME = TableName("public", "odd")
_DATE, _TEXT = 1082, 25


def test_columns_with_other_stored_names_keep_their_own_names(tmp_path: Path) -> None:
    """Names that differ only in case, a reserved name, and a key with a backtick; also in `_raw`."""
    lake = write_small_lake(tmp_path)
    names = {"k`": _TEXT, "Name": _TEXT, "name": _TEXT, "_raw": _DATE}
    columns = as_stored([Column(name, oid, -1, key=name == "k`") for name, oid in names.items()], RESERVED)
    table = create_history(lake, _NAME, columns)
    row: dict[str, Any] = {column.stored: text for column, text in zip(columns, ["1", "x", "y", None], strict=True)}
    row |= {"_from_lsn": 0x100, "_from_time": T0, "_op": "snapshot", "_part": "open", "_raw": [("~5fraw", "infinity")]}
    positions = {HISTORY_APP: 0x200, SNAPSHOT_APP: 0x100, SNAPSHOT_TIME_APP: T0_US}
    properties = CommitProperties(app_transactions=[Transaction(app, version) for app, version in positions.items()])
    content = pa.Table.from_pylist([row], schema=pa.schema(table.schema().to_arrow()))
    write_deltalake(table, content, mode="append", commit_properties=properties)
    reader = Reader(lake, datetime.now(UTC))
    history = reader.known.tables[_NAME]
    (found,) = history_texts(reader, history, in_history(history, ("1",))).to_pylist()
    assert row_values(found) == {"k`": "1", "Name": "x", "name": "y", "_raw": "infinity"}
