"""Migrations of a real application as a workload: run them one by one beneath `follow`, then compare.

    python -m tests.torture.migrations --python PYTHON (--django SETTINGS | --alembic SCRIPTS) [--prepare CODE]
                                       [--env NAME=VALUE]... [--seed N] [--no-trigger] [--no-spark] [--keep FOLDER]

PYTHON is the interpreter of an environment that has the application; `migration_driver.py` runs there. In a VALUE,
`{address}` is `user:password@host:port/database`.

1. The application's migrations run in their order. After each, rows are inserted, updated and deleted in the tables
   that it created or changed and in an eighth of the others, as far as the application itself leaves them empty. So
   every schema change meets rows from before and after it.
2. A migration may refuse such rows (a new unique constraint, a cast). They are deleted then, and it runs again. If it
   fails without them, the run ends: it has shown nothing.
3. `follow` copies new tables before the next migration. After each, every table is recorded with the LSN.
4. `verify`, the comparison and the exit code are those of `regression.py`.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from auditlake.source.connection import connect
from tests.server import SUPERUSER, Server
from tests.torture.regression import Campaign, Mode, Step, run_steps

_DRIVER = Path(__file__).parent / "migration_driver.py"
_ROWS = 3
_OTHER_TABLES = 1 / 8
_COLUMNS = """
select c.oid::bigint, nspname, relname, a.attname, t.typcategory, t.typname, a.atttypmod, a.attnotnull, t.oid::bigint,
       coalesce(a.attnum = any(i.indkey), false)
  from pg_class c join pg_namespace n on n.oid = relnamespace
  join pg_attribute a on a.attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = ''
  join pg_type t on t.oid = a.atttypid
  left join pg_index i on i.indrelid = c.oid and i.indisprimary
 where relkind in ('r', 'p') and not relispartition and nspname !~ '^(pg_|information_schema$|auditlake$|testbed$)'
 order by 2, 3, attnum
"""
_LABELS = "select enumlabel from pg_enum where enumtypid = %s order by enumsortorder"
_LONGEST_TEXT, _TEXT_HEADER = 24, 4


@dataclass(frozen=True)
class Column:
    """A column that rows are made for; `in_key` if it belongs to the primary key."""

    name: str
    category: str
    type_name: str
    modifier: int
    required: bool
    type_oid: int
    in_key: bool


@dataclass(frozen=True)
class Table:
    """A table with the columns that a row can set."""

    oid: int
    schema: str
    table: str
    columns: tuple[Column, ...]

    @property
    def sql(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.table)


def _tables(conn: psycopg.Connection[Any]) -> Iterator[Table]:
    for (oid, schema, name), rows in groupby(conn.execute(_COLUMNS).fetchall(), key=lambda row: row[:3]):
        yield Table(oid, schema, name, tuple(Column(*row[3:]) for row in rows))


@dataclass
class Filler:
    """Rows in the tables that the application leaves empty: `filled`, as they were last seen. `own` it fills itself."""

    dsn: str
    random: random.Random
    filled: dict[int, Table] = field(default_factory=dict)
    own: set[int] = field(default_factory=set)

    def change(self) -> None:
        """Change rows of each new table, of each one of another shape or name, and of some others."""
        with self._session() as conn:
            for table in _tables(conn):
                if table.oid not in self.filled and self._is_own(conn, table):
                    continue
                if self.filled.get(table.oid) != table or self.random.random() < _OTHER_TABLES:
                    self._change(conn, table)
                self.filled[table.oid] = table

    def _is_own(self, conn: psycopg.Connection[Any], table: Table) -> bool:
        """Whether the application filled a table before the first row was inserted here."""
        if table.oid not in self.own:
            row = conn.execute(sql.SQL("select from {} limit 1").format(table.sql)).fetchone()
            self.own |= set() if row is None else {table.oid}  # a row without columns is an empty tuple
        return table.oid in self.own

    def clear(self) -> None:
        """Delete all rows that were inserted."""
        with self._session() as conn:
            for table in _tables(conn):
                if table.oid in self.filled:
                    conn.execute(sql.SQL("delete from {}").format(table.sql))

    def _session(self) -> "closing[psycopg.Connection[Any]]":
        conn = psycopg.connect(self.dsn, autocommit=True)
        conn.execute("set session_replication_role = replica")  # foreign keys are not the question
        return closing(conn)

    def _change(self, conn: psycopg.Connection[Any], table: Table) -> None:
        """Insert rows, update one, and delete one now and then, each statement in a transaction of its own."""
        names = sql.SQL(", ").join(sql.Identifier(each.name) for each in table.columns)
        one = sql.SQL("ctid = (select ctid from {} order by random() limit 1)").format(table.sql)
        insert = sql.SQL("insert into {} ({}) overriding system value values ({})")
        for _ in range(_ROWS):
            values = sql.SQL(", ").join(self._value(conn, each) for each in table.columns)
            _try(conn, insert.format(table.sql, names, values))
        if changed := [each for each in table.columns if not each.in_key]:
            chosen = self.random.choice(changed)
            update, value = sql.SQL("update {} set {} = {} where {}"), self._value(conn, chosen)
            _try(conn, update.format(table.sql, sql.Identifier(chosen.name), value, one))
        if self.random.random() < 1 / _ROWS:
            _try(conn, sql.SQL("delete from {} where {}").format(table.sql, one))

    def _value(self, conn: psycopg.Connection[Any], column: Column) -> sql.Composable:
        """Return a value of a column's type, now and then NULL."""
        if not column.required and self.random.random() < 1 / _ROWS:
            return sql.SQL("null")
        if column.category == "E":
            labels = [label for (label,) in conn.execute(_LABELS, [column.type_oid]).fetchall()]
            return sql.Literal(self.random.choice(labels))
        if column.category == "S":
            length = column.modifier - _TEXT_HEADER if column.modifier > 0 else _LONGEST_TEXT
            letters = self.random.choices("abcdefgh 'ÄÖ", k=self.random.randint(0, min(length, _LONGEST_TEXT)))
            return sql.Literal("".join(letters))
        return sql.SQL(_OF_TYPE.get(column.type_name) or _OF_CATEGORY.get(column.category, "null"))


