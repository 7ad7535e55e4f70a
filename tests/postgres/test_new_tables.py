"""New tables are found and copied while capture runs; a database without tables is a valid start."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from auditlake.lake.history import open_history
from auditlake.lake.layout import Lake
from auditlake.messages import Event, Notice
from auditlake.relation import TableName
from auditlake.snapshot import new_tables
from auditlake.snapshot.bootstrap import Target
from auditlake.source.connection import connect
from auditlake.values.escapes import visible
from tests import command, oracle
from tests.read_lake import history_of
from tests.running import Running, await_true
from tests.s3_server import chosen_lake
from tests.server import execute

pytestmark = pytest.mark.pg

_SPARK = {"spark.master": "local[1]"}
_COPIES = new_tables._CHILD  # noqa: SLF001 - some tests do something before it


@dataclass
class Site:
    """A database and its lake."""

    dsn: str
    lake: Lake
    said: list[str] = field(default_factory=list)

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        execute(self.dsn, *statements)

    def bootstrap(self, *arguments: str) -> command.Done:
        """Run the command."""
        return command.run_here(["bootstrap", "--source", self.dsn, "--lake", self.lake.root, *arguments])

    def target(self, patterns: tuple[str, ...] | None = None) -> Target:
        """Return what follow would copy."""
        return Target(self.dsn, self.lake, "auditlake", "auditlake", patterns, failover=False)

    def new(self, patterns: tuple[str, ...] | None = None) -> list[str]:
        """Return the new tables that follow would copy."""
        with connect(self.dsn) as conn:
            return [table.name.table for table in new_tables.find_new(conn, self.target(patterns))]

    def has(self, table: str) -> bool:
        """Return whether a table has a history."""
        return open_history(self.lake, TableName("public", table)) is not None

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Capture and copy new tables during the block, as `follow` does."""
        stop, job = threading.Event(), new_tables.Job(self.target(), _SPARK)
        watching = threading.Thread(target=new_tables.watch, args=(job, stop, self.said.append))
        with Running(self.dsn, self.lake):
            watching.start()
            try:
                yield
            finally:
                stop.set()
                watching.join()


