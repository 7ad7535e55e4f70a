"""Tables whose owner is a stranger: nothing of it runs with our role's rights, and its rows are copied all the same."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.lake.layout import Lake
from auditlake.relation import TableName
from auditlake.source.connection import connect
from auditlake.source.strangers import tables_of_strangers
from tests import command
from tests.server import chosen_version, execute

pytestmark = pytest.mark.pg

_GENERATED_SINCE = 18
_CAUGHT = """
create function app.caught() returns void language plpgsql volatile as $$
begin if current_user <> '{owner}' then raise exception 'ran as %', current_user; end if; end $$;
create function app.evil(int) returns int language plpgsql immutable as $$ begin perform app.caught(); return $1; end $$;
create function app.same(int, int) returns bool language plpgsql immutable as $$ begin perform app.caught(); return $1 = $2; end $$;
create operator app.=== (function = app.same, leftarg = int, rightarg = int);
"""  # noqa: E501 - each is one statement
_WAYS = (
    "create index on app.t0 (v) where app.evil(1) = 1",
    "create index on app.t1 ((app.evil(1) + id))",
    "create index on app.t2 (v) where 1 operator(app.===) 1",
    "create statistics app.s on (app.evil(1) + id), (app.evil(2) + id) from app.t3",
    "alter table app.t4 add check (app.evil(1) = 1)",
)
_QUERIED = 4
"""A query of one of the first tables runs the function; the last one would be, if it were a partition."""


@dataclass(frozen=True)
class Site:
    """A database with a schema `app` of a stranger, and a lake of it."""

    dsn: str
    stranger: str
    lake: Path

    def execute(self, *statements: str) -> None:
        """Run statements as the superuser."""
        execute(self.dsn, *statements)

    def execute_as_stranger(self, *statements: str) -> None:
        """Run statements as the stranger, each in a transaction of its own."""
        execute(make_conninfo(self.dsn, user=self.stranger), *statements)

    def run(self, *arguments: str) -> command.Done:
        """Run a command as the superuser."""
        return command.run_here([*arguments, "--source", self.dsn, "--lake", self.lake])

    def succeed(self, *arguments: str) -> str:
        """Run one that must succeed, and return its output."""
        done = self.run(*arguments)
        assert done.code == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def of_strangers(self, *tables: str, role: str | None = None) -> set[str]:
        """Return which tables are a stranger's for a role, by default the superuser."""
        with connect(self.dsn) as conn:
            oids = {self.oid(conn, each): each for each in tables}
        with connect(self.dsn if role is None else make_conninfo(self.dsn, user=role)) as conn:
            return {oids[oid] for oid in tables_of_strangers(conn, oids)}

    @staticmethod
    def oid(conn: psycopg.Connection[tuple[object, ...]], table: str) -> int:
        """Return the OID of a table."""
        row = conn.execute("select %s::regclass::oid::bigint", [table]).fetchone()
        assert row is not None
        return int(str(row[0]))


@pytest.fixture
def site(database: str, tmp_path: Path) -> Iterator[Site]:
    """A role that may create tables in its schema alone."""
    stranger = f"{conninfo_to_dict(database)['dbname']}_stranger"
    site = Site(database, stranger, tmp_path / "lake")
    site.execute(f"create role {stranger} login", f"create schema app authorization {stranger}")
    site.execute("create table public.secret (id int primary key)")
    site.execute_as_stranger(_CAUGHT.format(owner=stranger))
    yield site
    site.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
    site.execute(f"drop owned by {stranger} cascade; drop role {stranger}")


def test_no_code_of_a_stranger_runs_as_our_role(site: Site) -> None:
    """In the first copy and a new snapshot; a query runs it."""
    for number, way in enumerate(_WAYS):
        table = f"app.t{number}"
        site.execute_as_stranger(f"create table {table} (id int primary key, v text)")
        site.execute_as_stranger(f"insert into {table} values (1, 'x')", way)
    site.succeed("bootstrap")
    site.execute_as_stranger(*(f"insert into app.t{number} values (2, 'y')" for number in range(len(_WAYS))))
    site.succeed("follow", "--until-current")
    site.succeed("resync", "--all")
    for number in range(len(_WAYS)):
        rows = site.succeed("sql", "--format", "csv", f"select id, v from app.t{number} order by id")
        assert rows == "id,v\n1,x\n2,y\n"
    for number in range(_QUERIED):
        with psycopg.connect(site.dsn) as conn, pytest.raises(psycopg.errors.RaiseException, match="ran as"):
            conn.execute(f"select id from only app.t{number} where id > 0 and v is not null group by id".encode())


