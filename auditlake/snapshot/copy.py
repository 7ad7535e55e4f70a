"""Copy ranges of tables under an exported snapshot, each into one Parquet file. Runs in a worker.

Contract: returns what was written, or raises and leaves at most a file that no commit mentions. Nothing here commits:
a range that Spark copies twice writes two files, and the driver puts only the returned one into the table, with all the
table's other ranges and its position, in one commit (`tables`). Memory is one Arrow batch and one row group,
whatever the range holds.
"""

import os
from collections.abc import Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa

from auditlake.errors import AuditlakeError, LakeUnusable, SourceUnreachable, SourceUnready, Unsupported
from auditlake.postgres.blockers import name_blockers
from auditlake.postgres.connection import connect
from auditlake.snapshot.reading import Reader, ReadFailed, Throttle
from auditlake.snapshot.select import OutOfRange, Selection
from auditlake.snapshot.task import CopiedFile, CopyTask
from auditlake.snapshot.writing import HistoryFile

_LOCK_NOT_AVAILABLE = "55P03"
# Broken connections, and a session that was ended.
_LOST = ("08", "57P")
_AGAIN = "Run auditlake bootstrap again: it goes on from here."


def copy_bundle(tasks: Sequence[CopyTask]) -> list[CopiedFile | AuditlakeError]:
    """Copy ranges of one snapshot through one connection; one that fails does not keep the others from being copied.

    A failure is given back as a value: Spark would wrap it, and try again what cannot succeed.
    """
    with Reader(tasks[0].conninfo, tasks[0].snapshot_id) as reader:
        return [_attempt(task, reader) for task in tasks]


def copy_range(task: CopyTask) -> CopiedFile:
    """Copy one range; values outside their typed column make it start again, guarded.

    Raises SourceUnready or SourceUnreachable, naming the table, where PostgreSQL does not give the rows, LakeUnusable
    where they cannot be written.
    """
    (done,) = copy_bundle([task])
    if isinstance(done, AuditlakeError):
        raise done
    return done


def _attempt(task: CopyTask, reader: Reader) -> CopiedFile | AuditlakeError:
    try:
        return _copied(task, reader)
    except ReadFailed as exc:
        return _refused(task, exc.sqlstate)
    except AuditlakeError as exc:
        return exc
    except OSError as exc:
        reason = os.strerror(exc.errno) if exc.errno else type(exc).__name__
        return LakeUnusable(f"table {task.name} could not be written: {reason}", f"Mend the folder. {_AGAIN}")


def _copied(task: CopyTask, reader: Reader) -> CopiedFile:
    try:
        return _copy(task, reader, Selection(task.columns))
    except OutOfRange:
        return _copy(task, reader, Selection(task.columns, guarded=True))


def _copy(task: CopyTask, reader: Reader, selection: Selection) -> CopiedFile:
    file = HistoryFile(task.folder, task.columns, task.mark)
    query = selection.sql(task.name, task.pages.condition(task.row_filter))
    throttle = Throttle(task.bytes_per_s)
    try:
        with reader.rows(query) as batches, closing(file):
            for batch in batches:
                typed, raw = selection.convert(batch)
                file.write(typed, _ordinals(task, file.rows, len(batch)), raw)
                throttle.take(batch.nbytes)
    except BaseException:
        file.discard()
        raise
    return file.copied(task.name)


def _refused(task: CopyTask, sqlstate: str | None) -> AuditlakeError:
    what = f"table {task.name} could not be copied"
    if sqlstate is None or sqlstate.startswith(_LOST):
        return SourceUnreachable(f"{what}: the connection was lost", _AGAIN, retryable=True)
    if sqlstate == _LOCK_NOT_AVAILABLE:
        with connect(task.conninfo) as control:
            who = name_blockers(control, [task.name]) or "a session that has ended"
        return SourceUnready(f"{what}: its rows could not be read because of {who}", f"End that session. {_AGAIN}")
    return SourceUnready(
        f"{what}: SQLSTATE {sqlstate}",
        f"See the server's log for the statement that failed, or leave the table out with the setting tables. {_AGAIN}",
    )


def _ordinals(task: CopyTask, first_row: int, length: int) -> pa.Array:
    if task.ordinals is None:
        return pa.nulls(length, pa.int32())
    taken = task.ordinals[first_row : first_row + length]
    if len(taken) < length:
        raise Unsupported(
            f"table {task.name} has no key and too many rows to number: more than {len(task.ordinals)} in one range",
            hint="Give it a primary key, or leave it out with the setting tables.",
        )
    return pa.array(taken.start + taken.step * np.arange(length, dtype=np.int32))
