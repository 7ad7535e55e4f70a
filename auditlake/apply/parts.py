"""Parts of a tail: one above HELD_BYTES is folded part by part, in bounded memory, for one commit.

The rules of the fold (`fold.net`) are about one key at a time. So a part is any set of changes that has all effects of
each of its keys:

    inserts only     some of the files, because no key has two effects
    with a key       the changes of the keys with one hash, if no UPDATE moves a row from part to part
    without a key    the effects on the rows with one hash, as each row is a key: an UPDATE of a row to another one may
                     be in two parts, and each folds its half (`row_condition`)
    TRUNCATE first   then only inserts: the open versions of some files, or of keys with one hash, all of which end;
                     after them some of the files, as above

To divide by a hash, the changes are copied once, into files in this process's folder; they are decoded twice, however
many parts there are. The hash is one of texts. Equal keys must have the same, so it leaves out columns that are
not compared by their texts, and those that some UPDATE omits as unchanged TOAST.

Everything else that is too large is left to Spark: rows that move to other keys, keys with most of the changes, and
TRUNCATE among other changes.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from auditlake.apply.deletion_vector_writer import HELD_BYTES
from auditlake.apply.tails import FOLDED_OPS_SQL, Tail, TailShape
from auditlake.apply.windows import held_within
from auditlake.delta.log_reader import file_path
from auditlake.delta.row_groups import OFFSET_BYTES, ROW_BYTES, held_bytes
from auditlake.delta.sql import open_duckdb, parquet_files
from auditlake.fold.in_duckdb import EQUAL_OTHERWISE
from auditlake.fold.open_versions import BEGIN, TooLarge, key_of
from auditlake.lake.duckdb_rows import quoted
from auditlake.lake.history import type_of
from auditlake.lake.history_files import Files
from auditlake.schema.evolution import Followed
from auditlake.sql_names import standard_literal
from auditlake.store.place import Place
from auditlake.store.process_folder import process_folder

if TYPE_CHECKING:  # it takes a tenth of a second to import
    from duckdb import DuckDBPyConnection

PART_BYTES = 64 << 20
"""Mean size of the parts by a hash."""
_LARGEST_BYTES = HELD_BYTES
"""Limit of each of them: the changes of one key are never divided."""
_ONE_AT_A_TIME = Lock()
"""Apply folds two tails at once, and two that are divided would need twice the memory."""
_Item = TypeVar("_Item")
_COPY_BYTES = 256 << 20
_GROUP_ROWS, _WRITTEN_ROWS = 1 << 13, 1 << 14
"""Rows of a row group, and that are held before they are written: each file has a row group in memory."""
_CHANGES = """
select lsn, ordinal, xid, time, op, relation, "old", "new", "unchanged" from {files}
where lsn > {after} and lsn <= {upto} and relation in ({relations}) and op in ({ops})
"""
_DIVIDED = """
copy (select *, unnest(list_distinct([{before}, {after}])) as part from ({changes}))
to {folder} (format parquet, partition_by (part), row_group_size {group_rows})
"""
_OWN_BYTES = "select count(*) * {row_bytes} + coalesce(sum({lengths}), 0)::bigint from ({changes})"
_LENGTH = "coalesce(strlen(array_to_string({row}, '')) + {offset_bytes} * len({row}), 0)"
_RELOADS = """
select bool_and(op in ('truncate', 'insert')) and coalesce(
  max((lsn, ordinal)) filter (op = 'truncate') < min((lsn, ordinal)) filter (op = 'insert'), true
) from ({changes})
"""
_MOVES = "select count(*) from ({changes}) where {before} <> {after}"


@dataclass(frozen=True, slots=True)
class TailPart:
    """Changes of a tail: those in some files, of the operations `ops`; `opened` has the open versions they may end.

    `condition` and `row_condition` are as in `ToFold`; one in `of` open versions fulfils the first. `inserts_only`: no
    open version ends.
    """

    paths: Sequence[Place]
    opened: Files
    ops: str = FOLDED_OPS_SQL
    condition: str = "true"
    of: int = 1
    row_condition: str = "true"
    inserts_only: bool = False

    def changes(self, connection: "DuckDBPyConnection", tail: Tail) -> str:
        """Return a query of the changes."""
        return _CHANGES.format(
            files=parquet_files(connection, self.paths, by_name=False),
            after=f"{tail.table.position:d}",
            upto=f"{tail.upto:d}",
            relations=", ".join(map(str, sorted(tail.relations))),
            ops=self.ops,
        )


def divide_tail(tail: Tail, opened: Files, kept: ExitStack) -> Sequence[TailPart]:
    """Divide a tail with changes into parts that fit into memory; most tails are one.

    `opened` are the files of the versions open before it. Files of the parts exist until `kept` is closed.

    Raises TooLarge if the tail cannot be divided; errors of DuckDB.
    """
    shape, size_bytes = tail.shape, tail.held_bytes
    assert shape is not None  # noqa: S101 - it has changes
    whole = TailPart([file.path for file in tail.files], opened, inserts_only=shape.inserts_only)
    opened_bytes = held_bytes(opened.paths) if shape.has_truncate else 0
    if max(size_bytes, opened_bytes) <= HELD_BYTES:
        return [whole]
    kept.enter_context(_ONE_AT_A_TIME)
    if shape.inserts_only:
        return list(_inserts(tail, opened))
    folder = Path(kept.enter_context(TemporaryDirectory(dir=process_folder(), prefix="parts-")))
    with closing(open_duckdb(_COPY_BYTES, folder / "spilled")) as connection:
        changes = whole.changes(connection, tail)
        size_bytes = _own_bytes(connection, changes)
        if max(size_bytes, opened_bytes) <= HELD_BYTES:
            return [whole]
        if shape.has_truncate:
            if connection.execute(_RELOADS.format(changes=changes)).fetchone() != (True,):
                raise TooLarge
            return [*_ended(tail, whole), *_inserts(tail, opened)]
        size_bytes = max(size_bytes, _held_by_ended(shape.rows, opened))
        hashed = _Hash(whole, tail.followed, shape, math.ceil(size_bytes / PART_BYTES))
        hashed.require_divisible(connection, changes)
        return hashed.copy(connection, changes, folder / "parts")


def _own_bytes(connection: "DuckDBPyConnection", changes: str) -> int:
    """Return the size in memory of a tail's changes, without those of other tables in the same files."""
    lengths = " + ".join(_LENGTH.format(row=row, offset_bytes=OFFSET_BYTES) for row in ('"old"', '"new"'))
    found = connection.execute(_OWN_BYTES.format(row_bytes=ROW_BYTES, lengths=lengths, changes=changes)).fetchone()
    assert found is not None  # noqa: S101 - an aggregate
    return int(found[0])


