"""Failures of a disk, and of an object store as obstore, deltalake and Spark's S3A report them: told apart from bugs.

A disk that is full or broken, missing rights, too few descriptors and an impossible name are the system's, whatever
file it was.

Full texts quote whole requests, and Spark's may quote rows. Only the status, the code or the kind of failure is shown.
In Spark, a missing object (404) and a refused condition (412) are not failures of the store: each means something to
its caller.

Authority: errno(3); Hadoop's `S3AUtils.translateException`; obstore.exceptions; py4j.protocol
"""

import os
import re
from errno import EACCES, EDQUOT, EFBIG, EINVAL, EIO, ELOOP, EMFILE, ENAMETOOLONG, ENFILE, ENOSPC, EPERM, EROFS, ESTALE

from auditlake.errors import LakeUnusable
from auditlake.jvm_trace import trace_of

_REASON = re.compile(r"<Code>(\w+)</Code>|status code: (\d+ [A-Za-z ]+)|(error sending request|timed out)")
# A refusal (401, 403) has a text of its own, with the request below it.
_OF_DELTALAKE = re.compile(r"Generic S3 error|Error performing (?:GET|PUT|HEAD|POST|DELETE|list) ")
# A reply to HEAD has no code of S3, only the words of its status.
_REPLY_TO_SPARK = re.compile(r"(?:([A-Z][A-Za-z ]+?) )?\(Service: S3, Status Code: (?!404|412)(\d+)")
# Followed by its message, which a frame of the trace is not; S3A's own classes of a reply come with the reply.
_OF_SPARK = re.compile(
    r"\b(?:software\.amazon\.awssdk\.core\.exception|org\.apache\.hadoop\.fs\.s3a|org\.apache\.hadoop\.net)"
    r"(?:\.auth)?\.((?:Sdk|Api|AWS|NoAuth|Connect|Credential)\w*Exception)(?=:|\s|$)"
)
_MISSING = "NoSuchKey"
_OF_ARROW_AND_DELTALAKE = frozenset({"ArrowException", "DeltaError"})
_OF_DISK = frozenset({EACCES, EDQUOT, EFBIG, EIO, ELOOP, EMFILE, ENAMETOOLONG, ENFILE, ENOSPC, EPERM, EROFS, ESTALE})
_FULL = frozenset({EDQUOT, ENOSPC})
_FULL_TEXT = re.compile(r"No space left on device|Disk quota exceeded")
"""In the errors of deltalake, which have no number."""
AGAIN = "run this again"
"""The remedy in these hints: the command that failed."""
_NOT_OURS = "auditlake did not put it there: remove it, and restore the file."
_HINT = f"Nothing was lost. Check credentials, rights and the store, then {AGAIN}: it continues from there."


def code_or_kind(exc: BaseException) -> str:
    """Return the store's code, or the kind of failure, of an exception of obstore or deltalake."""
    found = [next(filter(None, match.groups())) for match in _REASON.finditer(str(exc))]
    return ", ".join(dict.fromkeys(text.strip() for text in found)) or type(exc).__name__


class NotAFile(OSError):
    """What has the name of a file is a named pipe, a socket or a device; reading it might never end."""

    def __init__(self, name: str) -> None:
        super().__init__(EINVAL, "it is not a file", name)


def as_disk_error(exc: BaseException) -> LakeUnusable | None:
    """Return the error to report if `exc` is a failure of the disk or the system, by its number; None if it is not."""
    if not isinstance(exc, OSError) or exc.errno not in _OF_DISK:
        return None
    reason = os.strerror(exc.errno)
    return LakeUnusable(f"{exc.filename}: {reason}" if exc.filename else reason, remedy_of(exc))


def remedy_of(exc: BaseException) -> str:
    """Return what to do about a read or write that failed; of a full disk, to free space."""
    return f"{'Free space there' if is_full(exc) else 'Correct that'}, then {AGAIN}: it continues from there."


def is_full(exc: BaseException) -> bool:
    """Return whether a disk is full, or a quota used up."""
    if isinstance(exc, OSError) and exc.errno is not None:
        return exc.errno in _FULL
    return _FULL_TEXT.search(str(exc)) is not None


def as_lake_error(exc: BaseException) -> LakeUnusable | None:
    """Return the error to report if `exc` is a failure of the store, or of a file that is none; else None."""
    if isinstance(exc, NotAFile):
        return LakeUnusable(f"{exc.filename} is not a file", _NOT_OURS)
    if isinstance(exc, OSError) and isinstance(exc.filename, str) and "://" in exc.filename:
        return LakeUnusable(f"{exc.filename}: {exc.strerror}", _HINT)
    reason = _failure(exc)
    return LakeUnusable(reason, _HINT) if reason else None


def _failure(exc: BaseException) -> str | None:
    """Return what failed, if `exc` is a failure of the store that deltalake or Spark raised."""
    if _is_deltalakes(exc):
        return _failure_of_deltalake(exc) if _OF_DELTALAKE.search(str(exc)) else None
    trace = trace_of(exc)
    return _failure_in(trace) if trace else None


def _failure_of_deltalake(exc: BaseException) -> str:
    found = code_or_kind(exc)
    return f"an object of the lake cannot be read: {found}" if _MISSING in found else f"the store failed: {found}"


def _is_deltalakes(exc: BaseException) -> bool:
    """Return whether deltalake may have raised this: OSError without a number, DeltaError, or its engine by Arrow."""
    if isinstance(exc, OSError):
        return exc.errno is None
    return any(kind.__name__ in _OF_ARROW_AND_DELTALAKE for kind in type(exc).__mro__)  # without importing them for it


def _failure_in(trace: str) -> str | None:
    if reply := _REPLY_TO_SPARK.search(trace):
        return f"the store answered {reply[2]} {(reply[1] or '').strip()}".rstrip()
    kind = _OF_SPARK.search(trace)
    return f"the store failed: {kind[1]}" if kind else None
