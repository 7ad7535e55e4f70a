"""The years 1 to 9999, whose times are shown: PostgreSQL writes earlier years with BC, and Python has no later ones."""

import pyarrow as pa
import pyarrow.compute as pc

from auditlake.errors import NotAnswerable

NO_YEAR = "the year is not between 1 and 9999"
_DAYS = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31, in days since 1970."""
_TIMES_US = _DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1


def require_years(values: pa.Array) -> None:
    """Check the dates and times of a column, also those in arrays; raises NotAnswerable."""
    while pa.types.is_list(values.type):
        values = values.flatten()
    if pa.types.is_date32(values.type):
        numbers, (first, last) = values.cast(pa.int32()), _DAYS
    elif pa.types.is_timestamp(values.type):
        numbers, (first, last) = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()), _TIMES_US
    else:
        return
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and (found["min"] < first or found["max"] > last):
        raise no_year()


def no_year() -> NotAnswerable:
    """Return the error of a statement with such a time."""
    return NotAnswerable(f"a row has a date or a time that is not answered here: {NO_YEAR}")
