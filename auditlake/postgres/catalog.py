"""Tables as the catalog knows them: shape, identity and size.

`read_tables` gives what the Relation message will give, so that the two can be compared. Read under a lock it stays
true for as long as the lock is held. It does not decide whether a table can be taken: `check` does.

Authority: postgresql.org/docs/current/catalogs.html; logicalreplication-publication.html, "Replica Identity"
"""

from dataclasses import dataclass
from typing import cast

import psycopg

from auditlake.pgtypes import base_type
from auditlake.postgres.connection import Row, fetch
from auditlake.relation import Column, Relation, TableName

_TABLES = """
select c.oid::bigint, n.nspname::text, c.relname::text, c.relreplident::text, c.relkind::text, c.relispartition,
       pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::int,
       greatest(c.reltuples, 0)::bigint,
       pg_catalog.has_table_privilege(c.oid, 'select') and pg_catalog.has_schema_privilege(n.oid, 'usage'),
       pg_catalog.pg_has_role(c.relowner, 'usage')
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where c.relkind in ('r', 'p') and c.relpersistence = 'p'
   and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'
 order by n.nspname, c.relname
"""

# The key: the primary key under DEFAULT and FULL, the chosen index under USING INDEX. A deferrable primary key is no
# replica identity (relcache.c, RelationGetIndexList), and under FULL two rows may share it inside a transaction. What
# an index only INCLUDEs is no part of its key.
_COLUMNS = """
select a.attrelid::bigint, a.attname::text, a.atttypid::bigint, a.atttypmod,
       coalesce(a.attnum = any ((i.indkey::int2[])[0 : i.indnkeyatts - 1]), false), a.attgenerated <> '',
       b.nspname::text, b.typname::text
  from pg_catalog.pg_attribute a
  left join lateral (
    with recursive base as (
      select t.* from pg_catalog.pg_type t where t.oid = a.atttypid
      union all
      select t.* from base join pg_catalog.pg_type t on base.typtype = 'd' and t.oid = base.typbasetype)
    select n.nspname, base.typname
      from base join pg_catalog.pg_namespace n on n.oid = base.typnamespace where base.typtype <> 'd'
  ) b on true
  join pg_catalog.pg_class c on c.oid = a.attrelid
  left join pg_catalog.pg_index i
    on i.indrelid = c.oid
   and case c.relreplident when 'i' then i.indisreplident
                           when 'd' then i.indisprimary and i.indimmediate
                           when 'f' then i.indisprimary and i.indimmediate
                           else false end
 where a.attrelid = any (%s::oid[]) and a.attnum > 0 and not a.attisdropped
 order by a.attrelid, a.attnum
"""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """One table of the source. `pages` is its true size in blocks, `row_estimate` the planner's guess."""

    relation: Relation
    generated: tuple[str, ...]
    partitioned: bool
    partition: bool
    pages: int
    row_estimate: int
    readable: bool
    owned: bool

    @property
    def name(self) -> TableName:
        return self.relation.name


def read_tables(conn: psycopg.Connection[Row]) -> tuple[CatalogTable, ...]:
    """Read every permanent user table, ordered by schema and name; generated columns are kept apart."""
    rows = fetch(conn, _TABLES)
    columns: dict[int, list[Column]] = {cast("int", row[0]): [] for row in rows}
    generated: dict[int, list[str]] = {oid: [] for oid in columns}
    for oid, name, type_oid, typmod, key, is_generated, *base in fetch(conn, _COLUMNS, list(columns)):
        if is_generated:
            generated[cast("int", oid)].append(str(name))
        else:
            decisive = base_type(cast("int", type_oid), str(base[0]), str(base[1]))
            column = Column(str(name), decisive, cast("int", typmod), bool(key))
            columns[cast("int", oid)].append(column)
    return tuple(
        _table(row, tuple(columns[oid]), tuple(generated[oid])) for row in rows for oid in [cast("int", row[0])]
    )


def _table(row: Row, columns: tuple[Column, ...], generated: tuple[str, ...]) -> CatalogTable:
    oid, schema, table, replica_identity, kind, is_partition, pages, estimate, readable, owned = row
    return CatalogTable(
        relation=Relation(cast("int", oid), TableName(str(schema), str(table)), str(replica_identity), columns),
        generated=generated,
        partitioned=kind == "p",
        partition=bool(is_partition),
        pages=cast("int", pages),
        row_estimate=cast("int", estimate),
        readable=bool(readable),
        owned=bool(owned),
    )
