"""A process that copies: `python -m auditlake.snapshot.worker`, started by `workers`.

Pickled bundles come in on standard input, pickled results go out on standard output. Its end comes with the end of
standard input, in the middle of a range, too: whoever started it does not want it any more, or was killed, and then
neither its connection nor its snapshot may stay.
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
from auditlake.start import lean

if TYPE_CHECKING:
    from auditlake.snapshot.task import CopyTask


def main() -> None:
    """Copy bundles until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to us, too; who started us decides
    lean()
    from auditlake.snapshot.copy import copy_bundle  # noqa: PLC0415 - the import that takes time

    bundles: SimpleQueue[Sequence[CopyTask]] = SimpleQueue()
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # whatever a library prints is no answer
        threading.Thread(target=_receive, args=(sys.stdin.buffer, bundles), daemon=True).start()
        while True:
            pickle.dump(copy_bundle(bundles.get()), answers)
            answers.flush()


def _receive(source: BinaryIO, bundles: "SimpleQueue[Sequence[CopyTask]]") -> None:
    while True:
        try:
            bundles.put(pickle.load(source))  # noqa: S301 - from our own process
        except EOFError:
            os._exit(0)


if __name__ == "__main__":
    try:
        main()
    except Exception as exc:  # noqa: BLE001 - whose text might quote rows
        report_bug(exc)
        sys.exit(1)
