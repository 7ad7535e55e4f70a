"""Copy tables in threads of this process: a worker process needs a third of a CPU second to start."""

import pickle
from collections.abc import Sequence
from typing import TypeVar

from auditlake.snapshot.ctid_ranges import CopyTask
from auditlake.snapshot.worker_pool import Result

T = TypeVar("T")


class WorkersHere:
    """Stands for `LocalWorkers`; tasks and results are pickled, as if they went to another process."""

    def __init__(self, count: int) -> None:
        self.at_once = count

    def run(self, tasks: Sequence[CopyTask]) -> Sequence[Result]:
        """Copy a bundle."""
        from auditlake.snapshot.copy import copy_bundle  # noqa: PLC0415 - a slow import

        return _received(copy_bundle(_received(tasks)))

    def cancel(self) -> None:
        """Let the copies end."""

    def close(self) -> None: ...


def _received(sent: T) -> T:
    received: T = pickle.loads(pickle.dumps(sent))  # noqa: S301 - our own
    return received
