"""Damage: report a history that cannot be read or folded as a finding, not as a bug."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import convert_exception

from auditlake.apply.errors import fold_failure
from auditlake.lake.history import HistoryTable
from auditlake.verify.report import Finding

# Searched in every cause's message: collecting Arrow batches wraps Spark's own exception in others.
_UNREADABLE = re.compile(r"\[((?:FAILED_READ_FILE|PATH_NOT_FOUND|CANNOT_READ_FILE)[A-Z_.]*)\]")


class Unreadable(Exception):
    """A history cannot be read or folded; `finding` is the reason."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.kind)
        self.finding = finding


@contextmanager
def reading(table: HistoryTable) -> Iterator[None]:
    """Turn Spark's errors about damaged files and contradicting changes into Unreadable, without their text."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as exc:
        finding = _finding(table, exc)
        if finding is None:
            raise
        raise Unreadable(finding) from None


def _finding(table: HistoryTable, exc: PySparkException | Py4JJavaError) -> Finding | None:
    for cause, message in _causes(exc):
        if condition := _UNREADABLE.search(message):
            return Finding("unreadable rows", detail=condition[1])
        if failure := fold_failure(table, cause):
            return Finding("contradicts changes", detail=failure.what)
    return None


def _causes(exc: PySparkException | Py4JJavaError) -> Iterator[tuple[PySparkException, str]]:
    """Yield each cause as a PySparkException, with its message."""
    if isinstance(exc, PySparkException):
        yield exc, str(exc)
        return
    java = exc.java_exception
    while java is not None:
        yield convert_exception(java), str(java.getMessage())
        java = java.getCause()
