"""Keep a history cheap to merge into and to ask: join small files, lay closed history in order, expire what is gone.

Rows and positions stay as they are, so it may be killed anywhere, and run beside readers and apply: Delta lets the
commit that joins files and the commit that merges win over each other, never mix.

- The open partition gets a small file or two with every batch, and marks on rows that ended. Both cost every question
  and every batch, so they are joined when enough of them have gathered.
- Closed history comes in the order in which versions ended. A question as of L needs the versions that began by then
  and ended later, so it is laid in the order in which they began: files that began after L are left out. A month is
  laid in order again when what came unordered is half of what is in order, so every row is rewritten a few times only.
  Until then its small files are joined, like with like, for the same reason.
- Files that no version has held for hours (`history.KEPT_FOR`), and the log of those versions, are deleted. A question
  pins its version, and is answered within that time.

Authority: docs.delta.io, "Optimizations", "Table utility commands"
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from delta.tables import DeltaOptimizeBuilder
from delta.tables import DeltaTable as SparkDeltaTable
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from auditlake.failpoints import After, reach
from auditlake.lake.conflicts import COMMIT_CONFLICTS
from auditlake.lake.files import DataFile
from auditlake.lake.history import OPEN_PART, HistoryTable
from auditlake.lake.join import HELD_BYTES, join
from auditlake.lake.order import AGES, delete_abandoned, has_bounds, lay_in_order
from auditlake.lake.scan import File, Files, find_files

_SMALL_BYTES = 8 << 20
_OPEN_FILE_BYTES = 128 << 20
_CLOSED_FILE_BYTES = 32 << 20
_GATHERED_FILES = 16
"""A MERGE of a thousand rows takes about a tenth longer for so many small files more."""
_LATE_FILES = 4
_GONE = 0.1
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKSUM = re.compile(r"\.?(\d{20})\..*crc")
_OPTIMIZE = "spark.databricks.delta.optimize"
_SETTINGS = {
    f"{_OPTIMIZE}.minFileSize": str(_SMALL_BYTES),
    f"{_OPTIMIZE}.maxDeletedRowsRatio": f"{_GONE}",
    # Else a file holds the right rows in any order, and its pages cannot be skipped.
    "spark.databricks.io.skipping.mdc.sortWithinFiles": "true",
}


@dataclass(frozen=True, slots=True)
class Due:
    """What is worth its time now: joining the open partition, laying closed months in order, joining files of them.

    `closed_files` are months with the names of those of their files that are to be one.
    """

    open_part: bool
    closed_parts: tuple[str, ...] = ()
    closed_files: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __bool__(self) -> bool:
        return self.open_part or bool(self.closed_parts or self.closed_files)


def find_due(files: Iterable[DataFile], *, everything: bool = False) -> Due:
    """Decide by number and size of the files; `everything`: whatever a rewrite would change at all."""
    parts = defaultdict(list)
    for file in files:
        parts[file.part].append(file)
    gathered = 2 if everything else _GATHERED_FILES
    open_part = len(_small(parts.pop(OPEN_PART, []))) >= gathered
    last = max(parts, default="")
    loose = {part: _loose(held) for part, held in sorted(parts.items())}
    closed = [
        part
        for part, held in sorted(parts.items())
        if _unordered(held, loose[part], gathered, complete=everything or part < last)
    ]
    rest = {part: _small(files) for part, files in loose.items() if part not in closed}
    alike = {part: _alike(small, everything=everything) for part, small in rest.items() if len(small) >= gathered}
    names = tuple((part, tuple(file.name for file in files)) for part, files in alike.items() if len(files) > 1)
    return Due(open_part, tuple(closed), names)


def _alike(files: list[DataFile], *, everything: bool) -> list[DataFile]:
    """The smallest, as long as the next is not much larger than all before: so no row is rewritten for every few."""
    taken: list[DataFile] = []
    for file in sorted(files, key=lambda file: file.size_bytes):
        much = len(taken) > 1 and file.size_bytes > 2 * _size(taken)
        if (much and not everything) or _size([*taken, file]) > HELD_BYTES:
            break
        taken.append(file)
    return taken


def _small(files: Iterable[DataFile]) -> list[DataFile]:
    return [file for file in files if file.size_bytes < _SMALL_BYTES]


def _unordered(files: list[DataFile], loose: list[DataFile], gathered: int, *, complete: bool) -> bool:
    """Whether enough came since the part was laid in order, which makes files beside each other, or one.

    To a `complete` part little will come, so there is nothing to wait for.
    """
    wait_for = min(gathered, _LATE_FILES) if complete else gathered
    enough = len(loose) >= wait_for or (complete and len(loose) > len(_small(loose)))
    return enough and 3 * _size(loose) >= _size(files)


def _loose(files: list[DataFile]) -> list[DataFile]:
    """Files among which others lie, the smaller of two, and small ones; a large part may have a few, for its ages."""
    in_one = _size(files) <= HELD_BYTES
    beside: list[DataFile] = []
    loose: list[DataFile] = []
    for file in sorted(files, key=lambda file: file.size_bytes, reverse=True):
        alone = file.size_bytes < _SMALL_BYTES and (in_one or file.least_from is None)
        (loose if alone or any(file.overlaps(other) for other in beside) else beside).append(file)
    small = _small(beside)
    return [*loose, *(small if len(small) > 2 * AGES else [])]


def _size(files: Iterable[DataFile]) -> int:
    return sum(file.size_bytes for file in files)


def rewrite(spark: SparkSession, table: HistoryTable, due: Due) -> bool:
    """Do what is due; False where another commit was faster, which leaves it due.

    `spark` must be used by no other thread meanwhile.
    """
    files = find_files(table)
    done = True
    try:
        if due.open_part:
            done = _join_open(spark, table, files)
        for part in due.closed_parts:
            done = _order_closed(spark, table, part, files) and done
        for part, names in due.closed_files:
            done = _join_closed(spark, table, part, files and files.named(names)) and done
    except COMMIT_CONFLICTS:
        return False
    reach(After.FILES_JOINED)
    return done


def _join_open(spark: SparkSession, table: HistoryTable, files: Files | None) -> bool:
    loose = files and files.of_part(OPEN_PART).which(_is_loose)
    if loose and 0 < loose.size_bytes <= HELD_BYTES:
        return join(loose)
    _builder(spark, table, OPEN_PART, _OPEN_FILE_BYTES).executeCompaction()
    return True


def _order_closed(spark: SparkSession, table: HistoryTable, part: str, files: Files | None) -> bool:
    held = files and files.of_part(part)
    if held and held.size_bytes <= HELD_BYTES:
        return join(held)
    if held and has_bounds(held):
        return lay_in_order(spark, held)
    _builder(spark, table, part, _CLOSED_FILE_BYTES).executeZOrderBy("_from_lsn")
    return True


def _join_closed(spark: SparkSession, table: HistoryTable, part: str, files: Files | None) -> bool:
    if files is None:
        _builder(spark, table, part, _CLOSED_FILE_BYTES).executeCompaction()
        return True
    return join(files)


def _is_loose(file: File) -> bool:
    """Whether it is small, or much of it is gone."""
    return file.size_bytes < _SMALL_BYTES or file.gone_rows > _GONE * file.rows


def _builder(spark: SparkSession, table: HistoryTable, part: str, file_bytes: int) -> DeltaOptimizeBuilder:
    for name, value in {**_SETTINGS, f"{_OPTIMIZE}.maxFileSize": str(file_bytes)}.items():
        spark.conf.set(name, value)
    return SparkDeltaTable.forPath(spark, str(table.path)).optimize().where(f"_part = '{part}'")


def checkpoint(table: HistoryTable) -> None:
    """Write a checkpoint, and delete the log before one that no reader can need any more."""
    delta = DeltaTable(table.path)
    delta.create_checkpoint()
    delta.cleanup_metadata()
    _delete_checksums(table.path / "_delta_log")


def expire(spark: SparkSession, table: HistoryTable) -> None:
    """Delete the files that no version has held for the retention of the table, and what killed writers left."""
    SparkDeltaTable.forPath(spark, str(table.path)).vacuum()
    delete_abandoned(table)


def _delete_checksums(log: Path) -> None:
    """Delete the checksums of versions that are gone from the log: deltalake leaves them, as it does not know them."""
    names = [path.name for path in log.iterdir()]
    kept = [int(found[1]) for name in names if (found := _COMMIT.fullmatch(name))]
    for name in names:
        if (found := _CHECKSUM.fullmatch(name)) and kept and int(found[1]) < min(kept):
            (log / name).unlink(missing_ok=True)
