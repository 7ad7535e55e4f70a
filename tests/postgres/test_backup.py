"""Backups of a live lake, and lakes restored from them: every answer up to the watermark is the original's."""

import functools
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import auditlake
from auditlake.apply.apply import apply_pending
from auditlake.backup import backup as backup_module
from auditlake.backup import pinned
from auditlake.backup.backup import back_up
from auditlake.backup.pinned import Pin
from auditlake.backup.restore import restore
from auditlake.backup.stored import Backup, Folder
from auditlake.delta.table import open_table
from auditlake.errors import BadUsage, LakeConflict, LakeUnusable
from auditlake.failpoints import After
from auditlake.lake.gaps import read_gaps
from auditlake.lake.histories import list_histories
from auditlake.lake.layout import TRANSACTIONS_APP, Lake
from auditlake.lake.positions import read_positions
from auditlake.lsn import Lsn
from auditlake.temporal.moments import read_known
from tests import command, oracle
from tests.capture_lake import make_lake
from tests.capture_once import capture
from tests.crash.killed import killed_at
from tests.damage import summed
from tests.read_lake import positions_of
from tests.running import await_true
from tests.s3_server import on_disk
from tests.server import execute
from tests.writers import LEDGER, SCHEMA, TABLES, Writers

pytestmark = [pytest.mark.pg, on_disk("files of lakes and backups are counted and changed by hand")]


def _without_spark() -> object:
    pytest.fail("Spark was started")


def _apply(lake: Lake) -> None:
    apply_pending(_without_spark, lake)  # type: ignore[arg-type]


def _say(_: str) -> None:
    pass


@pytest.fixture
def lake(database: str, tmp_path: Path) -> Lake:
    """A lake of one table with a row, applied."""
    return make(database, tmp_path)


def make(database: str, folder: Path) -> Lake:
    """Make it."""
    execute(database, "create table t (id int primary key, v text)")
    made = make_lake(database, folder / "lake")
    _write(database, made, 1)
    _apply(made)
    return made


def _write(database: str, lake: Lake, *keys: int) -> None:
    for key in keys:
        execute(database, f"insert into t values ({key}, 'row {key}')")
        capture(database, lake)


def _restored(folder: Folder, root: Path, number: int | None = None) -> Lake:
    made = Lake(root)
    restore(folder, made, number, _say)
    return made


def _rows(lake: Lake, table: str, lsn: Lsn) -> Counter[tuple[str | None, ...]]:
    found = auditlake.Lake(lake.root).as_of(str(lsn)).table(table).texts()
    return Counter(tuple(row.values()) for row in found)


def _keys(lake: Lake) -> list[int]:
    positions = positions_of(lake)
    return sorted(int(row[0] or 0) for row in _rows(lake, "t", positions.watermark).elements())


def test_backups_beside_follow_and_maintain_answer_as_the_lake(database: str, tmp_path: Path) -> None:
    """Of two backups, the second of which has less to copy; `tests/release` has a third."""
    check_beside(database, tmp_path, 2, 40)


def check_beside(database: str, tmp_path: Path, count: int, transactions: int) -> None:
    """While it is written, applied and compacted: each backup has PostgreSQL's states, and the log's changes."""
    with psycopg.connect(database) as conn:
        conn.execute(SCHEMA)
    lake = make_lake(database, tmp_path / "lake", without=[LEDGER])
    folder, moments, backups = Folder(tmp_path / "backups"), list[oracle.Moment](), list[Backup]()
    settings: list[str | Path] = ["--source", database, "--lake", lake.root]
    with Writers(database) as writers, command.following(settings, {}):
        for _ in range(count):
            writers.await_transactions(transactions)
            moments.append(oracle.take_moment(database, TABLES))
            await_true(lambda: _is_captured(lake, moments[-1]))
            assert command.run_here(["maintain", "--lake", lake.root]).code == 0
            backups.append(back_up(lake, folder, _say))
    assert command.run_here(["capture", "--until-current", *settings]).code == 0
    for backup in backups:
        copy = _restored(folder, tmp_path / f"restored-{backup.number}", backup.number)
        positions = positions_of(copy)
        assert positions.watermark == backup.watermark
        held = [each for each in oracle.transactions(lake) if each["lsn"] <= backup.watermark]
        assert [each for each in oracle.transactions(copy) if each["lsn"] <= backup.watermark] == held
        for moment in moments[: backup.number]:
            for table, rows in moment.states.items():
                assert _rows(copy, table, moment.lsn) == rows
        for table in TABLES:
            assert _rows(copy, table, backup.watermark) == _rows(lake, table, backup.watermark)
        assert not read_known(copy).parked


def _is_captured(lake: Lake, moment: oracle.Moment) -> bool:
    positions = read_positions(lake)
    return positions is not None and positions.watermark > moment.lsn


