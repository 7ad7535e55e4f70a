"""Exceptions of the JVM, as Py4J and PySpark raise them: their trace with all causes, and its classes.

Told by the names of their classes, so that no process imports Spark for it. Messages may quote rows; classes do not.

Authority: py4j.protocol, Py4JJavaError; pyspark.errors.exceptions.captured, CapturedException
"""

import re

_KINDS = frozenset({"Py4JJavaError", "PySparkException"})
_CLASS = re.compile(r"(?:\A|^: |^Caused by: )((?:[a-z]\w*\.)+[\w$]+(?:Exception|Error))(?=:|\s|$)", re.MULTILINE)


def trace_of(exc: BaseException) -> str | None:
    """Return the trace of an exception of the JVM; None for any other exception, or if that JVM has ended."""
    if not any(kind.__name__ in _KINDS for kind in type(exc).__mro__):
        return None
    try:
        return str(getattr(exc, "_stackTrace", None) or exc)
    except Exception:  # noqa: BLE001 - Py4J asks the JVM for the text
        return None


def classes_in(trace: str) -> list[str]:
    """Return the class of the exception and of each of its causes."""
    return list(dict.fromkeys(_CLASS.findall(trace)))
