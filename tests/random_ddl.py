"""Random schema changes of every kind, and rows between them, by one session in two schemas of its own.

What a step does depends on the seed and on the catalog, so tables, columns and names are reused: a column may get the
name of a dropped one, a table that of a renamed one. A step is one transaction with one to four changes, or one
statement that cannot be in a transaction; some are rolled back. What PostgreSQL refuses is counted and left out.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from auditlake.sql_names import standard_identifier as quoted

Conn = psycopg.Connection[Any]
SCHEMAS = ("shapes", "others")
ERASED = "erased"
"""The schema of the tables from which a campaign removes rows."""
_TABLES = 7
_COLUMNS = ("a", "b", "c", "d", "E f")
_NAMES = ("t1", "t2", "t3", "t4", "t5", "t6", "t7", "Odd 8")
_TYPES = (
    "smallint", "int", "bigint", "text", "varchar(20)", "varchar(60)", "numeric(10,2)", "date", "boolean",
    "shapes.mood", "shapes.pair", "shapes.small",
)  # fmt: skip
_LONG = "x" * 3000
_OUTSIDE, _ROLLED_BACK, _ROWS_BETWEEN = 0.05, 0.12, 0.6
_NULL, _STORED_APART = 0.15, 0.1
_TRIES = 8
_GIVEN_UP = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)

SETUP = """
create schema shapes; create schema others;
create type shapes.mood as enum ('sad', 'ok');
create type shapes.pair as (a int, b text);
create domain shapes.small as int;
create table shapes.t1 (id int primary key, a text, b int, c varchar(20));
alter table shapes.t1 alter a set storage external;
create table shapes.t2 (id int primary key, a shapes.mood, b shapes.pair, c shapes.small);
create table shapes.t3 (id int, a text, b int);
alter table shapes.t3 replica identity full;
create table shapes.t4 (id int primary key, a text, b numeric(10,2)) partition by range (id);
create table shapes.t4_0 partition of shapes.t4 for values from (0) to (10);
create table shapes.t4_1 partition of shapes.t4 for values from (10) to (20);
create table shapes.t4_rest partition of shapes.t4 default;
insert into shapes.t1 select n, 'row ' || n, n, 'c' from generate_series(0, 12) n;
insert into shapes.t2 select n, 'sad', (n, 'x')::shapes.pair, n from generate_series(0, 12) n;
insert into shapes.t3 select n % 4, 'bag', n % 2 from generate_series(0, 12) n;
insert into shapes.t4 select n, 'part', n from generate_series(0, 29) n;
"""
_LISTED = """
select relnamespace::regnamespace::text, relname, relkind = 'p', oid,
       coalesce((select indkey::int2[] from pg_index where indrelid = c.oid and indisprimary), '{}'), relpersistence
  from pg_class c
 where relkind in ('r', 'p') and not relispartition and relnamespace::regnamespace::text = any(%s) order by 1, 2
"""
_COLUMNS_OF = """
select attname, format_type(atttypid, atttypmod), attnum, attnotnull, attgenerated <> '' or attidentity <> ''
  from pg_attribute where attrelid = %s and attnum > 0 and not attisdropped order by attnum
"""
_LEAVES = """
select quote_ident(relnamespace::regnamespace::text) || '.' || quote_ident(relname), pg_get_expr(relpartbound, oid)
  from pg_class join pg_inherits on inhrelid = oid where inhparent = %s order by relname
