"""Replication timeouts: interval of our status updates, and time to wait for the server.

A walsender terminates a connection without a status update for `wal_sender_timeout`. We send three times as many,
because one may be delayed or wait in a buffer. In turn we close a connection on which the server is silent for the same
time although a reply was requested: a network that drops all packets reports no error.

Authority: postgresql.org/docs/current/runtime-config-replication.html, wal_sender_timeout, wal_receiver_timeout
"""

from dataclasses import dataclass
from typing import cast

import psycopg

from auditlake.source.connection import Row, fetch_one

_TIMEOUT = "select setting::int from pg_catalog.pg_settings where name = 'wal_sender_timeout'"
_LONGEST_STATUS_S = 5.0
# The default of wal_receiver_timeout, for a server whose wal_sender_timeout is off.
_SILENCE_S = 60.0
_SLOT_FREE_S = 30.0
_MARGIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Status interval, silence after which we give up, and time in which a dead reader's slot becomes free."""

    status_s: float
    silence_s: float
    slot_free_s: float


def timeouts_of(timeout_s: float) -> Timeouts:
    """Derive the timeouts from `wal_sender_timeout` in seconds; 0 disables it."""
    if timeout_s <= 0:
        return Timeouts(_LONGEST_STATUS_S, _SILENCE_S, _SLOT_FREE_S)
    return Timeouts(min(_LONGEST_STATUS_S, timeout_s / 3), timeout_s, max(_SLOT_FREE_S, timeout_s + _MARGIN_S))


def read_timeouts(conn: psycopg.Connection[Row]) -> Timeouts:
    """Read the server's `wal_sender_timeout`, as set for this role, and derive the timeouts."""
    return timeouts_of(cast("int", fetch_one(conn, _TIMEOUT)[0]) / 1000)
