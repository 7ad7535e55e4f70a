"""Spark's errors about a statement, as BadUsage in one line.

Analysis errors are about the statement alone, so their sentence is passed on, with our views' names replaced by the
tables'. Errors during execution may quote a row's values, so only their error class is shown. For the same reason
pyspark's own loggers, which write such errors to stderr with plan and stack, are disabled meanwhile.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    PySparkException,
    SparkRuntimeException,
)
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.logger import PySparkLogger

from auditlake.errors import BadUsage
from auditlake.spark.session import LOGGERS_OF_ROWS

_RUNNING = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    NumberFormatException,
    SparkRuntimeException,
)
# Offsets refer to the rewritten text, so they would mislead.
_TAIL = re.compile(r"\s*(SQLSTATE: \w+)?\s*(\(line \d+, pos \d+\)|; line \d+ pos \d+)?;?\s*$")
_CLASS = re.compile(r"^\[[A-Z_0-9.]+\]\s*")


@contextmanager
def statement_errors(views: Mapping[str, str]) -> Iterator[None]:
    """Turn Spark's errors about the user's SQL into BadUsage; `views` maps our views' names to the names to show."""
    with _pyspark_quiet():
        try:
            yield
        except AnalysisException as exc:
            hint = "DESCRIBE a table to see its columns, SHOW TABLES to see tables."
            raise BadUsage(_sentence(exc, views), hint) from exc
        except _RUNNING as exc:
            raise _failing_row(exc) from exc
        except Py4JJavaError as exc:  # a streamed result wraps the cause
            if cause := _cause(exc):
                raise _failing_row(cause) from exc
            raise


def _failing_row(exc: PySparkException) -> BadUsage:
    return BadUsage(
        f"the SQL fails on some row: {exc.getCondition() or type(exc).__name__}",
        "A try_ function, such as try_cast or try_divide, returns NULL instead.",
    )


def _cause(exc: Py4JJavaError) -> PySparkException | None:
    java = exc.java_exception
    while java is not None:
        converted = convert_exception(java)
        if isinstance(converted, _RUNNING):
            return converted
        java = java.getCause()
    return None


@contextmanager
def _pyspark_quiet() -> Iterator[None]:
    loggers = [logger for name in LOGGERS_OF_ROWS if not (logger := PySparkLogger.getLogger(name)).disabled]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger in loggers:
            logger.disabled = False


def _sentence(exc: PySparkException, views: Mapping[str, str]) -> str:
    lines = [line for line in str(exc).splitlines() if line.strip()]
    sentence = _TAIL.sub("", _CLASS.sub("", lines[0] if lines else type(exc).__name__))
    for view, name in views.items():
        sentence = re.sub(rf"`?\b{re.escape(view)}\b`?", f"`{name}`", sentence)
    return f"Spark refuses the SQL: {sentence}"
