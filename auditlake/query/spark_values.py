"""How Spark shows PostgreSQL's values: `exact_text`, `char(n)` without its padding, json and jsonb as VARIANT.

    exact_text(price, _raw, 'price')     as a SQL function, after `register_function`
    exact_text("price", "o")             as a Column: column `price` of the table with alias `o`

`exact_text` is PostgreSQL's own text of a value, by the one implementation, `values.exact_text`. It needs the row's
`_raw` beside the value, which a state has only on request. A name is looked up in `_raw` as Spark looks up columns: an
exact match first, then without regard to case.

`spark.auditlake.json` is `string` (the default) or `variant`. Histories keep the exact text, which VARIANT loses, and
which every reader of Delta can read (docs/types.md). So the setting only changes how a session shows the columns. A
document that VARIANT cannot hold, such as one with a repeated key, is NULL. If `_raw` is shown too, it has the text of
every document, so `exact_text` returns PostgreSQL's text, as for any other value that its typed column cannot hold.

A `char(n)` is shown without trailing blanks (`values.types`), and `_raw` has the printed text in the same way.

Authority: spark.apache.org/docs/latest/api/sql, try_parse_json
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StringType

from auditlake.errors import ConfigError
from auditlake.relation import Column
from auditlake.sql_names import spark_identifier, spark_literal
from auditlake.values.exact_text import exact_texts, held_in
from auditlake.values.types import BUILT_IN, has_padded_elements, is_padded

NAME = "exact_text"
SETTING = "spark.auditlake.json"

_STRING, _VARIANT = "string", "variant"
_JSON_OIDS = frozenset({BUILT_IN["json"][0], BUILT_IN["jsonb"][0]})


def exact_text_column(name: str, of: str | None = None) -> Expression:
    """Return PostgreSQL's text of column `name`; `of` is the table's alias, if there are several tables."""
    table = "" if of is None else f"{spark_identifier(of)}."
    printed: Expression = _function()(F.col(f"{table}{spark_identifier(name)}"), F.col(f"{table}_raw"), F.lit(name))
    return printed


def register_function(spark: SparkSession) -> None:
    """Register `exact_text` in the SQL of this session."""
    spark.udf.register(NAME, _function())


def _printed(values: pa.Array, raws: pa.Array, names: pa.Array) -> pa.Array:
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.string())
    if pa.types.is_struct(values.type):  # a VARIANT: `_raw` has the text of each (`_with_texts`)
        return _of_column(raws, names)
    return exact_texts(values, held_in(values.type), _of_column(raws, names))


def _of_column(raws: pa.Array, names: pa.Array) -> pa.Array:
    rows = zip(raws.to_pylist(), names.to_pylist(), strict=True)
    return pa.array([None if raw is None else _entry(dict(raw), name) for raw, name in rows], pa.string())


def _entry(raw: Mapping[str, str], name: str) -> str | None:
    if name in raw:
        return raw[name]
    return next((text for column, text in raw.items() if column.casefold() == name.casefold()), None)


def _function() -> Any:  # noqa: ANN401 - pyspark has a type for it only in its stubs
    """Return the function, of Spark or of Spark Connect, whichever this process uses by now."""
    # pyspark's stubs require a function type argument that Spark deprecates in favour of the type hints.
    return arrow_udf(_printed, StringType())  # type: ignore[call-overload]


def documents_of(spark: SparkSession, columns: Sequence[Column]) -> frozenset[str]:
    """Return the names of the stored columns that this session shows as VARIANT; raises ConfigError."""
    chosen = str(spark.conf.get(SETTING, _STRING))
    if chosen not in (_STRING, _VARIANT):
        raise ConfigError(f"{SETTING} is {chosen!r}, need {_STRING} or {_VARIANT}", f"Set it in [spark]: {SETTING}.")
    return frozenset(column.stored for column in columns if chosen == _VARIANT and column.type_oid in _JSON_OIDS)


def shown(name: str, documents: frozenset[str], under: str | None = None) -> str:
    """Return SQL for a column of the source, or `_raw`, as this session shows it, `under` another name if given."""
    column = spark_identifier(name)
    alias = column if under is None else spark_identifier(under)
    if name == "_raw" and documents:
        return f"{_with_texts(documents)} as {alias}"
    return f"try_parse_json({column}) as {alias}" if name in documents else f"{column} as {alias}"


def _with_texts(documents: frozenset[str]) -> str:
    texts = ((f"named_struct('name', {spark_literal(d)}, 'text', {spark_identifier(d)})", d) for d in sorted(documents))
    entries = ", ".join(f"if({spark_identifier(name)} is null, null, {pair})" for pair, name in texts)
    raw = "coalesce(_raw, cast(map() as map<string,string>))"
    whole = f"map_concat({raw}, map_from_entries(array_compact(array({entries}))))"
    return f"if(size({whole}) > 0, {whole}, null)"


def without_padding(rows: DataFrame, columns: Sequence[Column], *, raw: bool) -> DataFrame:
    """Return rows with their `char(n)` without trailing blanks; `columns` are stored under the names that rows have.

    `raw`: the rows have `_raw`, to which the printed texts are added.
    """
    padded = {c.stored: c for c in columns if is_padded(c.type_oid) or has_padded_elements(c.type_oid)}
    if not padded:
        return rows
    shown = {name: _bare(column) for name, column in padded.items()}
    if raw:
        shown["_raw"] = _with_printed(list(padded.values()))
    return rows.withColumns(shown)


def _bare(column: Column) -> Expression:
    value = F.col(spark_identifier(column.stored))
    return _trimmed(value) if is_padded(column.type_oid) else F.transform(value, _trimmed)


def _trimmed(value: Expression) -> Expression:
    return F.rtrim(value)  # its second parameter would make it a lambda of two


def _with_printed(columns: Sequence[Column]) -> Expression:
    entries = []
    for column in columns:
        value = F.col(spark_identifier(column.stored))
        if is_padded(column.type_oid):
            text, differs = value, value.endswith(" ")
        else:
            text, differs = exact_text_column(column.stored), F.exists(value, lambda each: each.endswith(" "))
        entries.append(F.when(differs, F.struct(F.lit(column.stored).alias("name"), text.alias("text"))))
    raw = F.coalesce(F.col("_raw"), F.expr("cast(map() as map<string,string>)"))
    whole = F.map_concat(raw, F.map_from_entries(F.array_compact(F.array(*entries))))
    return F.when(F.size(whole) > 0, whole)
