"""What auditlake refuses, through the command line: the exit code, one error with a hint, and nothing half-made.

`refused` runs a command and holds it to all of that; no password may be printed. None of these starts a JVM. Commands
run in this process (a start costs a second), one per exit code also in a process of its own.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from tests import command
from tests.capture_lake import make_lake
from tests.server import Server, chosen_version
from tests.small_lake import write_small_lake

pytestmark = pytest.mark.pg

SECRET = "pass-word-of-nobody"
USAGE, CONFIG, UNREACHABLE, WRONG_SOURCE, LAKE, NOT_ANSWERABLE = 2, 3, 4, 5, 6, 7


@dataclass(frozen=True)
class Site:
    """A database, and a folder that is to become its lake."""

    dsn: str
    lake: Path

    def execute(self, *statements: str) -> None:
        """Run SQL as the superuser."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            for statement in statements:
                conn.execute(statement)

    def trace(self) -> object:
        """Everything that a refused command must leave as it was."""
        with psycopg.connect(self.dsn) as conn:
            slots = conn.execute("select slot_name, plugin, confirmed_flush_lsn from pg_replication_slots").fetchall()
            publications = conn.execute("select pubname from pg_publication").fetchall()
            published = conn.execute("select * from pg_publication_tables").fetchall()
        files = {path: path.stat().st_mtime_ns for path in self.lake.rglob("*")}
        return sorted(slots), sorted(publications), sorted(published, key=str), files, self.lake.exists()

    def role(self, attributes: str) -> str:
        """Create a role that owns `t`, and give the connection string of it, by TCP with its password."""
        name = f"{conninfo_to_dict(self.dsn)['dbname']}_role"
        self.execute(f"create role {name} login password '{SECRET}' {attributes}")
        return make_conninfo(self.dsn, host="127.0.0.1", user=name, password=SECRET)


@pytest.fixture
def site(database: str, tmp_path: Path) -> Site:
    """A database with one table that can be followed."""
    made = Site(database, tmp_path / "lake")
    made.execute("create table t (id int primary key, v text)")
    return made


@pytest.fixture
def lake(site: Site) -> Site:
    """The site after its bootstrap."""
    make_lake(site.dsn, site.lake)
    return site


@pytest.fixture(autouse=True)
def bare_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings come from flags alone."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("AUDITLAKE_") and name != "AUDITLAKE_JARS"]:
        monkeypatch.delenv(name)


def refused(site: Site, code: int, words: Sequence[str], arguments: Sequence[str], source: str | None = None) -> str:
    """Run a command that must be refused with `code` and an error that holds `words`; return its standard error."""
    return held(site, code, words, command.run_here, [*arguments, "--source", source or site.dsn])


def held(
    site: Site, code: int, words: Sequence[str], run: Callable[..., command.Done], arguments: Sequence[str]
) -> str:
    """Hold what a command leaves behind to the rules of a refusal."""
    before = site.trace()
    done = run([*arguments, "--lake", site.lake])
    assert done.code == code, done.stderr
    assert done.stdout == ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("auditlake: error: ")]
    assert len(errors) == 1, done.stderr
    for word in words:
        assert word in errors[0]
    assert "\nauditlake: hint: " in done.stderr
    assert "Traceback" not in done.stderr
    assert SECRET not in done.stderr
    assert site.trace() == before
    return done.stderr


SOURCE_COMMANDS = (["bootstrap"], ["check"])
LAKE_COMMANDS = (["capture", "--until-current"], ["follow", "--until-current"], ["bootstrap"])


@pytest.mark.parametrize("arguments", SOURCE_COMMANDS)
def test_a_source_that_is_not_there(site: Site, arguments: list[str]) -> None:
    """No server listens there; host and port are named."""
    words = ["cannot be reached", "127.0.0.1", "port 1 "]
    refused(site, UNREACHABLE, words, arguments, f"postgresql://me:{SECRET}@127.0.0.1:1/shop")


def test_a_source_that_is_gone_under_a_lake(lake: Site) -> None:
    """With a target, follow says so at once; without one it would wait for the server."""
    refused(lake, UNREACHABLE, ["cannot be reached"], LAKE_COMMANDS[1], make_conninfo(lake.dsn, port=1))


@pytest.mark.parametrize(
    ("changed", "word"), [({"password": SECRET}, "password authentication failed"), ({"dbname": "no_such"}, "no_such")]
)
def test_a_source_that_says_no(server: Server, site: Site, changed: dict[str, str], word: str) -> None:
    """A wrong password and a database that does not exist."""
    refused(site, UNREACHABLE, ["refuses", word], ["bootstrap"], make_conninfo(server.dsn(tcp=True), **changed))


