"""Refusals on the command line: the exit code, one error with a hint, and no side effects.

`refused` runs a command and checks all of that; no password may be printed. None of these tests starts a JVM. Commands
run in this process (a start costs a second), one per exit code also in a separate process.
"""

import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from tests import command
from tests.capture_lake import make_lake
from tests.proxy import Proxy
from tests.s3_server import chosen_store, copy_folder, versions
from tests.server import Server, chosen_version, execute
from tests.small_lake import write_small_lake

pytestmark = [pytest.mark.pg, pytest.mark.usefixtures("bare_environment")]

SECRET = "pass-word-of-nobody"
USAGE, CONFIG, UNREACHABLE, WRONG_SOURCE, LAKE, NOT_ANSWERABLE = 2, 3, 4, 5, 6, 7


@dataclass(frozen=True)
class Site:
    """A database, and a folder for its lake."""

    dsn: str
    lake: Path

    def execute(self, *statements: str) -> None:
        """Run SQL as the superuser."""
        execute(self.dsn, *statements)

    def trace(self) -> object:
        """Return everything that a refused command must leave unchanged."""
        with psycopg.connect(self.dsn) as conn:
            slots = conn.execute("select slot_name, plugin, confirmed_flush_lsn from pg_replication_slots").fetchall()
            publications = conn.execute("select pubname from pg_publication").fetchall()
            published = conn.execute("select * from pg_publication_tables").fetchall()
        # In a bucket, a lease that was released remains, and there are no folders.
        files = {name: version for name, version in versions(self.lake).items() if not name.startswith("locks/")}
        is_made = Path(str(self.lake)).exists()
        return sorted(slots), sorted(publications), sorted(published, key=str), files, is_made

    def role(self, attributes: str) -> str:
        """Create a role that owns `t`, and return its connection string, by TCP with its password."""
        name = f"{conninfo_to_dict(self.dsn)['dbname']}_role"
        self.execute(f"create role {name} login password '{SECRET}' {attributes}")
        return make_conninfo(self.dsn, host="127.0.0.1", user=name, password=SECRET)


@pytest.fixture
def site(database: str, tmp_path: Path) -> Site:
    """A database with one table that can be followed."""
    made = Site(database, chosen_store(tmp_path / "lake"))
    made.execute("create table t (id int primary key, v text)")
    return made


@pytest.fixture
def lake(site: Site) -> Site:
    """The site after its bootstrap."""
    make_lake(site.dsn, site.lake)
    return site


def refused(site: Site, code: int, words: Sequence[str], arguments: Sequence[str], source: str | None = None) -> str:
    """Run a command that must be refused with `code` and an error that holds `words`; return its standard error."""
    return held(site, code, words, command.run_here, [*arguments, "--source", source or site.dsn])


def held(
    site: Site, code: int, words: Sequence[str], run: Callable[..., command.Done], arguments: Sequence[str]
) -> str:
    """Check exit code, output and side effects of a refused command."""
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
def test_an_unreachable_source_is_named(site: Site, arguments: list[str]) -> None:
    """The error names host and port."""
    words = ["cannot be reached", "127.0.0.1", "port 1 "]
    refused(site, UNREACHABLE, words, arguments, f"postgresql://me:{SECRET}@127.0.0.1:1/shop")


def test_a_run_with_a_target_fails_at_once_without_its_source(lake: Site) -> None:
    """Without a target `follow` would wait for the server."""
    refused(lake, UNREACHABLE, ["cannot be reached"], LAKE_COMMANDS[1], make_conninfo(lake.dsn, port=1))


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"password": SECRET}, "password authentication failed"),
        ({"dbname": "no_such"}, "no_such"),
        ({"channel_binding": "require"}, "channel binding"),
    ],
)
def test_a_refused_connection_is_final(server: Server, site: Site, changed: dict[str, str], word: str) -> None:
    """A wrong password, a database that does not exist, channel binding without TLS."""
    refused(site, UNREACHABLE, ["refuses", word], ["bootstrap"], make_conninfo(server.dsn(tcp=True), **changed))


