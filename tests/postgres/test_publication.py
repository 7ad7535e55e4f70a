"""Changes of a publication: detected before the first byte, or by a running capture."""

import json
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest import mock

import psycopg
import pytest
from psycopg import sql

import auditlake
import auditlake.resync.resync as resyncing
from auditlake.capture import publication_watch
from auditlake.capture.publication_watch import PublicationWatch
from auditlake.errors import NotAnswerable
from auditlake.lake.gaps import read_gaps
from auditlake.lake.layout import Lake
from auditlake.lake.parking import Cause, SegmentState, find_parked, unpark
from auditlake.lake.positions import read_positions
from auditlake.lake.records import recorded_or_new
from auditlake.lsn import Lsn
from auditlake.relation import TableName
from auditlake.snapshot.plan import findings, read_source, survey
from auditlake.source.catalog import Source, choose, read_row_filters, read_tables
from auditlake.source.connection import connect, fetch, fetch_one
from auditlake.source.preflight import find_failing
from auditlake.source.publication import read_failing, read_membership, read_publication
from auditlake.temporal.moments import read_known
from auditlake.temporal.when import AtLsn, AtNow, AtTime
from tests import command
from tests.capture_lake import make_lake
from tests.running import Running, inserted
from tests.s3_server import chosen_lake
from tests.server import chosen_version, execute, install_trigger, wal_end

pytestmark = pytest.mark.pg

SOURCE_UNREADY, WRONG_SOURCE = 3, 5


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Lake:
    """A lake of two empty tables after one capture."""
    execute(database, "create table t (id int primary key, v text)", "create table u (id int primary key)")
    lake = make_lake(database, tmp_path / "lake")
    assert command.capture_here(database, lake).code == 0
    return lake


PUBLICATIONS = (
    "for all tables",
    "for all tables with (publish_via_partition_root = true)",
    "for table t, root, s.root",
    "for table t, leaf_1, root with (publish_via_partition_root = true)",
    "for table leaf_2, middle",
    "for tables in schema s",
    "for tables in schema public, table s.root with (publish_via_partition_root = true)",
    "for tables in schema public with (publish_via_partition_root = true)",
    "for table t, root, lists (id, b, g), child",
    "for table lists (b, id), only parent (id) where (id > 1), t where (id in (1, 2) and id <> abs(id - 3))",
    "for table root (id) where (id > 3), leaf_1 where (id > 5) with (publish_via_partition_root = true)",
    "for tables in schema s, table public.t where (id > 1), s.t where (id > 2)",
    *(f"for table lists, t with (publish_generated_columns = {which})" for which in ("none", "stored")),
    "for all tables with (publish_generated_columns = stored)",
    "for tables in schema public with (publish_generated_columns = stored, publish_via_partition_root = true)",
)
TREES = """
create schema s;
create table t (id int primary key);
create unlogged table without_wal (id int primary key);
create view shown as select * from t;
create table root (id int primary key) partition by range (id);
create table leaf_1 partition of root for values from (0) to (10);
create table middle partition of root for values from (10) to (30) partition by range (id);
create table leaf_2 partition of middle for values from (10) to (20);
create table s.leaf_3 partition of middle for values from (20) to (30);
create table s.root (id int primary key) partition by range (id);
create table s.leaf partition of s.root default;
create table s.t (id int primary key);
create table parent (id int primary key);
create table child () inherits (parent);
create table lists (id int primary key, a text, b text, g int generated always as (1) stored, c int);
alter table lists drop column a;
create table blank ();
create foreign data wrapper far;
create server far foreign data wrapper far;
create foreign table distant (id int) server far;
"""
_WRITTEN = "insert into t values (3, 'later')"
_VIEW = """
select schemaname::text, tablename::text,
       coalesce((select array_agg(n) from jsonb_array_elements_text(nullif(to_jsonb(t) -> 'attnames', 'null')) n),
                array(select attname::text from pg_attribute
                       where attrelid = format('%I.%I', schemaname, tablename)::regclass
                         and attnum > 0 and not attisdropped and attgenerated = '')),
       to_jsonb(t) ->> 'rowfilter'
  from pg_publication_tables t where pubname = 'p' order by 1, 2
"""
AGAIN = "create publication auditlake for table t, u"
WHOLE = {
    "dropped": (["drop publication auditlake"], ["publication auditlake is gone"]),
    "dropped, and made again": (
        ["drop publication auditlake", "insert into t values (1)", AGAIN],
        ["dropped and created again"],
    ),
    "inserts only": (
        ["alter publication auditlake set (publish = 'insert')"],
        ["no longer carries delete, truncate, update"],
    ),
}
LOSSES = {
    "a table taken out": (["alter publication auditlake drop table t"], ["no longer carries public.t"]),
    "a table taken out, and put back": (
        ["alter publication auditlake drop table t", "alter publication auditlake add table t"],
        ["public.t", "taken out and put back"],
    ),
    "a row filter": (
        ["alter publication auditlake set table t where (id > 5), u"],
        ["public.t", "row filter or columns were changed"],
    ),
    "fewer columns": (
        ["alter publication auditlake set table t (id), u"],
        ["public.t", "row filter or columns were changed"],
    ),
    "a table dropped, and made again": (
        ["drop table t", "create table t (id int primary key, v text)", "alter publication auditlake add table t"],
        ["table public.t was dropped at the source"],
    ),
}


