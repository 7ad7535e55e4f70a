"""Arrow batches of a query's rows, in order, one partition at a time: no process holds the whole result.

Spark builds the batches in the JVM and pyspark's local iterator fetches them, so no Python worker and no pickled row is
involved, and at most two partitions wait in the JVM. Types that Arrow lacks are sent as text: intervals as Spark
formats them, variants as JSON.

`Dataset.toArrowBatchRdd` is what `DataFrame.toArrow` collects. It has no public name in Python, and is used only here.
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
    StructField,
    VariantType,
    YearMonthIntervalType,
)

from auditlake.query.column_metadata import shows_lsn
from auditlake.query.spark_errors import statement_errors
from auditlake.query.statement import JSON_TEXT, LSN

_INTERVALS = (CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)
_TEXTS_INSIDE = ("interval", "variant")
_JSON_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "timeZone": "UTC", "ignoreNullFields": "false"}


def batches(rows: DataFrame) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Return the schema of a query's rows, and an iterator that computes their batches on demand.

    Raises BadUsage, from the iterator, if the query fails on a row.
    """
    names = [f"c{index}" for index in range(len(rows.columns))]  # column names may repeat
    kinds = [field.dataType for field in rows.schema.fields]
    sent = rows.toDF(*names).select(*(_sent(F.col(n), kind).alias(n) for n, kind in zip(names, kinds, strict=True)))
    carried = pa.schema(to_arrow_schema(sent.schema, timezone="UTC"))
    marked = [
        pa.field(field.name, there.type, metadata=_marks(field))
        for field, there in zip(rows.schema.fields, carried, strict=True)
    ]
    schema = pa.schema(marked)
    return schema, _fetch(sent, schema)


def _marks(field: StructField) -> dict[bytes, bytes] | None:
    if _as_json(field.dataType):
        return {JSON_TEXT: b"1"}
    return {LSN: b"1"} if shows_lsn(field) else None


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