def test_a_backup_is_one_state_whatever_is_written_between_its_tables(
    database: str, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction is captured and applied before each table is pinned: none is half in the copy, none too early."""
    pin, key = pinned._pin, iter(range(2, 100))  # noqa: SLF001 - the moment between two tables

    def pinned_late(*given: object) -> Pin | None:
        _write(database, lake, next(key))
        _apply(lake)
        return pin(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(pinned, "_pin", pinned_late)
        backup = back_up(lake, folder := Folder(tmp_path / "backups"), _say)
    copy = _restored(folder, tmp_path / "restored")
    assert all(history.position <= backup.watermark for history in list_histories(copy))
    lsns = [row["lsn"] for row in oracle.transactions(copy)]
    assert max(lsns) == backup.watermark
    written = open_table(copy.transactions).transaction_version(TRANSACTIONS_APP)
    assert written == backup.watermark  # and not of a later batch
    assert _keys(copy) == list(range(1, len(lsns) + 1))
    # The copy goes on: its slot has been acknowledged further, by the original.
    refused = command.run_here(["capture", "--until-current", "--source", database, "--lake", copy.root])
    assert refused.code == 5


def test_a_record_that_changes_meanwhile_is_of_the_same_state(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is parked while tables are pinned is parked in the copy: the pin is taken again."""
    pin, times = pinned._pin, iter(range(100))  # noqa: SLF001 - as above

    def pinned_late(table: Path, name: str, version: int | None) -> Pin | None:
        if next(times) == 0:
            (lake.root / "parked").mkdir()
            (lake.root / "parked" / "a.json").write_text("{}")
        return pin(table, name, version)

    monkeypatch.setattr(pinned, "_pin", pinned_late)
    backup = back_up(lake, Folder(tmp_path / "backups"), _say)
    assert "parked/a.json" in backup.records


def test_a_backup_that_was_overtaken_changes_no_record_of_the_other(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was suspended while it copied, another process took its lock, and a table was parked meanwhile."""
    describe, folder, record = backup_module._described, Folder(tmp_path / "backups"), lake.root / "parked" / "a.json"  # noqa: SLF001
    record.parent.mkdir()
    record.write_text("{}")

    def described_late(*given: object) -> Backup:
        monkeypatch.setattr(backup_module, "_described", describe)
        record.write_text('{"later": true}')
        back_up(lake, folder, _say)
        return describe(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(backup_module, "_described", described_late)
    with pytest.raises(LakeConflict, match="another process has written backup 1"):
        back_up(lake, folder, _say)
    assert json.loads(folder.record(1, "parked/a.json").read_bytes()) == {"later": True}


def _written_since(folder: Folder) -> Callable[[], set[str]]:
    before = {path: path.stat().st_ino for path in Path(str(folder.root)).rglob("*") if path.is_file()}
    return lambda: {str(path) for path, inode in before.items() if not path.exists() or path.stat().st_ino != inode}


def test_a_killed_backup_loses_no_other_and_is_repeated(database: str, lake: Lake, tmp_path: Path) -> None:
    """With some of its files; `tests/release` has the other effects."""
    kill_backup(database, lake, tmp_path, After.FILE_BACKED_UP, 1)


def kill_backup(database: str, lake: Lake, tmp_path: Path, place: After, complete: int) -> None:
    """The last complete one stays as it was, file for file; the next run has what was written since."""
    folder = Folder(tmp_path / "backups")
    back_up(lake, folder, _say)
    unchanged = _written_since(folder)
    _write(database, lake, 2, 3)
    _apply(lake)
    killed_at(place, ["backup", folder.root, "--lake", lake.root])  # type: ignore[list-item]
    assert folder.complete() == list(range(1, complete + 1))
    assert _keys(_restored(folder, tmp_path / "first", 1)) == [1]
    done = command.run_here(["backup", folder.root, "--lake", lake.root])  # type: ignore[list-item]
    assert done.code == 0, done.stderr
    assert _keys(_restored(folder, tmp_path / "last")) == [1, 2, 3]
    assert not unchanged()


def test_a_killed_restore_is_no_lake_and_is_repeated(database: str, lake: Lake, tmp_path: Path) -> None:
    """With some of its files; `tests/release` has the other effects."""
    kill_restore(database, lake, tmp_path, After.FILE_RESTORED)


def kill_restore(database: str, lake: Lake, tmp_path: Path, place: After) -> None:
    """It goes on with the same backup, and with no other; what it had copied is not copied again."""
    folder = Folder(tmp_path / "backups")
    back_up(lake, folder, _say)
    _write(database, lake, 2)
    back_up(lake, folder, _say)
    target = tmp_path / "restored"
    line: list[str | Path] = ["restore", tmp_path / "backups", "--lake", target]
    killed_at(place, line)
    is_lake = place is After.RESTORED
    assert (target / "lake.json").exists() == is_lake
    other = command.run_here([*line, "--number", "1"])
    assert other.code == 6
    done = command.run_here(line)
    assert done.code == 0, done.stderr
    assert _keys(Lake(target)) == [1, 2]
    assert not (target / "restore.json").exists()
    assert command.run_here(line).code == 6  # a lake is never overwritten


def test_a_restored_lake_goes_on_if_its_slot_can(database: str, lake: Lake, tmp_path: Path) -> None:
    """Nothing was acknowledged since the backup: capture goes on in the copy, and every change is there once."""
    folder = Folder(tmp_path / "backups")
    backup = back_up(lake, folder, _say)
    execute(database, "insert into t values (2, 'later')")
    copy = _restored(folder, tmp_path / "restored")
    capture(database, copy)
    _apply(copy)
    assert _keys(copy) == [1, 2]
    assert oracle.confirmed_flush(database) > backup.acknowledged


def test_what_the_slot_has_forgotten_is_named_with_its_bounds(database: str, lake: Lake, tmp_path: Path) -> None:
    """The original went on: exit 5, from where to where changes are missing, and the command that repairs it."""
    folder = Folder(tmp_path / "backups")
    backup = back_up(lake, folder, _say)
    _write(database, lake, 2)
    forgotten = oracle.confirmed_flush(database)
    copy = _restored(folder, tmp_path / "restored")
    before = _keys(copy)
    refused = command.run_here(["follow", "--until-current", "--source", database, "--lake", copy.root])
    assert refused.code == 5
    assert f"stands at {forgotten}, this lake at {backup.acknowledged}" in refused.stderr
    assert "restored from a backup" in refused.stderr
    assert "auditlake resync --all" in refused.stderr
    assert _keys(copy) == before == [1]
    repaired = command.run_here(["resync", "--all", "--yes", "--source", database, "--lake", copy.root])
    assert repaired.code == 0, repaired.stderr
    assert _keys(copy) == [1, 2]
    gaps = read_gaps(copy)
    assert [gap.lsn_from for gap in gaps] == [backup.acknowledged - 1]
    assert all(gap.lsn_to > forgotten - 1 for gap in gaps)


def test_a_table_that_did_not_change_is_not_copied_again(database: str, lake: Lake, tmp_path: Path) -> None:
    """The next backup refers to its log, and to its files."""
    folder = Folder(tmp_path / "backups")
    back_up(lake, folder, _say)
    unchanged = _written_since(folder)
    execute(database, "insert into t values (2, 'later')")
    capture(database, lake)  # not applied
    backup = back_up(lake, folder, _say)
    assert backup.tables["history/public/t"].log == 1
    assert backup.tables["changes"].log == 2
    assert not unchanged()
    assert _keys(_restored(folder, tmp_path / "restored")) == [1, 2]


def test_a_folder_of_backups_is_of_one_lake_and_of_nothing_else(lake: Lake, tmp_path: Path) -> None:
    """Neither another lake's backups nor any other file is mixed in, and a lake is not copied into itself."""
    folder = Folder(tmp_path / "backups")
    back_up(lake, folder, _say)
    manifest = json.loads(lake.manifest.read_text())
    lake.manifest.write_text(json.dumps({**manifest, "created": "another"}))
    with pytest.raises(LakeUnusable, match="another lake"):
        back_up(lake, folder, _say)
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "letter").touch()
    with pytest.raises(LakeUnusable, match="not a folder of backups"):
        back_up(lake, Folder(Path(lake.root) / ".." / "others"), _say)
    with pytest.raises(BadUsage, match="in each other"):
        back_up(lake, Folder(Path(lake.root) / "backups"), _say)
    with pytest.raises(BadUsage, match="in each other"):  # it would be no folder of backups any more
        restore(folder, Lake(tmp_path / "backups" / "restored"), None, _say)
    (tmp_path / "leading_nowhere").symlink_to(tmp_path / "nothing")
    with pytest.raises(LakeUnusable, match="leading_nowhere cannot be written: File exists"):
        restore(folder, Lake(tmp_path / "leading_nowhere"), None, _say)
    with pytest.raises(BadUsage, match="no complete backup"):
        restore(Folder(tmp_path / "none"), Lake(tmp_path / "restored"), None, _say)


def test_a_forged_record_of_a_backup_is_refused(lake: Lake, tmp_path: Path) -> None:
    """A number or a log that is a path leads elsewhere; without the manifest there would be no lake."""
    folder = Folder(tmp_path / "backups")
    back_up(lake, folder, _say)
    place = Path(folder.manifest(1))  # type: ignore[arg-type]
    content = json.loads(place.read_text())
    forged: list[dict[str, object]] = [{"number": each} for each in ("../../x", 2, True, None)]
    forged += [{"records": each} for each in ([5, "lake.json"], "lake.json", ["apply.json"])]
    forged += [{"lake": [1]}, {"taken": None}]
    stored = content["tables"]["changes"]
    tables = [stored | each for each in ({"log": "../../x"}, {"log": 2}, {"log": 0}, {"version": "1"}, {"version": -1})]
    forged += [{"tables": content["tables"] | {"changes": each}} for each in tables]
    for each in forged:
        place.write_text(json.dumps(content | each))
        with pytest.raises(LakeUnusable, match=r"backup\.json is not as auditlake writes it"):
            restore(folder, Lake(tmp_path / "restored"), None, _say)
    assert not (tmp_path / "restored").exists()


def test_a_link_in_a_backup_does_not_lead_out_of_it(lake: Lake, tmp_path: Path) -> None:
    """A restored lake has no file of the machine on which it is restored."""
    (tmp_path / "private").write_text("private")
    back_up(lake, Folder(tmp_path / "first"), _say)
    number = "00000001"
    for n, linked in enumerate(("records/lake.json", "logs/changes/_delta_log/0.json", "files/changes")):
        folder = Folder(tmp_path / f"forged{n}")
        shutil.copytree(tmp_path / "first", tmp_path / f"forged{n}")
        place = Path(folder.root, *([] if linked.startswith("files") else [number]), linked)  # type: ignore[arg-type]
        if place.is_dir():
            place.rename(tmp_path / "elsewhere")
            place.symlink_to(tmp_path / "elsewhere")
        else:
            place.unlink(missing_ok=True)
            place.symlink_to(tmp_path / "private")
        with pytest.raises(LakeUnusable, match="is a link out of the folder of backups"):
            restore(folder, Lake(tmp_path / f"restored{n}"), None, _say)
        copied = [path for path in (tmp_path / f"restored{n}").rglob("*") if path.is_file()]
        assert not any(path.read_bytes() == b"private" for path in copied)


@pytest.mark.parametrize("name", ["../outside", "/etc/outside", "a/../../outside"])
def test_a_forged_backup_writes_nothing_outside_the_lake(lake: Lake, tmp_path: Path, name: str) -> None:
    """Its disk may have been in other hands: small files, tables and data files are required to stay inside."""
    folder = Folder(tmp_path / "backups")
    back_up(lake, folder, _say)
    place = Path(folder.manifest(1))  # type: ignore[arg-type]
    content = json.loads(place.read_text())
    log = Path(folder.logs(1).root) / "history" / "public" / "t" / "_delta_log"
    entry = max(log.glob("*.json"))
    forgeries: list[Callable[[], object]] = [
        functools.partial(place.write_text, json.dumps({**content, "records": [name, "lake.json"]})),
        functools.partial(place.write_text, json.dumps({**content, "tables": {name: content["tables"]["changes"]}})),
        lambda: place.write_text(json.dumps(content)) + entry.write_bytes(_with_path(entry, name)),
    ]
    for number, forge in enumerate(forgeries):
        forge()
        with pytest.raises(LakeUnusable, match="outside its folder"):
            restore(folder, Lake(tmp_path / f"restored-{number}"), None, _say)


def _with_path(entry: Path, path: str) -> bytes:
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    forged = [{"add": {**each["add"], "path": path}} if "add" in each else each for each in actions]
    assert forged != actions
    return summed(entry.name, forged)


def test_a_damaged_backup_is_refused_by_the_name_of_its_file(lake: Lake, tmp_path: Path) -> None:
    """A data file that is shorter than its log says, or missing."""
    folder = Folder(tmp_path / "backups")
    back_up(lake, folder, _say)
    file = next(Path(str(folder.root)).rglob("files/changes/*.parquet"))
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(LakeUnusable, match=f"{file.name} has {len(content) - 1:,} bytes, need {len(content):,}"):
        restore(folder, Lake(tmp_path / "short"), None, _say)
    file.unlink()
    with pytest.raises(LakeUnusable, match=f"{file.name} is missing"):
        restore(folder, Lake(tmp_path / "missing"), None, _say)
    file.write_bytes(content)
    manifest = Path(str(folder.record(1, "lake.json")))
    whole = manifest.read_text()
    for damaged in ("", "{}", "[]", whole.replace('"created": "', '"created": "x'), None):
        manifest.write_text(damaged) if damaged is not None else manifest.unlink()
        with pytest.raises(LakeUnusable, match=r"records/lake\.json"):
            restore(folder, Lake(tmp_path / "no_manifest"), None, _say)
    assert not (tmp_path / "no_manifest").exists()
