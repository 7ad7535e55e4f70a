"""The feed in Debezium's envelope, one JSON object per change, with its transaction metadata events. Pure.

The form is that of Debezium's PostgreSQL connector without schemas, with decimal.handling.mode=string,
binary.handling.mode=base64 and provide.transaction.metadata=true:

    numeric                    its exact text
    timestamp                  microseconds since 1970, of any precision
    timestamp with time zone   ISO 8601 text in UTC, ending in Z
    date                       days since 1970
    bytea                      base64
    real, double precision     a number; NaN and the infinities, which JSON lacks, as text
    arrays                     a JSON array
    all other types            PostgreSQL's text

A value that these forms cannot hold (an infinite date, a year before 1) is PostgreSQL's exact text, also where a number
is expected. `source.lsn` is the commit LSN, the same for all changes of a transaction; `source.sequence` adds the place
of the change. A value that PostgreSQL did not send is `__debezium_unavailable_value`, as there: text that equals it
cannot be told apart; the JSON lines can.

Authority: debezium.io/documentation/reference/stable/connectors/postgresql.html, "Data change events", "Transaction
metadata"
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from auditlake.audit.json_output import line
from auditlake.feed.change import Change, ChangedTransaction
from auditlake.instants import to_us
from auditlake.pgoutput.decoder import UNCHANGED
from auditlake.values.exact_text import double_text

UNAVAILABLE = "__debezium_unavailable_value"
_OPS = {"insert": "c", "update": "u", "delete": "d", "truncate": "t"}
_DAY_ZERO = date(1970, 1, 1)

Fields = dict[str, Any]


@dataclass
class _Places:
    """Number of changes so far, in all and by table."""

    total: int = 0
    tables: Counter[str] = field(default_factory=Counter)


def envelopes(committed: ChangedTransaction, database: str, now_ms: int) -> Iterator[str]:
    """Yield the BEGIN event, an event for every change, and the END event of one transaction."""
    number = f"{committed.xid}:{int(committed.lsn)}"
    at_ms = committed.time_us // 1000
    yield line(_boundary("BEGIN", number, at_ms))
    places = _Places()
    for change in committed.changes:
        table = f"{change.table.schema}.{change.table.table}"
        places.total += 1
        places.tables[table] += 1
        where = {"total_order": places.total, "data_collection_order": places.tables[table]}
        event = {
            "before": _row(change, change.before),
            "after": _row(change, change.after),
            "source": _source(committed, change, database),
            "op": _OPS[change.op],
            "ts_ms": now_ms,
            "transaction": {"id": number, **where},
        }
        yield line(event)
    end = _boundary("END", number, at_ms)
    counts = [{"data_collection": table, "event_count": count} for table, count in places.tables.items()]
    yield line({**end, "event_count": places.total, "data_collections": counts})


def _boundary(status: str, number: str, at_ms: int) -> Fields:
    return {"status": status, "id": number, "ts_ms": at_ms, "event_count": None, "data_collections": None}


def _source(committed: ChangedTransaction, change: Change, database: str) -> Fields:
    return {
        "version": "auditlake",
        "connector": "postgresql",
        "name": "auditlake",
        "ts_ms": committed.time_us // 1000,
        "ts_us": committed.time_us,
        "snapshot": "false",
        "db": database,
        "sequence": json.dumps([str(int(committed.lsn)), str(change.ordinal)]),
        "schema": change.table.schema,
        "table": change.table.table,
        "txId": committed.xid,
        "lsn": int(committed.lsn),
        "xmin": None,
    }


def _row(change: Change, values: Mapping[str, Any] | None) -> Fields | None:
    """Return a row with every column of the table; Debezium sends null for those of an old row that were not sent."""
    if values is None:
        return None
    return {column.name: _value(values.get(column.name)) for column in change.columns}


def _value(value: Any) -> Any:  # noqa: ANN401 - of any type, to JSON
    if value is UNCHANGED:
        return UNAVAILABLE
    if isinstance(value, list):
        return [_value(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else double_text(value)
    if isinstance(value, Decimal):
        return f"{value:f}" if value.is_finite() else str(value)
    return _binary_or_time(value)


def _binary_or_time(value: Any) -> Any:  # noqa: ANN401 - as above
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return f"{value.replace(tzinfo=None).isoformat()}Z"
        return to_us(value.replace(tzinfo=UTC))
    return (value - _DAY_ZERO).days if isinstance(value, date) else value
