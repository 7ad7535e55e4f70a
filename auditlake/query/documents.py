"""json and jsonb as VARIANT, in a session that asks for it: `spark.auditlake.json` is `string` (if unset) or `variant`.

Histories keep their exact text, which a VARIANT does not, and which every reader of Delta can read (docs/types.md). So
the setting changes what is shown, and each session may have its own. A document that VARIANT cannot hold, as one that
repeats a key, is NULL. Where `_raw` is shown too it has the text of every document, so `exact_text` gives what
PostgreSQL holds, as for any other value that its typed column cannot hold.

Authority: spark.apache.org/docs/latest/api/sql, try_parse_json
"""

from collections.abc import Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from auditlake.apply import keys
from auditlake.errors import ConfigError
from auditlake.relation import Column
from auditlake.values.types import BUILT_IN

SETTING = "spark.auditlake.json"

_STRING, _VARIANT = "string", "variant"
_JSON_OIDS = frozenset({BUILT_IN["json"][0], BUILT_IN["jsonb"][0]})


def documents_of(spark: SparkSession, columns: Sequence[Column]) -> frozenset[str]:
    """Name the columns, as they are stored, that this session is shown as VARIANT.

    Raises ConfigError where the setting is neither of its two values.
    """
    chosen = str(spark.conf.get(SETTING, _STRING))
    if chosen not in (_STRING, _VARIANT):
        raise ConfigError(f"{SETTING} is {chosen!r}, need {_STRING} or {_VARIANT}", f"Set it in [spark]: {SETTING}.")
    return frozenset(column.stored for column in columns if chosen == _VARIANT and column.type_oid in _JSON_OIDS)


def shown(name: str, documents: frozenset[str]) -> Expression:
    """A column of the source, or `_raw`, as the session is shown it."""
    if name == "_raw" and documents:
        return _with_texts(documents).alias(name)
    column = keys.source(name)
    return F.try_parse_json(column).alias(name) if name in documents else column


def _with_texts(documents: frozenset[str]) -> Expression:
    raw, nothing = F.col("_raw"), F.expr("cast(map() as map<string,string>)")
    pairs = (F.struct(F.lit(name).alias("name"), keys.source(name).alias("text")) for name in sorted(documents))
    entries = [F.when(pair["text"].isNotNull(), pair) for pair in pairs]
    texts = F.map_from_entries(F.array_compact(F.array(*entries)))
    whole = F.map_concat(F.coalesce(raw, nothing), texts)
    return F.when(F.size(whole) > 0, whole)
