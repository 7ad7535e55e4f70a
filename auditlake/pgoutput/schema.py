"""The Arrow schemas of what the decoder gives: rows of `changes`, and of `transactions` without `time_mono`.

A change is at (`lsn`, `ordinal`). `old` and `new` have one text per column of `relation`; NULL is SQL NULL, or in `new`
a value listed in `unchanged`. Of an `old` that holds the key alone only the key columns mean anything.
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
