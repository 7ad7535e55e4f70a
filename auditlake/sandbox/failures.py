"""Failures of an answer that are no bugs: a file or a store that cannot be read, and limits of time and memory."""

import re

from auditlake.errors import AuditlakeError, LakeUnusable
from auditlake.store.failures import as_lake_error

_OF_LIBRARIES = frozenset({"ArrowInvalid", "DeltaError", "TableNotFoundError", "Error", "IOException", "HTTPException"})
"""Exceptions of deltalake, Arrow and DuckDB, by name: importing DuckDB takes a tenth of a second."""
_UNREADABLE = re.compile(r"no such (file|object)|no files found|not found|oserror|error sending request", re.IGNORECASE)


class Busy(AuditlakeError):
    """Too many requests run or wait, or one took too long or too much memory."""

    exit_code = 7


def failure(exc: Exception) -> AuditlakeError | None:
    """Return a failure of the lake's files or store, or of DuckDB's limits, as an error; None for any other."""
    if (of_store := as_lake_error(exc)) is not None:
        return of_store
    kind = type(exc).__name__
    if isinstance(exc, OSError) or (kind in _OF_LIBRARIES and _UNREADABLE.search(str(exc))):
        return LakeUnusable(f"a file of the lake cannot be read: {kind}", "Check the disk or the store, and try again.")
    if kind == "OutOfMemoryException":
        return Busy("the answer needs more memory than is left", "Ask for less, or again: others may have the rest.")
    if kind == "InterruptException":
        return Busy("the answer was interrupted", "Ask for less, or raise --timeout.")
    return None
