"""Gate between apply, which reads files of the lake to write histories, and an erasure, which deletes files at once.

`follow` holds the locks of its stages as long as it runs, so an erasure cannot take them. Apply therefore enters the
gate for each batch (`at_work`), and an erasure closes it (`closed`): it waits for the batch that is under way, and the
next one waits for it. A process that is suspended within a batch holds the gate, and the erasure is refused before its
first effect; one that is suspended outside waits when it wakes up. So no history is written from deleted files.

Two flock(2): of the folder `history`, shared by those at work, and of the lake's own, which is taken first and given
up at once, but kept by an erasure, so that it is not kept waiting by one batch after the other. The system releases
both when a process ends.

An object store has no such locks. There an erasure holds the lease of apply, so `follow` has to be stopped before.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from auditlake.errors import LakeConflict, LakeUnusable
from auditlake.lake.histories import no_table_yet
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, hold
from auditlake.store.files import local_path

_WAIT_S = 60.0
_POLL_S = 0.05


@contextmanager
def at_work(lake: Lake) -> Iterator[None]:
    """Keep the gate open during the block; wait while it is closed."""
    root = local_path(lake.root)
    if root is None or not lake.histories.is_dir():
        yield
        return
    with _opened(lake.histories) as work:
        with _opened(root) as turn:
            fcntl.flock(turn, fcntl.LOCK_SH)
            fcntl.flock(work, fcntl.LOCK_SH)
        yield


@contextmanager
def closed(lake: Lake, wait_s: float = _WAIT_S) -> Iterator[None]:
    """Close the gate in the block, once no batch is under way.

    Raises LakeConflict if that takes longer than `wait_s`, or in a store at once; LakeUnusable without a history.
    """
    root = local_path(lake.root)
    if root is None:
        with hold(lake, "forget", Stage.APPLY):
            yield
        return
    if not lake.histories.is_dir():
        raise no_table_yet(lake)
    with _opened(root) as turn, _opened(lake.histories) as work:
        until_s = time.monotonic() + wait_s
        for descriptor in (turn, work):
            _take(lake, descriptor, until_s)
        yield


def _take(lake: Lake, descriptor: int, until_s: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until_s:
                raise LakeConflict(
                    f"a batch of another process is under way on {lake.root}",
                    "Run this again when it is done; auditlake status shows what runs. Nothing was changed.",
                ) from None
            time.sleep(_POLL_S)
        except OSError as exc:
            raise LakeUnusable(f"{lake.root} cannot be locked: {exc.strerror}", "Nothing was changed.") from exc
        else:
            return


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
