"""Cost of a lake of many tables: the files that a new process reads must not grow with unchanged tables."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from auditlake.engine import Engine
from auditlake.follow import Applier
from auditlake.lake.histories import Histories, list_histories
from auditlake.lake.layout import Lake
from auditlake.relation import TableName
from auditlake.spark.on_demand import SparkOnDemand
from tests.many_tables import make_metadata_lake

_COUNT = """
import json, sys
from pathlib import Path
import auditlake.api.lake, auditlake.follow, auditlake.status
from auditlake.capture.change_log import CaptureLog
from auditlake.lake.layout import Lake
opened, root = [], sys.argv[1]
def count(event, args):
    if event == "open" and str(args[0]).startswith(root):
        opened.append(args[0])
sys.addaudithook(count)
from auditlake.engine import Engine
from auditlake.lake import histories
from auditlake.spark.on_demand import SparkOnDemand
real, tables = histories.open_history, []
histories.open_history = lambda lake, name: tables.append(str(name)) or real(lake, name)
lake, counts = Lake(Path(root)), {}
def counted(name, question):
    before = len(opened), len(tables)
    lake.session.forget()
    question()
    counts[name] = [len(opened) - before[0], len(tables) - before[1]]
counted("question", lambda: auditlake.api.lake.Lake(root).as_of().table("public.t0").to_arrow())
counted("status", lambda: auditlake.status.read_status(lake, None))
capture = CaptureLog(lake, ask=lambda questions: [])
counted("missing values", capture.resolve_missing_values)
counted("apply", lambda: auditlake.follow.Applier(lake, SparkOnDemand({}, Engine.DUCKDB), print).apply())
print(json.dumps(counts))
"""


def _count(lake: Lake) -> dict[str, list[int]]:
    """Count files and tables that questions and an idle batch of a new process open."""
    done = subprocess.run([sys.executable, "-c", _COUNT, lake.root], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_unchanged_tables_are_not_read(tmp_path: Path) -> None:
    """After a batch of apply, a new process reads as many files for 160 tables as for 40."""
    counts = []
    for tables in (40, 160):
        lake = make_metadata_lake(tmp_path / str(tables), tables, files=1)
        Applier(lake, SparkOnDemand({}, Engine.DUCKDB), print).apply()
        counts.append(_count(lake))
    assert counts[0] == counts[1]
    assert {opened for _, opened in counts[0].values()} == {0}


def test_saved_tables_equal_opened_ones(tmp_path: Path) -> None:
    """Every field survives, and a table that moved since is opened."""
    lake = make_metadata_lake(tmp_path / "lake", 40, files=1)
    opened = Histories(lake)
    expected = opened.current()
    opened.save()
    assert Histories(lake).current() == expected
    assert len(lake.known_histories.read_text().splitlines()) == len(expected) + 1
    (lake.history(TableName("public", "t7")) / "_delta_log" / f"{3:020}.json").write_text('{"commitInfo":{}}\n')
    moved = {table.name: table.delta_version for table in Histories(lake).current()}
    assert moved.pop(TableName("public", "t7")) == 3
    assert moved.pop(TableName("public", "t0")) == 1
    assert set(moved.values()) == {2}


@pytest.mark.parametrize("content", ["", "1\n[]", "2\n", "1\n{", "\x00"])
def test_a_damaged_file_is_ignored(tmp_path: Path, content: str) -> None:
    """It is a cache: the tables are opened instead."""
    lake = make_metadata_lake(tmp_path / "lake", 2, files=1)
    lake.known_histories.write_text(content)
    assert [table.name.table for table in list_histories(lake)] == ["t0", "t1"]


def test_a_file_that_is_cut_off_is_ignored(tmp_path: Path) -> None:
    """It is not synced, so a power failure may leave a part; the columns of its last table are parsed later."""
    lake = make_metadata_lake(tmp_path / "lake", 40, files=1)
    opened = Histories(lake)
    expected = opened.current()
    opened.save()
    lake.known_histories.write_text(lake.known_histories.read_text()[:-10])
    assert [table.columns for table in Histories(lake).current()] == [table.columns for table in expected]
