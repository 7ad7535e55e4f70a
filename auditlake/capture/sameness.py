"""The source against the lake: whether the server that answers is the one whose history this is. Reads only.

System identifier and database never change. The timeline does, when a standby is promoted: the new primary goes on
from the fork, the last point that it had of the old timeline. The lake may follow it if nothing in the lake lies beyond
the fork, because up to there both timelines are the same log. What lies beyond it happened on the old primary alone.
"""

from dataclasses import dataclass

import psycopg

from auditlake.errors import SourceUnreachable, WrongSource
from auditlake.lake.manifest import Manifest
from auditlake.lsn import Lsn
from auditlake.postgres.connection import Row, connect_replication
from auditlake.postgres.server import identify
from auditlake.postgres.timeline import read_fork

_NEW_LAKE = "Bootstrap a new lake with a new slot; this one can still be asked."


@dataclass(frozen=True, slots=True)
class Fork:
    """Where the source's `timeline` left the recorded one: what ends at or before `lsn` is common to both."""

    timeline: int
    recorded: int
    lsn: Lsn

    def see_behind(self, held_to: Lsn) -> None:
        """See that a lake that holds transactions up to `held_to` holds none that the new timeline lacks.

        Raises WrongSource, with the bounds of what only the old timeline had.
        """
        if held_to > self.lsn:
            raise WrongSource(
                f"the source was promoted from timeline {self.recorded} to {self.timeline} at {self.lsn}, and this lake"
                f" holds transactions of timeline {self.recorded} from {self.lsn} to {held_to} that it lacks",
                _NEW_LAKE + " With synchronized_standby_slots (17) a standby always has what auditlake has.",
            )


def current_manifest(conn: psycopg.Connection[Row], slot: str, publication: str) -> Manifest:
    """What lake.json would say of the server behind `conn`."""
    server = identify(conn)
    return Manifest(server.system_identifier, server.timeline, server.database, slot, publication)


def see_primary(conn: psycopg.Connection[Row]) -> None:
    """See that the server takes writes: a standby may become the primary at any moment.

    Raises SourceUnreachable, to be tried again.
    """
    if identify(conn).in_recovery:
        raise SourceUnreachable(
            "the source is a standby in recovery, need the primary",
            "Point source at the primary; with several hosts add target_session_attrs=primary.",
            retryable=True,
        )


def see_timeline(conninfo: str, recorded: Manifest, found: Manifest) -> Fork | None:
    """Compare with what the lake records; None on the recorded timeline, else where a later one left it.

    Raises WrongSource where the two are not of one history.
    """
    recorded.check_same(found)
    if found.timeline == recorded.timeline:
        return None
    if found.timeline < recorded.timeline:
        raise WrongSource(
            f"this lake follows timeline {recorded.timeline}, the source is on {found.timeline}: an old primary",
            "Point source at the server that was promoted.",
        )
    replication = connect_replication(conninfo)
    try:
        lsn = read_fork(replication, found.timeline, recorded.timeline)
    finally:
        replication.finish()
    if lsn is None:
        raise WrongSource(
            f"the source is on timeline {found.timeline}, which never was on {recorded.timeline}, that of this lake",
            _NEW_LAKE,
        )
    return Fork(found.timeline, recorded.timeline, lsn)
