"""A server of the S3 protocol for tests, in a process of its own, with an empty bucket.

It is moto, or the server that AUDITLAKE_TEST_S3 names: `versitygw`, a second implementation, which keeps objects as
files. `make release` installs it if Go is there.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from auditlake.lake.layout import Lake
from auditlake.store import files, objects
from auditlake.store.place import Place, Remote, parse_url, session_of
from tests.server import free_port

CHOSEN = os.environ.get("AUDITLAKE_TEST_STORE", "disk")
"""Where tests make their lakes: `disk`, or `s3` for a bucket."""
NAME = os.environ.get("AUDITLAKE_TEST_S3", "moto")
_buckets: list[str] = []
_START_TIMEOUT_S = 60.0
_NOT_IN_KEYS = re.compile(r"[^\w./-]")
SECRET = "s3-secret-of-the-tests"


def on_disk(reason: str) -> pytest.MarkDecorator:
    """Mark a test that needs a lake on a disk."""
    return pytest.mark.skipif(CHOSEN == "s3", reason=f"needs a disk: {reason}")


def chosen_store(root: Path) -> Path:
    """Return a place for a lake in the store that AUDITLAKE_TEST_STORE names; always the same for the same folder."""
    if CHOSEN == "disk" or not isinstance(root, Path):
        return root
    return cast("Path", parse_url(f"{_buckets[-1]}/{_NOT_IN_KEYS.sub('-', '/'.join(root.parts[-3:]))}"))


def chosen_lake(folder: Path) -> Lake:
    """Name a lake in the store that AUDITLAKE_TEST_STORE names; always the same for the same folder."""
    return Lake(chosen_store(folder))


def versions(folder: Place) -> dict[str, object]:
    """Return the files below a folder, in either store, each with a value that changes when it is written."""
    if isinstance(folder, Remote):
        return dict(files.list_versioned(folder, ""))
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def names(folder: Place) -> list[str]:
    """Return the names of the files below a folder, relative to it."""
    if isinstance(folder, Remote):
        return [name for name, _ in files.list_versioned(folder, "")]
    return [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]


def copy_file(place: Place, to: Place) -> None:
    """Copy a file to another name in the same store."""
    if isinstance(place, Remote) and isinstance(to, Remote):
        objects.copy(place.bucket, place.key, to.key)
    else:
        Path(str(to)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(place), str(to))


def overwrite(place: Place, content: bytes) -> None:
    """Replace a file that a lake never replaces; `forget` what this process has read of it."""
    if isinstance(place, Remote):
        objects.put(place.bucket, place.key, content)
    else:
        place.write_bytes(content)


def forget(place: Place) -> None:
    """Forget what this process has read of a place, as another process would not know it."""
    session_of(place).forget()


def copy_folder(folder: Place, to: Place) -> Path:
    """Copy all that is below a folder to another one, of the same store or in a bucket; return that."""
    if not isinstance(to, Remote):
        return Path(shutil.copytree(str(folder), to, dirs_exist_ok=True))
    for name in names(folder):
        if isinstance(folder, Remote):
            objects.copy(folder.bucket, (folder / name).key, (to / name).key)
        else:
            objects.put(to.bucket, (to / name).key, (folder / name).read_bytes())
    return cast("Path", to)


def copy_lake(lake: Lake, folder: Path) -> Lake:
    """Copy a lake to another folder of the same store."""
    return Lake(copy_folder(lake.root, chosen_store(folder)))


@contextmanager
def s3_server(name: str = NAME) -> Iterator[str]:
    """Run the server, with its settings in the environment of this process; yield the URL of an empty bucket."""
    port = free_port()
    endpoint, bucket = f"http://127.0.0.1:{port}", f"tests-{port}"
    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }
    with ExitStack() as held:
        held.enter_context(_environment(settings))
        if name == "versitygw":
            folder = held.enter_context(tempfile.TemporaryDirectory(prefix="auditlake-s3-"))
            Path(folder, bucket).mkdir()
            held.enter_context(_running([_program(name), "--quiet", "--port", f"127.0.0.1:{port}", "posix", folder]))
            _await(f"{endpoint}/{bucket}", "HEAD")
        else:
            code = "from moto.server import main; main()"
            held.enter_context(_running([sys.executable, "-c", code, "-H", "127.0.0.1", "-p", str(port)]))
            _await(f"{endpoint}/{bucket}", "PUT")
        _buckets.append(f"s3://{bucket}")
        yield _buckets[-1]


def _program(name: str) -> str:
    """Return the path of a program, also of one that `go install` made."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:{Path.home() / 'go' / 'bin'}")
    if found is None:
        pytest.skip(f"needs {name}, which `make release` installs if Go is there")
    return found


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextmanager
def _running(command: Sequence[str]) -> Iterator[None]:
    keys = {"ROOT_ACCESS_KEY": os.environ["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": SECRET}
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(command, env={**os.environ, **keys}, stdout=nowhere, stderr=nowhere)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _await(bucket: str, method: str) -> None:
    """Wait until the server answers, if only that it wants a signature."""
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            with urlopen(Request(bucket, method=method)):  # noqa: S310 - on this machine
                return
        except HTTPError:
            return
        except (URLError, ConnectionError):
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.1)