def test_the_cast_of_a_type_s_owner_compares_no_key(site: Site) -> None:
    """Of an enum in the key of a partitioned table of ours, in which a row is looked for."""
    site.execute_as_stranger(
        "create type app.en as enum ('a', 'b')",
        "create function app.shown(app.en) returns text language plpgsql immutable as"
        " $$ begin perform app.caught(); return case when $1 = 'a'::app.en then 'a' else 'b' end; end $$",
        "create cast (app.en as text) with function app.shown(app.en) as implicit",
    )
    site.execute(f"grant usage on schema app to {site.stranger}")
    site.execute("create table public.p (e app.en, n int, primary key (e, n)) partition by range (n)")
    site.execute("create table public.p0 partition of public.p for values from (0) to (10)")
    site.succeed("bootstrap")
    site.execute(
        "begin; create table public.p1 partition of public.p for values from (10) to (20);"
        " insert into public.p values ('a', 11); truncate public.p1; insert into public.p values ('b', 12), ('a', 1);"
        " commit"
    )
    for _ in range(2):
        site.run("follow", "--until-current")
    assert site.succeed("sql", "--format", "csv", "select e, n from p order by n") == "e,n\na,1\nb,12\n"


_TYPES = """
create type public.mood as enum ('sad', 'o,k', 'gl"ad');
create type public.pair as (a int, b text);
create table {name} (
  id int primary key, b bool, i2 int2, i8 int8, o oid, f4 float4, f8 float8, n numeric, n2 numeric(6, 2), t text,
  c char(5), vc varchar(9), by bytea, d date, ts timestamp, tz timestamptz, tm time, ttz timetz, iv interval, u uuid,
  j json, jb jsonb, ia int[], ta text[], na numeric(5, 1)[], ma public.mood[], m public.mood, p public.pair,
  r int4range, ip inet, bi bit(3), ssn text, "Odd ""name" text
)
"""
_ROWS = r"""
insert into {name} values
  (1, true, -1, 9e15, 4294967295, 'NaN', '-Infinity', '-1.50', 'NaN', E'a\tb\nc\\d\r"é\\N', 'ab', '', '\x00ff5c',
   '0044-03-15 BC', 'infinity', '-infinity', '24:00', '09:30+05:30', '1 mon -2 days 03:04:05.000006',
   '00000000-0000-0000-0000-000000000001', '{{"a" : 1}}', '{{"a": [1.0, null]}}', '{{1,NULL,3}}', E'{{"a\\\\b","","NULL",NULL}}',
   '{{NaN,1.5}}', '{{sad,"o,k"}}', 'gl"ad', row(1, null), '[1,5)', '10.0.0.0/8', '101', 'secret', E'\\N'),
  (2, false, 0, 0, 0, 0, '-0', 'Infinity', 0, '\N', '', 'x', '', '9999-12-31', '0001-01-01 00:00', '294276-12-31 00:00Z',
   '00:00:00.000001', '00:00-15:59', '-178000000 years', null, 'null', 'null', '{{}}', '{{{{a,b}},{{c,d}}}}', '[3:4]={{1,2}}',
   '{{}}', 'sad', row(null, null), 'empty', '::1', '000', null, ''),
  (3, null, null, null, null, 1e-45, 5e-324, repeat('9', 500)::numeric, 1.10, null, null, null, null, 'infinity',
   '2026-01-01 12:00:00.123456', '2026-01-01 12:00:00.123456+01', null, null, null, null, null, null, null, null, null, null,
   null, null, null, null, null, null, null),
  (4, null, null, null, null, null, null, null, null, repeat('long ', 400000), null, null, null, null, null, null, null, null,
   null, null, null, null, null, null, null, null, null, null, null, null, null, null, null)
"""  # noqa: E501 - rows


def _copied(lake: Path, table: str) -> pa.Table:
    """Read the files of a first copy, without what differs in any two."""
    files = Lake(lake).history(TableName(*table.split("."))).rglob("*.parquet")
    read = pa.concat_tables(pq.ParquetFile(file).read() for file in map(str, files))
    return read.drop_columns([name for name in read.column_names if name.startswith("_from")]).sort_by("id")


