"""Arrow schemas of the decoder's output: `changes`, and `transactions` without `time_mono`.

A change is identified by (`lsn`, `ordinal`). `old` and `new` have one text per column of `relation`. NULL means SQL
NULL, or in `new` a value listed in `unchanged`. In an `old` that holds only the key, only the key columns are set.
"""

from typing import Final

import pyarrow as pa

_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.list_(pa.string())

CHANGES_SCHEMA: Final = pa.schema(
    [
        ("lsn", pa.int64()),
        ("ordinal", pa.int32()),
        ("xid", pa.int64()),
        ("time", _TIME),
        ("origin", pa.string()),
        ("op", pa.string()),
        ("schema", pa.string()),
        ("table", pa.string()),
        ("relation", pa.int64()),
        ("old", _TEXTS),
        ("new", _TEXTS),
        ("unchanged", pa.list_(pa.int16())),
        ("prefix", pa.string()),
        ("content", pa.binary()),
    ]
)

TRANSACTIONS_SCHEMA: Final = pa.schema(
    [
        ("lsn", pa.int64()),
        ("end_lsn", pa.int64()),
        ("xid", pa.int64()),
        ("time", _TIME),
        ("origin", pa.string()),
        ("context", pa.string()),
        ("inserts", pa.int64()),
        ("updates", pa.int64()),
        ("deletes", pa.int64()),
        ("truncates", pa.int64()),
        ("tables", _TEXTS),
    ]
)
