"""Check the bounds of a data file, in the log, in its footer and in page indexes, against its values.

Readers leave out files, row groups and pages by their bounds. If these exclude a value of a row, a question about that
value does not find the row, although the file is as it was written. So every value must be within the bounds of its
file, its row group and its page, and a column that counts as all NULL, or as without NULL, must be that.

Bounds may be wider than the values: those of a long text, or of a file with deleted rows. Texts are compared by their
bytes, and numbers with a fraction as floating-point numbers, because the log may have them rounded; it has times to the
millisecond. Columns of other types are not compared. A Bloom filter is not compared with values, but reported: no
writer of a lake makes one.

Authority: Delta's PROTOCOL.md, "Per-file Statistics"; Parquet's format, "Statistics", "Page Index"
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditlake.delta.page_index import NOT_PARQUET, ColumnPages, DataPage, PageIndexes
from auditlake.instants import to_us
from auditlake.store.files import open_file, parquet
from auditlake.store.place import Place

_ROUNDED_US = 1_000
_FRACTIONS = (pa.types.is_floating, pa.types.is_decimal)
_TEXTS = (pa.types.is_string, pa.types.is_large_string)
_COMPARED = (
    *_FRACTIONS,
    *_TEXTS,
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
)
_UNIT_NS = {"ms": 1_000_000, "us": 1_000, "ns": 1}


@dataclass(frozen=True, slots=True)
class _Values:
    """The least and the greatest value of a column in some rows, None without any, and the number of NULLs."""

    least: Any = None
    greatest: Any = None
    nulls: int = 0

    def with_more(self, other: "_Values") -> "_Values":
        """Return the same of these rows and others."""
        least = [each.least for each in (self, other) if each.least is not None]
        greatest = [each.greatest for each in (self, other) if each.greatest is not None]
        return _Values(min(least, default=None), max(greatest, default=None), self.nulls + other.nulls)

    def are_within(self, least: Any, greatest: Any) -> bool:  # noqa: ANN401 - of any type
        """Return whether two bounds admit all values; one that is None admits any."""
        if self.least is None:
            return True
        return (least is None or least <= self.least) and (greatest is None or self.greatest <= greatest)


def wrong_bounds(file: Place, recorded: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults in the bounds of a file; `recorded` are its statistics in the log."""
    opened = pq.ParquetFile(parquet(file), pre_buffer=False, coerce_int96_timestamp_unit="us")
    footer, fields = opened.metadata, {field.name: field for field in opened.schema_arrow}
    with open_file(file) as content:
        try:
            indexes = PageIndexes(content)
        except NOT_PARQUET as exc:
            yield f"its footer cannot be read: {type(exc).__name__}"
            return
        for place in range(footer.num_columns):
            name = footer.schema.column(place).path
            column = _Column(opened, indexes, place, fields.get(name, pa.field(name, pa.null())))
            try:
                yield from column.wrong(recorded)
            except NOT_PARQUET as exc:
                yield f"those of {name} cannot be read: {type(exc).__name__}"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a file; one within a list or a map has no type here."""

    opened: pq.ParquetFile
    indexes: PageIndexes
    place: int
    field: pa.Field

    def wrong(self, recorded: Mapping[str, Any]) -> Iterator[str]:
        """Yield the faults in its bounds; raises NOT_PARQUET."""
        groups = range(self.opened.num_row_groups)
        if any(self.indexes.has_bloom_filter(number, self.place) for number in groups):
            yield f"a Bloom filter of {self.field.name} may exclude a value"
        if pa.types.is_null(self.field.type):
            return
        # Also without bounds: Spark skips row groups by their dictionaries.
        pages = [self.indexes.pages(number, self.place) for number in groups]
        if not self._is_compared(recorded):
            return
        found = [self._values(number, each.pages) for number, each in enumerate(pages)]
        if not all(map(self._in_pages, pages, found)):
            yield f"those of {self.field.name} in a page index exclude a value"
        of_groups = [reduce(_Values.with_more, values, _Values()) for values in found]
        if not all(map(self._in_group, groups, of_groups)):
            yield f"those of {self.field.name} in the file exclude a value"
        of_file = reduce(_Values.with_more, of_groups, _Values())
        if not _in_log(recorded, self.field, of_file, self.opened.metadata.num_rows):
            yield f"those of {self.field.name} in the log exclude a value"

    def _is_compared(self, recorded: Mapping[str, Any]) -> bool:
        """Return whether it has bounds that can be compared."""
        footer, name = self.opened.metadata, self.field.name
        chunks = [footer.row_group(number).column(self.place) for number in range(footer.num_row_groups)]
        is_bounded = any(chunk.is_stats_set or chunk.has_column_index for chunk in chunks)
        is_recorded = any(name in (recorded.get(part) or ()) for part in ("minValues", "maxValues", "nullCount"))
        return (is_bounded or is_recorded) and any(is_type(self.field.type) for is_type in _COMPARED)

    def _values(self, number: int, pages: Sequence[DataPage]) -> list[_Values]:
        """Return the values of each page."""
        column = self.opened.read_row_group(number, [self.field.name], use_threads=False).column(0)
        if sum(page.rows for page in pages) != len(column):
            raise ValueError("a column has other rows")
        return [_values_of(column.slice(page.first, page.rows)) for page in pages]

    def _in_pages(self, pages: ColumnPages, found: Sequence[_Values]) -> bool:
        """Return whether the index of pages admits their values, and its bounds have the order that it claims."""
        bounds = [tuple(self._decoded(bound) for bound in page.bounds or ()) for page in pages.pages]
        for page, (least, greatest), values in zip(
            pages.pages, (each or (None, None) for each in bounds), found, strict=True
        ):
            is_counted = page.nulls in {None, values.nulls} and (not page.only_nulls or values.nulls == page.rows)
            if not (is_counted and values.are_within(least, greatest)):
                return False
        ordered = [each for each in bounds if each][:: pages.order or 1]
        return not pages.order or all(list(each) == sorted(each) for each in zip(*ordered, strict=True))

    def _decoded(self, bound: bytes) -> Any:  # noqa: ANN401 - of any type
        """Return a bound of a page as values of the column are compared."""
        kind, physical = self.field.type, self.opened.metadata.schema.column(self.place).physical_type
        if any(is_text(kind) for is_text in _TEXTS):
            return bound
        if pa.types.is_floating(kind):
            return _ordered(struct.unpack({"FLOAT": "<f", "DOUBLE": "<d"}[physical], bound)[0], kind)
        number = int.from_bytes(bound, "little" if physical.startswith(("INT", "BOOL")) else "big", signed=True)
        if pa.types.is_decimal(kind):
            return _ordered(Decimal(number).scaleb(-kind.scale), kind)
        if pa.types.is_date(kind):
            return date(1970, 1, 1) + timedelta(days=number)
        return number * _UNIT_NS[kind.unit] // _UNIT_NS["us"] if pa.types.is_timestamp(kind) else number

    def _in_group(self, number: int, values: _Values) -> bool:
        """Return whether the statistics of a row group admit its values."""
        found = self.opened.metadata.row_group(number).column(self.place).statistics
        if found is None:
            return True
        bounds = (found.min, found.max) if found.has_min_max else (None, None)
        least, greatest = (_ordered(bound, self.field.type) for bound in bounds)
        return values.are_within(least, greatest) and (not found.has_null_count or found.null_count == values.nulls)


def _values_of(column: pa.ChunkedArray) -> _Values:
    found = pc.min_max(column)
    least, greatest = (_ordered(found[name].as_py(), column.type) for name in ("min", "max"))
    return _Values(least, greatest, column.null_count)


def _in_log(recorded: Mapping[str, Any], field: pa.Field, values: _Values, rows: int) -> bool:
    """Return whether the statistics in the log admit the values of a file."""
    least, greatest = (
        _ordered((recorded.get(part) or {}).get(field.name), field.type) for part in ("minValues", "maxValues")
    )
    if greatest is not None and pa.types.is_timestamp(field.type):
        greatest += _ROUNDED_US
    nulls = (recorded.get("nullCount") or {}).get(field.name)
    return values.are_within(least, greatest) and (nulls not in {0, rows} or nulls == values.nulls)


def _ordered(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - of any type
    """Return a value, or a bound in a footer or in the log, as values of its type are compared; None for NaN."""
    if value is None:
        return None
    if any(is_fraction(kind) for is_fraction in _FRACTIONS):
        number = float(value)
        if pa.types.is_float32(kind):  # the log has the shortest number that means the value, such as 1.1
            number = pa.scalar(number, kind).as_py()
        return None if math.isnan(number) else number
    if any(is_text(kind) for is_text in _TEXTS):
        return value if isinstance(value, bytes) else str(value).encode()
    if pa.types.is_date(kind):
        return date.fromisoformat(value) if isinstance(value, str) else value
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return to_us(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return int(value)
