"""Changes that expire: what is refused and what stays answered, what is never dropped, kills, capture, the ledger.

Commits of the small lake: 0x150 (T0 + 6 s), 0x200, 0x250 (10 s), 0x300 (30 s). `orders` is folded up to 0x200,
`customers`, which 0x250 changed, up to 0x180.
"""

import errno
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult

import auditlake
from auditlake.audit.lake_reader import Reader
from auditlake.audit.state import open_state
from auditlake.capture.change_log import CaptureLog, CommitEnd
from auditlake.delta import erasing, expired_rows
from auditlake.delta.append_table import AppendLog
from auditlake.delta.sql import read_newest, select
from auditlake.engine import Engine
from auditlake.erasure import expiring_log, retention
from auditlake.errors import NotAnswerable
from auditlake.failpoints import After
from auditlake.follow import Applier
from auditlake.lake.erasures import last_in_log
from auditlake.lake.expiries import CHANGES_NAME, expired_upto, read_runs
from auditlake.lake.history import create_history
from auditlake.lake.layout import CHANGES_APP, CURRENT_APP, ERASED_APP, Lake
from auditlake.lake.relations import RelationsLog
from auditlake.lake.stage_lock import Stage, hold, lock_of
from auditlake.lsn import Lsn
from auditlake.mcp_server import AnswerLimits, make_server
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA, TRANSACTIONS_SCHEMA
from auditlake.relation import Column, Relation, ReplicaIdentity, TableName
from auditlake.schema.missing_values import AddedLog, Existing
from auditlake.serve.timeline import CommitIndex
from auditlake.settings.retention_rules import RetentionPeriods, parse_period
from auditlake.spark.on_demand import SparkOnDemand
from auditlake.store.files import list_written, remove_files
from auditlake.temporal.moments import Known, read_known
from tests.command import Done, run, run_here
from tests.ledger_lake import compared, edit_rows, found, sealed, where
from tests.page import Page
from tests.small_lake import CUSTOMER_COLUMNS, CUSTOMERS, ORDER_COLUMNS, ORDERS, T0_US, write_lake_with_manifest

_KEPT = RetentionPeriods(changes=parse_period("1 day"))
_DAY_US = 86_400_000_000
_HALF = (0x400, 0x400)
"""The LSNs of the file above the watermark."""
_ALL = [0x150, 0x200, 0x200, 0x250, 0x250, 0x250, 0x300, 0x400]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The small lake."""
    return write_lake_with_manifest(tmp_path / "lake", "1")


def _pass(lake: Lake, seconds: int) -> None:
    """Capture until a day and some seconds after the beginning of the lake."""
    AppendLog(lake.changes, CHANGES_SCHEMA).append(None, {CURRENT_APP: T0_US + _DAY_US + seconds * 1_000_000})


def _settings(tmp_path: Path, text: str = 'changes = "1 day"') -> Path:
    file = tmp_path / "settings.toml"
    file.write_text(f"[retention]\n{text}\n")
    return file


def _maintain(lake: Lake, tmp_path: Path, *options: str) -> Done:
    return run_here(["--config", _settings(tmp_path), "maintain", "--lake", lake.root, *options])


def _asked(lake: Lake, *arguments: str) -> Done:
    return run_here([*arguments, "--lake", lake.root])


def _expire(lake: Lake) -> list[str]:
    said: list[str] = []
    retention.expire(lake, _KEPT, "tests", said.append)
    return said


def _apply(lake: Lake) -> None:
    Applier(lake, SparkOnDemand({}, Engine.DUCKDB), lambda _: None).apply()


def _lsns(lake: Lake) -> list[int]:
    """Return the commits of the changes that readers of the files see."""
    return sorted(select("select lsn from t", t=read_newest(lake.changes))["lsn"].to_pylist())


def _horizon(lake: Lake) -> int:
    return expired_upto(read_newest(lake.changes))


def _states(lake: Lake) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Return every state that the lake knows."""
    known = [("orders", lsn) for lsn in (0x100, 0x150, 0x180, 0x200, 0x250, 0x300)]
    known += [("customers", lsn) for lsn in (0x180, 0x250, 0x300)]
    opened = auditlake.Lake(lake.root)
    moments = {lsn: opened.as_of(str(Lsn(lsn))) for _, lsn in known}
    return {
        (name, lsn): sorted(pa.table(moments[lsn].table(name).to_arrow()).to_pylist(), key=lambda row: row["id"])
        for name, lsn in known
    }


def _as_of(lake: Lake, lsn: int) -> Any:
    return auditlake.Lake(lake.root).as_of(str(Lsn(lsn)))


def _rows(lake: Lake) -> dict[int, list[dict[str, Any]]]:
    """Return what is known of each order, as the command prints it."""
    return {
        number: list(map(json.loads, _asked(lake, "row", "orders", str(number), "--json").stdout.splitlines()))
        for number in (1, 2, 3, 4)
    }