_OF_TYPE = {
    "uuid": "gen_random_uuid()",
    "json": """'{"a": [1, 2.50]}'""",
    "jsonb": "jsonb_build_object('a', random())",
    "bytea": "decode(md5(random()::text), 'hex')",
    "int2": "(random() * 1000)::int2",
    "date": "current_date",
    "time": "localtime",
    "interval": "'1 day'",
}
_OF_CATEGORY = {
    "N": "(random() * 100000)::int",
    "B": "random() < 0.5",
    "D": "clock_timestamp()",
    "A": "'{}'",
    "I": "'10.0.0.1'",
}


def _try(conn: psycopg.Connection[Any], statement: sql.Composed) -> None:
    """Run a statement that a constraint of the application may refuse."""
    try:
        conn.execute(statement)
    except (psycopg.DataError, psycopg.IntegrityError):
        return


class Driver:
    """The process that runs migrations in the application's environment."""

    def __init__(self, line: Sequence[str | Path], environment: Mapping[str, str], log: Path) -> None:
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [str(part) for part in line],
                env={**_without_ours(os.environ), **environment},
                cwd=log.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.log = log
        self.steps: list[str] = self._reply()["steps"]

    def run(self, step: str) -> str | None:
        """Run a migration; return the class of its error, or None."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{step}\n")
        self._process.stdin.flush()
        error: str | None = self._reply()["error"]
        return error

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the application ended:\n{self.log.read_text()[-3000:]}")
        reply: dict[str, Any] = json.loads(line)
        return reply


def _without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those that would lead the application into this environment."""
    return {name: value for name, value in environment.items() if not name.startswith(("PYTHON", "AUDITLAKE_"))}


def _environment(server: Server, dsn: str, given: Sequence[str]) -> dict[str, str]:
    """Return the variables by which the application finds the database, and those of the command line."""
    with closing(connect(dsn)) as conn:
        database = conn.info.dbname
    host = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": SUPERUSER, "PGDATABASE": database}
    password = psycopg.conninfo.conninfo_to_dict(server.dsn(database, tcp=True))["password"]
    address = f"{SUPERUSER}:{password}@127.0.0.1:{server.port}/{database}"
    pairs = [pair.partition("=") for pair in given]
    chosen = {name: value.replace("{address}", address) for name, _, value in pairs}
    return {**host, "PGPASSWORD": str(password), "DATABASE_URL": f"postgresql://{address}", **chosen}


@dataclass(frozen=True)
class Application:
    """How its migrations are run: the line of the driver, variables, and the seed of the rows."""

    line: tuple[str | Path, ...]
    variables: tuple[str, ...]
    seed: int

    def steps(self, campaign: Campaign) -> Iterator[Step]:
        """Return each migration as a step, with changes of rows before the next one."""
        environment = _environment(campaign.server, campaign.dsn, self.variables)
        filler = Filler(campaign.dsn, random.Random(self.seed))  # noqa: S311 - rows, no secrets
        with closing(Driver(self.line, environment, campaign.folder / "application.log")) as driver:
            for name in driver.steps:
                yield Step(name, _migrate(driver, name, filler))


def _migrate(driver: Driver, name: str, filler: Filler) -> Callable[[Callable[[], None]], int]:
    def run(pause: Callable[[], None]) -> int:
        refused = driver.run(name) is not None
        if refused:
            filler.clear()
            if (error := driver.run(name)) is not None:
                raise SystemExit(f"{name} failed with {error}; see {driver.log}")
        pause()
        filler.change()
        return int(refused)

    return run


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="run an application's migrations beneath follow, then compare")
    parser.add_argument("--python", required=True, help="the interpreter of the application's environment")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--django", metavar="SETTINGS", help="the settings module of a Django project")
    kind.add_argument("--alembic", metavar="SCRIPTS", help="a folder of scripts, or package:folder")
    parser.add_argument("--prepare", default="", help="Python to run first, in the application's environment")
    help_of_env = "a variable; {address} is replaced"
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help=help_of_env)
    parser.add_argument("--seed", type=int, default=0, help="of the rows")
    parser.add_argument("--no-trigger", action="store_true", help="without the DDL trigger")
    parser.add_argument("--no-spark", action="store_true", help="capture and bootstrap only, without a JVM; no verify")
    parser.add_argument("--keep", type=Path, help="a folder for lake and logs, which is not removed")
    given = parser.parse_args()
    source = ["--django", given.django] if given.django else ["--alembic", given.alembic]
    line = (given.python, "-P", _DRIVER, *source, "--prepare", given.prepare)
    application = Application(line, tuple(given.env), given.seed)
    with tempfile.TemporaryDirectory(prefix="auditlake-migrations-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        mode = Mode(trigger=not given.no_trigger, spark=not given.no_spark, pauses=1)
        sys.exit(run_steps(folder.absolute(), mode, application.steps))


if __name__ == "__main__":
    main()
