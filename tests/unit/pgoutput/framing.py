"""Payloads as capture hands them over: in one buffer, each behind a header that is not pgoutput's."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Framed: TypeAlias = tuple[bytes, npt.NDArray[np.int64], npt.NDArray[np.int64]]

_HEADER = b"w" + b"\xff" * 24
"""As long as XLogData's; the bytes would be noticed if they were read."""


def frame(payloads: Sequence[bytes]) -> Framed:
    """Lay payloads behind headers; the last one ends the buffer."""
    sizes = np.array([len(payload) for payload in payloads], np.int64)
    ends = np.cumsum(sizes + len(_HEADER))
    return b"".join(_HEADER + payload for payload in payloads), ends - sizes, ends
