"""Tests of `auditlake verify` with a running capture: equality while both sides change, and every kind of damage.

Each damage of rows has keys of its own, each damage of files a table of its own. The transaction log is adapted, so
that only the content differs. Every value is `secret`, which no output may contain.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from auditlake.apply.apply import apply_pending
from auditlake.delta.log_reader import live_files
from auditlake.delta.log_writer import put_commit
from auditlake.delta.sql import open_duckdb as connect_embedded
from auditlake.erasure.retention import expire
from auditlake.lake.duckdb_rows import rows_of
from auditlake.lake.gaps import Gap, record_gaps
from auditlake.lake.history import HistoryTable
from auditlake.lake.history_files import find_files
from auditlake.lake.layout import Lake
from auditlake.lsn import Lsn
from auditlake.messages import say
from auditlake.relation import TableName
from auditlake.settings.retention_rules import RetentionPeriod, RetentionPeriods
from auditlake.source import catalog
from auditlake.source.connection import connect
from auditlake.source.server import wal_end
from auditlake.verify import source_side as source
from tests import command
from tests.damage import edit_log, file_of, rewrite
from tests.expiry import AT_ONCE
from tests.read_lake import history_of
from tests.running import Running
from tests.s3_server import chosen_lake, copy_lake, forget, overwrite
from tests.server import Server, execute, install_trigger
from tests.small_lake import ORDERS, write_lake_with_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark]

_KINDS = """
create type mood as enum ('sad', 'ok');
create type pair as (a int, b text);
create table kinds (
  id int, day date, flag bool, amount numeric(10,2), any_number numeric, at timestamptz, naive timestamp, f4 float4,
  f8 float8, tags text[], grid int[], content bytea, fixed char(5), doc jsonb, mood mood, pair pair, address inet,
  number oid, dates date[], large text, "with.dot" text default 'x', primary key (id, day));
alter table kinds alter large set storage external;
create function fill(first int, last int) returns void language sql as $$
  insert into kinds
  select n, date '2020-01-01' + n, n % 2 = 0, n, n / 7.0, now(), now()::timestamp, n / 3.0, n / 7.0,
         array['a b', null, n::text], array[[1, 2], [3, n]], decode(md5(n::text), 'hex'), 'x',
         jsonb_build_object('n', n), 'ok'::mood, ('(' || n || ',b)')::pair, '10.0.0.1'::inet, n,
         array[date '2020-01-01', 'infinity'],
         repeat(md5(n::text), 100)
    from generate_series(first, last) n;
  insert into kinds (id, day, at, amount, f8, f4, naive, large)
  values (-first, 'infinity', '-infinity', 'NaN', '-0', 'NaN', '0044-03-15 00:00 BC', '') $$;
