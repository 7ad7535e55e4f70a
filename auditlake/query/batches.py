"""The rows of a query as Arrow batches, in order, a partition at a time: nothing holds the whole result.

Spark makes the batches in the JVM and pyspark's own local iterator brings them over, so neither Python workers nor
pickled rows are in between, and at most two partitions wait in the JVM. What Arrow has no type for travels as text:
intervals as Spark writes them, variants as JSON.

`Dataset.toArrowBatchRdd` is what `DataFrame.toArrow` collects; it has no public name in Python, and is
used here only.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import RDD
from pyspark.serializers import NoOpSerializer
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    VariantType,
    YearMonthIntervalType,
)

from auditlake.query.failure import statement_errors

JSON_TEXT = b"auditlake.json"
"""Marks a field whose texts are JSON."""
_INTERVALS = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)
_TEXTS_INSIDE = ("interval", "variant")
_JSON_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "timeZone": "UTC", "ignoreNullFields": "false"}


def batches(rows: DataFrame) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Plan the query for Arrow; its batches have the schema, and are computed as they are asked for.

    Raises BadUsage, from the iterator, where the query fails on some row.
    """
    names = [f"c{index}" for index in range(len(rows.columns))]  # two may have one name
    kinds = [field.dataType for field in rows.schema.fields]
    sent = rows.toDF(*names).select(*(_sent(F.col(n), kind).alias(n) for n, kind in zip(names, kinds, strict=True)))
    carried = pa.schema(to_arrow_schema(sent.schema, timezone="UTC"))
    marked = [
        pa.field(name, field.type, metadata={JSON_TEXT: b"1"} if _as_json(kind) else None)
        for name, field, kind in zip(rows.columns, carried, kinds, strict=True)
    ]
    schema = pa.schema(marked)
    return schema, _fetch(sent, schema)


def _fetch(sent: DataFrame, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with statement_errors({}):
        java = sent._jdf.toArrowBatchRdd().toJavaRDD()  # noqa: SLF001 - see above
        messages: RDD[bytes] = RDD(java, sent.sparkSession.sparkContext, NoOpSerializer())
        for message in messages.toLocalIterator(prefetchPartitions=True):
            yield pa.ipc.read_record_batch(pa.py_buffer(message), schema)


def _sent(column: Column, kind: DataType) -> Column:
    if isinstance(kind, _INTERVALS):
        return column.cast("string")
    return F.to_json(column, _JSON_OPTIONS) if _as_json(kind) else column


def _as_json(kind: DataType) -> bool:
    inside = not isinstance(kind, _INTERVALS) and any(text in kind.simpleString() for text in _TEXTS_INSIDE)
    return isinstance(kind, VariantType) or (inside and kind.typeName() in {"array", "map", "struct"})
