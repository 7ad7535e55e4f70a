"""Fixtures for all layers: a real PostgreSQL, a fresh database per test, one Spark session per run.

Nothing starts before a test asks for it: tests/unit needs neither a server nor a JVM.
"""

import faulthandler
import gc
import os
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock
from uuid import uuid4

import pytest
from hypothesis import settings

from auditlake.store.objects import settings_for_spark
from auditlake.store.place import Remote, parse_url
from tests.command import handle_ignored_signals
from tests.s3_server import CHOSEN, s3_server
from tests.server import Server, chosen_version, server_in_memory

if TYPE_CHECKING:  # pyspark costs the unit tests a second
    from pyspark.sql import SparkSession


# A process that may not keep what it compiled compiles our modules at each start: 0.2 s of 1.4.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_EXIT_TIMEOUT_S = 30

handle_ignored_signals()

gc.disable()  # until the tests are collected: nothing of them is garbage

settings.register_profile(
    "auditlake",
    deadline=None,  # a busy machine is no failure
    print_blob=True,
    derandomize="AUDITLAKE_PROPERTY_SEED" in os.environ,
)
settings.load_profile("auditlake")


def pytest_report_header() -> str:
    """Name the versions this run speaks about."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "delta-spark", "deltalake", "psycopg"))
    return f"PostgreSQL {chosen_version()}, {packages}"


def pytest_configure() -> None:
    """Wait for no disk: what a test has written may end with the machine, as the data of the servers."""

    def at_once(_: object) -> None: ...

    mock.patch.object(os, "fsync", at_once).start()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Put tests that share a slow fixture on one worker, unless they name their own group."""
    if isinstance(item, pytest.Function) and not item.get_closest_marker("xdist_group") and (group := _group(item)):
        item.add_marker(pytest.mark.xdist_group(group))


_FOLDING = ("tests/spark/apply/", "tests/spark/resync/", "tests/crash/")


def _group(test: pytest.Function) -> str | None:
    """Name the group of a test: its JVM, a server that few tests need, or its module if that shares a fixture.

    Two JVMs halve the longest group, which no other worker can shorten.
    """
    fixtures = test._fixtureinfo.name2fixturedefs  # noqa: SLF001 - the only way to their scopes
    if test.get_closest_marker("spark"):
        if "spark" not in fixtures:
            return "own-jvm"
        return "folding-jvm" if test.nodeid.startswith(_FOLDING) else "jvm"
    if "bucket" in fixtures and CHOSEN == "disk":
        return "bucket"
    if "complete_server" in fixtures:
        return "complete-server"
    shares = any(found[-1].scope == "module" for found in fixtures.values())
    return test.nodeid.partition("::")[0] if shares else None


def pytest_collection_finish() -> None:
    """Keep the objects of all tests out of garbage collection: they last as long as the process, with their garbage."""
    gc.enable()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let no thread keep this process from its end: show what all of them do, and exit.

    A worker waits for the others, and xdist ends it.
    """
    if not hasattr(config, "workerinput"):
        faulthandler.dump_traceback_later(_EXIT_TIMEOUT_S, exit=True, file=2)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server with logical replication, for the whole run."""
    settings = {"max_prepared_transactions": "10", "shared_buffers": "16MB"}  # less for each connection to map
    with server_in_memory(chosen_version(), settings) as running:
        yield running


@pytest.fixture(scope="session")
def complete_server() -> Iterator[Server]:
    """A server of PostgreSQL 17, built with libxml and with all of contrib."""
    with server_in_memory(17) as running:
        yield running


@pytest.fixture
def database(server: Server) -> Iterator[str]:
    """Connection string of a fresh database; its slots go with it."""
    name = server.create_database()
    yield server.dsn(name)
    server.drop_database(name)


@pytest.fixture
def complete_database(complete_server: Server) -> Iterator[str]:
    """Connection string of a fresh database of that server; its slots go with it."""
    name = complete_server.create_database()
    yield complete_server.dsn(name)
    complete_server.drop_database(name)


@pytest.fixture
def bare_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings come from flags alone."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("AUDITLAKE_") and name != "AUDITLAKE_JARS"]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    """The URL of a bucket, on a server of the S3 protocol, for the whole run."""
    with s3_server() as url:
        yield url


@pytest.fixture(autouse=CHOSEN == "s3", scope="session")
def _chosen_store(bucket: str) -> None:
    """Start the server before the first lake is made in it."""


@pytest.fixture
def remote_folder(bucket: str) -> Remote:
    """A folder in the bucket that no other test uses."""
    return parse_url(f"{bucket}/{uuid4().hex}")


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> "SparkSession":
    """The one Spark session; not stopped, because the next test run starts its own JVM anyway."""
    from auditlake.spark.session import spark_session  # noqa: PLC0415  # the same second

    of_store = settings_for_spark(parse_url(f"{request.getfixturevalue('bucket')}/lakes")) if CHOSEN == "s3" else {}

    return spark_session(
        {
            "spark.master": "local[2]",
            "spark.driver.memory": "2g",
            # Starts faster, peaks lower. With one compiler 48 MB of code are the limit: most of it was compiled anew.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.codegen.wholeStage": "false",  # rows are few: compiling each plan costs more than running it
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            **of_store,
        }
    )
