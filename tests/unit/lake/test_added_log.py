"""Questions about added columns: which are asked, when, and how often."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction

from auditlake.capture.change_log import CaptureLog
from auditlake.errors import LakeConflict, LakeUnusable
from auditlake.lake.history import create_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.schema.catalog_snapshot import read_catalog_snapshot, write_catalog_snapshot
from auditlake.schema.missing_values import Added, CatalogSnapshot, Existing, Question, read_added
from tests.read_lake import history_of
from tests.s3_server import chosen_lake, overwrite
from tests.small_lake import add_columns

_NAME = TableName("public", "T")
_ID, _C, _D = Column("id", 23, -1, key=True), Column("c", 1114, -1, key=False), Column("C", 25, -1, key=False)
_NOTHING = pa.RecordBatch.from_pylist([], schema=CHANGES_SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake whose slot starts at 100, with one empty history from 100 on."""
    lake = chosen_lake(tmp_path)
    CaptureLog(lake).start_at(Lsn(100))
    table = create_history(lake, _NAME, (_ID,), 7)
    positions = CommitProperties(app_transactions=[Transaction(HISTORY_APP, 100), Transaction(SNAPSHOT_APP, 100)])
    table.create_write_transaction([], "append", table.schema(), ["_part"], commit_properties=positions)
    return lake


class _Source:
    """A source with prepared answers; it records the questions."""

    def __init__(self, *answers: Existing) -> None:
        self.asked: list[Added] = []
        self._answers = list(answers)

    def __call__(self, questions: Sequence[Question]) -> Sequence[Existing]:
        self.asked += [question.added for question in questions]
        return [self._answers.pop(0) for _ in questions]


def _register(log: CaptureLog, lsn: int, *columns: Column) -> None:
    log.relations.register(Relation(7, _NAME, ReplicaIdentity.DEFAULT, columns), Lsn(lsn))
    log.append_part(_NOTHING)


def test_a_question_is_asked_until_it_is_answered(lake: Lake) -> None:
    """Asked when the column is first seen and again while it is undecided; never after that."""
    source = _Source(Existing(problem="gone"), Existing("x"), Existing(problem="lost"), Existing())
    log = CaptureLog(lake, source)
    _register(log, 90, _ID, _D)  # before the snapshot: no question
    _register(log, 110, _ID)
    _register(log, 120, _ID, _C)
    assert read_added(lake) == {Added(7, "c", Lsn(120)): Existing(problem="gone")}
    _register(log, 130, _ID, _C, _D)
    CaptureLog(lake, source).resolve_missing_values()
    CaptureLog(lake, source).resolve_missing_values()
    c, d = Added(7, "c", Lsn(120)), Added(7, "C", Lsn(130))
    assert source.asked == [c, c, d, d]
    assert read_added(lake) == {c: Existing("x"), d: Existing()}
    CaptureLog(lake).resolve_missing_values()


def test_a_column_in_the_history_is_not_asked(lake: Lake) -> None:
    """A column of the history needs no answer; its field has the LSN since which it exists."""
    table = history_of(lake, _NAME)
    added = Column("c", 1114, -1, key=False, stored_as="~63", since=Lsn(120))
    add_columns(table, added)
    found = history_of(lake, _NAME)
    assert found.columns == (_ID, added)
    _register(CaptureLog(lake, _Source()), 130, _ID, _C)
    with pytest.raises(LakeConflict, match=r'another process changes the columns of public\."T"'):
        add_columns(table, _D)


def test_a_catalog_snapshot_reads_back_as_written(lake: Lake) -> None:
    """An unreadable file is an error, and not taken for a missing one."""
    snapshot = CatalogSnapshot(7, Lsn(0x1_0000_0001), 3, {10: 20, 11: 21})
    assert read_catalog_snapshot(lake, _NAME) is None
    write_catalog_snapshot(lake, _NAME, snapshot)
    assert read_catalog_snapshot(lake, _NAME) == snapshot
    overwrite(lake.look(_NAME), b"{}")
    with pytest.raises(LakeUnusable, match="lacks an entry"):
        read_catalog_snapshot(lake, _NAME)
