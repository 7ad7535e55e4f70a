"""Conflicts: the tuple to catch has all of Delta's exceptions and ours; a missing one would end the process."""

import subprocess
import sys

from delta.exceptions import DeltaConcurrentModificationException, captured
from pyspark.errors import PySparkException

from auditlake.delta.commit_failures import Overtaken, commit_conflicts

_SESSIONS = """
import sys
from auditlake.delta.commit_failures import Overtaken, commit_conflicts
assert commit_conflicts() == (Overtaken,), commit_conflicts()
assert "pyspark" not in sys.modules
import auditlake.spark.session
assert len(commit_conflicts()) > 1
"""


def test_every_conflict_of_delta_is_caught() -> None:
    """The tuple has every exception class that Delta's Python module defines for Spark."""
    raised = [
        cls
        for cls in vars(captured).values()
        if isinstance(cls, type) and issubclass(cls, PySparkException) and cls.__module__ == captured.__name__
    ]
    conflicts = commit_conflicts()
    assert len(raised) == len(set(conflicts) - {Overtaken})
    assert all(issubclass(cls, conflicts) for cls in raised)
    assert DeltaConcurrentModificationException in conflicts


def test_conflicts_of_spark_are_caught_once_it_may_raise_them() -> None:
    """Without a session nothing imports Spark; the module of sessions registers Delta's exceptions."""
    subprocess.run([sys.executable, "-c", _SESSIONS], check=True)
