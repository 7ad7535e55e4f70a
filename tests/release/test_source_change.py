"""A lake whose source was restored, promoted without all that the lake has, or replaced, goes on by `resync --all`.

Every state before the change and from the new snapshot on is compared with PostgreSQL, at exact LSNs.
"""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from auditlake.capture.supervisor import make_task
from auditlake.errors import NotAnswerable, WrongSource
from auditlake.feed.feed import parse_cursor
from auditlake.lake.gaps import read_gaps
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import LSN_OFFSET_UNIT, read_earlier_sources, require_manifest
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.resync.renewal import find_renewal
from auditlake.snapshot.bootstrap import Target as First
from auditlake.snapshot.bootstrap import bootstrap
from auditlake.snapshot.worker_pool import LocalWorkers
from auditlake.source.connection import connect
from auditlake.source.slot import drop_slot, read_slot
from auditlake.status import read_status
from auditlake.temporal.moments import read_known
from auditlake.verify.verify import VerifyRequest, verify
from tests import oracle
from tests.running import Running, await_true
from tests.server import Server
from tests.spark.resync.site import SCHEMA, TABLES, Site
from tests.standby import Standby

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.timeout(900)]
_SETTINGS = {"logical_decoding_work_mem": "64kB", "autovacuum": "off"}
_LARGE = "insert into other (id, d, v) select n, '2026-01-01', repeat(md5(n::text), 3) from generate_series({}, {}) n"


@pytest.fixture
def make_site(spark: "SparkSession", tmp_path: Path) -> Iterator[Callable[[int], tuple[Server, Site]]]:
    """A server of its own, a database with the tables, and a lake of them."""
    with ExitStack() as started:

        def make(version: int) -> tuple[Server, Site]:
            server = started.enter_context(Server(version, settings=_SETTINGS))
            site = Site(server.dsn(server.create_database("resync")), Lake(tmp_path / "lake"), spark)
            # So the numbers of columns, and the OIDs of tables, differ from those of a restored dump.
            site.run(
                "create table unused (a int)",
                "drop table unused",
                SCHEMA,
                "alter table other add column w int, drop column d",
            )
            site.run("alter table other add column d date default 'infinity'")
            bootstrap(First(site.dsn, site.lake, "resync", "resync", None), lambda: LocalWorkers(1), lambda _: None)
            return server, site

        yield make


@dataclass
class _Course:
    """A site, and PostgreSQL's states so far, at LSNs of the lake."""

    site: Site
    moments: list[oracle.Moment]

    def note(self) -> Lsn:
        """Save PostgreSQL's state now."""
        moment = self.site.moment()
        self.moments.append(replace(moment, lsn=Lsn(moment.lsn + require_manifest(self.site.lake).lsn_offset)))
        return self.moments[-1].lsn

    def change(self, number: int) -> None:
        """Change all tables, in a streamed transaction, too."""
        first = 1000 * number
        self.site.run(
            f"update parts set v = {number} where id = 1",
            _LARGE.format(first, first + 600),
            f"update other set v = '{number}' where id = 2",
            f"delete from other where id = {first + 3}",
            f"insert into copies values ({number}, 'new')",
            "update copies set file = null where x = 1",
        )
        self.note()


def _begin(site: Site) -> _Course:
    course = _Course(site, [])
    course.note()
    course.change(1)
    site.catch_up()
    return course


def _go_on(course: _Course, site: Site, *, offset: int | None) -> None:
    """Renew the lake's source with `site`, change tables, and compare everything."""
    course.site = site
    before = read_positions(site.lake)
    recorded = require_manifest(site.lake)
    assert before is not None
    with pytest.raises(WrongSource) as refused:
        site.catch_up()
    assert "auditlake resync --all" in (refused.value.hint or "")
    renewal = find_renewal(site.dsn, site.lake)
    assert renewal is not None
    done = site.resync(*TABLES, renewal=renewal)
    assert {each.name.table for each in done} == set(TABLES)
    now = require_manifest(site.lake)
    if offset is not None:
        assert now.lsn_offset == offset
    assert all(each.gap is not None and each.gap.lsn_from <= before.known_lsn < each.lsn for each in done)
    course.note()
    course.change(2)
    site.catch_up()
    assert find_renewal(site.dsn, site.lake) is None
    assert not read_known(site.lake).parked
    _compare(course)
    if now.lsn_offset != recorded.lsn_offset or now.system_identifier != recorded.system_identifier:
        assert read_earlier_sources(site.lake)[-1].upto == before.known_lsn
    assert parse_cursor(f"{recorded.system_identifier}:{before.watermark}", site.lake) == before.watermark
    with pytest.raises(NotAnswerable, match="are missing"):
        site.rows("select count(*) from other", str(Lsn(before.known_lsn + 5)))


def _compare(course: _Course) -> None:
    """Compare histories, questions, `verify` and `status` with PostgreSQL."""
    site = course.site
    oracle.assert_histories_at(site.lake, course.moments)
    oracle.assert_periods(site.lake)
    oracle.transactions(site.lake)
    oracle.changes(site.lake)
    for moment in course.moments:
        shown = Counter((int(str(row[0])), row[1]) for row in moment.states["other"])
        assert site.rows("select id, v from other", str(moment.lsn)) == shown
    with Running(site.dsn, site.lake):
        report = verify(VerifyRequest(site.lake, site.dsn, timeout_s=60), lambda: site.spark, lambda _: None)
    assert not [table for table in report.tables if table.findings], report
    assert read_status(site.lake, site.dsn).refusal is None