select fill(1, 100);
create table events (who text, n numeric);
alter table events replica identity full;
insert into events select 'e' || n % 7, n % 5 from generate_series(1, 100) n;
create table parts (id int primary key, v text) partition by range (id);
create table parts_low partition of parts for values from (0) to (100);
create table parts_high partition of parts for values from (100) to (10000);
insert into parts select n, 'p' || n from generate_series(1, 200) n;
create table bare ();
alter table bare replica identity full;
insert into bare select from generate_series(1, 3);
create table cleared (id int primary key);
insert into cleared select generate_series(1, 10);
"""
CHANGES = """
select fill(1000 + 20 * {0}, 1010 + 20 * {0});
update kinds set flag = not flag, f8 = f8 * 3 where id between {0} and {0} + 9;
delete from kinds where id between {0} + 50 and {0} + 52;
update events set n = n + 1 where who = 'e' || {0} % 7;
delete from events where ctid in (select ctid from events limit 2);
insert into events values (null, 'NaN'), (null, 'NaN');
insert into bare select from generate_series(1, 2);
delete from bare where ctid in (select ctid from bare limit 1);
update parts set v = 'moved', id = id + 300 where id between 95 - {0} and 101 - {0};
"""


@dataclass(frozen=True)
class Site:
    """A database, its lake, and the running capture, if any."""

    dsn: str
    lake: Lake
    running: Running | None = None

    def execute(self, statements: str) -> None:
        """Run SQL."""
        execute(self.dsn, statements)

    def captured(self) -> None:
        """Wait until `changes` has every commit so far."""
        with connect(self.dsn) as conn:
            end = wal_end(conn).lsn
        assert self.running is not None
        self.running.await_passed(end)

    def verify(self, *more: str | Path) -> command.Done:
        """Run `auditlake verify` in this process."""
        given: list[str | Path] = ["verify", "--lake", self.lake.root, *more]
        done = command.run_here(given if "--no-source" in more else [*given, "--source", self.dsn])
        assert "secret" not in done.stdout + done.stderr
        return done

    def found(self, *more: str) -> tuple[int, dict[str, set[str]]]:
        """Return the exit code and, by table, each finding as its kind, key and columns."""
        done = self.verify("--format", "json", *more)
        found: dict[str, set[str]] = {}
        for event in map(json.loads, done.stdout.splitlines()):
            if event["event"] == "finding":
                what = (event["kind"], *event.get("key", {}).values(), *event.get("columns", ()))
                found.setdefault(event["table"].removeprefix("public."), set()).add(" ".join(what))
        return done.code, found


@pytest.fixture(scope="module")
def site(server: Server, tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession") -> Iterator[Site]:
    """Bootstrap and change all tables; those to be damaged are merged twice, others have a tail."""
    database = server.create_database("verify")
    site = Site(server.dsn(database), chosen_lake(tmp_path_factory.mktemp("verify") / "lake"))
    site.execute(_KINDS)
    for name in _DAMAGED:
        site.execute(f"create table {name} (id int primary key, v text)")
        site.execute(f"insert into {name} select n, 'secret' || n from generate_series(1, 20) n")
    assert command.run_here(["bootstrap", "--source", site.dsn, "--lake", site.lake.root]).code == 0
    with Running(site.dsn, site.lake) as running:
        site = replace(site, running=running)
        for changes, of_vectors in zip(_CHANGES, _CHANGES_OF_VECTORS, strict=True):
            for name in _DAMAGED:
                site.execute((of_vectors if name == "vectors" else changes).format(name, name))
            site.captured()
            apply_pending(lambda: spark, site.lake)
        for name, damages in _DAMAGED.items():
            for damage in damages:
                damage(_history(site, name))
        forget(site.lake.root)
        yield site
    server.drop_database(database)


def test_damage_is_found_and_named(site: Site) -> None:
    """Findings name keys and columns of differences from the source and from `changes`."""
    chosen = [word for name in _DAMAGED for word in ("--table", name)]
    code, found = site.found(*chosen)
    assert code == 6
    for name, findings in _EXPECTED.items():
        assert findings <= found.pop(name), name
    assert not found
    text = site.verify("--table", "no_file", "--table", "rows", "--no-source", "--no-keys")
    assert text.code == 6
    assert "id=" not in text.stdout
    assert "auditlake resync" in text.stderr


def test_damage_is_found_without_a_source(site: Site) -> None:
    """Only a changed row of the snapshot that no change mentions is not found."""
    code, found = site.found("--no-source", "--table", "rows")
    assert code == 6
    (findings,) = found.values()
    assert {"different version 30 v", "missing version 32", "different version 22 v"} <= findings
    assert not {"10", "source"}.intersection(word for finding in findings for word in finding.split())


def test_a_table_without_columns_is_compared(site: Site) -> None:
    """Its rows are equal, so only their number can differ."""
    site.execute("insert into bare select from generate_series(1, 2)")
    site.captured()
    done = site.verify("--table", "bare")
    assert done.code == 0, done.stdout + done.stderr


def test_the_table_of_a_stranger_is_compared_without_a_query(site: Site) -> None:
    """Which would run the function of its statistics as our role; also one without columns, row by row."""
    site.execute(
        "create function never(int) returns int language plpgsql immutable as $$ begin"
        " if current_setting('application_name') like 'auditlake%' then raise exception 'ran'; end if;"
        " return $1; end $$;"
        "create statistics of_kinds on (never(1) + id), (never(2) + id) from kinds;"
        "alter table kinds owner to pg_monitor; alter table bare owner to pg_monitor"
    )
    site.captured()
    done = site.verify("--table", "kinds", "--table", "bare")
    assert (done.code, "2 equal" in done.stderr) == (0, True), done.stdout + done.stderr


def test_a_table_truncated_meanwhile_is_unverified(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks empty to the snapshot, which is not reported as damage."""
    read_sizes = catalog.read_sizes

    def late(*given: Any) -> Any:
        found = read_sizes(*given)
        site.execute("truncate cleared")
        return found

    monkeypatch.setattr(source, "read_sizes", late)
    done = site.verify("--table", "cleared")
    assert done.code == 7
    assert "rewritten, truncated or dropped while it was being verified" in done.stdout


def test_a_lake_that_does_not_catch_up_is_reported(site: Site, tmp_path: Path) -> None:
    """After the timeout the error names both LSNs, the slot and its reader."""
    copy = copy_lake(site.lake, tmp_path / "lake")
    done = site.verify("--lake", copy.root, "--table", "cleared", "--timeout", "0.1")
    assert done.code == 7
    assert "the snapshot is at" in done.stderr
    assert "reads slot auditlake" in done.stderr
    assert site.verify("--table", "no_such").code == 2


