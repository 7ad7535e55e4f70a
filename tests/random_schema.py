"""Random tables with random constraints, and random changes of them that PostgreSQL accepts."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg
from psycopg import sql

from auditlake.source.connection import Row
from auditlake.sql_names import standard_identifier as _quoted

_TEXTS = (
    "",
    "NULL",
    "a",
    " a ",
    "it's",
    "back\\slash",
    "\x1b[31mred\x1b[0m",
    "tab\tline\n",
    "é€😀",
    "\u202edrow",
    "{,}",
)
_VALUES: dict[str, tuple[str | None, ...]] = {
    "int": tuple(map(str, range(6))),
    "text": _TEXTS,
    'text collate "C"': _TEXTS,
    "numeric": ("1", "1.0", "1.00", "NaN", "-Infinity", "1e30", "0.1"),
    "numeric(10,2)": ("1.5", "-0.01", "NaN", "99999999.99"),
    "float8": ("0", "-0", "NaN", "Infinity", "1e-7", "0.1", "1e23"),
    "bpchar": ("a", "a ", "a  ", ""),
    "char(4)": ("a", "abcd", ""),
    "bytea": ("\\x", "\\x00ff", "\\x27"),
    "timestamptz": ("infinity", "2026-01-01 00:00:00.1+00", "0044-03-15 10:00:00+00 BC"),
    "date": ("10000-01-01", "2026-02-03", "-infinity"),
    "bool": ("t", "f"),
    "int[]": ("{}", "{1,NULL}", "[0:1]={1,2}", "{{1},{2}}"),
    "jsonb": ('{"a": 1}', '{"a": 1.0}', "null", '"x"'),
    "inet": ("10.0.0.1", "10.0.0.0/8", "::1"),
    "interval": ("1 mon -1 days +00:00:01.5", "P1Y", "-25:00:00"),
    "uuid": ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"),
    "money": ("$1.00", "-$1,234.50"),
    "feeling": ("sad", "O'K", "great"),
    "pair": ("(1,a)", '(,"b ""q"" \\\\")', "(,)"),
    "small": ("1", "2.50"),
}
_WITHOUT_UNIQUE = {"pair"}
SETUP = """
create type feeling as enum ('sad', 'O''K', 'great');
create type pair as (x int, y text);
create domain small as numeric(5,2) check (value < 100);
"""


@dataclass
class Table:
    """A table as it was created; `columns` are those that a statement may set, with their types."""

    name: str
    key: tuple[str, ...]
    columns: dict[str, str] = field(default_factory=dict)
    identity: list[str] = field(default_factory=list)


class RandomSchema:
    """Tables and changes chosen by a seed; `may_fail` if a foreign key's action may stand in the way of a script."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self.tables: list[Table] = []
        self.may_fail = False

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """The tables and their keys."""
        return {table.name: table.key for table in self.tables}

    def ddl(self) -> Iterator[str]:
        """Return the statements that create the tables."""
        yield SETUP
        for number in range(self._chance.randint(1, 3)):
            yield from self._table(number)

    def _table(self, number: int) -> Iterator[str]:
        chance = self._chance
        keyed = chance.random() < 0.75
        kind = chance.choice(("plain", "plain", "plain", "partitioned", "inherited"))
        table = Table(f"T {number}" if chance.random() < 0.3 else f"t{number}", ("id",) if keyed else ())
        parts = ["id int primary key" if keyed else "id int"]
        table.columns["id"] = "int"
        for place in range(chance.randint(1, 4)):
            name, column = f"c{place}" if place else 'C "0"', chance.choice(list(_VALUES))
            table.columns[name] = column
            parts.append(f"{_quoted(name)} {column}{self._constraint(column, kind)}")
        if chance.random() < 0.3:
            parts.append("g text generated always as (id * 2 || 'x') stored")
        if chance.random() < 0.3 and kind == "plain":
            parts.append(f"i int generated {chance.choice(('always', 'by default'))} as identity")
            table.identity.append("i")
        if kind == "plain":
            parts += self._references(table)
        name = _quoted(table.name)
        yield f"create table {name} ({', '.join(parts)}){' partition by hash (id)' if kind == 'partitioned' else ''}"
        self.tables.append(table)
        if kind == "partitioned":
            for rest in range(2):
                partition = _quoted(f"{table.name} {rest}")
                yield f"create table {partition} partition of {name} for values with (modulus 2, remainder {rest})"
        if kind == "inherited":
            child = Table(f"{table.name} child", (), dict(table.columns))
            yield f"create table {_quoted(child.name)} () inherits ({name})"
            self.tables.append(child)

    def _constraint(self, column: str, kind: str) -> str:
        choice = self._chance.random()
        if kind == "partitioned" or column in _WITHOUT_UNIQUE or choice > 0.4:
            return ""
        return " unique" if choice < 0.3 else " unique deferrable"

    def _references(self, table: Table) -> Iterator[str]:
        parents = [each for each in self.tables if each.key] + ([table] if table.key else [])
        if not parents or self._chance.random() < 0.3:
            return
        parent = self._chance.choice(parents)
        action = self._chance.choice(("no action", "no action", "restrict", "cascade", "set null"))
        timing = self._chance.choice(("", "", " deferrable", " deferrable initially deferred"))
        self.may_fail |= action != "no action"
        table.columns["p"] = "int"
        yield f"p int references {_quoted(parent.name)} on delete {action} on update cascade{timing}"

    def change(self, conn: psycopg.Connection[Row], count: int) -> None:
        """Make changes; what a constraint refuses is left out."""
        for _ in range(count):
            refused = "exception when integrity_constraint_violation then null;"
            conn.execute(
                f"do $change$ begin {self._statement()}; set constraints all immediate; {refused} end $change$".encode()
            )

    def _statement(self) -> str:
        table = self._chance.choice(self.tables)
        name = f"public.{_quoted(table.name)}"
        chosen = f"id = {self._chance.randrange(6)}"
        match self._chance.randrange(8):
            case 0 | 1 | 2:
                values = {column: self._value(kind) for column, kind in table.columns.items()}
                return f"insert into {name} ({', '.join(map(_quoted, values))}) values ({', '.join(values.values())})"
            case 3:
                return f"delete from {name} where {chosen}"
            case 4 if table.identity:
                return f"update {name} set i = default where {chosen}"
            case 5:
                return f"update {name} set id = {self._chance.randrange(6)} where {chosen}"
            case 6:
                return self._swap(table, name)
            case _:
                column = self._chance.choice(list(table.columns))
                return f"update {name} set {_quoted(column)} = {self._value(table.columns[column])} where {chosen}"

    def _swap(self, table: Table, name: str) -> str:
        """Exchange the values of two rows, also those of a unique column."""
        column = self._chance.choice(list(table.columns))
        kind, quoted = table.columns[column].removesuffix(' collate "C"'), _quoted(column)
        one, other = self._chance.sample(range(6), 2)
        return (
            f"declare a {kind}; b {kind}; begin"
            f" a := (select {quoted} from {name} where id = {one} limit 1);"
            f" b := (select {quoted} from {name} where id = {other} limit 1);"
            f" update {name} set {quoted} = null where id = {one}; update {name} set {quoted} = a where id = {other};"
            f" update {name} set {quoted} = b where id = {one}; end"
        )

    def _value(self, kind: str) -> str:
        if self._chance.random() < 0.15:
            return "null"
        return str(sql.Literal(self._chance.choice(_VALUES[kind])).as_string())