"""


@dataclass(frozen=True)
class Column:
    """A column as the catalog shows it; `made` by the server, so that it cannot be set."""

    name: str
    type: str
    attnum: int
    not_null: bool
    made: bool

    @property
    def sql(self) -> str:
        return quoted(self.name)


@dataclass(frozen=True)
class Table:
    """A table as the catalog shows it."""

    schema: str
    table: str
    partitioned: bool
    oid: int
    key: tuple[int, ...]
    unlogged: bool
    columns: tuple[Column, ...]

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.table)}"

    @property
    def plain(self) -> list[Column]:
        """The columns that are neither key nor made by the server."""
        return [each for each in self.columns if each.attnum not in self.key and not each.made and each.name != "id"]


class Inapplicable(Exception):
    """A change that the chosen table cannot have."""


Change = Callable[["RandomDdl", Table], str]


class RandomDdl:
    """Changes by one session; `made` counts those that were committed, by kind."""

    def __init__(self, conn: Conn, chance: random.Random) -> None:
        self._conn = conn
        self._chance = chance
        self._serial = 0
        self.made: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.rolled_back = 0

    def use(self, conn: Conn) -> None:
        """Continue on another connection."""
        self._conn = conn

    def step(self) -> str:
        """Make one step; return what it did."""
        if self._chance.random() < _OUTSIDE:
            return self._outside()
        done: list[str] = []
        kinds: list[str] = []
        undo = self._chance.random() < _ROLLED_BACK
        try:
            with self._conn.transaction():
                self._rows(done)
                for _ in range(self._chance.choice((0, 1, 1, 1, 1, 2, 3, 4))):
                    kinds += self._change(done)
                    if self._chance.random() < _ROWS_BETWEEN:
                        self._rows(done)
                if undo:
                    raise psycopg.Rollback
        except _GIVEN_UP as exc:
            self.refused[type(exc).__name__] += 1
            return f"nothing: {type(exc).__name__}"
        if undo:
            self.rolled_back += 1
            return f"rolled back: {'; '.join(done)}"
        self.made.update(kinds)
        return "; ".join(done)

    def _change(self, done: list[str]) -> list[str]:
        """Make one change; return its kind, or nothing if PostgreSQL accepts none of a few."""
        for _ in range(_TRIES):
            kind, change = self._chance.choice(_CHANGES)
            try:
                statement = change(self, self._table())
            except Inapplicable:
                continue
            if self._is_accepted(statement, kind):
                done.append(statement)
                return [kind]
        return []

    def _is_accepted(self, statement: str, kind: str) -> bool:
        try:
            with self._conn.transaction():
                self._conn.execute(statement.encode())
        except _GIVEN_UP:
            raise
        except psycopg.Error as exc:
            if exc.sqlstate is None or exc.sqlstate[:2] in {"57", "08"}:
                raise
            self.refused[f"{kind}: {type(exc).__name__}"] += 1
            return False
        return True

    def _outside(self) -> str:
        """Run a statement that must be alone, or two transactions that undo each other."""
        table = self._table()
        kind, statements = self._chance.choice((
            ("vacuum full", [f"vacuum full {table.sql}"]),
            ("cluster", [f"cluster {table.sql} using {quoted(table.table + '_pkey')}"]),
            ("unlogged and back", [f"alter table {table.sql} set unlogged", f"alter table {table.sql} set logged"]),
        ))  # fmt: skip
        made = 0
        for statement in statements:
            try:
                self._conn.execute(statement.encode())
                made += 1
            except psycopg.Error as exc:
                if exc.sqlstate is None or exc.sqlstate[:2] in {"57", "08"}:
                    raise
                self.refused[f"{kind}: {type(exc).__name__}"] += 1
        self.made[kind] += made == len(statements)
        return "; ".join(statements)

    def tables(self) -> list[Table]:
        """Return the tables of the schemas, without partitions."""
        listed = self._conn.execute(_LISTED, [list(SCHEMAS)]).fetchall()
        return [
            Table(schema, table, partitioned, oid, tuple(key), persistence == "u", tuple(self._columns(oid)))
            for schema, table, partitioned, oid, key, persistence in listed
        ]

    def _columns(self, oid: int) -> Iterator[Column]:
        yield from (Column(*row) for row in self._conn.execute(_COLUMNS_OF, [oid]).fetchall())

    def _table(self) -> Table:
        return self._chance.choice(self.tables())

    # Rows.

    def _rows(self, done: list[str]) -> None:
        for _ in range(self._chance.randint(0, 3)):
            table = self._table()
            statement = self._row(table)
            if self._is_accepted(statement, "row"):
                done.append(f"{statement.split(' ')[0]} {table.table}")

    def _row(self, table: Table) -> str:
        chance, settable = self._chance, [each for each in table.columns if not each.made]
        if not settable:
            return f"insert into {table.sql} default values"
        first = settable[0]
        some = f"{first.sql} = (select {first.sql} from {table.sql} order by {first.sql}::text limit 1 offset {{}})"
        chosen = some.format(chance.randrange(6))
        match chance.randrange(8):
            case 0 | 1 | 2:
                columns = ", ".join(each.sql for each in settable)
                values = ", ".join(self._value(each) for each in settable)
                return f"insert into {table.sql} ({columns}) values ({values}) on conflict do nothing"
            case 3 | 4 | 5:
                column = chance.choice(settable)
                return f"update {table.sql} set {column.sql} = {self._value(column)} where {chosen}"
            case 6:
                return f"delete from {table.sql} where {chosen}"
            case _:
                column = chance.choice(settable)
                return f"update {table.sql} set {column.sql} = {column.sql}"

    def _value(self, column: Column) -> str:
        if not column.not_null and self._chance.random() < _NULL:
            return "null"
        number = self._chance.randrange(30)
        kind = column.type.split("(")[0].split(".")[-1]
        if kind == "mood":
            labels = "select enumlabel from pg_enum where enumtypid = 'shapes.mood'::regtype"
            return f"({labels} order by enumsortorder offset {number % 2} limit 1)::shapes.mood"
        if kind == "pair":
            return f"'({','.join([str(number)] * len(self._attributes()))})'::shapes.pair"
        long = _LONG if kind == "text" and self._chance.random() < _STORED_APART else ""
        return {
            "text": f"'{long}text {number}'",
            "character varying": f"'v {number}'",
            "numeric": f"{number}.25",
            "date": f"date '2026-11-22' + {number}",
            "boolean": "true" if number % 2 else "false",
        }.get(kind, str(number))

    def _attributes(self) -> list[str]:
        found = self._conn.execute(
            "select attname from pg_attribute where attrelid = 'shapes.pair'::regclass and attnum > 0"
            " and not attisdropped order by attnum"
        )
        return [str(name) for (name,) in found.fetchall()]

    # Changes. Each returns a statement for a table.

    def _free_column(self, table: Table) -> str:
        taken = {each.name for each in table.columns}
        free = [name for name in _COLUMNS if name not in taken]
        if not free:
            raise Inapplicable
        return quoted(self._chance.choice(free))

    def _free_name(self, schema: str) -> str:
        taken = {each.table for each in self.tables() if each.schema == schema}
        free = [name for name in _NAMES if name not in taken]
        if not free:
            raise Inapplicable
        return quoted(self._chance.choice(free))

    def _some(self, table: Table, *types: str) -> Column:
        fitting = [each for each in table.plain if not types or each.type in types]
        if not fitting:
            raise Inapplicable
        return self._chance.choice(fitting)

    def add(self, table: Table) -> str:
        return f"alter table {table.sql} add {self._free_column(table)} {self._chance.choice(_TYPES)}"

    def add_constant(self, table: Table) -> str:
        what = self._chance.choice(
            ("int default 5", "text default 'added'", "numeric(10,2) default 1.50", "date default '2026-01-01'")
        )
        return f"alter table {table.sql} add {self._free_column(table)} {what} not null"

    def add_volatile(self, table: Table) -> str:
        return f"alter table {table.sql} add {self._free_column(table)} int default (random() * 1000)::int"

    def add_identity(self, table: Table) -> str:
        return f"alter table {table.sql} add {self._free_column(table)} int generated by default as identity"

    def add_generated(self, table: Table) -> str:
        base = self._some(table, "integer")
        made = f"generated always as ({base.sql} * 2) stored"
        return f"alter table {table.sql} add {self._free_column(table)} int {made}"

    def add_two(self, table: Table) -> str:
        return f"{self.add(table)}; {self.add_constant(table)}"

    def drop(self, table: Table) -> str:
        return f"alter table {table.sql} drop {self._some(table).sql} cascade"

    def drop_first(self, table: Table) -> str:
        if not table.columns:
            raise Inapplicable
        return f"alter table {table.sql} drop {table.columns[0].sql} cascade"

    def drop_and_add(self, table: Table) -> str:
        column = self._some(table)
        kind = self._chance.choice((column.type, "text", "int default 7"))
        return f"alter table {table.sql} drop {column.sql} cascade, add {column.sql} {kind}"

    def rename_column(self, table: Table) -> str:
        if not table.columns:
            raise Inapplicable
        column = self._chance.choice(table.columns)
        return f"alter table {table.sql} rename {column.sql} to {self._free_column(table)}"

    def swap_columns(self, table: Table) -> str:
        if len(table.plain) < 2:
            raise Inapplicable
        one, other = self._chance.sample(table.plain, 2)
        rename = f"alter table {table.sql} rename"
        return f'{rename} {one.sql} to "x y"; {rename} {other.sql} to {one.sql}; {rename} "x y" to {other.sql}'

    def longer(self, table: Table) -> str:
        column = self._some(table, "character varying(20)", "character varying(60)", "numeric(10,2)")
        kind = "numeric(14,2)" if column.type.startswith("numeric") else self._chance.choice(("varchar(60)", "text"))
        return f"alter table {table.sql} alter {column.sql} type {kind}"

    def wider(self, table: Table) -> str:
        column = self._some(table, "smallint", "integer")
        return f"alter table {table.sql} alter {column.sql} type {'int' if column.type == 'smallint' else 'bigint'}"

    def using(self, table: Table) -> str:
        column = self._some(table, "smallint", "integer", "bigint")
        return f"alter table {table.sql} alter {column.sql} type {column.type} using {column.sql} + 1"

    def narrower(self, table: Table) -> str:
        column = self._some(table, "text", "character varying(60)", "bigint", "integer")
        if column.type in {"bigint", "integer"}:
            return f"alter table {table.sql} alter {column.sql} type smallint using ({column.sql} % 1000)::smallint"
        return f"alter table {table.sql} alter {column.sql} type varchar(20) using left({column.sql}, 5)"

    def other_kind(self, table: Table) -> str:
        column = self._some(table)
        return f"alter table {table.sql} alter {column.sql} type text using {column.sql}::text"

    def wider_key(self, table: Table) -> str:
        key = [each for each in table.columns if each.attnum in table.key and each.type == "integer"]
        if not key:
            raise Inapplicable
        return f"alter table {table.sql} alter {key[0].sql} type bigint"

    def constraints(self, table: Table) -> str:
        column = self._some(table)
        what = self._chance.choice(
            (
                "drop default",
                "set not null",
                "drop not null",
                "set default null",
                "set storage plain",
                "set statistics 9",
            )
        )
        return f"alter table {table.sql} alter {column.sql} {what}"

    def check(self, table: Table) -> str:
        return f"alter table {table.sql} add check ({self._some(table).sql} is not null or true)"

    def unique(self, table: Table) -> str:
        self._serial += 1
        return f"create unique index u{self._serial} on {table.sql} ({', '.join(c.sql for c in table.columns[:2])})"

    def comment(self, table: Table) -> str:
        return f"comment on table {table.sql} is 'a table'"

    def key(self, table: Table) -> str:
        if not table.key or table.partitioned:
            raise Inapplicable
        old = [each.sql for each in table.columns if each.attnum in table.key]
        other = self._chance.choice((*(each for each in table.columns if each.not_null), self._some(table)))
        new = [*old, other.sql] if self._chance.random() < 0.6 else [other.sql]
        fill = "" if other.not_null else f"update {table.sql} set {other.sql} = {self._value(_filled(other))}"
        fill = f"{fill} where {other.sql} is null; " if fill else ""
        dropped = (
            "select format('alter table %s drop constraint %I', conrelid::regclass, conname)"
            f" from pg_constraint where conrelid = {table.oid} and contype = 'p'"
        )
        add = f"add primary key ({', '.join(dict.fromkeys(new))})"
        if self._chance.random() < 0.5:  # in one command, the table is never without a key
            literal = f", {add}".replace("'", "''")
            return f"{fill}do $$ begin execute ({dropped}) || '{literal}'; end $$"
        return f"{fill}do $$ begin execute ({dropped}); end $$; alter table {table.sql} {add}"

    def replica_identity(self, table: Table) -> str:
        what = self._chance.choice(("full", "default")) if table.key else "full"
        return f"alter table {table.sql} replica identity {what}"

    def rename(self, table: Table) -> str:
        return f"alter table {table.sql} rename to {self._free_name(table.schema)}"

    def swap_tables(self, table: Table) -> str:
        beside = [each for each in self.tables() if each.schema == table.schema and each.oid != table.oid]
        if not beside:
            raise Inapplicable
        other = self._chance.choice(beside)
        schema = quoted(table.schema)
        return (
            f"alter table {table.sql} rename to aside; alter table {other.sql} rename to {quoted(table.table)};"
            f" alter table {schema}.aside rename to {quoted(other.table)}"
        )

    def set_schema(self, table: Table) -> str:
        return f"alter table {table.sql} set schema {'others' if table.schema == 'shapes' else 'shapes'}"

    def drop_table(self, table: Table) -> str:
        if len(self.tables()) < 5:
            raise Inapplicable
        return f"drop table {table.sql}"

    def recreate(self, table: Table) -> str:
        return f"drop table {table.sql}; {self._create(table.sql)}"

    def create(self, _: Table) -> str:
        if len(self.tables()) >= _TABLES:
            raise Inapplicable
        schema = self._chance.choice(SCHEMAS)
        return self._create(f"{schema}.{self._free_name(schema)}")

    def _create(self, name: str) -> str:
        columns = ", ".join(f"{quoted(c)} {self._chance.choice(_TYPES)}" for c in self._chance.sample(_COLUMNS, 2))
        fill = f"insert into {name} (id) values (1), (2), (3)"
        return f"create table {name} (id int primary key, {columns}); {fill}"

    def create_as(self, table: Table) -> str:
        if len(self.tables()) >= _TABLES:
            raise Inapplicable
        name = f"{quoted(table.schema)}.{self._free_name(table.schema)}"
        numbered = f"select (row_number() over ())::int as id, t.{self._some(table).sql} from {table.sql} t"
        return f"create table {name} as {numbered}; alter table {name} add primary key (id)"

    def unlogged(self, table: Table) -> str:
        return f"alter table {table.sql} set {'logged' if table.unlogged else 'unlogged'}"

    def truncate(self, table: Table) -> str:
        return f"truncate {table.sql}"

    def add_label(self, _: Table) -> str:
        self._serial += 1
        return f"alter type shapes.mood add value 'label {self._serial}'"

    def rename_label(self, _: Table) -> str:
        self._serial += 1
        row = self._conn.execute(
            "select enumlabel from pg_enum where enumtypid = 'shapes.mood'::regtype order by enumsortorder limit 1"
        ).fetchone()
        return f"alter type shapes.mood rename value '{row[0] if row else ''}' to 'renamed {self._serial}'"

    def composite(self, _: Table) -> str:
        self._serial += 1
        attributes = self._attributes()
        if len(attributes) > 2 and self._chance.random() < 0.5:
            return f"alter type shapes.pair drop attribute {attributes[-1]}"
        return f"alter type shapes.pair add attribute n{self._serial} int"

    def domain(self, _: Table) -> str:
        self._serial += 1
        return f"alter domain shapes.small add constraint c{self._serial} check (value < 100000)"

    def _partitioned(self) -> Table:
        found = [each for each in self.tables() if each.partitioned]
        if not found:
            raise Inapplicable
        return self._chance.choice(found)

    def _leaf(self, root: Table) -> tuple[str, str]:
        leaves = self._conn.execute(_LEAVES, [root.oid]).fetchall()
        if not leaves:
            raise Inapplicable
        name, bounds = self._chance.choice(leaves)
        return str(name), str(bounds)

    def create_leaf(self, _: Table) -> str:
        self._serial += 1
        root, low = self._partitioned(), self._chance.randrange(2, 60) * 10
        name = f"{quoted(root.schema)}.leaf_{self._serial}"
        return f"create table {name} partition of {root.sql} for values from ({low}) to ({low + 10})"

    def attach(self, _: Table) -> str:
        self._serial += 1
        root, low = self._partitioned(), self._chance.randrange(60, 100) * 10
        name = f"{quoted(root.schema)}.attached_{self._serial}"
        first = next(each for each in root.columns if each.attnum in root.key or each.name == "id")
        return (
            f"create table {name} (like {root.sql} including defaults);"
            f" insert into {name} ({first.sql}) values ({low}), ({low + 1});"
            f" alter table {root.sql} attach partition {name} for values from ({low}) to ({low + 10})"
        )

    def attach_existing(self, _: Table) -> str:
        root, low = self._partitioned(), self._chance.randrange(100, 140) * 10
        alone = [each for each in self.tables() if not each.partitioned and len(each.columns) == len(root.columns)]
        if not alone:
            raise Inapplicable
        other = self._chance.choice(alone).sql
        bounds = f"for values from ({low}) to ({low + 10})"
        return f"delete from {other}; alter table {root.sql} attach partition {other} {bounds}"

    def detach(self, _: Table) -> str:
        root = self._partitioned()
        return f"alter table {root.sql} detach partition {self._leaf(root)[0]}"

    def drop_leaf(self, _: Table) -> str:
        return f"drop table {self._leaf(self._partitioned())[0]}"

    def truncate_leaf(self, _: Table) -> str:
        return f"truncate {self._leaf(self._partitioned())[0]}"

    def create_partitioned(self, _: Table) -> str:
        if len(self.tables()) >= _TABLES or any(each.partitioned for each in self.tables()):
            raise Inapplicable
        name = f"shapes.{self._free_name('shapes')}"
        self._serial += 1
        return (
            f"create table {name} (id int primary key, a text) partition by range (id);"
            f" create table shapes.rest_{self._serial} partition of {name} default;"
            f" insert into {name} values (1, 'x'), (2, 'y')"
        )


def _filled(column: Column) -> Column:
    return Column(column.name, column.type, column.attnum, not_null=True, made=False)


_OFTEN = (
    "add", "add_constant", "add_two", "drop", "drop_and_add", "rename_column", "swap_columns", "longer", "wider", "key",
    "replica_identity", "rename", "constraints", "create_leaf", "truncate",
)  # fmt: skip
_SELDOM = (
    "add_volatile", "add_identity", "add_generated", "using", "narrower", "other_kind", "wider_key", "check", "unique",
    "comment", "set_schema", "create", "create_as", "add_label", "rename_label", "composite", "domain", "attach",
    "attach_existing", "detach", "drop_leaf", "truncate_leaf", "create_partitioned", "drop_table", "recreate",
    "unlogged", "drop_first", "swap_tables",
)  # fmt: skip
_CHANGES: list[tuple[str, Change]] = [
    (name.replace("_", " "), getattr(RandomDdl, name)) for name in (*_OFTEN, *_OFTEN, *_OFTEN, *_SELDOM)
]
