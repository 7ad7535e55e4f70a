"""Connections to the source, with the settings pinned that determine the text form of a value.

1. A value must have the same text in the snapshot and in the stream, regardless of `ALTER ROLE … SET` and `ALTER
   DATABASE … SET`. So every connection has `PINNED` in its startup packet, which overrides both. A session without
   these settings is refused: some poolers drop them.
2. Timeouts that could end an idle snapshot session are off. TCP keepalives detect a lost peer within about a minute.
3. Of several hosts the primary is taken.
4. A failed connection raises `SourceUnreachable`: what was wrong, whether another attempt can help, and what to change
   (`unreachable`). libpq's messages name host, user and database, never the password.
5. A connection for a lake has that lake's `lsn_offset` (`lake.manifest`). Everything in this package that reads an LSN
   from a server adds the offset of the connection, and subtracts it from an LSN that it sends.

An error of an established connection is classified by its SQLSTATE. libpq keeps no SQLSTATE of a connection attempt, so
its text decides. libpq's own messages are always English here: psycopg's wheels are built without translations. The
server's may be translated, except for the names of settings. libpq writes two spaces after the severity of a server's
error and nowhere else, which tells both apart in every language. A refusal whose text is unknown ends a run that was
never connected; a run that was connected before tries again, because the server may only be overloaded.

Authority: postgresql.org/docs/current/config-setting.html; libpq-connect.html, "options"; errcodes-appendix.html;
libpq-status.html, PQerrorMessage
"""

import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, LiteralString, TypeAlias, cast

import psycopg
from psycopg import pq
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from auditlake.errors import AuditlakeError, ConfigError, SourceAway, SourceRefuses, SourceUnreachable, SourceUnready
from auditlake.lsn import Lsn
from auditlake.settings.connection_strings import problem_of

_REFUSED = (
    "password authentication failed",
    "no password supplied",
    "authentication failed",
    "authentication method requirement",
    "does not exist",
    "no pg_hba.conf entry",
    "is not permitted to log in",
    "permission denied",
    "must be superuser or replication role",
    "invalid connection option",
)
# Passing although the server answered: resources, start, shutdown, recovery.
_PASSING = ("too many", "remaining connection slots", "the database system is")
# libpq's own words; "SSL error: unexpected eof" and "SSL SYSCALL error" are lost connections.
_TLS = re.compile(
    "certificate|server does not support SSL|SSL error: (?!unexpected eof)|private key"
    "|^(?!.*SSL encryption).*no encryption"
)
# libpq's and psycopg's own words for a value in the source.
_PARAMETER = re.compile(
    r'invalid (\w+ value|port number|"\w+" value): |invalid integer value "|invalid SSL protocol version range'
    r'|require_auth method "|weak sslmode "|could not match \d+ (host names|port numbers)'
    r'|definition of service ".*" not found|bad value for connect_timeout'
)
_CHANNEL_BINDING = "channel binding"
_CONNECTING = "connection to server "
_ANSWERED = re.compile(r"failed: \w+:  ")
# Refused: authorisation (28), catalog name (3D), privilege and undefined objects (42). Passing: broken connections
# (08), resources and too many connections (53), shutdown, crash, recovery (57P), the system's own errors (58).
FINAL_STATES = ("28", "3D", "42")
PASSING_STATES = ("08", "53", "57P", "58")
# Of a name that a trigger of ours uses, but of another kind.
_IN_THE_WAY = (
    psycopg.errors.DuplicateObject,
    psycopg.errors.InvalidFunctionDefinition,
    psycopg.errors.DependentObjectsStillExist,
    psycopg.errors.WrongObjectType,
)

