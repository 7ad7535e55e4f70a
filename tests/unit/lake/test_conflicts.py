"""Every way in which Delta refuses a commit is known, as is ours: what is not caught ends who should try again."""

from delta.exceptions import DeltaConcurrentModificationException, captured
from pyspark.errors import PySparkException

from auditlake.lake.conflicts import COMMIT_CONFLICTS, Overtaken


def test_every_refused_commit_is_known() -> None:
    """What Spark raises for a conflict is caught, and nothing else that this module raises is missing."""
    raised = [
        each
        for each in vars(captured).values()
        if isinstance(each, type) and issubclass(each, PySparkException) and each.__module__ == captured.__name__
    ]
    assert len(raised) == len(set(COMMIT_CONFLICTS) - {Overtaken})
    assert all(issubclass(each, COMMIT_CONFLICTS) for each in raised)
    assert DeltaConcurrentModificationException in COMMIT_CONFLICTS
