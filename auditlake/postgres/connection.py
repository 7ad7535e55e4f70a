"""Connections to the source, with the settings that decide how PostgreSQL spells a value pinned.

A value must read the same from the snapshot and from the stream, whatever `ALTER ROLE … SET` or `ALTER DATABASE …
SET` say; so every connection carries `PINNED` in its startup packet, which outranks both. Time-outs that could end an
idle holder are off. TCP notices within about a minute that the other end is gone; of several hosts the primary is
taken. A failed connection becomes `SourceUnreachable`, retryable unless PostgreSQL itself said no. libpq's messages
name host, user and database, never the password.

Authority: postgresql.org/docs/current/config-setting.html; libpq-connect.html, "options"
"""

import math
import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq.abc import PGconn

from auditlake.errors import AuditlakeError, ConfigError, SourceUnreachable

PINNED = {
    "datestyle": "ISO,YMD",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "lc_monetary": "C",
    # regclass and its kin print a schema only where the search path does not find them.
    "search_path": "pg_catalog",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
    # A policy that would hide rows from the snapshot is then an error; the stream knows no policies.
    "row_security": "off",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    # The server, too, notices within a minute that we are gone with our machine; else it kept our locks for hours.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
# Unknown before 17, where naming it in the startup packet would end the connection.
_TRANSACTION_TIMEOUT_SINCE = 170000

# libpq keeps no SQLSTATE of a connection that failed, so its text must do; the text of an answer need not.
_REFUSED = (
    "password authentication failed",
    "no password supplied",
    "authentication failed",
    "does not exist",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "permission denied",
    "must be superuser or replication role",
    "invalid connection option",
    "certificate",
)
# Refused: authorisation (28), catalog name (3D), privilege and undefined objects (42). Passing: broken connections
# (08), resources and too many connections (53), shutdown, crash, recovery (57P), the system's own errors (58).
_FINAL_STATES = ("28", "3D", "42")
_PASSING_STATES = ("08", "53", "57P", "58")

_LONGEST_SELECT_S = 3600.0

Row: TypeAlias = tuple[object, ...]


def pinned_conninfo(source: str, settings: Mapping[str, str] | None = None, **overrides: str) -> str:
    """Return `source` with the pinned settings, UTF-8 and our application name added.

    `settings` are more of the server's, `overrides` libpq's.

    Raises ConfigError where `source` is not a conninfo or a libpq URI.
    """
    try:
        given = conninfo_to_dict(source)
    except psycopg.ProgrammingError:
        # The parser's message quotes the text it could not read, which may hold a password.
        raise ConfigError(
            "the setting source is not a libpq URI or conninfo",
            "Write it as postgresql://user@host:5432/database, or host=… dbname=….",
        ) from None
    options = " ".join(f"-c {name}={value}" for name, value in {**PINNED, **(settings or {})}.items())
    merged = {
        "application_name": "auditlake",
        "connect_timeout": "10",
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        "tcp_user_timeout": "60000",
        **({"target_session_attrs": "primary"} if "," in f"{given.get('host')}{given.get('hostaddr')}" else {}),
        **given,
        "client_encoding": "UTF8",
        "options": f"{given.get('options', '')} {options}".strip(),
        **overrides,
    }
    return make_conninfo(**{name: str(value) for name, value in merged.items()})


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn a lost or refused connection into SourceUnreachable; every other error passes unchanged."""
    try:
        yield
    except psycopg.OperationalError as exc:
        # Without a SQLSTATE libpq itself failed.
        if exc.sqlstate is not None and not exc.sqlstate.startswith(_PASSING_STATES):
            raise
        raise unreachable(str(exc), exc.sqlstate) from exc


def unreachable(message: str, sqlstate: str | None = None) -> SourceUnreachable:
    """Say why there is no connection, and whether trying again can help; only an answer has a `sqlstate`."""
    line = " ".join(message.split()).split("All failures were: ")[-1]  # psycopg says the last one twice
    if sqlstate.startswith(_FINAL_STATES) if sqlstate else any(word in line for word in _REFUSED):
        return SourceUnreachable(
            f"the source refuses the connection: {line}",
            "Correct user, password, database or pg_hba.conf; passwords are best kept in ~/.pgpass.",
        )
    return SourceUnreachable(
        f"the source cannot be reached: {line}",
        "See that PostgreSQL runs and that host and port in the setting source are right.",
        retryable=True,
    )


@contextmanager
def hung_up_after(fileno: int, timeout_s: float) -> Iterator[None]:
    """Shut a connection down where the block takes longer: libpq alone would wait for a silent server for ever.

    Raises SourceUnreachable, to be tried again, instead of what the block then fails with.
    """
    fired = threading.Event()
    timer = threading.Timer(timeout_s, _hang_up, (fileno, fired))
    timer.daemon = True
    timer.start()
    try:
        yield
    except (psycopg.Error, AuditlakeError) as exc:
        if not fired.is_set():
            raise
        raise unreachable(f"no answer for {timeout_s:g} s") from exc
    finally:
        timer.cancel()


def _hang_up(fileno: int, fired: threading.Event) -> None:
    fired.set()
    with suppress(OSError), socket.socket(fileno=os.dup(fileno)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def connect(source: str) -> psycopg.Connection[Row]:
    """Open an ordinary connection in autocommit mode.

    Raises SourceUnreachable.
    """
    with translated_errors():
        conn = psycopg.connect(pinned_conninfo(source), autocommit=True)
        for name, value in unlimited(conn.info.server_version).items():
            conn.execute(f"set {name} = {value}".encode())
        return conn


def unlimited(server_version: int) -> dict[str, str]:
    """Give the settings that only newer servers know, and that a role or a database may have set to end us."""
    return {"transaction_timeout": "0"} if server_version >= _TRANSACTION_TIMEOUT_SINCE else {}


def connect_replication(source: str) -> PGconn:
    """Open a connection that speaks the replication protocol for one database.

    Raises SourceUnreachable.
    """
    messages = []
    for parts in one_host_each(conninfo_to_dict(pinned_conninfo(source, replication="database"))):
        pgconn = pq.PGconn.connect_start(make_conninfo("", **parts).encode())
        timeout_s = float(parts["connect_timeout"])
        if not _finish_connecting(pgconn, timeout_s if timeout_s > 0 else math.inf):
            messages.append("timeout expired")
        elif pgconn.status == pq.ConnStatus.OK:
            for name, value in unlimited(pgconn.server_version).items():
                pgconn.exec_(f"set {name} = {value}".encode())
            return pgconn
        else:
            messages.append(pgconn.get_error_message())
        pgconn.finish()
    raise unreachable("; ".join(messages))


def one_host_each(parts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a connection string at its hosts, so that each has its time; libpq waits for all of them as one."""
    lists = {name: str(parts[name]).split(",") for name in ("host", "hostaddr", "port") if parts.get(name)}
    for at in range(max((len(values) for values in lists.values()), default=1)):
        yield {**parts, **{name: values[at % len(values)] for name, values in lists.items()}}


def _finish_connecting(pgconn: PGconn, timeout_s: float) -> bool:
    """Wait until the connection stands or has failed; False where that takes too long.

    libpq's blocking connect would keep every other thread of this process from running.
    """
    deadline = time.monotonic() + timeout_s
    waits_for = pq.PollingStatus.WRITING
    while pgconn.status != pq.ConnStatus.BAD and waits_for in {pq.PollingStatus.READING, pq.PollingStatus.WRITING}:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return False
        watched = [pgconn.socket]
        reading = waits_for == pq.PollingStatus.READING
        select.select(watched if reading else [], [] if reading else watched, [], min(left_s, _LONGEST_SELECT_S))
        waits_for = pq.PollingStatus(pgconn.connect_poll())
    return True


def fetch(conn: psycopg.Connection[Row], query: LiteralString, *args: object) -> list[Row]:
    """Run one query and return its rows."""
    with translated_errors():
        return conn.execute(query, args or None).fetchall()


def fetch_one(conn: psycopg.Connection[Row], query: LiteralString, *args: object) -> Row:
    """Run one query that always gives a row, and return it."""
    return fetch(conn, query, *args)[0]