@pytest.mark.usefixtures("spark")
def test_a_lake_that_nothing_captures_is_captured_up_to_the_snapshot(database: str, tmp_path: Path) -> None:
    """As when the jobs of a cluster run one after another; without the slot it is refused at once."""
    site = Site(database, chosen_lake(tmp_path / "lake"))
    site.execute("create table t (id int primary key, v text); insert into t values (1, 'secret1')")
    made = command.run_here(["bootstrap", "--slot", "idle", "--source", database, "--lake", site.lake.root])
    assert made.code == 0, made.stderr
    site.execute("update t set v = 'secret2'; insert into t values (2, 'secret3')")
    done = site.verify()
    assert done.code == 0, done.stdout + done.stderr
    assert "no process reads slot idle: capturing up to" in done.stderr
    site.execute("insert into t values (3, ''); select pg_drop_replication_slot('idle')")
    refused = site.verify()
    assert refused.code == 5
    assert "slot idle is gone" in refused.stderr
    assert "auditlake resync --all" in refused.stderr


@pytest.mark.usefixtures("spark")
def test_a_history_of_which_versions_expired_is_verified(database: str, tmp_path: Path) -> None:
    """And whose changes have expired; `tests/release` has one with its changes."""
    check_expired(database, tmp_path, AT_ONCE)


def check_expired(database: str, folder: Path, changes: RetentionPeriod) -> None:
    """Verify it from the horizon on, with what came later; a version from before it that is there again is named."""
    site = Site(database, chosen_lake(folder / "lake"))
    site.execute("create table t (id int primary key, v text)")
    site.execute("insert into t select n, 'secret' from generate_series(1, 9) n")
    copied = command.run_here(["bootstrap", "--source", database, "--lake", site.lake.root, "--slot", "expiry"])
    assert copied.code == 0, copied.stderr
    follow: list[str | Path] = ["follow", "--until-current", "--source", database, "--lake", site.lake.root]
    for change in ("update t set v = 'secret2' where id < 6", "delete from t where id in (1, 7)"):
        site.execute(change)
        assert command.run_here(follow).code == 0
    before = _history(site, "t")
    expire(site.lake, RetentionPeriods((("public.t", AT_ONCE),), changes), "tests", say)
    site.execute("update t set v = 'secret3' where id in (2, 8)")
    assert command.run_here(follow).code == 0
    done = site.verify()
    assert done.code == 0, done.stdout + done.stderr
    kept = _history(site, "t")
    assert kept.first_snapshot_lsn == before.horizon < kept.horizon
    assert f"its versions that ended up to {kept.horizon} have expired" in done.stdout
    closed = next(add for add in live_files(before.path, before.delta_version) if "open" not in add["path"])
    put_commit(kept.path, kept.delta_version + 1, "WRITE", [{"add": closed}])
    code, found = site.found("--no-source")
    assert code == 6
    assert any(each.startswith("outside horizon and position") for each in found["t"])


