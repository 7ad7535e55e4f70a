"""json and jsonb as VARIANT, if the session asks for it: `spark.auditlake.json` is `string` (the default) or `variant`.

Histories keep the exact text, which VARIANT loses, and which every reader of Delta can read (docs/types.md). So the
setting only changes how a session shows the columns. A document that VARIANT cannot hold, such as one with a repeated
key, is NULL. If `_raw` is shown too, it has the text of every document, so `exact_text` returns PostgreSQL's text, as
for any other value that its typed column cannot hold.

Authority: spark.apache.org/docs/latest/api/sql, try_parse_json
"""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from auditlake.errors import ConfigError
from auditlake.relation import Column
from auditlake.sql_names import spark_identifier, spark_literal
from auditlake.values.types import BUILT_IN

SETTING = "spark.auditlake.json"

_STRING, _VARIANT = "string", "variant"
_JSON_OIDS = frozenset({BUILT_IN["json"][0], BUILT_IN["jsonb"][0]})


def documents_of(spark: SparkSession, columns: Sequence[Column]) -> frozenset[str]:
    """Return the names of the stored columns that this session shows as VARIANT.

    Raises ConfigError if the setting is neither of its two values.
    """
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
