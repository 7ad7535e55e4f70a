"""Data files of a Delta table: their type, statistics and listing, and how new ones are written. No JVM.

`list_files` replays the log (`log_reader`). `list_any_files` also reads logs that the replay does not support, through
deltalake; such a listing has no deletion vectors, so its `add` must not be repeated in a `remove`.

A writer returns the action that adds its file, which is on the disk by then. Its statistics come from the footer: the
number of rows, and for given columns the least and greatest value and the number of NULLs. Use them for integers and
dates only: the log rounds timestamps to milliseconds, and Parquet truncates long texts.

`check_files` compares the files with the log: existence, size, number of rows, bounds (`bounds_check`), and every byte
with the CRC-32 that a writer here records (`log_writer.added_file`); a file of another writer is decoded. So are
deletion vectors, which must mark as many rows as the log records. On a local disk, Spark writes checksums beside its
data files, which are checked, too.

Whoever writes the rows of files anew requires that their bytes are as recorded (`require_same_bytes`): the new file has
a checksum of its own, so nothing would show the damage any more.

Authority: Delta's PROTOCOL.md, "Add File and Remove File", "Per-file Statistics", "Partition Value Serialization"
"""

import json
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from auditlake.delta.bounds_check import wrong_bounds
from auditlake.delta.deletion_vectors import read_vector
from auditlake.delta.log_reader import Add, file_path, live_files, statistics
from auditlake.delta.log_writer import CHECKSUM_TAG, Action, added_file, removed
from auditlake.delta.row_groups import gathered, keys_of_maps, read_batches, short_texts, write_groups
from auditlake.delta.table import open_version
from auditlake.errors import LakeUnusable
from auditlake.store.files import (
    FETCHED_BYTES,
    FETCHED_FILE_BYTES,
    AtOnce,
    crc32,
    crc32_written,
    make_folder,
    move,
    new_file,
    open_file,
    parquet,
    read_file,
    relative_name,
    size_bytes,
)
from auditlake.store.place import Place, by_requests

RESTORE = (
    "auditlake verify --no-source lists all damage. Restore the file from a backup; a history can be mended by resync."
)
"""The remedy for a damaged file of a lake."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of one version: its `add` action, and the statistics of that, parsed."""

    name: str
    add: Add
    stats: Mapping[str, Any]

    @property
    def size_bytes(self) -> int:
        return int(self.add["size"])

    @property
    def is_counted(self) -> bool:
        """Return whether the log has the number of rows."""
        return "numRecords" in self.stats

    @property
    def rows(self) -> int:
        """Return the number of rows, deleted ones included."""
        return int(self.stats["numRecords"])

    @property
    def is_marked(self) -> bool:
        """Return whether a deletion vector marks some of the rows as deleted."""
        return "deletionVector" in self.add

    @property
    def deleted_rows(self) -> int:
        """Return the number of rows that the deletion vector marks."""
        return int(self.add["deletionVector"]["cardinality"]) if self.is_marked else 0

    def bounds(self, column: str) -> tuple[Any, Any] | None:
        """Return the least and greatest value of a column; None if the log has none."""
        least, greatest = (self.stats.get(bound, {}).get(column) for bound in ("minValues", "maxValues"))
        return None if least is None or greatest is None else (least, greatest)

    def deleted_positions(self, table: Place) -> BitMap64:
        """Read the positions, from 0, of the rows that are deleted."""
        return read_vector(table, self.add["deletionVector"]) if self.is_marked else BitMap64()


def list_files(table: Place, version: int, etag: str | None = None) -> list[DataFile]:
    """List the data files of a version; `etag` is that of its entry in a store, if it is known.

    Raises FileNotFoundError if the log has checkpoints of another kind than `log_reader` supports.
    """
    return [data_file(table, add) for add in live_files(table, version, etag)]


def data_file(table: Place, add: Add) -> DataFile:
    """Return the data file of an `add` action."""
    return DataFile(file_path(table, add).name, add, statistics(add))


def fetch_files(table: Place, files: Sequence[DataFile]) -> None:
    """Read small files and deletion vectors in a store at the same time, as far as they are kept in memory."""
    if not by_requests(table) or sum(file.size_bytes for file in files) > FETCHED_BYTES:
        return
    with AtOnce(table) as at_once:
        for file in files:
            if file.size_bytes <= FETCHED_FILE_BYTES:
                at_once.start(file_path(table, file.add).read_bytes)
            if file.is_marked:
                at_once.start(file.deleted_positions, table)


