"""An append-only log stays tidy while it is written, and only one may write it."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import QueryBuilder

from auditlake.errors import LakeConflict
from auditlake.lake.log import AppendLog, open_delta

SCHEMA = pa.schema([("number", pa.int64())])


def rows(*numbers: int) -> pa.RecordBatch:
    """One row for each number."""
    return pa.RecordBatch.from_pylist([{"number": number} for number in numbers], schema=SCHEMA)


def numbers(path: Path) -> list[int]:
    """What a reader finds, in order."""
    table = open_delta(path)
    assert table is not None
    found = QueryBuilder().register("log", table).execute("select number from log order by number").read_all()
    return [row["number"] for row in pa.table(found).to_pylist()]


def test_many_small_appends(tmp_path: Path) -> None:
    """Tidied whenever it asks for it, it keeps few files, every row once, its position, and its readers."""
    log = AppendLog(tmp_path, SCHEMA)
    reader = None
    for number in range(450):
        log.append(rows(number), {"app": number})
        reader = reader or (open_delta(tmp_path) if number == 250 else None)
        if log.untidy:
            log.tidy()
    assert numbers(tmp_path) == list(range(450))
    assert len(log.table.file_uris()) < 60
    assert (tmp_path / "_delta_log" / "_last_checkpoint").exists()
    assert AppendLog(tmp_path, SCHEMA).position("app") == 449
    assert reader is not None
    found = QueryBuilder().register("log", reader).execute("select count(*) as n from log").read_all()
    assert pa.table(found).to_pylist() == [{"n": 251}]


def test_an_idle_log_is_checkpointed(tmp_path: Path) -> None:
    """Commits that only move a position do not pile up in front of whoever opens the table."""
    log = AppendLog(tmp_path, SCHEMA)
    for number in range(120):
        log.append(None, {"app": number})
    assert (tmp_path / "_delta_log" / "_last_checkpoint").exists()


def test_tidying_beside_another_writer(tmp_path: Path) -> None:
    """A writer that has been overtaken is refused when it tidies, though joining files conflicts with no append."""
    late = AppendLog(tmp_path, SCHEMA)
    for number in range(3):
        late.append(rows(number), {"app": number})
    AppendLog(tmp_path, SCHEMA).append(rows(3), {"app": 3})
    with pytest.raises(LakeConflict):
        late.tidy()
    assert numbers(tmp_path) == [0, 1, 2, 3]


def test_a_log_that_is_vacuumed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old files are let go in between appends; what a reader of the last hour needs stays."""
    log = AppendLog(tmp_path, SCHEMA)
    log.append(rows(0), {"app": 0})
    reader = open_delta(tmp_path)
    assert reader is not None
    for number in range(1, 4):
        log.append(rows(number), {"app": number})
        with monkeypatch.context() as clock:
            clock.setattr(time, "monotonic", lambda: 1e9 + number)  # noqa: B023  # read within the loop's turn
            log.tidy()
    assert numbers(tmp_path) == [0, 1, 2, 3]
    found = QueryBuilder().register("log", reader).execute("select count(*) as n from log").read_all()
    assert pa.table(found).to_pylist() == [{"n": 1}]
