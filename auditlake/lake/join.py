"""Join small files of a history without Spark: the rows that are still there, in one file, in order.

An OPTIMIZE of ten small files costs as much as ten batches. Here they are read, and written again, in memory; one entry
in Delta's log puts the new file in their place, as a rearrangement that changes no data. It is the entry of the next
version or none, so nothing can have been committed in between. For more than `HELD_BYTES` of files there is OPTIMIZE.

Authority: Delta's PROTOCOL.md, "Add File and Remove File": `dataChange`
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.lake.actions import file_path
from auditlake.lake.arrow import history_schema
from auditlake.lake.commits import Action, put_commit, removed
from auditlake.lake.history import OPEN_PART, write_rows
from auditlake.lake.scan import Files

HELD_BYTES = 32 << 20
"""So large may the files of a part be; in memory they take several times as much."""


def join(parts: Sequence[Files]) -> bool:
    """Put one file in place of the files of each part; False where another commit was faster.

    Closed versions are laid in the order in which they began.
    """
    actions = [action for files in parts for action in _joined(files)]
    table = parts[0].table
    try:
        put_commit(table.path, table.delta_version + 1, "OPTIMIZE", actions)
    except FileExistsError:
        return False
    return True


def _joined(files: Files) -> list[Action]:
    (part,) = {file.part for file in files.by_name.values()}
    rows = _rows(files)
    if part != OPEN_PART:
        rows = rows.sort_by("_from_lsn")
    added = [write_rows(files.table, part, rows)] if rows.num_rows else []
    return [_rearranged(action) for action in (*(removed(file.add) for file in files.by_name.values()), *added)]


def _rearranged(action: Action) -> Action:
    """Say that it changes no data: who reads the table as a stream passes it over."""
    return {kind: {**said, "dataChange": False} for kind, said in action.items()}


def _rows(files: Files) -> pa.Table:
    schema = history_schema(files.table.columns)
    found = []
    for name, file in files.by_name.items():
        rows = pq.ParquetFile(file_path(files.table.path, file.add)).read()
        kept = np.ones(rows.num_rows, bool)
        kept[np.fromiter(files.gone(name), np.int64)] = False
        found.append(_in_shape(rows.filter(pa.array(kept)), schema))
    return pa.concat_tables(found)


def _in_shape(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """A column that was added later is in no older file."""
    has = frozenset(rows.column_names)
    columns = [
        rows[field.name].cast(field.type) if field.name in has else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)
