"""Audit queries return columns under the source's names, whatever their stored names."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from auditlake.audit.history_conditions import in_history
from auditlake.audit.lake_reader import Reader
from auditlake.audit.versions import history_texts, row_values
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.feed.request import FeedRequest
from auditlake.lake.column_names import as_stored
from auditlake.lake.history import create_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, SNAPSHOT_TIME_APP
from auditlake.lake.parking import Cause, Parked, park
from auditlake.lsn import Lsn
from auditlake.relation import Column, TableName
from tests.s3_server import overwrite
from tests.small_lake import ORDERS, T0, T0_US, write_small_lake

_NAME = TableName("public", "odd")
_DATE, _TEXT = 1082, 25
_MANIFEST = {"system_identifier": "7", "timeline": 1, "database": "d", "slot": "s", "publication": "p", "lsn_offset": 0}


def test_columns_with_other_stored_names_keep_their_own_names(tmp_path: Path) -> None:
    """Names that differ only in case, a reserved name, and a key with a backtick; also in `_raw`."""
    lake = write_small_lake(tmp_path)
    names = {"k`": _TEXT, "Name": _TEXT, "name": _TEXT, "_raw": _DATE}
    columns = as_stored([Column(name, oid, -1, key=name == "k`") for name, oid in names.items()])
    table = create_history(lake, _NAME, columns, 1)
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


def test_a_name_that_a_table_may_have_got_is_refused(tmp_path: Path) -> None:
    """Capture knows that a table was changed, not how: an unknown name may be its new one instead of a typing error."""
    lake = write_small_lake(tmp_path)
    with pytest.raises(BadUsage, match="there is no table purchases in this lake"):
        Reader(lake, datetime.now(UTC)).table("purchases")
    park(lake, Parked(ORDERS, Cause.PENDING, Lsn(0x2FF), Lsn(0x381), "its definition was changed", "Wait."))
    refused = r"no table purchases .*public.orders, perhaps the name, was changed"
    with pytest.raises(NotAnswerable, match=refused):
        Reader(lake, datetime.now(UTC)).table("purchases")
    overwrite(lake.manifest, json.dumps({"format_version": 1, **_MANIFEST}).encode())
    with pytest.raises(NotAnswerable, match=refused):
        FeedRequest(tables=("purchases",)).open(lake)


def test_messages_name_a_table_that_was_created_again_by_its_name_and_oid(tmp_path: Path) -> None:
    """The folder of its history has another name."""
    lake, name = write_small_lake(tmp_path), TableName("public", "orders@16455")
    table = create_history(lake, name, (Column("id", 23, -1, key=True),), 16455, ORDERS)
    positions = {HISTORY_APP: 0x200, SNAPSHOT_APP: 0x200, SNAPSHOT_TIME_APP: T0_US}
    content = pa.Table.from_pylist([], schema=pa.schema(table.schema().to_arrow()))
    properties = CommitProperties(app_transactions=[Transaction(app, version) for app, version in positions.items()])
    write_deltalake(table, content, mode="append", commit_properties=properties)
    park(lake, Parked(name, Cause.SHAPE, Lsn(0x250), Lsn(0x260), "rewritten", "Run auditlake resync."))
    reader = Reader(lake, datetime.now(UTC))
    with pytest.raises(NotAnswerable, match=r"asked for public.orders \(OID 16455\) as of 0/300"):
        reader.check(reader.known.tables[name], Lsn(0x300))