def list_any_files(table: Place, version: int, etag: str | None = None) -> list[DataFile]:
    """List the data files of a version, whatever its checkpoints; without deletion vectors if deltalake had to read."""
    try:
        return list_files(table, version, etag)
    except FileNotFoundError:
        actions = pa.table(open_version(table, version).get_add_actions(flatten=False))
        return [_from_deltalake(table, row) for row in actions.to_pylist()]


def _from_deltalake(table: Place, row: Mapping[str, Any]) -> DataFile:
    add = {
        "path": row["path"],
        "partitionValues": row.get("partition") or {},
        "size": row["size_bytes"],
        "modificationTime": row["modification_time"],
    }
    stats = {"numRecords": row["num_records"], "minValues": row.get("min"), "maxValues": row.get("max")}
    return DataFile(
        file_path(table, add).name, add, {name: value for name, value in stats.items() if value is not None}
    )


def file_statistics(footer: pq.FileMetaData, columns: Iterable[str]) -> dict[str, Any]:
    """Return the statistics of a Parquet file as Delta's log has them.

    A column without bounds in some group of rows that are not all NULL has none in the log either.
    """
    least, greatest, nulls = {}, {}, {}
    for name, chunks in _chunks(footer, columns).items():
        if any(chunk.statistics is None or not chunk.statistics.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.statistics.null_count for chunk in chunks)
        filled = [chunk.statistics for chunk in chunks if chunk.statistics.null_count < chunk.num_values]
        if filled and all(statistics.has_min_max for statistics in filled):
            least[name] = min(statistics.min for statistics in filled)
            greatest[name] = max(statistics.max for statistics in filled)
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _chunks(footer: pq.FileMetaData, columns: Iterable[str]) -> dict[str, list[pq.ColumnChunkMetaData]]:
    """Find the chunks of those of the columns that a file has; they have the same place in every row group."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    leaves = ((place, footer.schema.column(place)) for place in range(footer.num_columns))
    places = {leaf.path: place for place, leaf in leaves if leaf.max_definition_level <= 1}
    return {name: [group.column(places[name]) for group in groups] for name in columns if name in places}


def statistics_json(statistics: Mapping[str, Any]) -> str:
    """Format statistics as an action has them; dates as ISO 8601."""
    return json.dumps(statistics, default=str)


def write_file(table: Place, rows: pa.RecordBatch) -> Action:
    """Write rows into a new file of a table without partitions, with statistics of all integer columns."""
    return _write_file(table, rows, _integers(rows.schema), {})


def write_part(table: Place, rows: pa.Table, columns: Sequence[str], partition: Mapping[str, str]) -> Action:
    """Write rows into a file of a `partition`, whose columns they lack, with statistics of these integer columns."""
    make_folder(table / partition_folder(partition))
    return _write_file(table, rows, columns, partition)


def write_batches(
    table: Place, batches: Iterable[pa.RecordBatch], columns: Sequence[str] | None, partition: Mapping[str, str]
) -> list[Action]:
    """Write rows as `write_part`, while they are read: holds those of one row group. Without rows there is no file.

    `columns` are None for statistics of all integer columns.
    """
    tables = gathered(batch for batch in batches if batch.num_rows)
    if (first := next(tables, None)) is None:
        return []
    make_folder(table / partition_folder(partition))
    bounded = _integers(first.schema) if columns is None else columns
    return [_write_tables(table, chain([first], tables), bounded, partition)]


def adopt_file(table: Place, file: Place, columns: Sequence[str], partition: Mapping[str, str]) -> Action:
    """Move a Parquet file of another writer into an existing partition, with statistics of these columns."""
    own = table / new_file_name(partition)
    move(file, own)
    return _added(table, own, partition, columns, None if by_requests(own) else crc32(own))


def join_intact(table: Place, adds: Sequence[Add]) -> tuple[list[Action], list[LakeUnusable]]:
    """Replace the small files of a table without partitions by one; those that are damaged stay, and are returned.

    No action if only one is left. Holds their bytes, and the rows of one row group at a time, and so does any reader of
    the new file.
    """
    intact, sources, damaged = list[Add](), list[pq.ParquetFile](), list[LakeUnusable]()
    for add in adds:
        file = file_path(table, add)
        content = read_file(file)
        if problem := _wrong_checksum(add, partial(zlib.crc32, content)):
            damaged.append(_damaged(file, problem))
        else:
            intact.append(add)
            sources.append(pq.ParquetFile(pa.BufferReader(content)))
    actions = [*map(removed, intact), _joined_file(table, sources)] if len(intact) > 1 else []
    return actions, damaged


def _joined_file(table: Place, sources: Sequence[pq.ParquetFile]) -> Action:
    file = table / new_file_name({})
    schema = sources[0].schema_arrow
    columns = _integers(schema)
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    with (
        new_file(file) as sink,
        pq.ParquetWriter(sink, schema, use_dictionary=texts, write_statistics=columns) as writer,
    ):
        groups = (source.read_row_group(n) for source in sources for n in range(source.num_row_groups))
        for rows in gathered(batch for group in groups for batch in group.to_batches()):
            write_groups(writer, rows)
    return _added(table, file, {}, columns, crc32_written(file, sink))


def _write_file(
    table: Place, rows: pa.RecordBatch | pa.Table, columns: Sequence[str], partition: Mapping[str, str]
) -> Action:
    return _write_tables(table, iter([pa.table(rows)]), columns, partition)


def _write_tables(
    table: Place, tables: Iterator[pa.Table], columns: Sequence[str], partition: Mapping[str, str]
) -> Action:
    """Write tables of one schema into a file; at least one."""
    file, first = table / new_file_name(partition), next(tables)
    with (
        new_file(file) as sink,
        pq.ParquetWriter(
            sink,
            first.schema,
            # To find out whether other values repeat costs more than a dictionary saves.
            use_dictionary=short_texts(first),
            write_statistics=[*columns, *keys_of_maps(first.schema)],
            write_page_index=bool(partition),  # queries read single pages of partitioned tables, the histories
        ) as writer,
    ):
        for rows in chain([first], tables):
            write_groups(writer, rows)
    return _added(table, file, partition, columns, crc32_written(file, sink))


def _integers(schema: pa.Schema) -> list[str]:
    return [field.name for field in schema if pa.types.is_integer(field.type)]


def new_file_name(partition: Mapping[str, str]) -> str:
    """Return the path of a new data file, relative to its table."""
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    return str(PurePosixPath(partition_folder(partition), name))


def partition_folder(partition: Mapping[str, str]) -> str:
    """Return the folder of a partition, relative to its table, in Hive's form; readers take the values from the log."""
    return "/".join(f"{quote(column, safe='')}={quote(value, safe='')}" for column, value in partition.items())


