"""What capture writes: positions in the commit, time that never runs back, a second writer refused."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from auditlake.capture.change_log import CaptureLog, CommitEnd, TableMessages
from auditlake.delta.append_table import AppendLog, open_delta
from auditlake.errors import InvariantBroken, LakeConflict
from auditlake.lake.layout import CHANGES_APP, Lake
from auditlake.lake.relations import read_versions
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA
from auditlake.pgoutput.batch_layout import DdlReport, Described
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from tests.read_lake import positions_of
from tests.s3_server import chosen_lake


def _changes(*lsns: int) -> pa.RecordBatch:
    rows = [{"lsn": lsn, "ordinal": 0, "xid": lsn, "time": 0, "op": "insert"} for lsn in lsns]
    return pa.RecordBatch.from_pylist(rows, schema=CHANGES_SCHEMA)


def _of_entries(lsn: int, entries: Sequence[int | None]) -> pa.RecordBatch:
    rows = [{"lsn": lsn, "ordinal": at, "time": at, "op": "insert", "relation": e} for at, e in enumerate(entries)]
    return pa.RecordBatch.from_pylist(rows, schema=CHANGES_SCHEMA)


def _transactions(*times: tuple[int, int]) -> pa.RecordBatch:
    rows = [{"lsn": lsn, "end_lsn": lsn + 5, "xid": lsn, "time": time_us} for lsn, time_us in times]
    return pa.RecordBatch.from_pylist(rows, schema=TRANSACTIONS_SCHEMA)


def _mono(lake: Lake) -> list[int]:
    table = open_delta(lake.transactions)
    assert table is not None
    times = pa.table(table.to_pyarrow_table()).sort_by("lsn")["time_mono"]
    return [int(time) for time in times.cast(pa.int64()).to_pylist()]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake whose slot starts at 100."""
    lake = chosen_lake(tmp_path)
    CaptureLog(lake).start_at(Lsn(100))
    return lake


def test_positions_are_in_the_commit(lake: Lake) -> None:
    """The start is one before the consistent point; a batch moves both positions, to its commit and its end."""
    log = CaptureLog(lake)
    assert (log.watermark, log.acknowledged) == (99, 100)
    log.append(_changes(110), _transactions((110, 5)), CommitEnd(Lsn(110), Lsn(115)))
    found = positions_of(lake)
    assert (found.watermark, found.acknowledged, found.current_us) == (110, 115, 5)


def test_the_start_has_the_time_before_it(tmp_path: Path) -> None:
    """What the first comparison with the catalog finds begins then, not in 1970; a commit of the stream comes later."""
    lake = chosen_lake(tmp_path / "new")
    log = CaptureLog(lake)
    log.start_at(Lsn(100), 7)
    assert (log.current_us, CaptureLog(lake).current_us, positions_of(lake).current_us) == (7, 7, 7)
    log.append(_changes(110), _transactions((110, 5)), CommitEnd(Lsn(110), Lsn(115)))
    assert _mono(lake) == [8]


def test_messages_about_tables_are_recorded_in_their_order(lake: Lake) -> None:
    """A change has the version in force at its place: that of an earlier buffer, then that described before it."""
    old = Relation(7, TableName("public", "t"), ReplicaIdentity.DEFAULT, (Column("id", 23, -1, key=True),))
    new = replace(old, columns=(*old.columns, Column("v", 25, -1, key=False)))
    log, seen = CaptureLog(lake), list[tuple[int, int]]()

    def record_ddl(report: DdlReport) -> None:
        seen.append((report.time_us, len(log.relations.versions)))

    first = TableMessages([Described(old, Lsn(110), 5)], record_ddl)
    log.append_part(_of_entries(110, [0]), first)
    second = TableMessages([7, DdlReport(None, Lsn(110), 5), Described(new, Lsn(110), 5)], record_ddl)
    log.append(_of_entries(110, [0, None, 2]), _transactions((110, 5)), CommitEnd(Lsn(110), Lsn(115)), second)
    table = open_delta(lake.changes)
    assert table is not None
    rows = pa.table(table.to_pyarrow_table()).sort_by("time")
    assert rows["relation"].to_pylist() == [1, 1, None, 2]
    assert [version.relation for version in read_versions(lake)] == [old, new]
    assert seen == [(5, 1)]


