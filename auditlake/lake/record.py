"""A small JSON file of the lake, written whole, by rename: whoever reads it finds the old content or the new.

It is not synced to the disk: what cannot be made again is in `lake.json` (`manifest`) and the Delta tables.
"""

import json
from pathlib import Path

from auditlake.errors import LakeUnusable
from auditlake.lake.layout import Lake


def write_record(lake: Lake, path: Path, content: object) -> None:
    """Put `content` in place of what is at `path`, in the lake's folder or in one below, which is made if need be.

    Raises LakeUnusable where the folder cannot be written.
    """
    unfinished = path.with_suffix(".partial")
    try:
        if path.parent != lake.root:  # that one is there, or this is no lake
            path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(content, indent=2) + "\n")
        unfinished.rename(path)
    except OSError as exc:
        raise LakeUnusable(f"{lake.root} cannot be written: {exc.strerror}", "Mend the folder.") from exc
