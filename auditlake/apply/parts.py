"""Parts of a tail: one above HELD_BYTES is folded part by part, in bounded memory, for one commit.

The rules of the fold (`fold.net`) are about one key at a time. So a part is any set of changes that has all effects of
each of its keys:

    inserts only     some of the files, because no key has two effects
    with a key       the changes of the keys with one hash, if no UPDATE moves a row from part to part
    without a key    the effects on the rows with one hash, as each row is a key: an UPDATE of a row to another one may
                     be in two parts, and each folds its half (`row_condition`)

To divide by a hash, the changes are copied once, into files in this process's folder; they are decoded twice, however
many parts there are. The hash is one of texts. Equal keys must have the same, so it leaves out columns that are
not compared by their texts, and those that some UPDATE omits as unchanged TOAST.

Everything else that is too large is left to Spark: a TRUNCATE, which ends all open versions, and rows that move.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING

from auditlake.apply.tails import FOLDED_OPS_SQL, Tail
from auditlake.apply.windows import WINDOW_BYTES, held_within
from auditlake.delta.row_groups import held_bytes
from auditlake.delta.sql import open_duckdb, parquet_files
from auditlake.fold.in_duckdb import EQUAL_OTHERWISE
from auditlake.fold.open_versions import TooLarge
from auditlake.lake.history import type_of
from auditlake.lake.history_files import Files
from auditlake.sql_names import standard_literal
from auditlake.store.place import Place
from auditlake.store.process_folder import process_folder

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

HELD_BYTES = WINDOW_BYTES
"""Limit for the uncompressed size of changes that are folded at once."""
PART_BYTES = 64 << 20
"""Mean size of the parts by a hash: some are larger."""
_ONE_AT_A_TIME = Lock()
"""Apply folds two tails at once, and two that are divided would need twice the memory."""
_COPY_BYTES = 384 << 20
_WRITTEN_ROWS = 1 << 14
_CHANGES = """
select lsn, ordinal, xid, time, op, relation, "old", "new", "unchanged" from {files}
where lsn > {after} and lsn <= {upto} and relation in ({relations}) and op in ({ops})
"""
_DIVIDED = """
copy (select *, unnest(list_distinct([{before}, {after}])) as part from ({changes}))
to {folder} (format parquet, partition_by (part))
"""
_MOVES = "select count(*) from ({changes}) where {before} <> {after}"


@dataclass(frozen=True, slots=True)
class Part:
    """Files with changes of a tail; `row_condition` is one on the rows of a table without a key, as lists `texts`."""

    paths: Sequence[Place]
    row_condition: str = "true"

    def changes(self, connection: "DuckDBPyConnection", tail: Tail) -> str:
        """Return a query of the changes."""
        return _CHANGES.format(
            files=parquet_files(connection, self.paths, by_name=False),
            after=f"{tail.table.position:d}",
            upto=f"{tail.upto:d}",
            relations=", ".join(map(str, sorted(tail.relations))),
            ops=FOLDED_OPS_SQL,
        )


def divide(tail: Tail, opened: Files, kept: ExitStack) -> Sequence[Part]:
    """Divide a tail into parts that fit into memory; most tails are one.

    `opened` are the files of the versions open before it. Files of the parts exist until `kept` is closed.

    Raises TooLarge if the tail cannot be divided; errors of DuckDB.
    """
    whole, size_bytes = Part([file.path for file in tail.files]), tail.held_bytes
    if size_bytes <= HELD_BYTES:
        return [whole]
    kept.enter_context(_ONE_AT_A_TIME)
    if tail.inserts_only:
        return list(_by_file(tail))
    needed_bytes = max(size_bytes, _held_by_ended(tail, opened))
    hashed = _Hash(tail, math.ceil(needed_bytes / PART_BYTES))
    with closing(open_duckdb(_COPY_BYTES)) as connection:
        changes = whole.changes(connection, tail)
        hashed.require_divisible(connection, changes)
        folder = kept.enter_context(TemporaryDirectory(dir=process_folder(), prefix="parts-"))
        return hashed.copy(connection, changes, Path(folder))


def _by_file(tail: Tail) -> Iterator[Part]:
    """Divide the files of a tail of inserts; one file that is larger is a part of its own."""
    paths, total_bytes = list[Place](), 0
    for file in tail.files:
        size_bytes = held_within(file, tail.table.position, tail.upto)
        if paths and total_bytes + size_bytes > HELD_BYTES:
            yield Part(paths)
            paths, total_bytes = [], 0
        paths, total_bytes = [*paths, file.path], total_bytes + size_bytes
    yield Part(paths)


def _held_by_ended(tail: Tail, opened: Files) -> int:
    """Estimate the size of the open versions that a tail ends, if each change ends one."""
    rows = tail.shape.rows if tail.shape else 0
    return held_bytes(opened.paths) * rows // opened.rows if opened.rows else 0


class _Hash:
    """The division of a tail into `count` parts by a hash of keys, or of rows."""

    def __init__(self, tail: Tail, count: int) -> None:
        self._tail, self._count = tail, count
        self._has_key = any(column.key for column in tail.columns)
        omitted = tail.shape.unchanged if tail.shape else frozenset()
        self._places = [
            place
            for place, column in enumerate(tail.columns)
            if place not in omitted
            if not self._has_key or (column.key and type_of(column).kind not in EQUAL_OTHERWISE)
        ]

    def require_divisible(self, connection: "DuckDBPyConnection", changes: str) -> None:
        """Raise TooLarge unless every change has all effects of its keys in its parts."""
        shape = self._tail.shape
        if not self._places or shape is None or shape.has_truncate:
            raise TooLarge
        if self._has_key and shape.has_key_change:
            moves = _MOVES.format(changes=changes, before=self._part_before, after=self._part_after)
            if connection.execute(moves).fetchone() != (0,):
                raise TooLarge

    def copy(self, connection: "DuckDBPyConnection", changes: str, folder: Path) -> Sequence[Part]:
        """Copy the changes into files by part."""
        connection.execute(f"set partitioned_write_flush_threshold = {_WRITTEN_ROWS}")
        connection.execute(
            _DIVIDED.format(
                changes=changes,
                before=self._part_before,
                after=self._part_after,
                folder=standard_literal(str(folder)),
            )
        )
        return [
            Part(sorted(each.iterdir()), self._row_condition(each.name.removeprefix("part=")))
            for each in sorted(folder.iterdir())
        ]

    def _row_condition(self, part: str) -> str:
        return "true" if self._has_key else f"{self._of('texts', self._places)} = {part}"

    @property
    def _part_before(self) -> str:
        return self._of_change('coalesce("old", "new")')

    @property
    def _part_after(self) -> str:
        return self._of_change('coalesce("new", "old")')

    def _of_change(self, row: str) -> str:
        cases = " ".join(
            f"when {number} then {self._of(row, [layout.places[place] for place in self._places])}"
            for number, layout in self._tail.followed.layouts.items()
        )
        return f"case relation {cases} else error('a change has no known shape') end"

    def _of(self, row: str, places: Sequence[int | None]) -> str:
        texts = ", ".join("null" if place is None else f"({row})[{place + 1}]" for place in places)
        return f"(hash([{texts}]::varchar[]) % {self._count})::int"
