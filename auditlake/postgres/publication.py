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

_PUBLICATION = """
select pubinsert and pubupdate and pubdelete and pubtruncate
  from pg_catalog.pg_publication where pubname = %s
"""

_TABLES = "select schemaname::text, tablename::text from pg_catalog.pg_publication_tables where pubname = %s"

# Since 15: a publication may carry only some rows or columns of a table.
_TABLES_15 = """
select t.schemaname::text, t.tablename::text, t.rowfilter is not null, t.attnames::text[]
  from pg_catalog.pg_publication_tables t where t.pubname = %s
"""

_ROW_FILTERS_SINCE = 150000


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table of a publication; `column_names` is None where the server always publishes all of them."""

    name: TableName
    row_filter: bool
    column_names: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Publication:
    """An existing publication; `all_operations` is false where it leaves out insert, update, delete or truncate."""

    name: str
    all_operations: bool
    tables: tuple[PublishedTable, ...]


def read_publication(conn: psycopg.Connection[Row], name: str) -> Publication | None:
    """Read a publication; None where there is none of that name."""
    rows = fetch(conn, _PUBLICATION, name)
    if not rows:
        return None
    (version,) = fetch_one(conn, "select pg_catalog.current_setting('server_version_num')::int")
    if cast("int", version) < _ROW_FILTERS_SINCE:
        tables = [PublishedTable(TableName(str(s), str(t)), False, None) for s, t in fetch(conn, _TABLES, name)]
    else:
        tables = [
            PublishedTable(TableName(str(s), str(t)), bool(row_filter), frozenset(cast("list[str]", columns)))
            for s, t, row_filter, columns in fetch(conn, _TABLES_15, name)
        ]
    return Publication(name, bool(rows[0][0]), tuple(tables))


def create_publication(conn: psycopg.Connection[Row], name: str, tables: Iterable[TableName]) -> None:
    """Create a publication of these tables.

    Raises SourceUnready where PostgreSQL does not allow it.
    """
    listed = sql.SQL(", ").join(sql.Identifier(*table) for table in tables)
    _run(conn, name, sql.SQL("create publication {} for table {}").format(sql.Identifier(name), listed))


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
