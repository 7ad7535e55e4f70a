"""`auditlake bootstrap` on the command line: failing tables, killed workers, rate limit, a completing second run.

The copy is compared with PostgreSQL's own texts at a later moment. No JVM.
"""

import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.capture import change_log
from auditlake.failpoints import After
from auditlake.lake import manifest
from auditlake.lake.layout import Lake
from auditlake.snapshot import bootstrap
from auditlake.snapshot import ctid_ranges as ranges
from auditlake.snapshot.worker_pool import LocalWorkers
from tests import command, oracle
from tests.full_disk import file_size_limit
from tests.running import await_true
from tests.s3_server import chosen_lake, on_disk
from tests.server import execute, install_trigger

pytestmark = [pytest.mark.pg, pytest.mark.usefixtures("bare_environment")]

_PASSWORD = "of-nobody"
_WAITING = "select from pg_locks where not granted and locktype in ('relation', 'transactionid')"
_SESSIONS = "select from pg_stat_activity where datname = current_database() and application_name = 'auditlake'"
_ODD_TYPE = """
create type odd;
create function odd_in(cstring) returns odd language internal immutable strict as 'int4in';
create function odd_out(odd) returns cstring language internal immutable strict as 'trigger_out';
create type odd (input = odd_in, output = odd_out, like = int4);
"""


@dataclass(frozen=True)
class Site:
    """A database, and a folder for its lake."""

    dsn: str
    lake: Lake

    def execute(self, statements: str) -> None:
        """Run SQL as the superuser."""
        execute(self.dsn, statements)

    def arguments(self, *more: str) -> Sequence[str | Path]:
        """Return the arguments of `auditlake bootstrap`."""
        return ["bootstrap", "--source", self.dsn, "--lake", self.lake.root, *more]

    def bootstrap(self, *more: str) -> command.Done:
        """Run bootstrap in this process."""
        return command.run_here(self.arguments(*more))

    def assert_copied(self, *tables: str) -> None:
        """Check that snapshot and changes in the lake result in PostgreSQL's current state."""
        moment = oracle.take_moment(self.dsn, tables)
        done = command.run_here(
            ["capture", "--until-current", "--source", self.dsn, "--lake", self.lake.root],
        )
        assert done.code == 0, done.stderr
        assert oracle.assert_log(self.lake, [moment]) == [len(tables)]


@pytest.fixture
def site(database: str, tmp_path: Path) -> Site:
    """An empty database."""
    return Site(database, chosen_lake(tmp_path / "lake"))


@on_disk("no object is too large for a file")
def test_tables_that_fail_are_named_and_the_others_copied(site: Site) -> None:
    """No privilege, dropped before its lock, unreadable, unwritable; after a fix a second run copies them."""
    role = f"{conninfo_to_dict(site.dsn)['dbname']}_role"
    site.execute(_ODD_TYPE)
    tables = ("fine", "gone", "private", "unreadable", "unwritable")
    for name in tables:
        site.execute(f"create table {name} (id int primary key, v text); insert into {name} values (1, '{name}')")
    site.execute(f"""
        insert into unwritable select n, md5(n::text) from generate_series(2, 20000) n;
        alter table unreadable add odd odd; update unreadable set odd = '1';
        create role {role} login replication password '{_PASSWORD}';
        grant create on database {conninfo_to_dict(site.dsn)["dbname"]} to {role};
        {"".join(f"alter table {name} owner to {role};" for name in tables)}
        revoke select on private from {role};
    """)
    limited = Site(make_conninfo(site.dsn, host="127.0.0.1", user=role, password=_PASSWORD), site.lake)
    with file_size_limit(1 << 17), closing(psycopg.connect(site.dsn)) as dropping, ThreadPoolExecutor(1) as pool:
        dropping.execute("drop table gone")
        running = pool.submit(limited.bootstrap)
        with psycopg.connect(site.dsn, autocommit=True) as control:
            await_true(lambda: running.done() or control.execute(_WAITING).fetchall())
        dropping.commit()
        done = running.result()
    assert done.code == 3, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("auditlake: error: ")]
    assert len(errors) == 1, done.stderr
    for name in tables[1:]:
        assert f"public.{name}" in errors[0]
    assert _PASSWORD not in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["table", "public.fine"]

    site.execute(f"grant select on private to {role}; alter table unreadable drop column odd")
    again = limited.bootstrap()
    assert again.code == 0, again.stderr
    copied = [line.split()[0] for line in again.stdout.splitlines()]
    assert copied == ["table", "public.private", "public.unreadable", "public.unwritable", "3"]
    site.assert_copied("fine", "private", "unreadable", "unwritable")


