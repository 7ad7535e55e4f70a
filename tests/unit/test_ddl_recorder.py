"""What the DDL trigger's messages and descriptions in the stream say of a table."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from auditlake.capture.change_log import CaptureLog
from auditlake.capture.ddl_recorder import DdlRecorder
from auditlake.delta.log_writer import moved, put_commit
from auditlake.lake.history import create_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP
from auditlake.lake.parking import Cause, find_parked
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA, Decoded
from auditlake.pgoutput.batch_layout import DdlReport, Described
from auditlake.pgoutput.ddl_message import DdlMessage
from auditlake.pgoutput.table_shape import Shape
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from tests.s3_server import chosen_lake

_NAME, _OID, _MOOD = TableName("public", "t"), 7, 20000
_COLUMNS = (Column("id", 23, -1, key=True, attnum=1), Column("m", _MOOD, -1, key=False, attnum=2))
_TYPES = {f"enum {_MOOD} 1": "700 sad", "composite 20002": "1:23"}
_SHAPE = Shape(Relation(_OID, _NAME, ReplicaIdentity.DEFAULT, _COLUMNS), "r", "p", {_OID: 100}, types=_TYPES)
_RELABELLED = {**_TYPES, f"enum {_MOOD} 1": "701 low"}


@pytest.fixture
def recorder(tmp_path: Path) -> DdlRecorder:
    """A recorder for one table that was last as `_SHAPE`."""
    lake = chosen_lake(tmp_path)
    return DdlRecorder(lake, CaptureLog(lake), {_OID: _NAME}, {_OID: _SHAPE})


def _tell(recorder: DdlRecorder, *shapes: Shape, labels: Mapping[int, frozenset[str] | None] | None = None) -> None:
    message = DdlMessage("ALTER", "app", shapes, (), {}, labels or {}, plain=False)
    recorder(DdlReport(message, Lsn(110), 5))


def test_a_reported_label_does_not_stand_for_a_later_change(recorder: DdlRecorder) -> None:
    """Not even if the comparison after the label found another difference, too."""
    _tell(recorder, labels={_MOOD: frozenset({"low"})})
    truncated = replace(_SHAPE, files={_OID: 101}, types=_RELABELLED)
    assert not recorder.take(_OID, truncated)
    recorder.shapes[_OID] = truncated
    _tell(recorder, replace(truncated, types={}))
    assert not recorder.take(_OID, replace(truncated, types={**_RELABELLED, "composite 20002": "1:23,2:23"}))


def test_a_reported_label_stands_for_itself(recorder: DdlRecorder) -> None:
    """The table is parked at the label's commit then, so the comparison adds nothing."""
    _tell(recorder, labels={_MOOD: frozenset({"low"})})
    assert recorder.take(_OID, replace(_SHAPE, types=_RELABELLED))
    assert not recorder.take(_OID, replace(_SHAPE, types=_RELABELLED))


def test_a_partition_of_a_table_that_was_made_anew_since_parks_it(recorder: DdlRecorder) -> None:
    """Between a part of a transaction and its end, capture may begin to follow another table of that name."""
    create_history(recorder.lake, _NAME, _COLUMNS, _OID)
    put_commit(recorder.lake.history(_NAME), 1, "WRITE", moved({HISTORY_APP: 100, SNAPSHOT_APP: 100}))
    described = Described(replace(_SHAPE.relation, oid=8), Lsn(110), 5, _OID)
    changes = pa.RecordBatch.from_pylist([{"lsn": 110, "op": "update"}], CHANGES_SCHEMA)
    transactions = pa.RecordBatch.from_pylist([], TRANSACTIONS_SCHEMA)
    recorder.note_partitions(Decoded(changes, [described], transactions, None))
    recorder.tables = {9: _NAME}
    recorder.park_lost_partitions(changes, {_OID: {}})
    parked = find_parked(recorder.lake, _NAME, Cause.DDL)
    assert parked is not None
    assert (parked.lsn, parked.until) == (100, 110)  # the snapshot: nothing else is durable
