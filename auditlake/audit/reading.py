"""What the audit questions read: one look at a lake, asked in SQL through deltalake's DataFusion. No JVM, no pyspark.

`Reader` pins every table it opens to the version that the look found, so that all parts of an answer speak of the same
lake while capture and apply go on. Rows above the watermark are never given: `changes` and `transactions` are read up
to a limit that is at most the watermark.

Literals go into SQL text only through `text` and `identifier`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from auditlake.audit.later import Described, Later, later_columns, see_explained
from auditlake.errors import BadUsage, NotAnswerable
from auditlake.lake.added import Answers, read_added
from auditlake.lake.history import HistoryTable
from auditlake.lake.layout import Lake
from auditlake.lake.log import open_delta
from auditlake.lake.relations import read_relations
from auditlake.literals import standard_literal
from auditlake.lsn import Lsn
from auditlake.query.moments import check_horizon, check_known, just_before, read_known, resolve
from auditlake.query.names import find_table
from auditlake.query.when import parse_when
from auditlake.relation import Column, Relation, TableName

# Filters inside the Parquet reader: one key of a large history is found without decoding its other columns.
_SESSION = {"datafusion.execution.parquet.pushdown_filters": "true"}


@dataclass(frozen=True, slots=True)
class Span:
    """Commits after `after` (exclusive) up to `upto` (inclusive)."""

    after: Lsn
    upto: Lsn

    def __contains__(self, lsn: int) -> bool:
        return self.after < lsn <= self.upto


class Reader:
    """One look at a lake; `now` is what relative times count from."""

    def __init__(self, lake: Lake, now: datetime) -> None:
        self.lake = lake
        self.now = now
        self.known = read_known(lake)
        self._tables: dict[Path, DeltaTable] = {}
        self._later: dict[TableName, Mapping[str, Later]] = {}

    @property
    def watermark(self) -> Lsn:
        return self.known.positions.watermark

    @cached_property
    def relations(self) -> dict[int, Relation]:
        """Every relation version by its number."""
        return read_relations(self.lake)

    def query(self, sql: str, **tables: DeltaTable | None) -> pa.Table:
        """Run SQL over the named Delta tables; strings come as plain Arrow strings, dictionaries as their values."""
        builder = QueryBuilder(_SESSION)
        for name, table in tables.items():
            if table is not None:
                builder.register(name, table)
        # Not pa.table(): that would import pandas to see whether it is given a frame, which takes half a second.
        return plain(pa.RecordBatchReader.from_stream(builder.execute(sql)).read_all())

    @property
    def changes(self) -> DeltaTable | None:
        """`changes` as the look found it; None where capture has never started."""
        if not self.watermark:
            return None
        return self._open(self.lake.changes, self.known.positions.delta_version)

    @cached_property
    def transactions(self) -> DeltaTable | None:
        """`transactions`; may hold more than the look saw, so a question names its upper LSN."""
        return open_delta(self.lake.transactions) if self.watermark else None

    @cached_property
    def _gaps(self) -> DeltaTable | None:
        return open_delta(self.lake.gaps)

    def history(self, table: HistoryTable) -> DeltaTable:
        """One table's history at the version the look found."""
        return self._open(table.path, table.delta_version)

    def _open(self, path: Path, version: int) -> DeltaTable:
        if path not in self._tables:
            self._tables[path] = DeltaTable(path, version=version)
        return self._tables[path]

    def table(self, name: str) -> HistoryTable:
        """Find the table that a name on the command line means.

        Raises BadUsage where there is none, NotAnswerable where it is still being copied.
        """
        parts = split_name(name)
        for started in (TableName(*parts),) if len(parts) == len(TableName._fields) else ():
            if started not in self.known.tables and self.lake.history(started).exists():
                raise NotAnswerable(f"{started} is being copied, it has no history yet", "Ask again after bootstrap.")
        found = find_table(parts, self.known.tables)
        if found not in self.known.tables:
            raise BadUsage(f"{found} has no rows with a past", "Name a table of the source.")
        return self.known.tables[found]

    def moment(self, when: str | None) -> Lsn:
        """Resolve a WHEN, None being the present of the lake."""
        return self.known.now_lsn if when is None else resolve(self.known, parse_when(when, self.now))

    def span(self, since: str | None, until: str | None) -> Span:
        """Resolve `--since` (that moment included) and `--until` (included); None leaves that end open."""
        upto = self.moment(until)
        if since is None:
            return Span(Lsn(0), upto)
        when = parse_when(since, self.now)
        resolve(self.known, when)
        return Span(just_before(self.known, when), upto)

    def check(self, table: HistoryTable, lsn: Lsn, when: str | None = None) -> None:
        """See that the state of `table` at `lsn` is known.

        Raises NotAnswerable.
        """
        check_horizon(table, lsn, None if when is None else parse_when(when, self.now))
        check_known(self.known, table, lsn)
        see_explained(table, lsn, self._described(table), self.later(table.name))
        for gap in self.gaps_of(table):
            if gap["lsn_from"] <= lsn < gap["lsn_to"]:
                first, last, why = Lsn(gap["lsn_from"]), Lsn(gap["lsn_to"]), gap["reason"]
                raise NotAnswerable(
                    f"asked for {table.name} as of {lsn}, its changes from {first} to {last} are missing: {why}",
                    f"Ask for a moment before {first}, or from {last} on.",
                )

    def gaps_of(self, table: HistoryTable) -> list[dict[str, Any]]:
        """What is missing of a table: `lsn_from` (inclusive), `lsn_to` (exclusive), `reason`."""
        if self._gaps is None:
            return []
        sql = f"select lsn_from, lsn_to, reason from gaps where {about(table.name)} order by lsn_from"
        found: list[dict[str, Any]] = self.query(sql, gaps=self._gaps).to_pylist()
        return found

    def columns_at(self, table: HistoryTable, lsn: int) -> tuple[Column, ...]:
        """The columns that `table` had at `lsn`: as the stream last described them, else those of the snapshot."""
        in_snapshot = table.columns_at(table.horizon)
        return next((columns for since, columns in reversed(self._described(table)) if since <= lsn), in_snapshot)

    def _described(self, table: HistoryTable) -> Described:
        return [(lsn, r.columns) for lsn, r in self._in_force if r.name == table.name and lsn > table.horizon]

    def shown_at(self, table: HistoryTable, lsn: int, values: Mapping[str, str | None]) -> dict[str, str | None]:
        """Leave out of a row what the table did not have at `lsn`."""
        later = self.later(table.name)
        return {name: value for name, value in values.items() if name not in later or later[name].since <= lsn}

    def later(self, name: TableName) -> Mapping[str, Later]:
        """The columns that were added to a table since its snapshot, merged or not."""
        if name not in self._later:
            table = self.known.tables.get(name)
            self._later[name] = later_columns(table, self.relations.values(), self._answers) if table else {}
        return self._later[name]

    @cached_property
    def _answers(self) -> Answers:
        return read_added(self.lake)

    @cached_property
    def _in_force(self) -> list[tuple[int, Relation]]:
        delta = open_delta(self.lake.relations)
        if delta is None:
            return []
        rows = self.query("select relation, lsn from relations order by lsn, relation", relations=delta)
        return [(row["lsn"], self.relations[row["relation"]]) for row in rows.to_pylist()]


