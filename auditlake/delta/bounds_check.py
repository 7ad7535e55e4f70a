"""Check the bounds of a data file, in the log and in its footer, against its values.

Readers leave out files and row groups by their bounds. If these exclude a value of a row, a question about that value
does not find the row, although the file is as it was written. So every value must be within the bounds of its file and
of its row group, and a column that counts as all NULL, or as without NULL, must be that.

Bounds may be wider than the values: those of a long text, or of a file with deleted rows. Texts are compared by their
bytes, and numbers with a fraction as floating-point numbers, because the log may have them rounded; it has times to the
millisecond. Columns of other types are not compared, nor are page indexes, which pyarrow does not read.

Authority: Delta's PROTOCOL.md, "Per-file Statistics"; Parquet's format, "Statistics"
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditlake.store.files import parquet
from auditlake.store.place import Place

_ROUNDED_US = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS = 1 << 16
_FRACTIONS = (pa.types.is_floating, pa.types.is_decimal)
_TEXTS = (pa.types.is_string, pa.types.is_large_string)
_COMPARED = (*_FRACTIONS, *_TEXTS, pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp)


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
    """Yield what is wrong with the bounds of a file; `recorded` are its statistics in the log."""
    opened = pq.ParquetFile(parquet(file), pre_buffer=False, coerce_int96_timestamp_unit="us")
    for place, field in _bounded(opened, recorded):
        try:
            values = [_values(opened, number, field.name) for number in range(opened.num_row_groups)]
            if not all(_agrees(opened, number, place, field.type, each) for number, each in enumerate(values)):
                yield f"those of {field.name} in the file exclude a value"
            if not _in_log(recorded, field, reduce(_Values.with_more, values, _Values()), opened.metadata.num_rows):
                yield f"those of {field.name} in the log exclude a value"
        except (TypeError, ValueError, OverflowError) as exc:
            yield f"those of {field.name} cannot be read: {type(exc).__name__}"


def _bounded(opened: pq.ParquetFile, recorded: Mapping[str, Any]) -> Iterator[tuple[int, pa.Field]]:
    """Yield the columns that have bounds: their place in the footer, and their field."""
    footer, fields = opened.metadata, {field.name: field for field in opened.schema_arrow}
    in_log = {name for part in ("minValues", "maxValues", "nullCount") for name in recorded.get(part) or ()}
    for place in range(footer.num_columns):
        field = fields.get(footer.schema.column(place).path)
        if field is None or not any(is_compared(field.type) for is_compared in _COMPARED):
            continue
        groups = (footer.row_group(number).column(place) for number in range(footer.num_row_groups))
        if field.name in in_log or any(group.is_stats_set for group in groups):
            yield place, field


def _values(opened: pq.ParquetFile, number: int, name: str) -> _Values:
    batches = opened.iter_batches(_ROWS, row_groups=[number], columns=[name], use_threads=False)
    return reduce(_Values.with_more, (_values_of(batch.column(0)) for batch in batches), _Values())


def _values_of(column: pa.Array) -> _Values:
    found = pc.min_max(column)
    least, greatest = (_ordered(found[name].as_py(), column.type) for name in ("min", "max"))
    return _Values(least, greatest, column.null_count)


def _agrees(opened: pq.ParquetFile, number: int, place: int, kind: pa.DataType, values: _Values) -> bool:
    """Return whether the statistics of a row group admit its values."""
    found = opened.metadata.row_group(number).column(place).statistics
    if found is None:
        return True
    bounds = (found.min, found.max) if found.has_min_max else (None, None)
    least, greatest = (_ordered(bound, kind) for bound in bounds)
    return values.are_within(least, greatest) and (not found.has_null_count or found.null_count == values.nulls)


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
    """Return a value, or a bound in a footer or in the log, as what is ordered like the column; None for NaN."""
    if value is None:
        return None
    if any(is_fraction(kind) for is_fraction in _FRACTIONS):
        return None if math.isnan(float(value)) else float(value)
    if any(is_text(kind) for is_text in _TEXTS):
        return value if isinstance(value, bytes) else str(value).encode()
    if pa.types.is_date(kind):
        return date.fromisoformat(value) if isinstance(value, str) else value
    if pa.types.is_timestamp(kind):
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)
    return int(value)
