"""Start-up of a short-lived process: prepare the interpreter before anything slow is imported.

pyarrow imports pandas when it converts the first Python value, only to check whether it is a data frame; that is half
of the start-up time of an audit command, and of capture. No frame is ever passed, so `lean` hides the libraries. It
also avoids two more costs: hundreds of garbage collections during imports, and numpy's BLAS thread pool.
"""

import gc
import os
import sys

_GARBAGE = 200_000  # more objects than any command's imports make
_FRAMES = frozenset({"pandas", "polars"})
"""pyarrow imports the first; the ADBC driver imports both."""


def is_submitted() -> bool:
    """Return whether spark-submit started this process, as the driver of a Spark that runs already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def lean() -> None:
    """Prepare the interpreter for a fast start; call it before slow imports, in a process that runs only our code."""
    gc.set_threshold(_GARBAGE)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.meta_path.insert(0, _NoFrames())


def whole() -> None:
    """Undo the hiding, for a process that turns out to need a data frame library."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _NoFrames)]


class _NoFrames:
    """Import hook that reports data frame libraries as not installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002 - the protocol's
        if fullname in _FRAMES:
            raise ModuleNotFoundError(fullname)
