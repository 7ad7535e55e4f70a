"""Retention: what expires and what stays, what is refused, kills, other writers, holds, restored lakes, the ledger.

Versions of `orders` in the small lake ended at 0x150 (T0 + 6 s) and 0x200 (T0 + 10 s); it is folded up to 0x200.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import auditlake
from auditlake.delta import log_writer
from auditlake.delta.append_table import AppendLog
from auditlake.delta.log_writer import Action
from auditlake.delta.sql import read_newest, select
from auditlake.engine import Engine
from auditlake.erasure import retention
from auditlake.errors import LakeConflict, NotAnswerable
from auditlake.failpoints import After
from auditlake.follow import Applier
from auditlake.instants import to_us
from auditlake.lake import history, holds, whereabouts
from auditlake.lake.compaction import fence
from auditlake.lake.expiries import ExpiredTable, read_runs
from auditlake.lake.history import HistoryTable
from auditlake.lake.history_files import is_open
from auditlake.lake.layout import CURRENT_APP, Lake
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from auditlake.settings.retention_rules import RetentionPeriods, Rules, parse_period
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.store.files import remove_files
from auditlake.store.place import Place
from auditlake.temporal import moments
from tests.command import Done, run, run_here
from tests.ledger_lake import compared, edit_rows, found, sealed, where, without
from tests.read_lake import history_of
from tests.s3_server import copy_lake, on_disk, overwrite
from tests.small_lake import ORDERS, T0_US, files_of, write_lake_with_manifest

_RULES = (("public.orders", parse_period("1 day")),)
_DAY_US = 86_400_000_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The small lake."""
    return write_lake_with_manifest(tmp_path / "lake")


def _pass(lake: Lake, seconds: int) -> None:
    """Capture until a day and some seconds after the beginning of the lake."""
    AppendLog(lake.changes, CHANGES_SCHEMA).append(None, {CURRENT_APP: T0_US + _DAY_US + seconds * 1_000_000})


def _set_clock(monkeypatch: pytest.MonkeyPatch, time_us: int) -> None:
    """Set the clock of this machine for what reads it."""
    for module in (holds, moments):
        monkeypatch.setattr(module, "now_us", lambda: time_us)


def _settings(tmp_path: Path, *rules: str) -> Path:
    file = tmp_path / "settings.toml"
    file.write_text("\n".join(["[retention.versions]", *(rules or ('"public.orders" = "1 day"',))]))
    return file


def _maintain(lake: Lake, settings: Path, *options: str) -> Done:
    return run_here(["--config", settings, "maintain", "--lake", lake.root, *options])


def _expire(lake: Lake) -> list[str]:
    said: list[str] = []
    retention.expire(lake, RetentionPeriods(_RULES), "tests", said.append)
    return said


def _table(lake: Lake) -> HistoryTable:
    return history_of(lake, ORDERS)


def _state(lake: Lake, lsn: int) -> list[dict[str, Any]]:
    rows = auditlake.Lake(lake.root).as_of(str(Lsn(lsn))).table("orders").to_arrow()
    return sorted(pa.table(rows).to_pylist(), key=lambda row: row["id"])


def _answers(lake: Lake) -> dict[int, list[dict[str, Any]]]:
    return {lsn: _state(lake, lsn) for lsn in (0x180, 0x1FF, 0x200, 0x250, 0x300)}


def _ends(lake: Lake) -> list[int]:
    """Return the ends of the closed versions that readers of the files see."""
    rows = select("select _to_lsn from t where _to_lsn is not null", t=read_newest(lake.history(ORDERS)))
    return sorted(rows["_to_lsn"].to_pylist())


def test_expired_versions_leave_every_answer(lake: Lake, tmp_path: Path) -> None:
    """Of a moment before the horizon nothing can be said any more; of every later moment, the same as before."""
    before = _answers(lake)
    _pass(lake, 8)
    done = _maintain(lake, _settings(tmp_path))
    assert done.code == 0, done.stderr
    assert "public.orders: 1 versions that ended up to 0/180" in done.stderr
    assert _answers(lake) == before
    assert (_ends(lake), _table(lake).horizon, _table(lake).first_snapshot_lsn) == ([0x200], 0x180, 0x100)
    for refused in (0x17F, 0x100):
        with pytest.raises(NotAnswerable, match=r"ended up to 0/180 have expired: \[retention\]"):
            _state(lake, refused)
    asked = run_here(["diff", "0/100", "0/200", "orders", "--lake", lake.root])
    assert (asked.code, "have expired" in asked.stderr) == (7, True)


