"""What stops a tail from becoming history, as the errors that say so."""

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    PySparkException,
    SparkRuntimeException,
)

from auditlake.apply.fold import Kind
from auditlake.errors import InvariantBroken, LakeConflict
from auditlake.lake.history import HistoryTable
from auditlake.lsn import Lsn

_NOT_A_VALUE = (
    ArithmeticException,
    ArrayIndexOutOfBoundsException,  # a tuple with fewer values than the relation has columns
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    SparkRuntimeException,
)
_DISAGREEMENT = "they do not go with the history: "
BEGINS_OPEN = f"{_DISAGREEMENT}a key begins that is open"
ENDS_NOT_OPEN = f"{_DISAGREEMENT}a key ends that is not open"


def contradiction(expected: pa.ChunkedArray, met: pa.ChunkedArray) -> str | None:
    """Say what does not go with the history, by the kinds of a fold's edges and of those whose key was found open."""
    if pc.any(pc.equal(met, Kind.BIRTH)).as_py():
        return BEGINS_OPEN
    if len(met) != (pc.sum(pc.equal(expected, Kind.CLOSE)).as_py() or 0):
        return f"{ENDS_NOT_OPEN}, or is open twice"
    return None


def conflict(table: HistoryTable) -> LakeConflict:
    """Say that another process moved the table."""
    return LakeConflict(
        f"another process applies changes to {table.name}, from {Lsn(table.position)} on",
        hint="Stop the other `auditlake follow` or `auditlake apply` of this lake; starting again is then enough.",
    )


def broken(table: HistoryTable, exc: PySparkException | Py4JJavaError) -> InvariantBroken | None:
    """Say what is wrong with the changes, if that is what Spark failed of; without what Spark says of values."""
    if isinstance(exc, Py4JJavaError):
        return None
    if exc.getCondition() == "USER_RAISED_EXCEPTION":
        what = (exc.getMessageParameters() or {}).get("errorMessage", "")
    elif isinstance(exc, _NOT_A_VALUE):
        what = f"Spark cannot read a value ({exc.getCondition()})"
    else:
        return None
    return folded_wrong(table, what)


def folded_wrong(table: HistoryTable, what: str) -> InvariantBroken:
    """Say that the changes cannot be folded."""
    return InvariantBroken(
        f"the changes of {table.name} after {Lsn(table.position)} cannot be folded: {what}",
        hint="Nothing of them is in the history, all of them are in `changes`. Please report it.",
    )