DIRECT = (
    "A connection pooler cannot pass on what auditlake needs (options, replication=database): let the setting source"
    " name PostgreSQL itself, not the pooler."
)
PINNED = {
    "datestyle": "ISO,YMD",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",
    "lc_monetary": "C",
    # The owner of a database can make it another one that ours is a member of, and that may not replicate.
    "role": "none",
    # regclass and similar types print a schema only if the search path does not contain it.
    "search_path": "pg_catalog",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
    # A policy that would hide rows from the snapshot is then an error; the stream ignores policies.
    "row_security": "off",
    # A role that may only read by default still creates the publication and the triggers that its user asks for.
    "default_transaction_read_only": "off",
    # Errors of the server are ours to report, and its other messages may quote statements.
    "exit_on_error": "off",
    "client_min_messages": "warning",
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "idle_session_timeout": "0",
    # So the server too detects within a minute that our machine is gone, and does not hold our locks for hours.
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
_NOT_COMPARED = ("tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count")
_ATTEMPTS = 5
# Older servers refuse a connection with this setting in the startup packet.
_TRANSACTION_TIMEOUT_SINCE = 170000

_COMPARED = {name: value for name, value in PINNED.items() if name not in _NOT_COMPARED}
_SHOW_PINNED = ("select " + ", ".join(f"pg_catalog.current_setting('{name}')" for name in _COMPARED)).encode()

# The server has ended the session; only a setting that a role or a database has can be so short.
_TIMED_OUT = (psycopg.errors.TransactionTimeout, psycopg.errors.IdleInTransactionSessionTimeout)

_SESSION: LiteralString = "select pid::text, backend_start::text from pg_catalog.pg_stat_activity where pid ="

Row: TypeAlias = tuple[object, ...]
_TEXTS = ("text", "varchar", "bpchar", "name", 0)  # 0: types without a loader
_PER_SESSION = ("options", "application_name", "client_encoding", "replication", "passfile")


class NotGranted(SourceUnready):
    """The role lacks a privilege for a query: on a function that PUBLIC may execute by default, or on a table."""


def unreachable(message: str, sqlstate: str | None = None) -> SourceUnreachable:
    """Return why there is no connection, and whether trying again can help; only an answer has a `sqlstate`."""
    line = " ".join(message.split()).split("All failures were: ")[-1]  # psycopg repeats the last one
    if sqlstate is None and (found := _configured_wrongly(line)):
        return SourceUnreachable(f"the source refuses the connection: {line}", found)
    if "max_wal_senders" in line:
        return SourceRefuses(
            f"the source has no free WAL sender: {line}",
            "Raise max_wal_senders and restart PostgreSQL, or stop a standby or subscription that is not needed.",
        )
    if "max_locks_per_transaction" in line:
        return SourceRefuses(
            f"the source has no room for so many locks: {line}",
            "Raise max_locks_per_transaction and restart PostgreSQL, or leave tables out with the setting tables.",
        )
    if sqlstate.startswith(FINAL_STATES) if sqlstate else any(word in line for word in _REFUSED):
        return SourceUnreachable(f"the source refuses the connection: {line}", _LOGIN)
    if sqlstate is None and _ANSWERED.search(message) and not any(word in line for word in _PASSING):
        return SourceRefuses(f"the source refuses the connection: {line}", _LOGIN)
    return SourceAway(
        f"the source cannot be reached: {line}",
        "Check that PostgreSQL runs and that host and port in the setting source are right.",
    )


_LOGIN = "Correct user, password, database or pg_hba.conf; passwords are best kept in ~/.pgpass."


def _configured_wrongly(line: str) -> str | None:
    """Return what to change about how we connect, if that is what a connection attempt failed for."""
    if "unsupported startup parameter" in line:
        return DIRECT
    if _PARAMETER.search(line):
        return "Correct this part of the setting source."
    if _CONNECTING not in line:
        return None
    if _CHANNEL_BINDING in line:
        return (
            "channel_binding=require works only over TLS with SCRAM: set sslmode to require or verify-full and let"
            " pg_hba.conf use hostssl with scram-sha-256, or leave channel_binding out of the setting source."
        )
    if _TLS.search(line) and "authentication failed" not in line:
        return (
            "Check sslmode, sslrootcert (the certificate of the authority that signed the server's) and the host name"
            " in the setting source, which verify-full compares with the server's certificate; a client certificate"
            " needs sslcert and sslkey."
        )
    return None


def pinned_conninfo(source: str, settings: Mapping[str, str] | None = None, **overrides: str) -> str:
    """Return `source` with the pinned settings, UTF-8 and our application name added.

    `settings` are additional server settings, `overrides` libpq parameters.

    Raises ConfigError if `source` is not a conninfo or a libpq URI.
    """
    if (problem := problem_of(source)) is not None:
        raise ConfigError(
            f"the setting source {problem}", "Write it as postgresql://user@host:5432/database, or host=… dbname=…."
        )
    given = conninfo_to_dict(source)
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


def for_other_machines(source: str, conn: "psycopg.Connection[Row]") -> str:
    """Return `source` with what libpq took from this machine's environment and files: parameters and the password.

    `conn` is a connection made with it. Workers of a cluster have neither PGPASSWORD nor ~/.pgpass.
    """
    found = {name: text for name, text in conn.info.get_parameters().items() if name not in _PER_SESSION}
    given = conninfo_to_dict(source)
    secret = {"password": conn.info.password} if conn.info.password else {}
    return make_conninfo(**{name: str(value) for name, value in {**found, **given, **secret}.items()})


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn a lost or refused connection into SourceUnreachable; every other error passes unchanged."""
    try:
        yield
    except _TIMED_OUT as exc:
        raise unreachable(str(exc)) from exc
    except psycopg.OperationalError as exc:
        # Without a SQLSTATE libpq itself failed.
        if exc.sqlstate is not None and not exc.sqlstate.startswith(PASSING_STATES):
            raise
        raise unreachable(str(exc), exc.sqlstate) from exc


@contextmanager
def refused_by_functions() -> Iterator[None]:
    """Turn an error that a function of the database raises, an event trigger's say, into SourceUnready."""
    try:
        yield
    except psycopg.errors.RaiseException as exc:
        raise SourceUnready(
            f"a function of the database refuses a statement of auditlake: {exc.diag.message_primary}",
            "If it belongs to an event trigger, disable that meanwhile.",
        ) from exc


@contextmanager
def replacing_ours(what: str) -> Iterator[None]:
    """Turn the error that something of another kind has one of our names into SourceUnready; it is not ours to drop."""
    try:
        yield
    except _IN_THE_WAY as exc:
        raise SourceUnready(
            f"an object in schema auditlake is in the way of {what}: {exc.diag.message_primary}",
            "Drop it, or the schema if nothing of yours is in it, then run the same command again.",
        ) from exc


@contextmanager
def hung_up_after(fileno: int, timeout_s: float) -> Iterator[None]:
    """Shut the connection down if the block takes longer, because libpq waits for ever; raises SourceAway then."""
    fired = threading.Event()
    timer = threading.Timer(timeout_s, _hang_up, (fileno, fired))
    timer.daemon = True
    timer.start()
    try:
        yield
    except (psycopg.Error, AuditlakeError) as exc:
        if not fired.is_set():
            raise
        raise _silent(timeout_s) from exc
    finally:
        timer.cancel()


def _silent(timeout_s: float) -> SourceUnreachable:
    return unreachable(f"no answer for {timeout_s:g} s")


def _hang_up(fileno: int, fired: threading.Event) -> None:
    fired.set()
    with suppress(OSError), socket.socket(fileno=os.dup(fileno)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


class _AnyText(Loader):
    """Loader for text, with escapes for bytes that are not UTF-8.

    Names of roles, databases and prepared transactions are shared by databases of all encodings, and sent as they are.
    """

    def load(self, data: Buffer) -> str:
        return str(data, "utf-8", "backslashreplace")


class SourceConnection(psycopg.Connection[Row]):
    """A connection to a source, whose LSNs are shifted by `lsn_offset` in the lake.

    A statement to which the server does not answer within `silence_s` ends the connection. Every statement on a
    connection that is lost raises SourceUnreachable.
    """

    lsn_offset = 0
    silence_s: float | None = None

    def cursor(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as psycopg's own, which is overloaded
        with translated_errors():
            return super().cursor(*arguments, **options)

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - whatever psycopg waits for
        with translated_errors():
            if self.silence_s is None:
                return super().wait(gen, *arguments, **options)
            try:
                return super().wait(gen, *arguments, **{"timeout": self.silence_s, **options})
            except psycopg.errors._WaitTimeout as exc:  # noqa: SLF001 - psycopg has no public name for it
                self.pgconn.finish()  # an answer may still come
                raise _silent(self.silence_s) from exc


@contextmanager
def answering_within(conn: psycopg.Connection[Row], silence_s: float | None) -> Iterator[None]:
    """Require an answer to each statement of the block in this time, if it is limited; raises SourceAway."""
    watched = conn if isinstance(conn, SourceConnection) else None
    if watched is None:
        yield
        return
    before, watched.silence_s = watched.silence_s, silence_s
    try:
        yield
    finally:
        watched.silence_s = before


@contextmanager
def _opened(conninfo: str) -> Iterator[SourceConnection]:
    """Open a connection, and close it if the block fails; raises SourceUnreachable."""
    with translated_errors(), ExitStack() as opened:
        try:
            conn = opened.enter_context(closing(SourceConnection.connect(conninfo, autocommit=True)))
        except psycopg.ProgrammingError as exc:  # psycopg does not read a value
            raise unreachable(str(exc)) from exc
        for of_type in _TEXTS:
            conn.adapters.register_loader(of_type, _AnyText)
        yield conn
        opened.pop_all()


def connect(source: str, lsn_offset: int = 0) -> psycopg.Connection[Row]:
    """Open an ordinary connection in autocommit mode; `lsn_offset` is that of the lake with which LSNs are compared.

    Raises SourceUnreachable, SourceUnready if the session does not have the pinned settings.
    """
    with _opened(pinned_conninfo(source)) as conn:
        conn.lsn_offset = lsn_offset
        _require_pinned(conn)
        return conn


def lsn_offset(conn: psycopg.Connection[Row]) -> int:
    """Return the offset that turns an LSN of this server into one of the lake."""
    return conn.lsn_offset if isinstance(conn, SourceConnection) else 0


def lsn_in_lake(conn: psycopg.Connection[Row], lsn: int) -> Lsn:
    """Return the lake's LSN for one of this server."""
    return Lsn(lsn + lsn_offset(conn))


def lsn_at_source(conn: psycopg.Connection[Row], lsn: int) -> Lsn:
    """Return this server's LSN for one of the lake; those of an earlier source are before its log."""
    return Lsn(max(0, lsn - lsn_offset(conn)))


def _require_walsender(conn: SourceConnection) -> None:
    """Check that a connection speaks the replication protocol and has the pinned settings; raises SourceUnready."""
    try:
        conn.execute("IDENTIFY_SYSTEM")
    except psycopg.errors.SyntaxError:
        raise SourceUnready(
            "the connection does not speak the replication protocol: its setting was dropped", DIRECT
        ) from None
    _require_pinned(conn)


def _require_pinned(conn: SourceConnection) -> None:
    """Switch off the timeouts that startup could not, and check the pinned settings; raises SourceUnready."""
    for name, value in unlimited(conn.info.server_version).items():
        conn.execute(f"set {name} = {value}".encode())
    values = conn.execute(_SHOW_PINNED).fetchone() or ()
    for (name, wanted), value in zip(_COMPARED.items(), map(str, values), strict=True):
        if value.replace(" ", "") != wanted:
            raise SourceUnready(f"the session's setting {name} is {value!r}, need {wanted!r}", DIRECT)


def unlimited(server_version: int) -> dict[str, str]:
    """Return the timeouts to disable that only newer servers have; a role or a database may have set them."""
    return {"transaction_timeout": "0"} if server_version >= _TRANSACTION_TIMEOUT_SINCE else {}


def connect_replication(source: str) -> SourceConnection:
    """Open a replication connection for one database; raises as `connect`."""
    with _opened(pinned_conninfo(source, replication="database")) as conn:
        timeout_s = float(conn.info.get_parameters()["connect_timeout"])
        with answering_within(conn, timeout_s if timeout_s > 0 else None):
            _require_walsender(conn)
        return conn


def connect_replication_beside(conn: psycopg.Connection[Row], source: str) -> SourceConnection:
    """Open a replication connection to the server of `conn`.

    Of several hosts, or behind an address that moves, another server may answer: a former primary that runs again.

    Raises SourceAway if it does, and what `connect_replication` raises.
    """
    with ExitStack() as opened:
        beside = opened.enter_context(closing(connect_replication(source)))
        session = beside.execute(f"{_SESSION} pg_catalog.pg_backend_pid()").fetchall()
        if session != fetch(conn, f"{_SESSION} %s", beside.info.backend_pid):
            raise SourceAway(
                "two connections have reached different servers",
                "Stop the former primary, or name only the primary in the setting source.",
            )
        opened.pop_all()
        return beside


def identify_system(source: str) -> tuple[str, int]:
    """Return system identifier and timeline by IDENTIFY_SYSTEM; raises SourceUnreachable, SourceUnready."""
    with closing(connect_replication(source)) as conn:
        system, timeline, *_ = fetch_one(conn, "IDENTIFY_SYSTEM")
    return str(system), cast("int", timeline)


def fetch(conn: psycopg.Connection[Row], query: LiteralString, *args: object) -> list[Row]:
    """Run one query and return its rows; again if a relation was dropped while it ran.

    A function that opens a relation of the catalog's snapshot fails with an internal error if that does not exist any
    more. A transaction cannot go on after that.

    Raises NotGranted, SourceUnreachable.
    """
    with translated_errors():
        for left in reversed(range(_ATTEMPTS)):
            try:
                return conn.execute(query, args or None).fetchall()
            except psycopg.errors.InsufficientPrivilege as exc:
                raise NotGranted(
                    f"role {conn.info.user}: {exc.diag.message_primary}",
                    "auditlake check --print-grants, run as a superuser, prints the GRANT.",
                ) from exc
            except (psycopg.errors.CharacterNotInRepertoire, psycopg.errors.UntranslatableCharacter) as exc:
                raise SourceUnready(
                    f"the database has a name that is no text in UTF-8: {exc.diag.message_primary}",
                    "Rename it; if the database has the encoding SQL_ASCII, dump and restore it into one with a real"
                    " encoding.",
                ) from exc
            except psycopg.errors.InternalError_:
                if not left or conn.info.transaction_status != pq.TransactionStatus.IDLE:
                    raise
    raise AssertionError  # the last attempt returns or raises


def fetch_one(conn: psycopg.Connection[Row], query: LiteralString, *args: object) -> Row:
    """Run one query that always returns a row, and return that row."""
    return fetch(conn, query, *args)[0]