def test_a_publication_with_fewer_operations_is_refused(database: str, lake: Lake) -> None:
    """The error has the missing range, and nothing is read; the record is renewed before each case."""
    before = read_positions(lake)
    for kind, (statements, words) in WHOLE.items():
        low = wal_end(database)
        execute(database, *statements)
        done = command.capture_here(database, lake)
        assert done.code == WRONG_SOURCE, (kind, done.stderr)
        for word in words:
            assert word in done.stderr, kind
        since, _, end = done.stderr.split("changes from ")[1].split()[:3]
        assert Lsn.parse(since) <= low < Lsn.parse(end) <= wal_end(database)
        assert read_positions(lake) == before
        restore(database, lake)


def test_a_lake_is_not_renewed_from_a_publication_with_fewer_operations(database: str, lake: Lake) -> None:
    """The stream would lack them from then on, and what the publication carries now would count as all of it."""
    execute(database, "alter publication auditlake set (publish = 'insert')")
    renew = ["resync", "--all", "--yes", "--source", database, "--lake", str(lake.root)]
    done = command.run_here(renew)
    assert done.code == SOURCE_UNREADY, done.stderr
    assert "set (publish = 'insert, update, delete, truncate')" in done.stderr.lower()
    execute(database, "alter publication auditlake set (publish = 'insert, update, delete, truncate')")
    assert command.run_here(renew).code == 0
    execute(database, "insert into t values (1)", "update t set v = 'kept'")
    assert command.capture_here(database, lake).code == 0
    assert [row["v"] for row in auditlake.Lake(lake.root).as_of().table("t").texts()] == ["kept"]


def test_a_table_removed_from_the_publication_is_parked(database: str, lake: Lake) -> None:
    """Capture continues with the others; queries of the table after the last certain moment are refused."""
    for number, (kind, (statements, words)) in enumerate(LOSSES.items()):
        low = wal_end(database)
        execute(database, *statements, f"insert into u values ({number})")
        for _ in range(2):
            done = command.capture_here(database, lake)
            assert done.code == 0, (kind, done.stderr)
        known = read_known(lake)
        ((name, parked),) = known.parked.items()
        assert str(name) == "public.t"
        for word in words:
            assert word in parked.reason, kind
        assert ("Publish all of" in parked.remedy) == ("no longer carries" in parked.reason)
        assert parked.lsn < low < parked.until <= wal_end(database)
        assert inserted(lake)[-1] == number
        for lsn, when in ((parked.lsn + 1, AtLsn(Lsn(parked.lsn + 1))), (parked.lsn, None)):
            with pytest.raises(NotAnswerable, match=f"known up to {parked.lsn}: .*public.t"):
                known.timeline(known.tables[name]).require((Lsn(lsn), when))
        known.timeline(known.tables[name]).require((parked.lsn, AtLsn(parked.lsn)))
        known.timeline(known.tables[name]).require((parked.lsn, AtTime(parked.time_us or 0)))
        assert unpark(lake, name, Cause.PUBLICATION)
        restore(database, lake)
        assert command.capture_here(database, lake).code == 0


