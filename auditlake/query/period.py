"""What a statement asks of one table: the state at a moment, or the versions of a stretch of time.

The forms and their meaning are SQL:2011's, "system-versioned tables":

    AS OF x               versions that hold at x
    FROM a TO b           versions that hold at some moment from a to b, b excluded
    BETWEEN a AND b       the same, b included
    CONTAINED IN (a, b)   versions that begin and end there; a and b included
    ALL                   every version
"""

from dataclasses import dataclass

from auditlake.query.when import When
from auditlake.relation import TableName


@dataclass(frozen=True, slots=True)
class AsOf:
    """The state at `when`, in the source's own columns."""

    when: When


@dataclass(frozen=True, slots=True)
class FromTo:
    """Versions that hold somewhere in [start, end)."""

    start: When
    end: When


@dataclass(frozen=True, slots=True)
class Between:
    """Versions that hold somewhere in [start, end]."""

    start: When
    end: When


@dataclass(frozen=True, slots=True)
class ContainedIn:
    """Versions that begin and end in [start, end]."""

    start: When
    end: When


@dataclass(frozen=True, slots=True)
class AllTime:
    """Every version."""


Period = AsOf | FromTo | Between | ContainedIn | AllTime


@dataclass(frozen=True, slots=True)
class Reading:
    """One table as one statement wants to see it; no period means the statement's own moment."""

    table: TableName
    period: Period | None
