"""Work in a thread beside a block, which ends with the block."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def in_background(work: Callable[..., None], *arguments: object, name: str) -> Iterator[None]:
    """Call `work` in a thread during the block, with `arguments` and an event by whose setting it ends."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(*arguments, ended), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
