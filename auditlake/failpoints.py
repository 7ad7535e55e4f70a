"""Failpoints: places right after a durable effect, at which a test kills the process to check that a restart resumes.

`reach(place)` does nothing unless AUDITLAKE_FAILPOINT names the place; then the process is killed by SIGKILL, without
any cleanup. `place:3` kills it at the third time. A place that is never reached kills no process, so a test must check
that the process was killed.

The places are the effects in the stages' documented orders of effects.
"""

import os
import signal
from collections import Counter
from enum import StrEnum
from threading import Lock

_VARIABLE = "AUDITLAKE_FAILPOINT"


class After(StrEnum):
    """Effect that has just become durable."""

    MANIFEST_WRITTEN = "manifest-written"  # under its temporary name
    MANIFEST = "manifest"
    PUBLICATION = "publication"
    MEMBERSHIP = "membership"  # how the tables are published
    SLOT = "slot"
    START = "start"
    HISTORY_CREATED = "history-created"  # empty, without a position
    FILES_COPIED = "files-copied"  # of one table, in no commit yet
    TABLE_COPIED = "table-copied"
    ADDED = "added"  # missing values of new columns
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
    PARKED = "parked"  # the reason why a table is not folded further
    FILES_JOINED = "files-joined"
    SOURCE_RENEWED = "source-renewed"  # lake.json and publication.json name the new source
    HELD = "held"  # tables that get a new snapshot are not folded further
    COPIED_AGAIN = "copied-again"  # a new snapshot of all these tables, in no commit yet
    DIFFERENCE_WRITTEN = "difference-written"  # of one table, in no commit yet
    GAP = "gap"
    RESYNCED = "resynced"
    BLOCK_PREPARED = "block-prepared"  # its key and bounds
    ENTRIES_SEALED = "entries-sealed"  # of a block that does not exist yet
    BLOCK_SEALED = "block-sealed"
    EXPIRY_WRITTEN = "expiry-written"  # deletion vectors of expired versions, in no commit yet
    EXPIRY_RECORDED = "expiry-recorded"  # what a run will remove
    EXPIRED = "expired"  # the versions of one table
    HOLD_RECORDED = "hold-recorded"
    ERASURE_BEGUN = "erasure-begun"  # its record
    SECRETS_DESTROYED = "secrets-destroyed"  # of the ledger's entries that commit to the values
    VALUES_REWRITTEN = "values-rewritten"  # files of one table without the values, in no commit yet
    VALUES_ERASED = "values-erased"  # of one table; the old files are still there
    FILES_DELETED = "files-deleted"  # of one table
    LOG_CHECKPOINTED = "log-checkpointed"
    LOG_FORGOTTEN = "log-forgotten"
    VERSIONS_DELETED = "versions-deleted"  # older ones of objects in a bucket
    ERASURE_ENDED = "erasure-ended"
    DIGEST_COSIGNED = "digest-cosigned"  # by a witness; it is kept nowhere yet
    DIGEST_STORED = "digest-stored"
    LOGS_BACKED_UP = "logs-backed-up"
    FILE_BACKED_UP = "file-backed-up"  # in no backup yet
    RECORDS_BACKED_UP = "records-backed-up"
    BACKED_UP = "backed-up"
    FILE_RESTORED = "file-restored"
    RECORDS_RESTORED = "records-restored"  # all but lake.json
    RESTORED = "restored"


_times: Counter[str] = Counter()
_lock = Lock()


def reach(place: After) -> None:
    """Kill the process if a test has set this failpoint."""
    wanted, _, times = os.environ.get(_VARIABLE, "").partition(":")
    if wanted != place:
        return
    with _lock:
        _times[place] += 1
        if _times[place] == int(times or 1):
            os.kill(os.getpid(), signal.SIGKILL)