def test_what_is_left_of_a_row_does_not_pretend_to_be_its_beginning(lake: Lake) -> None:
    """The update of order 1 is no insert, although the version before it is gone; who set the rest is not known."""
    _pass(lake, 8)
    _expire(lake)
    row = auditlake.Lake(lake.root).row("orders", {"id": 1})
    assert [(each.op, each.before is None) for each in row] == [("update", False), ("update", True)]
    blamed = run_here(["blame", "orders", "1", "--json", "--lake", lake.root])
    lsns = {each["column"]: each.get("lsn") for each in map(json.loads, blamed.stdout.splitlines())}
    assert lsns == {"id": None, "note": "0/250", "price": "0/250", "at": None}


def test_a_month_of_which_everything_expired_is_removed_unread(lake: Lake) -> None:
    """Its files go without deletion vectors; a second run has nothing to do, and makes no commit."""
    _pass(lake, 11)
    (said,) = _expire(lake)
    assert "2 versions that ended up to 0/200" in said
    assert "all of 2026-11" in said
    files = files_of(lake, ORDERS)
    assert [is_open(file) for file in files.by_name.values()] == [True]
    assert not list(lake.history(ORDERS).glob("deletion_vector*"))
    version = _table(lake).delta_version
    assert _expire(lake) == []
    assert _table(lake).delta_version == version


def test_the_clock_of_this_machine_expires_nothing(lake: Lake) -> None:
    """What counts is up to when every commit is known: 100 s after the beginning."""
    assert _expire(lake) == []
    assert _table(lake).horizon == 0x100


def test_clocks_that_were_ahead_expire_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Source and capture were, for example on one machine, so every commit is known up to a time that has not come."""
    _pass(lake, 8)
    _set_clock(monkeypatch, T0_US + _DAY_US - 1)
    assert _expire(lake) == []
    assert _table(lake).horizon == 0x100
    _set_clock(monkeypatch, T0_US + _DAY_US + 8_000_000)
    assert len(_expire(lake)) == 1
    assert _table(lake).horizon == 0x180


def test_no_hold_ends_by_the_clock_of_this_machine_alone(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in force until every commit up to its end is known."""
    _pass(lake, 8)
    hold = ["hold", "add", "case-17", "--table", "orders", "--until", "2126-01-01", "--reason", "court", "--lake"]
    assert run_here([*hold, lake.root]).code == 0
    _set_clock(monkeypatch, to_us(datetime(2127, 1, 1, tzinfo=UTC)))
    done = _maintain(lake, _settings(tmp_path))
    assert (done.code, "held by case-17: court" in done.stderr) == (0, True), done.stderr
    assert json.loads(_maintain(lake, _settings(tmp_path), "--dry-run", "--json").stdout)["held_by"] == "case-17"
    assert _table(lake).horizon == 0x100


def test_a_dry_run_shows_and_changes_nothing(lake: Lake, tmp_path: Path) -> None:
    """Rows, bytes and months of each table; as text, too."""
    _pass(lake, 8)
    settings, version = _settings(tmp_path, '"public.*" = "1 day"'), _table(lake).delta_version
    done = _maintain(lake, settings, "--dry-run", "--json")
    (shown,) = map(json.loads, done.stdout.splitlines())
    assert shown == {
        "table": "public.orders",
        "horizon": "0/100",
        "new_horizon": "0/180",
        "ended_before": "2026-11-21T09:00:08Z",
        "versions": 1,
        "bytes": 0,
        "whole_months": [],
        "partial_months": ["2026-11"],
        "held_by": None,
    }
    assert "public.orders" in _maintain(lake, settings, "--dry-run").stdout
    assert (_table(lake).delta_version, lake.retention.exists()) == (version, False)
    _pass(lake, 11)
    (whole,) = map(json.loads, _maintain(lake, settings, "--dry-run", "--json").stdout.splitlines())
    closed = files_of(lake, ORDERS).of_part("2026-11")
    assert (whole["versions"], whole["bytes"], whole["whole_months"]) == (2, closed.size_bytes, ["2026-11"])


