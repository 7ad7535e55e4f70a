"""Small tables: a reader keeps what it has read of each file."""

from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from auditlake.delta import small_tables
from auditlake.delta.append_table import AppendLog
from auditlake.delta.small_tables import read_small_table
from auditlake.errors import LakeUnusable
from auditlake.store.session import Session

SCHEMA = pa.schema([("number", pa.int64())])


def test_a_file_is_read_once(tmp_path: Path) -> None:
    """After a commit only its file; none that it has removed is among the rows."""
    log, session = AppendLog(tmp_path, SCHEMA), Session()
    with mock.patch.object(small_tables, "_file", side_effect=small_tables._file) as read:  # noqa: SLF001
        for number in range(40):
            log.append(pa.RecordBatch.from_pylist([{"number": number}], schema=SCHEMA), {})
            found = read_small_table(session, tmp_path, SCHEMA)
            assert sorted(found["number"].to_pylist()) == [*range(number + 1)]
    assert len({call.args[0] for call in read.call_args_list}) == read.call_count >= 40


def test_a_damaged_name_of_a_field_is_no_absent_field(tmp_path: Path) -> None:
    """The values of a struct would be NULL."""
    schema = pa.schema([("columns", pa.list_(pa.struct([("title", pa.string())])))])
    AppendLog(tmp_path, schema).append(pa.RecordBatch.from_pylist([{"columns": [{"title": "a"}]}], schema=schema), {})
    (file,) = tmp_path.glob("*.parquet")
    file.write_bytes(file.read_bytes().replace(b"title", b"tiple"))
    with pytest.raises(LakeUnusable, match="has structs of other fields"):
        read_small_table(Session(), tmp_path, schema)