def test_expired_changes_leave_every_answer_and_states_stay(lake: Lake, tmp_path: Path) -> None:
    """Questions about them are refused with the reason and the next moment; versions answer as before."""
    states, rows, log = _states(lake), _rows(lake), _asked(lake, "log").stdout
    _pass(lake, 9)
    done = _maintain(lake, tmp_path)
    assert done.code == 0, done.stderr
    assert "auditlake.changes: 1 changes up to 0/180" in done.stderr
    assert (_lsns(lake), _horizon(lake)) == (_ALL[1:], 0x180)
    assert (_states(lake), _rows(lake), _asked(lake, "log").stdout) == (states, rows, log)
    for question in (
        ["show", "0/150"],
        ["log", "--table", "orders", "--key", "1", "--since", "0/150"],
        ["log", "--table", "orders", "--column", "note", "--until", "0/180"],
        ["deleted", "orders", "--since", "0/150"],
        ["sql", "--as-of", "0/180", "select * from auditlake.changes"],
    ):
        asked = _asked(lake, *question)
        assert asked.code == 7, (question, asked.stdout, asked.stderr)
        assert "the changes up to 0/180 have expired: [retention]" in asked.stderr, asked.stderr
        assert "from 0/181 on" in asked.stderr
    assert _asked(lake, "show", "0/200").code == 0
    answered = _asked(lake, "log", "--table", "orders", "--key", "1", "--json")
    assert [json.loads(line)["lsn"] for line in answered.stdout.splitlines()] == ["0/250"]
    assert "the answer starts there" in answered.stderr
    asked = _asked(lake, "sql", "--format", "csv", "select distinct lsn from auditlake.changes order by 1")
    assert asked.stdout.splitlines() == ["lsn", "512", "592", "768"]
    assert "the changes up to 0/180 have expired" in asked.stderr


def test_a_cursor_behind_the_horizon_is_refused(lake: Lake) -> None:
    """Before the first transaction, and by a feed that had not read so far; one at the horizon goes on."""
    late = auditlake.changes(lake.root, since="beginning", follow=True)
    assert next(late).lsn == 0x150
    _pass(lake, 11)
    _apply(lake)
    _expire(lake)
    assert _horizon(lake) == 0x250
    with pytest.raises(NotAnswerable, match="the changes after 1:0/150, the changes up to 0/250 have expired"):
        auditlake.changes(lake.root, after="1:0/150")
    assert [each.lsn for each in auditlake.changes(lake.root, after="1:0/250", follow=False)] == [0x300]
    assert [next(late).lsn for _ in range(3)] == [0x200, 0x250, 0x300]  # it had listed their files
    late.close()