def restore(dsn: str, lake: Lake) -> None:
    """Restore the publication, and record it."""
    execute(dsn, "drop publication if exists auditlake", AGAIN)
    lake.publication.unlink(missing_ok=True)
    with connect(dsn) as conn:
        found = read_membership(conn, "auditlake")
    assert found is not None
    recorded_or_new(lake, found)


_MADE_A_PARTITION = (
    "create table root (id int primary key, v text) partition by range (id)",
    "alter publication auditlake add table root",
    "alter table root attach partition t for values from (0) to (9)",
    "insert into t values (1, 'not in the stream of t')",
)


@pytest.mark.parametrize("later", ["insert into t values (2)", "alter table t alter v set not null"])
@pytest.mark.parametrize("with_trigger", [False, True])
def test_a_table_that_was_a_partition_for_some_time_is_parked(
    database: str, lake: Lake, later: str, *, with_trigger: bool
) -> None:
    """Its changes came under the name of the root, which the publication listed, too."""
    if with_trigger:
        install_trigger(database)
    execute(
        database,
        *_MADE_A_PARTITION,
        "alter table root detach partition t",
        "drop table root",
        later,
    )
    assert "public.t: it may have been a partition of another table" in command.capture_here(database, lake).stderr
    known = read_known(lake)
    with pytest.raises(NotAnswerable, match="may have been a partition"):
        known.timeline(known.tables[TableName("public", "t")]).require((known.now_lsn, AtNow()))


def test_a_table_that_becomes_a_partition_ends(database: str, lake: Lake) -> None:
    """It is said once, and holds up no target; as a table of its own again, it gets a new snapshot."""
    execute(database, *_MADE_A_PARTITION)
    reason = "table public.t is a partition of public.root now, whose history has its rows"
    said = [command.capture_here(database, lake).stderr for _ in range(3)]
    assert [reason in each for each in said] == [True, False, False]
    (ended,) = read_known(lake).parked.values()
    assert (ended.table, ended.reason, ended.state) == (TableName("public", "t"), reason, SegmentState.ENDED)
    execute(database, "alter table root detach partition t", "insert into t values (2, 'in it')")
    assert "public.t was a partition of another table" in command.capture_here(database, lake).stderr
    (parked,) = read_known(lake).parked.values()
    assert (parked.lsn, parked.is_renewed) == (ended.lsn, True)


@pytest.mark.parametrize("with_trigger", [False, True])
def test_a_table_that_is_seen_as_a_partition_is_not_known_meanwhile(
    database: str, tmp_path: Path, *, with_trigger: bool
) -> None:
    """No entry of the publication shows it, and its changes come under the name of the root."""
    execute(database, "create table t (id int primary key, v text)")
    execute(database, "create table root (id int primary key, v text) partition by range (id)")
    if with_trigger:
        install_trigger(database)
    lake, moments = make_lake(database, tmp_path / "lake"), []
    with Running(database, lake) as running:
        for statement in (
            "insert into t values (1, 'own')",
            "alter table root attach partition t for values from (0) to (9)",
            "insert into root values (2, 'of the root')",
            "insert into t values (3, 'of the root, too')",
            "alter table root detach partition t",
            "insert into t values (4, 'own again')",
        ):
            execute(database, statement)
            running.await_passed(end := wal_end(database))
            moments.append(Lsn(end - 1))
    known = read_known(lake)
    timeline = known.timeline(known.tables[TableName("public", "t")])
    for moment in moments[2:]:
        with pytest.raises(NotAnswerable, match="partition of"):
            timeline.require((moment, AtNow()))


def test_a_publication_with_the_same_or_more_is_accepted(database: str, lake: Lake) -> None:
    """Another owner, one more table, the same list again, a new name; a dropped table of the lake is reported."""
    execute(
        database,
        "alter publication auditlake owner to current_user",
        "create table more (id int primary key)",
        "alter publication auditlake add table more",
        "alter publication auditlake set table t, u, more",
        "drop table u",
        "alter table t rename to renamed",
        "insert into renamed values (1)",
    )
    done = command.capture_here(database, lake)
    assert done.code == 0, done.stderr
    assert "table public.u was dropped at the source" in done.stderr
    (parked,) = read_known(lake).parked.values()
    assert (str(parked.table), parked.ended) == ("public.u", True)
    execute(database, "create table u (id int primary key)", "alter publication auditlake add table u")
    assert command.capture_here(database, lake).code == 0
    (again,) = read_known(lake).parked.values()
    assert again == parked  # another table, which follow copies


