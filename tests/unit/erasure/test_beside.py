"""An erasure beside capture and apply: what they have begun before it commits is done again after it."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from auditlake.capture.change_log import CaptureLog
from auditlake.delta import append_table, erasing, log_writer
from auditlake.delta.append_table import AppendLog, open_delta
from auditlake.delta.checkpoints import checkpoint
from auditlake.delta.log_entry import entry_name
from auditlake.erasure import forget as erasure
from auditlake.errors import LakeConflict, LakeUnusable
from auditlake.lake.erasure_gate import at_work, closed
from auditlake.lake.erasures import require_erased_log
from auditlake.lake.layout import CHANGES_APP, ERASED_APP, Lake
from auditlake.lsn import Lsn
from auditlake.pgoutput.batch_decoder import CHANGES_SCHEMA
from tests.command import run_here
from tests.erasure_lake import OF_ONE, OF_TWO, ONE, found_in, require_sound, write_lake
from tests.small_lake import T0_US


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Write the lake."""
    return write_lake(tmp_path / "lake")


def _erase(lake: Lake, what: Sequence[str] = OF_ONE) -> None:
    assert run_here(["forget", *what, "--lake", lake.root]).code == 0


def _fail(error: type[BaseException], *_: object) -> None:
    raise error


def _rows(lsn: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"lsn": lsn, "ordinal": 0, "op": "message"}], CHANGES_SCHEMA)


def _lsns(lake: Lake) -> list[int]:
    table = open_delta(lake.changes)
    assert table is not None
    return sorted(table.to_pyarrow_table(columns=["lsn"])["lsn"].to_pylist())


@pytest.fixture
def once_before_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Let something happen between the files of the next commit and its entry."""
    commit = log_writer.put_entry

    def arrange(effect: Callable[[], None]) -> None:
        effects = [effect]

        def put_entry(*given: Any) -> None:
            if effects:
                effects.pop()()
            commit(*given)

        monkeypatch.setattr(append_table, "put_entry", put_entry)

    return arrange


def test_capture_appends_after_an_erasure(lake: Lake) -> None:
    """A log that was opened before."""
    log, before = AppendLog(lake.changes, CHANGES_SCHEMA), _lsns(lake)
    _erase(lake)
    log.append(_rows(0x700), {CHANGES_APP: 0x700})
    assert _lsns(lake) == [*before, 0x700]
    assert log.position(CHANGES_APP) == 0x700
    require_sound(lake)


def test_a_backup_between_the_steps_of_an_erasure_spoils_no_later_one(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of the history is forgotten after the last commit, so the next backup has the same version."""

    def back_up() -> None:
        assert run_here(["backup", tmp_path / "backups", "--lake", lake.root]).code == 0

    def forget_late(table: Path) -> None:
        back_up()
        erasing.forget_log(table)

    monkeypatch.setattr(erasure, "forget_log", forget_late)
    _erase(lake)
    back_up()
    restored = tmp_path / "restored"
    assert run_here(["restore", tmp_path / "backups", "--lake", restored]).code == 0
    assert found_in(Lake(restored), ONE) == {}
    require_sound(Lake(restored))


def test_capture_reads_what_an_erasure_has_left(lake: Lake) -> None:
    """The files of its last commit are deleted; it compares a table's shape with the last change of it."""
    log = CaptureLog(lake)
    _erase(lake)
    assert (log.last_change(1, Lsn(0), Lsn(0x500)), log.partial()) == ((0x400, T0_US + 0x400 * 1_000_000), None)
    log.record_idle(Lsn(0x700), T0_US)
    require_sound(lake)


def test_a_file_that_an_erasure_deleted_is_written_again(
    lake: Lake, once_before_commit: Callable[[Callable[[], None]], None]
) -> None:
    """It was written and not committed, so the erasure cannot know whose it is."""
    log, before = AppendLog(lake.changes, CHANGES_SCHEMA), _lsns(lake)
    once_before_commit(lambda: _erase(lake))
    log.append(_rows(0x700), {CHANGES_APP: 0x700})
    assert _lsns(lake) == [*before, 0x700]
    require_sound(lake)


def test_files_that_were_joined_meanwhile_bring_nothing_back(
    lake: Lake, once_before_commit: Callable[[Callable[[], None]], None]
) -> None:
    """They have the values, in no commit; capture joins the new files instead."""
    log, before = AppendLog(lake.changes, CHANGES_SCHEMA), _lsns(lake)
    once_before_commit(lambda: _erase(lake))
    log.tidy()
    assert _lsns(lake) == before
    assert found_in(lake, ONE) == {}
    require_sound(lake)


