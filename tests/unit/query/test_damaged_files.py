"""Questions about a lake with a damaged data file; tests/release has every file and every kind."""

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import auditlake
from auditlake.delta import sql
from auditlake.delta.data_files import FileProblem
from auditlake.delta.log_reader import Add
from auditlake.errors import BadUsage, LakeUnusable
from auditlake.verify import damage
from auditlake.verify.damage import damage_behind
from tests.command import Done, run, run_here
from tests.damaged_questions import damaged_lake, damages_of, wrong_answers
from tests.erasure_lake import OF_ONE, write_lake
from tests.s3_server import on_disk
from tests.small_lake import write_lake_with_manifest

pytestmark = on_disk("files are damaged in place")


def test_a_damaged_data_file_is_no_bug_and_gives_no_wrong_answer(tmp_path: Path) -> None:
    """Of the log of transactions and of a history: not a file of Parquet any more; `tests/release` has every damage."""
    lake = damaged_lake(tmp_path / "lake")
    assert wrong_answers(lake, damages_of(lake, ("truncated",), "*.parquet")) == []


def test_the_damaged_file_is_named(tmp_path: Path) -> None:
    """With what is wrong with it, and the command that finds all damage."""
    lake = damaged_lake(tmp_path / "lake")
    file = max((lake.root / "transactions").glob("*.parquet"), key=lambda path: path.stat().st_size)
    file.write_bytes(file.read_bytes()[:-1])
    done = run_here(["log", "--lake", lake.root])
    assert done.code == 6
    assert f"a file of the lake is damaged: transactions, {file.name}: file size" in done.stderr
    assert "auditlake verify --no-source" in done.stderr


@pytest.mark.parametrize(
    ("folder", "question"),
    [
        ("transactions", lambda lake: lake.log()),
        ("transactions", lambda lake: lake.sql("select * from auditlake.transactions")),
        ("history/public/orders", lambda lake: lake.diff("0/180")),
        ("history/public/orders", lambda lake: lake.as_of().table("orders").to_arrow()),
    ],
    ids=["log", "sql", "diff", "table"],
)
def test_the_python_api_names_the_damaged_file(
    folder: str, question: Callable[[auditlake.Lake], object], tmp_path: Path
) -> None:
    """As the command line does, in place of the error of a library."""
    lake = damaged_lake(tmp_path / "lake")
    for file in (lake.root / folder).glob("**/*.parquet"):
        file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(LakeUnusable, match=r"a file of the lake is damaged: \S+, \S*part-\S+"):
        question(auditlake.Lake(lake.root))