def test_time_never_runs_back(lake: Lake) -> None:
    """`time_mono` is the running maximum, over batches and restarts; a published moment is never reached again."""
    CaptureLog(lake).append(_changes(110, 120), _transactions((110, 50), (120, 40)), CommitEnd(Lsn(120), Lsn(125)))
    log = CaptureLog(lake)
    log.append(_changes(130), _transactions((130, 50)), CommitEnd(Lsn(130), Lsn(135)))
    log.record_idle(Lsn(140), 90)
    log.append(_changes(150, 160), _transactions((150, 60), (160, 200)), CommitEnd(Lsn(160), Lsn(165)))
    assert _mono(lake) == [50, 50, 51, 91, 200]


def test_transactions_of_a_crashed_batch_are_not_written_twice(lake: Lake) -> None:
    """If capture was killed between `transactions` and `changes`, the replay adds only missing rows."""
    crashed = CaptureLog(lake)
    crashed._append_transactions(_transactions((110, 5), (120, 6)), CommitEnd(Lsn(120), Lsn(125)))  # noqa: SLF001 - the crash
    log = CaptureLog(lake)
    log.append(_changes(110), _transactions((110, 5)), CommitEnd(Lsn(110), Lsn(115)))
    log.append(_changes(120, 130), _transactions((120, 6), (130, 7)), CommitEnd(Lsn(130), Lsn(135)))
    assert len(_mono(lake)) == 3


def test_a_position_never_goes_back(lake: Lake) -> None:
    """An append below the watermark is a bug, and nothing is written."""
    log = CaptureLog(lake)
    log.append(_changes(110), _transactions((110, 5)), CommitEnd(Lsn(110), Lsn(115)))
    with pytest.raises(InvariantBroken):
        log.append(_changes(105), _transactions((105, 5)), CommitEnd(Lsn(105), Lsn(107)))
    table = open_delta(lake.changes)
    assert table is not None
    assert pa.table(table.to_pyarrow_table())["lsn"].to_pylist() == [110]


def test_a_second_writer_is_refused(lake: Lake) -> None:
    """Whoever opened the table before the other's commit cannot commit any more."""
    one, other = AppendLog(lake.changes, CHANGES_SCHEMA), AppendLog(lake.changes, CHANGES_SCHEMA)
    one.append(_changes(110), {CHANGES_APP: 110})
    with pytest.raises(LakeConflict):
        other.append(_changes(110), {CHANGES_APP: 110})


def test_parts_of_a_transaction_are_found_after_a_restart(lake: Lake) -> None:
    """Parts above the watermark determine the next ordinal of their transaction."""
    log = CaptureLog(lake)
    assert log.partial() is None
    log.append_part(_changes(110))
    partial = CaptureLog(lake).partial()
    assert partial is not None
    assert (partial.lsn, partial.next_ordinal) == (110, 1)


def test_the_position_returns_only_over_an_empty_range(lake: Lake) -> None:
    """The range has neither a commit nor a part of an invisible transaction."""
    log = CaptureLog(lake)
    log.append(_changes(110), _transactions((110, 5)), CommitEnd(Lsn(110), Lsn(115)))
    log.record_idle(Lsn(300), 90)
    log.return_to(Lsn(400))
    assert log.acknowledged == 300
    log.return_to(Lsn(200))
    assert (log.acknowledged, log.watermark, log.current_us, log.held_to) == (200, 110, 90, 111)
    with pytest.raises(InvariantBroken, match="cannot return to"):
        log.return_to(Lsn(110))
    log.append_part(_changes(150))
    assert CaptureLog(lake).held_to == 151
    with pytest.raises(InvariantBroken, match="cannot return to"):
        CaptureLog(lake).return_to(Lsn(150))
    found = positions_of(lake)
    assert found.acknowledged == 200
