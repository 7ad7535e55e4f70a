"""Every file of a lake damaged in every way, one at a time: verify finds it without a source."""

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from auditlake.delta.append_table import AppendLog
from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.log_check import log_problems
from auditlake.errors import LakeUnusable
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import require_manifest
from auditlake.lake.parking import Cause, Parked, park
from auditlake.lake.records import record_tables, write_shape, write_state
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.pgoutput.table_shape import Shape
from auditlake.relation import Relation, ReplicaIdentity
from auditlake.source.publication_membership import Member, Membership
from auditlake.verify.lake_files import check_logs, check_records
from auditlake.verify.verify import VerifyRequest, check_data_files
from tests.command import run_here
from tests.damage import as_ours
from tests.every_damage import Damage, every_damage
from tests.small_lake import CUSTOMERS, ORDER_COLUMNS, ORDERS, write_lake_with_manifest


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with a checkpoint, and with records."""
    made = write_lake_with_manifest(tmp_path / "lake")
    for name in (ORDERS, CUSTOMERS):
        as_ours(made.history(name))
    checkpoint(made.changes)
    write_state(made, "running")
    record_tables(made, Membership(1, frozenset({"insert"}), {ORDERS: Member(1, 1)}), {ORDERS: 1})
    write_shape(made, ORDERS, Shape(Relation(1, ORDERS, ReplicaIdentity.DEFAULT, ORDER_COLUMNS), "r", "p", {}))
    park(made, Parked(CUSTOMERS, Cause.APPLY, Lsn(0x300), Lsn(0x381), "its definition was changed", "Wait."))
    return made


def _found(lake: Lake) -> list[str]:
    """Return the kinds of problems that verify finds before it starts Spark."""
    try:
        require_manifest(lake)
        reports = [*check_logs(lake), *check_records(lake)]
        reports = reports or check_data_files(VerifyRequest(lake, None), list_histories(lake))
    except LakeUnusable as exc:
        return [exc.message]
    return [finding.kind for report in reports for finding in report.findings]


def _files(lake: Lake) -> list[Path]:
    return sorted(file for file in lake.root.rglob("*") if file.is_file())


def _is_unseen(damage: Damage, lake: Lake) -> bool:
    """Return whether the damage leaves a lake as it could be, or changes nothing that has a meaning."""
    file = damage.file
    if file.suffix == ".json" and file.parent.name != "_delta_log":  # a record
        return damage.is_json or (damage.content is None and file not in {lake.manifest, lake.publication})
    if file.name == "_last_checkpoint":  # a hint; its version has to be that of a checkpoint
        return damage.content is None or damage.is_json
    if file.name.endswith(".checkpoint.parquet"):  # of bytes that say nothing, or not what entries say
        return damage.kind.startswith("flipped")
    entries = sorted(file.parent.glob("*.json"))
    return damage.content is None and file.parent.name == "_delta_log" and file in entries[-1:] and not _hinted(file)


def _hinted(entry: Path) -> bool:
    return entry.with_suffix(".checkpoint.parquet").exists()


def test_verify_finds_every_damaged_file(lake: Lake) -> None:
    """Except for what is listed above."""
    assert _found(lake) == []
    tried, unseen = 0, []
    for damage in every_damage(_files(lake)):
        expected = not _is_unseen(damage, lake)
        with damage.done():
            if expected and not _found(lake):
                unseen.append((damage.kind, str(damage.file.relative_to(lake.root))))
        tried += expected
    assert unseen == []
    assert tried > 100


def test_a_damaged_log_is_reported_without_spark(lake: Lake) -> None:
    """With its file; a new snapshot would not bring the changes back."""
    entry = lake.transactions / "_delta_log" / f"{1:020}.json"
    entry.unlink()
    done = run_here(["verify", "--no-source", "--lake", lake.root])
    assert done.code == 6, done.stderr
    assert f"missing log entry  _delta_log/{entry.name}" in done.stdout
    assert "damaged in the lake: transactions" in done.stderr
    assert "Restore these files from a backup" in done.stderr


@pytest.mark.parametrize("what", ["files", "positions"])
def test_a_checkpoint_that_differs_from_the_entries_is_found(lake: Lake, what: str) -> None:
    """It is a readable file; readers would take it for the entries before it."""
    log = lake.changes / "_delta_log"
    target = log / f"{2:020}.checkpoint.parquet"
    rows = pq.read_table(target)
    kind = {"files": "add", "positions": "txn"}[what]
    kept = rows.filter(pc.is_null(rows[kind]))
    pq.write_table(kept, target)
    (problem,) = log_problems(lake.changes)
    assert (problem.kind, problem.detail) == ("checkpoint", f"differs from the entries in {what}")


def test_entries_that_a_checkpoint_replaced_may_be_gone(lake: Lake) -> None:
    """They expire once there is a second checkpoint."""
    log = lake.changes / "_delta_log"
    AppendLog(lake.changes, CHANGES_SCHEMA).append(None, {"test": 1})
    checkpoint(lake.changes)
    for version in (0, 1):
        (log / f"{version:020}.json").unlink()
    assert log_problems(lake.changes) == []
    (log / f"{2:020}.json").unlink()
    assert [problem.kind for problem in log_problems(lake.changes)] == ["missing log entry"]
