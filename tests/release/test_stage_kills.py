"""Stages, backups, erasure, expiry and sealing killed after the effects that `make test` leaves out."""

from pathlib import Path

import pytest

from auditlake.failpoints import After
from tests.crash.test_bootstrap import kill_bootstrap
from tests.crash.test_capture import Kill, kill_capture
from tests.postgres import test_backup, test_erased_keys, test_masking
from tests.small_lake import write_lake_with_manifest
from tests.unit.erasure import test_expiring_log, test_retention, test_without_key
from tests.unit.ledger import test_seal

pytestmark = [pytest.mark.pg, pytest.mark.crash]


@pytest.mark.parametrize(
    "place",
    [
        *(After.MANIFEST_WRITTEN, After.MANIFEST, After.PUBLICATION, After.SLOT, After.HISTORY_CREATED),
        After.TABLE_COPIED,
    ],
)
def test_a_killed_bootstrap_continues_with_the_same_slot(database: str, tmp_path: Path, place: After) -> None:
    """Before its slot exists, before a table is copied, or after the first one is."""
    kill_bootstrap(database, tmp_path, place)


@pytest.mark.parametrize(
    "kill",
    [
        Kill(After.RELATIONS, 1),
        Kill(After.TRANSACTIONS, 1),
        Kill(After.CHANGES, 1),
        Kill(After.CHANGES, 4),
        Kill(After.ACKNOWLEDGED, 1),
        Kill(After.PART, 2, large=True),
    ],
    ids=str,
)
def test_a_killed_capture_continues_and_every_change_is_there_once(database: str, tmp_path: Path, kill: Kill) -> None:
    """At the first effects of a run, and at later ones."""
    kill_capture(database, tmp_path, kill)


@pytest.mark.parametrize("place", [After.RELATIONS, After.TRANSACTIONS, After.CHANGES])
def test_a_killed_capture_leaves_no_value(database: str, tmp_path: Path, place: After) -> None:
    """Before a part of a transaction is written, or when all are."""
    test_masking.kill_capture(test_masking.make_site(database, tmp_path), place)


@pytest.mark.parametrize("place", [After.MANIFEST, After.SLOT])
def test_a_killed_bootstrap_leaves_no_value(database: str, tmp_path: Path, place: After) -> None:
    """Also before the rules are recorded."""
    test_masking.kill_bootstrap(test_masking.make_site(database, tmp_path), place)


def test_a_killed_erasure_of_a_key_is_finished(database: str, tmp_path: Path) -> None:
    """After the log."""
    test_erased_keys.kill_erasure(database, test_erased_keys.make(database, tmp_path), f"{After.VALUES_ERASED}:3")


@pytest.mark.parametrize(
    ("place", "complete"), [(After.LOGS_BACKED_UP, 1), (After.RECORDS_BACKED_UP, 1), (After.BACKED_UP, 2)]
)
def test_a_killed_backup_loses_no_other_and_is_repeated(
    database: str, tmp_path: Path, place: After, complete: int
) -> None:
    """Before its files, after them, and when it is complete."""
    test_backup.kill_backup(database, test_backup.make(database, tmp_path), tmp_path, place, complete)


@pytest.mark.parametrize("place", [After.RECORDS_RESTORED, After.RESTORED])
def test_a_killed_restore_is_no_lake_and_is_repeated(database: str, tmp_path: Path, place: After) -> None:
    """Before and after it is a lake."""
    test_backup.kill_restore(database, test_backup.make(database, tmp_path), tmp_path, place)


@pytest.mark.parametrize("place", [After.EXPIRY_RECORDED, After.EXPIRED])
def test_a_killed_expiry_is_repeated(tmp_path: Path, place: After) -> None:
    """Before anything is written, and after the commit."""
    test_expiring_log.kill_run(write_lake_with_manifest(tmp_path / "lake", "1"), tmp_path, place)


@pytest.mark.parametrize(
    ("step", "changes", "transactions"),
    [
        (f"{After.EXPIRY_RECORDED}:1", 8, 5),
        (f"{After.EXPIRY_WRITTEN}:1", 8, 5),
        (f"{After.EXPIRY_WRITTEN}:2", 2, 5),
        (f"{After.EXPIRED}:2", 2, 3),
    ],
)
def test_an_expiry_that_is_killed_between_its_commits_is_repeated(
    tmp_path: Path, step: str, changes: int, transactions: int
) -> None:
    """Before the first one, and around the second one."""
    lake = write_lake_with_manifest(tmp_path / "lake", "1")
    test_expiring_log.kill_between(lake, tmp_path, step, changes, transactions)


@pytest.mark.parametrize("place", [After.EXPIRY_RECORDED, After.EXPIRED])
def test_a_killed_expiry_of_versions_is_repeated(tmp_path: Path, place: After) -> None:
    """Before anything is written, and after the commit."""
    test_retention.kill_run(write_lake_with_manifest(tmp_path / "lake"), tmp_path, place)


@pytest.mark.parametrize("step", [After.ERASURE_BEGUN, After.LOG_CHECKPOINTED])
def test_a_killed_erasure_of_a_table_without_key_is_finished(tmp_path: Path, step: str) -> None:
    """Before the first value, and after the last."""
    test_without_key.kill_erasure(test_without_key.write_logins(tmp_path / "lake"), step)


@pytest.mark.parametrize("place", [After.BLOCK_PREPARED, After.BLOCK_SEALED])
def test_a_killed_sealer_continues_with_the_same_tree(tmp_path: Path, place: After) -> None:
    """Before its entries, and after the block."""
    test_seal.kill_sealer(write_lake_with_manifest(tmp_path / "lake"), tmp_path, place)