def _added(
    table: Place, file: Place, partition: Mapping[str, str], columns: Iterable[str], checksum: int | None
) -> Action:
    # pyarrow's metadata_collector would hide the OSError of a full disk behind an error of its own, raised at close.
    statistics = statistics_json(file_statistics(pq.read_metadata(parquet(file)), columns))
    return added_file(relative_name(file, table), partition, size_bytes(file), statistics, checksum)


_CHECKSUMS = b"crc\0"
"""Begins a checksum file of Hadoop; then the size of a chunk follows, and the CRC-32 of each, big-endian."""


MISSING = "missing file"


@dataclass(frozen=True, slots=True)
class FileProblem:
    """A problem of a data file, or of the log itself."""

    kind: str
    file: str
    detail: str


def check_files(table: Place, version: int) -> tuple[FileProblem, ...]:
    """Check all files of a version of a table without foreign table features."""
    try:
        adds = live_files(table, version)
    except (OSError, ValueError, pa.ArrowException) as exc:
        detail = f"version {version} cannot be listed: {type(exc).__name__}"
        return (FileProblem("unreadable log", "_delta_log", detail),)
    return tuple(problem for add in adds for problem in file_problems(table, add))


def require_same_bytes(table: Place, adds: Iterable[Add]) -> None:
    """Require that files have the bytes that their writers recorded. Raises LakeUnusable, or OSError if one is gone."""
    for add in adds:
        file = file_path(table, add)
        if (problem := next(_changed_bytes(file, add), None)) is not None:
            raise _damaged(file, problem)