@pytest.fixture
def site(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A database without tables; looks come often, and commits of an idle capture, for which a copy waits."""
    monkeypatch.setattr(new_tables, "_INTERVAL_S", 0.1)
    monkeypatch.setattr("auditlake.capture.capture._IDLE_COMMIT_S", 0.1)
    return Site(database, chosen_lake(tmp_path / "lake"))


def test_an_empty_database_is_a_valid_start(site: Site) -> None:
    """Tables created later are copied with their rows and followed; what cannot be followed is reported once."""
    done = site.bootstrap()
    assert done.code == 0, done.stderr
    assert "there are no tables yet; follow copies new ones" in done.stderr
    with site.followed():
        site.execute(
            "create table plain (n int)",
            "create table a (id int primary key); insert into a select generate_series(1, 10)",
        )
        await_true(lambda: site.has("a"))
        site.execute("insert into a values (11)", "create schema s", "create table s.b (id int primary key)")
        await_true(lambda: any(row["new"] == ["11"] for row in oracle.changes(site.lake)))
        await_true(lambda: open_history(site.lake, TableName("s", "b")) is not None)
        await_true(lambda: any("plain: replica identity" in line for line in site.said))
    history = history_of(site.lake, TableName("public", "a"))
    rows = [row["lsn"] for row in oracle.changes(site.lake) if row["table"] == "a"]
    assert history.horizon < min(rows)
    assert sum("public.plain is not followed: table public.plain" in line for line in site.said) == 1
    assert any("public.a is a new table: copied 10 rows" in line for line in site.said)


def test_tables_of_any_name_are_copied_and_reported_in_a_line_each(site: Site) -> None:
    """No character of a name is one of a pattern, and none ends a line of the process that copies."""
    names = ["!orders", "[!a]*?", "a[1]", "x\nerror: slot is gone\n  too\ufeff"]
    assert site.bootstrap().code == 0
    with site.followed():
        site.execute("; ".join(["begin", *(f'create table "{name}" (id int primary key)' for name in names), "commit"]))
        await_true(lambda: len(site.said) >= len(names), timeout_s=120)
    assert all(map(site.has, names)), site.said
    shown = {visible(str(TableName("public", name))) for name in names}
    assert {line.partition(" is a new table: copied 0 rows at ")[0] for line in site.said} == shown
    assert [line.event for line in site.said if isinstance(line, Notice)] == [Event.TABLE_COPIED] * len(names)


def test_only_tables_that_match_are_new(site: Site) -> None:
    """Those for which bootstrap created the publication, unless the setting `tables` says otherwise."""
    site.execute("create table a_1 (id int primary key)")
    assert site.bootstrap("--table", "public.a_*").code == 0
    site.execute("create table a_2 (id int primary key)", "create table b (id int primary key)")
    assert site.new() == ["a_2"]
    assert site.new(("public.b",)) == ["b"]
    assert site.new(("public.*", "!public.b")) == ["a_2"]


def test_a_publication_of_others_says_what_is_new(site: Site) -> None:
    """FOR ALL TABLES has every table; one that lists its tables is not extended."""
    site.execute("create table a (id int primary key)", "create publication auditlake for table a")
    assert site.bootstrap().code == 0
    site.execute("create table b (id int primary key)")
    assert site.new() == []
    assert site.new(("public.b",)) == []
    site.execute("alter publication auditlake add table b")
    assert site.new() == ["b"]


def test_a_table_locked_by_the_application_makes_nobody_wait(site: Site) -> None:
    """Writes to the other tables are captured while the copy of the new one waits for its lock."""
    site.execute("create table a (id int primary key)")
    assert site.bootstrap().code == 0
    with site.followed():
        site.execute("create table b (id int primary key)")
        with psycopg.connect(site.dsn) as holder:
            holder.execute("lock table b in access exclusive mode")
            site.execute("insert into a values (1)")
            await_true(lambda: any(row["new"] == ["1"] for row in oracle.changes(site.lake)))
            assert not site.has("b")
        await_true(lambda: site.has("b"))


def test_a_locked_table_delays_no_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table on which CREATE INDEX CONCURRENTLY runs cannot be published, and another new one is."""
    assert site.bootstrap().code == 0
    hurried = f"from auditlake.source import lock_waits; lock_waits.LOCK_TIMEOUT_S = 1; {_COPIES}"
    monkeypatch.setattr(new_tables, "_CHILD", hurried)
    with psycopg.connect(site.dsn) as holder:
        site.execute("begin; create table a (id int primary key); create table b (id int primary key); commit")
        holder.execute("lock table a in share mode")
        with site.followed():
            await_true(lambda: site.has("b"))
            await_true(lambda: any("public.a could not be published in time" in line for line in site.said))
    assert not site.has("a")


def test_a_bug_while_a_new_table_is_copied_is_reported_with_its_place(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hint asks to report the lines above it."""
    assert site.bootstrap().code == 0
    breaks = "from auditlake.snapshot import new_tables; new_tables._run = lambda job: 1 / 0; new_tables.main()"
    monkeypatch.setattr(new_tables, "_CHILD", breaks)
    with site.followed():
        site.execute("create table a (id int primary key)")
        await_true(lambda: site.said)
    (said,) = site.said
    assert "public.a is not followed: " in said
    assert "unexpected ZeroDivisionError at" in said
    assert "Please report the lines above" in said


def test_a_table_that_cannot_be_followed_leaves_the_others_together(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is found by halves: eight tables take seven copies, not nine, and a hundred fifteen."""
    assert site.bootstrap().code == 0
    counts = tmp_path / "copies"
    monkeypatch.setattr(new_tables, "_CHILD", f"open({str(counts)!r}, 'a').write('.'); {_COPIES}")
    with site.followed():
        tables = "; ".join(f"create table t{n} (id int primary key)" for n in range(1, 8))
        site.execute(f"begin; create table t0 (n int); {tables}; commit")
        await_true(lambda: all(site.has(f"t{n}") for n in range(1, 8)), 90)
    assert len(counts.read_text()) <= 7
    assert sum("public.t0 is not followed: table public.t0" in line for line in site.said) == 1


def test_a_table_that_is_dropped_before_its_copy_is_not_reported(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is nothing that could be followed, or mended."""
    assert site.bootstrap().code == 0
    drops = f"import psycopg; psycopg.connect({site.dsn!r}, autocommit=True).execute('drop table if exists a')"
    monkeypatch.setattr(new_tables, "_CHILD", f"{drops}; {_COPIES}")
    with site.followed(), psycopg.connect(site.dsn, autocommit=True) as conn:
        conn.execute("create table a (id int primary key)")
        await_true(lambda: conn.execute("select to_regclass('public.a')").fetchone() == (None,))
        conn.execute("create table b (id int primary key)")
        await_true(lambda: site.has("b"))
    assert not any("is not followed" in line for line in site.said)
