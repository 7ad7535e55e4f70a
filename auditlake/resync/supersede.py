"""Supersede one table's open versions by a new snapshot, in one Delta commit that also moves the position.

Order of effects, for a table that is held (`hold`) and whose snapshot at S is copied:
  1. Fold its changes up to the last certain LSN: from there on, the snapshot decides.
  2. Compare the snapshot with the open versions (`comparison`).
  3. Write and fsync the data files and deletion vectors. Without a log entry they are orphans.
  4. Record the gap. Before the commit of 5, questions after the last certain LSN are refused because the table is held.
  5. Commit: versions that end with `_end_op = resync`, versions that begin at S with `_op = snapshot`, position and
     `auditlake/resync` := S. This commit ends the hold, and every earlier reason for which the table was parked.
After a kill, the next run takes another snapshot and begins again with 1; a gap that was recorded is part of its own.

The commit takes the version after the one that was compared. If another commit was first (a fold, a compaction), the
table is compared again. Equal rows are not touched, and closed versions are never rewritten.

The gap of a table whose stream is complete, because only the lake was damaged, begins before the versions that were
wrong. It is the whole history if rows were missing: nothing shows since when.

Data files that are missing or unreadable are removed from the log. Their open versions are replaced by rows of the
snapshot. Their closed versions cannot be restored, so the gap begins before them. A legal hold on rows of the table
forbids that.
"""

import shlex
import threading
from contextlib import suppress
from dataclasses import dataclass, replace

from auditlake.apply.apply import StartSpark, fold_held
from auditlake.delta.commit_failures import writing
from auditlake.delta.data_files import DataFile, file_problems
from auditlake.delta.log_writer import Action, moved, removed
from auditlake.engine import Engine
from auditlake.erasure.holding import require_not_held
from auditlake.errors import LakeConflict, LakeUnusable, SourceUnready, Unsupported
from auditlake.failpoints import After, reach
from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.history import (
    OPEN_PART,
    HistoryTable,
    add_name,
    closed_part,
    commit_as_read,
    open_history,
    with_columns,
    write_rows,
)
from auditlake.lake.history_files import Files, find_files, is_open, marked
from auditlake.lake.layout import HISTORY_APP, RESYNC_APP, Lake
from auditlake.lake.parking import Parked
from auditlake.lake.relations import read_versions
from auditlake.lake.stage_lock import Stage
from auditlake.lake.stage_lock import hold as take_lock
from auditlake.lsn import Lsn
from auditlake.relation import Column, Relation, TableName
from auditlake.resync.comparison import Difference, comparing
from auditlake.resync.hold import Hold
from auditlake.schema.evolution import reshaped
from auditlake.snapshot.ctid_ranges import CopiedFile, SnapshotMark
from auditlake.store.attempts import attempts
from auditlake.store.files import make_folder
from auditlake.store.place import Place

_ATTEMPTS = 10
_PAUSE_S = 0.1
_DIFFERED = "the history differed from the source"
_FILES_LOST = "data files of the history were damaged"


@dataclass(frozen=True, slots=True)
class Copied:
    """A new snapshot of a history's table: its relation, its files in `folder`, and the columns that they have."""

    name: TableName
    relation: Relation
    folder: Place
    columns: tuple[Column, ...]
    files: tuple[CopiedFile, ...]
    mark: SnapshotMark

    @property
    def paths(self) -> list[Place]:
        return [self.folder / file.path for file in self.files if file.rows]


@dataclass(frozen=True, slots=True)
class Resynced:
    """A table at its new snapshot: how many versions ended and began, and how many were removed with damaged files."""

    name: TableName
    lsn: Lsn
    closed: int
    begun: int
    removed: int
    lost_files: int
    gap: Gap | None

    def __str__(self) -> str:
        parts = [f"{self.closed:,} versions ended", f"{self.begun:,} began"]
        parts += [f"{self.removed:,} contradicting versions removed"] if self.removed else []
        parts += [f"{self.lost_files} damaged files removed"] if self.lost_files else []
        missing = f"; changes between {self.gap.lsn_from} and {self.gap.lsn_to} are missing" if self.gap else ""
        return f"{self.name} is at its new snapshot {self.lsn}: {', '.join(parts)}{missing}"


