"""A table's state as `audit.state` reads it, in PostgreSQL's text of every value, to compare with the server's."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.audit.lake_reader import Reader
from auditlake.audit.state import columns_of, open_state
from auditlake.lake.history import type_of
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.values.exact_text import exact_texts


def texts_at(reader: Reader, name: TableName, lsn: Lsn) -> tuple[list[str], Counter[tuple[str | None, ...]]]:
    """Return the names of a table's columns at an LSN, and its rows as texts."""
    table = reader.known.tables[name]
    rows = open_state(reader, table, lsn, raw=True).read_all().combine_chunks()
    columns = columns_of(reader, table, lsn)
    names = [column.name for column in columns]
    assert rows.column_names == [*names, "_raw"]
    texts = [_texts(rows, number, column) for number, column in enumerate(columns)]
    found = zip(*(text.to_pylist() for text in texts), strict=True) if texts else [()] * rows.num_rows
    return names, Counter(found)


def _texts(rows: pa.Table, number: int, column: Any) -> pa.Array:
    raws = pa.array(
        [None if raw is None else dict(raw).get(column.stored) for raw in rows["_raw"].to_pylist()], pa.string()
    )
    values = pa.concat_arrays(rows.column(number).chunks) if rows.num_rows else pa.array([], rows.column(number).type)
    assert not pc.any(pc.and_(pc.is_valid(values), pc.is_valid(raws))).as_py()
    return exact_texts(values, type_of(column), raws)
