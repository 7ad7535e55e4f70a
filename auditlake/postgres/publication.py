"""The publication: which tables' changes the slot carries.

It must exist before the slot: a slot older than its publication fails at its first change and never gets past it. One
that we create lists its tables by name, because FOR ALL TABLES would also catch tables without a replica identity and
make the application's UPDATE and DELETE on them fail.

Authority: postgresql.org/docs/current/sql-createpublication.html
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import psycopg
from psycopg import sql

from auditlake.errors import SourceUnready
from auditlake.postgres.connection import Row, fetch, fetch_one
from auditlake.relation import TableName

# What later versions added reads as nothing where it is not there.
_PUBLICATION = """
select pubinsert and pubupdate and pubdelete and pubtruncate,
       pubviaroot,
       coalesce(pg_catalog.to_jsonb(p) ->> 'pubgencols', 'n') = 's',
       pg_catalog.current_setting('server_version_num')::int
  from pg_catalog.pg_publication p where pubname = %s
"""

_TABLES = """
select t.schemaname::text, t.tablename::text,
       pg_catalog.to_jsonb(t) ->> 'rowfilter', pg_catalog.to_jsonb(t) -> 'attnames'
  from pg_catalog.pg_publication_tables t where t.pubname = %s
"""

STORED_GENERATED_SINCE = 180000
"""Before it the columns of a publication may name generated ones, but the stream has none."""


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table of a publication.

    `row_filter` is SQL, None for all rows; `column_names` is None where the server always publishes all of them.
    """

    name: TableName
    row_filter: str | None = None
    column_names: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """An existing publication; `all_operations` is false where it leaves out insert, update, delete or truncate.

    `via_root`: changes of a partition come under the partitioned table that is published. `stored_generated`: it
    carries stored generated columns.
    """

    name: str
    all_operations: bool
    via_root: bool
    stored_generated: bool
    tables: tuple[PublishedTable, ...]


def read_publication(conn: psycopg.Connection[Row], name: str) -> Publication | None:
    """Read a publication; None where there is none of that name."""
    rows = fetch(conn, _PUBLICATION, name)
    if not rows:
        return None
    all_operations, via_root, stored, version = rows[0]
    can_store = cast("int", version) >= STORED_GENERATED_SINCE
    tables = tuple(_published(row) for row in fetch(conn, _TABLES, name))
    return Publication(name, bool(all_operations), bool(via_root), can_store and bool(stored), tables)


def _published(row: Row) -> PublishedTable:
    schema, table, row_filter, columns = row
    names = None if columns is None else frozenset(cast("list[str]", columns))
    return PublishedTable(TableName(str(schema), str(table)), None if row_filter is None else str(row_filter), names)


def create_publication(conn: psycopg.Connection[Row], name: str, tables: Iterable[TableName]) -> None:
    """Create a publication of these tables: partitioned ones as one table, with all columns that can be carried.

    Raises SourceUnready where PostgreSQL does not allow it.
    """
    listed = sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
    options = "publish_via_partition_root = true"
    if can_carry_stored(conn):
        options += ", publish_generated_columns = stored"
    statement = sql.SQL("create publication {} for table {} with ({})")
    _run(conn, name, statement.format(sql.Identifier(name), listed, sql.SQL(options)))


def can_carry_stored(conn: psycopg.Connection[Row]) -> bool:
    """Whether this server can publish stored generated columns."""
    (version,) = fetch_one(conn, "select pg_catalog.current_setting('server_version_num')::int")
    return cast("int", version) >= STORED_GENERATED_SINCE


def add_tables(conn: psycopg.Connection[Row], name: str, tables: Iterable[TableName]) -> None:
    """Add tables to a publication; only changes made afterwards are carried."""
    listed = sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
    _run(conn, name, sql.SQL("alter publication {} add table {}").format(sql.Identifier(name), listed))


def drop_publication(conn: psycopg.Connection[Row], name: str) -> None:
    """Drop a publication if it is there."""
    _run(conn, name, sql.SQL("drop publication if exists {}").format(sql.Identifier(name)))


def _run(conn: psycopg.Connection[Row], name: str, statement: sql.Composed) -> None:
    try:
        conn.execute(statement)
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectNotInPrerequisiteState) as exc:
        raise SourceUnready(
            f"publication {name} cannot be changed: {exc.diag.message_primary}",
            "Run it as the owner of the tables with CREATE on the database, or create the publication beforehand.",
        ) from exc
