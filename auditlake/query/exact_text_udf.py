"""`exact_text` in Spark: PostgreSQL's own text of a value, by the one implementation, `values.exact_text`.

    exact_text(price, _raw, 'price')     as a SQL function, after `register_function`
    exact_text("price", "o")             as a Column: column `price` of the table with alias `o`

It needs the row's `_raw` beside the value, which a state has only on request. A name is looked up in `_raw` as Spark
looks up columns: an exact match first, then without regard to case.
"""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType

from auditlake.sql_names import spark_identifier
from auditlake.values.exact_text import exact_texts, held_in

NAME = "exact_text"


def exact_text(name: str, of: str | None = None) -> Column:
    """Return PostgreSQL's text of column `name`; `of` is the table's alias, if there are several tables."""
    table = "" if of is None else f"{spark_identifier(of)}."
    printed: Column = _FUNCTION(F.col(f"{table}{spark_identifier(name)}"), F.col(f"{table}_raw"), F.lit(name))
    return printed


def register_function(spark: SparkSession) -> None:
    """Register `exact_text` in the SQL of this session."""
    spark.udf.register(NAME, _FUNCTION)


def _printed(values: pa.Array, raws: pa.Array, names: pa.Array) -> pa.Array:
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.string())
    if pa.types.is_struct(values.type):  # a VARIANT: `_raw` has the text of each (`json_variant`)
        return _of_column(raws, names)
    return exact_texts(values, held_in(values.type), _of_column(raws, names))


def _of_column(raws: pa.Array, names: pa.Array) -> pa.Array:
    rows = zip(raws.to_pylist(), names.to_pylist(), strict=True)
    return pa.array([None if raw is None else _entry(dict(raw), name) for raw, name in rows], pa.string())


def _entry(raw: Mapping[str, str], name: str) -> str | None:
    if name in raw:
        return raw[name]
    return next((text for column, text in raw.items() if column.casefold() == name.casefold()), None)


# pyspark's stubs require a function type argument that Spark deprecates in favour of the type hints.
_FUNCTION = arrow_udf(_printed, StringType())  # type: ignore[call-overload]
