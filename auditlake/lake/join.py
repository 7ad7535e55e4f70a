"""Join small files of a history without Spark: the rows that are still there, in one file, in order.

An OPTIMIZE of ten small files costs as much as ten batches. Here they are read, and written again, in memory; the new
file takes their place (`rearrange`). For more than `HELD_BYTES` of files there is Spark.
"""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from auditlake.lake.actions import file_path
from auditlake.lake.arrow import history_schema
from auditlake.lake.commits import Action
from auditlake.lake.history import OPEN_PART, write_rows
from auditlake.lake.rearrange import rearrange
from auditlake.lake.scan import Files

HELD_BYTES = 32 << 20
"""So large may the files of a part be; in memory they take several times as much."""


def join(files: Files) -> bool:
    """Put one file in place of these, of one part; False where another commit was faster.

    Closed versions are laid in the order in which they began.
    """
    (part,) = {file.part for file in files.by_name.values()}
    rows = _rows(files)
    if part != OPEN_PART:
        rows = rows.sort_by([("_from_lsn", "ascending"), ("_to_lsn", "ascending")])
    added = [write_rows(files.table, part, rows)] if rows.num_rows else list[Action]()
    return rearrange(files, added)


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