def test_a_table_without_its_history_is_ignored(database: str, lake: Lake, tmp_path: Path) -> None:
    """After its history is moved away nothing is reported, and the others continue."""
    execute(database, "alter publication auditlake drop table t", "insert into u values (7)")
    assert command.capture_here(database, lake).code == 0
    status = command.run_here(["status", "--json", "--source", database, "--lake", lake.root])
    parked = {each["table"]: each["parked"] for each in json.loads(status.stdout)["tables"]}
    assert parked["public.u"] is None
    assert "no longer carries public.t" in parked["public.t"]["reason"]
    assert f"move {lake.history(TableName('public', 't'))} away" in parked["public.t"]["remedy"]
    assert "public.t is parked at" in command.run_here(["status", "--source", database, "--lake", lake.root]).stdout
    lake.history(TableName("public", "t")).rename(tmp_path / "away")
    done = command.capture_here(database, lake)
    assert done.code == 0, done.stderr
    assert inserted(lake) == [7]


def test_a_running_capture_parks_the_table(database: str, lake: Lake) -> None:
    """It is parked at the next comparison, from the position of the last one; the others continue."""
    with mock.patch("auditlake.capture.publication_watch._INTERVAL_S", 0.05), Running(database, lake) as running:
        execute(database, "insert into t values (1)")
        running.await_keys(1)
        low = wal_end(database)
        execute(database, "alter publication auditlake drop table u")
        running.await_said("no longer carries public.u")
        execute(database, "insert into t values (2)")
        running.await_keys(1, 2)
    (parked,) = read_known(lake).parked.values()
    assert parked.lsn < low < parked.until


def test_a_slot_without_its_publication_cannot_continue_silently(database: str, lake: Lake) -> None:
    """Up to 17 the slot can never pass a change made without a publication; 18 silently omits the change."""
    with mock.patch("auditlake.capture.publication_watch.find_losses", return_value=[]):
        execute(database, "drop publication auditlake", "insert into t values (1)", AGAIN, "insert into t values (2)")
        done = command.capture_here(database, lake)
    if chosen_version() >= 18:
        assert done.code == 0, done.stderr
    else:
        assert done.code == WRONG_SOURCE, done.stderr
        assert "can be read no further" in done.stderr
        assert "changes from" in done.stderr


def test_a_row_filter_that_fails_on_a_row_ends_capture_without_its_value(database: str, tmp_path: Path) -> None:
    """It was tried again for ever, as if the source were away, and the server's message has the value."""
    execute(database, "create table t (id int primary key, v text)", "create table u (id int primary key)")
    if chosen_version() < 15:
        with pytest.raises(psycopg.errors.SyntaxError):
            execute(
                database, "create publication auditlake for table t where (date_part(v, timestamp '2026-01-01') > 0)"
            )
        return
    execute(database, "create publication auditlake for table t where (date_part(v, timestamp '2026-01-01') > 0), u")
    lake = chosen_lake(tmp_path / "lake")
    settings: list[str | Path] = ["--source", database, "--lake", lake.root]
    assert command.run_here(["bootstrap", *settings]).code == 0
    execute(database, "insert into t values (1, 'year')", "insert into t values (2, 'confidential')")
    ended = command.capture_here(database, lake)
    assert ended.code == WRONG_SOURCE
    assert "can be read no further: a row filter of the publication fails on a row, SQLSTATE 22023" in ended.stderr
    assert "confidential" not in ended.stderr
    execute(
        database, "alter publication auditlake set table t, u", "select pg_drop_replication_slot('auditlake')", _WRITTEN
    )
    renewed = command.run_here(["resync", "--all", "--yes", *settings])
    assert renewed.code == 0, renewed.stderr
    assert sorted(auditlake.Lake(lake.root).sql("select * from t")) == [(1, "year"), (2, "confidential"), (3, "later")]