@pytest.mark.parametrize(
    ("drops", "word"), [("options", "setting datestyle"), ("replication", "does not speak the replication protocol")]
)
def test_a_pooler_that_drops_parameters_is_refused(server: Server, site: Site, drops: str, word: str) -> None:
    """Values would have another text, or no stream could start; `check` reports it."""
    database = str(conninfo_to_dict(site.dsn)["dbname"])
    site.execute(f"alter database {database} set datestyle = 'German'")
    with Proxy(make_conninfo(server.dsn(database, tcp=True), sslmode="disable"), drops=[drops]) as pooler:
        done = command.run_here(["check", "--source", pooler.dsn, "--lake", str(site.lake)])
    assert done.code == CONFIG
    assert word in done.stdout + done.stderr
    assert "pooler" in done.stdout + done.stderr


@pytest.mark.parametrize("source", [f"postgresql://me:{SECRET}@[/shop", f"host=h password={SECRET} nonsense"])
def test_an_invalid_connection_string_is_not_quoted(site: Site, source: str) -> None:
    """The message of libpq would quote it with its password."""
    refused(site, CONFIG, ["source"], ["bootstrap"], source)


@pytest.mark.parametrize("arguments", LAKE_COMMANDS[:2])
def test_a_missing_source_names_where_it_can_be_set(site: Site, arguments: list[str]) -> None:
    """Every command that needs a source names the setting and the flag."""
    done = command.run_here([*arguments, "--lake", site.lake])
    assert done.code == CONFIG
    assert "no source is set" in done.stderr
    assert "AUDITLAKE_SOURCE" in done.stderr


@pytest.fixture(scope="module")
def replica_server() -> Iterator[Server]:
    """A server with `wal_level = replica`."""
    with Server(chosen_version(), settings={"wal_level": "replica"}) as running:
        yield running


def test_a_wrong_wal_level_is_named_with_the_needed_one(replica_server: Server, tmp_path: Path) -> None:
    """The error has both values."""
    site = Site(replica_server.dsn(replica_server.create_database()), tmp_path / "lake")
    site.execute("create table t (id int primary key)")
    errors = refused(site, CONFIG, ["wal_level", "replica", "logical"], ["bootstrap"])
    assert "ALTER SYSTEM SET wal_level = 'logical'" in errors


def test_a_role_without_replication_gets_the_command(site: Site) -> None:
    """The error names the role and the command that grants the privilege."""
    source = site.role("noreplication")
    errors = refused(site, CONFIG, ["_role", "replication privilege"], ["bootstrap"], source)
    assert "ALTER ROLE" in errors


def test_an_unreadable_table_is_named(site: Site) -> None:
    """The command fails if it is the only table to copy; otherwise the others are copied."""
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
def test_a_table_that_cannot_be_followed_is_named(site: Site, kind: str) -> None:
    """The error has the problem; without this table the others can be followed."""
    statements, words = TABLES[kind]
    site.execute(*statements.split(";"))
    errors = refused(site, CONFIG, words, ["bootstrap"])
    assert "leave it out" in errors
    checked = command.run_here(["check", "--source", site.dsn, "--lake", site.lake])
    assert checked.code == CONFIG
    assert words[0] in checked.stdout
    left_out = command.run_here(["check", "--source", site.dsn, "--lake", site.lake, "--table", "public.t"])
    assert left_out.code == 0, left_out.stderr


def test_a_pattern_without_a_match_is_named(site: Site) -> None:
    """Exit code 3."""
    refused(site, CONFIG, ["sales.*"], ["bootstrap", "--table", "sales.*"])


def test_a_pattern_without_a_schema_is_refused(site: Site) -> None:
    """The error shows the form of a pattern."""
    refused(site, CONFIG, ["orders"], ["bootstrap", "--table", "orders"])


