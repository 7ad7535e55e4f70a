"""Small tables: a reader keeps what it has read of each file."""

from pathlib import Path
from unittest import mock

import pyarrow as pa

from auditlake.delta import small_tables
from auditlake.delta.append_table import AppendLog
from auditlake.delta.small_tables import read_small_table
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