def test_values_are_those_of_a_copy_by_queries(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Typed, exact and masked; one of the tables is the superuser's, the other the stranger's."""
    monkeypatch.setenv("AUDITLAKE_MASK", '{"columns": {"*.*.ssn": "hash", "*.*.u": "hash", "*.*.vc": "truncate 1"}}')
    monkeypatch.setenv("AUDITLAKE_MASK_SECRET", "0123456789abcdef")
    types, table = _TYPES.rsplit("create table", 1)
    site.execute(types)
    for name in ("app.theirs", "public.ours"):
        site.execute(f"create table{table}".format(name=name), _ROWS.format(name=name))
    site.execute(f"alter table app.theirs owner to {site.stranger}")
    assert site.of_strangers("app.theirs", "public.ours") == {"app.theirs"}
    site.succeed("bootstrap")
    theirs, ours = _copied(site.lake, "app.theirs"), _copied(site.lake, "public.ours")
    assert theirs.num_rows == 4
    for column in ours.column_names:
        assert repr(theirs[column].to_pylist()) == repr(ours[column].to_pylist()), column


def test_what_only_a_query_reads_is_refused(site: Site) -> None:
    """A row filter and a generated column, with the table and the remedy; all other tables are copied."""
    site.execute_as_stranger("create table app.f (id int primary key)", "insert into app.f values (1)")
    generated = chosen_version() >= _GENERATED_SINCE
    if generated:
        site.execute_as_stranger("create table app.g (id int primary key, g int generated always as (id + 1) stored)")
    options = f"publish_via_partition_root{', publish_generated_columns = stored' if generated else ''}"
    tables = f"public.secret, app.f where (id > 0){', app.g' if generated else ''}"
    site.execute(f"create publication auditlake for table {tables} with ({options})")
    checked, done = site.run("check"), site.run("bootstrap")
    assert (checked.code, done.code) == (3, 3)
    for said, colon in ((checked.stdout + checked.stderr, ":"), (done.stderr, "")):
        assert f"table app.f{colon} has a row filter, which only a query reads" in said
        assert (f"table app.g{colon} has a generated column, which only a query reads" in said) == generated
    assert "may read every table of the database" in done.stderr
    assert "copied public.secret" in done.stderr


def test_a_table_without_columns_is_copied(site: Site) -> None:
    """Row by row."""
    site.execute_as_stranger("create table app.none ()", "alter table app.none replica identity full")
    for _ in range(3):
        site.execute_as_stranger("insert into app.none default values")
    assert "copied app.none: 3 rows" in site.run("bootstrap").stderr


def test_who_reads_every_table_is_no_stranger_to_a_role_that_only_reads(site: Site) -> None:
    """But it is to a superuser; a function of a stranger makes a stranger's table of any."""
    reader = f"{site.stranger}_reader"
    site.execute(f"create role {reader} login replication")
    try:
        site.execute_as_stranger("create table app.t (id int primary key)")
        site.execute("create table public.ours (id int)", "create index on public.ours (id) where app.evil(id) = 1")
        tables = ("app.t", "public.ours", "public.secret")
        assert site.of_strangers(*tables) == {"app.t", "public.ours"}
        assert site.of_strangers(*tables, role=reader) == {"app.t", "public.ours"}
        site.execute(f"grant select on all tables in schema public to {site.stranger}")
        assert site.of_strangers(*tables) == {"app.t", "public.ours"}
        assert site.of_strangers(*tables, role=reader) == set()
        site.execute(f"alter role {reader} bypassrls")
        assert site.of_strangers(*tables, role=reader) == {"app.t", "public.ours"}
    finally:
        site.execute(f"drop role {reader}")


def test_a_tree_is_a_stranger_s_if_one_of_its_tables_is(site: Site) -> None:
    """A partition of another owner is planned with its root, and the root's key with a partition."""
    site.execute("create table public.p (id int) partition by range (id)")
    site.execute("create table public.p0 partition of public.p for values from (0) to (9)")
    site.execute("create table public.p1 partition of public.p for values from (10) to (19)")
    assert site.of_strangers("public.p", "public.p0", "public.p1") == set()
    site.execute(f"alter table public.p1 owner to {site.stranger}")
    assert site.of_strangers("public.p", "public.p0", "public.p1") == {"public.p", "public.p1"}


def test_a_stranger_who_owns_the_publication_is_named(site: Site) -> None:
    """That role decides what is followed: before the first copy, with the tables that would not be."""
    site.execute(f"grant create on database {conninfo_to_dict(site.dsn)['dbname']} to {site.stranger}")
    site.execute_as_stranger("create table app.m (id int primary key)", "create publication auditlake for table app.m")
    done = site.run("check")
    said = f"publication auditlake: belongs to role {site.stranger}, which may change at any time what is published; it"
    assert f"{said} lacks public.secret" in done.stdout + done.stderr, done
    assert f"{said} lacks public.secret" in site.run("bootstrap").stderr
    site.execute("alter publication auditlake owner to current_user")
    trusted = site.run("check", "--slot", "another")
    assert "belongs to role" not in trusted.stdout + trusted.stderr
