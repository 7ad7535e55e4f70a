"""Buffers as capture passes them to the decoder: payloads, each after a replication header."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Framed: TypeAlias = tuple[bytes, npt.NDArray[np.int64], npt.NDArray[np.int64]]

_HEADER = b"w" + b"\xff" * 24
"""As long as XLogData's header; reading these bytes would change the results."""


def frame(payloads: Sequence[bytes]) -> Framed:
    """Put each payload after a header, the last one at the end of the buffer."""
    sizes = np.array([len(payload) for payload in payloads], np.int64)
    ends = np.cumsum(sizes + len(_HEADER))
    return b"".join(_HEADER + payload for payload in payloads), ends - sizes, ends
