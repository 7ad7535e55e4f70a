"""Why a replication stream ended: it broke, and is worth starting again, or nobody can read past what it met.

Authority: postgresql.org/docs/current/errcodes-appendix.html
"""

from auditlake.errors import AuditlakeError, WrongSource
from auditlake.postgres.connection import unreachable

UNDECODABLE = ("42704", "55000")
"""undefined_object: its publication is gone; object_not_in_prerequisite_state: the slot was invalidated."""
ENDED = "the server ended the replication stream"


def failed(message: str, sqlstate: str | None) -> AuditlakeError:
    """Tell a stream that broke from one that can go no further, whoever reads it."""
    if sqlstate not in UNDECODABLE:
        return unreachable(message, sqlstate)
    return WrongSource(f"the slot can be read no further: {' '.join(message.split())}", "Bootstrap a new lake.")