@pytest.mark.parametrize("arguments", LAKE_COMMANDS)
def test_a_lake_of_another_database_is_refused(server: Server, lake: Site, arguments: list[str]) -> None:
    """The error names both databases, also if the other has no tables."""
    other = server.create_database()
    try:
        recorded = str(conninfo_to_dict(lake.dsn)["dbname"])
        refused(lake, WRONG_SOURCE, ["database", recorded, other], arguments, server.dsn(other))
    finally:
        server.drop_database(other)


@pytest.mark.parametrize("arguments", LAKE_COMMANDS)
def test_a_lake_of_another_server_is_refused(replica_server: Server, lake: Site, arguments: list[str]) -> None:
    """The system identifier differs, although the database has the same name."""
    name = replica_server.create_database()
    source = make_conninfo(replica_server.dsn(name))
    refused(lake, WRONG_SOURCE, ["system identifier"], arguments, source)


def test_a_lake_with_another_slot_is_refused(lake: Site) -> None:
    """A second slot would start a second history in the same folder."""
    refused(lake, WRONG_SOURCE, ["slot", "auditlake", "second"], ["bootstrap", "--slot", "second"])


def test_a_folder_with_other_content_is_left_alone(site: Site, tmp_path: Path) -> None:
    """No file is added."""
    site = Site(site.dsn, tmp_path / "lake")
    site.lake.mkdir()
    (site.lake / "thesis.txt").write_text("years of work")
    refused(site, LAKE, [str(site.lake), "thesis.txt"], ["bootstrap"])


def test_a_lake_path_that_is_a_file_is_refused(site: Site, tmp_path: Path) -> None:
    """The error names the path."""
    site = Site(site.dsn, tmp_path / "lake")
    site.lake.write_text("")
    refused(site, LAKE, [str(site.lake)], ["bootstrap"])


def test_a_slot_without_a_record_in_the_lake_is_refused(site: Site) -> None:
    """A slot of this name may belong to another program."""
    site.execute("select pg_create_physical_replication_slot('auditlake')")
    words = ["slot auditlake exists already", "physical", str(site.lake)]
    try:
        assert "pg_drop_replication_slot" in refused(site, WRONG_SOURCE, words, ["bootstrap"])
    finally:
        site.execute("select pg_drop_replication_slot('auditlake')")


@pytest.mark.parametrize("arguments", LAKE_COMMANDS)
def test_a_dropped_slot_is_not_created_again(lake: Site, arguments: list[str]) -> None:
    """A new slot would start later and leave a silent gap. A new table is not published either."""
    lake.execute("select pg_drop_replication_slot('auditlake')", "create table another (id int primary key)")
    refused(lake, WRONG_SOURCE, ["slot auditlake is gone"], [*arguments, *_every_table(arguments)])


ADVANCE = "select pg_replication_slot_advance('auditlake', pg_current_wal_lsn())"
READ = (
    "select count(*) from pg_logical_slot_get_binary_changes('auditlake', null, null, 'proto_version', '1',"
    " 'publication_names', 'auditlake')"
)


@pytest.mark.parametrize("arguments", LAKE_COMMANDS)
@pytest.mark.parametrize("statement", [ADVANCE, READ])
def test_a_slot_that_another_client_has_read_is_refused(lake: Site, arguments: list[str], statement: str) -> None:
    """The changes between slot and lake are missing; the error has both positions."""
    lake.execute("insert into t values (1)", statement, "create table another (id int primary key)")
    with psycopg.connect(lake.dsn) as conn:
        confirmed = conn.execute("select confirmed_flush_lsn::text from pg_replication_slots").fetchone()
    assert confirmed is not None
    words = ["slot auditlake stands at", confirmed[0], "are missing"]
    refused(lake, WRONG_SOURCE, words, [*arguments, *_every_table(arguments)])


def _every_table(arguments: list[str]) -> list[str]:
    """Add a pattern to bootstrap, which without one takes only the tables of the publication."""
    return ["--table", "*.*"] if arguments == ["bootstrap"] else []


def test_a_slot_of_a_deleted_lake_is_refused(lake: Site, tmp_path: Path) -> None:
    """A new bootstrap would reuse a slot whose changes went to the old lake."""
    refused(
        Site(lake.dsn, chosen_store(tmp_path / "new")), WRONG_SOURCE, ["slot auditlake exists already"], ["bootstrap"]
    )


