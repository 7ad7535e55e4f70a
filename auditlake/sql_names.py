"""Quoting of identifiers and literals: one function per kind and SQL dialect. Pure, and the only place that quotes.

    dialect                                           identifier            literal
    standard: PostgreSQL, DuckDB, Trino               standard_identifier   standard_literal
    PostgreSQL, in a script that people read          display_identifier    postgres_literal
    DuckDB, for any text                                                    duckdb_literal
    Spark SQL                                         spark_identifier      spark_literal
    Spark SQL, in a script that its clients split     spark_script_identifier, spark_script_literal

Statements that psycopg sends are composed with `psycopg.sql`, the driver's own quoting.

Authority: postgresql.org/docs/current/sql-syntax-lexical.html, 4.1.1 "Identifiers and Key Words", 4.1.2.1 "String
Constants" and 4.1.2.2 "String Constants with C-Style Escapes"; ISO/IEC 9075-2, 5.3 <character string literal> and 5.4
<delimited identifier>; spark.apache.org/docs/latest, "Identifiers" and "Literals" (string literal: the backslash
escapes)
"""

import re

from auditlake.invisible import INVISIBLE, escaped

_FOLDED = re.compile("[a-z_][a-z0-9_]*")
_INVISIBLE = re.compile(rf"[\\\x01-\x1f{INVISIBLE}]")
_QUOTED = re.compile(r'"(?:[^"]|"")*"|\$\$.*?\$\$', re.DOTALL)
_SPLIT = re.compile(rf";|--|[\x01-\x1f{INVISIBLE}]")
"""Where Spark's clients, such as beeline, split a script or remove a comment, also within backticks."""
_NUL = "\0"


def standard_identifier(*names: str) -> str:
    """Quote a name, of one or several parts, as a delimited identifier of standard SQL: all characters are literal."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


def display_identifier(name: str) -> str:
    """Quote a name for people, only if PostgreSQL would fold its case or not read it as one identifier.

    Keywords stay unquoted, so a statement must not be composed with it.
    """
    return name if _FOLDED.fullmatch(name) else standard_identifier(name)


def printable_statement(statement: str) -> str:
    r"""Write the quoted names of a PostgreSQL statement that have control characters as U&"\001b", for a terminal.

    The body of a function, which $$ quotes, is ours and stays as it is; a name may have $$, too.
    """
    return _QUOTED.sub(_printable, statement)


def _printable(found: re.Match[str]) -> str:
    quoted = found[0]
    if quoted.isprintable() or quoted.startswith("$"):
        return quoted
    escaped = (each if each.isprintable() and each != "\\" else f"\\+{ord(each):06x}" for each in quoted)
    return f"U&{''.join(escaped)}"


def standard_literal(text: str) -> str:
    """Quote a text as a literal of standard SQL, in which only the quote is special.

    PostgreSQL reads a backslash the same way only under `standard_conforming_strings = on`; use `postgres_literal` if
    the setting is not known.
    """
    return "'" + text.replace("'", "''") + "'"


def duckdb_literal(text: str) -> str:
    """Quote a text for DuckDB, whose parser ends a statement at the byte 0; texts with invalid bytes have it."""
    return f"({' || chr(0) || '.join(map(standard_literal, text.split(_NUL)))})"


def has_postgres_literal(text: str) -> bool:
    """Return whether PostgreSQL can read the text from a literal: not if it has an invalid byte (`values.escapes`)."""
    return _NUL not in text


def postgres_literal(text: str) -> str:
    r"""Quote a text for PostgreSQL; control and other invisible characters are escaped, so the SQL never holds them.

    `E'...'` means the same under any `standard_conforming_strings`; a text with a backslash is always written so.

    Raises ValueError if the text has an escaped invalid byte: PostgreSQL verifies `\xHH` in a literal against the
    database's encoding.
    """
    if not has_postgres_literal(text):
        raise ValueError("no literal of PostgreSQL holds bytes that are not valid in the encoding")
    if not _INVISIBLE.search(text):
        return standard_literal(text)
    return "E'" + _INVISIBLE.sub(_in_literal, text.replace("'", "''")) + "'"


def _in_literal(match: re.Match[str]) -> str:
    return "\\\\" if match[0] == "\\" else escaped(match)


def spark_identifier(name: str) -> str:
    """Quote a name as an identifier of Spark SQL: case, dots and keywords are literal."""
    return "`" + name.replace("`", "``") + "`"


def spark_literal(text: str) -> str:
    """Quote a text as a literal of Spark SQL, in which the backslash is special too and escapes a quote."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def spark_script_identifier(*names: str) -> str:
    """Quote a name, of one or several parts, for a script of Spark SQL; no client splits the script in it."""
    quoted = ".".join(map(spark_identifier, names))
    return f"identifier({spark_script_literal(quoted)})" if _SPLIT.search(quoted) else quoted


def spark_script_literal(text: str) -> str:
    """Quote a text as a literal for a script of Spark SQL; no client splits the script in it."""
    return _SPLIT.sub(_unit_escapes, spark_literal(text))


def _unit_escapes(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