def test_a_reader_that_comes_back_behind_the_horizon_is_told_where_to_go_on(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser by the id of its last event, a webhook by its state file, which --since alone would not move."""
    _pass(lake, 11)
    _apply(lake)
    _expire(lake)
    refused = Page(lake).ask("GET", "/api/v1/changes", headers={"Last-Event-ID": "1:0/150"})
    assert (refused.status_code, refused.json()["hint"]) == (422, "Ask from 0/251 on.")
    monkeypatch.setenv("AUDITLAKE_WEBHOOK_SECRET", "a secret of tests")
    state = tmp_path / "state.json"
    state.write_text(json.dumps({"cursor": "1:0/150"}))
    hook = ("webhook", "http://127.0.0.1:9/", "--until-current", "--state", str(state))
    done = _asked(lake, *hook, "--since", "0/251")
    assert (done.code, "Ask from 0/251 on." in done.stderr) == (7, True), done.stderr
    assert f"{state} has this cursor: to begin elsewhere, name another file with --state" in done.stderr
    assert json.loads(state.read_text()) == {"cursor": "1:0/150"}
    fresh = _asked(lake, *hook, "--state", str(tmp_path / "other.json"), "--since", "beginning")
    assert (fresh.code, "has this cursor" in fresh.stderr, (tmp_path / "other.json").exists()) == (7, False, False)


@pytest.mark.parametrize("follow", [False, True])
def test_a_feed_does_not_pass_over_transactions_that_expire_after_it_was_opened(lake: Lake, *, follow: bool) -> None:
    """It has read nothing yet, so it lacks their rows, although its files of the changes are there."""
    _apply(lake)
    late = auditlake.changes(lake.root, since="beginning", follow=follow)
    _pass(lake, 12)
    day = parse_period("1 day")
    retention.expire(lake, RetentionPeriods(changes=day, transactions=day), "tests", lambda _: None)
    with pytest.raises(NotAnswerable, match="have expired"), late:
        next(late)


def test_no_change_that_is_not_applied_expires(lake: Lake, tmp_path: Path) -> None:
    """They wait for the table that is behind, which is named; once it is folded, they go."""
    states = _states(lake)
    _pass(lake, 31)
    shown = json.loads(_maintain(lake, tmp_path, "--dry-run", "--json").stdout)
    assert (shown["rows"], shown["new_horizon"]) == (1, "0/180")
    assert shown["needed"] == "those of public.customers are not applied past its position"
    assert any("rows after 0/180 are kept longer: those of public.customers" in line for line in _expire(lake))
    assert (_lsns(lake), _states(lake)) == (_ALL[1:], states)
    _apply(lake)
    _expire(lake)
    assert (_lsns(lake), _horizon(lake), _states(lake)) == ([0x400], 0x300, states)


def test_a_follow_goes_on_if_a_disk_is_full(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is reported, and tried again."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    _pass(lake, 9)
    said = list[str]()
    monkeypatch.setattr(retention, "_EVERY_S", 0.0)
    applier = Applier(
        lake, SparkOnDemand({}, Engine.DUCKDB), said.append, retention.Retaining(lake, _KEPT, "follow", said.append)
    )
    with monkeypatch.context() as patched:
        patched.setattr(expired_rows, "write_batches", full)
        applier.maintain()
    assert (["No space left on device" in line for line in said], _lsns(lake)) == ([True], _ALL)
    applier.maintain()
    assert _lsns(lake) == _ALL[1:]


def test_nothing_expires_while_a_table_is_copied(lake: Lake) -> None:
    """Its position will be an LSN that nothing here knows."""
    create_history(lake, TableName("public", "copied"), CUSTOMER_COLUMNS, 3)
    _pass(lake, 9)
    assert ["public.copied is being copied" in line for line in _expire(lake)] == [True]
    assert _lsns(lake) == _ALL


def test_nothing_expires_while_a_bootstrap_runs(lake: Lake, tmp_path: Path) -> None:
    """It may have a snapshot already, of a table that has no folder yet; one that was killed has none any more.

    Of a PID in another container of this host nothing is known.
    """
    _pass(lake, 9)
    with hold(lake, "bootstrap", Stage.BOOTSTRAP):
        (line,) = _maintain(lake, tmp_path, "--dry-run", "--json").stdout.splitlines()
        assert (json.loads(line)["rows"], json.loads(line)["needed"]) == (0, "auditlake bootstrap copies tables")
        assert ["auditlake bootstrap copies tables" in each for each in _expire(lake)] == [True]
        left = lock_of(lake, Stage.BOOTSTRAP).read_text().replace(f'"pid": {os.getpid()}', f'"pid": {2**22 + 1}')
    assert _lsns(lake) == _ALL
    lock_of(lake, Stage.BOOTSTRAP).parent.mkdir(exist_ok=True)
    lock_of(lake, Stage.BOOTSTRAP).write_text(json.dumps(json.loads(left) | {"namespace": 1}))
    _expire(lake)
    assert _lsns(lake) == _ALL
    lock_of(lake, Stage.BOOTSTRAP).write_text(left)
    _expire(lake)
    assert _lsns(lake) == _ALL[1:]


def test_what_is_committed_after_the_look_for_copies_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bootstrap that begins then has a snapshot after everything that expires, and a table that is not known yet."""
    _apply(lake)
    message = {"op": "message", "prefix": "p", "content": b"c", "schema": None, "table": None, "relation": None}

    def read_later(read: Lake) -> Known:
        _capture(lake, 0x500, message)
        _pass(lake, 9 * 86_400)
        return read_known(read)

    monkeypatch.setattr("auditlake.erasure.retention.read_known", read_later)
    said = _expire(lake)
    assert _lsns(lake) == [0x400, 0x500]
    assert any("rows after 0/300 are kept longer: auditlake bootstrap copies tables" in each for each in said), said


def test_a_dry_run_shows_and_changes_nothing(lake: Lake, tmp_path: Path) -> None:
    """Rows, bytes and months; as text, too."""
    _pass(lake, 9)
    version = read_newest(lake.changes)
    assert json.loads(_maintain(lake, tmp_path, "--dry-run", "--json").stdout) == {
        "table": "auditlake.changes",
        "horizon": "0/0",
        "new_horizon": "0/180",
        "committed_before": "2026-11-21T09:00:09Z",
        "rows": 1,
        "bytes": 0,
        "whole_months": [],
        "partial_months": ["2026-11"],
        "held_by": None,
        "needed": None,
    }
    assert "auditlake.changes" in _maintain(lake, tmp_path, "--dry-run").stdout
    assert read_newest(lake.changes) == version


def test_a_file_of_which_everything_expired_is_removed_unread(lake: Lake) -> None:
    """Only the file above the watermark is left; a second run has nothing to do, and makes no commit."""
    _apply(lake)
    _pass(lake, 31)
    before = read_newest(lake.changes)
    assert before is not None
    assert ["7 changes up to 0/300" in line for line in _expire(lake)] == [True]
    after = read_newest(lake.changes)
    assert after is not None
    assert [file.name for file in after.files] == [file.name for file in before.files if file.bounds("lsn") == _HALF]
    assert _expire(lake) == []
    assert read_newest(lake.changes) == after


def test_old_files_are_deleted_beside_capture(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that no version has had for long; a process that appends meanwhile loses nothing."""
    capture = AppendLog(lake.changes, CHANGES_SCHEMA)
    _pass_in(capture, 9)
    monkeypatch.setattr(expired_rows, "KEPT_FOR_S", -60.0)
    _expire(lake)
    live = read_newest(lake.changes)
    assert live is not None
    written = {name for name, _ in list_written(lake.changes) if name.endswith(".parquet")}
    assert {name for name in written if not name.startswith("_delta_log/")} == {file.name for file in live.files}
    _pass_in(capture, 10)
    assert (_lsns(lake), _horizon(lake)) == (_ALL[1:], 0x180)


def test_a_hold_keeps_all_changes(lake: Lake, tmp_path: Path) -> None:
    """Also of other tables: their changes are in the same files."""
    _pass(lake, 9)
    assert _asked(lake, "hold", "add", "case-17", "--table", "customers", "--reason", "court").code == 0
    assert json.loads(_maintain(lake, tmp_path, "--dry-run", "--json").stdout)["held_by"] == "case-17"
    done = _maintain(lake, tmp_path)
    assert (done.code, "held by case-17: court" in done.stderr) == (0, True), done.stderr
    assert _lsns(lake) == _ALL
    assert _asked(lake, "hold", "release", "case-17", "--reason", "over").code == 0
    _expire(lake)
    assert _lsns(lake) == _ALL[1:]


def test_nothing_expires_in_a_restored_lake_until_that_is_confirmed(lake: Lake, tmp_path: Path) -> None:
    """As of versions."""
    _pass(lake, 9)
    folder, restored = tmp_path / "backups", Lake(tmp_path / "restored")
    assert _asked(lake, "backup", str(folder)).code == 0
    assert run_here(["restore", folder, "--lake", restored.root]).code == 0
    assert _maintain(restored, tmp_path).code == 3
    assert 0x150 in _lsns(restored)
    assert _maintain(restored, tmp_path, "--confirm-restored").code == 0
    assert (0x150 in _lsns(restored), _horizon(restored)) == (False, 0x180)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('changes = "1 fortnight"', "has '1 fortnight', need for example 90 days"),
        ("changes = 7", "has '7', need for example"),
        ('change = "1 day"', "is not a setting"),
        ('transactions = "1 day"', "has transactions for less long than changes, which need them"),
        ('changes = "3 weeks"\ntransactions = "2 weeks"', "has transactions for less long than changes"),
        (
            'changes = "1 day"\ntransactions = "1 year"\nversions = {"public.orders" = "2 years"}',
            "has transactions for less long than versions 'public.orders', which need them",
        ),
        ('changes = "1 day"\nversions = {"public.ordres" = "1 day"}', "has 'public.ordres', which matches no table"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(lake: Lake, tmp_path: Path, text: str, message: str) -> None:
    """Before anything expires by another one."""
    _pass(lake, 9)
    done = run_here(["--config", _settings(tmp_path, text), "maintain", "--lake", lake.root])
    assert (done.code, message in done.stderr) == (3, True), done.stderr
    assert _lsns(lake) == _ALL


@pytest.mark.crash
def test_a_killed_run_is_repeated(lake: Lake, tmp_path: Path) -> None:
    """Right before its commit; `tests/release` has the other effects."""
    kill_run(lake, tmp_path, After.EXPIRY_WRITTEN)


def kill_run(lake: Lake, tmp_path: Path, place: After) -> None:
    """Before the commit nothing has expired, afterwards everything; the next run ends with the same."""
    _pass(lake, 9)
    states = _states(lake)
    arguments: list[str | Path] = ["--config", _settings(tmp_path), "maintain", "--lake", lake.root]
    assert run(arguments, {"AUDITLAKE_FAILPOINT": place}).code == -9
    assert _lsns(lake) == (_ALL[1:] if place is After.EXPIRED else _ALL)
    assert _states(lake) == states
    assert _maintain(lake, tmp_path).code == 0
    assert (_lsns(lake), _horizon(lake), _states(lake)) == (_ALL[1:], 0x180, states)
    assert {(each.tables[0].horizon, each.tables[0].versions) for each in read_runs(lake)} == {(0x180, 1)}


@pytest.mark.crash
def test_a_run_that_is_killed_between_its_commits_is_repeated(lake: Lake, tmp_path: Path) -> None:
    """Right after the first one; `tests/release` has the other effects."""
    kill_between(lake, tmp_path, f"{After.EXPIRED}:1", 2, 5)


def kill_between(lake: Lake, tmp_path: Path, step: str, changes: int, transactions: int) -> None:
    """Changes may be gone while their transactions are there, never the other way round; the ledger proves both."""
    _apply(lake)
    states, digest = _states(lake), sealed(lake)
    _pass(lake, 12)
    settings = _settings(tmp_path, 'changes = "1 day"\ntransactions = "1 day"')
    arguments: list[str | Path] = ["--config", settings, "maintain", "--lake", lake.root]
    assert run(arguments, {"AUDITLAKE_FAILPOINT": step}).code == -9
    assert (len(_lsns(lake)), len(_log_of(lake)), _states(lake)) == (changes, transactions, states)
    assert compared(lake, digest).failure() is None
    assert run_here(arguments).code == 0
    assert (_lsns(lake), _log_of(lake), _states(lake)) == ([0x300, 0x400], [0x250, 0x300, 0x400], states)
    assert compared(lake, digest, sealed(lake)).failure() is None


def test_capture_goes_on_beside(lake: Lake) -> None:
    """A process that opened `changes` before appends after the commit, joins files, and keeps the horizon."""
    capture = AppendLog(lake.changes, CHANGES_SCHEMA)
    _pass_in(capture, 9)
    _expire(lake)
    row = {"lsn": 0x500, "ordinal": 0, "xid": 7, "time": T0_US, "op": "message", "prefix": "p", "content": b"c"}
    capture.append(pa.RecordBatch.from_pylist([row], schema=CHANGES_SCHEMA), {CHANGES_APP: 0x500})
    capture.tidy()
    assert (_lsns(lake), _horizon(lake)) == ([*_ALL[1:], 0x500], 0x180)


def _pass_in(capture: AppendLog, seconds: int) -> None:
    capture.append(None, {CURRENT_APP: T0_US + _DAY_US + seconds * 1_000_000})


def test_files_joined_meanwhile_are_planned_again(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture's compaction wins, and its file is rewritten."""
    capture = AppendLog(lake.changes, CHANGES_SCHEMA)
    _pass_in(capture, 9)
    put = erasing.put_erasure
    joins = [capture.tidy]
    monkeypatch.setattr(expired_rows, "put_erasure", lambda *given: (joins.pop()() if joins else None, put(*given))[1])
    _expire(lake)
    assert (joins, _lsns(lake), _horizon(lake)) == ([], _ALL[1:], 0x180)


def test_a_capture_that_starts_meanwhile_deletes_no_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an erasure it deletes what is in no commit, also the files of this run, which are written again."""
    AppendLog(lake.changes, CHANGES_SCHEMA).append(None, {ERASED_APP: 0})
    _pass(lake, 9)
    put = erasing.put_erasure
    starts = [lambda: CaptureLog(lake).discard_uncommitted()]
    monkeypatch.setattr(
        expired_rows, "put_erasure", lambda *given: (starts.pop()() if starts else None, put(*given))[1]
    )
    _expire(lake)
    assert (starts, _lsns(lake), _horizon(lake), last_in_log(lake.changes)) == ([], _ALL[1:], 0x180, 0)


def test_the_ledger_proves_what_is_left(lake: Lake) -> None:
    """Expired changes are counted; one that is changed, or there again, is named."""
    digest = sealed(lake)
    _pass(lake, 9)
    _expire(lake)
    proof = compared(lake, digest)
    assert proof.failure() is None
    assert "1 changes up to 0/180 have expired" in proof.notes
    edit_rows(lake.changes, where("lsn", 0x300, lambda _: "insert", "op"))
    assert ("changed change", "public.orders", 0x300, 0) in found(compared(lake, digest))


def test_a_horizon_that_no_run_moved_is_named(lake: Lake) -> None:
    """Who removes changes has to leave a record, which is sealed."""
    digest = sealed(lake)
    _pass(lake, 9)
    _expire(lake)
    assert read_runs(lake)[0].tables[0].name == CHANGES_NAME
    remove_files([lake.expiries / "000000.json"])
    assert found(compared(lake, digest)) == [("moved horizon", "changes", 0x180, None)]


def test_changes_that_are_missing_without_a_horizon_are_named(lake: Lake) -> None:
    """A change after the horizon that an attacker removed."""
    digest = sealed(lake)
    _pass(lake, 9)
    _expire(lake)
    edit_rows(lake.changes, lambda rows: rows.filter(pc.not_equal(rows["lsn"], 0x300)))
    assert ("removed change", "public.orders", 0x300, 0) in found(compared(lake, digest))


def test_a_change_that_is_not_sealed_stays(lake: Lake) -> None:
    """Else the ledger could never have it."""
    digest = sealed(lake)
    _capture(lake, 0x500, {"op": "delete", "old": ["1", None, None, None]})
    _apply(lake)
    _pass(lake, 200)
    assert any("rows after 0/300 are kept longer: later ones are not sealed" in line for line in _expire(lake))
    assert _lsns(lake) == [0x400, 0x500]
    later = sealed(lake)
    _expire(lake)
    assert (_lsns(lake), compared(lake, digest, later).failure()) == ([], None)


def test_nothing_expires_while_an_erasure_is_unfinished(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks in the changes of the row for values that it has to find elsewhere."""
    _pass(lake, 9)
    monkeypatch.setattr(expiring_log, "unfinished", lambda _: [_Unfinished()])
    assert ["an erasure is unfinished: the row" in line for line in _expire(lake)] == [True]
    assert _lsns(lake) == _ALL


class _Unfinished:
    what = "the row"


def test_what_is_not_known_of_a_row_without_its_changes_is_said(lake: Lake) -> None:
    """A key that a row had before or after, and who set its values; its versions are shown under each key."""
    at = "2026-01-01 12:00:00.25+00"
    _capture(lake, 0x500, {"op": "update", "old": ["1", None, None, None], "new": ["9", "c", "3.00", at]})
    _apply(lake)
    whole = [json.loads(line) for line in _asked(lake, "row", "orders", "9", "--json").stdout.splitlines()]
    assert [each["lsn"] for each in whole] == ["0/500", "0/250", "0/150", "0/100"]
    _pass(lake, 200)
    _expire(lake)
    for key, lsns, side in (("9", ["0/500"], "before"), ("1", ["0/500", "0/250", "0/150", "0/100"], "after")):
        asked = _asked(lake, "row", "orders", key, "--json")
        events = [json.loads(line) for line in asked.stdout.splitlines()]
        assert ([each["lsn"] for each in events], events[0]["op"]) == (lsns, "update")
        assert f"whether the row had another key is not known {side} 0/500" in asked.stderr
        assert _asked(lake, "blame", "orders", key).code == 7
    assert _asked(lake, "deleted", "orders", "--json").stdout == ""


def test_a_value_is_not_older_than_its_column_whose_commit_has_expired(lake: Lake) -> None:
    """The commit that added the column is named by its LSN, without a time."""
    wider = (*ORDER_COLUMNS, Column("extra", 25, -1, key=False))
    before, after = (Relation(1, ORDERS, ReplicaIdentity.DEFAULT, columns) for columns in (ORDER_COLUMNS, wider))
    relations = RelationsLog(lake)
    number = relations.register(after, Lsn(0x500))
    relations.flush()
    AddedLog(lake, lambda _: [Existing()]).resolve([(Lsn(0x150), before), (Lsn(0x500), after)], frozenset({1}))
    insert = {"op": "insert", "new": ["5", None, None, None, "y"], "relation": number}
    _capture(lake, 0x500, insert)
    _capture(lake, 0x600, insert | {"new": ["6", None, None, None, "y"]})
    _apply(lake)
    _pass(lake, 400)
    day = parse_period("1 day")
    retention.expire(lake, RetentionPeriods(changes=day, transactions=day), "tests", lambda _: None)
    assert 0x500 not in _log_of(lake)
    for key in ("1", "4"):  # of the snapshot, and inserted later
        asked = _asked(lake, "blame", "orders", key, "--json")
        (extra,) = (each for each in map(json.loads, asked.stdout.splitlines()) if each["column"] == "extra")
        assert [extra[each] for each in ("value", "lsn", "time", "actor")] == [None, "0/500", None, None], asked.stderr
        shown = _asked(lake, "blame", "orders", key)
        assert (shown.code, "0/500" in shown.stdout) == (0, True), shown.stderr


def _log_of(lake: Lake) -> list[int]:
    """Return the commits that readers of the files see."""
    return sorted(select("select lsn from t", t=read_newest(lake.transactions))["lsn"].to_pylist())


def test_expired_transactions_leave_every_answer(lake: Lake, tmp_path: Path) -> None:
    """All but the last one before the period, by which a later time is known; states are answered by LSN, too."""
    _apply(lake)
    states = _states(lake)
    _pass(lake, 12)
    settings = _settings(tmp_path, 'changes = "1 day"\ntransactions = "1 day"')
    shown = run_here(["--config", settings, "maintain", "--lake", lake.root, "--dry-run", "--json"])
    assert [json.loads(line)["rows"] for line in shown.stdout.splitlines()] == [6, 2]
    done = run_here(["--config", settings, "maintain", "--lake", lake.root])
    assert (done.code, "2 transactions up to 0/24F" in done.stderr) == (0, True), done.stderr
    assert (_log_of(lake), _states(lake)) == ([0x250, 0x300, 0x400], states)
    again = run_here(["--config", settings, "maintain", "--lake", lake.root, "--dry-run", "--json"])
    assert again.stdout == ""
    for question in (
        ["show", "0/150"],
        ["log", "--since", "0/150"],
        ["log", "--until", "0/200"],
        ["prove", "0/150"],
        ["sql", "--as-of", "0/200", "select * from auditlake.transactions"],
    ):
        asked = _asked(lake, *question)
        assert asked.code == 7, (question, asked.stdout, asked.stderr)
        assert "the transactions up to 0/24F have expired: [retention]" in asked.stderr, asked.stderr
        assert "from 0/250 on" in asked.stderr


def test_a_time_before_the_first_transaction_is_refused(lake: Lake) -> None:
    """With the first that is known; every later one means what it meant."""
    _apply(lake)
    _pass(lake, 12)
    day = parse_period("1 day")
    retention.expire(lake, RetentionPeriods(changes=day, transactions=day), "tests", lambda _: None)
    early = _asked(lake, "sql", "--as-of", "2026-11-21T09:00:09Z", "select * from orders")
    assert (early.code, "Ask for 2026-11-21T09:00:10Z or later" in early.stderr) == (7, True), early.stderr
    for time in ("2026-11-21T09:00:10Z", "2026-11-21T09:00:29Z"):
        counted = _asked(lake, "sql", "--as-of", time, "--format", "csv", "select count(*) as n from orders")
        assert counted.stdout.splitlines() == ["n", "3"]
    logged = _asked(lake, "log", "--json", "--since", "2026-11-21T09:00:10Z")
    assert [json.loads(line)["lsn"] for line in logged.stdout.splitlines()] == ["0/300", "0/250"]
    asked = _asked(lake, "row", "orders", "1", "--json")
    assert [json.loads(line)["lsn"] for line in asked.stdout.splitlines()] == ["0/250", "0/150", "0/100"]
    assert "the transactions up to 0/24F have expired: who made them is not known" in asked.stderr


def test_a_time_between_a_snapshot_and_the_next_commit_is_known(lake: Lake) -> None:
    """The last transaction before the period stays, also if a snapshot followed it."""
    question = ("sql", "--as-of", "2026-11-21T09:00:09.5Z", "--format", "csv", "select id, note from orders order by 1")
    before = _asked(lake, *question).stdout
    assert before.splitlines() == ["id,note", "1,b", '2,""']
    _apply(lake)
    _pass(lake, 9)
    day = parse_period("1 day")
    retention.expire(lake, RetentionPeriods(changes=day, transactions=day), "tests", lambda _: None)
    asked = _asked(lake, *question)
    assert (_horizon(lake), asked.stdout) == (0x180, before), asked.stderr


def test_a_time_is_after_what_expired_for_users_who_may_see_no_later_transaction(lake: Lake) -> None:
    """The last one of customers has expired, and only that of another table has not."""
    _apply(lake)
    _pass(lake, 31)
    day = parse_period("1 day")
    retention.expire(lake, RetentionPeriods(changes=day, transactions=day), "tests", lambda _: None)
    known = read_known(lake).limited_to([CUSTOMERS], lambda _: False)
    reader = Reader(lake, datetime.now(UTC), known)
    lsn = reader.moment("2026-11-21T09:00:31Z")
    assert open_state(reader, reader.table("customers"), lsn).read_all().to_pylist() == [{"id": 1, "name": "Anne"}]


def test_the_page_refuses_a_filter_that_needs_expired_changes(lake: Lake) -> None:
    """The update at 0/150 is not left out without a word: its transaction is still known, its change is not."""
    _pass(lake, 9)
    _expire(lake)
    asked = {"table": "orders", "op": "update"}
    whole = Page(lake).json("log", table="orders")
    assert [each["lsn"] for each in whole["transactions"]] == ["0/300", "0/250", "0/200", "0/150"]
    for part in ({"since": "0/150"}, {"before": "0/180"}):
        refused = Page(lake).get("/api/v1/log", **asked, **part)
        assert "the changes up to 0/180 have expired" in refused.json()["error"]
    assert [each["lsn"] for each in Page(lake).json("log", **asked, since="0/200")["transactions"]] == ["0/250"]


def test_the_page_forgets_expired_transactions(lake: Lake) -> None:
    """Its index of commits in memory, too."""
    before = CommitIndex().refreshed(Reader(lake, datetime.now(UTC)))
    assert before.lsns.tolist() == [0x150, 0x200, 0x250, 0x300]
    _apply(lake)
    _pass(lake, 12)
    day = parse_period("1 day")
    retention.expire(lake, RetentionPeriods(changes=day, transactions=day), "tests", lambda _: None)
    assert before.refreshed(Reader(lake, datetime.now(UTC))).lsns.tolist() == [0x250, 0x300]


def test_the_page_and_mcp_say_that_transactions_have_expired(lake: Lake) -> None:
    """Where they show no name: of each answer, not only of the first one."""
    page, tools = Page(lake), make_server(auditlake.Lake(lake.root), AnswerLimits(10))

    def notes_of_tool() -> list[str] | None:
        call = CallToolRequestParams(name="row", arguments={"table": "orders", "key": 1})
        answered = anyio.run(tools.request_handlers[CallToolRequest], CallToolRequest(params=call)).root
        assert isinstance(answered, CallToolResult)
        return (answered.structuredContent or {}).get("notes")

    assert (page.json("row", table="orders", key="1")["notes"], notes_of_tool()) == ([], None)
    _apply(lake)
    _pass(lake, 12)
    day = parse_period("1 day")
    retention.expire(lake, RetentionPeriods(changes=day, transactions=day), "tests", lambda _: None)
    note = "the transactions up to 0/24F have expired: who made them is not known"
    page = Page(lake)  # the other one keeps a state of the lake for a second
    for _ in range(2):
        assert page.json("row", table="orders", key="1")["notes"] == [note]
        assert notes_of_tool() == [note]
    assert note in page.get("/row", table="orders", key="1").text


def test_the_page_says_what_has_expired(lake: Lake) -> None:
    """Below a list of transactions that ends there, and with an operation on a table also for changes."""
    _apply(lake)
    _pass(lake, 12)
    _expire(lake)
    page = Page(lake)
    assert page.json("log")["expired"] is None
    found = page.json("log", table="orders", op="delete")
    assert ([each["lsn"] for each in found["transactions"]], found["expired"]) == (["0/300"], "0/250")
    assert page.get("/api/v1/log", table="orders", op="delete", since="0/200").status_code == 422
    day = parse_period("1 day")
    retention.expire(lake, RetentionPeriods(changes=day, transactions=day), "tests", lambda _: None)
    page = Page(lake)
    found = page.json("log")
    assert ([each["lsn"] for each in found["transactions"]], found["expired"]) == (["0/300", "0/250"], "0/24F")
    assert "0/24F</span> have expired" in page.get("/log").text
    assert page.json("log", since="0/250")["expired"] is None
    assert page.get("/api/v1/log", since="0/200").status_code == 422
    assert "0/24F</span> have expired" in page.get("/", at="0/200").text


def test_transactions_stay_as_long_as_their_changes(lake: Lake) -> None:
    """Which are not applied here."""
    day, said = parse_period("1 day"), list[str]()
    _pass(lake, 31)
    retention.expire(lake, RetentionPeriods(changes=day, transactions=day), "tests", said.append)
    assert (_lsns(lake), _log_of(lake)) == (_ALL[1:], [0x200, 0x250, 0x300, 0x400])
    assert any("auditlake.transactions: rows after 0/180 are kept longer: their changes are" in each for each in said)


def test_transactions_stay_as_long_as_versions_are_dated_by_them(lake: Lake) -> None:
    """The longest period counts."""
    _apply(lake)
    _pass(lake, 12)
    day, versions = parse_period("1 day"), (("public.orders", parse_period("2 days")),)
    retention.expire(lake, RetentionPeriods(versions, day, day), "tests", lambda _: None)
    assert (_lsns(lake), _log_of(lake)) == ([0x300, 0x400], [0x150, 0x200, 0x250, 0x300, 0x400])


def test_the_ledger_counts_expired_transactions(lake: Lake) -> None:
    """And names a horizon without a record."""
    _apply(lake)
    digest, day = sealed(lake), parse_period("1 day")
    _pass(lake, 12)
    retention.expire(lake, RetentionPeriods(changes=day, transactions=day), "tests", lambda _: None)
    proof = compared(lake, digest)
    assert (proof.failure(), "2 transactions up to 0/24F have expired" in proof.notes) == (None, True)
    remove_files([lake.expiries / "000000.json"])
    assert {each[:2] for each in found(compared(lake, digest))} == {
        ("moved horizon", "changes"),
        ("moved horizon", "transactions"),
    }


def test_capture_begins_after_the_last_time(lake: Lake) -> None:
    """The time of the next transaction is later than all that are gone."""
    _apply(lake)
    _pass(lake, 200)
    day = parse_period("1 day")
    retention.expire(lake, RetentionPeriods(changes=day, transactions=day), "tests", lambda _: None)
    assert _log_of(lake) == [0x300, 0x400]
    _capture(lake, 0x500, {"op": "delete", "old": ["1", None, None, None]})
    rows = select("select time_mono from t order by lsn", t=read_newest(lake.transactions))["time_mono"].to_pylist()
    assert rows == sorted(rows)


def _capture(lake: Lake, lsn: int, change: dict[str, Any]) -> None:
    """Capture one transaction with one change of `orders`."""
    row = {"lsn": lsn, "ordinal": 0, "xid": 7, "time": T0_US, "schema": "public", "table": "orders", "relation": 1}
    counts = {"inserts": 0, "updates": int(change["op"] == "update"), "deletes": int(change["op"] == "delete")}
    commit = {"lsn": lsn, "end_lsn": lsn + 1, "xid": 7, "time": T0_US, "tables": ["public.orders"], "truncates": 0}
    CaptureLog(lake).append(
        pa.RecordBatch.from_pylist([row | change], schema=CHANGES_SCHEMA),
        pa.RecordBatch.from_pylist([commit | counts], schema=TRANSACTIONS_SCHEMA),
        CommitEnd(Lsn(lsn), Lsn(lsn + 1)),
    )


def test_a_proof_says_what_has_expired(lake: Lake) -> None:
    """That of an expired transaction is refused; that of a row has what is left."""
    sealed(lake)
    _pass(lake, 9)
    _expire(lake)
    done = _asked(lake, "prove", "0/150")
    assert (done.code, "have expired" in done.stderr) == (7, True), done.stderr
    done = _asked(lake, "prove", "orders", "1")
    assert (done.code, "only their transactions are proved" in done.stderr) == (0, True), done.stderr
