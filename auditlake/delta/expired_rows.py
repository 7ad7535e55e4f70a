"""Remove the rows of an append-only table up to a value of an integer column, beside the process that appends. No JVM.

A file whose rows all go is removed unread. Any other is written again without these rows; since neighbouring commits
share a file, that is one file in most runs. The commit is of the kind that the writer of the table goes on after
(`delta.erasing`), and changes no data for streaming readers. Readers that opened an older version can read its files
for `checkpoints.KEPT_FOR_S`; then a later run deletes them, or the writer.
"""

import time
from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.parquet as pq

from auditlake.delta.checkpoints import KEPT_FOR_S
from auditlake.delta.data_files import DataFile, require_same_bytes, write_batches
from auditlake.delta.erasing import put_erasure
from auditlake.delta.expired_files import expired_files
from auditlake.delta.log_reader import file_path, list_newest
from auditlake.delta.log_writer import Action, moved, removed
from auditlake.delta.row_groups import read_kept
from auditlake.delta.sql import TableFiles, read_log_at
from auditlake.failpoints import After, reach
from auditlake.store.attempts import attempts
from auditlake.store.files import parquet, remove_files
from auditlake.store.place import Place

_ATTEMPTS = 50


@dataclass(frozen=True, slots=True)
class ExpiredRows:
    """The rows of a table whose value in `column` is at most `upto`: all of the files `whole`, some of `partly`."""

    table: TableFiles
    column: str
    upto: int
    whole: tuple[DataFile, ...]
    partly: tuple[DataFile, ...]

    @property
    def rows(self) -> int:
        """Return the number of rows; files that keep some are read in one column."""
        return sum(file.rows for file in self.whole) + sum(map(self._rows_of, self.partly))

    @property
    def freed_bytes(self) -> int:
        """Return the size of the files that are removed."""
        return sum(file.size_bytes for file in self.whole)

    def _rows_of(self, file: DataFile) -> int:
        values = pq.ParquetFile(parquet(file_path(self.table.place, file.add))).read([self.column])[self.column]
        return int(pc.sum(pc.less_equal(values, self.upto)).as_py() or 0)

    def actions(self) -> list[Action]:
        """Write what stays of the files into new ones, and return the actions that replace them.

        Raises LakeUnusable if one of them is damaged.
        """
        require_same_bytes(self.table.place, [file.add for file in self.partly])
        found = [removed(file.add) for file in self.whole]
        for file in self.partly:
            path, gone = file_path(self.table.place, file.add), file.deleted_positions(self.table.place)
            batches = read_kept(path, gone)
            kept = (each.filter(pc.greater(each[self.column], self.upto)) for each in batches)
            found += [removed(file.add), *write_batches(self.table.place, kept, None, {})]
        return found


def find_expired(table: TableFiles, column: str, upto: int) -> ExpiredRows:
    """Find the rows up to a value, by the statistics in the log."""
    whole, partly = list[DataFile](), list[DataFile]()
    for file in table.files:
        least, greatest = file.bounds(column) or (upto, upto + 1)
        if greatest <= upto and file.is_counted:
            whole.append(file)
        elif least <= upto:
            partly.append(file)
    return ExpiredRows(table, column, upto, tuple(whole), tuple(partly))


def remove_rows(place: Place, column: str, upto: int, app: str, erased: str) -> None:
    """Remove the rows up to a value, and set the application transaction `app` to it, in one commit.

    The commit repeats the position `erased` unchanged, as the table's writer does before it deletes files that are in
    no commit (`AppendLog.discard_uncommitted`): after such a commit, this is planned again, with new files. Files that
    no version has had for long are deleted at the end.

    Raises LakeUnusable if a file is damaged, LakeConflict if other processes replace its files again and again.
    """
    for _ in attempts(_ATTEMPTS, str(place), "Run this again."):
        version = list_newest(place).newest
        log = read_log_at(place, version)
        positions = {name: at for name, at in log.transactions.items() if name == erased} | {app: upto}
        actions = [*find_expired(log, column, upto).actions(), *moved(positions)]
        reach(After.EXPIRY_WRITTEN)
        if put_erasure(place, version + 1, actions) is not None:
            reach(After.EXPIRED)
            # A writer that was suspended with a file this old planned an earlier version, and has to write it again.
            remove_files(expired_files(place, time.time() - KEPT_FOR_S))
            return
        remove_files([place / str(action["add"]["path"]) for action in actions if "add" in action])