def _damaged(file: Place, problem: str) -> LakeUnusable:
    return LakeUnusable(f"{file} is damaged: {problem}", RESTORE)


def size_problem(table: Place, add: Add) -> FileProblem | None:
    """Return that a file is missing, or has another size than the log; None if neither is so."""
    shown = str(add["path"])
    try:
        size_bytes = file_path(table, add).stat().st_size
    except OSError as exc:
        return FileProblem(MISSING, shown, exc.strerror or "")
    if size_bytes == add["size"]:
        return None
    return FileProblem("file size", shown, f"{size_bytes} bytes, the log has {add['size']}")


def file_problems(table: Place, add: Add) -> Iterator[FileProblem]:
    """Yield the problems of one file."""
    file, shown = file_path(table, add), str(add["path"])
    if (problem := size_problem(table, add)) is not None:
        yield problem
        if problem.kind == MISSING:
            return
    recorded: Mapping[str, Any] = {}
    try:
        recorded = statistics(add)
    except LakeUnusable:
        yield FileProblem("statistics", shown, "those in the log cannot be read")
    try:
        damaged = [*_content_problems(file, add)]
        yield from damaged
        rows = pq.read_metadata(parquet(file)).num_rows
        if not damaged:  # reading columns of a damaged file could end the process
            yield from (FileProblem("bounds", shown, wrong) for wrong in wrong_bounds(file, recorded))
    except (OSError, pa.ArrowException) as exc:
        yield FileProblem("unreadable file", shown, type(exc).__name__)
        return
    if rows != (counted := recorded.get("numRecords", rows)):
        yield FileProblem("row count", shown, f"{rows} rows, the log has {counted}")
    yield from _vector_problems(table, add, rows)


def _content_problems(file: Place, add: Add) -> Iterator[FileProblem]:
    """Compare all bytes of a file with its recorded checksums; decode it if there are none."""
    yield from (FileProblem("checksum", str(add["path"]), problem) for problem in _changed_bytes(file, add))
    if _recorded_checksum(add) is None:
        for _ in read_batches(file):
            pass


def _changed_bytes(file: Place, add: Add) -> Iterator[str]:
    if not _matches_checksums(file):
        yield "the file was changed since Spark wrote it"
    if (problem := _wrong_checksum(add, partial(crc32, file))) is not None:
        yield problem


def _wrong_checksum(add: Add, checksum: Callable[[], int]) -> str | None:
    """Return how a file's CRC-32 differs from the recorded one; None if it does not, or none is recorded."""
    recorded = _recorded_checksum(add)
    if recorded is None or (found := f"{checksum():08x}") == recorded:
        return None
    return f"CRC-32 {found}, the log has {recorded}"


def _recorded_checksum(add: Add) -> str | None:
    return (add.get("tags") or {}).get(CHECKSUM_TAG)


def _matches_checksums(file: Place) -> bool:
    """Return whether a file matches the checksums beside it; also if there are none."""
    if by_requests(file):
        return True
    try:
        content = read_file(file.with_name(f".{file.name}.crc"))
    except FileNotFoundError:
        return True
    if content[: len(_CHECKSUMS)] != _CHECKSUMS:
        return True  # Hadoop ignores it, too
    size, sums = int.from_bytes(content[4:8]), memoryview(content)[8:]
    with open_file(file) as opened:
        chunks = iter(lambda: opened.read(size), b"")
        found = b"".join(zlib.crc32(chunk).to_bytes(4) for chunk in chunks)
    return found == sums


def _vector_problems(table: Place, add: Add, rows: int) -> Iterator[FileProblem]:
    vector, shown = add.get("deletionVector"), str(add["path"])
    if vector is None:
        return
    try:
        marked = read_vector(table, vector)
    except (OSError, ValueError) as exc:
        yield FileProblem("deletion vector", shown, f"unreadable: {type(exc).__name__}")
        return
    if len(marked) != vector["cardinality"]:
        detail = f"marks {len(marked)} rows, the log has {vector['cardinality']}"
        yield FileProblem("deletion vector", shown, detail)
    if len(marked) and marked.max() >= rows:
        yield FileProblem("deletion vector", shown, f"marks row {marked.max()} of {rows}")