@pytest.mark.usefixtures("spark")
def test_a_history_that_ends_inside_a_gap_is_not_folded_again(tmp_path: Path) -> None:
    """A note has the gap; its structure is checked."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    record_gaps(lake, [Gap(ORDERS, Lsn(0x180), Lsn(0x380), "lost")])
    done = command.run_here(["verify", "--no-source", "--lake", lake.root])
    assert (done.code, "not replayed: its changes between 0/180 and 0/380 are missing" in done.stdout) == (0, True)


@pytest.mark.usefixtures("spark")
def test_a_column_added_and_dropped_is_verified(database: str, tmp_path: Path) -> None:
    """Applied with its end in one batch; `tests/release` has two."""
    check_dropped(database, tmp_path, batches=1)


def check_dropped(database: str, folder: Path, batches: int) -> None:
    """Apply a column and its end in so many batches, and verify: versions from after its end have no value in it."""
    site = Site(database, chosen_lake(folder / "lake"))
    site.execute("create table t (id int primary key, v text)")
    site.execute("insert into t select n, 'secret' from generate_series(1, 6) n")
    install_trigger(database)  # else a gap begins with each change, and the past before it is not folded again
    copied = command.run_here(["bootstrap", "--source", database, "--lake", site.lake.root, "--slot", "dropping"])
    assert copied.code == 0, copied.stderr
    transactions = [
        "insert into t values (7, 'secret'); update t set v = 'secret2' where id in (1, 2)",
        """alter table t add column c text not null default 'secret3'; insert into t values (8, 'secret', 'secret4');
           update t set v = 'secret5' where id in (2, 3)""",
        "alter table t drop column c; insert into t values (9, 'after'); update t set v = 'after' where id = 4",
        "insert into t values (10, 'after'); update t set v = 'after' where id in (1, 3, 7, 8)",
    ]
    for number, statements in enumerate(transactions, 1):
        site.execute(statements)
        for stage in ("capture", "apply") if number % (len(transactions) // batches) == 0 else ("capture",):
            done = command.run_here([stage, "--until-current", "--source", database, "--lake", site.lake.root])
            assert done.code == 0, done.stderr
    done = site.verify("--no-source")
    assert done.code == 0, done.stdout + done.stderr
    files = find_files(_history(site, "t"))
    assert files is not None
    with closing(connect_embedded()) as connection:
        later = connection.sql(rows_of(connection, files, ["id", "c"], "v = 'after'")).fetchall()
    assert sorted(later) == [(number, None) for number in (1, 3, 4, 7, 8, 9, 10)]


def _history(site: Site, name: str) -> HistoryTable:
    return history_of(site.lake, TableName("public", name))


def _garble(path: Path) -> None:
    """Change bytes of the first pages; size and footer stay the same."""
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(byte ^ 0x5A for byte in content[4:200])
    overwrite(path, bytes(content))


def _with_value(number: int) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        values = pc.if_else(pc.equal(rows["id"], number), "secretly other", rows["v"])
        return rows.set_column(rows.column_names.index("v"), "v", values)

    return change


def _without(number: int) -> Callable[[pa.Table], pa.Table]:
    return lambda rows: rows.filter(pc.not_equal(rows["id"], number))


def _month(table: HistoryTable) -> str:
    return next(folder.name.removeprefix("_part=") for folder in table.path.glob("_part=2*"))


def _with_row(number: int, as_number: int) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        row = rows.filter(pc.equal(rows["id"], number))
        named = row.set_column(rows.column_names.index("id"), "id", pa.array([as_number], pa.int32()))
        return pa.concat_tables([rows, named])

    return change


def _renumbered(number: int, as_number: int) -> Callable[[pa.Table], pa.Table]:
    """Change the key of a row in its place: a deletion vector counts rows, so removing one would be found by that."""

    def change(rows: pa.Table) -> pa.Table:
        ids = pc.if_else(pc.equal(rows["id"], number), pa.scalar(as_number, pa.int32()), rows["id"])
        return rows.set_column(rows.column_names.index("id"), "id", ids)

    return change


def _change(number: int, part: str | None = None) -> Callable[[HistoryTable], None]:
    def damage(table: HistoryTable) -> None:
        rewrite(table, file_of(table, number, part or _month(table)), _with_value(number))

    return damage


def _exchange_vectors(table: HistoryTable) -> None:
    files = find_files(table)
    assert files is not None
    marked = {name: file.add["deletionVector"] for name, file in files.by_name.items() if file.is_marked}
    (one, first), (other, second) = marked.items()
    exchanged = {one: (first, second), other: (second, first)}
    assert first["cardinality"] == second["cardinality"]

    def changed(add: dict[str, Any]) -> dict[str, Any]:
        mine, new = exchanged.get(Path(add["path"]).name, (None, None))
        return add if mine is None or add.get("deletionVector") != mine else add | {"deletionVector": new}

    edit_log(table, changed)


_CHANGES = (
    "insert into {} select n, 'secret' || n from generate_series(21, 40) n; update {} set v = '' where id = 1",
    "delete from {} where id in (2, 22); update {} set v = 'secret2' where id = 1",
)
# Two files of 20 rows in the order of the key, one marked row in each, at different places.
_CHANGES_OF_VECTORS = (
    "insert into {} select n, '' from generate_series(21, 40) n",
    "delete from {} where id in (2, 23)",
)
_DAMAGED: dict[str, tuple[Callable[[HistoryTable], None], ...]] = {
    "no_file": (lambda table: file_of(table, 30).unlink(),),
    "garbled": (lambda table: _garble(file_of(table, 30)),),
    "rows": (
        _change(30, "open"),
        _change(10, "open"),
        lambda table: rewrite(table, file_of(table, 31), _with_row(31, 31)),
        lambda table: rewrite(table, file_of(table, 32), _renumbered(32, 1032)),
        lambda table: rewrite(table, file_of(table, 33), _with_row(33, 999)),
        _change(22),
    ),
    "vectors": (_exchange_vectors,),
    "begun": (lambda table: rewrite(table, file_of(table, 22, _month(table)), _without(22)),),
}
_EXPECTED = {
    "no_file": {"missing file"},
    "garbled": {"checksum"},
    "rows": {
        "row different from the source 30 v",
        "different version 30 v",
        "row different from the source 10 v",
        "row more than once 31",
        "duplicate version 31",
        "open version before a later one 31",
        "row missing in the lake 32",
        "missing version 32",
        "row not at the source 999",
        "version in no change 999",
        "different version 22 v",
    },
    "vectors": {"row not at the source 2"},
    "begun": {"missing version 22"},
}