def test_damage_that_shows_while_rows_are_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large table is read after it was opened."""
    lake = damaged_lake(tmp_path / "lake")

    def failing() -> Iterator[pa.RecordBatch]:
        raise pa.ArrowInvalid("unreadable")
        yield

    opened = pa.RecordBatchReader.from_batches(pa.schema([]), failing())
    monkeypatch.setattr("auditlake.api.lake.open_state", lambda *_, **__: opened)
    rows = auditlake.Lake(lake.root).as_of().table("orders")
    next(iter((lake.root / "transactions").glob("*.parquet"))).unlink()
    with pytest.raises(LakeUnusable, match="a file of the lake is damaged: transactions"):
        rows.to_arrow()


def _pipe(place: Path) -> None:
    os.mkfifo(place)


def _loop(place: Path) -> None:
    place.symlink_to(place)


@pytest.mark.parametrize(
    ("folder", "planted"),
    [("changes", _pipe), ("changes", _loop), ("transactions", _loop), ("history", _loop), ("history/public", _loop)],
)
def test_a_folder_that_is_none_is_named(folder: str, planted: Callable[[Path], None], tmp_path: Path) -> None:
    """A restored disk may have anything in its place; no command waits for a pipe."""
    lake = damaged_lake(tmp_path / "lake")
    shutil.rmtree(lake.root / folder)
    planted(lake.root / folder)
    for question in (["log"], ["sql", "select count(*) from orders"]):
        done = run_here([*question, "--lake", lake.root])
        assert (done.code, f"{lake.root / folder}" in done.stderr) == (6, True), done.stderr


@on_disk("a bucket has no pipes")
@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("lake.json", "status"),
        ("capture.json", "status"),
        ("changes/_delta_log/*.json", "log"),
        ("changes/*.parquet", "seal"),
        ("transactions/*.parquet", "log"),
        ("transactions/*.parquet", "seal"),
        ("history/public/orders/**/*.parquet", "row orders 1"),
        ("changes/*.parquet", "backup BACKUPS"),
        ("changes/_delta_log/*.json", "backup BACKUPS"),
    ],
)
def test_a_file_that_is_a_pipe_is_named(pattern: str, command: str, tmp_path: Path) -> None:
    """Whether we open it or a library would: no command waits for a writer."""
    lake = write_lake_with_manifest(tmp_path / "lake")
    (lake.root / "capture.json").touch()
    found = sorted(lake.root.glob(pattern))
    for file in found:
        file.unlink()
        os.mkfifo(file)
    done = run_here([*command.replace("BACKUPS", str(tmp_path / "backups")).split(), "--lake", lake.root])
    assert (done.code, any(file.name in done.stderr for file in found)) == (6, True), done.stderr


@on_disk("a bucket has no pipes")
@pytest.mark.parametrize(
    "pattern",
    ["*/backup.json", "*/records/lake.json", "*/logs/changes/_delta_log/*.json", "files/changes/*.parquet"],
)
def test_a_pipe_in_a_folder_of_backups_is_refused(pattern: str, tmp_path: Path) -> None:
    """The disk of a backup may have been in other hands."""
    lake, backups = write_lake_with_manifest(tmp_path / "lake"), tmp_path / "backups"
    assert run_here(["backup", backups, "--lake", lake.root]).code == 0
    file = max(backups.glob(pattern))
    file.unlink()
    os.mkfifo(file)
    done = run_here(["restore", backups, "--lake", tmp_path / "restored"])
    assert done.code == 6, done.stderr
    assert "is not a file" in done.stderr or "NotAFile" in done.stderr


def test_an_error_of_our_own_is_not_explained_by_damage(tmp_path: Path) -> None:
    """Unless a library raised its cause; and an exception over an undamaged lake stays what it is."""
    lake = damaged_lake(tmp_path / "lake")
    ours, caused = BadUsage("a typo", ""), BadUsage("unreadable", "")
    caused.__cause__ = pa.ArrowInvalid("unreadable")
    full = OSError(errno.ENOSPC, "No space left on device", str(lake.root / "changes" / "part.parquet"))
    for error in (ours, caused, pa.ArrowInvalid("a bug"), ValueError("a bug"), full):
        assert damage_behind(error, lake) is None
    next(iter((lake.root / "transactions").glob("*.parquet"))).unlink()
    assert damage_behind(ours, lake) is None
    for error in (caused, pa.ArrowInvalid("unreadable"), ValueError("a wrong value")):
        assert isinstance(damage_behind(error, lake), LakeUnusable)


def test_a_file_that_was_replaced_meanwhile_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An erasure beside the search deletes it at once."""
    lake = write_lake(tmp_path / "lake")
    missing = list[FileProblem | None]()
    look = damage.size_problem  # type: ignore[attr-defined] # as it is called there

    def erased_before(place: Path, add: Add) -> FileProblem | None:
        if not missing:
            assert run_here(["forget", *OF_ONE, "--lake", lake.root]).code == 0
        missing.append(look(place, add))
        return missing[-1]

    monkeypatch.setattr(damage, "size_problem", erased_before)
    assert damage_behind(ValueError("a bug"), lake) is None
    assert any(missing)


@pytest.mark.parametrize("command", ["prove", "row"])
def test_a_file_that_was_deleted_while_it_was_read_is_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure replaces it after a question about another row has listed it; the table has others then."""
    lake, done = write_lake(tmp_path / "lake"), list[Done]()
    assert run_here(["seal", "--lake", lake.root]).code == 0
    open_cursor = sql.shared_cursor

    def erased_before(place: Path) -> object:
        if not done and place == lake.changes:
            done.append(run(["forget", *OF_ONE, "--lake", lake.root]))
        return open_cursor(place)

    monkeypatch.setattr(sql, "shared_cursor", erased_before)
    asked = run_here([command, "people", "3", "--lake", lake.root])
    assert ([each.code for each in done], asked.code) == ([0], 6), asked.stderr
    assert re.search(r"changes/part-\S+\.parquet of \S+ was deleted while it was read", asked.stderr)
    assert run_here([command, "people", "3", "--lake", lake.root]).code == 0
