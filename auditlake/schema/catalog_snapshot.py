"""Catalog snapshots: read and save the catalog entries from which `schema.missing_values` decides.

1. `read_catalog_snapshots` and `read_column` run one statement each, so each result is consistent. They call no
   function that opens a table, such as pg_partition_tree: it would wait for a lock on a partition.
2. `looks/<schema>/<table>.json` has the last snapshot of a table, replaced as a whole by rename. Bootstrap writes it
   before the table's snapshot, afterwards only capture does, if the catalog entry has changed.
3. A catalog snapshot is saved only if the lake already knows all its columns. Otherwise a new column would look like an
   old one, and a rewrite that added it would go unnoticed.

Authority: postgresql.org/docs/current/catalog-pg-attribute.html
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar, cast

import psycopg

from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.lake.records import read_record, write_record
from auditlake.lake.relations import read_versions
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.schema.missing_values import (
    Added,
    CatalogSnapshot,
    ColumnEntry,
    Existing,
    Question,
    StoringTable,
    decide,
    read_added,
)
from auditlake.source.connection import Row, answering_within, connect, fetch, lsn_in_lake
from auditlake.store.files import read_each

_SNAPSHOT = """
select t.oid::bigint, (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::bigint, t.relnatts::int,
       parts.oids, parts.files, columns.names, columns.numbers
  from pg_catalog.pg_class t
 cross join lateral (
    select coalesce(array_agg(p.oid::bigint), '{}') as oids, coalesce(array_agg(p.relfilenode::bigint), '{}') as files
      from (
            with recursive members (oid) as (
                select t.oid union all
                select i.inhrelid from members m
                  join pg_catalog.pg_inherits i on i.inhparent = m.oid and t.relkind = 'p')
            select oid from members) tree
      join pg_catalog.pg_class p on p.oid = tree.oid and p.relkind = 'r') parts
 cross join lateral (
    select coalesce(array_agg(a.attname::text), '{}') as names, coalesce(array_agg(a.attnum::int), '{}') as numbers
      from pg_catalog.pg_attribute a where a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped) columns
 where t.oid = any (%s::oid[])
"""

_COLUMN = """
select a.attnum::int,
       coalesce((select max(d.attnum)::int from pg_catalog.pg_attribute d
                  where d.attrelid = a.attrelid and d.attisdropped), 0),
       p.oid::bigint, p.relfilenode::bigint, case when m.atthasmissing then m.attmissingval::text end
  from pg_catalog.pg_attribute a
  left join lateral (
    select c.oid, c.relfilenode
      from (
            with recursive members (oid) as (
                select a.attrelid union all
                select i.inhrelid from members m
                  join pg_catalog.pg_inherits i on i.inhparent = m.oid
                  join pg_catalog.pg_class p on p.oid = m.oid and p.relkind = 'p')
            select oid from members) tree
      join pg_catalog.pg_class c on c.oid = tree.oid and c.relkind = 'r') p on true
  left join pg_catalog.pg_attribute m on m.attrelid = p.oid and m.attname = a.attname and not m.attisdropped
 where a.attrelid = %s::oid and a.attname = %s and not a.attisdropped
"""
VISIBLE_WITHIN_S = 2.0
_POLL_S = 0.1

_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class TableCatalog:
    """A catalog snapshot, with the attribute numbers of the table's columns."""

    snapshot: CatalogSnapshot
    columns: dict[str, int]


def read_catalog_snapshots(conn: psycopg.Connection[Row], relations: Iterable[int]) -> list[TableCatalog]:
    """Read the catalog snapshots of the tables with these OIDs; missing tables are skipped."""
    tables = []
    for oid, lsn, attributes, parts, files, names, numbers in fetch(conn, _SNAPSHOT, list(relations)):
        of_parts = zip(cast("list[int]", parts), cast("list[int]", files), strict=True)
        columns = zip(cast("list[str]", names), cast("list[int]", numbers), strict=True)
        read_at = lsn_in_lake(conn, cast("int", lsn))
        snapshot = CatalogSnapshot(cast("int", oid), read_at, cast("int", attributes), dict(of_parts))
        tables.append(TableCatalog(snapshot, dict(columns)))
    return tables


def read_column(conn: psycopg.Connection[Row], relation: int, name: str) -> ColumnEntry | None:
    """Read the catalog entry of a column; None if the table has no such column."""
    rows = fetch(conn, _COLUMN, relation, name)
    if not rows:
        return None
    parts = {
        cast("int", oid): StoringTable(cast("int", file), None if missing is None else only_element(str(missing)))
        for _, _, oid, file, missing in rows
        if oid is not None
    }
    return ColumnEntry(cast("int", rows[0][0]), cast("int", rows[0][1]), parts)


def only_element(text: str) -> str:
    """Return the only element, not NULL, of an array in PostgreSQL's text form."""
    inner = text.removeprefix("{").removesuffix("}")
    if not inner.startswith('"'):
        return inner
    characters = iter(inner[1:-1])
    return "".join(next(characters) if character == "\\" else character for character in characters)


def read_catalog_snapshot(lake: Lake, name: TableName) -> CatalogSnapshot | None:
    """Read the saved catalog snapshot of a table; None without one; raises LakeUnusable if the file cannot be read."""

    def read(content: Mapping[str, Any]) -> CatalogSnapshot:
        files = {int(oid): int(file) for oid, file in content["files"].items()}
        return CatalogSnapshot(content["relation"], Lsn.parse(content["lsn"]), content["attributes"], files)

    return read_record(lake.look(name), read, "Remove it; capture writes it again.")


def write_catalog_snapshot(lake: Lake, name: TableName, snapshot: CatalogSnapshot) -> None:
    """Save a catalog snapshot of a table in place of the last one; raises LakeUnusable."""
    files = {str(oid): file for oid, file in sorted(snapshot.files.items())}
    content = {
        "relation": snapshot.relation,
        "lsn": str(snapshot.lsn),
        "attributes": snapshot.attributes,
        "files": files,
    }
    write_record(lake, lake.look(name), content)


def save_first_snapshots(control: psycopg.Connection[Row], lake: Lake, tables: Mapping[TableName, int]) -> None:
    """Save the catalog snapshots of tables (by OID) without a history, before their snapshot."""
    for name, table in _by_name(control, tables).items():
        write_catalog_snapshot(lake, name, table.snapshot)


class CatalogSnapshots:
    """The saved catalog snapshots of one lake's tables."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._last: dict[TableName, CatalogSnapshot | None] = {}

    def refresh(self, control: psycopg.Connection[Row], tables: Mapping[TableName, int]) -> None:
        """Read tables (by OID) with a history; save changed snapshots whose columns the lake knows."""
        found = _by_name(control, tables)
        unread = [name for name in found if name not in self._last]
        saved = read_each(self._lake.root, partial(read_catalog_snapshot, self._lake), unread)
        self._last |= dict(zip(unread, saved, strict=True))
        answers = cache(partial(_answered, self._lake))
        for name, table in found.items():
            before, now = self._last[name], table.snapshot
            if before is not None and _is_same(before, now):
                continue
            since = 0 if before is None or before.relation != now.relation else before.attributes
            later = {column: number for column, number in table.columns.items() if number > since}
            if self._lake_knows(name, now.relation, later, answers):
                write_catalog_snapshot(self._lake, name, now)
                self._last[name] = now

    def _lake_knows(
        self, name: TableName, relation: int, columns: Mapping[str, int], answers: Callable[[], Collection[Added]]
    ) -> bool:
        """Return whether the history has these columns, by number or name, or their missing values are known."""
        history = open_history(self._lake, name)
        if history is None:
            return False
        known = {column.attnum or column.name for column in history.columns}
        if unknown := {c for c, number in columns.items() if number not in known and c not in known}:
            versions = read_versions(self._lake).of_oid(relation)
            answered = {
                (column.name, column.attnum)
                for version in versions
                for column in version.relation.columns
                if Added(relation, column.name, version.lsn) in answers()
            }
            return all((c, columns[c]) in answered or (c, None) in answered for c in unknown)
        return True


def _answered(lake: Lake) -> frozenset[Added]:
    """Return the added columns whose missing values are known."""
    return frozenset(added for added, answer in read_added(lake).items() if answer.problem is None)


def _is_same(one: CatalogSnapshot, other: CatalogSnapshot) -> bool:
    return (one.relation, one.attributes, one.files) == (other.relation, other.attributes, other.files)


def _by_name(control: psycopg.Connection[Row], tables: Mapping[TableName, int]) -> dict[TableName, TableCatalog]:
    names = {relation: name for name, relation in tables.items()}
    return {names[table.snapshot.relation]: table for table in read_catalog_snapshots(control, names)}


class Asker:
    """Asks the source, over a connection of its own, for the missing values of added columns."""

    def __init__(self, conninfo: str, lake: Lake, silence_s: float) -> None:
        self._conninfo = conninfo
        self._lake = lake
        self._silence_s = silence_s

    def __call__(self, questions: Sequence[Question]) -> Sequence[Existing]:
        """Answer each question; raises SourceUnreachable."""
        with connect(self._conninfo) as conn, answering_within(conn, self._silence_s):
            return list(self._answers(conn, questions))

    def _answers(self, conn: psycopg.Connection[Row], questions: Iterable[Question]) -> Iterable[Existing]:
        until = time.monotonic() + VISIBLE_WITHIN_S
        for question in questions:
            added = question.added
            snapshot = read_catalog_snapshot(self._lake, question.table)
            read = partial(read_column, conn, added.relation, added.column)
            found = read_when_visible(read, lambda entry: entry is not None, until)
            before = snapshot if snapshot and snapshot.relation == added.relation else None
            yield decide(before, found, Lsn(added.lsn), question.number)


def read_when_visible(read: Callable[[], _Found], is_visible: Callable[[_Found], bool], until: float) -> _Found:
    """Read the catalog, and again while something is not visible in it, up to a monotonic time.

    A commit that waits for a synchronous standby is in the stream before it is visible. What is never visible, a column
    that was dropped since, may be asked for a thousand times: VISIBLE_WITHIN_S is for all questions about what was
    received before the first one.
    """
    while not is_visible(found := read()) and time.monotonic() < until:
        threading.Event().wait(_POLL_S)
    return found