@pytest.mark.parametrize("source", [f"postgresql://me:{SECRET}@[/shop", f"host=h password={SECRET} nonsense"])
def test_a_source_that_is_no_connection_string(site: Site, source: str) -> None:
    """The message of libpq would quote it, password and all."""
    refused(site, CONFIG, ["source"], ["bootstrap"], source)


@pytest.mark.parametrize("arguments", LAKE_COMMANDS[:2])
def test_no_source(site: Site, arguments: list[str]) -> None:
    """A command that needs one says where it can be set."""
    done = command.run_here([*arguments, "--lake", site.lake])
    assert done.code == CONFIG
    assert "no source is set" in done.stderr
    assert "AUDITLAKE_SOURCE" in done.stderr


@pytest.fixture(scope="module")
def replica_server() -> Iterator[Server]:
    """A server that logs too little."""
    with Server(chosen_version(), settings={"wal_level": "replica"}) as running:
        yield running


def test_wal_level(replica_server: Server, tmp_path: Path) -> None:
    """Named with what it is and what it must be."""
    site = Site(replica_server.dsn(replica_server.create_database()), tmp_path / "lake")
    site.execute("create table t (id int primary key)")
    errors = refused(site, CONFIG, ["wal_level", "replica", "logical"], ["bootstrap"])
    assert "ALTER SYSTEM SET wal_level = 'logical'" in errors


def test_a_role_that_may_not_replicate(site: Site) -> None:
    """The role is named, and the command that gives it the privilege."""
    source = site.role("noreplication")
    errors = refused(site, CONFIG, ["_role", "replication privilege"], ["bootstrap"], source)
    assert "ALTER ROLE" in errors


def test_a_role_that_may_not_read_a_table(site: Site) -> None:
    """The table is named where nothing else is left to copy; the others would be copied without it."""
    source = site.role("replication")
    role = conninfo_to_dict(source)["user"]
    site.execute(
        "create table private (id int primary key)",
        f"grant create on database {conninfo_to_dict(site.dsn)['dbname']} to {role}",
        f"alter table t owner to {role}",
        f"alter table private owner to {role}",
        f"revoke select on private from {role}",
    )
    alone = ["bootstrap", "--table", "public.private"]
    errors = refused(site, CONFIG, ["public.private", "may not be read"], alone, source)
    assert "public.t" not in errors
    assert "GRANT SELECT" in errors