@pytest.mark.parametrize("what", PUBLICATIONS)
def test_the_catalog_is_read_as_the_view_shows_it(database: str, what: str) -> None:
    """Tables, their columns and row filters, for every kind of publication of this version."""
    with psycopg.connect(database) as conn:
        conn.execute(TREES.encode())
        try:
            conn.execute(f"create publication p {what}".encode())
        except (psycopg.errors.SyntaxError, psycopg.errors.InvalidColumnReference):
            assert chosen_version() < 18  # which has all of these
            return
        conn.execute("create temp table t (id int primary key, hidden text)")
        conn.commit()
        _require_as_in_view(database)


def _require_as_in_view(database: str) -> None:
    with connect(database) as conn:
        source, found = read_source(conn, "p"), read_membership(conn, "p")
        published = choose(source, None)
        filters = read_row_filters(conn, "p", published)
        assert found is not None
        view = cast("list[tuple[str, str, list[str], str | None]]", conn.execute(_VIEW).fetchall())
        names = [TableName(schema, table) for schema, table, _, _ in view]
        assert sorted(found.tables) == sorted(table.name for table in published) == names
        shown = [
            (sorted(column.name for column in table.relation.columns), filters.get(table.relation.oid))
            for table in published
        ]
        assert shown == [(sorted(columns), condition) for _, _, columns, condition in view]


_WITHOUT_IDENTITY = """
create schema s;
create table plain (n int);
create table keyed (n int primary key);
create table deferred (n int primary key deferrable);
create table whole (n int);
alter table whole replica identity full;
create table nothing (n int primary key);
alter table nothing replica identity nothing;
create unlogged table without_wal (n int);
create table root (n int) partition by range (n);
create table leaf partition of root default;
create table s.root (n int primary key) partition by range (n);
create table other_leaf partition of s.root default;
alter table other_leaf replica identity nothing;
"""


@pytest.mark.parametrize(
    "what",
    [
        "for all tables",
        "for all tables with (publish = 'insert, truncate')",
        "for table root with (publish_via_partition_root = true)",
        "for table plain, keyed, nothing, leaf with (publish = 'update')",
        "for table s.root, whole, deferred",
        *(["for tables in schema s"] if chosen_version() > 14 else []),
    ],
)
def test_the_tables_that_cannot_be_updated_are_found(database: str, what: str) -> None:
    """They are those on which PostgreSQL refuses an UPDATE, also of a partition by its own name."""
    execute(database, _WITHOUT_IDENTITY, f"create publication p {what}")
    refused = set()
    with connect(database) as conn:
        tables = [table.name for table in read_tables(conn) if table.kind == "r"]
        for table in tables:
            try:
                conn.execute(sql.SQL("update {} set n = n").format(sql.Identifier(*table)))
            except psycopg.errors.ObjectNotInPrerequisiteState:
                refused.add(table)
        assert {name for name, _ in read_failing(conn)} == refused


_LOCKED = """
create table filtered (id int primary key, v text);
create table root (id int primary key) partition by range (id);
create table leaf partition of root default;
create index indexed on u (id);
"""


@pytest.mark.parametrize("locked", ["t", "filtered", "root", "leaf"])
def test_a_lock_delays_nobody_who_reads_the_catalog(database: str, lake: Lake, locked: str) -> None:
    """A migration may hold it for hours, and any role with DELETE on a table can."""
    more = "filtered where (id > 1), root" if chosen_version() > 14 else "filtered, root"
    options = "set (publish_via_partition_root = true)"
    execute(database, _LOCKED, f"alter publication auditlake {options}; alter publication auditlake add table {more}")
    with psycopg.connect(database) as migration, connect(database) as conn:
        migration.execute(f"lock table only {locked} in access exclusive mode".encode())
        migration.execute("reindex index indexed")
        conn.execute("set lock_timeout = '5s'")
        plan = survey(conn, None, "auditlake", "none")
        assert sorted(table.name.table for table in plan.chosen) == ["filtered", "root", "t", "u"]
        assert findings(conn, plan) == []
        assert find_failing(conn) == []
    assert command.capture_here(database, lake).code == 0


