"""Older versions of objects that an erasure in a bucket leaves: refuse to leave them, or delete them.

A bucket with versioning keeps every object that an erasure replaces or deletes. So an erasure there deletes, as its
last step, all versions of objects of the tables concerned that are not current, if it is told to; else it is refused.
"""

from auditlake.errors import Unsupported
from auditlake.failpoints import After, reach
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, lock_of
from auditlake.relation import TableName
from auditlake.store.object_versions import Noncurrent, delete_noncurrent, keeps_versions, list_noncurrent


def require_deletion(lake: Lake, *, may_delete: bool) -> None:
    """Require that older versions may be deleted, if the lake's bucket keeps them; the lock of ERASE is held.

    Raises Unsupported.
    """
    if _are_kept(lake) and not may_delete:
        raise Unsupported(
            f"the bucket of {lake.root} keeps older versions of what is deleted",
            "Add --delete-versions to delete those of the tables concerned for good; --dry-run counts them.",
        )


def list_older(lake: Lake, table: TableName) -> list[Noncurrent]:
    """List the versions that an erasure would delete now, none on a disk; raises ConfigError, LakeUnusable."""
    folders = (lake.transactions, lake.changes, lake.history(table), lake.ledger, lake.copied_again(table))
    return list_noncurrent(folders)


def delete_older(lake: Lake, table: TableName) -> None:
    """Delete the older versions, if the lake's bucket keeps them; the lock of ERASE is held. Raises as `list_older`."""
    if _are_kept(lake):
        delete_noncurrent(lake.root, list_older(lake, table))
        reach(After.VERSIONS_DELETED)


def _are_kept(lake: Lake) -> bool:
    """Return whether the bucket keeps versions, or did when the lake was made; then versioning may be suspended."""
    return keeps_versions(lock_of(lake, Stage.ERASE), lake.manifest)
