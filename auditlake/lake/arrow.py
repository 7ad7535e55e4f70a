"""The Arrow types of a history's columns, as its files have them. Pure."""

import pyarrow as pa

from auditlake.lake.history import PERIOD_COLUMNS, type_of
from auditlake.relation import Column
from auditlake.values.types import ColumnType, Kind

TIME = pa.timestamp("us", tz="UTC")
_ARROW = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIME,
    "timestamp_ntz": pa.timestamp("us"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
PERIOD_FIELDS = tuple(pa.field(name, _ARROW[kind]) for name, kind in PERIOD_COLUMNS if name != "_part")
"""The period's columns without `_part`, which is in the folder's name."""


def history_schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the schema of a history's files: the source's columns and `PERIOD_FIELDS`."""
    return pa.schema([*(pa.field(column.stored, arrow_type(type_of(column))) for column in columns), *PERIOD_FIELDS])


def arrow_type(held: ColumnType) -> pa.DataType:
    """Return the type of a column of the source's."""
    if held.element is not None:
        return pa.list_(arrow_type(held.element))
    if held.kind is Kind.DECIMAL:
        precision, scale = held.delta.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    return _ARROW[held.delta]
