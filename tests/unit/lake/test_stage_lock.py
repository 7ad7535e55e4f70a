"""Stage locks: a second process is refused with the name of the first, and succeeds once that has died."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from auditlake.errors import LakeConflict, LakeUnusable
from auditlake.lake import lease
from auditlake.lake.layout import Lake
from auditlake.lake.manifest import Manifest, write_manifest
from auditlake.lake.stage_lock import Stage, hold, holder_lives, lock_of
from tests import command

_HOLDER = """
import subprocess, sys
from pathlib import Path
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, hold
with hold(Lake(Path(sys.argv[1])), "follow", Stage.CAPTURE, Stage.APPLY):
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    print(child.pid, flush=True)
    sys.stdin.read()
"""

_DEMO = """
import sys
from pathlib import Path
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, hold
with hold(Lake(Path(sys.argv[1])), "demo", *Stage):
    print("held", flush=True)
    sys.stdin.read()
"""

_VISITOR = """
import os, sys
from pathlib import Path
from auditlake.errors import LakeConflict
from auditlake.lake.layout import Lake
from auditlake.lake.stage_lock import Stage, hold
held = 0
while held < 200:
    try:
        with hold(Lake(Path(sys.argv[1])), "apply", Stage.APPLY):
            os.close(os.open(sys.argv[2], os.O_CREAT | os.O_EXCL))
            os.unlink(sys.argv[2])
            held += 1
    except LakeConflict:
        pass
"""


def test_a_second_process_is_refused_until_the_first_has_died(tmp_path: Path) -> None:
    """The error names the first; its children do not keep the lock, and the file that it leaves does no harm."""
    (tmp_path / "lake.json").touch()
    lake = Lake(tmp_path)
    command = [sys.executable, "-c", _HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        child = int(first.stdout.readline())
        with pytest.raises(LakeConflict, match=rf"process {first.pid} on .* \(auditlake follow, since 20") as refused:
            hold(lake, "apply", Stage.APPLY).__enter__()
        assert refused.value.exit_code == 6
        with hold(lake, "maintain", Stage.MAINTAIN):
            first.kill()
            first.wait()
        with hold(lake, "follow", Stage.CAPTURE, Stage.APPLY):
            pass
        os.kill(child, signal.SIGKILL)


def test_a_second_command_exits_before_any_effect(tmp_path: Path) -> None:
    """It neither connects to the source nor starts a JVM, and the lake is unchanged."""
    lake = Lake(tmp_path / "lake")
    write_manifest(lake, Manifest("7", 1, "shop", "auditlake", "auditlake"))
    holder = [sys.executable, "-c", _DEMO, str(lake.root)]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline()
        before = sorted(lake.root.rglob("*"))
        for name in ("bootstrap", "follow", "apply", "maintain"):
            of_source = [] if name in {"apply", "maintain"} else ["--source", "host=/nowhere dbname=shop"]
            done = command.run_here([name, "--lake", lake.root, *of_source])
            assert (done.code, done.stdout) == (6, ""), done.stderr
            assert f"process {demo.pid} on {socket.gethostname()} (auditlake demo, since 20" in done.stderr
        assert sorted(lake.root.rglob("*")) == before
        demo.kill()


def test_a_refused_stage_releases_the_locks_that_it_had_taken(tmp_path: Path) -> None:
    """If the second of two stages is refused, the first is released; a process may hold one lock twice."""
    lake = Lake(tmp_path)
    locked = tmp_path / "locks" / "apply.lock"
    locked.parent.mkdir()
    script = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(locked)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(LakeConflict, match="another process holds the lock of apply"):
            hold(lake, "follow", Stage.CAPTURE, Stage.APPLY).__enter__()
        other.kill()
    with hold(lake, "capture", Stage.CAPTURE), hold(lake, "follow", Stage.CAPTURE):
        holder = json.loads((tmp_path / "locks" / "capture.lock").read_text())
    assert (holder["pid"], holder["command"]) == (os.getpid(), "capture")


def test_released_locks_leave_no_files(tmp_path: Path) -> None:
    """The folder of locks is deleted, and so is that of the lake if the lock created it."""
    with hold(Lake(tmp_path / "new" / "lake"), "bootstrap", Stage.BOOTSTRAP):
        assert (tmp_path / "new" / "lake" / "locks").exists()
    assert not (tmp_path / "new").exists()
    (tmp_path / "lake.json").touch()
    lake = Lake(tmp_path)
    with hold(lake, "follow", Stage.CAPTURE, Stage.APPLY), hold(lake, "bootstrap", Stage.BOOTSTRAP, Stage.CAPTURE):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["lake.json"]


def test_a_lake_in_a_new_folder_stays(tmp_path: Path) -> None:
    """Only empty folders are removed."""
    lake = Lake(tmp_path / "lake")
    with hold(lake, "bootstrap", Stage.BOOTSTRAP):
        write_manifest(lake, Manifest("7", 1, "shop", "auditlake", "auditlake"))
    assert list(lake.root.iterdir()) == [lake.manifest]


def test_processes_that_come_and_go_never_hold_a_lock_together(tmp_path: Path) -> None:
    """Each removes its file and empty folders when it ends, while others open them."""
    line = [sys.executable, "-c", _VISITOR, str(tmp_path / "new" / "lake"), str(tmp_path / "alone")]
    visitors = [subprocess.Popen(line) for _ in range(3)]
    assert [visitor.wait() for visitor in visitors] == [0, 0, 0]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_files_are_for_owner_and_group_only(tmp_path: Path) -> None:
    """Under any umask of the shell."""
    before = os.umask(0o022)
    try:
        with hold(Lake(tmp_path / "lake"), "bootstrap", Stage.BOOTSTRAP):
            made = tmp_path / "lake" / "changes"
            made.mkdir()
            (made / "file").touch()
            modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "lake", made, made / "file")]
    finally:
        after = os.umask(before)
    assert after == 0o022
    assert modes == [0o750, 0o750, 0o640]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file has the folder's name."""
    (tmp_path / "lake").touch()
    with (
        pytest.raises(LakeUnusable, match=r"bootstrap\.lock cannot be locked"),
        hold(Lake(tmp_path / "lake"), "bootstrap", Stage.BOOTSTRAP),
    ):
        pass


def test_a_full_disk_needs_space_not_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint is about the reason."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.open", full)
    with pytest.raises(LakeUnusable, match="No space left") as failure, hold(Lake(tmp_path), "apply", Stage.APPLY):
        pass
    assert failure.value.hint == "Free space there, then run this again: it continues from there."


@pytest.mark.parametrize("content", ["", "[]", '{"pid": 1}', '{"boot": 1, "pid": "x"}'])
def test_of_a_damaged_lock_nothing_is_known(tmp_path: Path, content: str) -> None:
    """Nor is it an error."""
    lake = Lake(tmp_path)
    lock = lock_of(lake, Stage.BOOTSTRAP)
    lock.parent.mkdir()
    lock.write_text(content)
    assert holder_lives(lake, Stage.BOOTSTRAP) is None


def test_of_a_process_that_the_system_hides_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc may show no processes of other users."""
    lake = Lake(tmp_path)
    with hold(lake, "bootstrap", Stage.BOOTSTRAP):
        assert holder_lives(lake, Stage.BOOTSTRAP) is True
        monkeypatch.setattr(lease, "_started", lambda _: None)
        assert holder_lives(lake, Stage.BOOTSTRAP) is None
    assert holder_lives(lake, Stage.BOOTSTRAP) is False
