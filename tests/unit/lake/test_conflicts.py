"""Every way in which Delta refuses a commit is known: what is not caught ends the process that should try again."""

from delta.exceptions import DeltaConcurrentModificationException, captured
from pyspark.errors import PySparkException

from auditlake.lake.conflicts import COMMIT_CONFLICTS


def test_every_refused_commit_is_known() -> None:
    """What Spark raises for a conflict is caught, and nothing else that this module raises is missing."""
    raised = [
        each
        for each in vars(captured).values()
        if isinstance(each, type) and issubclass(each, PySparkException) and each.__module__ == captured.__name__
    ]
    assert len(raised) == len(COMMIT_CONFLICTS)
    assert all(issubclass(each, COMMIT_CONFLICTS) for each in raised)
    assert DeltaConcurrentModificationException in COMMIT_CONFLICTS
