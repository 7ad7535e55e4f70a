"""Attempts at a write that may lose against another process's: it is planned again, a limited number of times.

for _ in attempts(10, f"the history of {name}", "Stop the other writer, then start again.", pause_s=0.1):
    with suppress(FileExistsError):
        return put_commit(...)
"""

import random
import time
from collections.abc import Iterator

from auditlake.errors import LakeConflict

_LONGEST_PAUSE_S = 5.0


def attempts(most: int, what: str, hint: str, *, pause_s: float = 0.0) -> Iterator[None]:
    """Yield before each attempt to write `what`; who succeeds leaves the loop.

    Before the second attempt it waits `pause_s`, then twice as long each time, with random jitter, so that two
    processes diverge.

    Raises LakeConflict after the last attempt.
    """
    for done in range(most):
        if done and pause_s:
            longest_s = min(_LONGEST_PAUSE_S, pause_s * (1 << (done - 1)))
            time.sleep(longest_s * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
        yield
    raise LakeConflict(f"{most} attempts to write {what} lost against writes of other processes", hint)
