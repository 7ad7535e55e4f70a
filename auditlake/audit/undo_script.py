"""Undo script: a diff as SQL that brings PostgreSQL from the state at A to the state at B exactly, or fails as a whole.

The script is one transaction. It stages each row that differs, as it is at A and at B, in a temporary table, as
PostgreSQL's own text. Then `restore.sql`, which is the same in every script, reads the target's catalog and

1. finds the rows at the target: each must exist exactly as it was at A, byte for byte;
2. deletes, updates and inserts the rows of all tables in one statement, so that foreign keys are checked, and their
   actions run, when every row is in place: the order of tables does not matter, nor do cycles and self-references;
3. compares the rows with B, and the server's counters of changed rows with the rows of the script, so that it fails if
   a trigger, a rule or a foreign key's action changed any other row.

It begins with comments: both moments, and for each table the number of rows by operation and the first keys.

Isolation is REPEATABLE READ: the script fails if another session changes one of the rows meanwhile; no table is locked.
The target's input functions read the texts, under settings that the script sets itself. The script has no control
characters. Text with bytes that are invalid in the encoding has no literal, so a diff with such a row is refused.
"""

from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import count

from auditlake.audit.changes import Values
from auditlake.audit.diff import ADDED, MODIFIED, REMOVED, Compared, DifferingRow
from auditlake.errors import NotAnswerable
from auditlake.relation import Column
from auditlake.sql_names import postgres_literal
from auditlake.values.escapes import visible

_BEGIN = (
    "begin isolation level repeatable read read write",
    "set local client_encoding = 'UTF8'",
    "set local standard_conforming_strings = on",
    "set local datestyle = 'ISO, YMD'",
    "set local intervalstyle = 'postgres'",
    "set local timezone = 'UTC'",
    "set local bytea_output = 'hex'",
    "set local extra_float_digits = 3",
    "set local lc_monetary = 'C'",
    "set local xmloption = 'content'",
    "set local quote_all_identifiers = off",
    "set local row_security = off",
    "set local lock_timeout = '10s'",
    (
        "create temporary table auditlake_tables"
        " (id int, schema_name text, table_name text, columns text[], key text[]) on commit drop"
    ),
    "create temporary table auditlake_rows (t int, n bigint, was text[], becomes text[]) on commit drop",
)
_ROWS_IN_STATEMENT, _BYTES_IN_STATEMENT = 200, 64 << 20
_LARGEST_ROW_BYTES = 500_000_000
"""PostgreSQL takes no statement of 1 GiB; a literal may be twice as long as its text."""
_KEYS_IN_COMMENT = 10
_VERBS = ((REMOVED, "delete"), (MODIFIED, "update"), (ADDED, "insert"))


def patch(tables: Sequence[Compared]) -> Iterator[str]:
    """Yield the statements of the script.

    Raises NotAnswerable, before the first statement, if a table's columns differ between the two moments, if one is
    masked, or if a row has text that no literal can hold, or more than a statement can.
    """
    for table in tables:
        _check_expressible(table)
    yield from [*_summary(tables)]
    yield from (f"{statement};" for statement in _BEGIN)
    numbers = count(1)
    for place, table in enumerate(tables, 1):
        yield from _staged(place, table, numbers)
    yield (files("auditlake.audit") / "restore.sql").read_text("utf-8").rstrip()
    yield "commit;"


def _check_expressible(table: Compared) -> None:
    if _shape(table, table.columns_before) != _shape(table, table.columns_after):
        raise NotAnswerable(
            f"the columns of {table.name} differ between the two moments, so no script can change one into the other",
            "Leave the table out, or choose moments on one side of the schema change.",
        )
    if masked := table.masked_columns:
        raise NotAnswerable(
            f"the values of {', '.join(masked)} of {table.name} are masked in the lake, so no script can restore them",
            "Leave the table out; auditlake diff shows which rows differ.",
        )
    if invalid := table.columns_with_invalid_text():
        key = f"; its key is {', '.join(table.key)}" if table.key else ""
        raise NotAnswerable(
            f"{table.name}: a row that differs has bytes in {', '.join(invalid)} that are not valid in the database's"
            f" encoding, which no SQL literal can hold{key}",
            "Leave the table out and restore the row by hand; auditlake diff shows which it is.",
        )


