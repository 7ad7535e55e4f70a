"""Export: the rows of a table at a moment as a file, written piece by piece.

Every value is PostgreSQL's text:

    csv      RFC 4180, with a header; NULL is empty, '' is ""
    json     one object a line; null is NULL, every other value a string
    parquet  text columns

An export of more rows than the server allows is refused before its first byte; it is never cut.
"""

import io
import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from auditlake.errors import NotAnswerable
from auditlake.serve.resources import Resources
from auditlake.serve.table_answers import OfTable, state_of
from auditlake.serve.table_rows import OpenState, Selection, TableState, parse_order, parse_where

_MEDIA = {"csv": "text/csv; charset=utf-8", "json": "application/x-ndjson", "parquet": "application/vnd.apache.parquet"}
_SPECIAL = re.compile(r'[",\r\n]')


class OfExport(OfTable):
    """Rows of a table, and the format."""

    where: list[str] = Field(default=[], max_length=20)
    sort: str | None = None
    format: Literal["csv", "json", "parquet"] = "csv"


@dataclass(frozen=True, slots=True)
class Download:
    """A file: its name, type and content."""

    name: str
    media_type: str
    chunks: Generator[bytes, None, None]


def export(resources: Resources, asked: OfExport) -> Download:
    """Return the rows as a file.

    Raises BadUsage, NotAnswerable.
    """
    state, at = state_of(resources, asked.table, asked.at)
    where = parse_where(asked.where, state.by_name)
    selection = Selection(where, parse_order(asked.sort, state.by_name, state.key))
    with resources.cursor() as cursor:
        count = OpenState(state, cursor).count(where)
    most = resources.limits.export_rows
    if count > most:
        raise NotAnswerable(
            f"the export has {count:,} rows, this server writes at most {most:,}",
            "Filter the rows, or run auditlake sql --format csv.",
        )
    name = f"{re.sub('[^A-Za-z0-9_.-]', '_', state.name)}-{at.lsn.replace('/', '-')}.{asked.format}"
    batches = _batches(resources, state, selection)
    writer = {"csv": _csv, "json": _json_lines, "parquet": _parquet}[asked.format]
    return Download(name, _MEDIA[asked.format], writer([column.name for column in state.columns], batches))


def _batches(resources: Resources, state: TableState, selection: Selection) -> Iterator[pa.RecordBatch]:
    with resources.cursor(bounded=False) as cursor:
        yield from OpenState(state, cursor).pages(selection)


def _csv(names: list[str], batches: Iterator[pa.RecordBatch]) -> Generator[bytes, None, None]:
    yield (",".join(map(_field, names)) + "\n").encode()
    for batch in batches:
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        yield "".join(",".join(map(_field, row)) + "\n" for row in rows).encode(errors="surrogatepass")


def _field(value: str | None) -> str:
    if value is None:
        return ""
    return '"' + value.replace('"', '""') + '"' if not value or _SPECIAL.search(value) else value


def _json_lines(_names: list[str], batches: Iterator[pa.RecordBatch]) -> Generator[bytes, None, None]:
    for batch in batches:
        yield "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in batch.to_pylist()).encode()


def _parquet(names: list[str], batches: Iterator[pa.RecordBatch]) -> Generator[bytes, None, None]:
    out = _Sink()
    with pq.ParquetWriter(out, pa.schema([(name, pa.string()) for name in names]), compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield out.taken()
    yield out.taken()


class _Sink(io.RawIOBase):
    """File whose written bytes are taken piece by piece; `tell` counts from its beginning, as Parquet's footer does."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._written

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        part = bytes(data)
        self._parts.append(part)
        self._written += len(part)
        return len(part)

    def taken(self) -> bytes:
        """Return the bytes written since the last call."""
        found = b"".join(self._parts)
        self._parts.clear()
        return found
