"""How often the server must hear from us, and how long we wait to hear from it.

A walsender ends a connection from which it has heard nothing for `wal_sender_timeout`; we report three times as often,
because a report may be late or wait in a buffer. In turn a connection on which the server is silent for as long,
although it was asked to answer, is given up: a network that passes nothing does not say so.

Authority: postgresql.org/docs/current/runtime-config-replication.html, wal_sender_timeout, wal_receiver_timeout
"""

from dataclasses import dataclass
from typing import cast

import psycopg

from auditlake.postgres.connection import Row, fetch_one

_TIMEOUT = "select setting::int from pg_catalog.pg_settings where name = 'wal_sender_timeout'"
_LONGEST_STATUS_S = 5.0
# wal_receiver_timeout's own default, where the server has none for its side.
_DEAF_S = 60.0
_SLOT_FREE_S = 30.0
_MARGIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Report every `status_s`; give up after `deaf_s` of silence; a dead reader's slot is free in `slot_free_s`."""

    status_s: float
    deaf_s: float
    slot_free_s: float


def pace_of(timeout_s: float) -> Pace:
    """Derive the pace from `wal_sender_timeout`, in seconds; 0 is none."""
    if timeout_s <= 0:
        return Pace(_LONGEST_STATUS_S, _DEAF_S, _SLOT_FREE_S)
    return Pace(min(_LONGEST_STATUS_S, timeout_s / 3), timeout_s, max(_SLOT_FREE_S, timeout_s + _MARGIN_S))


def read_pace(conn: psycopg.Connection[Row]) -> Pace:
    """Ask the server for its `wal_sender_timeout`, as it holds for this role, and derive the pace."""
    return pace_of(cast("int", fetch_one(conn, _TIMEOUT)[0]) / 1000)
