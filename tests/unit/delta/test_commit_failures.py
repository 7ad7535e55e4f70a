"""Conflicts: the tuple to catch has all of Delta's exceptions and ours; a missing one would end the process."""

from delta.exceptions import DeltaConcurrentModificationException, captured
from pyspark.errors import PySparkException

from auditlake.delta.commit_failures import COMMIT_CONFLICTS, Overtaken


def test_every_conflict_of_delta_is_caught() -> None:
    """The tuple has every exception class that Delta's Python module defines for Spark."""
    raised = [
        cls
        for cls in vars(captured).values()
        if isinstance(cls, type) and issubclass(cls, PySparkException) and cls.__module__ == captured.__name__
    ]
    assert len(raised) == len(set(COMMIT_CONFLICTS) - {Overtaken})
    assert all(issubclass(cls, COMMIT_CONFLICTS) for cls in raised)
    assert DeltaConcurrentModificationException in COMMIT_CONFLICTS
