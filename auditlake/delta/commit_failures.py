"""Failed commits, as Spark and deltalake report them: another commit won, or the file system failed.

`commit_conflicts` returns the exceptions, Delta's and ours, that mean another commit won, in one tuple to catch.
`DeltaConcurrentModificationException` is the base of the others in Scala but only their sibling in Python: to catch it
alone catches none of them.

`writing` turns failures of file systems and stores, as reported by Python, deltalake or Spark, into errors with a
hint. A full disk is not a bug. In Spark it may be the lake's disk or that of spark.local.dir, so the hint names both.

Authority: docs.delta.io, "Concurrency control"
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import DeltaError

from auditlake.errors import LakeUnusable
from auditlake.jvm_trace import raised_by, raised_by_spark
from auditlake.store.failures import as_lake_error

_REASONS = re.compile(r"No space left on device|Disk quota exceeded|Read-only file system|Input/output error")
_HINT = (
    "Free space in the lake and in Spark's folders (spark.local.dir), or correct the folder's permissions; "
    "then start again: it goes on from the last commit."
)


class Overtaken(Exception):
    """Another commit took the version planned for ours."""


_CONFLICTS_OF_DELTA = (
    "ConcurrentAppendException",
    "ConcurrentDeleteDeleteException",
    "ConcurrentDeleteReadException",
    "ConcurrentTransactionException",
    "ConcurrentWriteException",
    "DeltaConcurrentModificationException",
    "MetadataChangedException",
    "ProtocolChangedException",
)


def commit_conflicts() -> tuple[type[Exception], ...]:
    """Return the exceptions to catch; Delta's are among them once a session has started."""
    return (Overtaken, *raised_by("delta.exceptions", *_CONFLICTS_OF_DELTA))


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Raise a file-system failure as LakeUnusable, which names the object being written."""
    try:
        yield
    except ConnectionError:  # to the JVM
        raise
    except _failures() as exc:
        if known := as_lake_error(exc):
            raise LakeUnusable(f"{what} cannot be read or written: {known.message}", known.hint) from exc
        reason = _reason(exc)
        if reason is None:
            raise
        raise LakeUnusable(f"{what} cannot be read or written: {reason}", _HINT) from exc


def _failures() -> tuple[type[Exception], ...]:
    return (OSError, DeltaError, *raised_by_spark())


def _reason(exc: Exception) -> str | None:
    """Return the reason; None if it was not the file system. Spark's own message may quote rows, and is omitted."""
    if isinstance(exc, OSError) and exc.errno is not None:
        return os.strerror(exc.errno)
    match = _REASONS.search(str(exc))
    return match[0] if match else None