TABLES = {
    "no key": ("create table bad (v text)", ["public.bad", "'d'", "need a key", "(full)"]),
    "identity nothing": (
        "create table bad (id int primary key); alter table bad replica identity nothing",
        ["public.bad", "'n'", "need a key"],
    ),
    "deferrable key": ("create table bad (id int primary key deferrable)", ["public.bad", "need a key"]),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_that_cannot_be_followed(site: Site, kind: str) -> None:
    """Named with what is wrong; left out, the others can be taken."""
    statements, words = TABLES[kind]
    site.execute(*statements.split(";"))
    errors = refused(site, CONFIG, words, ["bootstrap"])
    assert "leave it out" in errors
    checked = command.run_here(["check", "--source", site.dsn, "--lake", site.lake])
    assert checked.code == CONFIG
    assert words[0] in checked.stdout
    left_out = command.run_here(["check", "--source", site.dsn, "--lake", site.lake, "--table", "public.t"])
    assert left_out.code == 0, left_out.stderr


def test_a_pattern_that_matches_nothing(site: Site) -> None:
    """The pattern is named; a database without tables says that instead."""
    refused(site, CONFIG, ["sales.*"], ["bootstrap", "--table", "sales.*"])
    site.execute("drop table t")
    refused(site, CONFIG, ["no tables"], ["bootstrap"])


def test_a_pattern_that_is_none(site: Site) -> None:
    """A pattern has a schema."""
    refused(site, CONFIG, ["orders"], ["bootstrap", "--table", "orders"])


@pytest.mark.parametrize("arguments", LAKE_COMMANDS)
def test_a_lake_of_another_database(server: Server, lake: Site, arguments: list[str]) -> None:
    """Both databases are named; that the other has no tables does not matter."""
    other = server.create_database()
    try:
        recorded = str(conninfo_to_dict(lake.dsn)["dbname"])
        refused(lake, WRONG_SOURCE, ["database", recorded, other], arguments, server.dsn(other))
    finally:
        server.drop_database(other)


@pytest.mark.parametrize("arguments", LAKE_COMMANDS)
def test_a_lake_of_another_server(replica_server: Server, lake: Site, arguments: list[str]) -> None:
    """Another system identifier, although the database has the same name."""
    name = replica_server.create_database()
    source = make_conninfo(replica_server.dsn(name))
    refused(lake, WRONG_SOURCE, ["system identifier"], arguments, source)


def test_a_lake_with_another_slot(lake: Site) -> None:
    """A second slot would start a second history in the same folder."""
    refused(lake, WRONG_SOURCE, ["slot", "auditlake", "second"], ["bootstrap", "--slot", "second"])


def test_a_folder_that_holds_something_else(site: Site) -> None:
    """Nothing is added to it."""
    site.lake.mkdir()
    (site.lake / "thesis.txt").write_text("years of work")
    refused(site, LAKE, [str(site.lake), "thesis.txt"], ["bootstrap"])


def test_a_lake_that_is_a_file(site: Site) -> None:
    """The path is named."""
    site.lake.write_text("")
    refused(site, LAKE, [str(site.lake)], ["bootstrap"])


def test_a_slot_of_somebody_else(site: Site) -> None:
    """A slot of our name that no lake of ours records is not ours to read."""
    site.execute("select pg_create_physical_replication_slot('auditlake')")
    words = ["slot auditlake exists already", "physical", str(site.lake)]
    try:
        assert "pg_drop_replication_slot" in refused(site, WRONG_SOURCE, words, ["bootstrap"])
    finally:
        site.execute("select pg_drop_replication_slot('auditlake')")


@pytest.mark.parametrize("arguments", LAKE_COMMANDS)
def test_a_slot_that_was_dropped(lake: Site, arguments: list[str]) -> None:
    """A new slot would start later: there is no silent gap. A new table does not get published either."""
    lake.execute("select pg_drop_replication_slot('auditlake')", "create table another (id int primary key)")
    refused(lake, WRONG_SOURCE, ["slot auditlake is gone"], [*arguments, *_every_table(arguments)])


ADVANCE = "select pg_replication_slot_advance('auditlake', pg_current_wal_lsn())"
READ = (
    "select count(*) from pg_logical_slot_get_binary_changes('auditlake', null, null, 'proto_version', '1',"
    " 'publication_names', 'auditlake')"
)


@pytest.mark.parametrize("arguments", LAKE_COMMANDS)
@pytest.mark.parametrize("statement", [ADVANCE, READ])
def test_a_slot_that_somebody_else_has_read(lake: Site, arguments: list[str], statement: str) -> None:
    """What that reader took is missing; both positions are named."""
    lake.execute("insert into t values (1)", statement, "create table another (id int primary key)")
    with psycopg.connect(lake.dsn) as conn:
        confirmed = conn.execute("select confirmed_flush_lsn::text from pg_replication_slots").fetchone()
    assert confirmed is not None
    words = ["slot auditlake stands at", confirmed[0], "are missing"]
    refused(lake, WRONG_SOURCE, words, [*arguments, *_every_table(arguments)])


def _every_table(arguments: list[str]) -> list[str]:
    """Without a pattern bootstrap takes what the publication has; with one it would add to it."""
    return ["--table", "*.*"] if arguments == ["bootstrap"] else []


def test_a_slot_without_its_lake(lake: Site, tmp_path: Path) -> None:
    """A lake that was thrown away is not bootstrapped again over its old slot."""
    refused(Site(lake.dsn, tmp_path / "new"), WRONG_SOURCE, ["slot auditlake exists already"], ["bootstrap"])


def test_a_second_capture(lake: Site) -> None:
    """It names the process that reads the slot as soon as that has shown that it lives, and the first goes on."""
    with command.start(["capture", "--source", lake.dsn, "--lake", lake.lake]) as first:
        pid = _walsender(lake, first)
        done = command.run(["capture", "--until-current", "--source", lake.dsn, "--lake", lake.lake])
        assert done.code == LAKE, done.stderr
        assert f"slot auditlake is read by pid {pid} (auditlake, " in done.stderr
        assert "hint: " in done.stderr
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=30) == 0


def _walsender(site: Site, reader: "subprocess.Popen[str]") -> int:
    query = "select active_pid from pg_replication_slots where active_pid is not null"
    with psycopg.connect(site.dsn, autocommit=True) as conn:
        while not (rows := conn.execute(query).fetchall()):
            assert reader.poll() is None, "capture ended"
    return int(rows[0][0])


