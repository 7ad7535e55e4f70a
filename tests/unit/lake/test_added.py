"""Which questions about added columns are asked, when, and how often."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction

from auditlake.added import Existing, Look
from auditlake.errors import LakeConflict, LakeUnusable
from auditlake.lake.added import Added, Question, read_added
from auditlake.lake.changes import CaptureLog
from auditlake.lake.history import add_columns, create_history, open_history
from auditlake.lake.layout import HISTORY_APP, SNAPSHOT_APP, Lake
from auditlake.lake.looks import read_look, write_look
from auditlake.lsn import Lsn
from auditlake.pgoutput.schema import CHANGES_SCHEMA
from auditlake.relation import Column, Relation, TableName

_NAME = TableName("public", "T")
_ID, _C, _D = Column("id", 23, -1, key=True), Column("c", 1114, -1, key=False), Column("C", 25, -1, key=False)
_NOTHING = pa.RecordBatch.from_pylist([], schema=CHANGES_SCHEMA)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake whose slot starts at 100, with one empty history from 100 on."""
    lake = Lake(tmp_path)
    CaptureLog(lake).start_at(Lsn(100))
    table = create_history(lake, _NAME, (_ID,))
    positions = CommitProperties(app_transactions=[Transaction(HISTORY_APP, 100), Transaction(SNAPSHOT_APP, 100)])
    table.create_write_transaction([], "append", table.schema(), ["_part"], commit_properties=positions)
    return lake


class _Source:
    """Answers as it is told, and keeps what it was asked."""

    def __init__(self, *answers: Existing) -> None:
        self.asked: list[Added] = []
        self._answers = list(answers)

    def __call__(self, questions: Sequence[Question]) -> Sequence[Existing]:
        self.asked += [question.added for question in questions]
        return [self._answers.pop(0) for _ in questions]


def _see(log: CaptureLog, lsn: int, *columns: Column) -> None:
    log.relations.register(Relation(7, _NAME, "d", columns), lsn)
    log.append_part(_NOTHING)


def test_a_question_is_asked_until_it_is_answered(lake: Lake) -> None:
    """When the column is first seen, and again as long as there is a problem; then never more."""
    source = _Source(Existing(problem="gone"), Existing("x"), Existing(problem="lost"), Existing())
    log = CaptureLog(lake, source)
    _see(log, 90, _ID, _D)  # before the snapshot: nobody wants to know
    _see(log, 110, _ID)
    _see(log, 120, _ID, _C)
    assert read_added(lake) == {Added(7, "c", 120): Existing(problem="gone")}
    _see(log, 130, _ID, _C, _D)
    CaptureLog(lake, source).settle()
    CaptureLog(lake, source).settle()
    c, d = Added(7, "c", 120), Added(7, "C", 130)
    assert source.asked == [c, c, d, d]
    assert read_added(lake) == {c: Existing("x"), d: Existing()}
    CaptureLog(lake).settle()


def test_what_the_history_has_is_not_asked(lake: Lake) -> None:
    """A column that was merged needs no answer any more; its field says since when it is there."""
    table = open_history(lake, _NAME)
    assert table is not None
    added = Column("c", 1114, -1, key=False, stored_as="~63", since=120)
    add_columns(table, [added])
    found = open_history(lake, _NAME)
    assert found is not None
    assert found.columns == (_ID, added)
    _see(CaptureLog(lake, _Source()), 130, _ID, _C)
    with pytest.raises(LakeConflict, match=r'another process changes the columns of public\."T"'):
        add_columns(table, [_D])


def test_a_look_is_kept_as_it_is(lake: Lake) -> None:
    """It reads back as written; one that cannot be read is no look that was never taken."""
    look = Look(7, Lsn(0x1_0000_0001), 3, {10: 20, 11: 21})
    assert read_look(lake, _NAME) is None
    write_look(lake, _NAME, look)
    assert read_look(lake, _NAME) == look
    lake.look(_NAME).write_text("{}")
    with pytest.raises(LakeUnusable, match="cannot be read"):
        read_look(lake, _NAME)
