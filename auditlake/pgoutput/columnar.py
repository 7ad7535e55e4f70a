"""Decode a buffer of many pgoutput messages into Arrow at once: the fast path of capture.

`ChangeDecoder.decode()` gives the same rows as reading each message with `wire.decode` would, without a Python loop
over messages: Begin, Commit, Insert, Update and Delete are read by numpy, one table and column at a time; the rare
messages one by one. It returns a `Decoded`, or raises DecodeError, or `Unsupported` for a transaction beyond 2^31
changes. Every read is checked against the end of its message first.

What it keeps between buffers: relations and types by OID, and the open transaction with its next ordinal and counts.
After an error nothing has been kept of the buffer at fault; a new connection needs a new decoder, since the server
describes its relations again.

Non-transactional logical messages are skipped: they belong to no transaction and so have no place in the order of
changes. Commit LSNs rise along a stream; that is for the caller to check, who knows where it began.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from auditlake.lsn import Lsn
from auditlake.pgoutput.explain import explain
from auditlake.pgoutput.frames import Frames, Refused
from auditlake.pgoutput.messages import Commit
from auditlake.pgoutput.rows import NO_TABLE, lay_out, read_rare
from auditlake.pgoutput.schema import CHANGES_SCHEMA
from auditlake.pgoutput.spans import OpenTransaction, Spans
from auditlake.pgoutput.tables import Known, Placed, Timeline
from auditlake.pgoutput.totals import Totals, add_up, record_batch, spread
from auditlake.pgoutput.values import read_values
from auditlake.pgoutput.wire import decode
from auditlake.relation import Relation

_OPS = {"I": "insert", "U": "update", "D": "delete", "T": "truncate", "M": "message"}
_OP_NAMES = pa.array(_OPS.values())
_OP_OF_TAG = np.zeros(256, np.int64)
_OP_OF_TAG[[ord(tag) for tag in _OPS]] = np.arange(len(_OPS))


@dataclass(frozen=True, slots=True)
class Decoded:
    """What one buffer holds, in stream order."""

    changes: pa.RecordBatch
    """Rows of CHANGES_SCHEMA; the first and the last transaction may be there in part."""
    transactions: pa.RecordBatch
    """Rows of TRANSACTIONS_SCHEMA: the transactions that end in this buffer and had a change, here or before."""
    last_commit: Commit | None
    """The last Commit of the buffer, be it of an empty transaction."""


class ChangeDecoder:
    """Turns the messages of one replication stream into rows."""

    def __init__(self, register: Callable[[Relation, int], int]) -> None:
        """Keep `register`: it takes each new relation version and its commit LSN, and returns the version's id."""
        self._register = register
        self._relations: dict[int, Known] = {}
        self._base_types: dict[int, int] = {}
        self._open: OpenTransaction | None = None

    @property
    def open_lsn(self) -> Lsn | None:
        """Commit LSN of the transaction whose Commit has not come yet."""
        return Lsn(self._open.lsn) if self._open else None

    def decode(
        self, buffer: bytes | bytearray, starts: npt.NDArray[np.integer], ends: npt.NDArray[np.integer]
    ) -> Decoded:
        """Decode the payloads `buffer[starts[i]:ends[i]]`, which follow each other in the stream.

        Raises DecodeError.
        """
        try:
            return self._decode(Frames(buffer, starts, ends))
        except Refused as refused:
            until = refused.number + 1
            payloads = [bytes(buffer[start:end]) for start, end in zip(starts[:until], ends[:until], strict=True)]
            raise explain(payloads, refused.problem, self._relations, self.open_lsn) from None

    def _decode(self, frames: Frames) -> Decoded:
        spans = Spans(frames, self._open)
        rare = read_rare(frames, spans)
        rows = lay_out(frames, spans, rare)
        timeline = Timeline(self._relations, self._base_types)
        timeline.follow(rare, spans, self._register)
        placed = Placed(frames, spans, rare, rows, timeline.slots(rows), timeline.known)
        totals = add_up(placed)
        decoded = Decoded(_changes(placed, totals), totals.completed(), _last_commit(frames, spans))
        self._relations, self._open = timeline.latest, totals.still_open()
        self._base_types = timeline.base_types
        return decoded


def _changes(placed: Placed, totals: Totals) -> pa.RecordBatch:
    spans, rows = placed.spans, placed.rows
    names = [each.relation.name for each in placed.known]
    slot = pa.array(placed.slots, mask=placed.slots == NO_TABLE)
    values = read_values(placed)
    columns = {
        "lsn": spans.lsn[rows.transaction],
        "ordinal": rows.ordinal,
        "xid": spans.xid[rows.transaction],
        "time": spans.time[rows.transaction],
        "origin": spread(totals.origins, spans.count, rows.transaction),
        "op": _OP_NAMES.take(pa.array(_OP_OF_TAG[placed.frames.tags[rows.message]])),
        "schema": pa.array([name.schema for name in names], pa.string()).take(slot),
        "table": pa.array([name.table for name in names], pa.string()).take(slot),
        "relation": pa.array([each.version for each in placed.known], pa.int64()).take(slot),
        "old": values.old,
        "new": values.new,
        "unchanged": values.unchanged,
        "prefix": _of_messages(placed, [message.prefix for _, message in placed.rare.messages], pa.string()),
        "content": _of_messages(placed, [message.content for _, message in placed.rare.messages], pa.binary()),
    }
    return record_batch(columns, CHANGES_SCHEMA)


def _of_messages(placed: Placed, values: list[str] | list[bytes], of_type: pa.DataType) -> pa.Array:
    """Put one value of each logical message into its row, NULL into all others."""
    if not values:
        return pa.nulls(placed.rows.count, of_type)
    place = np.full(placed.rows.count, -1, np.int64)
    place[placed.rows.first[[number for number, _ in placed.rare.messages]]] = np.arange(len(values))
    return pa.array(values, of_type).take(pa.array(place, mask=place < 0))


def _last_commit(frames: Frames, spans: Spans) -> Commit | None:
    if not spans.commits.size:
        return None
    commit = decode(frames.payload(int(spans.commits[-1])))
    assert isinstance(commit, Commit)  # noqa: S101  # the tag says so
    return commit
