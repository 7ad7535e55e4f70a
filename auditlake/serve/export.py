"""Export: the rows of a table at a moment as a file, written piece by piece.

Every value is PostgreSQL's text, in one of the formats of `query.formats`.

An export of more rows than the server allows is refused before its first byte; it is never cut.
"""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from auditlake.audit.filters import parse_filters
from auditlake.errors import NotAnswerable
from auditlake.query.formats import pieces
from auditlake.serve.resources import Resources
from auditlake.serve.table_answers import Filtered, state_of
from auditlake.serve.table_rows import OpenState, RowSelection, TableState, parse_order

_MEDIA = {"csv": "text/csv; charset=utf-8", "json": "application/x-ndjson", "parquet": "application/vnd.apache.parquet"}


class OfExport(Filtered):
    """Rows of a table, and the format."""

    sort: str | None = None
    format: Literal["csv", "json", "parquet"] = "csv"


@dataclass(frozen=True, slots=True)
class Download:
    """A file: its name, type and content."""

    name: str
    media_type: str
    chunks: Generator[bytes, None, None]


def export(resources: Resources, asked: OfExport) -> Download:
    """Return the rows as a file; raises BadUsage, NotAnswerable."""
    state, at = state_of(resources, asked.table, asked.at)
    where = parse_filters(asked.where, state.by_name)
    selection = RowSelection(where, parse_order(asked.sort, state.by_name, state.key))
    with resources.cursor() as cursor:
        count = OpenState(state, cursor).count(where)
    most = resources.limits.export_rows
    if count > most:
        raise NotAnswerable(
            f"the export has {count:,} rows, this server writes at most {most:,}",
            "Filter the rows, or run auditlake sql --format csv.",
        )
    name = f"{re.sub('[^A-Za-z0-9_.-]', '_', state.name)}-{at.lsn.replace('/', '-')}.{asked.format}"
    schema = pa.schema([(column.name, pa.string()) for column in state.columns])
    return Download(name, _MEDIA[asked.format], pieces(asked.format, schema, _batches(resources, state, selection)))


def _batches(resources: Resources, state: TableState, selection: RowSelection) -> Iterator[pa.RecordBatch]:
    with resources.unbounded_cursor() as cursor:
        yield from OpenState(state, cursor).pages(selection)