def test_a_query_is_repeated_if_a_relation_was_dropped_while_it_ran(database: str) -> None:
    """Not inside a transaction, and not without end."""
    fails = """
        create sequence tries;
        create function drops(times bigint) returns int language plpgsql as $$ begin
          if nextval('public.tries') <= times then
            raise exception 'could not open relation with OID 1' using errcode = 'internal_error';
          end if;
          return 7;
        end $$"""
    execute(database, fails)
    with connect(database) as conn:
        assert fetch_one(conn, "select public.drops(3)") == (7,)
        conn.execute("select pg_catalog.setval('public.tries', 1, false)")
        with pytest.raises(psycopg.errors.InternalError_):
            fetch(conn, "select public.drops(100)")
        conn.execute("select pg_catalog.setval('public.tries', 1, false)")
        with pytest.raises(psycopg.errors.InternalError_), conn.transaction():
            fetch(conn, "select public.drops(1)")


def test_a_snapshot_shows_the_publication_as_it_was(database: str, lake: Lake) -> None:
    """A table that was dropped since is in it, with what was published of it."""
    assert lake.root.exists()
    with psycopg.connect(database, autocommit=True) as migration, connect(database) as conn:
        conn.execute("begin isolation level repeatable read read only")
        conn.execute("select")
        migration.execute("create table later (id int primary key); alter publication auditlake add table later")
        migration.execute("drop table u")
        found = read_publication(conn, "auditlake")
        assert found is not None
        assert sorted(table.name.table for table in found.tables) == ["t", "u"]


def test_a_table_that_could_not_be_published_gets_no_new_snapshot(database: str, lake: Lake) -> None:
    """Another one, to be published by the same statement, was dropped meanwhile; its changes would not be sent."""
    execute(database, "alter publication auditlake drop table t, u")
    assert command.capture_here(database, lake).code == 0
    before, dropping = read_gaps(lake), iter([(), ("drop table u",)])  # first the privileges are checked

    def read_then_drop(conn: psycopg.Connection[tuple[object, ...]], publication: str) -> Source:
        found = read_source(conn, publication)
        execute(database, *next(dropping, ()))
        return found

    with mock.patch.object(resyncing, "read_source", read_then_drop):
        done = command.run_here(["resync", "--source", database, "--lake", str(lake.root)])
    assert done.code == SOURCE_UNREADY, done.stderr
    assert "publication auditlake, or a table for it, changed meanwhile" in done.stderr
    assert read_gaps(lake) == before


def test_a_table_that_a_resync_publishes_meanwhile_is_not_parked(database: str, lake: Lake) -> None:
    """The watch has read the publication; then the table is published and recorded again, before its new snapshot."""
    with connect(database) as control:
        watch = PublicationWatch(lake, "auditlake", lambda _: None)
        before = read_membership(control, "auditlake")
        assert before is not None
        without = replace(before, tables={n: m for n, m in before.tables.items() if n.table != "t"})
        with mock.patch.object(publication_watch, "read_membership", side_effect=[without, before]):
            watch.refresh(control, Lsn(1))
        assert find_parked(lake, TableName("public", "t"), Cause.PUBLICATION) is None
        with mock.patch.object(publication_watch, "read_membership", side_effect=[without, without]):
            watch.refresh(control, Lsn(1))
        assert find_parked(lake, TableName("public", "t"), Cause.PUBLICATION) is not None


def test_a_table_that_its_schema_publishes_again_meanwhile_is_parked(database: str, lake: Lake) -> None:
    """Such a table has no entry of its own, so a later comparison shows nothing; its rows in between are missing."""
    name = TableName("public", "t")
    with connect(database) as control:
        watch = PublicationWatch(lake, "auditlake", lambda _: None)
        found = read_membership(control, "auditlake")
        assert found is not None
        by_schema = replace(found, tables={**found.tables, name: replace(found.tables[name], entry=None)})
        without = replace(found, tables={n: m for n, m in found.tables.items() if n != name})
        read = mock.patch.object(publication_watch, "read_membership", side_effect=[without, by_schema])
        with read, mock.patch.object(publication_watch, "recorded_or_new", return_value=by_schema):
            watch.refresh(control, Lsn(1))
    parked = find_parked(lake, name, Cause.PUBLICATION)
    assert parked is not None
    assert "no longer carries public.t" in parked.reason
