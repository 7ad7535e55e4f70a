"""Logical messages that any role may send: none does more than be ignored, whatever it claims to be."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import auditlake
from auditlake.lake.layout import Lake
from auditlake.lake.parking import read_records
from auditlake.lake.relations import ShapeSource, read_versions
from auditlake.pgoutput.attribution import PREFIXES
from auditlake.pgoutput.ddl_message import PREFIX
from auditlake.pgoutput.decoder import LogicalMessage, decode
from auditlake.query import duckdb_views
from auditlake.source.connection import connect
from auditlake.source.ddl_trigger import read_ddl_trigger
from auditlake.source.heartbeat import PREFIX as HEARTBEAT
from tests import command
from tests.attacks import NOT_STRICT, STRICT
from tests.capture_lake import make_lake
from tests.server import execute, install_trigger, oid_of

pytestmark = pytest.mark.pg

_SEALS = ("", '{"v": 2} ', f"3 {'0' * 64} ", f"3 {'f' * 64} ")
_IGNORED = "a message with the prefix auditlake:ddl is ignored"


@dataclass(frozen=True)
class Site:
    """A database with a lake, and a role that may connect and nothing else."""

    dsn: str
    stranger: str
    lake: Lake
    oid: int
    file: int

    def execute(self, *statements: str) -> None:
        """Run statements as the superuser, each in a transaction of its own."""
        execute(self.dsn, *statements)

    def send(self, contents: Sequence[bytes], prefix: str = PREFIX, *, transactional: bool = True) -> None:
        """Send messages as the stranger, in one transaction."""
        with psycopg.connect(self.stranger) as conn:
            for content in contents:
                sent = (transactional, prefix, content)
                conn.execute("select pg_logical_emit_message(%s, %s, %s::bytea)", sent)

    def capture(self) -> str:
        """Capture what was committed; return what was reported."""
        done = command.capture_here(self.dsn, self.lake)
        assert done.code == 0, done.stderr
        return done.stderr

    def rows(self) -> list[dict[str, str | None]]:
        """Return the state of `t`, ordered by key."""
        return sorted(auditlake.Lake(self.lake.root).as_of().table("t").texts(), key=lambda row: row["id"] or "")

    def claims(self) -> Iterator[dict[str, Any]]:
        """Yield what a message may claim about `t`, in JSON of the trigger's form."""
        column = [[1, "id", 23, -1, "nk", None, None], [2, "a", 25, -1, "", None, None]]
        shape = {
            "oid": self.oid,
            "schema": "public",
            "name": "t",
            "kind": "r",
            "persistence": "p",
            "identity": "d",
            "file": self.file,
            "partition": False,
            "columns": column,
        }
        yield {"dropped": [["table", self.oid, 0, ["public", "t"]]]}
        yield {"dropped": [["table column", self.oid, 2, ["public", "t", "a"]]], "relations": [shape]}
        yield {"rewritten": [[self.oid, 4]]}
        yield {"types": [{"oid": 25, "array": 1009, "kind": "c"}]}
        yield {"failed": True}
        changes: list[dict[str, Any]] = [
            {"name": "s"},
            {"schema": "secret"},
            {"persistence": "u"},
            {"identity": "f"},
            {"identity": "n"},
            {"kind": "p", "parents": [self.oid]},
            {"columns": [column[0], [2, "z", 25, -1, "", None, None]]},
            {"columns": [column[0], [2, "a", 20, -1, "", None, None]]},
            {"columns": [[1, "id", 23, -1, "n", None, None], [2, "a", 25, -1, "k", None, None]]},
            {"columns": [*column, [3, "b", 23, -1, "m", None, "{9}"]]},
            {"file": self.file + 1},
        ]
        for change in changes:
            yield {"relations": [shape | change], "rewritten": [[self.oid, 1]], "plain": True}

    def forged(self) -> list[bytes]:
        """Return every claim, unsealed and under a wrong seal."""
        common = {"v": 2, "tag": "DROP TABLE", "session_user": "postgres"}
        return [f"{seal}{json.dumps(common | claim)}".encode() for seal in _SEALS for claim in self.claims()]


