"""A server of the S3 protocol for tests: moto, in a process of its own, with an empty bucket."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast
from urllib.error import URLError
from urllib.request import Request, urlopen

from auditlake.store.place import parse

CHOSEN = os.environ.get("AUDITLAKE_TEST_STORE", "disk")
"""Where `tests.capture_lake` makes lakes: `disk`, or `s3` for a bucket."""
_buckets: list[str] = []
_START_TIMEOUT_S = 60.0
SECRET = "s3-secret-of-the-tests"


def chosen_store(root: Path) -> Path:
    """Return a place for a lake in the store that AUDITLAKE_TEST_STORE names; always the same for the same folder."""
    if CHOSEN == "disk" or not isinstance(root, Path):
        return root
    return cast("Path", parse(f"{_buckets[-1]}/{'/'.join(root.parts[-3:])}"))


@contextmanager
def s3_server() -> Iterator[str]:
    """Run the server, with its settings in the environment of this process; yield the URL of an empty bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    endpoint, bucket = f"http://127.0.0.1:{port}", f"tests-{port}"
    command = [sys.executable, "-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        _create(f"{endpoint}/{bucket}")
        _buckets.append(f"s3://{bucket}")
        yield _buckets[-1]
    finally:
        process.kill()
        process.wait()
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _create(bucket: str) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            with urlopen(Request(bucket, method="PUT")):  # noqa: S310 - on this machine
                return
        except (URLError, ConnectionError):
            assert time.monotonic() < deadline, "moto did not start"
            time.sleep(0.1)
