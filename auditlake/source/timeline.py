"""Timelines: the LSN at which a promoted server's timeline forked from an earlier one.

A promotion starts a new timeline at the last record that the standby had. Changes of the old timeline up to that point
are also the new one's past; later ones never happened there.

Authority: postgresql.org/docs/current/continuous-archiving.html, "Timelines"; protocol-replication.html,
TIMELINE_HISTORY
"""

from psycopg import pq
from psycopg.pq.abc import PGconn

from auditlake.errors import InvariantBroken
from auditlake.lsn import Lsn
from auditlake.source.refusals import unreachable

_FIELDS = 2


def read_fork(replication: PGconn, timeline: int, recorded: int) -> Lsn | None:
    """Read the LSN at which the history of `timeline` left `recorded`, None if `recorded` is not in that history.

    Raises SourceUnreachable if the server does not return the timeline's history.
    """
    result = replication.exec_(f"TIMELINE_HISTORY {timeline:d}".encode())
    if result.status != pq.ExecStatus.TUPLES_OK:
        raise unreachable(replication.get_error_message())
    return find_fork((result.get_value(0, 1) or b"").decode(), recorded)


def find_fork(history: str, recorded: int) -> Lsn | None:
    """Return the switch point of timeline `recorded` in the text of a timeline history file."""
    for line in history.splitlines():
        fields = line.split("#", 1)[0].split(maxsplit=_FIELDS)
        if not fields:
            continue
        if len(fields) < _FIELDS or not fields[0].isdigit():
            raise InvariantBroken(f"cannot parse a line of the timeline history: {line[:100]!r}")
        if int(fields[0]) == recorded:
            return Lsn.parse(fields[1])
    return None