def _large_restart(course: _Course, server: Server) -> None:
    """A crash of the server loses acknowledgements: what the slot sends again is recognized."""
    site = course.site
    course.change(3)
    site.catch_up()
    server.restart("immediate")
    course.change(4)
    site.catch_up()
    _compare(course)


def _table_of_later(course: _Course) -> None:
    """A table that bootstrap finds later is copied under a snapshot of its own, and followed."""
    site = course.site
    site.run("create table later (id int primary key, v int default 5)", "insert into later values (1)")
    site.run("alter publication resync add table later")
    bootstrap(First(site.dsn, site.lake, "resync", "resync", None), lambda: LocalWorkers(1), lambda _: None)
    site.run(
        "insert into later values (2)",
        "alter table later add column k text default 'k'",
        "insert into later values (3)",
    )
    site.catch_up()
    assert site.rows("select id, v, k from later") == Counter([(1, 5, "k"), (2, 5, "k"), (3, 5, "k")])
    end = make_task(site.dsn, site.lake, "current").until
    assert end is not None
    assert end.lsn >= require_manifest(site.lake).lsn_offset


@pytest.mark.parametrize("version", [16, 18])
@pytest.mark.parametrize("recovered", [False, True], ids=["image", "point-in-time"])
def test_a_restored_backup(make_site: Callable[[int], tuple[Server, Site]], version: int, *, recovered: bool) -> None:
    """It lacks what the lake has, and writes other transactions at the same LSNs."""
    server, site = make_site(version)
    course = _begin(site)
    site.catch_up()
    server.stop()
    backup = server.folder / "backup"
    _copy(server.data, backup)
    server.start()
    course.change(9)
    site.catch_up()
    server.stop("immediate")
    shutil.rmtree(server.data)
    _copy(backup, server.data)
    if recovered:
        (server.data / "recovery.signal").touch()
        with (server.data / "postgresql.conf").open("a") as conf:
            conf.write("restore_command = '/bin/false'\n")
    server.start()
    with psycopg.connect(server.dsn(), autocommit=True) as conn:  # it accepts connections before its recovery ends
        await_true(lambda: conn.execute("select not pg_is_in_recovery()").fetchone() == (True,))
    _go_on(course, site, offset=LSN_OFFSET_UNIT)
    _table_of_later(course)
    _large_restart(course, server)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=shutil.copy2)
    owner = source.stat()
    for place in (target, *target.rglob("*")):
        os.chown(place, owner.st_uid, owner.st_gid)
    target.chmod(0o700)


def test_a_dump_restored_into_a_new_major(make_site: Callable[[int], tuple[Server, Site]]) -> None:
    """Another cluster, with other OIDs, other numbers of columns, and LSNs that begin again."""
    old, site = make_site(16)
    course = _begin(site)
    with Server(18, settings=_SETTINGS) as new:
        name = new.create_database("resync")
        dump = subprocess.run(
            [new.bin / "pg_dump", "--no-owner", "-d", site.dsn], check=True, capture_output=True, cwd="/"
        ).stdout
        subprocess.run(
            [new.bin / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", new.dsn(name)], input=dump, check=True, cwd="/"
        )
        moved = replace(site, dsn=new.dsn(name))
        moved.run("drop publication resync", "update other set v = 'moved' where id = 1")
        with connect(site.dsn) as conn:
            assert drop_slot(conn, "resync")
        old.stop()
        _go_on(course, moved, offset=None)
        _large_restart(course, new)
        _table_of_later(course)


def test_a_promoted_standby_that_lacks_data(make_site: Callable[[int], tuple[Server, Site]]) -> None:
    """Its log ends before the lake's; the new slot is a failover slot again."""
    old, site = make_site(18)
    course = _begin(site)
    database = psycopg.conninfo.conninfo_to_dict(site.dsn)["dbname"]
    with Standby(old, str(database)) as new:
        new.stop()
        course.change(9)
        site.catch_up()
        old.stop("immediate")
        new.start()
        new.promote()
        _go_on(course, replace(site, dsn=new.dsn(str(database))), offset=LSN_OFFSET_UNIT)
        with connect(course.site.dsn) as conn:
            slot = read_slot(conn, "resync")
        assert slot is not None
        assert slot.failover
        _large_restart(course, new)


def test_a_source_is_replaced_again_and_again(make_site: Callable[[int], tuple[Server, Site]]) -> None:
    """Restored twice: each time the offset grows, and every state stays; gaps are apart."""
    server, site = make_site(18)
    course = _begin(site)
    server.stop()
    backup = server.folder / "backup"
    _copy(server.data, backup)
    server.start()
    for number in (1, 2):
        course.change(9 + number)
        site.catch_up()
        server.stop("immediate")
        shutil.rmtree(server.data)
        _copy(backup, server.data)
        server.start()
        _go_on(course, site, offset=number * LSN_OFFSET_UNIT)
    gaps = [gap for gap in read_gaps(site.lake) if gap.table is not None and gap.table.table == "other"]
    assert [gap.lsn_to >> 32 for gap in gaps] == [1, 2]
    assert [each.lsn_offset for each in read_earlier_sources(site.lake)] == [0, LSN_OFFSET_UNIT]
