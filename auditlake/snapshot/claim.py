"""Whose lake a folder is: from its manifest on, slot and publication of these names are ours."""

from auditlake.errors import WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, read_manifest, write_manifest
from auditlake.snapshot.plan import Plan


def is_ours(lake: Lake, manifest: Manifest) -> bool:
    """Whether the folder is this source's lake; False where it is none yet."""
    recorded = read_manifest(lake)
    if recorded is not None:
        recorded.check_same(manifest)
    return recorded is not None


def claim(lake: Lake, manifest: Manifest, plan: Plan) -> None:
    """Make the folder this source's lake.

    Raises WrongSource where the slot is somebody else's, LakeUnusable where the folder cannot be it.
    """
    if plan.slot is not None:
        what = f"{plan.slot.plugin or 'physical'}, database {plan.slot.database or '-'}"
        raise WrongSource(
            f"slot {manifest.slot} exists already ({what}), and {lake.root} has no record of it",
            f"Choose another slot, or drop that one: select pg_drop_replication_slot('{manifest.slot}').",
        )
    write_manifest(lake, manifest)
