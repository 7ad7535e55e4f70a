"""A limit on the size of files, which stands for a full disk."""

import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """Let every write of this process, and of those that it starts, fail beyond this size.

    A module that is imported meanwhile is not stored as bytecode: Python would store its first bytes only.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        with mock.patch.object(sys, "dont_write_bytecode", new=True):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
