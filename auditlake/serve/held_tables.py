"""Held tables: the rows of large tables at the moments asked for last, in DuckDB's memory, sorted by key.

A page that sorts or filters the rows of a history reads whole columns of its files. If such a table is asked for, its
rows are copied into a table of the server's database by one thread in the background; until that has ended, answers
come from the files. The rows held are those of the history, at the LSN or at the table's position if that is lower;
`audit.state` replaces those that the tail touches.

1. Only tables of at least `LEAST_ROWS` rows, or on an object store, are held, and only once no other was asked for
   during `QUIET_S`: while the slider moves, every request is for another moment.
2. A sample of the rows estimates the bytes. A held table is dropped when others need its place: least recently used
   first, never one in use.
3. A table with a column `rowid` is not held: it hides DuckDB's own, by which the rows are found.
4. Held tables need at most `MOST_BYTES` in total, and one of them at most two thirds of that.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from auditlake.audit.lake_reader import Reader
from auditlake.audit.state import StateRequest, state_query
from auditlake.lake.history import HistoryTable, type_of
from auditlake.lake.history_files import open_rows
from auditlake.lsn import Lsn
from auditlake.messages import FailureReports
from auditlake.relation import Column
from auditlake.sql_names import standard_identifier
from auditlake.store.place import by_requests

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MOST_BYTES = 384 << 20
LEAST_ROWS = 20_000
_SAMPLED_ROWS = 2048
QUIET_S = 0.2
_MOST_WAITING = 2
_MOST_REFUSED = 1000
_REFERENCE_BYTES = 16
"""What DuckDB needs for a text besides its characters."""


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows of a history: those at `lsn`, at most its position, in these columns, named as stored.

    `order` is an ORDER BY clause on an alias h: that of a page that is not sorted by a column.
    """

    table: HistoryTable
    lsn: Lsn
    columns: tuple[Column, ...]
    order: str

    @classmethod
    def of_state(cls, table: HistoryTable, lsn: Lsn, columns: tuple[Column, ...], order: str) -> "HeldRows":
        """Return the rows of the history that a state in some columns of its moment needs."""
        merged = {column.stored: column for column in table.columns_at(min(lsn, table.position))}
        needed = [column for column in columns if column.stored in merged]
        missing = [column for column in table.key if column.stored not in {each.stored for each in needed}]
        return cls(table, min(lsn, table.position), (*needed, *missing), order)

    @property
    def key(self) -> tuple[object, ...]:
        """Identify the rows."""
        names = tuple(column.stored for column in self.columns)
        return (self.table.path, self.table.delta_version, self.lsn, names, self.order)

    @property
    def hides_numbers(self) -> bool:
        """Whether a column hides DuckDB's own `rowid`, by which the held rows are found."""
        return any(column.stored.casefold() == "rowid" for column in self.columns)

    @property
    def partial(self) -> bool:
        """Whether a column has values that its type cannot represent."""
        return any(type_of(column).may_not_fit for column in self.columns)


@dataclass(frozen=True, slots=True)
class Held:
    """A table of the server's database: `count` rows; every value of the columns `fitting` fits its type."""

    name: str
    count: int
    partial: bool
    fitting: frozenset[str]

    @property
    def source(self) -> str:
        """SQL of the rows with `_raw`, from which a state is read."""
        return self.name if self.partial else f"(select *, null::map(varchar, varchar) as _raw from {self.name})"


@dataclass(slots=True)
class _Entry:
    """A held table; `uses` is the number of requests that read it now."""

    rows: HeldRows
    held: Held
    size_bytes: int
    uses: int = 0