def supersede(  # noqa: PLR0913 - what a new snapshot needs
    start_spark: StartSpark,
    lake: Lake,
    hold: Hold,
    copied: Copied,
    engine: Engine = Engine.AUTO,
    *,
    is_asked: bool = True,
    stop: threading.Event | None = None,
) -> Resynced:
    """Bring a table's history to the state of a new snapshot; damaged files leave it if a person has asked for that.

    Raises:
        LakeUnusable: if files are damaged and `is_asked` is false.
        ConfigError: if files are damaged and rows of the table are held.
        Unsupported: if the history has foreign table features.
        LakeConflict: if other processes commit again and again, or one has brought the history further.
        Cancelled: if `stop` is set while Spark folds.
    """
    with writing(f"the history of {copied.name}"):
        hint = "Stop the other writer (auditlake maintain, for example), then run auditlake resync again."
        for _ in attempts(_ATTEMPTS, f"the history of {copied.name}", hint, pause_s=_PAUSE_S):
            doubt = hold.first_doubt(lake, copied.mark.lsn)
            upto = copied.mark.lsn if doubt is None else doubt.lsn
            doubt = fold_held(start_spark, lake, hold.table, upto, engine, stop) or doubt
            with suppress(FileExistsError):
                return _supersede(lake, doubt, _files(lake, copied.name), copied, is_asked=is_asked)
    raise AssertionError  # `attempts` ends with an error


def _files(lake: Lake, name: TableName) -> Files:
    table = open_history(lake, name)
    if table is None:
        raise LakeUnusable(f"the history of {name} is gone", "Run auditlake bootstrap: it copies the table anew.")
    files = find_files(table)
    if files is None:
        raise Unsupported(
            f"the history of {name} has table features of another program",
            "resync writes only to histories as auditlake created them.",
        )
    return files


def _supersede(lake: Lake, doubt: Parked | None, files: Files, copied: Copied, *, is_asked: bool) -> Resynced:
    lost = files.which(lambda file: any(file_problems(files.table.path, file.add)))
    if not lost.by_name:
        return _replace(lake, doubt, files, lost, copied)
    if not is_asked:
        raise _damaged(lost)
    with take_lock(lake, "resync", Stage.ERASE):
        require_not_held(lake, files.table, instead=f"Restore its damaged data files, {_these(lost)}. ")
        return _replace(lake, doubt, files, lost, copied)


def _replace(lake: Lake, doubt: Parked | None, files: Files, lost: Files, copied: Copied) -> Resynced:
    """Commit what differs, without the lost files."""
    mark, table = copied.mark, files.table
    _require_reachable(table, mark)
    shape = _shape(table, copied)
    moved_to = _with_oid(table, copied.relation.oid, mark.lsn if doubt is None else doubt.lsn)
    files = Files(replace(table, columns=shape, former_oids=moved_to.former_oids), files.by_name)
    readable = files.which(lambda file: file.name not in lost.by_name)
    names = _names(lake, table, copied)
    is_reshaped = (shape, moved_to, names) != (table.columns, table, table.names)
    reshaping = with_columns(moved_to, shape, names) if is_reshaped else []
    make_folder(copied.folder)
    with comparing(readable, copied.paths, copied.columns, mark, copied.folder) as difference:
        actions = [
            *reshaping,
            *(removed(file.add) for file in lost.by_name.values()),
            *_written(files.table, difference, mark),
            *(marked(readable, difference.ended) if difference.ended else ()),
        ]
    reach(After.DIFFERENCE_WRITTEN)
    gap = _gap(doubt, difference, lost, mark)
    if gap is not None:
        record_gaps(lake, [gap])
        reach(After.GAP)
    commit_as_read(table, "MERGE", [*actions, *moved({HISTORY_APP: mark.lsn, RESYNC_APP: mark.lsn})])
    reach(After.RESYNCED)
    counts = (difference.closed, difference.begun, difference.removed, len(lost.by_name))
    return Resynced(copied.name, mark.lsn, *counts, gap)


