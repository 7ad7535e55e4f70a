"""Rows of a query, whatever engine computes them: column names, and Arrow batches on demand."""

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import pyarrow as pa

JSON_TEXT = b"auditlake.json"
"""Marks a field whose texts are JSON."""
LSN = b"auditlake.lsn"
"""Marks a field whose integers are LSNs."""


@runtime_checkable
class Rows(Protocol):
    """The rows of an answer."""

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns, which may repeat."""

    def batches(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the schema of the rows, and an iterator that computes their batches on demand.

        Raises BadUsage, from the iterator, if the query fails on a row.
        """


def inexact_note(column: str) -> str:
    """Return the note on a column that is NULL for a value that exists."""
    return (
        f"note: NULL in {column} may be a value that its type here cannot hold, such as infinity: "
        f"exact_text({column}) shows it"
    )
