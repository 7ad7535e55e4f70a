"""A text as a literal of SQL, and a name as an identifier of Spark's. Pure.

In standard SQL, as DataFusion, DuckDB, Trino and PostgreSQL (with its default settings) read it, only the quote is
special; in Spark's the backslash is too, and a quote is escaped by one.
"""


def standard_literal(text: str) -> str:
    """Spell a text in standard SQL."""
    return "'" + text.replace("'", "''") + "'"


def spark_literal(text: str) -> str:
    """Spell a text in Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def spark_name(name: str) -> str:
    """Spell a name as an identifier of Spark SQL, whatever dots and quotes are in it."""
    return "`" + name.replace("`", "``") + "`"