@on_disk("an object exists once it is complete")
def test_a_killed_worker_fails_only_its_own_tables(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bootstrap that is killed while workers run leaves no session."""
    monkeypatch.setattr(ranges, "_BUNDLE_COUNT", 1)
    site.execute("create table large (id int primary key, v text); create table small (id int primary key)")
    site.execute(
        "insert into large select n, md5(n::text) from generate_series(1, 3000) n; insert into small values (1)"
    )
    slowly = ("--copy-bytes-per-s", "2000")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(command.run_here, site.arguments(*slowly), LocalWorkers)
        await_true(lambda: running.done() or (_begun(site, "large") and _begun(site, "small")))
        for worker in _sleeping_workers(site):
            os.kill(worker, signal.SIGKILL)
        done = running.result(60)
    assert done.code == 6, done.stderr
    assert "table public.large could not be copied: its worker was killed by signal 9" in done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["table", "public.small"]
    with command.start(site.arguments(*slowly)) as process, psycopg.connect(site.dsn, autocommit=True) as control:
        await_true(lambda: process.poll() is not None or _begun(site, "large"))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        await_true(lambda: not control.execute(_SESSIONS).fetchall())
    done = site.bootstrap()
    assert done.code == 0, done.stderr
    site.assert_copied("large", "small")


def test_the_copy_keeps_within_the_rate_limit(site: Site) -> None:
    """Progress reports the total size, and in a second run the remaining size."""
    site.execute(
        "create table t (id int primary key, v text); insert into t select n, md5('') from generate_series(1, 9000) n"
    )
    site.execute("analyze t")
    limits = ("--copy-connections", "1", "--copy-bytes-per-s", "200000")
    begun_s = time.monotonic()
    done = site.bootstrap(*limits, "--json")
    took_s = time.monotonic() - begun_s
    assert done.code == 0, done.stderr
    with psycopg.connect(site.dsn) as conn:
        ((value_bytes, table_bytes),) = conn.execute(
            "select sum(4 + octet_length(v)), pg_table_size('t') from t"
        ).fetchall()
    assert took_s >= value_bytes / 200_000
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events].count("copied") == 1
    progress, end = events[-2:]
    assert (progress["event"], end["event"]) == ("progress", "done")
    assert (progress["rows"], progress["expected_rows"], end["rows"]) == (9000, 9000, 9000)
    assert (progress["bytes"], progress["seconds_left"]) == (progress["expected_bytes"], 0)
    assert table_bytes / 2 < progress["expected_bytes"] <= table_bytes
    earlier = [event for event in events if event["event"] == "progress" and not event["rows"]]
    assert earlier
    assert all(event["seconds_left"] is None for event in earlier)


def test_the_sql_of_check_removes_every_finding(site: Site) -> None:
    """Bootstrap reports the first three findings; after the SQL block of `check` there are none.

    UPDATE and DELETE on a table that another publication carries fail already.
    """
    site.execute("".join(f"create table t{number} (id int);" for number in range(5)))
    site.execute("create publication theirs for table t4")
    refused = site.bootstrap()
    assert refused.code == 3
    assert "table public.t2: replica identity is" in refused.stderr
    assert "; and 2 more" in refused.stderr
    assert "Run auditlake check" in refused.stderr
    done = command.run_here(["check", "--source", site.dsn])
    assert done.code == 3
    assert "warning: table public.t4: UPDATE and DELETE fail already: publication theirs" in done.stderr
    site.execute(done.stdout[done.stdout.index("-- the statements above") :])
    again = command.run_here(["check", "--source", site.dsn])
    assert (again.code, again.stderr.count("\n"), "DDL trigger" in again.stderr) == (0, 1, True), again


@on_disk("an object exists once it is complete")
def test_implicit_casts_of_a_database_make_no_query_ambiguous(site: Site) -> None:
    """Of numbers to text, which applications of other databases expect."""
    for of_type in ("int2", "int4", "oid", "regcollation"):
        site.execute(f"create cast ({of_type} as text) with inout as implicit")
    site.execute("create type pair as (a int, b text); create type mood as enum ('a')")
    site.execute('create table t (id int primary key, p pair, m mood, l mood[], c text collate "C")')
    done = site.bootstrap()
    assert done.code == 0, done.stderr
    site.execute("insert into t values (1, row(1, 'x'), 'a', '{a}', 'y')")
    site.assert_copied("t")


def test_an_event_trigger_that_refuses_a_command_is_reported(site: Site) -> None:
    """With its own message; the database may log or forbid what changes it."""
    site.execute("create table t (id int primary key)")
    raising = "create function refuse() returns event_trigger language plpgsql as $$ begin raise 'frozen'; end $$"
    site.execute(raising)
    site.execute("create event trigger refuse on ddl_command_start execute function refuse()")
    installing = (
        ["check", wanted, "--yes", "--source", site.dsn] for wanted in ("--install-ddl-trigger", "--install-context")
    )
    for done in (site.bootstrap(), *map(command.run_here, installing)):
        assert (done.code, "frozen" in done.stderr) == (3, True), done.stderr
        assert "event trigger" in done.stderr


def test_an_interrupted_bootstrap_reports_what_is_kept(site: Site) -> None:
    """One line and exit code 130; the next run copies the rest."""
    site.execute("create table large (id int primary key, v text); create table small (id int primary key)")
    site.execute("insert into large select n, md5(n::text) from generate_series(1, 3000) n")
    with command.start(site.arguments("--copy-bytes-per-s", "2000")) as process:
        await_true(lambda: process.poll() is not None or _begun(site, "large"))
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    # Capture may have started meanwhile, or not.
    said = [line for line in stderr.splitlines() if not line.startswith(("auditlake: copied ", "auditlake: started: "))]
    assert len(said) == 1, stderr
    assert "tables are in the lake and stay; run auditlake bootstrap again" in said[0]
    assert site.bootstrap().code == 0
    site.assert_copied("large", "small")


@pytest.mark.parametrize(
    ("place", "code"),
    [(After.MANIFEST, 0), (After.PUBLICATION, 0), (After.SLOT, 6), (After.START, 6)],
)
def test_a_bootstrap_that_wakes_after_another_one_changes_nothing(site: Site, place: After, code: int) -> None:
    """Suspended until its lease has expired, say: it ends well, or as another writer."""
    site.execute("create table t (id int primary key); insert into t values (1)")
    places, others = [place], list[command.Done]()

    def suspended(reached: After) -> None:
        if reached in places:
            places.clear()
            others.append(site.bootstrap())

    with ExitStack() as held:
        held.enter_context(mock.patch.object(bootstrap, "hold", return_value=nullcontext()))
        for module in (manifest, bootstrap, change_log):
            held.enter_context(mock.patch.object(module, "reach", suspended))
        woken = site.bootstrap()
    assert ([other.code for other in others], woken.code) == ([0], code), woken.stderr
    assert site.bootstrap().code == 0
    site.assert_copied("t")


@pytest.mark.parametrize("is_open", [False, True])
def test_a_bootstrap_whose_log_another_one_starts_meanwhile_ends(site: Site, *, is_open: bool) -> None:
    """Before it opens the log, or before its first commit."""
    site.execute("create table t (id int primary key); insert into t values (1)")
    others = list[command.Done]()

    def suspended(lake: Lake) -> change_log.CaptureLog:
        opened.stop()
        log = change_log.CaptureLog(lake) if is_open else None
        others.append(site.bootstrap())
        return log or change_log.CaptureLog(lake)

    opened = mock.patch.object(bootstrap, "CaptureLog", suspended)
    with mock.patch.object(bootstrap, "hold", return_value=nullcontext()):
        opened.start()
        woken = site.bootstrap()
    assert ([other.code for other in others], woken.code) == ([0], 6), woken.stderr
    site.assert_copied("t")


def _drop(site: Site) -> command.Done:
    return command.run_here(["drop", "--yes", "--source", site.dsn, "--lake", site.lake.root])


def test_drop_removes_what_bootstrap_created(site: Site) -> None:
    """Afterwards bootstrap names the missing slot; without a lake nothing is dropped."""
    site.execute("create table t (id int primary key)")
    assert site.bootstrap().code == 0
    elsewhere = Site(site.dsn, chosen_lake(site.lake.root.parent / "elsewhere"))
    assert _drop(elsewhere).code == 6
    assert _left(site) == (["auditlake"], ["auditlake"])
    install_trigger(site.dsn)
    done = _drop(site)
    assert (done.code, _left(site)) == (0, ([], [])), done.stderr
    assert "removed the DDL trigger" in done.stderr
    again = site.bootstrap()
    assert again.code == 5, again.stderr
    assert "slot auditlake is gone" in again.stderr
    assert "hint: " in again.stderr
    assert _left(site) == ([], [])


def test_drop_keeps_objects_it_did_not_create_or_others_may_use(site: Site) -> None:
    """A publication that existed before, one that another slot may use, and a slot of another lake."""
    site.execute("create table t (id int primary key); create publication auditlake for table t")
    assert site.bootstrap().code == 0
    done = _drop(site)
    assert (done.code, _left(site)) == (0, ([], ["auditlake"])), done.stderr
    assert "publication auditlake stays" in done.stderr

    site.execute("drop publication auditlake")
    second = Site(site.dsn, chosen_lake(site.lake.root.parent / "second"))
    assert second.bootstrap().code == 0
    third = Site(site.dsn, chosen_lake(site.lake.root.parent / "third"))
    assert third.bootstrap("--slot", "other").code == 0
    install_trigger(site.dsn)
    done = _drop(second)
    assert (done.code, _left(site)) == (3, (["other"], ["auditlake"])), done.stderr
    assert "the DDL trigger stays: slot other of this database may need it" in done.stderr
    assert "publication auditlake was not dropped: slot other of this database may read it" in done.stderr

    site.execute("select pg_create_logical_replication_slot('auditlake', 'pgoutput')")
    done = _drop(second)
    assert (done.code, _left(site)) == (5, (["auditlake", "other"], ["auditlake"])), done.stderr
    assert "another lake or client reads it" in done.stderr


def _left(site: Site) -> tuple[list[str], list[str]]:
    """Return the slots and publications of the database."""
    with psycopg.connect(site.dsn) as conn:
        slots = conn.execute("select slot_name::text from pg_replication_slots where database = current_database()")
        names = sorted(str(name) for (name,) in slots.fetchall())
        return names, [str(name) for (name,) in conn.execute("select pubname::text from pg_publication").fetchall()]


def _begun(site: Site, table: str) -> bool:
    return any((site.lake.histories / "public" / table).rglob("*.parquet"))


def _sleeping_workers(site: Site) -> Iterator[int]:
    """Yield the workers whose table is not in the lake yet: they wait for the rate limit."""
    await_true((site.lake.histories / "public" / "small" / "_delta_log" / f"{1:020}.json").exists)
    for pid in command.children():
        with suppress(OSError):
            if b"auditlake.snapshot.worker_pool" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                yield pid