def test_a_second_capture_names_the_first(lake: Site, tmp_path: Path) -> None:
    """The error names the process that holds the lake or, for a copy of the lake, the walsender of the slot."""
    copy = copy_folder(lake.lake, chosen_store(tmp_path / "copy"))
    until_current = ["capture", "--until-current", "--source", lake.dsn]
    with command.start(["capture", "--source", lake.dsn, "--lake", lake.lake]) as first:
        walsender = _walsender(lake, first)
        done = command.run_here([*until_current, "--lake", lake.lake])
        assert done.code == LAKE, done.stderr
        assert f"process {first.pid} on {socket.gethostname()} (auditlake capture, since 20" in done.stderr
        done = command.run_here([*until_current, "--lake", copy])
        assert done.code == LAKE, done.stderr
        assert f"slot auditlake is read by pid {walsender} (auditlake, " in done.stderr
        assert "hint: " in done.stderr
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=30) == 0


def _walsender(site: Site, reader: command.Process) -> int:
    query = "select active_pid from pg_replication_slots where active_pid is not null"
    with psycopg.connect(site.dsn, autocommit=True) as conn:
        while not (rows := conn.execute(query).fetchall()):
            assert reader.poll() is None, "capture ended"
    return int(rows[0][0])


@pytest.mark.parametrize(
    "arguments", [["follow"], ["capture"], ["apply"], ["status"], ["sql", "select 1"], ["sql", "select"]]
)
def test_a_missing_lake_is_named_with_its_path(site: Site, arguments: list[str]) -> None:
    """Every command that needs a lake names the path it tried."""
    refused(site, LAKE, [str(site.lake)], arguments)


def test_a_lake_without_a_log_needs_bootstrap_again(site: Site) -> None:
    """A bootstrap that was killed early must be run again before capture can start."""
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
    "before the beginning": (NOT_ANSWERABLE, ["--as-of", "2 weeks ago", "select * from orders"], ["2026-11-21"]),
    "no moment": (USAGE, ["--as-of", "last week", "select * from orders"], ["last week"]),
    "half an LSN": (USAGE, ["--as-of", "0/", "select * from orders"], ["0/"]),
    "a syntax error": (USAGE, ["select * frm orders where"], ["SQL"]),
    "an unknown table": (USAGE, ["select * from ordrs"], ["ordrs"]),
    "a write": (USAGE, ["delete from orders"], ["DELETE"]),
}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_query_without_an_answer_is_refused_before_a_jvm_starts(site: Site, kind: str) -> None:
    """The error names the moment or name in the query and the known range."""
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
def test_an_invalid_command_line_is_a_usage_error(lake: Site, kind: str) -> None:
    """The error has the same form as every other error."""
    arguments, words = USAGES[kind]
    refused(lake, USAGE, words, arguments)


def test_a_separate_process_exits_with_the_same_codes(site: Site) -> None:
    """A shell sees the same codes, and nothing else is printed at exit; all but the first are forks of a process."""
    of_shell, run = partial(command.run, code=""), command.run
    nowhere = f"postgresql://me:{SECRET}@127.0.0.1:1/shop"
    held(site, UNREACHABLE, ["port 1 "], of_shell, ["bootstrap", "--source", nowhere])
    held(site, CONFIG, ["no tables"], run, ["bootstrap", "--source", site.dsn, "--table", "no.such"])
    held(site, LAKE, [str(site.lake)], run, ["sql", "select 1"])
    held(site, USAGE, ["--forever"], run, ["follow", "--forever"])
    make_lake(site.dsn, site.lake)
    asked = ["--as-of", "0/1", "select * from t"]
    held(site, NOT_ANSWERABLE, ["public.t", "0/1"], run, ["sql", *asked])
    site.execute("select pg_drop_replication_slot('auditlake')")
    held(site, WRONG_SOURCE, ["is gone"], run, ["follow", "--source", site.dsn])
