"""Exceptions of the JVM, as Py4J and PySpark raise them: their trace with all causes, its classes, and its end.

They are recognized by their classes' names, without an import of Spark. Messages may quote rows; classes do not.

Authority: py4j.protocol, Py4JJavaError; pyspark.errors.exceptions.captured, CapturedException
"""

import re
import subprocess
import sys
from dataclasses import dataclass

_LOST = frozenset({"Py4JError", "ConnectionError"})
"""Bases of what Py4J raises if the JVM does not answer any more."""
_END_TIMEOUT_S = 5.0
_STARTED: "list[tuple[subprocess.Popen[bytes], str]]" = []
_KINDS = frozenset({"Py4JJavaError", "PySparkException"})
_CLASS = re.compile(r"(?:\A|^: |^Caused by: )((?:[a-z]\w*\.)+[\w$]+(?:Exception|Error))(?=:|\s|$)", re.MULTILINE)


def raised_by(module: str, *names: str) -> tuple[type[Exception], ...]:
    """Return exceptions to catch, by their names in a module; none if it is not imported, and so cannot raise them."""
    loaded = sys.modules.get(module)
    return () if loaded is None else tuple(getattr(loaded, name) for name in names)


def raised_by_spark() -> tuple[type[Exception], ...]:
    """Return what a call of Spark raises, to catch it."""
    return raised_by("pyspark.errors", "PySparkException") + raised_by("py4j.protocol", "Py4JJavaError")


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


KILLED_BY_KERNEL = "the kernel does that if memory runs out"
LESS_HEAP = (
    "Give it less heap (driver.memory under [spark], such as 2g) or the machine more memory, then run the same command"
    " again; nothing was lost."
)
"""The remedy of a JVM that was killed."""


def watch_jvm(jvm: "subprocess.Popen[bytes]", heap: str) -> None:
    """Remember the JVM that this process has started, and the heap that it was given."""
    _STARTED.append((jvm, heap))


@dataclass(frozen=True, slots=True)
class Ended:
    """A JVM that has ended though it was needed: its exit code, negative for a signal, and the heap it was given."""

    exit_code: int
    heap: str


def ended_jvm(exc: BaseException) -> Ended | None:
    """Return the JVM whose end made Py4J raise `exc`; else None."""
    if not _STARTED or not any(kind.__name__ in _LOST for kind in type(exc).__mro__):
        return None
    jvm, heap = _STARTED[-1]
    try:
        return Ended(jvm.wait(_END_TIMEOUT_S), heap)  # its sockets are closed a moment before
    except subprocess.TimeoutExpired:
        return None
