"""Places right after an effect, where a test may kill the process to see that the same command goes on from there.

`reach(place)` does nothing unless AUDITLAKE_FAILPOINT names the place; then the process dies by SIGKILL, without a
chance to clean up. `place:3` dies at the third time. A name that is never reached kills nobody, so a test must see
that the process died.

The places are the effects of the design's order of effects, each in the stage that orders them.
"""

import os
import signal
from collections import Counter
from enum import StrEnum
from threading import Lock

_VARIABLE = "AUDITLAKE_FAILPOINT"


class After(StrEnum):
    """What has just become durable."""

    MANIFEST_WRITTEN = "manifest-written"  # under its temporary name
    MANIFEST = "manifest"
    PUBLICATION = "publication"
    MEMBERSHIP = "membership"  # how the tables are published
    SLOT = "slot"
    START = "start"
    HISTORY_CREATED = "history-created"  # empty, without a position
    FILES_COPIED = "files-copied"  # of one table, in no commit yet
    TABLE_COPIED = "table-copied"
    ADDED = "added"  # what older rows show in new columns
    RELATIONS = "relations"
    PART = "part"
    TRANSACTIONS = "transactions"
    CHANGES = "changes"
    IDLE = "idle"
    TIDIED = "tidied"
    ACKNOWLEDGED = "acknowledged"
    COLUMNS_ADDED = "columns-added"
    ROWS_WRITTEN = "rows-written"  # of one tail, in no commit yet
    TABLE_MERGED = "table-merged"
    FILES_JOINED = "files-joined"


_times: Counter[str] = Counter()
_lock = Lock()


def reach(place: After) -> None:
    """Die here, if a test wants it."""
    wanted, _, times = os.environ.get(_VARIABLE, "").partition(":")
    if wanted != place:
        return
    with _lock:
        _times[place] += 1
        if _times[place] == int(times or 1):
            os.kill(os.getpid(), signal.SIGKILL)
