"""Progress of a verification: how much is done and what runs, so that one that is slow does not look as if it hangs."""

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import TypeVar

from auditlake.messages import Say

EVERY_S = 30.0
A = TypeVar("A")
R = TypeVar("R")


def each_done(
    pool: Executor, call: Callable[[A], R], named: Sequence[tuple[str, A]], doing: str, say: Say
) -> Generator[tuple[A, R]]:
    """Call a function in a pool, and yield each argument with its result as soon as it is there.

    Every half minute it reports the names of those that run, and how many are done. Raises what a call raises; those
    that have not begun then are cancelled.
    """
    running: dict[Future[R], tuple[str, A]] = {pool.submit(call, each): (name, each) for name, each in named}
    told_at = time.monotonic()
    try:
        while running:
            done, _ = wait(running, EVERY_S, FIRST_COMPLETED)
            for future in done:
                yield running.pop(future)[1], future.result()
            names = sorted({name for future, (name, _) in running.items() if future.running()})
            if names and time.monotonic() >= told_at + EVERY_S:
                say(f"{doing} {', '.join(names)}; {len(named) - len(running)} of {len(named)} done")
                told_at = time.monotonic()
    finally:
        for future in running:
            future.cancel()
