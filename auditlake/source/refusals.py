"""Failed connections: what was wrong, whether another attempt can help, and what to change.

An error of an established connection is classified by its SQLSTATE. libpq keeps no SQLSTATE of a connection attempt, so
its text decides. libpq's own messages are always English here: psycopg's wheels are built without translations. The
server's may be translated, except for the names of settings. libpq writes two spaces after the severity of a server's
error and nowhere else, which tells both apart in every language.

A refusal whose text is unknown ends a run that was never connected; a run that was connected before tries again,
because the server may only be overloaded.

Authority: postgresql.org/docs/current/errcodes-appendix.html; libpq-status.html, PQerrorMessage
"""

import re

from auditlake.errors import SourceUnreachable

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
_PARAMETER = re.compile(r"invalid (\w+ value|port number): ")
_CHANNEL_BINDING = "channel binding"
_CONNECTING = "connection to server "
_ANSWERED = re.compile(r"failed: \w+:  ")
# Refused: authorisation (28), catalog name (3D), privilege and undefined objects (42). Passing: broken connections
# (08), resources and too many connections (53), shutdown, crash, recovery (57P), the system's own errors (58).
_FINAL_STATES = ("28", "3D", "42")
PASSING_STATES = ("08", "53", "57P", "58")

DIRECT = (
    "A connection pooler cannot pass on what auditlake needs (options, replication=database): let the setting source"
    " name PostgreSQL itself, not the pooler."
)


def unreachable(message: str, sqlstate: str | None = None) -> SourceUnreachable:
    """Return why there is no connection, and whether trying again can help; only an answer has a `sqlstate`."""
    line = " ".join(message.split()).split("All failures were: ")[-1]  # psycopg repeats the last one
    if sqlstate is None and (found := _configured_wrongly(line)):
        return SourceUnreachable(f"the source refuses the connection: {line}", found)
    if "max_wal_senders" in line:
        return SourceUnreachable(
            f"the source has no free WAL sender: {line}",
            "Raise max_wal_senders and restart PostgreSQL, or stop a standby or subscription that is not needed.",
            retryable=True,
            after_success=True,
        )
    if sqlstate.startswith(_FINAL_STATES) if sqlstate else any(word in line for word in _REFUSED):
        return SourceUnreachable(f"the source refuses the connection: {line}", _LOGIN)
    if sqlstate is None and _ANSWERED.search(message) and not any(word in line for word in _PASSING):
        return SourceUnreachable(
            f"the source refuses the connection: {line}", _LOGIN, retryable=True, after_success=True
        )
    return SourceUnreachable(
        f"the source cannot be reached: {line}",
        "Check that PostgreSQL runs and that host and port in the setting source are right.",
        retryable=True,
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
