"""Worker process of the copy: `python -m auditlake.snapshot.worker_process`, started by `worker_pool`.

It reads pickled bundles from standard input and writes pickled results to standard output. At the end of standard input
it exits at once, even in the middle of a range: its parent has closed it or was killed, and neither the connection nor
the imported snapshot may outlive the parent.
"""

import os
import pickle
import signal
import sys
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, BinaryIO

from auditlake.messages import report_bug
from auditlake.startup import lean

if TYPE_CHECKING:
    from auditlake.snapshot.ctid_ranges import CopyTask


def main() -> None:
    """Copy bundles until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to us, too; the parent decides
    lean()
    from auditlake.snapshot.copy import copy_bundle  # noqa: PLC0415 - a slow import

    bundles: SimpleQueue[Sequence[CopyTask]] = SimpleQueue()
    with os.fdopen(os.dup(1), "wb") as results:
        os.dup2(2, 1)  # output of libraries must not get into the results
        threading.Thread(target=_receive, args=(sys.stdin.buffer, bundles), daemon=True).start()
        while True:
            pickle.dump(copy_bundle(bundles.get()), results)
            results.flush()


def _receive(source: BinaryIO, bundles: "SimpleQueue[Sequence[CopyTask]]") -> None:
    while True:
        try:
            bundles.put(pickle.load(source))  # noqa: S301 - from our own process
        except EOFError:
            os._exit(0)


if __name__ == "__main__":
    try:
        main()
    except Exception as exc:  # noqa: BLE001 - its text might quote rows
        report_bug(exc)
        sys.exit(1)