def _damaged(lost: Files) -> LakeUnusable:
    """Return the error for files that a new snapshot would remove: their closed versions are nowhere else."""
    name = str(lost.table.name)
    return LakeUnusable(
        f"the history of {name} has damaged data files: {_these(lost)}",
        f"Restore them from a backup, or remove them and their versions: auditlake resync --table {shlex.quote(name)}.",
    )


def _these(files: Files) -> str:
    return f"{len(files.by_name)}, such as {min(files.by_name)}"


def _require_reachable(table: HistoryTable, mark: SnapshotMark) -> None:
    """Require that no other process has brought the history further; raises LakeConflict."""
    if table.position > mark.lsn:
        raise LakeConflict(
            f"the snapshot of {table.name} is of {mark.lsn}, and another process has brought its history to "
            f"{table.position} meanwhile",
            "Only one resync may run on a lake. Run auditlake resync again if the table is to be copied once more.",
        )


def _with_oid(table: HistoryTable, oid: int, known_lsn: Lsn) -> HistoryTable:
    """Return a table that has another OID after the last certain LSN: the lake has another source."""
    if table.oid == oid:
        return table
    return replace(table, oid=oid, former_oids=(*table.former_oids, (known_lsn, table.oid)))


def _names(lake: Lake, table: HistoryTable, copied: Copied) -> tuple[tuple[Lsn, TableName], ...]:
    """Return the later names of a table up to its snapshot, also those of the range whose changes are not folded."""
    names, lsn = list(table.names), copied.mark.lsn
    versions = read_versions(lake).of_oid(copied.relation.oid) if table.oid == copied.relation.oid else []
    since = [(each.lsn, each.relation.name) for each in versions if table.position < each.lsn <= lsn]
    for begin, name in (*since, (lsn, copied.relation.name)):
        add_name(names, table, begin, name)
    return tuple(names)


def _shape(table: HistoryTable, copied: Copied) -> tuple[Column, ...]:
    """Return all physical columns with this snapshot; raises SourceUnready if they changed since it was copied."""
    physical = reshaped(table, copied.relation, copied.mark.lsn)
    live = [column.stored for column in physical if column.exists_at(copied.mark.lsn)]
    if live != [column.stored for column in copied.columns]:
        raise SourceUnready(f"the columns of {copied.name} changed while it was copied", "Run auditlake resync again.")
    return physical


def _written(table: HistoryTable, difference: Difference, mark: SnapshotMark) -> list[Action]:
    """Write the versions that end and those that begin; return the actions that add them."""
    part = closed_part(mark.time_us)
    closed = [write_rows(table, part, rows) for rows in difference.closed_rows()]
    return closed + [write_rows(table, OPEN_PART, rows) for rows in difference.begun_rows()]


def _gap(doubt: Parked | None, difference: Difference, lost: Files, mark: SnapshotMark) -> Gap | None:
    """Return the range in which the table's state is not known; None if the history was right up to the snapshot."""
    name, upto = lost.table.name, mark.lsn
    if doubt is not None and not lost.by_name:
        return Gap(name, doubt.lsn, upto, doubt.reason, doubt.time_us, mark.time_us)
    if not difference and not lost.by_name:
        return None
    since = _wrong_since(lost, difference)
    reason = _FILES_LOST if lost.by_name else _DIFFERED
    return Gap(name, since if doubt is None else min(since, doubt.lsn), upto, reason, None, mark.time_us)


def _wrong_since(lost: Files, difference: Difference) -> Lsn:
    """Return the last LSN before the first version that was wrong."""
    begins = [difference.since] if difference.since is not None else []
    begins += [_first_begin(file, lost.table) for file in lost.by_name.values()]
    held_rows = sum(file.rows for file in lost.by_name.values() if is_open(file) and file.is_counted)
    if difference.unmatched > held_rows:
        begins.append(lost.table.horizon)
    return Lsn(max(0, min(begins, default=lost.table.horizon) - 1))


def _first_begin(file: DataFile, table: HistoryTable) -> Lsn:
    bounds = file.bounds("_from_lsn")
    return table.horizon if bounds is None else Lsn(bounds[0])
