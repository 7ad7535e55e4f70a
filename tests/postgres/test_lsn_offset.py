"""A lake whose LSNs are shifted captures what another one does, shifted, and acknowledges LSNs of the server."""

from pathlib import Path
from threading import Event

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from auditlake.capture.preconditions import check_resent
from auditlake.capture.supervisor import make_task, run_capture
from auditlake.erasure.retention import expire
from auditlake.errors import WrongSource
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import LSN_OFFSET_UNIT, require_manifest
from auditlake.lsn import Lsn
from auditlake.settings.retention_rules import RetentionPeriods
from auditlake.settings.streaming_mode import Streaming, StreamingMode
from auditlake.source.connection import connect
from auditlake.source.slot import read_resent
from auditlake.status import read_status
from tests import oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.erasure_lake import apply
from tests.expiry import AT_ONCE
from tests.read_lake import positions_of

pytestmark = pytest.mark.pg

OFFSET = 3 * LSN_OFFSET_UNIT
_MODES: tuple[StreamingMode, ...] = ("off", "on", "parallel")


def _capture(dsn: str, lake: Lake, mode: StreamingMode) -> None:
    run_capture(make_task(dsn, lake, "current", Streaming(mode)), Event(), lambda _: None)


def test_everything_is_shifted_and_nothing_else_differs(database: str, tmp_path: Path) -> None:
    """In all modes of streaming, with columns added, and after what the slot sends again."""
    dsn = make_conninfo(database, options="-c logical_decoding_work_mem=64kB")
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, v text)")
        plain = make_lake(database, tmp_path / "plain", name="plain")
        shifted = make_lake(database, tmp_path / "shifted", name="shifted", lsn_offset=OFFSET)
        for number, mode in enumerate(_MODES):
            conn.execute("insert into t (id, v) select n, repeat('x', 90) from generate_series(1, 900) n")
            conn.execute("select pg_logical_emit_message(false, 'auditlake', 'aside')")
            conn.execute("update t set v = 'B' || id where id % 3 = 0")
            conn.execute(f"alter table t add column c{number} int default {number}")
            conn.execute("delete from t")
            for lake in (plain, shifted):
                _capture(dsn, lake, mode)
        ends = {
            str(name): Lsn.parse(str(lsn))
            for name, lsn in conn.execute("select slot_name, confirmed_flush_lsn::text from pg_replication_slots")
        }
    for rows in (oracle.changes, oracle.transactions):
        here, there = rows(plain), rows(shifted)
        assert len(here) >= 3 * 3
        moved = ({**row, **{key: row[key] + OFFSET for key in ("lsn", "end_lsn") if key in row}} for row in here)
        both = [[{k: v for k, v in row.items() if k != "time_mono"} for row in side] for side in (moved, there)]
        assert both[0] == both[1]
    assert ends["shifted"] == positions_of(shifted).acknowledged - OFFSET
    assert positions_of(shifted).watermark == positions_of(plain).watermark + OFFSET
    found = read_status(shifted, database)
    assert found.source is not None
    assert found.source.slot is not None
    assert found.source.slot.confirmed_flush_lsn == positions_of(shifted).acknowledged
    assert found.refusal is None


def test_what_the_slot_sends_again_is_compared(database: str, tmp_path: Path) -> None:
    """A slot that is behind the lake, as after a crash of the server, goes on; a lake with another past is refused."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key, v text)")
        lake = make_lake(database, tmp_path / "lake", lsn_offset=OFFSET)
        conn.execute("select pg_copy_logical_replication_slot('auditlake', 'kept')")
        conn.execute("insert into t values (1), (2)")
        capture(database, lake)
        before = oracle.changes(lake)
        conn.execute("select pg_drop_replication_slot('auditlake')")
        conn.execute("select pg_copy_logical_replication_slot('kept', 'auditlake')")
        manifest, end = require_manifest(lake), positions_of(lake).acknowledged
        with connect(database, OFFSET) as control:
            (again,) = read_resent(control, "auditlake", "auditlake", end)
            assert again.lsn == positions_of(lake).watermark
            check_resent(control, lake, manifest, end)
        with connect(database) as unshifted, pytest.raises(WrongSource, match="would send other"):
            check_resent(unshifted, lake, manifest, end)
        conn.execute("insert into t values (3)")
        capture(database, lake)
        assert [row["new"] for row in oracle.changes(lake)] == [*(row["new"] for row in before), ["3", None]]


def test_expired_transactions_are_no_other_ones(database: str, tmp_path: Path) -> None:
    """The slot would send them again; the last one, which stays, shows that the source is the same."""
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table t (id int primary key)")
        lake = make_lake(database, tmp_path / "lake", lsn_offset=OFFSET)
        conn.execute("select pg_copy_logical_replication_slot('auditlake', 'kept')")
        for number in range(3):
            conn.execute("insert into t values (%s)", [number])
        capture(database, lake)
        apply(lake)
        expire(lake, RetentionPeriods(changes=AT_ONCE, transactions=AT_ONCE), "tests", lambda _: None)
        conn.execute("select pg_drop_replication_slot('auditlake')")
        conn.execute("select pg_copy_logical_replication_slot('kept', 'auditlake')")
        manifest, end = require_manifest(lake), positions_of(lake).acknowledged
        with connect(database, OFFSET) as control:
            assert (len(read_resent(control, "auditlake", "auditlake", end)), len(oracle.transactions(lake))) == (3, 1)
            check_resent(control, lake, manifest, end)
        with connect(database) as unshifted, pytest.raises(WrongSource, match="would send other"):
            check_resent(unshifted, lake, manifest, end)
        conn.execute("insert into t values (3)")
        capture(database, lake)
        assert [row["new"] for row in oracle.changes(lake)] == [["3"]]
