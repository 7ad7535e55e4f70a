"""Folders of a lake put back from an older backup: a question gives the answer of the whole lake, or refuses."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from auditlake.capture.change_log import CaptureLog, CommitEnd
from auditlake.delta.append_table import AppendLog
from auditlake.delta.log_writer import moved, put_commit
from auditlake.engine import Engine
from auditlake.errors import LakeUnusable
from auditlake.follow import Applier
from auditlake.lake.gaps import UNKNOWN_SHAPE, Gap, record_gaps
from auditlake.lake.layout import HISTORY_APP, Lake
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA
from auditlake.relation import Relation, ReplicaIdentity, TableName
from auditlake.schema.missing_values import ADDED_SCHEMA
from auditlake.spark.on_demand import SparkOnDemand
from tests.command import Done, run_here
from tests.small_lake import CUSTOMERS, ORDER_COLUMNS, ORDERS, T0_US, write_lake_with_manifest

_QUESTIONS = (
    ("sql", "--engine", "duckdb", "--format", "csv", "select * from orders order by id"),
    ("log", "--changes", "--json"),
    ("row", "public.orders", "1", "--json"),
)
_OWN = ("relations", "transactions", "gaps", "added")


@pytest.fixture
def lakes(tmp_path: Path) -> tuple[Lake, Path]:
    """A lake after a batch with a new shape, a gap and the value of an added column, and a copy of it before."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    lake = Lake(Path(lake.root))
    AppendLog(lake.added, ADDED_SCHEMA)
    before = shutil.copytree(lake.root, tmp_path / "before")
    row = {"oid": 2, "column": "note", "lsn": 0x500, "schema": "public", "table": "customers"}
    AppendLog(lake.added, ADDED_SCHEMA).append(pa.RecordBatch.from_pylist([row], schema=ADDED_SCHEMA), {})
    record_gaps(lake, [Gap(CUSTOMERS, Lsn(0x190), Lsn(0x1A0), UNKNOWN_SHAPE)])
    log = CaptureLog(lake)
    number = log.relations.register(Relation(1, ORDERS, ReplicaIdentity.DEFAULT, ORDER_COLUMNS), Lsn(0x500))
    other = Relation(3, TableName("public", "other"), ReplicaIdentity.DEFAULT, ORDER_COLUMNS)
    log.relations.register(other, Lsn(0x500))
    change: dict[str, object] = {
        "lsn": 0x500,
        "ordinal": 0,
        "xid": 20,
        "time": T0_US + 200_000_000,
        "op": "insert",
        "schema": "public",
    }
    change |= {"table": "orders", "relation": number, "new": ["9", "n", "9.00", "2026-01-01 12:00:00+00"]}
    transaction: dict[str, object] = {
        "lsn": 0x500,
        "end_lsn": 0x520,
        "xid": 20,
        "time": T0_US + 200_000_000,
        "inserts": 1,
        "updates": 0,
    }
    transaction |= {"deletes": 0, "truncates": 0, "tables": ["public.orders"]}
    log.append(
        pa.RecordBatch.from_pylist([change], schema=CHANGES_SCHEMA),
        pa.RecordBatch.from_pylist([transaction], schema=TRANSACTIONS_SCHEMA),
        CommitEnd(Lsn(0x500), Lsn(0x520)),
    )
    return lake, before


def _ask(lake: Lake) -> list[Done]:
    return [run_here([*question, "--lake", lake.root]) for question in _QUESTIONS]


def _put_back(folder: Path, content: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(content, folder)


def test_the_whole_lake_is_answered(lakes: tuple[Lake, Path]) -> None:
    """And records what its tables had."""
    lake, _ = lakes
    assert [done.code for done in _ask(lake)] == [0, 0, 0], [done.stderr for done in _ask(lake)]


@pytest.mark.parametrize("name", _OWN)
def test_an_older_folder_is_refused(lakes: tuple[Lake, Path], name: str) -> None:
    """It is a right table by itself."""
    lake, before = lakes
    _put_back(lake.root / name, before / name)
    with pytest.raises(LakeUnusable, match="is older than the rest of the lake"):
        Applier(lake, SparkOnDemand({}, Engine.DUCKDB), print).apply()
    for done in [*_ask(lake), run_here(["verify", "--no-source", "--lake", lake.root])]:
        assert done.code == 6, done.stdout
        assert f"{lake.root / name} is older than the rest of the lake" in done.stderr


@pytest.mark.parametrize("name", _OWN)
def test_the_status_is_not_well_then(lakes: tuple[Lake, Path], name: str) -> None:
    """Whoever watches it learns that nothing is answered; that there is no source comes later."""
    lake, before = lakes
    assert run_here(["status", "--check", "--lake", lake.root]).code == 3
    _put_back(lake.root / name, before / name)
    done = run_here(["status", "--check", "--lake", lake.root])
    assert done.code == 6, done.stderr
    assert f"{lake.root / name} is older than the rest of the lake" in done.stdout


@pytest.mark.parametrize("name", _OWN)
def test_a_lost_last_entry_is_refused(lakes: tuple[Lake, Path], name: str) -> None:
    """As if its commit had never been."""
    lake, _ = lakes
    max((lake.root / name / "_delta_log").glob("*.json")).unlink()
    for done in _ask(lake):
        assert done.code == 6, done.stdout
        assert f"{lake.root / name} is older than the rest of the lake" in done.stderr


def test_older_changes_are_refused_if_a_history_is_ahead_of_them(lakes: tuple[Lake, Path]) -> None:
    """Its versions came from changes that are lost."""
    lake, _ = lakes
    history = lake.history(ORDERS)
    last = max((history / "_delta_log").glob("*.json"))
    put_commit(history, int(last.stem) + 1, "MERGE", moved({HISTORY_APP: 0x520}))
    with pytest.raises(LakeUnusable, match="is older than the rest of the lake"):
        Applier(lake, SparkOnDemand({}, Engine.DUCKDB), print).apply()
    for done in _ask(lake):
        assert done.code == 6, done.stdout
        assert f"{lake.changes} is older than the rest of the lake: it has changes up to 0/500" in done.stderr


def test_a_history_up_to_which_every_commit_is_known_is_not_ahead(lakes: tuple[Lake, Path]) -> None:
    """A new snapshot folds it that far, and may be killed before it ends."""
    lake, _ = lakes
    history = lake.history(ORDERS)
    last = max((history / "_delta_log").glob("*.json"))
    put_commit(history, int(last.stem) + 1, "MERGE", moved({HISTORY_APP: 0x51F}))
    Applier(lake, SparkOnDemand({}, Engine.DUCKDB), print).apply()
    assert [done.code for done in _ask(lake)] == [0, 0, 0], [done.stderr for done in _ask(lake)]