def _summary(tables: Sequence[Compared]) -> Iterator[str]:
    """Yield comments for a reviewer: the moments, and the rows that the script changes."""
    if tables:
        before, after = tables[0].moments
        yield f"-- Bring these rows from their state at {before} to that at {after}, all of them or none:"
    for table in tables:
        yield from (f"-- {visible(line)}" for line in _summary_of(table))


def _summary_of(table: Compared) -> Iterator[str]:
    for kind, verb in _VERBS:
        rows, keys = 0, []
        for entry in table.entries(kind):
            rows += 1
            _check_size(table, entry)
            if table.key and rows <= _KEYS_IN_COMMENT:
                keys.append(" ".join(f"{name}={value}" for name, value in entry.key.items()))
        if rows:
            more = [f"{rows - _KEYS_IN_COMMENT:,} more"] if rows > _KEYS_IN_COMMENT and keys else []
            listed = f": {', '.join([*keys, *more])}" if keys else ""
            yield f"{table.last_name}: {verb} {rows:,} row{'s' * (rows > 1)}{listed}"


def _check_size(table: Compared, entry: DifferingRow) -> None:
    sides = (side.values() for side in (entry.before, entry.after) if side is not None)
    size_bytes = sum(_size_bytes(text) for texts in sides for text in texts if text is not None)
    if size_bytes > _LARGEST_ROW_BYTES:
        raise NotAnswerable(
            f"{table.name}: a row that differs has {size_bytes:,} bytes at the two moments, and a script can have "
            f"{_LARGEST_ROW_BYTES:,}",
            "Leave the table out and restore the row by hand; auditlake diff shows which it is.",
        )


def _size_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def _shape(table: Compared, columns: Sequence[Column]) -> set[tuple[str, str, int]]:
    """Return which columns these are, also if another one has taken the name, and their names and types."""
    return {(table.own[column], column.name, column.type_oid) for column in columns}


def _staged(place: int, table: Compared, numbers: Iterator[int]) -> Iterator[str]:
    """Stage a table and its rows; nothing if no row differs."""
    names = [column.name for column in table.columns_after]
    entries = (entry for kind in (REMOVED, MODIFIED, ADDED) for entry in table.entries(kind))
    rows = (
        f"({place:d}, {next(numbers):d}, {_row(entry.before, names)}, {_row(entry.after, names)})" for entry in entries
    )
    described = (*map(postgres_literal, table.last_name), _array(names), _array(table.key))
    staged = f"insert into pg_temp.auditlake_tables values ({place:d}, {', '.join(described)});"
    for batch in _batches(rows):
        if staged:
            yield staged
            staged = ""
        yield "insert into pg_temp.auditlake_rows values\n" + ",\n".join(batch) + ";"


def _batches(rows: Iterator[str]) -> Iterator[list[str]]:
    """Yield the rows of one statement each, by number and size."""
    batch, size_bytes = list[str](), 0
    for row in rows:
        added_bytes = _size_bytes(row)
        if batch and (len(batch) == _ROWS_IN_STATEMENT or size_bytes + added_bytes > _BYTES_IN_STATEMENT):
            yield batch
            batch, size_bytes = [], 0
        batch.append(row)
        size_bytes += added_bytes
    if batch:
        yield batch


def _row(values: Values | None, names: Sequence[str]) -> str:
    return "null" if values is None else _array([values[name] for name in names])


def _array(texts: Iterable[str | None]) -> str:
    return f"array[{', '.join('null' if text is None else postgres_literal(text) for text in texts)}]::text[]"