def split_name(name: str) -> list[str]:
    """Split `schema.table` at its dots; a part in double quotes keeps its dots."""
    parts, rest = [], name
    while True:
        if rest.startswith('"') and (end := _closing_quote(rest)):
            parts.append(rest[1:end].replace('""', '"'))
            rest = rest[end + 1 :]
        else:
            head, dot, tail = rest.partition(".")
            parts.append(head)
            rest = dot + tail
        if not rest.startswith("."):
            return [*parts[:-1], parts[-1] + rest]
        rest = rest[1:]


def _closing_quote(text: str) -> int:
    at = text.find('"', 1)
    while at > 0 and text[at : at + 2] == '""':
        at = text.find('"', at + 2)
    return max(at, 0)


def identifier(name: str) -> str:
    """Spell a column name."""
    return '"' + name.replace('"', '""') + '"'


def about(table: TableName) -> str:
    """The condition that a row of `changes` is about this table."""
    return f'"schema" = {standard_literal(table.schema)} and "table" = {standard_literal(table.table)}'


def plain(table: pa.Table) -> pa.Table:
    """Give views of strings and bytes their plain types, which Arrow's functions know."""
    return table.cast(pa.schema([pa.field(field.name, _plain_type(field.type)) for field in table.schema]))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if kind == pa.string_view():
        return pa.string()
    if kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type))
    return kind


def in_lsns(column: str, lsns: Iterator[int] | list[int]) -> str:
    """The condition that `column` is one of some LSNs; a range where they are many, which files are chosen by."""
    wanted = sorted(set(lsns))
    if len(wanted) <= _MOST_IN_LIST:
        return f"{column} in ({', '.join(f'{lsn:d}' for lsn in wanted)})"
    return f"{column} between {wanted[0]:d} and {wanted[-1]:d}"


_MOST_IN_LIST = 20
