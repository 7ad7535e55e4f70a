"""Every stage on a bucket whose store fails: errors, timeouts, lost replies, throttling, refused credentials.

A share of all requests is spoiled, and the commands must get through. While the store refuses everything they must end
with a clear error and code 6, and lose nothing.
"""

import os
import time
from pathlib import Path
from typing import cast

import psycopg
import pytest

from auditlake.lake.layout import Lake
from auditlake.store.place import Remote
from tests import command
from tests.crash.killed import SPARK
from tests.faulty_store import RESET, SILENT, FaultyStore
from tests.interleaved import change, check
from tests.s3_server import SECRET

pytestmark = [pytest.mark.pg, pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(1200)]

_SHARE = 0.08
_SEED = int(os.environ.get("AUDITLAKE_FAULTS_SEED", "20"))
_TIMEOUT_S = 400
_COUNT = "select count(*), sum(id) from public.orders"


def _run(store: FaultyStore, *arguments: str) -> command.Done:
    with command.start(arguments, {**SPARK, "AWS_ENDPOINT_URL": store.endpoint}) as process:
        stdout, stderr = process.communicate(timeout=_TIMEOUT_S)
    assert SECRET not in stdout + stderr
    return command.Done(process.returncode, stdout, stderr)


def _done(store: FaultyStore, *arguments: str) -> str:
    done = _run(store, *arguments)
    assert done.code == 0, (done.stderr[-3000:], store.made)
    return done.stdout


def _prepare(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table orders (id int primary key, note text)")
        conn.execute("insert into orders select n, 'first' from generate_series(1, 500) n")
        for number in range(5):
            conn.execute(f"create table other_{number} (id int primary key)")
            conn.execute(f"insert into other_{number} select generate_series(1, 100)")


def test_all_stages_get_through_a_store_that_fails(database: str, remote_folder: Remote) -> None:
    """Bootstrap, capture, apply, maintain questions, with one request in twelve spoiled."""
    _prepare(database)
    folder = str(remote_folder)
    both = ["--lake", folder, "--source", database]
    print(f"AUDITLAKE_FAULTS_SEED={_SEED}")  # noqa: T201 - repeats the run
    with FaultyStore(os.environ["AWS_ENDPOINT_URL"], _SHARE, _SEED) as store:
        _done(store, "bootstrap", *both)
        for step in range(1, 4):
            change(database, step)
            _done(store, "capture", "--until-current", *both)
        _done(store, "apply", "--until-current", "--lake", folder)
        change(database, 4)
        _done(store, "follow", "--until-current", *both)
        with psycopg.connect(database) as conn:
            expected = ",".join(map(str, conn.execute(_COUNT).fetchone() or ()))
        assert _done(store, "sql", "--lake", folder, "--format", "csv", _COUNT).splitlines()[1] == expected
        assert len(_done(store, "log", "--lake", folder, "--json").splitlines()) == 4 * 5
        _done(store, "maintain", "--lake", folder)
        _done(store, "status", *both)
    assert {"lost request", "lost reply", RESET, "SlowDown", "InternalError"} <= set(store.made), store.made
    check(database, Lake(cast("Path", remote_folder)))


def test_requests_without_a_reply_are_repeated(database: str, remote_folder: Remote) -> None:
    """The client gives up after half a minute; what took effect, such as a commit, is not made twice."""
    _prepare(database)
    folder = str(remote_folder)
    both = ["--lake", folder, "--source", database]
    with FaultyStore(os.environ["AWS_ENDPOINT_URL"], 0.0, _SEED) as store:
        _done(store, "bootstrap", *both)
        with command.start(["capture", *both], {**SPARK, "AWS_ENDPOINT_URL": store.endpoint}) as capturing:
            change(database, 1)
            _await_captured(database)
            for step in range(2, 5):  # one at a time: it gives up after a minute of silence, with code 6
                store.spoil(SILENT)
                change(database, step)
                _await_captured(database)
                assert store.made[SILENT] == step - 1
            capturing.terminate()
            _, messages = capturing.communicate(timeout=_TIMEOUT_S)
            assert capturing.returncode == 0, messages
        for arguments in (["apply", "--until-current"], ["sql", _COUNT]):
            store.spoil(SILENT)
            _done(store, *arguments, "--lake", folder)
    check(database, Lake(cast("Path", remote_folder)))


@pytest.mark.parametrize("code", ["ExpiredToken", "AccessDenied"])
def test_a_store_that_refuses_is_named_and_nothing_is_lost(database: str, remote_folder: Remote, code: str) -> None:
    """Credentials expire, or the bucket is denied, while capture runs; the next run continues at the same position."""
    _prepare(database)
    folder = str(remote_folder)
    both = ["--lake", folder, "--source", database]
    with FaultyStore(os.environ["AWS_ENDPOINT_URL"], 0.0, _SEED) as store:
        _done(store, "bootstrap", *both)
        environment = {**SPARK, "AWS_ENDPOINT_URL": store.endpoint}
        with command.start(["capture", *both], environment) as capturing:
            change(database, 1)
            _await_captured(database)
            with store.refusing(code):
                change(database, 2)
                _, messages = capturing.communicate(timeout=_TIMEOUT_S)
                assert (capturing.returncode, code in messages) == (6, True), messages
                assert "unexpected" not in messages, messages
                for arguments in (["sql", _COUNT], ["log"], ["bootstrap", "--source", database], ["status"]):
                    refused = _run(store, *arguments, "--lake", folder)
                    assert refused.code == 6, (arguments, refused.stderr)
                    assert code in refused.stderr, (arguments, refused.stderr)
        _done(store, "capture", "--until-current", *both)
    check(database, Lake(cast("Path", remote_folder)))


def _await_captured(database: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    query = "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots"
    with psycopg.connect(database, autocommit=True) as conn:
        (end,) = conn.execute("select pg_current_wal_insert_lsn()::text").fetchone() or ("",)
        while (conn.execute(query, [end]).fetchone() or (False,))[0] is not True:
            assert time.monotonic() < deadline
            time.sleep(0.1)
