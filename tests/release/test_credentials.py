"""Credentials that expire while a process runs, as those of a role of a container or an instance do.

A server issues keys that are valid for seconds, by the protocol of ECS and EKS; the store refuses keys that have
expired. Every part that makes requests (Python, deltalake, Spark) must ask for new ones.
"""

import json
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import cast

import psycopg
import pytest

from auditlake.lake.layout import Lake
from auditlake.store.place import Remote
from tests import command
from tests.crash.killed import SPARK
from tests.faulty_store import FaultyStore
from tests.http_server import serving
from tests.interleaved import change, check

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(900)]

_VALID_S = 8.0
_TIMEOUT_S = 400
_KEY = re.compile(r"Credential=(\w+)/")


class _Issuer:
    """Issues keys, and knows which of them have not expired."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._until)

    def issue(self) -> bytes:
        key, secret = f"ASIA{secrets.token_hex(8).upper()}", secrets.token_hex(16)
        with self._lock:
            self._until[key] = time.monotonic() + _VALID_S
        expires = datetime.now(UTC) + timedelta(seconds=_VALID_S)
        named = {"AccessKeyId": key, "SecretAccessKey": secret, "Token": "a token", "RoleArn": "arn:aws:iam::1:role/r"}
        return json.dumps({**named, "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ")}).encode()

    def is_valid(self, authorization: str) -> bool:
        match = _KEY.search(authorization)
        return match is not None and time.monotonic() < self._until.get(match[1], 0.0)


@contextmanager
def _serving(issuer: _Issuer) -> Iterator[str]:
    """Yield the URL at which the keys are."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = issuer.issue()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Stay quiet."""

    with serving(Handler) as url:
        yield f"{url}/credentials"


def test_keys_that_expire_are_replaced(
    database: str, remote_folder: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture runs for several lifetimes of a key; apply and questions take keys of their own."""
    server, issuer, token = os.environ["AWS_ENDPOINT_URL"], _Issuer(), tmp_path / "token"
    token.write_text("authorized")
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key, note text)")
    folder = str(remote_folder)
    both = ["--lake", folder, "--source", database]
    with (
        FaultyStore(server, 0.0, 0, admits=issuer.is_valid) as store,
        _serving(issuer) as url,
        monkeypatch.context() as m,
    ):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            m.delenv(name)
        m.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
        m.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(token))
        environment = {**SPARK, "AWS_ENDPOINT_URL": store.endpoint}
        _done(environment, "bootstrap", *both)
        with command.start(["capture", *both], environment) as capturing:
            begun = time.monotonic()
            for step in range(1, 5):
                change(database, step)
                time.sleep(max(0.0, begun + step * _VALID_S - time.monotonic()))
                assert capturing.poll() is None, capturing.communicate()
            capturing.terminate()
            _, messages = capturing.communicate(timeout=_TIMEOUT_S)
            assert capturing.returncode == 0, messages
        _done(environment, "capture", "--until-current", *both)
        _done(environment, "apply", "--until-current", "--lake", folder)
        asked = "select count(*) from public.orders"
        for engine in ("duckdb", "spark"):
            _done(environment, "sql", "--engine", engine, "--lake", folder, asked)
    assert len(issuer) > 4
    check(database, Lake(cast("Path", remote_folder)))


def _done(environment: dict[str, str], *arguments: str) -> None:
    done = command.run(arguments, environment)
    assert done.code == 0, done.stderr[-3000:]