class HeldTables:
    """The held tables of one server; `open_cursor` opens a cursor of its database."""

    def __init__(
        self,
        open_cursor: Callable[[], "DuckDBPyConnection"],
        *,
        most_bytes: int = MOST_BYTES,
        least_rows: int = LEAST_ROWS,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._open_cursor = open_cursor
        self._most_bytes = most_bytes
        self._least_rows = least_rows
        self._quiet_s = quiet_s
        self._held: OrderedDict[object, _Entry] = OrderedDict()
        self._waiting: OrderedDict[object, tuple[Reader, HeldRows]] = OrderedDict()
        self._asked_at = 0.0
        self._making: object = None
        self._closed = False
        self._refused: OrderedDict[object, None] = OrderedDict()
        self._number = 0
        self._lock = threading.Lock()
        self._failures = FailureReports()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hold")

    @contextmanager
    def using(self, reader: Reader, rows: HeldRows, *, request: bool = True) -> Iterator[Held | None]:
        """Yield the held table of these rows; None if there is none, and with `request` have it made."""
        key = _key(reader, rows)
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
                found.uses += 1
        if found is None:
            if request:
                self._request(reader, rows)
            yield None
            return
        try:
            yield found.held
        finally:
            with self._lock:
                found.uses -= 1

    def _request(self, reader: Reader, rows: HeldRows) -> None:
        """Have the rows held, unless that is under way, or they are too few or too many."""
        if rows.hides_numbers or (open_rows(rows.table) < self._least_rows and not by_requests(rows.table.path)):
            return
        key = _key(reader, rows)
        with self._lock:
            if self._closed or key in self._refused or key == self._making:
                return
            if key not in self._waiting:
                self._asked_at = time.monotonic()
            idle = len(self._waiting) == 0 and self._making is None
            self._waiting[key] = (reader, rows)
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.popitem(last=False)
            if idle:
                self._thread.submit(self._hold_waiting)

    def _hold_waiting(self) -> None:
        """Make what waits, the last request first."""
        while not self._closed:
            with self._lock:
                quiet_in_s = self._asked_at + self._quiet_s - time.monotonic()
                if not self._waiting:
                    return
                if quiet_in_s <= 0:
                    key, (reader, rows) = self._waiting.popitem(last=True)
                    self._making = key
            if quiet_in_s > 0:
                time.sleep(quiet_in_s)
            else:
                self._hold(reader, rows)

    def _hold(self, reader: Reader, rows: HeldRows) -> None:
        made, key = None, _key(reader, rows)
        try:
            with self._open_cursor() as cursor:
                made = self._made(cursor, reader, rows)
        except Exception as exc:  # noqa: BLE001 - requests read the files instead
            self._failures.report(f"{rows.table.label} is not held in memory", exc)
        finally:
            with self._lock:
                self._making = None
                if made is None:
                    self._refused[key] = None
                else:
                    self._held[key] = made
                while len(self._refused) > _MOST_REFUSED:
                    self._refused.popitem(last=False)

    def _made(self, cursor: "DuckDBPyConnection", reader: Reader, rows: HeldRows) -> "_Entry | None":
        """Make the table; None if it needs too many bytes."""
        query = state_query(cursor, reader, StateRequest(rows.table, rows.lsn, rows.columns, rows.partial)).sql
        if not self._make_room(cursor, _estimated_bytes(cursor, query)):
            return None
        self._number += 1
        name, made = f"held_{self._number}", None
        try:
            cursor.execute(f"create table {name} as select * from ({query}) h{rows.order}")
            size_bytes = _size_bytes(cursor, name)
            if self._make_room(cursor, size_bytes):
                made = _Entry(rows, _described(cursor, name, rows), size_bytes)
        finally:
            if made is None:
                cursor.execute(f"drop table if exists {name}")
        return made

    def _make_room(self, cursor: "DuckDBPyConnection", size_bytes: int) -> bool:
        """Drop tables until there is room for another; return whether there is."""
        if size_bytes > 2 * self._most_bytes // 3:
            return False
        with self._lock:
            kept = sum(entry.size_bytes for entry in self._held.values())
            for key, entry in list(self._held.items()):
                if kept + size_bytes <= self._most_bytes:
                    break
                if not entry.uses:
                    cursor.execute(f"drop table {entry.held.name}")
                    del self._held[key]
                    kept -= entry.size_bytes
        return kept + size_bytes <= self._most_bytes

    @property
    def names(self) -> list[str]:
        """The tables that are held, the one used last at the end."""
        with self._lock:
            return [str(entry.rows.table.name) for entry in self._held.values()]

    @property
    def held_bytes(self) -> int:
        """The memory that they need."""
        with self._lock:
            return sum(entry.size_bytes for entry in self._held.values())

    def wait(self) -> None:
        """Wait until everything requested so far is held or refused."""
        self._thread.submit(lambda: None).result()

    def close(self) -> None:
        """End the thread after the table that it copies now; the copy ends with the process."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)


def _key(reader: Reader, rows: HeldRows) -> object:
    """Identify rows of the lake that a reader has read, which may be another one in its place."""
    return (reader.lake.session.identity, *rows.key)


def _estimated_bytes(cursor: "DuckDBPyConnection", query: str) -> int:
    cursor.execute(f"create or replace temp table sample as select * from ({query}) limit {_SAMPLED_ROWS:d}")
    sampled, count = (_number(cursor, f"select count(*) from {rows}") for rows in ("sample", f"({query})"))
    return _size_bytes(cursor, "sample") * count // max(1, sampled)


def _size_bytes(cursor: "DuckDBPyConnection", name: str) -> int:
    """Return about what a table needs in memory, which DuckDB does not compress."""
    columns = cursor.execute(f"select * from {name} limit 0").description
    parts = [_column_bytes(standard_identifier(column), str(kind)) for column, kind, *_ in columns]
    return _number(cursor, f"select coalesce(sum({' + '.join(parts) or '0'}), 0)::bigint from {name}")


def _column_bytes(name: str, kind: str) -> str:
    """Return SQL for what a value needs: nested ones about as much as their text."""
    if kind == "VARCHAR":
        return f"{_REFERENCE_BYTES} + coalesce(strlen({name}), 0)"
    if kind == "BLOB":
        return f"{_REFERENCE_BYTES} + coalesce(octet_length({name}), 0)"
    if kind.startswith("MAP") or kind.endswith("[]"):
        return f"{_REFERENCE_BYTES} + coalesce(2 * strlen({name}::varchar), 0)"
    return "16" if kind.startswith("DECIMAL") else "8"


def _number(cursor: "DuckDBPyConnection", sql: str) -> int:
    found = cursor.execute(sql).fetchone()
    return int(found[0]) if found else 0


def _described(cursor: "DuckDBPyConnection", name: str, rows: HeldRows) -> Held:
    count = _number(cursor, f"select count(*) from {name}")
    outside = set[str]()
    if rows.partial:
        names = f"select distinct unnest(map_keys(_raw)) from {name} where _raw is not null"
        outside = {found for (found,) in cursor.execute(names).fetchall()}
    fitting = frozenset(column.stored for column in rows.columns if column.stored not in outside)
    return Held(name, count, rows.partial, fitting)