@pytest.mark.parametrize(
    "arguments", [["follow"], ["capture"], ["apply"], ["status"], ["sql", "select 1"], ["sql", "select"]]
)
def test_no_lake(site: Site, arguments: list[str]) -> None:
    """Whatever needs a lake says that there is none, and where it looked."""
    refused(site, LAKE, [str(site.lake)], arguments)


def test_a_lake_without_a_log(site: Site) -> None:
    """A bootstrap that was killed early must be run again before anything can follow."""
    with psycopg.connect(site.dsn) as conn:
        row = conn.execute(
            "select system_identifier::text, timeline_id, current_database()"
            " from pg_control_system(), pg_control_checkpoint()"
        ).fetchone()
    assert row is not None
    write_manifest(Lake(site.lake), Manifest(row[0], row[1], row[2], "auditlake", "auditlake"))
    assert "bootstrap" in refused(site, LAKE, [str(site.lake)], LAKE_COMMANDS[0])


QUESTIONS = {
    "before the horizon": (NOT_ANSWERABLE, ["--as-of", "0/FF", "select * from orders"], ["0/FF", "0/100"]),
    "past the watermark": (NOT_ANSWERABLE, ["--as-of", "0/500", "select * from orders"], ["0/500", "0/380"]),
    "a time before": (NOT_ANSWERABLE, ["--as-of", "2020-01-01", "select * from orders"], ["2020-01-01", "2026-11-21"]),
    "a time after": (NOT_ANSWERABLE, ["--as-of", "2030-01-01", "select * from orders"], ["2030-01-01", "2026-11-21"]),
    "an unknown xid": (NOT_ANSWERABLE, ["--as-of", "xid:99", "select * from orders"], ["xid:99"]),
    "no moment": (USAGE, ["--as-of", "yesterday", "select * from orders"], ["yesterday"]),
    "half an LSN": (USAGE, ["--as-of", "0/", "select * from orders"], ["0/"]),
    "a syntax error": (USAGE, ["select * frm orders where"], ["SQL"]),
    "an unknown table": (USAGE, ["select * from ordrs"], ["ordrs"]),
    "a write": (USAGE, ["delete from orders"], ["DELETE"]),
}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_question_without_an_answer(site: Site, kind: str) -> None:
    """Refused before a JVM starts, naming what was asked and what is known."""
    write_manifest(Lake(site.lake), Manifest("1", 1, "shop", "auditlake", "auditlake"))
    write_small_lake(site.lake)
    code, arguments, words = QUESTIONS[kind]
    refused(site, code, words, ["sql", *arguments])


USAGES = {
    "an unknown option": (["follow", "--forever"], ["--forever"]),
    "an unknown command": (["folow"], ["folow"]),
    "a missing argument": (["sql"], ["SQL"]),
    "a bad LSN": (["follow", "--until-lsn", "16B3748"], ["16B3748"]),
    "two targets": (["capture", "--until-current", "--until-lsn", "0/1"], ["--until-current", "--until-lsn"]),
}


@pytest.mark.parametrize("kind", USAGES)
def test_a_command_line_that_is_wrong(lake: Site, kind: str) -> None:
    """In the same form as every other error, with what is wrong."""
    arguments, words = USAGES[kind]
    refused(lake, USAGE, words, arguments)


def test_in_a_process_of_its_own(site: Site) -> None:
    """The codes are what a shell sees, and nothing else is printed on the way out."""
    nowhere = f"postgresql://me:{SECRET}@127.0.0.1:1/shop"
    held(site, UNREACHABLE, ["port 1 "], command.run, ["bootstrap", "--source", nowhere])
    held(site, CONFIG, ["no tables"], command.run, ["bootstrap", "--source", site.dsn, "--table", "no.such"])
    held(site, LAKE, [str(site.lake)], command.run, ["sql", "select 1"])
    held(site, USAGE, ["--forever"], command.run, ["follow", "--forever"])
    make_lake(site.dsn, site.lake)
    asked = ["--as-of", "0/1", "select * from t"]
    held(site, NOT_ANSWERABLE, ["public.t", "0/1"], command.run, ["sql", *asked])
    site.execute("select pg_drop_replication_slot('auditlake')")
    held(site, WRONG_SOURCE, ["is gone"], command.run, ["follow", "--source", site.dsn])
