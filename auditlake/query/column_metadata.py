"""Column metadata in Spark: mark columns that show an LSN, and columns that may be NULL for a value that exists.

Spark keeps a column's metadata if a query selects, renames or joins it, and drops it if an expression computes a new
value. So the schema of a result shows which of its columns come unchanged from a table of the lake.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from auditlake.lake.history import type_of
from auditlake.relation import Column, TableName

_LSN, _SCHEMA, _TABLE, _COLUMN = "auditlake.lsn", "auditlake.schema", "auditlake.table", "auditlake.column"


@dataclass(frozen=True, slots=True)
class Origin:
    """A stored column of a table whose type cannot hold every value of its PostgreSQL type."""

    table: TableName
    column: str


def mark(rows: DataFrame, table: TableName, columns: Sequence[Column], lsns: Collection[str]) -> DataFrame:
    """Add the metadata to a table's rows; `lsns` are the columns that show an LSN."""
    partial = {column.stored for column in columns if type_of(column).may_not_fit}
    return rows.to(StructType([_marked(field, table, partial, lsns) for field in rows.schema.fields]))


def _marked(field: StructField, table: TableName, partial: Collection[str], lsns: Collection[str]) -> StructField:
    metadata = dict(field.metadata)
    if field.name in lsns and isinstance(field.dataType, LongType):
        metadata[_LSN] = True
    elif field.name in partial:
        metadata |= {_SCHEMA: table.schema, _TABLE: table.table, _COLUMN: field.name}
    return StructField(field.name, field.dataType, nullable=True, metadata=metadata)


def shows_lsn(field: StructField) -> bool:
    """Return whether a column of a result is an LSN."""
    return bool(field.metadata.get(_LSN))


def origin_of(field: StructField) -> Origin | None:
    """Return the origin of a result's column, if it may be NULL for a value that exists."""
    metadata = field.metadata
    if _COLUMN not in metadata:
        return None
    return Origin(TableName(metadata[_SCHEMA], metadata[_TABLE]), metadata[_COLUMN])
