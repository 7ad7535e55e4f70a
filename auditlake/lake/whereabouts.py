"""Where a lake is, as it is recorded: this distinguishes it from its copies.

A copy has the same records in another folder, which has another inode; in an object store, another URL. So a copy
does not continue the origin of the lake's ledger, and forgets versions only after that was confirmed for it.
"""

from auditlake.lake.layout import Lake
from auditlake.store.files import local_path
from auditlake.store.place import Place


def whereabouts(lake: Lake, folder: Place) -> str:
    """Return what to record of a lake, given the folder in it whose inode is compared on a disk."""
    local = local_path(folder)
    return str(lake.root) if local is None else f"inode {local.stat().st_ino}"
