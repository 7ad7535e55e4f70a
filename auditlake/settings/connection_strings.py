"""Connection strings of libpq, as URIs or in keyword form: what is wrong with one, and its form for messages.

A message never quotes a string that cannot be used, as libpq's own do: it may have a password. libpq takes what follows
an `@` or a `/` in a password that is not percent-encoded for the host, the port or the database, which every message
about a connection names; and a URI as the database of a keyword form for its name.

Authority: postgresql.org/docs/current/libpq-connect.html, "Connection Strings"; fe-connect.c,
conninfo_uri_parse_options
"""

import re
from typing import Any

URI_SCHEMES = ("postgresql://", "postgres://")
_SECRETS = ("password", "sslpassword", "oauth_client_secret")
_CREDENTIALS = re.compile(r"[^@/]*@")


def problem_of(text: str) -> str | None:
    """Return what is wrong with a connection string, in words that follow its name; None if it can be used."""
    parts = _parsed(text)
    if parts is None:
        return "is neither a libpq URI (postgresql://…) nor a conninfo (host=… dbname=…)"
    if str(parts.get("dbname", "")).startswith(URI_SCHEMES):
        return "has a URI as its dbname, need the URI alone"
    if text.startswith(URI_SCHEMES) and _has_stray_at(text):
        return "has an @ in its host, port or database: in user, password and database, write @ as %40, and / as %2F"
    return None


def redacted(text: str) -> str:
    """Format a connection string for messages: in libpq's keyword form, without passwords."""
    from psycopg.conninfo import make_conninfo  # noqa: PLC0415 - as in `_parsed`

    if problem_of(text) is not None:
        return "(unreadable connection string)"
    return make_conninfo("", **{key: value for key, value in (_parsed(text) or {}).items() if key not in _SECRETS})


def _parsed(text: str) -> dict[str, Any] | None:
    import psycopg  # noqa: PLC0415 - a fifth of a command's start-up time, and many commands need no source
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - the same

    try:
        return conninfo_to_dict(text)
    except (psycopg.Error, UnicodeEncodeError):
        return None


def _has_stray_at(uri: str) -> bool:
    """Return whether a URI has an @ between its credentials and its parameters."""
    rest = uri.partition("://")[2]
    credentials = _CREDENTIALS.match(rest)
    return "@" in rest[credentials.end() if credentials else 0 :].partition("?")[0]
