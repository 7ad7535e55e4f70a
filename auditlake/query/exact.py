"""`exact_text` in Spark: PostgreSQL's own text of a value, by the one implementation there is, `values.exact`.

    exact_text(price, _raw, 'price')     as a SQL function, once `register_function` has made it known
    exact_text("price", "o")             as a Column: column `price` of the table that goes by `o`

It needs the row's `_raw` beside the value, which states have only where they are asked for it. A name is looked for in
`_raw` as Spark looks for columns: the exact spelling first, then without regard to case.
"""

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType

from auditlake.literals import spark_name
from auditlake.values.exact import exact_texts, held_in

NAME = "exact_text"


def exact_text(name: str, of: str | None = None) -> Column:
    """Print column `name`, of the table with alias `of` where there are several."""
    table = "" if of is None else f"{spark_name(of)}."
    printed: Column = _FUNCTION(F.col(f"{table}{spark_name(name)}"), F.col(f"{table}_raw"), F.lit(name))
    return printed


def register_function(spark: SparkSession) -> None:
    """Make `exact_text` known to the SQL of this session."""
    spark.udf.register(NAME, _FUNCTION)


def _printed(values: pa.Array, raws: pa.Array, names: pa.Array) -> pa.Array:
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.string())
    if pa.types.is_struct(values.type):  # a VARIANT: `_raw` has the text of every one (`documents`)
        return _of_column(raws, names)
    return exact_texts(values, held_in(values.type), _of_column(raws, names))


def _of_column(raws: pa.Array, names: pa.Array) -> pa.Array:
    rows = zip(raws.to_pylist(), names.to_pylist(), strict=True)
    return pa.array([None if raw is None else _entry(dict(raw), name) for raw, name in rows], pa.string())


def _entry(raw: Mapping[str, str], name: str) -> str | None:
    if name in raw:
        return raw[name]
    return next((text for column, text in raw.items() if column.casefold() == name.casefold()), None)


# Its stubs want a function type that Spark then advises against: the type hints say it.
_FUNCTION = arrow_udf(_printed, StringType())  # type: ignore[call-overload]
