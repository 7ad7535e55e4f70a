"""Whatever fails in a fold that was ended says nothing about the changes."""

import threading
from unittest.mock import Mock

import pytest

from auditlake.apply.errors import CannotFold
from auditlake.apply.stopping import StoppableFolds
from auditlake.cancellation import Cancelled


def test_a_failure_counts_unless_the_fold_was_ended() -> None:
    """Cancelled tasks may fail as those with a value that cannot be read do, for which a table is parked."""
    stop = threading.Event()
    folds = StoppableFolds(Mock(), stop)

    def fold() -> None:
        with folds.fold():
            raise CannotFold("a value cannot be read")

    with pytest.raises(CannotFold):
        fold()
    stop.set()
    with pytest.raises(Cancelled):
        fold()
