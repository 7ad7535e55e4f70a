"""Failures of the apply stage as auditlake errors, without values of rows."""

from auditlake.errors import InvariantBroken, LakeConflict
from auditlake.jvm_trace import raised_by
from auditlake.lake.history import HistoryTable

_INVALID_VALUE = (
    "ArithmeticException",
    "ArrayIndexOutOfBoundsException",  # a tuple with fewer values than the relation has columns
    "DateTimeException",
    "IllegalArgumentException",
    "NumberFormatException",
    "SparkRuntimeException",
)
"""Classes of pyspark.errors."""


class CannotFold(InvariantBroken):
    """The changes of a table contradict its history, or have an unreadable value; `what` is the reason.

    The table is parked; no other table is affected.
    """

    def __init__(self, message: str, hint: str | None = None, what: str = "") -> None:
        super().__init__(message, hint)
        self.what = what


def conflict(table: HistoryTable) -> LakeConflict:
    """Return the error for a table whose position another process has moved."""
    return LakeConflict(
        f"another process applies changes to {table.name} after {table.position}",
        hint="Stop the other `auditlake follow` or `auditlake apply` of this lake, then start again.",
    )


def fold_failure(table: HistoryTable, exc: Exception) -> CannotFold | None:
    """Return the error if a change made Spark fail, without Spark's message, which may quote a value; else None."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - Spark has raised it

    if not isinstance(exc, PySparkException):
        return None
    if exc.getCondition() == "USER_RAISED_EXCEPTION":
        what = (exc.getMessageParameters() or {}).get("errorMessage", "")  # our own text
    elif isinstance(exc, raised_by("pyspark.errors", *_INVALID_VALUE)):
        what = f"Spark cannot read a value ({exc.getCondition()})"
    else:
        return None
    return cannot_fold(table, what)


def cannot_fold(table: HistoryTable, what: str) -> CannotFold:
    """Return the error for changes that cannot be folded."""
    return CannotFold(
        f"the changes of {table.name} after {table.position} cannot be applied: {what}",
        hint="The history has none of them, `changes` has all of them. Please report it.",
        what=what,
    )