class _Joining:
    """Capture joins files from before an erasure commits, which the erasure has not listed; it commits when it may."""

    def __init__(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_commit, self._is_written = threading.Event(), threading.Event()
        self._place, self._put, self._put_entry = lake.changes, erasing.put_erasure, log_writer.put_entry
        self.thread = threading.Thread(target=AppendLog(lake.changes, CHANGES_SCHEMA).tidy)
        monkeypatch.setattr(append_table, "put_entry", self._put_late)
        monkeypatch.setattr(erasing, "put_erasure", self._put_erasure)

    def _put_late(self, *given: Any) -> None:
        self._is_written.set()
        assert self.may_commit.wait(60)
        self._put_entry(*given)

    def _put_erasure(self, table: Path, *given: Any) -> int | None:
        if table == self._place and self.thread.ident is None:
            self.thread.start()
            assert self._is_written.wait(60)
        return self._put(table, *given)


def test_an_erasure_waits_for_files_that_are_being_joined(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have the values, until capture is refused; then it joins the new files."""
    joining, before, delete = _Joining(lake, monkeypatch), _lsns(lake), erasing.delete_unnamed

    def delete_unnamed(table: Path, listed: Any) -> None:
        delete(table, listed)
        if table == lake.changes:
            joining.may_commit.set()

    monkeypatch.setattr(erasing, "delete_unnamed", delete_unnamed)
    monkeypatch.setattr(erasing, "_POLL_S", 0)
    _erase(lake)
    assert found_in(lake, ONE) == {}
    joining.thread.join()
    assert _lsns(lake) == before
    require_sound(lake)


def test_an_erasure_does_not_end_before_a_suspended_writer(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is finished once the writer goes on."""
    joining, before = _Joining(lake, monkeypatch), _lsns(lake)
    monkeypatch.setattr(erasing, "_WAIT_S", 0)
    refused = run_here(["forget", *OF_ONE, "--lake", lake.root])
    assert refused.code == 6
    assert "its writer does not go on" in refused.stderr
    joining.may_commit.set()
    joining.thread.join()
    assert run_here(["forget", "--resume", "--lake", lake.root]).code == 0
    assert found_in(lake, ONE) == {}
    assert _lsns(lake) == before
    require_sound(lake)


def test_what_a_killed_writer_had_read_before_an_erasure_goes_with_the_next_start(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an object store its file appears after the erasure has ended."""
    with monkeypatch.context() as killed:
        killed.setattr(append_table, "put_entry", partial(_fail, KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            AppendLog(lake.changes, CHANGES_SCHEMA).tidy()
    file, before = max(lake.changes.glob("*.parquet"), key=lambda each: each.stat().st_mtime_ns), _lsns(lake)
    content = file.read_bytes()
    _erase(lake)
    assert not file.exists()
    file.write_bytes(content)
    assert found_in(lake, ONE) != {}
    log = CaptureLog(lake)
    log.discard_uncommitted()
    assert found_in(lake, ONE) == {}
    log.record_idle(Lsn(0x700), T0_US)
    assert _lsns(lake) == before
    require_sound(lake)


def test_an_erasure_waits_for_no_file_that_was_committed_and_replaced(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture keeps it for readers of older versions."""
    log, put = AppendLog(lake.changes, CHANGES_SCHEMA), erasing.put_erasure

    def put_late(table: Path, *given: Any) -> int | None:
        if table == lake.changes:
            log.append(_rows(0x700), {CHANGES_APP: 0x700})
            log.discard_above("lsn", 0x6FF)
        return put(table, *given)

    monkeypatch.setattr(erasing, "put_erasure", put_late)
    monkeypatch.setattr(erasing, "_WAIT_S", 0)
    _erase(lake)
    require_sound(lake)


def test_an_erasure_may_take_longer_than_the_log_keeps_entries(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture goes on meanwhile, and deletes the entry of the version that the erasure planned."""
    log, before, put = AppendLog(lake.changes, CHANGES_SCHEMA), _lsns(lake), erasing.put_erasure
    lsns = [0x700, 0x800, 0x900]

    def put_late(table: Path, version: int, actions: Any) -> int | None:
        if table == lake.changes:  # once, because what was planned is still right
            for lsn in lsns:
                log.append(_rows(lsn), {CHANGES_APP: lsn})
                checkpoint(table, -1.0)
            assert not (table / "_delta_log" / entry_name(version)).exists()
        return put(table, version, actions)

    monkeypatch.setattr(erasing, "put_erasure", put_late)
    _erase(lake)
    assert _lsns(lake) == [*before, *lsns]
    assert found_in(lake, ONE) == {}
    require_sound(lake)


@pytest.mark.parametrize("expires", [False, True], ids=["the entry is there", "the entry has expired"])
def test_a_capture_that_starts_deletes_no_file_of_an_erasure(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, *, expires: bool
) -> None:
    """It deletes what is in no commit, and the erasure writes its files again."""
    _erase(lake, OF_TWO)
    before, put, starts = _lsns(lake), erasing.put_erasure, [0x700, 0x800]

    def put_late(table: Path, version: int, actions: Any) -> int | None:
        if table == lake.changes and starts:
            log = AppendLog(table, CHANGES_SCHEMA)
            log.discard_uncommitted(ERASED_APP)
            while starts:
                log.append(_rows(starts[0]), {CHANGES_APP: starts.pop(0)})
                if expires:
                    checkpoint(table, -1.0)
        return put(table, version, actions)

    monkeypatch.setattr(erasing, "put_erasure", put_late)
    _erase(lake)
    assert _lsns(lake) == [*before, 0x700, 0x800]
    assert found_in(lake, ONE) == {}
    require_sound(lake)


def test_a_capture_that_starts_leaves_the_number_of_an_erasure(lake: Lake) -> None:
    """One that commits after capture has opened the log: else the log would count as put back."""
    _erase(lake, OF_TWO)
    log = CaptureLog(lake)
    _erase(lake)
    log.discard_uncommitted()
    require_erased_log(lake)


def test_another_writer_is_refused_as_before(
    lake: Lake, once_before_commit: Callable[[Callable[[], None]], None]
) -> None:
    """Only an erasure may commit beside capture."""
    log = AppendLog(lake.changes, CHANGES_SCHEMA)
    other = AppendLog(lake.changes, CHANGES_SCHEMA)
    once_before_commit(lambda: other.append(_rows(0x700), {CHANGES_APP: 0x700}))
    with pytest.raises(LakeConflict, match="another process committed"):
        log.append(_rows(0x700), {CHANGES_APP: 0x700})


def test_an_erasure_waits_for_a_batch_and_then_gives_up(lake: Lake) -> None:
    """A process that is suspended within a batch may have read the values."""
    with at_work(lake), pytest.raises(LakeConflict, match="a batch of another process is under way"), closed(lake, 0):
        pytest.fail("the gate is open")


def test_a_lake_without_a_table_has_nothing_to_erase(tmp_path: Path) -> None:
    """It is made, and follow has not found a table yet."""
    with pytest.raises(LakeUnusable, match="holds no table yet"), closed(Lake(tmp_path), 0):
        pytest.fail("there is no gate")


def test_a_batch_waits_for_an_erasure(lake: Lake) -> None:
    """It begins when the erasure has ended."""
    order = []

    def work() -> None:
        with at_work(lake):
            order.append("batch")

    waiting = threading.Thread(target=work)
    with closed(lake, 0):
        waiting.start()
        order.append("erased")
    waiting.join()
    assert order == ["erased", "batch"]


def test_batches_are_at_work_together(lake: Lake) -> None:
    """Apply in one process, maintenance in another."""
    with at_work(lake), at_work(lake):
        pass
    with closed(lake, 0):
        pass


def test_an_erasure_commits_although_capture_is_always_first(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the next free version, with the files that it has written once."""
    listed, files = list[Path](), erasing.list_written  # type: ignore[attr-defined] # as it is called there

    def list_written(path: Path) -> object:
        listed.append(path)
        return files(path)

    monkeypatch.setattr(erasing, "list_written", list_written)
    log, before = AppendLog(lake.changes, CHANGES_SCHEMA), _lsns(lake)
    commit, lsns = log_writer.put_commit, iter(range(0x700, 0x703))

    def put_commit(path: Path, *given: Any) -> None:
        if path == lake.changes and (lsn := next(lsns, None)) is not None:
            log.append(_rows(lsn), {CHANGES_APP: lsn})
        commit(path, *given)

    monkeypatch.setattr(log_writer, "put_commit", put_commit)
    _erase(lake)
    assert _lsns(lake) == [*before, 0x700, 0x701, 0x702]
    assert listed.count(lake.changes) == 2, "before the commit, and after it"
    assert found_in(lake, ONE) == {}
    require_sound(lake)