def _inserts(tail: Tail, opened: Files) -> Iterator[TailPart]:
    """Divide the inserts of a tail by files."""
    for files, _ in _grouped(tail.files, lambda file: held_within(file, tail.table.position, tail.upto)):
        yield TailPart([file.path for file in files], opened, ops="'insert'", inserts_only=True)


def _ended(tail: Tail, whole: TailPart) -> Iterator[TailPart]:
    """Divide the open versions that TRUNCATE ends: by files, and a large file by a hash of the keys, or of places."""
    opened, key = whole.opened, ", ".join(quoted(column) for column in key_of(tail.columns)) or ", ".join(BEGIN)
    path = opened.table.path
    for files, size_bytes in _grouped(opened.by_name.values(), lambda file: held_bytes([file_path(path, file.add)])):
        count = 1 if size_bytes <= HELD_BYTES else math.ceil(size_bytes / PART_BYTES)
        part = replace(whole, opened=opened.named({file.name for file in files}), ops="'truncate'", of=count)
        for number in range(count):
            yield replace(part, condition=f"hash({key}) % {count} = {number}")


def _grouped(items: Iterable[_Item], size_of: Callable[[_Item], int]) -> Iterator[tuple[list[_Item], int]]:
    """Join items up to HELD_BYTES, with their size; one that is larger stays alone."""
    group, total_bytes = list[_Item](), 0
    for item in items:
        size_bytes = size_of(item)
        if group and total_bytes + size_bytes > HELD_BYTES:
            yield group, total_bytes
            group, total_bytes = [], 0
        group, total_bytes = [*group, item], total_bytes + size_bytes
    if group:
        yield group, total_bytes


def _held_by_ended(rows: int, opened: Files) -> int:
    """Estimate the size of the open versions that a number of changes ends, if each ends one."""
    return held_bytes(opened.paths) * rows // opened.rows if opened.rows else 0


class _Hash:
    """The division of a tail into `count` parts by a hash of keys, or of rows."""

    def __init__(self, whole: TailPart, followed: Followed, shape: TailShape, count: int) -> None:
        self._whole, self._layouts, self._count = whole, followed.layouts, count
        self._has_key = any(column.key for column in followed.folded)
        self._may_move = self._has_key and shape.has_key_change
        self._places = [
            place
            for place, column in enumerate(followed.folded)
            if place not in shape.unchanged
            if not self._has_key or (column.key and type_of(column).kind not in EQUAL_OTHERWISE)
        ]

    def require_divisible(self, connection: "DuckDBPyConnection", changes: str) -> None:
        """Raise TooLarge unless every change has all effects of its keys in its parts."""
        if not self._places:
            raise TooLarge
        if self._may_move:
            moves = _MOVES.format(changes=changes, before=self._part_before, after=self._part_after)
            if connection.execute(moves).fetchone() != (0,):
                raise TooLarge

    def copy(self, connection: "DuckDBPyConnection", changes: str, folder: Path) -> Sequence[TailPart]:
        """Copy the changes into files by part; raises TooLarge if a part is."""
        connection.execute(f"set partitioned_write_flush_threshold = {_WRITTEN_ROWS}")
        connection.execute(
            _DIVIDED.format(
                changes=changes,
                before=self._part_before,
                after=self._part_after,
                folder=standard_literal(str(folder)),
                group_rows=_GROUP_ROWS,
            )
        )
        parts = [self._part(each) for each in sorted(folder.iterdir())]
        if max(held_bytes(part.paths) for part in parts) > _LARGEST_BYTES:
            raise TooLarge
        return parts

    def _part(self, folder: Path) -> TailPart:
        part, number = replace(self._whole, paths=sorted(folder.iterdir())), folder.name.removeprefix("part=")
        return part if self._has_key else replace(part, row_condition=f"{self._of('texts', self._places)} = {number}")

    @property
    def _part_before(self) -> str:
        return self._of_change('coalesce("old", "new")')

    @property
    def _part_after(self) -> str:
        return self._of_change('coalesce("new", "old")')

    def _of_change(self, row: str) -> str:
        cases = " ".join(
            f"when {number} then {self._of(row, [layout.places[place] for place in self._places])}"
            for number, layout in self._layouts.items()
        )
        return f"case relation {cases} else error('a change has no known shape') end"

    def _of(self, row: str, places: Sequence[int | None]) -> str:
        texts = ", ".join("null" if place is None else f"({row})[{place + 1}]" for place in places)
        return f"(hash([{texts}]::varchar[]) % {self._count})::int"
