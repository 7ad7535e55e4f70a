"""Damage behind an unexpected error: the file of the lake that explains an exception.

pyarrow, deltalake and DuckDB report a damaged file in many ways, and a bug of ours in the same ones; a wrong value may
also fail in our own code. So the exception decides nothing: the files are checked, first for existence and size, then
up to `_READ_BYTES` of them for content. Only a file that `verify` would report, too, turns the exception into an error
of the lake. If none is damaged, a file that was missing belongs to no table any more: another process replaced it.
"""

import re
from collections.abc import Iterator
from errno import EISDIR, ELOOP, ENOTDIR

from auditlake.delta.data_files import RESTORE, FileProblem, file_problems, size_problem
from auditlake.delta.log_check import log_problems
from auditlake.delta.log_reader import Add, list_newest, live_files
from auditlake.errors import AuditlakeError, LakeConflict, LakeUnusable, TableUnreadable
from auditlake.lake.history_files import READ_AGAIN
from auditlake.lake.layout import Lake
from auditlake.store.failures import NotAFile, as_lake_error
from auditlake.store.place import Place
from auditlake.verify.lake_files import tables_of

_LIBRARIES = frozenset({"pyarrow", "deltalake", "_internal", "_duckdb", "duckdb", "arro3", "pyspark", "py4j"})
"""Top-level modules of the exceptions; `_internal` is deltalake's."""
_OTHER_KIND = frozenset({EISDIR, ELOOP, ENOTDIR})
_READ_BYTES = 1 << 30


def damage_behind(exc: BaseException, lake: Lake) -> LakeUnusable | LakeConflict | None:
    """Return the error to report instead of `exc`; None if nothing is damaged and no file was missing.

    An error of our own is kept as well, unless an exception of a library is its cause, and it names no file itself.
    """
    if isinstance(exc, AuditlakeError) and not any(_is_of_library(each) for each in _chain(exc)):
        return None
    if isinstance(exc, LakeUnusable) and not isinstance(exc, TableUnreadable):
        return None
    if (unreadable := _unreadable(exc, lake)) is not None:
        return unreadable
    found = next(_problems(lake), None)
    if found is None:
        return _replaced(exc, lake)
    table, problem = found
    what = f"{table}, {problem.file}: {problem.kind}, {problem.detail}"
    return LakeUnusable(f"a file of the lake is damaged: {what}", RESTORE)


def _unreadable(exc: BaseException, lake: Lake) -> LakeUnusable | None:
    """Return the error for a place that is of another kind: a pipe for a file or a folder, a loop of links."""
    for each in _chain(exc):
        if isinstance(each, NotAFile):
            return as_lake_error(each)
        if isinstance(each, OSError) and each.errno in _OTHER_KIND and str(each.filename).startswith(f"{lake.root}/"):
            return LakeUnusable(f"{each.filename} cannot be read: {each.strerror}", RESTORE)
    return None


def _replaced(exc: BaseException, lake: Lake) -> LakeConflict | None:
    """Return the error for a file of the lake that was deleted while it was read; None if there was none."""
    root = str(lake.root).partition("://")[2] or str(lake.root)
    missing = (str(each) for each in _chain(exc) if isinstance(each, FileNotFoundError))
    for _, found, file in (text.partition(f"{root}/") for text in missing):
        if found:
            name = re.split("['\"]", file)[0]
            what = f"{name} of {lake.root} was deleted while it was read"
            return LakeConflict(what, READ_AGAIN)
    return None


def _chain(exc: BaseException | None) -> Iterator[BaseException]:
    while exc is not None:
        yield exc
        exc = exc.__cause__


def _is_of_library(exc: BaseException) -> bool:
    return isinstance(exc, OSError) or type(exc).__module__.partition(".")[0] in _LIBRARIES


def _problems(lake: Lake) -> Iterator[tuple[str, FileProblem]]:
    tables = list(tables_of(lake))
    for name, place in tables:
        yield from ((name, problem) for problem in log_problems(place))
    files = [(name, place, add) for name, place in tables for add in _live(place)]
    for name, place, add in files:
        if (problem := size_problem(place, add)) is not None and add in _live(place):  # not replaced meanwhile
            yield name, problem
    read_bytes = 0
    for name, place, add in files:
        read_bytes += int(add["size"])
        if read_bytes > _READ_BYTES:
            return
        yield from ((name, problem) for problem in file_problems(place, add) if add in _live(place))


def _live(place: Place) -> list[Add]:
    try:
        return list(live_files(place, list_newest(place).newest))
    except ValueError:  # foreign table features: only Delta itself can read the log
        return []