def test_a_held_table_keeps_its_versions(lake: Lake, tmp_path: Path) -> None:
    """Even if only one row of it is held; the message names the hold, and so does a dry run."""
    _pass(lake, 8)
    settings = _settings(tmp_path)
    hold: list[str | Path] = [
        "hold",
        "add",
        "case-17",
        "--table",
        "orders",
        "--key",
        "2",
        "--reason",
        "court",
        "--lake",
        lake.root,
    ]
    assert run_here(hold).code == 0
    assert json.loads(_maintain(lake, settings, "--dry-run", "--json").stdout)["held_by"] == "case-17"
    done = _maintain(lake, settings)
    assert (done.code, "held by case-17: court" in done.stderr) == (0, True), done.stderr
    assert _table(lake).horizon == 0x100
    assert run_here(["hold", "release", "case-17", "--reason", "over", "--lake", lake.root]).code == 0
    assert _maintain(lake, settings).code == 0
    assert _table(lake).horizon == 0x180


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ('"public.ordres" = "1 day"', "has 'public.ordres', which matches no table"),
        ('"public.orders" = "1 fortnight"', "has '1 fortnight', need for example 90 days"),
        ('"public.orders" = 7', "has '7', need for example"),
        ('"orders" = "1 day"', "has 'orders', need patterns of schema and table"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(lake: Lake, tmp_path: Path, rule: str, message: str) -> None:
    """Before anything expires by another one."""
    _pass(lake, 8)
    settings = _settings(tmp_path, '"public.orders" = "1 day"' if "ordres" in rule else "", rule)
    done = _maintain(lake, settings)
    assert (done.code, message in done.stderr) == (3, True), done.stderr
    assert _table(lake).horizon == 0x100


def test_the_first_rule_that_matches_decides(lake: Lake, tmp_path: Path) -> None:
    """An exception comes before the rule of the others."""
    _pass(lake, 8)
    settings = _settings(tmp_path, '"public.orders" = "forever"', '"public.*" = "1 day"')
    assert _maintain(lake, settings).code == 0
    assert _table(lake).horizon == 0x100


@on_disk("a copy in a bucket has another URL")
def test_nothing_expires_in_a_copied_lake_until_that_is_confirmed(lake: Lake, tmp_path: Path) -> None:
    """A copy of a lake in which versions expired before; the confirmation is one of the copy alone."""
    settings = _settings(tmp_path)
    _maintain(lake, settings)
    _pass(lake, 8)
    copied = copy_lake(lake, tmp_path / "copied")
    done = _maintain(copied, settings)
    assert (done.code, "was restored or copied" in done.stderr) == (3, True), done.stderr
    assert _maintain(copied, settings, "--dry-run").code == 0
    assert _table(copied).horizon == 0x100
    assert _maintain(copied, settings, "--confirm-restored").code == 0
    assert _table(copied).horizon == 0x180


@on_disk("objects have no inodes")
def test_nothing_expires_in_a_copy_in_the_place_of_its_lake(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the root stayed, as a mount point does, and each folder has the inode of the one that was lost."""
    monkeypatch.setattr(whereabouts, "_inode", lambda _: "inode 7")
    settings = _settings(tmp_path)
    assert _maintain(lake, settings).code == 0
    _pass(lake, 8)
    shutil.copytree(lake.root, tmp_path / "copied")
    for each in lake.root.iterdir():
        each.unlink() if each.is_file() else shutil.rmtree(each)
    shutil.copytree(tmp_path / "copied", lake.root, dirs_exist_ok=True)
    done = _maintain(lake, settings)
    assert (done.code, "was restored or copied" in done.stderr) == (3, True), done.stderr
    assert _maintain(lake, settings, "--confirm-restored").code == 0
    assert _maintain(lake, settings).code == 0


@on_disk("objects have no inodes")
def test_a_lake_of_before_goes_on_and_a_copy_of_it_does_not(lake: Lake, tmp_path: Path) -> None:
    """The inode of its root was recorded alone; a copy is younger than its record, the time of which it keeps."""
    settings = _settings(tmp_path)
    lake.retention.write_text(json.dumps({"place": f"inode {lake.root.stat().st_ino}"}))
    of_before = lake.retention.stat().st_mtime - 3600
    os.utime(lake.retention, (of_before, of_before))
    assert _maintain(lake, settings).code == 3
    lake.retention.touch()
    assert _maintain(lake, settings).code == 0
    assert "born" in lake.retention.read_text()


@on_disk("changes are moved")
def test_a_lake_is_confirmed_before_capture_starts(lake: Lake, tmp_path: Path) -> None:
    """It has no changes yet, so its place is recorded once something may expire."""
    retention.mark_restored(lake)
    changes = lake.changes.rename(tmp_path / "changes")
    retention.confirm_restored(lake)
    changes.rename(lake.changes)
    assert _maintain(lake, _settings(tmp_path)).code == 0
    assert "born" in lake.retention.read_text()


def test_nothing_expires_in_a_restored_lake_until_that_is_confirmed(lake: Lake, tmp_path: Path) -> None:
    """Also if nothing ever expired in the lake that was backed up."""
    _pass(lake, 8)
    folder, settings = tmp_path / "backups", _settings(tmp_path)
    assert run_here(["backup", folder, "--lake", lake.root]).code == 0
    restored = Lake(tmp_path / "restored")
    done = run_here(["restore", folder, "--lake", restored.root])
    assert done.code == 0, done.stderr
    assert _maintain(restored, settings).code == 3
    assert _maintain(restored, settings, "--confirm-restored").code == 0
    assert _table(restored).horizon == 0x180


@pytest.mark.crash
def test_a_killed_run_is_repeated(lake: Lake, tmp_path: Path) -> None:
    """Right before its commit; `tests/release` has the other effects."""
    kill_run(lake, tmp_path, After.EXPIRY_WRITTEN)


def kill_run(lake: Lake, tmp_path: Path, place: After) -> None:
    """Before the commit nothing has expired, afterwards everything; the next run ends with the same."""
    _pass(lake, 8)
    before, settings = _answers(lake), _settings(tmp_path)
    arguments: list[str | Path] = ["--config", settings, "maintain", "--lake", lake.root]
    assert run(arguments, {"AUDITLAKE_FAILPOINT": place}).code == -9
    assert _table(lake).horizon == (0x180 if place is After.EXPIRED else 0x100)
    assert _answers(lake) == before
    assert _maintain(lake, settings).code == 0
    assert (_table(lake).horizon, _ends(lake), _answers(lake)) == (0x180, [0x200], before)
    assert {(each.tables[0].horizon, each.tables[0].versions) for each in read_runs(lake)} == {(0x180, 1)}


def test_another_commit_first_is_no_loss(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table is planned again from that commit; if there is always another one, this is said."""
    _pass(lake, 8)
    others = 1

    def overtaken(path: Place, version: int, operation: str, actions: list[Action]) -> None:
        nonlocal others
        if others:
            others -= 1
            assert fence(_table(lake))
        put(path, version, operation, actions)

    put: Callable[..., None] = log_writer.put_commit
    monkeypatch.setattr(history, "put_commit", overtaken)
    assert len(_expire(lake)) == 1
    assert _ends(lake) == [0x200]
    others = 1_000
    _pass(lake, 11)
    with pytest.raises(LakeConflict, match="20 attempts to write the history of"):
        _expire(lake)
    assert _ends(lake) == [0x200]


def test_the_ledger_proves_what_is_left(lake: Lake) -> None:
    """Expired rows of a copy are counted, not reported; a change of another one still is."""
    digest = sealed(lake)
    _pass(lake, 8)
    _expire(lake)
    proof = compared(lake, digest)
    assert proof.failure() is None
    (note,) = [each for each in proof.notes if "have expired" in each]
    assert note.startswith("1 rows of the snapshot of public.orders at 0/100")
    edit_rows(lake.history(ORDERS), where("id", 2, lambda _: "forged", "note"))
    assert found(compared(lake, digest)) == [("changed or inserted row", "public.orders", 0x100, None)]


def test_a_run_is_on_record_and_sealed(lake: Lake) -> None:
    """What it removed, and up to where; a record that is changed or gone is named."""
    _pass(lake, 8)
    _expire(lake)
    digest = sealed(lake)
    (recorded,) = read_runs(lake)
    assert recorded.tables == (ExpiredTable("public", "orders", 0x180, 1),)
    assert compared(lake, digest).failure() is None
    record = lake.expiries / "000000.json"
    content = record.read_bytes()
    overwrite(record, content.replace(b'"versions": 1', b'"versions": 2'))
    assert found(compared(lake, digest)) == [("changed row", "expiries", 0, None)]
    overwrite(record, content)
    _pass(lake, 11)
    _expire(lake)
    remove_files([lake.expiries / "000001.json"])
    assert ("moved horizon", "public.orders", 0x200, None) in found(compared(lake, digest))


def test_more_missing_rows_than_expired_are_named(lake: Lake) -> None:
    """An attacker who removes a row of the copy that had not expired is found, although rows of it may be missing."""
    digest = sealed(lake)
    _pass(lake, 8)
    _expire(lake)
    edit_rows(lake.history(ORDERS), without("id", 2))
    assert ("removed rows", "public.orders", 0x100, None) in found(compared(lake, digest))


def _following(lake: Lake, said: list[str], rules: Rules = _RULES) -> Applier:
    """Return what applies in a `follow` with `[retention]`."""
    retaining = retention.Retaining(lake, RetentionPeriods(rules), "follow", said.append)
    return Applier(lake, SparkOnDemand({}, Engine.DUCKDB), said.append, retaining)


def test_versions_expire_while_a_lake_is_followed(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once in three hours; later changes are folded onto the versions that are left."""
    before, said = _answers(lake), list[str]()
    applier = _following(lake, said)
    _pass(lake, 8)
    applier.maintain()
    assert (_ends(lake), _table(lake).horizon) == ([0x200], 0x180)
    assert ["1 versions that ended up to 0/180" in line for line in said] == [True]
    applier.apply()
    _pass(lake, 11)
    applier.maintain()
    assert _table(lake).horizon == 0x180
    monkeypatch.setattr(retention, "_EVERY_S", 0.0)
    _following(lake, said).maintain()
    assert _table(lake).horizon == 0x250  # at T0 + 10 s, as 0x200
    assert {lsn: _state(lake, lsn) for lsn in (0x250, 0x300)} == {lsn: before[lsn] for lsn in (0x250, 0x300)}


def test_a_follow_goes_on_if_nothing_can_expire(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule for no table is reported once; a process that removes rows is waited for without a word."""
    monkeypatch.setattr(retention, "_EVERY_S", 0.0)
    said = list[str]()
    wrong = _following(lake, said, (("public.nothing", parse_period("1 day")),))
    wrong.maintain()
    wrong.maintain()
    assert ["matches no table" in line for line in said] == [True]
    _pass(lake, 8)
    held = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(lake.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with held:
        assert held.stdout is not None
        assert held.stdout.readline() == b"held\n"
        applier = _following(lake, said)
        applier.maintain()
        assert (len(said), _table(lake).horizon) == (1, 0x100)
        held.communicate(b"\n")
    applier.maintain()
    assert _table(lake).horizon == 0x180


def test_a_follow_reports_that_others_always_commit_first(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is not the lock of a process that removes rows."""

    def overtaken(*_: object) -> None:
        raise FileExistsError

    _pass(lake, 8)
    said = list[str]()
    monkeypatch.setattr(history, "put_commit", overtaken)
    _following(lake, said).maintain()
    assert ["20 attempts to write the history of" in line for line in said] == [True]


_HOLD = """
import sys
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, hold
with hold(Lake.at(sys.argv[1]), "forget", Stage.ERASE):
    print("held", flush=True)
    sys.stdin.readline()
"""


@on_disk("the job runs in a process of its own")
def test_versions_expire_on_a_cluster(lake: Lake, tmp_path: Path) -> None:
    """By the settings in the working folder of the driver; nothing in this lake needs a JVM."""
    _pass(lake, 8)
    _settings(tmp_path).rename(tmp_path / "auditlake.toml")
    job = [sys.executable, str(Path(__file__).parents[3] / "jobs/maintain.py"), str(lake.root)]
    done = subprocess.run(job, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (_ends(lake), _table(lake).horizon) == ([0x200], 0x180)


@pytest.mark.parametrize(
    ("period", "at", "expected"),
    [
        ("1 day", "2026-03-01T00:00:00", "2026-02-28T00:00:00"),
        ("2 weeks", "2026-03-01T06:00:00", "2026-02-15T06:00:00"),
        ("1 month", "2026-03-31T12:30:00", "2026-02-28T12:30:00"),
        ("1 month", "2026-01-15T00:00:00", "2025-12-15T00:00:00"),
        ("1 year", "2028-02-29T00:00:00", "2027-02-28T00:00:00"),
        ("18 months", "2026-11-25T00:00:00", "2025-05-25T00:00:00"),
    ],
)
def test_periods_follow_the_calendar(period: str, at: str, expected: str) -> None:
    """Expected dates are those of a calendar."""
    assert parse_period(period).before(_us(at)) == _us(expected)


def test_a_period_longer_than_time_keeps_everything() -> None:
    """As does `forever`."""
    assert parse_period("forever").before(_us("2026-01-01T00:00:00")) is None
    assert parse_period("99999 years").before(_us("2026-01-01T00:00:00")) is None
    assert parse_period("99999 weeks").before(_us("1900-01-01T00:00:00")) is None


def _us(text: str) -> int:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - epoch) // timedelta(microseconds=1)
