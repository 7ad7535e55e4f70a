"""Put files of a history in place of others that hold the same rows: one entry in Delta's log, which changes no data.

Nothing that others commit meanwhile is lost, as they cannot have touched what is replaced: the entry takes the next
version that is free, as long as no version since the files were read removes or marks one of them, and none changes the
table itself.

Authority: Delta's PROTOCOL.md, "Add File and Remove File": `dataChange`; "Delta Log Entries"
"""

from collections.abc import Sequence

from auditlake.lake.actions import entry
from auditlake.lake.commits import Action, put_commit, removed
from auditlake.lake.scan import Files


def rearrange(files: Files, added: Sequence[Action]) -> bool:
    """Replace files, as they were read; False where another commit was faster."""
    gone = (removed(file.add) for file in files.by_name.values())
    actions = [_rearranged(action) for action in (*gone, *added)]
    version = files.table.delta_version + 1
    while True:
        try:
            put_commit(files.table.path, version, "OPTIMIZE", actions)
        except FileExistsError:
            if _touched(files, version):
                return False
            version += 1
        else:
            return True


def _rearranged(action: Action) -> Action:
    """Say that it changes no data: who reads the table as a stream passes it over."""
    return {kind: {**said, "dataChange": False} for kind, said in action.items()}


def _touched(files: Files, version: int) -> bool:
    """Whether a version takes one of the files out of the table, marks rows of it, or changes the table itself."""
    paths = {file.add["path"] for file in files.by_name.values()}
    for action in entry(files.table.path, version):
        if "metaData" in action or "protocol" in action or action.get("remove", {}).get("path") in paths:
            return True
    return False