@pytest.fixture(params=[False, True], ids=["without the trigger", "with it"])
def site(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Make the lake, with a row of `t`; the stranger owns nothing."""
    name = f"{conninfo_to_dict(database)['dbname']}_stranger"
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, a text)")
        conn.execute(f"create role {name} login".encode())
        oid = oid_of(conn, "t")
        row = conn.execute("select relfilenode from pg_class where oid = %s", (oid,)).fetchone()
        assert row is not None
    lake = make_lake(database, tmp_path / "lake")
    if request.param:
        install_trigger(database)
    site = Site(database, make_conninfo(database, user=name), lake, oid, row[0])
    site.execute("insert into t values (1, 'x')")
    site.capture()
    yield site
    site.execute(f"drop owned by {name} cascade; drop role {name}")


def test_a_forged_claim_changes_nothing(site: Site) -> None:
    """Neither the table's history, nor what is recorded about it; it is reported once."""
    before = read_versions(site.lake)
    site.send(site.forged())
    site.execute("insert into t values (2, 'y')")
    reported = site.capture()
    assert reported.count(_IGNORED) == 1
    assert read_versions(site.lake) == before
    assert read_records(site.lake) == []
    assert site.rows() == [{"id": "1", "a": "x"}, {"id": "2", "a": "y"}]
    site.execute("update t set a = 'z'")
    assert _IGNORED not in site.capture()
    assert site.rows() == [{"id": "1", "a": "z"}, {"id": "2", "a": "z"}]


def test_a_claim_beside_a_real_change_changes_nothing(site: Site, request: pytest.FixtureRequest) -> None:
    """The missing value, the name and the moment are those of the catalog; with the trigger they are exact."""
    with psycopg.connect(site.dsn) as conn:
        for content in site.forged():
            conn.execute("select pg_logical_emit_message(true, %s, %s::bytea)", (PREFIX, content))
        conn.execute("insert into t values (2, 'y')")
        conn.execute("alter table t add b int default 7")
        for content in site.forged():
            conn.execute("select pg_logical_emit_message(true, %s, %s::bytea)", (PREFIX, content))
    site.execute("insert into t values (3, 'y', 8)")
    site.capture()
    assert [row["b"] for row in site.rows()] == ["7", "7", "8"]
    with_trigger = "with it" in request.node.name
    sources = {version.source for version in read_versions(site.lake)[1:]}
    assert sources == ({ShapeSource.DDL_TRIGGER} if with_trigger else {ShapeSource.STREAM})


def _sent(conn: psycopg.Connection[Any]) -> list[bytes]:
    """Return the contents of the messages that a second slot has received."""
    found = conn.execute(
        "select data from pg_logical_slot_get_binary_changes('spy', null, null,"
        " 'proto_version', '1', 'publication_names', 'auditlake', 'messages', 'true')"
    ).fetchall()
    decoded = [decode(bytes(data)) for (data,) in found]
    return [each.content for each in decoded if isinstance(each, LogicalMessage) and each.transactional]


def test_a_message_cannot_be_sent_again(site: Site, request: pytest.FixtureRequest) -> None:
    """It is sealed for one transaction; a role that reads the WAL cannot use it in another."""
    if "without the trigger" in request.node.name:
        install_trigger(site.dsn)
    with psycopg.connect(site.dsn, autocommit=True) as conn:
        conn.execute("select pg_create_logical_replication_slot('spy', 'pgoutput')")
        conn.execute("alter table t rename to s")
        conn.execute("alter table s rename to t")
        sent = _sent(conn)
        conn.execute("select pg_drop_replication_slot('spy')")
    site.capture()
    before = read_versions(site.lake)
    assert [version.command for version in before[-2:]] == ["ALTER TABLE", "ALTER TABLE"]
    site.send(sent)
    site.execute("insert into t values (2, 'y')")
    assert _IGNORED in site.capture()
    assert read_versions(site.lake) == before


def test_no_content_under_any_prefix_ends_capture_or_a_reader(site: Site) -> None:
    """Transactional or not, of bytes, of JSON that cannot be encoded again, or of a forged claim."""
    contents = [text.encode() for text in NOT_STRICT] + [b"\xff\x00", b"", b"x" * 100_000, *site.forged()[:3]]
    for prefix in (*PREFIXES, PREFIX, HEARTBEAT, "auditlake:", "\x1b]0;x\a"):
        for transactional in (True, False):
            site.send(contents, prefix, transactional=transactional)
    site.execute("insert into t values (2, 'y')")
    site.capture()
    assert site.rows() == [{"id": "1", "a": "x"}, {"id": "2", "a": "y"}]
    for arguments in (["log"], ["log", "--json"], ["log", "--changes", "--since", "beginning", "--json"]):
        done = command.run_here([*arguments, "--lake", site.lake.root])
        assert done.code == 0, done.stderr
        assert "\x1b" not in done.stdout


@pytest.mark.parametrize("site", [True], indirect=True, ids=["with it"])
def test_every_context_is_a_jsonb(site: Site) -> None:
    """As docs/asking.md casts it, in PostgreSQL too; what is strict JSON is recorded as it was sent."""
    contents = [text.encode() for text in (*STRICT, *NOT_STRICT)]
    for content in [*contents, b"\xff\x00", b'{"actor": "\x00"}', b"a\x00b", b"\\u0000"]:
        site.send([content], "auditlake")
    site.capture()
    contexts = "auditlake.transactions where context is not null order by lsn"
    statement = f"select context, context::jsonb -> 'app' as app from {contexts}"
    asked = command.run_here(["sql", "--lake", site.lake.root, "--format", "json", statement])
    assert asked.code == 0, asked.stderr
    recorded = [json.loads(line) for line in asked.stdout.splitlines()]
    assert [each["context"] for each in recorded[: len(STRICT)]] == [f'{{"app": {text}}}' for text in STRICT]
    with psycopg.connect(site.dsn) as conn:
        for each in recorded:
            row = conn.execute("select (%s::jsonb -> 'app')::text", [each["context"]]).fetchone()
            assert row == (each["app"],)


@pytest.mark.parametrize("site", [True], indirect=True, ids=["with it"])
def test_long_messages_leave_the_log_readable(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few are no more than DuckDB holds of short rows; so many that they are more are refused."""
    site.send([b"x" * 600_000] * 3, "of somebody")
    site.capture()
    question: list[str | Path] = ["sql", "--lake", site.lake.root, "--format", "csv"]
    question.append("select prefix, count(*) from auditlake.changes where op = 'message' group by 1")
    done = command.run_here(question)
    assert "of somebody,3" in done.stdout, done.stderr
    monkeypatch.setattr(duckdb_views, "HELD_BYTES", 1 << 20)
    refused = command.run_here(question)
    assert (refused.code, "MB of rows of auditlake.changes" in refused.stderr) == (7, True)


@pytest.mark.parametrize("site", [True], indirect=True, ids=["with it"])
def test_messages_between_its_changes_leave_a_table_readable(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question holds the changes of its table that are not applied yet, and no others, however many."""
    monkeypatch.setattr(duckdb_views, "_TAIL_BYTES", 1 << 20)
    site.execute("insert into t values (1000, 'x')")
    site.send([b"x" * 300_000] * 4, "of somebody")
    site.send([b"x"] * 6_000, "of somebody")
    site.execute("update t set a = 'y' where id = 1000")
    site.capture()
    question: list[str | Path] = ["sql", "--lake", site.lake.root, "--format", "csv", "select a from t where id = 1000"]
    done = command.run_here(question)
    assert done.stdout == "a\ny\n", done.stderr
    site.execute("insert into t select n, repeat('z', 1000) from generate_series(2000, 3000) n")
    site.capture()
    refused = command.run_here(question)
    assert (refused.code, "a tail of 1 MB is not read in this dialect" in refused.stderr) == (7, True)


@pytest.mark.parametrize("site", [True], indirect=True, ids=["with it"])
def test_objects_that_stand_in_for_the_trigger_s_prove_nothing(site: Site) -> None:
    """The owner of the schema may replace what is in it, but cannot give it the owner of the event triggers."""
    role = conninfo_to_dict(site.stranger)["user"]
    site.execute(f"grant create on database {conninfo_to_dict(site.dsn)['dbname']} to {role}")
    site.execute(f"alter schema auditlake owner to {role}")
    with psycopg.connect(site.stranger, autocommit=True) as conn:
        conn.execute("alter schema auditlake rename to former")
        conn.execute("create schema auditlake")
        conn.execute("create materialized view auditlake.ddl_key as select '\\x00'::bytea as key")
        conn.execute(
            "create function auditlake.sealed_ddl(xids bigint[], digests bytea[], seals bytea[]) returns boolean[]"
            " language sql as 'select array_fill(true, array[cardinality(xids)])'"
        )
        conn.execute("grant usage on schema auditlake to public")
    before = read_versions(site.lake)
    site.send(site.forged())
    site.execute("insert into t values (2, 'y')")
    assert _IGNORED in site.capture()
    assert (read_versions(site.lake), read_records(site.lake)) == (before, [])
    with connect(site.dsn) as control:
        assert not read_ddl_trigger(control).records


@pytest.mark.parametrize("site", [True], indirect=True, ids=["with it"])
def test_nobody_else_may_read_the_key_or_keep_others_from_it(site: Site) -> None:
    """Default privileges do not reach it, a role without any can ask about seals, and a lock does not wait."""
    site.execute("drop schema auditlake cascade", "alter default privileges grant select on tables to public")
    install_trigger(site.dsn)
    with psycopg.connect(site.stranger, autocommit=True) as conn:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("select * from auditlake.ddl_key")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute("refresh materialized view auditlake.ddl_key")
        assert conn.execute("select auditlake.sealed_ddl('{1}', array['a'::bytea], array['b'::bytea])").fetchone() == (
            [False],
        )
    site.execute("grant select on auditlake.ddl_key to public")
    with connect(site.dsn) as control:
        assert not read_ddl_trigger(control).records
